//! `[acme]`: the certification authority that issues certificates with `domains`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Cluster, Node};

/// Directory of Let's Encrypt.
pub(crate) const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// `[acme]`, whose terms of service are agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// URL of the CA's directory (RFC 8555 section 7.1.1), with https.
    pub directory: String,
    /// Address that the CA writes to.
    pub email: Option<String>,
    /// Index of the node that orders.
    pub node: usize,
    /// How domains are proven.
    pub challenge: Challenge,
    /// Kind of certificates, by the CA's name for it.
    pub profile: Option<String>,
    /// The certification authorities that the CA's own certificate leads to, in PEM; None for those that the node's machine
    /// trusts. As [`CertificateFiles::chain`](crate::CertificateFiles::chain).
    pub ca: Option<PathBuf>,
    /// What the account at the CA is bound to.
    pub external_account: Option<ExternalAccount>,
}

/// A key of an account with a CA outside of ACME (external account binding, RFC 8555 section 7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Id of the key.
    pub id: String,
    /// File with the key in base64url. As [`CertificateFiles::chain`](crate::CertificateFiles::chain).
    pub key: PathBuf,
}

impl Acme {
    /// Lets relative paths begin at `directory`.
    pub(crate) fn join(&mut self, directory: &Path) {
        if let Some(ca) = &mut self.ca {
            *ca = directory.join(&*ca);
        }
        if let Some(ExternalAccount { key, .. }) = &mut self.external_account {
            *key = directory.join(&*key);
        }
    }

    /// Each key in words.
    pub(crate) fn in_words(acme: Option<&Acme>, nodes: &[Node]) -> [(&'static str, String); 8] {
        // Nothing that a key can be begins with a parenthesis.
        let word = |of: &dyn Fn(&Acme) -> Option<String>| acme.and_then(of).unwrap_or("(none)".to_owned());
        [
            ("directory", word(&|acme| Some(acme.directory.clone()))),
            ("email", word(&|acme| acme.email.clone())),
            ("node", word(&|acme| Some(nodes[acme.node].name.clone()))),
            ("challenge", word(&|acme| Some(acme.challenge.to_string()))),
            ("profile", word(&|acme| acme.profile.clone())),
            ("ca", word(&|acme| acme.ca.as_ref().map(|ca| ca.display().to_string()))),
            ("external_account_id", word(&|acme| Some(acme.external_account.as_ref()?.id.clone()))),
            (
                "external_account_key",
                word(&|acme| Some(acme.external_account.as_ref()?.key.display().to_string())),
            ),
        ]
    }
}

impl Cluster {
    /// The domains of each certificate that the CA issues, once for all services that have it.
    pub fn issued_certificates(&self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for domains in
            self.services.iter().flat_map(|service| service.tls.terminated()).flat_map(|tls| tls.issued())
        {
            if !all.contains(domains) {
                all.push(domains.clone());
            }
        }
        all
    }
}

/// How a CA finds proof that a domain leads to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Challenge {
    /// By a handshake at port 443 (RFC 8737).
    #[default]
    TlsAlpn01,
    /// By a request at port 80, which is redirected to https (RFC 8555 section 8.3).
    Http01,
}

impl Challenge {
    /// All values, in the order in which messages list them.
    pub const ALL: [Challenge; 2] = [Challenge::TlsAlpn01, Challenge::Http01];

    /// The name, in the file and in ACME.
    pub fn name(self) -> &'static str {
        match self {
            Challenge::TlsAlpn01 => "tls-alpn-01",
            Challenge::Http01 => "http-01",
        }
    }

    /// The port at which a CA looks for proof.
    pub fn port(self) -> u16 {
        match self {
            Challenge::TlsAlpn01 => 443,
            Challenge::Http01 => 80,
        }
    }
}

impl fmt::Display for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
