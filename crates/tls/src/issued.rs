//! Certificates that a CA has issued to the cluster, and the answers to its challenges.
//!
//! One node orders certificates. All have them, and all answer the CA, because a connection can go to any node. So nodes tell
//! each other what they have. Of two certificates for the same domains the one that begins later is kept, so it does not matter
//! who tells whom, and when. Only the node that orders says which challenges there are.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::certificates::names;
use crate::{InForce, Validity};

/// Where a CA asks for proof by HTTP (RFC 8555 section 8.3).
const PROOF_PATH: &str = "/.well-known/acme-challenge/";

/// A certificate with its key, as it is kept in a file and told to other nodes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issue {
    /// The first of its domains, by which it is known.
    pub domain: String,
    /// URL of the CA's directory.
    pub directory: String,
    /// The certificate, those that lead to its root, and the key.
    pub pem: Zeroizing<String>,
}

/// Without the key.
impl fmt::Debug for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issue").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// The answer to a challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The domain that is to be proven.
    pub domain: String,
    /// The name of the challenge.
    pub token: String,
    /// The answer (RFC 8555 section 8.1).
    pub key_authorization: String,
}

/// What a node tells another one.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    issues: Vec<Issue>,
    /// None from nodes that do not order.
    proofs: Option<Vec<Proof>>,
}

/// A certificate that can be served.
struct Certificate {
    issue: Issue,
    names: Vec<String>,
    validity: Validity,
    key: Arc<CertifiedKey>,
}

/// A proof, and the certificate that shows it to a client of [`ACME_TLS`](switchback_routes::ACME_TLS).
struct Ready {
    proof: Proof,
    key: Arc<CertifiedKey>,
}

/// The certificates and proofs of a node. Handshakes read them, and take no lock.
pub struct Issued {
    /// First domains of the certificates that this node needs.
    wanted: ArcSwap<HashSet<String>>,
    certificates: ArcSwap<BTreeMap<String, Arc<Certificate>>>,
    proofs: ArcSwap<Vec<Ready>>,
    /// Whether this node orders.
    orders: AtomicBool,
    news: watch::Sender<()>,
}

impl Default for Issued {
    fn default() -> Self {
        Issued {
            wanted: ArcSwap::default(),
            certificates: ArcSwap::default(),
            proofs: ArcSwap::default(),
            orders: AtomicBool::new(false),
            news: watch::Sender::new(()),
        }
    }
}

/// Without keys.
impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued")
            .field("certificates", &self.certificates.load().keys())
            .finish_non_exhaustive()
    }
}

/// Facts about a certificate that has been issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// URL of the CA's directory.
    pub directory: String,
    /// The names in it, in lower case.
    pub names: Vec<String>,
    /// When it is valid.
    pub validity: Validity,
}

/// A certificate that cannot be used, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueError(pub String);

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for IssueError {}

impl Issued {
    /// Adds certificates, by their first domains, to those that this node needs.
    pub fn want(&self, domains: HashSet<String>) {
        self.wanted.rcu(|wanted| wanted.union(&domains).cloned().collect::<HashSet<_>>());
    }

    /// Forgets all certificates but these. `orders`: whether this node orders them.
    pub fn want_only(&self, domains: HashSet<String>, orders: bool) {
        self.certificates.rcu(|known| {
            let kept = known.iter().filter(|(domain, _)| domains.contains(*domain));
            kept.map(|(domain, one)| (domain.clone(), Arc::clone(one))).collect::<BTreeMap<_, _>>()
        });
        self.wanted.store(Arc::new(domains));
        self.orders.store(orders, Ordering::Relaxed);
    }

    /// Adds a certificate, unless there is a later one for the same domains, or the node does not need it; true if it was added.
    pub fn learn(&self, issue: Issue) -> Result<bool, IssueError> {
        // Nodes tell each other again and again; what is known need not be read.
        let is_known = self.certificates.load().get(&issue.domain).is_some_and(|known| known.issue == issue);
        if is_known || !self.wanted.load().contains(&issue.domain) {
            return Ok(false);
        }
        let certificate = Arc::new(Certificate::new(issue)?);
        let mut is_new = false;
        self.certificates.rcu(|known| {
            let before = known.get(&certificate.issue.domain);
            is_new = before.is_none_or(|before| certificate.is_later_than(before));
            let mut known = BTreeMap::clone(known);
            if is_new {
                known.insert(certificate.issue.domain.clone(), Arc::clone(&certificate));
            }
            known
        });
        if is_new {
            self.news.send_replace(());
        }
        Ok(is_new)
    }

    /// All certificates, for their files.
    pub fn issues(&self) -> Vec<Issue> {
        self.certificates.load().values().map(|certificate| certificate.issue.clone()).collect()
    }

    /// Hears of certificates that come later.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Facts about the certificate that is known by this domain.
    pub fn describe(&self, domain: &str) -> Option<Description> {
        let certificates = self.certificates.load();
        let Certificate { issue, names, validity, .. } = &**certificates.get(domain)?;
        Some(Description { directory: issue.directory.clone(), names: names.clone(), validity: *validity })
    }

    /// Replaces the proofs.
    pub fn set_proofs(&self, proofs: Vec<Proof>) {
        let ready = proofs.into_iter().filter_map(|proof| Some(Ready { key: proof.certificate()?, proof }));
        self.proofs.store(Arc::new(ready.collect()));
    }

    /// The answer to an HTTP request for this path, if it is one of the CA about a challenge.
    pub(crate) fn answer(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(PROOF_PATH)?;
        let proofs = self.proofs.load();
        let ready = proofs.iter().find(|ready| ready.proof.token == token)?;
        Some(ready.proof.key_authorization.clone())
    }

    /// The certificate that is known by this domain.
    pub(crate) fn find(&self, domain: &str) -> Option<Arc<CertifiedKey>> {
        self.certificates.load().get(domain).map(|certificate| Arc::clone(&certificate.key))
    }

    pub(crate) fn in_force(&self, domain: &str) -> Option<InForce> {
        let certificates = self.certificates.load();
        let certificate = certificates.get(domain)?;
        Some(InForce { name: domain.to_owned(), validity: certificate.validity })
    }

    /// All that another node may lack.
    pub(crate) fn tell(&self) -> Told {
        let proofs = || self.proofs.load().iter().map(|ready| ready.proof.clone()).collect();
        Told { issues: self.issues(), proofs: self.orders.load(Ordering::Relaxed).then(proofs) }
    }

    /// Takes over what another node has told.
    pub(crate) fn hear(&self, told: Told) {
        for issue in told.issues {
            // A node that has a certificate has been able to use it.
            let _ = self.learn(issue);
        }
        if let Some(proofs) = told.proofs.filter(|_| !self.orders.load(Ordering::Relaxed)) {
            self.set_proofs(proofs);
        }
    }
}

impl Certificate {
    fn new(issue: Issue) -> Result<Self, IssueError> {
        let wrong =
            |what: &dyn fmt::Display| IssueError(format!("the certificate for {}: {what}", issue.domain));
        let pem = issue.pem.as_bytes();
        let chain =
            CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|e| wrong(&e))?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| wrong(&error))?;
        let validity = chain.first().and_then(Validity::of).ok_or_else(|| wrong(&"no certificate in it"))?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = CertifiedKey::from_der(chain, key, &provider).map_err(|error| wrong(&error))?;
        Ok(Certificate { names: names(&key), validity, key: Arc::new(key), issue })
    }

    /// Whether it begins later. Two that begin at the same time are told apart by what they are, so that all nodes agree.
    fn is_later_than(&self, other: &Certificate) -> bool {
        let key = |one: &Certificate| (one.validity.begin, one.key.cert.first().map(|first| first.to_vec()));
        key(self) > key(other)
    }
}

impl Proof {
    /// The certificate that shows the proof (RFC 8737 section 3).
    fn certificate(&self) -> Option<Arc<CertifiedKey>> {
        let mut params = CertificateParams::new([self.domain.clone()]).ok()?;
        let digest = digest(&SHA256, self.key_authorization.as_bytes());
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
        self_signed(&params)
    }
}

/// A certificate for these domains that nobody has issued.
pub(crate) fn placeholder(domains: &[String]) -> Option<Arc<CertifiedKey>> {
    self_signed(&CertificateParams::new(domains).ok()?)
}

fn self_signed(params: &CertificateParams) -> Option<Arc<CertifiedKey>> {
    let key = KeyPair::generate().ok()?;
    let chain = vec![params.self_signed(&key).ok()?.der().clone()];
    // Whether key and certificate belong together is not asked: what reads certificates there refuses critical extensions that it
    // does not know, such as that of a proof.
    let key = any_supported_type(&PrivatePkcs8KeyDer::from(key.serialize_der()).into()).ok()?;
    Some(Arc::new(CertifiedKey::new(chain, key)))
}

/// Answers handshakes of a CA that wants proof.
#[derive(Debug)]
pub(crate) struct Prover(pub(crate) Arc<Issued>);

impl ResolvesServerCert for Prover {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?;
        let proofs = self.0.proofs.load();
        let ready = proofs.iter().find(|ready| ready.proof.domain.eq_ignore_ascii_case(name))?;
        Some(Arc::clone(&ready.key))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    const DOMAINS: [&str; 2] = ["a.example", "b.example"];

    /// A certificate that began so many days ago.
    fn issue(days: u32) -> Issue {
        let mut params = CertificateParams::new(DOMAINS.map(str::to_owned)).unwrap();
        params.not_before = (SystemTime::now() - Duration::from_secs(24 * 3600) * days).into();
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap();
        let block = |label: &str, der: &[u8]| {
            use base64::Engine;
            let text = base64::engine::general_purpose::STANDARD.encode(der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        let pem = block("CERTIFICATE", der.der()) + &block("PRIVATE KEY", key.serialized_der());
        let (domain, directory) = ("a.example".to_owned(), "https://ca.example/".to_owned());
        Issue { domain, directory, pem: Zeroizing::new(pem) }
    }

    fn node(orders: bool) -> Issued {
        let issued = Issued::default();
        issued.want_only(HashSet::from(["a.example".to_owned()]), orders);
        issued
    }

    fn proof() -> Proof {
        let [domain, token, key_authorization] = ["a.example", "token", "token.thumb"].map(str::to_owned);
        Proof { domain, token, key_authorization }
    }

    #[test]
    fn the_later_certificate_stays_whoever_tells_of_it() {
        let (old, new) = (issue(60), issue(1));
        for order in [[&old, &new], [&new, &old]] {
            let node = node(false);
            let added = order.map(|issue| node.learn(issue.clone()).unwrap());
            assert_eq!(added, [true, *order[0] == old]);
            assert_eq!(node.issues(), std::slice::from_ref(&new));
        }
        let node = node(false);
        assert_eq!(
            node.learn(Issue { domain: "c.example".to_owned(), ..old.clone() }),
            Ok(false),
            "nobody wants it"
        );
        let broken = Issue { pem: Zeroizing::new("nothing".to_owned()), ..old.clone() };
        let error = node.learn(broken).unwrap_err().to_string();
        assert!(error.starts_with("the certificate for a.example: "), "{error}");
        node.learn(old).unwrap();
        let described = node.describe("a.example").unwrap();
        assert_eq!(described.names, DOMAINS);
        node.want_only(HashSet::new(), false);
        assert_eq!((node.issues(), node.describe("a.example")), (Vec::new(), None));
    }

    /// RFC 8737 section 3: a critical extension with the digest of the key authorization, in an octet string.
    #[test]
    fn a_proof_is_in_a_critical_extension() {
        let certificate = proof().certificate().expect("a certificate");
        let id = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f];
        let digest = digest(&SHA256, b"token.thumb");
        let extension = [&id[..], &[0x01, 0x01, 0xff, 0x04, 0x22, 0x04, 0x20], digest.as_ref()].concat();
        assert!(certificate.cert[0].windows(extension.len()).any(|bytes| bytes == extension));
    }

    #[test]
    fn nodes_that_talk_have_the_same() {
        let [first, second] = [node(true), node(false)];
        first.learn(issue(60)).unwrap();
        second.learn(issue(1)).unwrap();
        first.set_proofs(vec![proof()]);
        let mut news = [first.news(), second.news()];
        second.hear(first.tell());
        first.hear(second.tell());
        assert_eq!(first.issues(), second.issues());
        assert_eq!(news.each_mut().map(|news| news.has_changed().unwrap()), [true, false]);
        // Proofs come from the node that orders, and only from there.
        let path = "/.well-known/acme-challenge/token";
        assert_eq!(
            [&first, &second].map(|node| node.answer(path)),
            [(); 2].map(|()| Some("token.thumb".to_owned()))
        );
        assert_eq!(second.answer("/.well-known/acme-challenge/other"), None);
        assert_eq!(second.answer("/token"), None);
        first.set_proofs(Vec::new());
        first.hear(second.tell());
        assert_eq!(first.answer(path), None);
        second.hear(first.tell());
        assert_eq!(second.answer(path), None);
    }
}
