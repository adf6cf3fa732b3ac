//! The proxies and their configurations, each at its fastest: two threads or processes, kept connections to the nodes,
//! no log.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use switchback_lab::{Doing, Error, Lab, Process, Result};

use super::Proxy;
use super::system::{MOVED, READY, System};

/// Worker threads or processes of each.
const WORKERS: usize = 2;
/// Idle connections to the nodes that each worker of nginx keeps: more than any load has requests at a time. With fewer it
/// would make new ones all the time.
const NGINX_IDLE: usize = 512;

/// Address of a proxy, and the servers behind it.
struct Front {
    listen: SocketAddr,
    nodes: Vec<SocketAddr>,
    /// The file with certificate and key, if the proxy ends TLS.
    certificate: Option<PathBuf>,
    /// Whether nginx may put what its client has not taken yet into files.
    has_files: bool,
}

impl Front {
    /// A name that is unique among the proxy's fronts.
    fn name(&self) -> String {
        format!("p{}", self.listen.port())
    }

    /// A line for each node.
    fn lines(&self, line: impl Fn(usize, &SocketAddr) -> String) -> String {
        self.nodes.iter().enumerate().map(|(number, node)| line(number, node) + "\n").collect()
    }
}

/// What a proxy does besides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duties<'a> {
    /// The file with certificate and key, if it ends TLS.
    pub(super) certificate: Option<&'a Path>,
    /// Whether nginx may put what its client has not taken yet into files, which it does by default, for up to 1 GiB.
    pub(super) has_files: bool,
}

impl Duties<'_> {
    pub(super) const PLAIN: Duties<'static> = Duties { certificate: None, has_files: true };
}

/// Starts a proxy on the second switch, with a front for each number of nodes, and waits until it listens.
pub(super) fn start(lab: &Lab, proxy: &Proxy, nodes: &[usize], duties: Duties<'_>) -> Result<Process> {
    let Proxy { system, program } = proxy;
    let host = lab.switch(1);
    let name = format!("{system}-proxy").to_lowercase().replace(' ', "-");
    let directory = host.directory().join(&name);
    fs::create_dir(&directory).doing(|| format!("create {}", directory.display()))?;
    let front = |&count: &usize| Front {
        listen: (host.ipv4(), system.port(count)).into(),
        nodes: lab.nodes().take(count).map(|node| (node.ipv4(), System::Direct.port(count)).into()).collect(),
        certificate: duties.certificate.map(Path::to_owned),
        has_files: duties.has_files,
    };
    let fronts: Vec<Front> = nodes.iter().map(front).collect();
    // Envoy infers the format from the extension.
    let file = directory.join(if *system == System::Envoy { "proxy.yaml" } else { "proxy.conf" });
    let mut command = Command::new(program);
    let configuration = match system {
        System::Haproxy | System::OtherHaproxy(_) => {
            command.args(["-db", "-f"]);
            haproxy_configuration(&fronts)
        }
        System::Nginx | System::OtherNginx(_) => {
            command.arg("-p").arg(&directory).args(["-e", "stderr", "-c"]);
            nginx_configuration(&directory, &fronts)
        }
        System::Envoy => {
            // Hot restart would leave shared memory behind, shared with labs that run at the same time.
            command.args(["--disable-hot-restart", "--log-level", "warn"]);
            command.args(["--concurrency", &WORKERS.to_string(), "-c"]);
            envoy_configuration(&fronts)
        }
        System::Direct | System::Switchback | System::Forwarder => {
            return Err(Error::Invalid(format!("{system} is no proxy")));
        }
    };
    command.arg(&file);
    fs::write(&file, configuration).doing(|| format!("write {}", file.display()))?;
    let process = host.spawn(&name, command)?;
    let listen: Vec<SocketAddr> = fronts.iter().map(|front| front.listen).collect();
    host.wait_for_listeners(&process, &listen, READY)?;
    Ok(process)
}

fn haproxy_configuration(fronts: &[Front]) -> String {
    let part = |front: &Front| {
        let (name, listen) = (front.name(), front.listen);
        let servers = front.lines(|number, node| format!("    server node{number} {node}"));
        let tls =
            front.certificate.iter().map(|path| format!(" ssl crt {} alpn h2,http/1.1", path.display()));
        let tls: String = tls.collect();
        format!(
            "listen {name}\n    bind {listen}{tls}\n    balance roundrobin\n    http-request redirect location /small code 301 if {{ path {MOVED} }}\n{servers}"
        )
    };
    format!(
        "global
    nbthread {WORKERS}
    maxconn 4096
defaults
    mode http
    option http-keep-alive
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout http-keep-alive 60s
{}",
        fronts.iter().map(part).collect::<String>()
    )
}

/// nginx keeps connections to the nodes because of the empty `Connection`. Its limits on requests per connection (1000
/// by default) are lifted, since the other proxies have none.
fn nginx_configuration(directory: &Path, fronts: &[Front]) -> String {
    let path = |name: &str| directory.join(name).display().to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("    {what}_temp_path {};\n", path(&format!("{what}-temp"))))
        .collect();
    let part = |front: &Front| {
        let (name, listen) = (front.name(), front.listen);
        let servers = front.lines(|_, node| format!("        server {node};"));
        let path = front.certificate.as_ref().map(|path| path.display().to_string());
        let (ssl, certificate) = path.map_or(("", String::new()), |path| {
            let lines = [
                "ssl_protocols TLSv1.2 TLSv1.3".to_owned(),
                format!("ssl_certificate {path}"),
                format!("ssl_certificate_key {path}"),
            ];
            (" ssl http2", lines.map(|line| format!("        {line};\n")).concat())
        });
        let files = if front.has_files { "" } else { "\n            proxy_max_temp_file_size 0;" };
        format!(
            "    upstream {name} {{
{servers}        keepalive {NGINX_IDLE};
        keepalive_requests 1000000000;
    }}
    server {{
        listen {listen}{ssl};
{certificate}        location = {MOVED} {{
            return 301 /small;
        }}
        location / {{
            proxy_pass http://{name};
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";{files}
        }}
    }}
"
        )
    };
    format!(
        "daemon off;
user root;
worker_processes {WORKERS};
worker_rlimit_nofile 16384;
pid {pid};
error_log stderr notice;
events {{
    worker_connections 4096;
}}
http {{
    access_log off;
    keepalive_requests 1000000000;
{temporary}{parts}}}
",
        pid = path("nginx.pid"),
        parts = fronts.iter().map(part).collect::<String>(),
    )
}

fn envoy_configuration(fronts: &[Front]) -> String {
    let address = |at: &SocketAddr| {
        format!("{{ socket_address: {{ address: {}, port_value: {} }} }}", at.ip(), at.port())
    };
    let listener = |front: &Front| {
        let (name, listen) = (front.name(), address(&front.listen));
        format!(
            "  - address: {listen}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: {name}
          route_config:
            virtual_hosts:
            - name: {name}
              domains: [\"*\"]
              routes:
              - {{ match: {{ path: \"{MOVED}\" }}, redirect: {{ path_redirect: /small }} }}
              - {{ match: {{ prefix: \"/\" }}, route: {{ cluster: {name} }} }}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
"
        )
    };
    let cluster = |front: &Front| {
        let name = front.name();
        let nodes = front.lines(|_, node| format!("        - endpoint: {{ address: {} }}", address(node)));
        format!(
            "  - name: {name}
    type: STATIC
    lb_policy: ROUND_ROBIN
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
{nodes}"
        )
    };
    format!(
        "static_resources:\n  listeners:\n{}  clusters:\n{}",
        fronts.iter().map(listener).collect::<String>(),
        fronts.iter().map(cluster).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_front_has_a_name_and_its_nodes() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let front = |listen, nodes: &[&str]| Front {
            listen: address(listen),
            nodes: nodes.iter().map(|node| address(node)).collect(),
            certificate: None,
            has_files: true,
        };
        let fronts = [
            front("192.0.2.11:8101", &["192.0.2.20:8001"]),
            front("192.0.2.11:8102", &["192.0.2.20:8002", "192.0.2.21:8002"]),
        ];
        let texts = [
            haproxy_configuration(&fronts),
            nginx_configuration(Path::new("/tmp"), &fronts),
            envoy_configuration(&fronts),
        ];
        for text in texts {
            assert!(text.contains("p8101") && text.contains("p8102"), "{text}");
            let count = |words: &str| text.matches(words).count();
            assert_eq!(count("192.0.2.20") + count("192.0.2.21"), 3, "{text}");
            assert_eq!(count("8002"), 2, "{text}");
        }
    }
}
