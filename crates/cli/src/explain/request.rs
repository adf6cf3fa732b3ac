//! A request from the command line: its bytes, and its VIP.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use switchback_config::{Cluster, Scheme, Service};
use switchback_wire::{address_bytes, sb_flow};

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
    /// What the client offers to speak above TLS; may be given more than once. Unless told, h2 and http/1.1
    #[arg(long, value_name = "PROTOCOL")]
    alpn: Vec<String>,
}

/// A request, with its flow.
pub struct Request {
    /// The request's bytes, in the clear.
    pub bytes: Vec<u8>,
    /// The flow of the request.
    pub flow: sb_flow,
    /// The ClientHello before the request, if the service speaks TLS.
    pub hello: Option<Vec<u8>>,
}

/// Which VIP the request goes to, and whose it is.
#[derive(Args)]
pub struct Destination {
    /// The service; not needed if there is only one, or if the URL names a VIP
    #[arg(long, value_name = "NAME", conflicts_with = "vip")]
    service: Option<String>,
    /// The VIP
    #[arg(long, value_name = "ADDR:PORT")]
    vip: Option<SocketAddr>,
    /// Address of the client
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    client: IpAddr,
}

impl Options {
    /// A request for this URL.
    pub fn request(
        &self,
        destination: &Destination,
        cluster: &Cluster,
        url: &str,
    ) -> Result<Request, Failure> {
        let Url { scheme, authority, target } = split(url)?;
        let port = scheme.unwrap_or(Scheme::Http).default_port();
        let named = authority.and_then(|authority| {
            let with_port = || format!("{authority}:{port}").parse().ok();
            authority.parse::<SocketAddr>().ok().or_else(with_port)
        });
        let flow = destination.flow(cluster, named, scheme)?;
        let service = cluster.services.iter().find(|service| service.listen.contains(&flow.vip()));
        let speaks_tls = service.is_some_and(|service| service.scheme() == Scheme::Https);
        if scheme == Some(Scheme::Https) && !speaks_tls {
            return Err(Failure::system(format!("{}: no TLS is spoken there", flow.vip())));
        }
        let is_tls = speaks_tls && scheme != Some(Scheme::Http);
        if !is_tls && !self.alpn.is_empty() {
            return Err(Failure::system("--alpn is for an https:// URL, or a path of a service with TLS"));
        }
        let hello = is_tls.then(|| self.hello(authority)).transpose()?;
        let mut head = format!("{} {target} HTTP/1.{}\r\n", self.method, if self.http10 { '0' } else { '1' });
        let is_host = |field: &String| {
            field.split_once(':').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case("host"))
        };
        let without_host = self.http10 && authority.is_none();
        if !without_host && !self.headers.iter().any(is_host) {
            let vip = flow.vip();
            // The port is the default of the VIP's scheme.
            let port = if is_tls { Scheme::Https } else { Scheme::Http }.default_port();
            let host = vip.to_string();
            let host = authority.unwrap_or(host.strip_suffix(&format!(":{port}")).unwrap_or(&host));
            head += &format!("Host: {host}\r\n");
        }
        for field in &self.headers {
            head += &format!("{field}\r\n");
        }
        head += "\r\n";
        Ok(Request { bytes: head.into_bytes(), flow, hello })
    }

    /// The ClientHello for a host; an address is not a name, and is not sent.
    fn hello(&self, authority: Option<&str>) -> Result<Vec<u8>, Failure> {
        let of = authority.map_or("127.0.0.1", host);
        let name = ServerName::try_from(of.to_owned())
            .map_err(|_| Failure::system(format!("{of} is no name of a host")))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let cannot = |error: rustls::Error| Failure::system(format!("cannot make a ClientHello: {error}"));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(cannot)?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let usual = [&b"h2"[..], b"http/1.1"];
        config.alpn_protocols = match &self.alpn[..] {
            [] if self.http10 => vec![b"http/1.1".to_vec()],
            [] => usual.map(<[u8]>::to_vec).to_vec(),
            some => some.iter().map(|protocol| protocol.clone().into_bytes()).collect(),
        };
        let mut client = ClientConnection::new(Arc::new(config), name).map_err(cannot)?;
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("a vector takes everything");
        Ok(bytes)
    }
}

/// The host of an authority, without brackets.
fn host(authority: &str) -> &str {
    let bracketed = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let plain = || authority.split_once(':').map_or(authority, |(host, _)| host);
    bracketed.map_or_else(plain, |(host, _)| host)
}

impl Destination {
    /// A flow to the VIP given by option or URL, or to the first VIP of the only service with this scheme.
    pub fn flow(
        &self,
        cluster: &Cluster,
        named: Option<SocketAddr>,
        scheme: Option<Scheme>,
    ) -> Result<sb_flow, Failure> {
        let has_scheme = |service: &&Service| scheme.is_none_or(|scheme| service.scheme() == scheme);
        let of_scheme: Vec<&Service> = cluster.services.iter().filter(has_scheme).collect();
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
        } else if let ([Service { listen, .. }], _) | (_, [Service { listen, .. }]) =
            (&cluster.services[..], &of_scheme[..])
        {
            listen[0]
        } else {
            return Err(Failure::system(format!(
                "which service? name it with --service or --vip; there are {}",
                services(cluster)
            )));
        };
        Ok(sb_flow {
            client: address_bytes(self.client),
            vip: address_bytes(vip.ip()),
            client_port: 0,
            vip_port: vip.port().to_be(),
        })
    }
}

/// The parts of a URL that a client uses.
struct Url<'a> {
    scheme: Option<Scheme>,
    authority: Option<&'a str>,
    /// Path and query, without the fragment, which clients do not send.
    target: String,
}

/// Splits a URL, or a path alone.
fn split(url: &str) -> Result<Url<'_>, Failure> {
    let url = url.split_once('#').map_or(url, |(url, _)| url);
    if url.starts_with('/') || url == "*" {
        return Ok(Url { scheme: None, authority: None, target: url.to_owned() });
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Failure::system(format!(
            "{url} is neither an http:// or https:// URL nor a path, which begins with /"
        )));
    };
    let known =
        [Scheme::Http, Scheme::Https].into_iter().find(|known| scheme.eq_ignore_ascii_case(known.name()));
    let Some(scheme) = known else {
        return Err(Failure::system(format!("{scheme}:// is not served; http:// and https:// are")));
    };
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let slash = if target.starts_with('/') { "" } else { "/" };
    Ok(Url { scheme: Some(scheme), authority: Some(authority), target: format!("{slash}{target}") })
}

fn services(cluster: &Cluster) -> String {
    cluster.services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// A list of all VIPs.
pub fn vips(cluster: &Cluster) -> String {
    let vips = cluster.services.iter().flat_map(|service| &service.listen);
    vips.map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Reads a file, or stdin.
pub fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    let bytes = bytes.map_err(|error| Failure::cannot_read(file, error))?;
    if bytes.is_empty() {
        return Err(Failure::cannot_read(file, "it is empty"));
    }
    Ok(bytes)
}
