//! Certificates, chosen by the name that a client wants.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use switchback_config::Certificate;
use webpki::EndEntityCert;
use x509_cert::certificate::Version;
use x509_cert::der::Decode;

use crate::Validity;

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateError {
    /// Path of the file.
    pub file: PathBuf,
    /// The defect.
    pub what: String,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for CertificateError {}

/// Certificates by name.
#[derive(Debug)]
pub struct Certificates {
    /// Names in lower case; one with a wildcard begins with a dot.
    by_name: HashMap<String, Arc<CertifiedKey>>,
    /// For clients without a server name, or with one that no certificate has.
    first: Arc<CertifiedKey>,
    in_force: Vec<InForce>,
}

/// A certificate that clients get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// The first name in it, or that of its file if there is none.
    pub name: String,
    /// When it is valid.
    pub validity: Validity,
}

impl Certificates {
    /// Reads the files. Of two certificates for one name the first counts.
    pub fn read(files: &[Certificate], provider: &CryptoProvider) -> Result<Certificates, CertificateError> {
        let mut by_name = HashMap::new();
        let mut first = None;
        let mut in_force = Vec::new();
        for files in files {
            let certificate = Arc::new(read(files, provider)?);
            let names = names(&certificate);
            if let Some(validity) = certificate.cert.first().and_then(Validity::of) {
                let name = names.first().cloned().unwrap_or_else(|| files.chain.display().to_string());
                in_force.push(InForce { name, validity });
            }
            for name in names {
                let name = name.strip_prefix('*').map(str::to_owned).unwrap_or(name);
                by_name.entry(name).or_insert_with(|| Arc::clone(&certificate));
            }
            first.get_or_insert(certificate);
        }
        let first = first.ok_or_else(|| CertificateError {
            file: PathBuf::new(),
            what: "a service with TLS needs a certificate".to_owned(),
        })?;
        Ok(Certificates { by_name, first, in_force })
    }

    /// All of them, in the order of the configuration.
    pub fn in_force(&self) -> &[InForce] {
        &self.in_force
    }

    /// The certificate for a host: its own, that of its parent's wildcard (RFC 9525 section 6.3), or the
    /// first.
    pub fn find(&self, host: Option<&str>) -> &Arc<CertifiedKey> {
        let host = host.map(str::to_ascii_lowercase).unwrap_or_default();
        let wildcard = host.find('.').and_then(|dot| self.by_name.get(&host[dot..]));
        self.by_name.get(&host).or(wildcard).unwrap_or(&self.first)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.find(hello.server_name())))
    }
}

pub(crate) fn read(files: &Certificate, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
    let wrong = |file: &Path, what: String| CertificateError { file: file.to_owned(), what };
    let chain = CertificateDer::pem_file_iter(&files.chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(&files.chain, format!("no certificates in PEM: {error}")))?;
    if chain.is_empty() {
        return Err(wrong(&files.chain, "no certificate in it".to_owned()));
    }
    if is_version_1(&chain[0]) {
        let what =
            "the certificate is of version 1, allowed is version 3: openssl x509 -req makes it with -extfile";
        return Err(wrong(&files.chain, what.to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| wrong(&files.key, format!("no private key in PEM: {error}")))?;
    let mut certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong(&files.key, format!("not the key of the certificate in {}", files.chain.display()))
        }
        error => wrong(&files.key, error.to_string()),
    })?;
    if let Some(file) = &files.staple {
        let staple = std::fs::read(file).map_err(|error| wrong(file, error.to_string()))?;
        certified.ocsp = Some(staple);
    }
    Ok(certified)
}

fn is_version_1(der: &CertificateDer<'_>) -> bool {
    x509_cert::Certificate::from_der(der)
        .is_ok_and(|certificate| certificate.tbs_certificate.version == Version::V1)
}

/// The names that a certificate is for, in lower case.
fn names(certificate: &CertifiedKey) -> Vec<String> {
    let Some(Ok(end_entity)) = certificate.cert.first().map(EndEntityCert::try_from) else {
        return Vec::new();
    };
    end_entity.valid_dns_names().map(str::to_ascii_lowercase).collect()
}
