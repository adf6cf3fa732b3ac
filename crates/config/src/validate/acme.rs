//! `[acme]`, and the certificates that its CA issues.

use std::collections::HashMap;

use crate::acme::LETS_ENCRYPT;
use crate::mistakes::{Mistakes, Names};
use crate::raw::Spanned;
use crate::{Acme, Challenge, ClientAuth, Cluster, ExternalAccount, Service, TlsMode, raw, syntax};

/// Most domains of a certificate, as with Let's Encrypt.
pub(crate) const DOMAINS_MAX: usize = 100;

impl Mistakes {
    /// None without the table, or with a mistake in it.
    pub(super) fn acme(&mut self, file: Option<&raw::Acme>, node_names: &Names<'_>) -> Option<Acme> {
        let file = file?;
        let node = self.resolve("node", &file.node, node_names);
        let directory = match &file.directory {
            Some(url) => self.take(url, syntax::https_url(url.get_ref())),
            None => Some(LETS_ENCRYPT.to_owned()),
        };
        let email = file.email.as_ref().map(|email| self.take(email, syntax::email(email.get_ref())));
        if !*file.terms_agreed.get_ref() {
            let what = "terms_agreed is false, needed is true, which says that you agree to the CA's terms of service";
            self.at(&file.terms_agreed, what);
        }
        let challenge = file.challenge.as_ref();
        let challenge = challenge.map(|text| self.one_of("challenge", text, Challenge::ALL, Challenge::name));
        if let Some(profile) = &file.profile {
            self.take(profile, syntax::profile(profile.get_ref()));
        }
        if let Some(ca) = &file.ca {
            self.path("ca", ca, "ca.pem");
        }
        let external_account = self.external_account(file);
        Some(Acme {
            directory: directory?,
            email: email.map_or(Some(None), |email| email.map(Some))?,
            node: node?,
            challenge: challenge.unwrap_or(Some(Challenge::default()))?,
            profile: file.profile.as_ref().map(|profile| profile.get_ref().clone()),
            ca: file.ca.as_ref().map(|ca| ca.get_ref().into()),
            external_account,
        })
    }

    fn external_account(&mut self, file: &raw::Acme) -> Option<ExternalAccount> {
        let (id, key) = match (&file.external_account_id, &file.external_account_key) {
            (Some(id), Some(key)) => (id, key),
            (None, None) => return None,
            (Some(id), None) => {
                self.at(id, "external_account_id without external_account_key, needed are both");
                return None;
            }
            (None, Some(key)) => {
                self.at(key, "external_account_key without external_account_id, needed are both");
                return None;
            }
        };
        if id.get_ref().is_empty() {
            self.at(id, "empty external_account_id, allowed is the id that the CA has given the key");
        }
        self.path("external_account_key", key, "ca-account.key");
        Some(ExternalAccount { id: id.get_ref().clone(), key: key.get_ref().into() })
    }

    /// The domains of a certificate that a CA issues.
    pub(super) fn domains(&mut self, list: &Spanned<Vec<Spanned<String>>>) -> Vec<String> {
        let texts = list.get_ref();
        if texts.is_empty() || texts.len() > DOMAINS_MAX {
            self.at(list, format!("{} domains, allowed are 1 to {DOMAINS_MAX}", texts.len()));
        }
        let mut domains = Vec::new();
        for text in texts {
            let Some(domain) = self.take(text, syntax::domain(text.get_ref())) else { continue };
            if domains.contains(&domain) {
                self.at(text, format!("domain {domain:?} is listed already, allowed is each once"));
            }
            domains.push(domain);
        }
        domains
    }

    /// Certificates that a CA issues need one, and are known by their first domains.
    pub(super) fn issued_certificates(&mut self, file: &raw::File) {
        let mut known: HashMap<&str, &[Spanned<String>]> = HashMap::new();
        let certificates = file.service.iter().filter_map(|service| service.tls.as_ref());
        let lists =
            certificates.flat_map(|tls| &tls.certificate).filter_map(|file| file.get_ref().domains.as_ref());
        for list in lists {
            if file.acme.is_none() {
                let what =
                    "domains without a CA, needed is the table [acme], or chain and key of a certificate";
                self.at(list, what);
            }
            let Some(first) = list.get_ref().first() else { continue };
            let earlier = *known.entry(first.get_ref()).or_insert(list.get_ref());
            if !earlier.iter().map(Spanned::get_ref).eq(list.get_ref().iter().map(Spanned::get_ref)) {
                let what = format!(
                    "another certificate with other domains begins with {:?}, too, allowed is each list once, or another \
                     domain first",
                    first.get_ref()
                );
                self.at(first, what);
            }
        }
    }

    /// Nodes hear of certificates by the one that orders. `cluster` was made from `file`.
    pub(super) fn issued_at_nodes(&mut self, file: &raw::File, cluster: &Cluster) {
        let Some(acme) = &cluster.acme else { return };
        for (file, service) in file.service.iter().zip(&cluster.services) {
            let is_out_of_reach = |node: &usize| *node != acme.node && cluster.nodes[*node].hidden;
            let hidden = cluster.nodes_of(service).find(is_out_of_reach);
            if let (Some(list), Some(hidden)) = (first_list(file), hidden) {
                let what = format!(
                    "domains in a service with node {:?}, which is hidden, so that node {:?} cannot tell it of certificates, \
                     allowed are chain and key",
                    cluster.nodes[hidden].name, cluster.nodes[acme.node].name
                );
                self.at(list, what);
            }
        }
        self.proven_by_http(file, acme.challenge);
    }

    /// A CA has no certificate to show when it follows a redirect to https.
    fn proven_by_http(&mut self, file: &raw::File, challenge: Challenge) {
        if challenge != Challenge::Http01 {
            return;
        }
        for service in file.service.iter().filter(|service| first_list(service).is_some()) {
            let clients = service.tls.as_ref().and_then(|tls| tls.client_certificates.as_ref());
            let is_optional = |mode: &Spanned<String>| mode.get_ref() == ClientAuth::Optional.name();
            let Some(clients) = clients.filter(|clients| !clients.mode.as_ref().is_some_and(is_optional))
            else {
                continue;
            };
            let place = clients.mode.as_ref().unwrap_or(&clients.ca);
            let what = format!(
                "client certificates are required, which a CA does not have, allowed are challenge {:?} in [acme] or mode {:?}",
                Challenge::TlsAlpn01.name(),
                ClientAuth::Optional.name()
            );
            self.at(place, what);
        }
    }

    /// What is valid and keeps the CA from finding proof.
    pub(super) fn issued_in_vain(&mut self, file: &raw::File, cluster: &Cluster) {
        let (Some(place), Some(acme)) = (&file.acme, &cluster.acme) else { return };
        if cluster.issued_certificates().is_empty() {
            self.warn(&place.node, "[acme] is not used: no [[service.tls.certificate]] has domains");
        }
        for (file, service) in file.service.iter().zip(&cluster.services) {
            let Some(list) = first_list(file) else { continue };
            for vip in &service.listen {
                if vip.port() != Challenge::TlsAlpn01.port() {
                    let what = format!(
                        "the CA connects to port 443 of {}, service {:?} listens at {vip}",
                        vip.ip(),
                        service.name
                    );
                    self.warn(list, what);
                }
                let answers = |other: &Service| {
                    other.tls == TlsMode::Off
                        && other.listen.contains(&(vip.ip(), acme.challenge.port()).into())
                };
                if acme.challenge == Challenge::Http01 && !cluster.services.iter().any(answers) {
                    let what = format!(
                        "the CA sends HTTP to port 80 of {}, where no service listens that could redirect it to https",
                        vip.ip()
                    );
                    self.warn(list, what);
                }
            }
        }
    }
}

/// The domains of the first certificate of a service that a CA issues.
fn first_list(file: &raw::Service) -> Option<&Spanned<Vec<Spanned<String>>>> {
    file.tls
        .iter()
        .flat_map(|tls| &tls.certificate)
        .find_map(|certificate| certificate.get_ref().domains.as_ref())
}
