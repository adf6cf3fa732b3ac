//! The certification authorities and revocation lists by which clients' certificates are accepted.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{self, SHA256};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use switchback_config::{self as config, ClientAuth};

use crate::CertificateError;

/// What a service demands of its clients.
pub struct ClientCertificates {
    pub(crate) verifier: Arc<dyn ClientCertVerifier>,
    digest: [u8; 32],
}

impl ClientCertificates {
    /// Reads the files.
    pub fn read(
        files: &config::ClientCertificates,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ClientCertificates, CertificateError> {
        let authorities: Vec<CertificateDer<'static>> = items(&files.ca, "certificate")?;
        let lists: Vec<CertificateRevocationListDer<'static>> = match &files.crl {
            Some(file) => lists(file)?,
            None => Vec::new(),
        };
        let digest = digest(files.mode, &authorities, &lists);
        let mut roots = RootCertStore::empty();
        for (index, authority) in authorities.into_iter().enumerate() {
            roots.add(authority).map_err(|error| {
                wrong(&files.ca, format!("certificate {} cannot be used: {error}", index + 1))
            })?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .with_crls(lists);
        let builder = match files.mode {
            ClientAuth::Required => builder,
            ClientAuth::Optional => builder.allow_unauthenticated(),
        };
        // There is at least one authority, so it can only be a list.
        let wrong_list = |error| wrong(files.crl.as_ref().unwrap_or(&files.ca), format!("{error}"));
        Ok(ClientCertificates { verifier: builder.build().map_err(wrong_list)?, digest })
    }

    /// Different for different demands: tickets of sessions that were made under others do not open.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

/// Without the verifier, whose roots and lists are long.
impl fmt::Debug for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificates").finish_non_exhaustive()
    }
}

/// All revocation lists in a file.
pub(crate) fn lists(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, CertificateError> {
    items(file, "certificate revocation list")
}

/// All items in a file, at least one.
fn items<T: PemObject>(file: &Path, what: &str) -> Result<Vec<T>, CertificateError> {
    let items = T::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<T>, _>>);
    let items = items.map_err(|error| wrong(file, format!("no {what}s in PEM: {error}")))?;
    if items.is_empty() {
        return Err(wrong(file, format!("no {what} in PEM in it")));
    }
    Ok(items)
}

fn wrong(file: &Path, what: String) -> CertificateError {
    CertificateError { file: file.to_owned(), what }
}

fn digest(
    mode: ClientAuth,
    authorities: &[CertificateDer<'_>],
    lists: &[CertificateRevocationListDer<'_>],
) -> [u8; 32] {
    let mut context = digest::Context::new(&SHA256);
    context.update(mode.name().as_bytes());
    let authorities = authorities.iter().map(|der| (b'a', der.as_ref()));
    for (kind, der) in authorities.chain(lists.iter().map(|der| (b'l', der.as_ref()))) {
        context.update(&[kind]);
        context.update(&(der.len() as u64).to_be_bytes());
        context.update(der);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}
