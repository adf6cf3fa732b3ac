//! A request from the command line: its bytes, and the VIP that it goes to.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use clap::Args;
use switchback_config::{Cluster, Service};
use switchback_wire::{address_bytes, sb_flow};

use super::cannot_read;
use crate::failure::Failure;

/// What the request says besides its URL.
#[derive(Args)]
pub struct Options {
    /// The method
    #[arg(long, default_value = "GET")]
    method: String,
    /// A header field, 'Name: value'; may be given more than once
    #[arg(long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// HTTP/1.0 instead of HTTP/1.1; a path alone then comes without Host
    #[arg(long = "http1.0")]
    http10: bool,
}

/// Which VIP the request goes to.
#[derive(Args)]
pub struct Destination {
    /// The service; not needed if there is only one, or if the URL names a VIP
    #[arg(long, value_name = "NAME", conflicts_with = "vip")]
    service: Option<String>,
    /// The VIP
    #[arg(long, value_name = "ADDR:PORT")]
    vip: Option<SocketAddr>,
}

impl Options {
    /// The bytes of the request, and the flow that they come on.
    pub fn request(
        &self,
        destination: &Destination,
        cluster: &Cluster,
        url: &str,
    ) -> Result<(Vec<u8>, sb_flow), Failure> {
        let (authority, target) = split(url)?;
        let named = authority.and_then(|authority| {
            let with_port = || format!("{authority}:80").parse().ok();
            authority.parse::<SocketAddr>().ok().or_else(with_port)
        });
        let flow = destination.flow(cluster, named)?;
        let mut head = format!("{} {target} HTTP/1.{}\r\n", self.method, if self.http10 { '0' } else { '1' });
        let is_host = |field: &String| {
            field.split_once(':').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case("host"))
        };
        let without_host = self.http10 && authority.is_none();
        if !without_host && !self.headers.iter().any(is_host) {
            let vip = flow.vip();
            // As the URL http://VIP/ would have it.
            let host = vip.to_string();
            let host = authority.unwrap_or(host.strip_suffix(":80").unwrap_or(&host));
            head += &format!("Host: {host}\r\n");
        }
        for field in &self.headers {
            head += &format!("{field}\r\n");
        }
        head += "\r\n";
        Ok((head.into_bytes(), flow))
    }
}

impl Destination {
    /// A flow to the VIP that is asked for, or named by the URL, or the only service's first.
    pub fn flow(&self, cluster: &Cluster, named: Option<SocketAddr>) -> Result<sb_flow, Failure> {
        let is_vip = |vip: &SocketAddr| cluster.services.iter().any(|service| service.listen.contains(vip));
        let vip = if let Some(vip) = self.vip {
            if !is_vip(&vip) {
                return Err(Failure::system(format!("{vip} is no VIP; there are {}", vips(cluster))));
            }
            vip
        } else if let Some(name) = &self.service {
            let service = cluster.services.iter().find(|service| service.name == *name);
            service
                .ok_or_else(|| {
                    Failure::system(format!("there is no service {name}; there are {}", services(cluster)))
                })?
                .listen[0]
        } else if let Some(vip) = named.filter(is_vip) {
            vip
        } else if let [Service { listen, .. }] = &cluster.services[..] {
            listen[0]
        } else {
            return Err(Failure::system(format!(
                "which service? name it with --service or --vip; there are {}",
                services(cluster)
            )));
        };
        // Some client: none of the decisions depends on it.
        let client = address_bytes(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Ok(sb_flow { client, vip: address_bytes(vip.ip()), client_port: 0, vip_port: vip.port().to_be() })
    }
}

/// The authority of a URL, if it has one, and its target, without the fragment, which clients keep to
/// themselves.
fn split(url: &str) -> Result<(Option<&str>, String), Failure> {
    let url = url.split_once('#').map_or(url, |(url, _)| url);
    if url.starts_with('/') || url == "*" {
        return Ok((None, url.to_owned()));
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Failure::system(format!(
            "{url} is neither an http:// URL nor a path, which begins with /"
        )));
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Failure::system(format!("{scheme}:// is not served; the switch reads http:// only")));
    }
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let slash = if target.starts_with('/') { "" } else { "/" };
    Ok((Some(authority), format!("{slash}{target}")))
}

fn services(cluster: &Cluster) -> String {
    cluster.services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// All VIPs.
pub fn vips(cluster: &Cluster) -> String {
    let vips = cluster.services.iter().flat_map(|service| &service.listen);
    vips.map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// The bytes of a file, or of stdin.
pub fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    let bytes = bytes.map_err(|error| cannot_read(file, error))?;
    if bytes.is_empty() {
        return Err(cannot_read(file, "it is empty"));
    }
    Ok(bytes)
}
