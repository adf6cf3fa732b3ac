//! When a container is ready: as its probe says; without one, when its port accepts connections.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use switchback_lab::Host;

/// Time between tries as long as a container has not been ready. A real kubelet leaves the probe's period between these,
/// too.
const STARTING_PERIOD: Duration = Duration::from_millis(50);
const DEFAULT_PERIOD: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(1);

/// The readiness probe of a container.
#[derive(Clone)]
pub(crate) struct Probe {
    check: Check,
    pub(crate) initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    /// How many failures in a row make a ready container unready.
    pub(crate) failures: u32,
    /// Whether it goes on once the container is ready.
    pub(crate) repeated: bool,
}

#[derive(Clone)]
enum Check {
    /// It is ready as soon as it runs.
    Running,
    Tcp(u16),
    Http {
        port: u16,
        path: String,
        host: Option<String>,
    },
}

impl Probe {
    /// The probe of a container whose image, without a port of the container, has this one. An error tells what cannot be
    /// probed.
    pub(crate) fn of(container: &Container, image_port: Option<u16>) -> Result<Probe, String> {
        let seconds = |value: Option<i32>, default: Duration| {
            value.and_then(|value| value.try_into().ok()).map_or(default, Duration::from_secs)
        };
        let Some(given) = &container.readiness_probe else {
            let ports =
                container.ports.iter().flatten().filter(|port| port.protocol.as_deref() != Some("UDP"));
            let port = ports.filter_map(|port| port.container_port.try_into().ok()).next().or(image_port);
            return Ok(Probe {
                check: port.map_or(Check::Running, Check::Tcp),
                initial_delay: Duration::ZERO,
                period: DEFAULT_PERIOD,
                timeout: TIMEOUT,
                failures: 1,
                repeated: false,
            });
        };
        let check = match (&given.http_get, &given.tcp_socket) {
            (Some(HTTPGetAction { host, path, port, scheme, .. }), _)
                if scheme.as_deref() != Some("HTTPS") =>
            {
                let path = path.clone().unwrap_or_else(|| "/".to_owned());
                Check::Http { port: number(container, port)?, path, host: host.clone() }
            }
            (_, Some(socket)) => Check::Tcp(number(container, &socket.port)?),
            _ => return Err("a readinessProbe other than httpGet over HTTP and tcpSocket".to_owned()),
        };
        Ok(Probe {
            check,
            initial_delay: seconds(given.initial_delay_seconds, Duration::ZERO),
            period: seconds(given.period_seconds, DEFAULT_PERIOD),
            timeout: seconds(given.timeout_seconds, TIMEOUT),
            failures: given.failure_threshold.and_then(|count| count.try_into().ok()).unwrap_or(3),
            repeated: true,
        })
    }

    /// Time between two tries.
    pub(crate) fn period(&self, ready: bool) -> Duration {
        if ready { self.period } else { self.period.min(STARTING_PERIOD) }
    }

    /// Tries once, from the machine.
    pub(crate) async fn holds(&self, machine: &Host, address: IpAddr) -> bool {
        let (probe, machine) = (self.clone(), machine.clone());
        let tried = tokio::task::spawn_blocking(move || probe.try_once(&machine, address));
        tried.await.unwrap_or(false)
    }

    fn try_once(&self, machine: &Host, address: IpAddr) -> bool {
        let connect = |port| machine.tcp_connect(SocketAddr::new(address, port), self.timeout);
        match &self.check {
            Check::Running => true,
            Check::Tcp(port) => connect(*port).is_ok(),
            Check::Http { port, path, host } => {
                let host = host.clone().unwrap_or_else(|| SocketAddr::new(address, *port).to_string());
                let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
                let ask = || -> std::io::Result<String> {
                    let mut stream = connect(*port).map_err(std::io::Error::other)?;
                    stream.set_read_timeout(Some(self.timeout))?;
                    stream.write_all(request.as_bytes())?;
                    let mut line = String::new();
                    BufReader::new(stream).read_line(&mut line)?;
                    Ok(line)
                };
                let status = ask().ok().and_then(|line| line.split(' ').nth(1)?.parse().ok());
                status.is_some_and(|status: u16| (200..400).contains(&status))
            }
        }
    }
}

fn number(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let found = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port)
        }
    };
    found
        .and_then(|number| number.try_into().ok())
        .ok_or_else(|| "a probe's port that does not exist".to_owned())
}
