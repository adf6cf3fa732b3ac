//! A client of rustls beside a session of ours, without sockets.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, SignatureScheme,
};
use switchback_tls::{Error, Lent, Session};

/// All that rustls has.
pub const SUITES: [CipherSuite; 9] = [
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Those that the certificate of these tests allows: its key is for ECDSA.
pub fn usable() -> impl Iterator<Item = CipherSuite> {
    SUITES.into_iter().filter(|suite| !format!("{suite:?}").contains("RSA_WITH"))
}

#[derive(Debug)]
struct TrustAll;

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn provider(suite: Option<CipherSuite>) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|known| suite.is_none_or(|suite| known.suite() == suite));
    Arc::new(provider)
}

/// For our side.
pub fn server_config() -> ServerConfig {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(provider(None))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.enable_secret_extraction = true;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// A client that knows this suite only.
pub fn client(suite: Option<CipherSuite>) -> ClientConnection {
    let mut config = ClientConfig::builder_with_provider(provider(suite))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAll))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// Both ends of a connection.
pub struct Pair {
    pub client: ClientConnection,
    pub session: Session,
    /// The most bytes of the client that come at once.
    pub piece: usize,
    /// Encrypts what the session does not, and says which number the next record has.
    pub encrypt: Option<Encrypt>,
    pub sequence: u64,
    /// What has been sent to the client the last time.
    pub sent: Vec<u8>,
    /// What the client has been told and nobody has asked for.
    heard: Vec<u8>,
    has_ended: bool,
}

pub type Encrypt = Box<dyn FnMut(&[u8]) -> (Vec<u8>, u64)>;

impl Pair {
    pub fn new(suite: Option<CipherSuite>) -> Self {
        let session = Session::new(&server_config()).unwrap();
        Pair {
            client: client(suite),
            session,
            piece: usize::MAX,
            encrypt: None,
            sequence: 0,
            sent: Vec::new(),
            heard: Vec::new(),
            has_ended: false,
        }
    }

    /// After the handshake.
    pub fn open(suite: Option<CipherSuite>) -> Self {
        let mut pair = Pair::new(suite);
        pair.exchange().unwrap();
        assert!(!pair.client.is_handshaking() && !pair.session.is_handshaking());
        pair
    }

    /// Carries bytes to and fro until nobody has anything to say.
    pub fn exchange(&mut self) -> Result<(), Error> {
        loop {
            let mut sent = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut sent).unwrap();
            }
            let result = sent
                .chunks(self.piece.min(sent.len()).max(1))
                .try_for_each(|piece| self.session.receive(piece));
            let mut answer = std::mem::take(self.session.outgoing());
            if let Some(encrypt) = &mut self.encrypt {
                (answer, self.sequence) = encrypt(&answer);
            }
            if !answer.is_empty() {
                self.sent.clone_from(&answer);
            }
            let mut rest = &answer[..];
            while !rest.is_empty() {
                self.client.read_tls(&mut rest).unwrap();
                match self.client.process_new_packets() {
                    Ok(state) => self.has_ended |= state.peer_has_closed(),
                    Err(_) => return result,
                }
                self.hear();
            }
            result?;
            if answer.is_empty() && !self.client.wants_write() {
                return Ok(());
            }
        }
    }

    /// Whether the session has said that it ends.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The client says this, and what the session has heard since the last time.
    pub fn say(&mut self, data: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(data).unwrap();
        self.exchange().unwrap();
        let heard = self.session.data().to_vec();
        self.session.take(heard.len());
        heard
    }

    /// The session says this, and what the client has heard since the last time.
    pub fn answer(&mut self, data: &[u8]) -> Vec<u8> {
        self.session.send(data).unwrap();
        self.exchange().unwrap();
        std::mem::take(&mut self.heard)
    }

    fn hear(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = self.client.reader().read(&mut buffer) {
            self.heard.extend_from_slice(&buffer[..len]);
        }
    }

    /// Another node says this, with keys on loan, after the client has asked it for new ones so often.
    pub fn answer_elsewhere(&mut self, data: &[u8], updates: u32) -> Vec<u8> {
        let lent = postcard::to_allocvec(&self.session.lend().unwrap()).unwrap();
        let mut sealer = postcard::from_bytes::<Lent>(&lent).unwrap().open().unwrap();
        let mut records = Vec::new();
        for _ in 0..updates {
            self.client.refresh_traffic_keys().unwrap();
            self.exchange().unwrap();
            assert!(self.session.take_owed_update() && !self.session.take_owed_update());
            sealer.update_keys(false, &mut records).unwrap();
        }
        sealer.data(data, &mut records).unwrap();
        self.session.outgoing().extend(records);
        self.session.take_back(&Lent::of(&sealer), false).unwrap();
        self.exchange().unwrap();
        std::mem::take(&mut self.heard)
    }

    /// The connection goes on at another node.
    pub fn hand_over(&mut self) {
        let other = Session::new(&server_config()).unwrap();
        let session = std::mem::replace(&mut self.session, other);
        let bytes = session.give_up().unwrap().to_bytes();
        let moved = switchback_tls::Moved::from_bytes(&bytes).unwrap();
        self.session = Session::take_over(moved).unwrap();
    }
}
