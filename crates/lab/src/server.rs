//! Real servers on a host: unmodified nginx, Apache and Caddy with configurations of the lab.
//!
//! All serve the same tree: `/small`, `/1m`, documents of [`Lab::add_document`](crate::Lab::add_document), and `/node`,
//! whose body is the host's name; a page at `/` shows it, too. All responses have the header `X-Node` with the host's name.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::document;
use crate::error::{Doing, Error, Result};
use crate::host::Host;
use crate::process::Process;

/// Timeout of a start. Several Java machines that start together on two cores may need ten seconds.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the table of listeners is read, since there is no event for a new listener.
const READY_POLL: Duration = Duration::from_millis(4);
const HTTP_PORT: u16 = 80;
/// The state of a listening socket in `/proc/net/tcp` (`TCP_LISTEN`).
const LISTEN_STATE: &str = "0A";

/// A server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// nginx.
    Nginx,
    /// Apache httpd with the event MPM.
    Apache,
    /// Caddy.
    Caddy,
}

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Its addresses; by default, port 80 of all addresses of both families.
    pub listen: Vec<SocketAddr>,
    /// Worker processes (nginx), processes of 25 threads (Apache), scheduler threads (Caddy); 1 by default.
    pub workers: u32,
    /// Whether requests are logged to [`Server::access_log`].
    pub access_log: bool,
    /// Additional lines for the `server` block (nginx), the whole server (Apache) or the site block (Caddy).
    pub extra: String,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions::on_port(HTTP_PORT)
    }
}

impl ServerOptions {
    /// The defaults on another port.
    pub fn on_port(port: u16) -> Self {
        let listen = vec![(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()];
        ServerOptions { listen, workers: 1, access_log: false, extra: String::new() }
    }
}

/// A running server.
#[derive(Clone, Debug)]
pub struct Server {
    process: Process,
    /// The process to which it passes requests, if any.
    backend: Option<Process>,
    files: Files,
}

#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) directory: PathBuf,
    pub(crate) root: PathBuf,
}

impl Files {
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

impl Server {
    /// Its main process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn with_backend(self, backend: Process) -> Server {
        Server { backend: Some(backend), ..self }
    }

    /// The process behind it, such as PHP-FPM, if any.
    pub fn backend(&self) -> Option<&Process> {
        self.backend.as_ref()
    }

    /// The directory of its documents.
    pub fn document_root(&self) -> &Path {
        &self.files.root
    }

    /// The log of requests, one line each; absent unless enabled.
    pub fn access_log(&self) -> PathBuf {
        self.files.directory.join("access.log")
    }

    /// Ends it, and waits: open requests are cut off (nginx, Apache) or have a second (Caddy).
    pub fn stop(&self) -> Result<()> {
        self.process.stop()?;
        self.backend.as_ref().map_or(Ok(()), |backend| backend.stop().map(drop))
    }
}

impl Host {
    /// Starts nginx and waits until it listens.
    pub fn nginx(&self, options: &ServerOptions) -> Result<Server> {
        self.server(ServerKind::Nginx, options)
    }

    /// Starts Apache httpd and waits until it listens.
    pub fn apache(&self, options: &ServerOptions) -> Result<Server> {
        self.server(ServerKind::Apache, options)
    }

    /// Starts Caddy and waits until it listens.
    pub fn caddy(&self, options: &ServerOptions) -> Result<Server> {
        self.server(ServerKind::Caddy, options)
    }

    /// Starts a server and waits until it listens on all its addresses.
    pub fn server(&self, kind: ServerKind, options: &ServerOptions) -> Result<Server> {
        let (word, configuration): (_, fn(&str, &Files, &ServerOptions) -> String) = match kind {
            ServerKind::Nginx => ("nginx", nginx_configuration),
            ServerKind::Apache => ("apache", apache_with_index),
            ServerKind::Caddy => ("caddy", caddy_configuration),
        };
        self.start_server(
            word,
            &options.listen,
            |files| configuration(self.name(), files, options),
            |files, path| server_command(kind, path, files, options),
        )
    }

    /// Makes the server's directory, writes its configuration there, starts it and waits until it listens.
    pub(crate) fn start_server(
        &self,
        word: &str,
        listen: &[SocketAddr],
        configuration: impl FnOnce(&Files) -> String,
        command: impl FnOnce(&Files, &str) -> Command,
    ) -> Result<Server> {
        let first = listen.first().ok_or_else(|| Error::Invalid("a server needs an address".to_owned()))?;
        let name = format!("{word}-{}", first.port());
        // Only while the lab is up: after a teardown, create_dir_all would restore its directories.
        let (files, path) = self.shared().while_up(|| {
            let root = document::root_of(self.lab_directory(), self.name())?;
            let files = Files { directory: self.directory().join(&name), root };
            let directory = &files.directory;
            fs::create_dir_all(directory).doing(|| format!("create {}", directory.display()))?;
            let path = files.path("server.conf");
            fs::write(&path, configuration(&files)).doing(|| format!("write {path}"))?;
            Ok((files, path))
        })?;
        let process = self.spawn(&name, command(&files, &path))?;
        let server = Server { process, backend: None, files };
        self.wait_for_listeners(&server.process, listen, READY_TIMEOUT)?;
        Ok(server)
    }

    /// Waits until sockets of this host listen on the ports of all these addresses, or on all addresses of the port. An
    /// error if the process that opens them ends first.
    pub fn wait_for_listeners(&self, process: &Process, on: &[SocketAddr], timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let listeners = self.enter(listeners)??;
            let missing =
                on.iter().find(|address| !listeners.iter().any(|listener| covers(listener, address)));
            let Some(missing) = missing else { return Ok(()) };
            if let Some(status) = process.wait_timeout(READY_POLL)? {
                return Err(Error::Exited {
                    process: process.name().to_owned(),
                    status,
                    log: process.log_tail(),
                });
            }
            if Instant::now() > deadline {
                let waiting_for = format!("listener of {} on {missing}", process.name());
                return Err(Error::Timeout { waiting_for, after: timeout, log: process.log_tail() });
            }
        }
    }
}

fn covers(listener: &SocketAddr, address: &SocketAddr) -> bool {
    let unspecified = listener.ip().is_unspecified();
    let same_family = listener.is_ipv4() == address.is_ipv4();
    let dual_stack = unspecified && listener.is_ipv6();
    listener.port() == address.port() && (listener == address || dual_stack || unspecified && same_family)
}

/// The listening sockets in the namespace of the calling thread.
fn listeners() -> Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    for path in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        let table = fs::read_to_string(path).doing(|| format!("read {path}"))?;
        found.extend(table.lines().skip(1).filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next()?;
            (fields.nth(1)? == LISTEN_STATE).then(|| parse_address(local)).flatten()
        }));
    }
    Ok(found)
}

/// Parses `0100007F:0050`: 32-bit words in the machine's byte order, then the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for at in (0..words.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(words.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    if let Ok(v4) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some((v4, port).into());
    }
    // Java listens on an IPv4 address with an IPv6 socket.
    let v6 = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
    Some((v6.to_canonical(), port).into())
}

pub(crate) fn server_command(
    kind: ServerKind,
    configuration: &str,
    files: &Files,
    options: &ServerOptions,
) -> Command {
    match kind {
        ServerKind::Nginx => {
            let mut command = Command::new("nginx");
            command.args(["-p", &files.path(""), "-e", "stderr", "-c", configuration]);
            command
        }
        ServerKind::Apache => apache_command(configuration),
        ServerKind::Caddy => {
            let mut command = Command::new("caddy");
            command.args(["run", "--adapter", "caddyfile", "--config", configuration]);
            command.env("HOME", &files.directory).env("XDG_DATA_HOME", &files.directory);
            command.env("XDG_CONFIG_HOME", &files.directory).env("GOMAXPROCS", options.workers.to_string());
            command
        }
    }
}

pub(crate) fn apache_command(configuration: &str) -> Command {
    let mut command = Command::new("apache2");
    command.args(["-D", "FOREGROUND", "-f", configuration]);
    command
}

pub(crate) fn apache_modules(names: &[&str]) -> String {
    let load = |name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    names.iter().map(load).collect()
}

pub(crate) fn nginx_configuration(host: &str, files: &Files, options: &ServerOptions) -> String {
    let listen: String =
        options.listen.iter().map(|address| format!("        listen {address};\n")).collect();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("    {what}_temp_path {};\n", files.path(&format!("{what}-temp"))))
        .collect();
    let access_log = if options.access_log { files.path("access.log") } else { "off".to_owned() };
    format!(
        "daemon off;
user root;
worker_processes {workers};
worker_rlimit_nofile 65536;
pid {pid};
error_log stderr notice;
events {{
    worker_connections 16384;
}}
http {{
    access_log {access_log};
    default_type application/octet-stream;
    sendfile on;
    keepalive_requests 1000000000;
{temporary}    server {{
{listen}        root {root};
        add_header X-Node {host} always;
        {extra}
    }}
}}
",
        workers = options.workers,
        pid = files.path("nginx.pid"),
        root = files.root.display(),
        extra = options.extra,
    )
}

pub(crate) fn apache_configuration(host: &str, files: &Files, options: &ServerOptions) -> String {
    let modules = apache_modules(&["mpm_event", "authz_core", "headers"]);
    let listen: String = options.listen.iter().map(|address| format!("Listen {address}\n")).collect();
    let access_log = if options.access_log {
        format!("CustomLog {} common\n", files.path("access.log"))
    } else {
        String::new()
    };
    format!(
        "{modules}ServerRoot {directory}
ServerName {host}
User www-data
Group www-data
PidFile {pid}
Mutex file:{directory}
ErrorLog /dev/stderr
LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b\" common
{access_log}{listen}DocumentRoot {root}
Header always set X-Node {host}
KeepAlive On
MaxKeepAliveRequests 0
StartServers {workers}
ServerLimit {workers}
ThreadsPerChild 25
MaxRequestWorkers {threads}
MinSpareThreads 1
MaxSpareThreads {threads}
<Directory {root}>
    Require all granted
</Directory>
{extra}
",
        directory = files.directory.display(),
        pid = files.path("apache.pid"),
        root = files.root.display(),
        workers = options.workers,
        threads = options.workers * 25,
        extra = options.extra,
    )
}

/// Apache needs a module for the page at `/`, which would keep requests from what is behind other Apaches of the lab.
fn apache_with_index(host: &str, files: &Files, options: &ServerOptions) -> String {
    let index = "DirectoryIndex index.html\n<Files index.html>\n    ForceType text/html\n</Files>\n";
    apache_configuration(host, files, options) + &apache_modules(&["dir"]) + index
}

fn caddy_configuration(host: &str, files: &Files, options: &ServerOptions) -> String {
    // One site for each port; a site listens on the addresses of `bind`.
    let mut ports: Vec<u16> = options.listen.iter().map(SocketAddr::port).collect();
    ports.sort_unstable();
    ports.dedup();
    let sites = ports.iter().map(|port| {
        let on_port = options.listen.iter().filter(|address| address.port() == *port);
        let bind: String = on_port.map(|address| format!(" {}", caddy_address(address))).collect();
        let log = if options.access_log {
            format!("    log {{\n        output file {}\n    }}\n", files.path("access.log"))
        } else {
            String::new()
        };
        format!(
            "http://:{port} {{
    bind{bind}
    root * {root}
    header X-Node {host}
    file_server
{log}    {extra}
}}
",
            root = files.root.display(),
            extra = options.extra,
        )
    });
    let sites: String = sites.collect();
    format!("{{\n    admin off\n    auto_https off\n    grace_period 1s\n}}\n{sites}")
}

/// One listener for each family: a bare `::` would also accept IPv4 connections.
fn caddy_address(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) => format!("tcp4/{}", v4.ip()),
        SocketAddr::V6(v6) => format!("tcp6/[{}]", v6.ip()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_address("0100007F:0050"), "127.0.0.1:80".parse().ok());
        assert_eq!(parse_address("00000000000000000000000001000000:1F90"), "[::1]:8080".parse().ok());
        assert_eq!(parse_address("0000000000000000FFFF0000140200C0:1F90"), "192.0.2.20:8080".parse().ok());
        assert_eq!(parse_address("0100007F"), None);
    }

    #[test]
    fn a_listener_on_all_addresses_covers_each_of_its_family() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert!(covers(&address("0.0.0.0:80"), &address("192.0.2.100:80")));
        assert!(covers(&address("[::]:80"), &address("0.0.0.0:80")));
        assert!(!covers(&address("0.0.0.0:80"), &address("[::]:80")));
        assert!(!covers(&address("0.0.0.0:81"), &address("0.0.0.0:80")));
        assert!(!covers(&address("192.0.2.1:80"), &address("192.0.2.2:80")));
    }
}
