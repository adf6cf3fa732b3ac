//! Services over TLS: who ends it, the nodes' certificates and servers, and the distribution of sessions.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::{Node, syntax};

/// Allowed values of [`Tls::busy_connections`].
pub(crate) const BUSY_CONNECTIONS: RangeInclusive<u32> = 0..=1_000_000;
/// Allowed values of [`Tls::busy_cpu`], in percent.
pub(crate) const BUSY_CPU: RangeInclusive<u8> = 1..=100;
/// Default of [`Tls::busy_connections`].
pub(crate) const DEFAULT_BUSY_CONNECTIONS: u32 = 1000;
/// Default of [`Tls::busy_cpu`].
pub(crate) const DEFAULT_BUSY_CPU: u8 = 80;
/// Default of [`Tls::protocols`].
pub(crate) const DEFAULT_PROTOCOLS: [Protocol; 2] = [Protocol::Http2, Protocol::Http11];

/// The prefix of a UNIX socket's path.
const UNIX: &str = "unix:";
/// Longest path of a UNIX socket: `sun_path` in `<sys/un.h>` without the NUL at its end.
const UNIX_PATH_MAX: usize = 107;

/// Where the TLS of a service's clients ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Nowhere: they speak HTTP without TLS.
    Off,
    /// At the agents of the nodes.
    Terminate(Tls),
    /// At the servers themselves, which listen as those of a service without TLS do.
    Passthrough,
}

impl TlsMode {
    /// The settings of agents that end TLS.
    pub fn terminated(&self) -> Option<&Tls> {
        match self {
            TlsMode::Terminate(tls) => Some(tls),
            TlsMode::Off | TlsMode::Passthrough => None,
        }
    }
}

/// How agents end the TLS of a service, for servers behind them that speak HTTP without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// At least one. The first is for clients that want no name, or one that no certificate has. Only nodes
    /// read the files.
    pub certificates: Vec<CertificateSource>,
    /// The certificates that clients show; None if they are not asked for any.
    pub client_certificates: Option<ClientCertificates>,
    /// The address of the server, on each machine; None if nodes have servers of their own ([`Node::servers`]).
    pub server: Option<Server>,
    /// The distribution of connections.
    pub model: Model,
    /// The unit of a hand-over by a busy node. Only for [`Model::Forwarding`].
    pub hand_over: HandOver,
    /// The nodes that can resume a session.
    pub tickets: TicketScope,
    /// The protocols above TLS, the preferred first; at least one, each once.
    pub protocols: Vec<Protocol>,
    /// The oldest accepted version.
    pub min_version: TlsVersion,
    /// The way in which the server gets the client's address.
    pub client_address: ClientAddress,
    /// Number of connections above which a node is busy; 0 to 1,000,000. Only for [`Model::Forwarding`].
    pub busy_connections: u32,
    /// Above this share of its CPU time, in percent, a node is busy; 1 to 100. Only [`Model::Forwarding`]
    /// asks for it.
    pub busy_cpu: u8,
    /// Whether the kernel encrypts, if it can. Not with [`HandOver::Relay`].
    pub ktls: bool,
}

impl Tls {
    /// Lets relative paths begin at `directory`.
    pub(crate) fn join(&mut self, directory: &Path) {
        for certificate in &mut self.certificates {
            let CertificateSource::Files(CertificateFiles { chain, key, staple }) = certificate else {
                continue;
            };
            for path in [chain, key].into_iter().chain(staple) {
                *path = directory.join(&*path);
            }
        }
        if let Some(ClientCertificates { ca, crl, .. }) = &mut self.client_certificates {
            for path in std::iter::once(ca).chain(crl) {
                *path = directory.join(&*path);
            }
        }
    }

    /// The server that gets a node's requests, whichever VIP they come to. None is a mistake in the file.
    pub fn server_of(&self, node: &Node) -> Option<Server> {
        self.server.clone().or_else(|| node.servers.first().copied().map(Server::Tcp))
    }

    /// The domains of each certificate that a CA issues.
    pub fn issued(&self) -> impl Iterator<Item = &Vec<String>> {
        self.certificates.iter().filter_map(|certificate| match certificate {
            CertificateSource::Issued(domains) => Some(domains),
            CertificateSource::Files(_) => None,
        })
    }

    /// Each key of `[service.tls]` in words.
    pub(crate) fn in_words(tls: Option<&Tls>) -> [(&'static str, String); 12] {
        // Nothing that a key can be begins with a parenthesis.
        let word = |of: fn(&Tls) -> String| tls.map_or("(none)".to_owned(), of);
        [
            ("tls.certificate", word(|tls| listed(&tls.certificates))),
            ("tls.client_certificates", word(|tls| none_or(tls.client_certificates.as_ref()))),
            (
                "tls.server",
                word(|tls| tls.server.as_ref().map_or("(of each node)".to_owned(), Server::to_string)),
            ),
            ("tls.sessions", word(|tls| tls.model.to_string())),
            ("tls.hand_over", word(|tls| tls.hand_over.to_string())),
            ("tls.tickets", word(|tls| tls.tickets.to_string())),
            ("tls.protocols", word(|tls| listed(&tls.protocols))),
            ("tls.min_version", word(|tls| tls.min_version.to_string())),
            ("tls.client_address", word(|tls| tls.client_address.to_string())),
            ("tls.busy_connections", word(|tls| tls.busy_connections.to_string())),
            ("tls.busy_cpu", word(|tls| format!("{}%", tls.busy_cpu))),
            ("tls.ktls", word(|tls| tls.ktls.to_string())),
        ]
    }
}

fn none_or<T: ToString>(item: Option<&T>) -> String {
    item.map_or("(none)".to_owned(), T::to_string)
}

fn listed<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Where a certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// From files on each node.
    Files(CertificateFiles),
    /// From the CA of [`Acme`](crate::Acme), for these domains, of which there is at least one. It is known by the first: no
    /// two certificates with different domains begin with the same.
    Issued(Vec<String>),
}

/// As in the file.
impl fmt::Display for CertificateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateSource::Files(files) => files.fmt(f),
            CertificateSource::Issued(domains) => write!(f, "{{ domains = {domains:?} }}"),
        }
    }
}

/// Where a certificate is. Paths are as in the file, but a relative one has the directory of `cluster.toml`
/// before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate chain, in PEM.
    pub chain: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// An OCSP response in DER, given to clients that want one.
    pub staple: Option<PathBuf>,
}

/// As in the file: `{ chain = "shop.pem", key = "shop.key" }`.
impl fmt::Display for CertificateFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ chain = {:?}, key = {:?}", self.chain, self.key)?;
        if let Some(staple) = &self.staple {
            write!(f, ", staple = {staple:?}")?;
        }
        f.write_str(" }")
    }
}

/// The certificates that a service asks of its clients. Paths are as those of [`CertificateFiles`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Whether a client without a certificate is served.
    pub mode: ClientAuth,
    /// The certification authorities that clients' certificates lead to, in PEM.
    pub ca: PathBuf,
    /// The certificate revocation lists of these authorities and of those between them and the clients, in PEM; None if
    /// no certificate is revoked.
    pub crl: Option<PathBuf>,
}

/// As in the file: `{ mode = "required", ca = "clients.pem" }`.
impl fmt::Display for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ mode = \"{}\", ca = {:?}", self.mode, self.ca)?;
        if let Some(crl) = &self.crl {
            write!(f, ", crl = {crl:?}")?;
        }
        f.write_str(" }")
    }
}

/// Whether a client has to have a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// A handshake without a certificate fails.
    #[default]
    Required,
    /// A client without a certificate is served, one whose certificate is refused is not.
    Optional,
}

/// The address of a server on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// A TCP port of a loopback address.
    Tcp(SocketAddr),
    /// A UNIX socket; `unix:` and an absolute path in the file.
    Unix(PathBuf),
}

impl Server {
    pub(crate) fn parse(text: &str) -> Result<Server, String> {
        if let Some(path) = text.strip_prefix(UNIX) {
            let is_file = path.starts_with('/') && !path.ends_with('/') && !path.contains(char::is_control);
            if is_file && path.len() <= UNIX_PATH_MAX {
                return Ok(Server::Unix(path.into()));
            }
            return Err(format!(
                "bad server {text:?}, allowed is {UNIX:?} and the absolute path of a socket, at most {UNIX_PATH_MAX} \
                 bytes, such as \"{UNIX}/run/app.sock\""
            ));
        }
        let fits = |address: &SocketAddr| address.port() != 0 && !syntax::has_zone(address);
        match text.parse().ok().filter(fits) {
            Some(address) if address.ip().is_loopback() => Ok(Server::Tcp(address)),
            Some(_) => Err(format!(
                "server {text} is not a loopback address, and what goes there is not encrypted, allowed is an address \
                 such as 127.0.0.1:8080 or [::1]:8080"
            )),
            None => Err(format!(
                "bad server {text:?}, allowed is a loopback address with a port such as \"127.0.0.1:8080\" or \
                 \"[::1]:8080\", or \"{UNIX}/run/app.sock\""
            )),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Tcp(address) => address.fmt(f),
            Server::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// The distribution models of "SSL with backend forwarding".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// The pool's policy chooses a node for each connection, whatever the client's session.
    RoundRobin,
    /// A client with a session goes to the node of the session.
    #[default]
    Session,
    /// As [`Model::Session`], and a busy node hands requests over to one that is not.
    Forwarding,
}

/// The unit of a hand-over by a busy node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandOver {
    /// The connection continues at the other node, which answers the client itself.
    #[default]
    Direct,
    /// The other node makes and encrypts one response, which comes back through the busy one: backend
    /// forwarding, as the paper has it.
    Relay,
}

/// The nodes that can resume a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TicketScope {
    /// The node that made the session.
    #[default]
    Node,
    /// All nodes.
    Cluster,
}

/// Protocols above TLS, by the names of RFC 7301.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `h2`
    Http2,
    /// `http/1.1`
    Http11,
}

/// Versions of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2
    #[default]
    Tls12,
    /// 1.3
    Tls13,
}

/// The way in which the server behind the end of TLS gets the client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// `X-Forwarded-For`, `-Host`, `-Port` and `-Proto`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// A PROXY protocol header, version 2, before the first request of each connection.
    Proxy,
    /// The server does not get the address.
    Nothing,
}

macro_rules! named {
    ($($kind:ident: $($name:literal $value:ident),+;)+) => {$(
        impl $kind {
            /// All values, in the order in which messages list them.
            pub const ALL: [$kind; [$($name),+].len()] = [$($kind::$value),+];

            /// The name in the file.
            pub fn name(self) -> &'static str {
                match self {
                    $($kind::$value => $name),+
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    )+};
}

named! {
    Model: "round-robin" RoundRobin, "session" Session, "forwarding" Forwarding;
    HandOver: "direct" Direct, "relay" Relay;
    ClientAuth: "required" Required, "optional" Optional;
    TicketScope: "node" Node, "cluster" Cluster;
    Protocol: "h2" Http2, "http/1.1" Http11;
    TlsVersion: "1.2" Tls12, "1.3" Tls13;
    ClientAddress: "x-forwarded" XForwarded, "forwarded" Forwarded, "proxy" Proxy, "none" Nothing;
}
