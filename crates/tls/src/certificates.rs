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
use switchback_config::{CertificateFiles, CertificateSource};
use webpki::EndEntityCert;
use x509_cert::certificate::Version;
use x509_cert::der::Decode;

use crate::issued::{Prover, placeholder};
use crate::{Issued, Validity};

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
    by_name: HashMap<String, Arc<Source>>,
    /// For clients without a server name, or with one that no certificate has.
    first: Arc<Source>,
    all: Vec<Arc<Source>>,
    issued: Arc<Issued>,
}

/// Where a certificate comes from.
#[derive(Debug)]
enum Source {
    Files {
        certificate: Arc<CertifiedKey>,
        in_force: Option<InForce>,
    },
    /// The CA has issued it for this domain and others, or is about to.
    Ca {
        domain: String,
        placeholder: Option<Arc<CertifiedKey>>,
    },
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
    /// Reads the files, and looks for those of the CA in `issued` when clients want them. Of two certificates for one name the
    /// first counts.
    pub fn read(
        sources: &[CertificateSource],
        issued: &Arc<Issued>,
        provider: &CryptoProvider,
    ) -> Result<Certificates, CertificateError> {
        let mut by_name = HashMap::new();
        let mut all = Vec::new();
        for source in sources {
            let (source, names) = match source {
                CertificateSource::Files(files) => Source::read(files, provider)?,
                CertificateSource::Issued(domains) => Source::of_ca(domains),
            };
            let source = Arc::new(source);
            for name in names {
                let name = name.strip_prefix('*').map(str::to_owned).unwrap_or(name);
                by_name.entry(name).or_insert_with(|| Arc::clone(&source));
            }
            all.push(source);
        }
        let first = all.first().cloned().ok_or_else(|| CertificateError {
            file: PathBuf::new(),
            what: "a service with TLS needs a certificate".to_owned(),
        })?;
        Ok(Certificates { by_name, first, all, issued: Arc::clone(issued) })
    }

    /// All that are there, in the order of the configuration.
    pub fn in_force(&self) -> Vec<InForce> {
        let in_force = |source: &Arc<Source>| match &**source {
            Source::Files { in_force, .. } => in_force.clone(),
            Source::Ca { domain, .. } => self.issued.in_force(domain),
        };
        self.all.iter().filter_map(in_force).collect()
    }

    /// The proofs that a CA wants, if it issues one of these.
    pub(crate) fn proofs(&self) -> Option<Arc<Prover>> {
        let is_of_ca = |source: &Arc<Source>| matches!(**source, Source::Ca { .. });
        self.all.iter().any(is_of_ca).then(|| Arc::new(Prover(Arc::clone(&self.issued))))
    }

    /// The certificate for a host: its own, that of its parent's wildcard (RFC 9525 section 6.3), or the
    /// first.
    pub fn find(&self, host: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let host = host.map(str::to_ascii_lowercase).unwrap_or_default();
        let wildcard = host.find('.').and_then(|dot| self.by_name.get(&host[dot..]));
        match &**self.by_name.get(&host).or(wildcard).unwrap_or(&self.first) {
            Source::Files { certificate, .. } => Some(Arc::clone(certificate)),
            Source::Ca { domain, placeholder } => self.issued.find(domain).or_else(|| placeholder.clone()),
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.find(hello.server_name())
    }
}

impl Source {
    /// A certificate in files, and its names.
    fn read(
        files: &CertificateFiles,
        provider: &CryptoProvider,
    ) -> Result<(Source, Vec<String>), CertificateError> {
        let certificate = Arc::new(read(files, provider)?);
        let names = names(&certificate);
        let validity = certificate.cert.first().and_then(Validity::of);
        let name = names.first().cloned().unwrap_or_else(|| files.chain.display().to_string());
        let in_force = validity.map(|validity| InForce { name, validity });
        Ok((Source::Files { certificate, in_force }, names))
    }

    /// A certificate that a CA issues for these domains.
    fn of_ca(domains: &[String]) -> (Source, Vec<String>) {
        let domain = domains.first().cloned().unwrap_or_default();
        (Source::Ca { domain, placeholder: placeholder(domains) }, domains.to_vec())
    }
}

pub(crate) fn read(
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertificateError> {
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
pub(crate) fn names(certificate: &CertifiedKey) -> Vec<String> {
    let Some(Ok(end_entity)) = certificate.cert.first().map(EndEntityCert::try_from) else {
        return Vec::new();
    };
    end_entity.valid_dns_names().map(str::to_ascii_lowercase).collect()
}
