//! Questions to name servers.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{RData, RecordType};
use hickory_resolver::{TokioResolver, system_conf};

/// Time that a name server has for an answer, each time that it is asked.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often a question is repeated at once; later it is another question.
const REPEATED: usize = 1;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// At least one, all of one IP version.
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// How long that is true.
    pub(crate) ttl: Duration,
}

/// Asks for the addresses of a name, which is absolute: its IPv4 addresses, or if it has none, those of IPv6. A machine that has
/// both is one node, and nothing tells which two addresses are of one machine.
///
/// `servers` are name servers; none: those in `/etc/resolv.conf` as it is now. The error says why there is no address.
pub(crate) async fn ask(servers: &[SocketAddr], host: &str) -> Result<Answer, String> {
    let resolver = resolver(servers).map_err(|error| error.to_string())?;
    for kind in [RecordType::A, RecordType::AAAA] {
        match resolver.lookup(format!("{host}."), kind).await {
            Ok(found) => {
                let addresses = found.answers().iter().filter_map(|record| match record.data {
                    RData::A(address) => Some(IpAddr::V4(address.0)),
                    RData::AAAA(address) => Some(IpAddr::V6(address.0)),
                    _ => None,
                });
                let addresses: BTreeSet<IpAddr> = addresses.collect();
                // Aliases count, too.
                let ttl = found.answers().iter().map(|record| record.ttl).min().unwrap_or_default();
                if !addresses.is_empty() {
                    return Ok(Answer { addresses, ttl: Duration::from_secs(ttl.into()) });
                }
            }
            Err(error) => match code(&error) {
                Some(ResponseCode::NoError) => {}
                Some(ResponseCode::NXDomain) => return Err("there is no such name".to_owned()),
                Some(code) => return Err(format!("the name server answers: {code}")),
                None => return Err(error.to_string()),
            },
        }
    }
    Err("it has no address".to_owned())
}

/// What a name server has answered instead of records.
fn code(error: &NetError) -> Option<ResponseCode> {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => Some(none.response_code),
        NetError::Dns(DnsError::ResponseCode(code)) => Some(*code),
        _ => None,
    }
}

fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let config = match servers {
        [] => {
            // Names are absolute, so neither its domain nor its list of them count.
            let (config, _) = system_conf::read_system_conf()?;
            config
        }
        _ => ResolverConfig::from_name_servers(servers.iter().map(name_server).collect()),
    };
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    options.timeout = TIMEOUT;
    options.attempts = REPEATED;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    builder.build()
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    connections.iter_mut().for_each(|connection| connection.port = address.port());
    NameServerConfig::new(address.ip(), true, connections)
}
