//! The nodes' own network: authenticated and encrypted connections between agents, over TCP.
//!
//! It is TLS 1.3 (rustls) with raw public keys (RFC 7250). All nodes of a cluster have the same key, which is
//! made of the cluster key: whoever can prove to have it is a node. While cluster keys are replaced, that of
//! each is accepted.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ClientConfig};
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ServerConfig};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use zeroize::Zeroizing;

use super::idle::{Idle, Stream};
use super::messages::{Opening, say};
use super::strangers::Strangers;

/// TCP port of agents; handoff packets have the UDP port of the same number.
pub const PORT: u16 = 6081;
/// Time that a node may take to accept a connection and authenticate.
const CONNECT: Duration = Duration::from_secs(2);
/// The key pair derived from one cluster key.
struct Identity {
    key: Arc<dyn SigningKey>,
    public: SubjectPublicKeyInfoDer<'static>,
}

fn identity(cluster_key: &[u8; 32]) -> Option<Identity> {
    let mut seed = Zeroizing::new([0; 32]);
    let expanded = Prk::new_less_safe(HKDF_SHA256, cluster_key);
    expanded.expand(&[b"switchback nodes v1"], HKDF_SHA256).ok()?.fill(&mut seed[..]).ok()?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed[..]).ok()?;
    let document = pair.to_pkcs8().ok()?;
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(document.as_ref().to_vec())).ok()?;
    let public = key.public_key()?.into_owned();
    Some(Identity { key, public })
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Address of its agent.
    pub address: SocketAddr,
}

/// Mutual authentication of nodes, and connections between them.
pub struct Peers {
    proof: RwLock<Proof>,
    idle: Mutex<HashMap<SocketAddr, Idle>>,
    strangers: Arc<Strangers>,
}

/// TLS configurations of both ends of a connection.
#[derive(Clone)]
struct Proof {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

/// Without keys.
impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Peers")
    }
}

impl Peers {
    /// Authenticates with the first of the cluster's keys, and accepts every one.
    pub fn new(cluster_keys: &[[u8; 32]]) -> Option<Self> {
        let proof = RwLock::new(Proof::new(cluster_keys)?);
        Some(Peers { proof, idle: Mutex::default(), strangers: Arc::default() })
    }

    /// Replaces the keys; open connections go on. False, and nothing changes, if these make no key.
    pub(super) fn set_keys(&self, cluster_keys: &[[u8; 32]]) -> bool {
        let Some(proof) = Proof::new(cluster_keys) else { return false };
        *self.proof.write().unwrap_or_else(PoisonError::into_inner) = proof;
        self.idle().clear();
        true
    }

    fn proof(&self) -> Proof {
        self.proof.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection to another node, perhaps one that has been used before.
    pub(super) async fn take(&self, node: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let idle = self.idle().get_mut(&node).and_then(Idle::take);
        match idle {
            Some(stream) => Ok(stream),
            None => self.connect(node).await,
        }
    }

    /// Keeps a connection on which nothing is under way.
    pub(super) fn put_back(&self, node: SocketAddr, stream: Box<dyn Stream>) {
        self.idle().entry(node).or_default().put_back(stream);
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<SocketAddr, Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to another node that is about its insured responses.
    pub async fn insure_at(&self, node: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let mut channel = self.connect(node).await?;
        say(&mut channel, &Opening::Insurance).await?;
        Ok(channel)
    }

    /// A new connection to another node.
    pub(super) async fn connect(&self, node: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let connector = self.proof().connector;
        let connecting = async {
            let socket = TcpStream::connect(node).await?;
            socket.set_nodelay(true)?;
            connector.connect(ServerName::from(node.ip()), socket).await
        };
        Ok(Box::new(tokio::time::timeout(CONNECT, connecting).await??))
    }

    /// Authenticates a connection that was accepted.
    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<Box<dyn Stream>> {
        let mut place = self.strangers.admit(socket.peer_addr()?.ip());
        let acceptor = self.proof().acceptor;
        tokio::select! {
            proved = tokio::time::timeout(CONNECT, acceptor.accept(socket)) => Ok(Box::new(proved??)),
            () = place.lost() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl Proof {
    fn new(cluster_keys: &[[u8; 32]]) -> Option<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let identities: Vec<Identity> = cluster_keys.iter().filter_map(identity).collect();
        let own = identities.first()?;
        let certified = || {
            let public = CertificateDer::from(own.public.as_ref().to_vec());
            Arc::new(CertifiedKey::new(vec![public], Arc::clone(&own.key)))
        };
        let trusted = identities.iter().map(|identity| identity.public.clone()).collect();
        let verifier = Arc::new(Verifier { trusted, provider: Arc::clone(&provider) });
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .ok()?
            .with_client_cert_verifier(Arc::clone(&verifier) as _)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified())));
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .ok()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified())));
        Some(Proof {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
        })
    }
}

/// Accepts peers with a key of the cluster.
#[derive(Debug)]
struct Verifier {
    trusted: Vec<SubjectPublicKeyInfoDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn check(&self, public: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        match self.trusted.iter().any(|trusted| trusted.as_ref() == public.as_ref()) {
            true => Ok(()),
            false => Err(rustls::CertificateError::UnknownIssuer.into()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        public: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let public = SubjectPublicKeyInfoDer::from(public.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &public, signed, algorithms)
    }
}

/// TLS 1.2 is not spoken between nodes.
fn not_spoken() -> Result<HandshakeSignatureValid, rustls::Error> {
    Err(rustls::PeerIncompatible::Tls12NotOffered.into())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        public: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(public).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        not_spoken()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        public: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, public, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        public: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(public).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        not_spoken()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        public: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, public, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{Reply, hear};
    use super::*;
    use tokio::net::TcpListener;

    /// Nodes that have had another key before.
    async fn meet(client: &[[u8; 32]], server: &[[u8; 32]]) -> io::Result<Reply> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let [client, server] = [client, server].map(|keys| {
            let peers = Peers::new(&[[9; 32]]).unwrap();
            assert!(peers.set_keys(keys));
            peers
        });
        let other = tokio::spawn(async move {
            let mut stream = server.accept(listener.accept().await?.0).await?;
            let heard: Opening = hear(&mut stream).await?;
            let is_right = matches!(heard, Opening::Forward { service } if service == "shop");
            say(&mut stream, if is_right { &Reply::Expected } else { &Reply::Refused }).await
        });
        let mut stream = client.connect(address).await?;
        say(&mut stream, &Opening::Forward { service: "shop".to_owned() }).await?;
        let reply = hear(&mut stream).await?;
        other.await.unwrap()?;
        Ok(reply)
    }

    #[test]
    fn only_nodes_of_the_cluster_speak() {
        let (old, new, foreign) = ([1; 32], [2; 32], [3; 32]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for (client, server) in
                [(&[old][..], &[old][..]), (&[new, old], &[old, new]), (&[old], &[new, old])]
            {
                // The other side has to accept what is proved here, in both directions.
                let accepts = client.contains(&server[0]) && server.contains(&client[0]);
                assert_eq!(meet(client, server).await.is_ok(), accepts, "{client:?} {server:?}");
            }
            assert!(meet(&[foreign], &[old]).await.is_err());
            assert!(meet(&[old], &[foreign]).await.is_err());
        });
    }

    /// Of one source, while a node of the cluster connects from there.
    #[test]
    fn strangers_that_say_nothing_do_not_keep_a_node_out() {
        const STRANGERS: usize = 300;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = Arc::new(Peers::new(&[[1; 32]]).unwrap());
            let mut silent = Vec::new();
            let mut accepting = tokio::task::JoinSet::new();
            for _ in 0..STRANGERS {
                silent.push(TcpStream::connect(address).await.unwrap());
                let (server, socket) = (Arc::clone(&server), listener.accept().await.unwrap().0);
                accepting.spawn(async move { server.accept(socket).await.map(drop) });
            }
            let peer = tokio::spawn(async move { Peers::new(&[[1; 32]]).unwrap().connect(address).await });
            let socket = listener.accept().await.unwrap().0;
            assert!(server.accept(socket).await.is_ok());
            assert!(peer.await.unwrap().is_ok());
            // Those that gave way were told so and did not have to wait for their time.
            let mut displaced = 0;
            while let Some(done) = accepting.join_next().await {
                let error = done.unwrap().unwrap_err();
                displaced += usize::from(error.kind() == io::ErrorKind::ConnectionAborted);
            }
            assert_eq!(displaced, STRANGERS + 1 - 64);
        });
    }
}
