//! Configurations of rustls for the connections of a service.

use std::borrow::Cow;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, ResolvesServerCert, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion};
use switchback_routes::ACME_TLS;

use crate::admission::Admission;
use crate::{Certificates, ClientCertificates, Tickets};

/// How a service shakes hands with its clients.
pub(super) struct Handshakes {
    config: ServerConfig,
    versions: &'static [&'static SupportedProtocolVersion],
    /// Present if clients are asked for certificates.
    clients: Option<(Arc<ClientCertificates>, Arc<Tickets>)>,
    /// Present if a CA may want proof.
    proofs: Option<Arc<ServerConfig>>,
}

impl Handshakes {
    pub(super) fn new(
        certificates: Arc<Certificates>,
        protocols: Vec<Vec<u8>>,
        versions: &'static [&'static SupportedProtocolVersion],
        tickets: Arc<Tickets>,
        clients: Option<Arc<ClientCertificates>>,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let no_verifier = WebPkiClientVerifier::no_client_auth;
        // Nobody goes on with a session that has shown a proof.
        let prove = |prover| {
            let protocols = vec![ACME_TLS.to_vec()];
            config(Arc::clone(&provider), rustls::ALL_VERSIONS, no_verifier(), prover, None, protocols)
        };
        let proofs = certificates.proofs().map(|prover| prove(prover).map(Arc::new)).transpose()?;
        let (no_verifier, ticketer) = (no_verifier(), Some(Arc::clone(&tickets) as _));
        let config = config(provider, versions, no_verifier, certificates, ticketer, protocols)?;
        Ok(Handshakes { config, versions, clients: clients.map(|clients| (clients, tickets)), proofs })
    }

    /// The configuration for a CA that wants proof of a domain; None if the service has no certificate from one.
    pub(super) fn proofs(&self) -> Option<Arc<ServerConfig>> {
        self.proofs.clone()
    }

    /// The configuration for a new connection.
    pub(super) fn config(&self) -> Result<Cow<'_, ServerConfig>, rustls::Error> {
        let ServerConfig { cert_resolver, alpn_protocols, .. } = &self.config;
        let Some((clients, tickets)) = &self.clients else { return Ok(Cow::Borrowed(&self.config)) };
        let admission = Admission::new(Arc::clone(&clients.verifier), Arc::clone(tickets));
        let provider = Arc::clone(self.config.crypto_provider());
        let (verifier, resolver) = (Arc::clone(&admission) as _, Arc::clone(cert_resolver));
        config(provider, self.versions, verifier, resolver, Some(admission), alpn_protocols.clone())
            .map(Cow::Owned)
    }
}

fn config(
    provider: Arc<CryptoProvider>,
    versions: &'static [&'static SupportedProtocolVersion],
    verifier: Arc<dyn ClientCertVerifier>,
    resolver: Arc<dyn ResolvesServerCert>,
    ticketer: Option<Arc<dyn ProducesTickets>>,
    protocols: Vec<Vec<u8>>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = protocols;
    // One ticket for each connection is enough, and a client that opens several at once may use it for all of them.
    config.send_tls13_tickets = ticketer.is_some().into();
    if let Some(ticketer) = ticketer {
        config.ticketer = ticketer;
    }
    // Sessions without a ticket would stay with this process.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.enable_secret_extraction = true;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use switchback_config::{CertificateSource, TicketScope};
    use switchback_hello::Tickets as Names;

    use super::*;
    use crate::Issued;

    #[test]
    fn a_session_that_shows_a_proof_has_no_ticket() {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let sources = [CertificateSource::Issued(vec!["a.example".to_owned()])];
        let certificates = Certificates::read(&sources, &Arc::<Issued>::default(), &provider).unwrap();
        let tickets =
            Tickets::new(Arc::default(), Names::new(&[], []), "shop", "a", TicketScope::Cluster, None);
        let handshakes =
            Handshakes::new(Arc::new(certificates), Vec::new(), rustls::ALL_VERSIONS, tickets, None).unwrap();
        let proofs = handshakes.proofs().expect("a CA may want some");
        let sent = |config: &ServerConfig| (config.send_tls13_tickets, config.ticketer.enabled());
        assert_eq!((sent(&proofs), sent(&handshakes.config)), ((0, false), (1, true)));
        assert_eq!(proofs.alpn_protocols, [ACME_TLS]);
    }
}
