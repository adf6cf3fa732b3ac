//! Real applications with sessions: a counter in PHP behind nginx or Apache, or in JSP on Tomcat.
//!
//! Sessions are the servers' own: an id in a cookie with path `/`, and data on the host that issued it, in files (PHP)
//! or in memory (Tomcat), unknown to other hosts. A client whose requests reach another node starts from one again, and
//! its old cookie is overwritten. Tests look for this failure, whose absence a simulated server would not prove.
//!
//! Every path answers `<host> <session id> <counter>` in one line of plain text, with the host also in `X-Node`.
//! `?bytes=N` adds N full stops; with `?chunked=1` the response has no length and comes in four pieces.
//!
//! PHP is an FPM for each server, as is usual with both, not a module of the server. Tomcat starts from its jars with a
//! directory of the lab, because the distributions' `tomcat10` would install a service that listens on the machine.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{Doing, Error, Result};
use crate::host::Host;
use crate::process::Process;
use crate::server::{
    Server, ServerKind, ServerOptions, apache_configuration, apache_modules, nginx_configuration,
    server_command,
};

const FPM_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const KEEP_ALIVE_S: u32 = 20;
const BACKLOG: u32 = 511;
/// As Debian's `/var/lib/php/sessions`: PHP's user may add files there.
const SESSIONS_MODE: u32 = 0o1733;
const JARS: &str = "/usr/share/java";

/// A session server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionServerKind {
    /// nginx and PHP-FPM.
    NginxPhp,
    /// Apache httpd with the event MPM, mod_proxy_fcgi and PHP-FPM.
    ApachePhp,
    /// Tomcat 10.
    Tomcat,
}

/// Options of a session server.
#[derive(Clone, Debug)]
pub struct SessionServerOptions {
    /// Its addresses; by default, port 80 of all addresses of both families.
    pub listen: Vec<SocketAddr>,
    /// Concurrent requests: PHP's processes, Tomcat's threads; 8 by default.
    pub workers: u32,
    /// The name of the session's cookie instead of `PHPSESSID` or `JSESSIONID`.
    pub cookie: Option<String>,
    /// The name of the session's cookie under `/img/`, which is then an application of its own.
    pub img_cookie: Option<String>,
    /// Whether an unknown session id is replaced (`session.use_strict_mode`); true by default. Otherwise PHP begins a
    /// session with that id. Tomcat always replaces it.
    pub strict: bool,
}

impl Default for SessionServerOptions {
    fn default() -> Self {
        let listen = ServerOptions::default().listen;
        SessionServerOptions { listen, workers: 8, cookie: None, img_cookie: None, strict: true }
    }
}

impl Server {
    /// Kills the server with all its processes. Does nothing if its main process has ended.
    pub fn kill(&self) -> Result<()> {
        for process in iter::once(self.process()).chain(self.backend()) {
            // Each has a group of its own, whose workers would outlive it; nginx's would continue to serve.
            if process.wait_timeout(Duration::ZERO)?.is_none() {
                killpg(Pid::from_raw(process.pid().cast_signed()), Signal::SIGKILL)
                    .doing(|| format!("kill the processes of {}", process.name()))?;
                process.kill()?;
            }
        }
        Ok(())
    }
}

impl Host {
    /// Starts a server with a session application, and waits until it has answered a request.
    pub fn session_server(&self, kind: SessionServerKind, options: &SessionServerOptions) -> Result<Server> {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let names = [&options.cookie, &options.img_cookie].into_iter().flatten();
        if let Some(name) = names.into_iter().find(|name| name.is_empty() || !name.bytes().all(token)) {
            return Err(Error::Invalid(format!("a cookie cannot be called {name:?}")));
        }
        let first =
            *options.listen.first().ok_or_else(|| Error::Invalid("a server needs an address".into()))?;
        let server = match kind {
            SessionServerKind::NginxPhp => self.php_server(ServerKind::Nginx, first.port(), options)?,
            SessionServerKind::ApachePhp => self.php_server(ServerKind::Apache, first.port(), options)?,
            SessionServerKind::Tomcat => self.tomcat(first.port(), options)?,
        };
        if let Err(error) = self.ask_once(&server, first) {
            server.stop()?;
            return Err(error);
        }
        Ok(server)
    }

    /// Sends the first request, which is slow, and shows whether the application runs.
    fn ask_once(&self, server: &Server, listens: SocketAddr) -> Result<()> {
        let ip = match listens.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => self.ipv4().into(),
            IpAddr::V6(_) => self.ipv6().into(),
        };
        let asking = || format!("ask {} for /", server.process().name());
        let request = format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.name());
        let mut stream = self.tcp_connect((ip, listens.port()).into(), ANSWER_TIMEOUT)?;
        let mut answer = String::new();
        stream
            .set_read_timeout(Some(ANSWER_TIMEOUT))
            .and_then(|()| stream.write_all(request.as_bytes()))
            .and_then(|()| stream.read_to_string(&mut answer))
            .doing(asking)?;
        if answer.starts_with("HTTP/1.1 200 ") && answer.contains(" 1\n") {
            return Ok(());
        }
        let log = server.process().log_tail();
        Err(io::Error::other(format!("{answer}\nIts log ends:\n{log}"))).doing(asking)
    }

    fn php_server(&self, kind: ServerKind, port: u16, options: &SessionServerOptions) -> Result<Server> {
        let directory = self.directory().join(format!("fpm-{port}"));
        let (fpm, socket) = self.fpm(&directory, port, options)?;
        let script = directory.join("session.php").display().to_string();
        let (word, extra) = match kind {
            ServerKind::Nginx => ("nginx-php", nginx_location(&socket, &script)),
            _ => ("apache-php", apache_location(&socket, &script)),
        };
        let front = ServerOptions { listen: options.listen.clone(), extra, ..ServerOptions::default() };
        let configuration =
            if kind == ServerKind::Nginx { nginx_configuration } else { apache_configuration };
        let started = self.start_server(
            word,
            &front.listen,
            |files| configuration(self.name(), files, &front),
            |files, path| server_command(kind, path, files, &front),
        );
        match started {
            Ok(server) => Ok(server.with_backend(fpm)),
            Err(error) => {
                fpm.stop()?;
                Err(error)
            }
        }
    }

    /// Starts PHP-FPM; returns it and its socket.
    fn fpm(&self, directory: &Path, port: u16, options: &SessionServerOptions) -> Result<(Process, String)> {
        // An FPM that outlived its server still has its socket, and refuses to share it.
        static INSTANCE: AtomicU32 = AtomicU32::new(0);
        let instance = INSTANCE.fetch_add(1, Ordering::Relaxed);
        let sessions = directory.join("sessions");
        make_directory(&sessions)?;
        fs::set_permissions(&sessions, fs::Permissions::from_mode(SESSIONS_MODE))
            .doing(|| format!("let PHP write to {}", sessions.display()))?;
        write(&directory.join("session.php"), PHP)?;
        let socket = directory.join(format!("{instance}.sock")).display().to_string();
        let lines = fpm_lines(self.name(), &sessions, options);
        let fpm = self.start_fpm(&format!("fpm-{port}"), directory, &socket, options.workers, &lines)?;
        Ok((fpm, socket))
    }

    /// Starts PHP-FPM at a socket, with this number of processes and additional lines of configuration.
    pub(crate) fn start_fpm(
        &self,
        name: &str,
        directory: &Path,
        socket: &str,
        workers: u32,
        lines: &str,
    ) -> Result<Process> {
        let configuration = directory.join("fpm.conf");
        write(&configuration, &fpm_configuration(socket, workers, lines))?;
        let mut command = Command::new(fpm_program()?);
        // Without the machine's php.ini and the extensions that it loads.
        command.args(["--nodaemonize", "--no-php-ini", "--fpm-config"]).arg(&configuration);
        let fpm = self.spawn(name, command)?;
        fpm.wait_for_log("ready to handle connections", FPM_TIMEOUT)?;
        Ok(fpm)
    }

    fn tomcat(&self, port: u16, options: &SessionServerOptions) -> Result<Server> {
        let base = self.directory().join(format!("catalina-{port}"));
        let application = base.join("application");
        make_directory(&application.join("WEB-INF"))?;
        make_directory(&base.join("temp"))?;
        write(&application.join("session.jsp"), JSP.trim_end())?;
        write(&application.join("WEB-INF/web.xml"), &web_xml(options))?;
        let listen = java_addresses(&options.listen);
        let only_ipv4 = options.listen.iter().all(SocketAddr::is_ipv4);
        self.start_server(
            "tomcat",
            &options.listen,
            |_| server_xml(&application, &listen, options),
            |_, path| java_command(self.name(), &base, only_ipv4, path),
        )
    }
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).doing(|| format!("create {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(|| format!("write {}", path.display()))
}

const PHP: &str = r#"<?php
if (getenv('IMG_COOKIE') && str_starts_with($_SERVER['REQUEST_URI'], '/img/')) {
    session_name(getenv('IMG_COOKIE'));
}
session_start();
$counter = ($_SESSION['counter'] ?? 0) + 1;
$_SESSION['counter'] = $counter;
// A slow reader of the response must not keep the session locked.
session_write_close();
$text = getenv('NODE') . ' ' . session_id() . " $counter\n" . str_repeat('.', (int) ($_GET['bytes'] ?? 0));
header('Content-Type: text/plain');
if (isset($_GET['chunked'])) {
    header('X-Accel-Buffering: no');
    foreach (str_split($text, intdiv(strlen($text) + 3, 4)) as $piece) {
        echo $piece;
        flush();
    }
} else {
    header('Content-Length: ' . strlen($text));
    echo $text;
}
"#;

const JSP: &str = r#"<%@ page contentType="text/plain;charset=UTF-8" %><%
int counter;
synchronized (session) {
    Integer before = (Integer) session.getAttribute("counter");
    counter = before == null ? 1 : before + 1;
    session.setAttribute("counter", counter);
}
String node = System.getProperty("node");
String bytes = request.getParameter("bytes");
String filler = ".".repeat(bytes == null ? 0 : Integer.parseInt(bytes));
String text = node + " " + session.getId() + " " + counter + "\n" + filler;
response.setHeader("X-Node", node);
if (request.getParameter("chunked") != null) {
    int piece = (text.length() + 3) / 4;
    for (int at = 0; at < text.length(); at += piece) {
        out.print(text.substring(at, Math.min(at + piece, text.length())));
        out.flush();
    }
} else {
    response.setContentLength(text.length());
    out.print(text);
}
%>
"#;

fn fpm_configuration(socket: &str, workers: u32, lines: &str) -> String {
    format!(
        "[global]
error_log = /proc/self/fd/2
[pool]
user = www-data
group = www-data
listen = {socket}
listen.mode = 0666
pm = static
pm.max_children = {workers}
{lines}"
    )
}

fn fpm_lines(host: &str, sessions: &Path, options: &SessionServerOptions) -> String {
    // The script could not change an `admin` value.
    let cookie = options.cookie.as_ref().map(|name| format!("php_value[session.name] = {name}\n"));
    let img_cookie = options.img_cookie.as_ref().map(|name| format!("env[IMG_COOKIE] = {name}\n"));
    format!(
        "listen.backlog = {BACKLOG}
env[NODE] = {host}
php_admin_value[display_errors] = 0
php_admin_value[session.gc_probability] = 0
php_admin_value[session.save_path] = {sessions}
php_admin_value[session.use_strict_mode] = {strict}
{img_cookie}{cookie}",
        img_cookie = img_cookie.unwrap_or_default(),
        sessions = sessions.display(),
        strict = u8::from(options.strict),
        cookie = cookie.unwrap_or_default(),
    )
}

/// The path of PHP-FPM, whose name has the version at Debian (`php-fpm8.2`).
fn fpm_program() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let programs = env::split_paths(&path).filter_map(|directory| fs::read_dir(directory).ok());
    let versions = programs.flatten().flatten().filter_map(|entry| {
        let name = entry.file_name();
        let version = name.to_str()?.strip_prefix("php-fpm")?;
        let parts: Vec<u32> =
            version.split_terminator('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        Some((parts, entry.path()))
    });
    let newest = versions.max().ok_or_else(|| Error::NotFound("php-fpm is not in the PATH".into()))?;
    Ok(newest.1)
}

fn nginx_location(socket: &str, script: &str) -> String {
    format!(
        "location / {{
            fastcgi_pass unix:{socket};
            fastcgi_param SCRIPT_FILENAME {script};
            fastcgi_param SCRIPT_NAME /session.php;
            fastcgi_param SERVER_PROTOCOL $server_protocol;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
        }}
        keepalive_timeout {KEEP_ALIVE_S}s;"
    )
}

fn apache_location(socket: &str, script: &str) -> String {
    // A process refuses connections beyond its threads plus this multiple of the idle ones, and kept connections count.
    // Since 2.4.59 Apache trusts a script's Content-Length only if told to.
    format!(
        "{modules}AsyncRequestWorkerFactor 40
SetEnv ap_trust_cgilike_cl yes
KeepAliveTimeout {KEEP_ALIVE_S}
AliasMatch ^/ {script}
<Location />
    SetHandler \"proxy:unix:{socket}|fcgi://localhost\"
</Location>
<Proxy fcgi://localhost>
    ProxySet flushpackets=on
</Proxy>
<Directory />
    Require all granted
</Directory>
",
        modules = apache_modules(&["alias", "env", "proxy", "proxy_fcgi"]),
    )
}

/// One socket for both families when both listen on all addresses: an IPv6 socket of Java also accepts IPv4
/// connections, and a second one would be refused the port.
fn java_addresses(listen: &[SocketAddr]) -> Vec<SocketAddr> {
    let both = |port| listen.contains(&(Ipv6Addr::UNSPECIFIED, port).into());
    let covered = |address: &SocketAddr| address.ip() == Ipv4Addr::UNSPECIFIED && both(address.port());
    listen.iter().filter(|address| !covered(address)).copied().collect()
}

/// The listeners open after the application has been compiled (`bindOnInit`, `load-on-startup`).
fn server_xml(application: &Path, listen: &[SocketAddr], options: &SessionServerOptions) -> String {
    let threads = options.workers;
    let connectors: String = listen
        .iter()
        .map(|address| {
            format!(
                "    <Connector address=\"{ip}\" port=\"{port}\" bindOnInit=\"false\"
      acceptCount=\"{BACKLOG}\" keepAliveTimeout=\"{keep_alive_ms}\" maxKeepAliveRequests=\"-1\"
      maxThreads=\"{threads}\" minSpareThreads=\"1\"/>\n",
                ip = address.ip(),
                port = address.port(),
                keep_alive_ms = KEEP_ALIVE_S * 1000,
            )
        })
        .collect();
    // No scanning for classes, and no sessions kept over a restart.
    let context = |attributes: &str| {
        format!(
            "        <Context {attributes} docBase=\"{}\">
          <Manager pathname=\"\"/>
          <JarScanner scanClassPath=\"false\" scanManifest=\"false\"/>
        </Context>
",
            application.display()
        )
    };
    let img = options
        .img_cookie
        .as_ref()
        .map(|name| context(&format!("path=\"/img\" sessionCookieName=\"{name}\" sessionCookiePath=\"/\"")));
    format!(
        "<Server port=\"-1\">
  <Service name=\"sessions\">
{connectors}    <Engine name=\"sessions\" defaultHost=\"localhost\">
      <Host name=\"localhost\" appBase=\"none\" deployOnStartup=\"false\" autoDeploy=\"false\"
        failCtxIfServletStartFails=\"true\">
{root}{img}      </Host>
    </Engine>
  </Service>
</Server>
",
        root = context("path=\"\""),
        img = img.unwrap_or_default(),
    )
}

fn web_xml(options: &SessionServerOptions) -> String {
    let name = options.cookie.as_ref().map(|name| format!("<name>{name}</name>")).unwrap_or_default();
    format!(
        "<web-app xmlns=\"https://jakarta.ee/xml/ns/jakartaee\" version=\"6.0\" metadata-complete=\"true\">
  <servlet>
    <servlet-name>session</servlet-name>
    <jsp-file>/session.jsp</jsp-file>
    <load-on-startup>1</load-on-startup>
  </servlet>
  <servlet-mapping>
    <servlet-name>session</servlet-name>
    <url-pattern>/*</url-pattern>
  </servlet-mapping>
  <session-config>
    <cookie-config>{name}</cookie-config>
    <tracking-mode>COOKIE</tracking-mode>
  </session-config>
</web-app>
"
    )
}

/// All of Tomcat on one class path: its own loaders would require the layout of an installation.
fn java_command(host: &str, base: &Path, only_ipv4: bool, configuration: &str) -> Command {
    let tomcat = [
        "annotations-api",
        "api",
        "catalina",
        "coyote",
        "el-api",
        "jasper",
        "jasper-el",
        "jaspic-api",
        "jni",
        "jsp-api",
        "juli",
        "servlet-api",
        "util",
        "util-scan",
    ];
    let tomcat = tomcat.iter().map(|name| format!("{JARS}/tomcat10-{name}.jar"));
    // The compiler; newer distributions have it in a separate jar. Java ignores missing jars.
    let compiler = ["eclipse-jdt-core", "eclipse-jdt-core-compiler-batch"];
    let compiler = compiler.map(|name| format!("{JARS}/{name}.jar"));
    let class_path: Vec<String> = tomcat.chain(compiler).collect();
    let base = base.display();
    let mut command = Command::new("java");
    // For many instances on two cores: a small heap, the quick compiler only, no verification of compiled code, and no
    // files in /tmp/hsperfdata_root.
    command.args(["-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]);
    command.args(["-Xms16m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    command.args(["-Xshare:auto", "-Djava.awt.headless=true"]);
    command.arg(format!("-Djava.net.preferIPv4Stack={only_ipv4}")).arg(format!("-Dnode={host}"));
    command.args(["home", "base"].map(|what| format!("-Dcatalina.{what}={base}")));
    command.arg(format!("-Djava.io.tmpdir={base}/temp")).args(["-cp", &class_path.join(":")]);
    command.args(["org.apache.catalina.startup.Bootstrap", "-config", configuration, "start"]);
    command
}
