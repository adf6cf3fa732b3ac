//! Session tickets (RFC 8446 section 4.6.1, RFC 5077) that name their node and open for as long as their keys
//! are valid.
//!
//! A ticket is sealed under a key that is made of a random one ([`TicketKeys`]), the service, and, where only
//! the node itself is to resume its sessions, the node; and of what a service demands of clients' certificates, so that a
//! session goes on only under the demands that its client has met. It begins with the name of the random key.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use switchback_config::TicketScope;
use switchback_hello::Tickets as Names;
use zeroize::Zeroizing;

use crate::ticket_keys::{KeyId, SEALS, TicketKeys};

/// Seals and opens sessions of a service, and names this node in what it seals.
pub struct Tickets {
    keys: Arc<TicketKeys>,
    names: Names,
    service: String,
    node: String,
    scope: TicketScope,
    /// [`ClientCertificates::digest`](crate::ClientCertificates::digest), if the service asks for certificates.
    demands: Option<[u8; 32]>,
}

/// Without keys.
impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets")
            .field("service", &self.service)
            .field("node", &self.node)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl Tickets {
    /// Tickets of a service at the node with this name. `demands` stand for what it demands of clients' certificates.
    pub fn new(
        keys: Arc<TicketKeys>,
        names: Names,
        service: &str,
        node: &str,
        scope: TicketScope,
        demands: Option<[u8; 32]>,
    ) -> Arc<Self> {
        Arc::new(Tickets { keys, names, service: service.to_owned(), node: node.to_owned(), scope, demands })
    }

    fn key(&self, secret: &[u8; 32]) -> Option<LessSafeKey> {
        struct Length;
        impl KeyType for Length {
            fn len(&self) -> usize {
                32
            }
        }
        let node: &[u8] = if self.scope == TicketScope::Node { self.node.as_bytes() } else { b"" };
        // Names are unambiguous one behind the other if the length of the first is known.
        let service_len = (self.service.len() as u64).to_be_bytes();
        // The byte behind the label tells the two apart: a scope is no blank.
        let (label, demands): (&[u8], &[u8]) = match &self.demands {
            None => (b"switchback ticket v2", b""),
            Some(demands) => (b"switchback ticket v2 of client certificates", demands),
        };
        let parts: [&[u8]; 6] =
            [label, &[self.scope as u8], demands, &service_len, self.service.as_bytes(), node];
        let mut key = Zeroizing::new([0; 32]);
        Prk::new_less_safe(HKDF_SHA256, secret).expand(&parts, Length).ok()?.fill(&mut key[..]).ok()?;
        Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key[..]).ok()?))
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        SEALS.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let (id, secret) = self.keys.sealing(Instant::now())?;
        let key = self.key(&secret)?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut text = Zeroizing::new(plain.to_vec());
        let tag =
            key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text);
        let sealed = [&id[..], &nonce, &text, tag.ok()?.as_ref()].concat();
        self.names.name(&self.node, &sealed)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let sealed = self.names.read(ticket)?.sealed;
        let (id, sealed) = sealed.split_first_chunk::<{ size_of::<KeyId>() }>()?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let key = self.key(&*self.keys.opening(*id, Instant::now())?)?;
        let mut text = sealed.to_vec();
        let len =
            key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut text).ok()?.len();
        text.truncate(len);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use switchback_wire::keys::ticket_name_key;

    use super::*;

    const CLUSTER: [u8; 32] = [1; 32];

    fn keys() -> Arc<TicketKeys> {
        let keys = TicketKeys::default();
        assert!(keys.renew(Instant::now()));
        Arc::new(keys)
    }

    fn tickets(keys: &Arc<TicketKeys>, service: &str, node: &str, scope: TicketScope) -> Arc<Tickets> {
        let names = Names::new(&[ticket_name_key(&CLUSTER)], ["a", "b"]);
        Tickets::new(Arc::clone(keys), names, service, node, scope, None)
    }

    #[test]
    fn a_ticket_opens_under_the_demands_that_its_client_has_met() {
        let keys = keys();
        let tickets = |demands| {
            let names = Names::new(&[ticket_name_key(&CLUSTER)], ["a"]);
            Tickets::new(Arc::clone(&keys), names, "shop", "a", TicketScope::Cluster, demands)
        };
        let all = [None, Some([1; 32]), Some([2; 32])];
        for made_under in all {
            let ticket = tickets(made_under).encrypt(b"session").unwrap();
            for demands in all {
                let expected = (demands == made_under).then(|| b"session".to_vec());
                assert_eq!(tickets(demands).decrypt(&ticket), expected, "{made_under:?}, {demands:?}");
            }
        }
    }

    #[test]
    fn only_those_who_may_open_a_ticket() {
        let keys = keys();
        let session = Some(b"session".to_vec());
        for (scope, others) in [(TicketScope::Node, false), (TicketScope::Cluster, true)] {
            let ticket = tickets(&keys, "shop", "a", scope).encrypt(b"session").unwrap();
            let open = |service, node| tickets(&keys, service, node, scope).decrypt(&ticket);
            assert_eq!(open("shop", "a"), session, "{scope:?}");
            assert_eq!(open("shop", "b"), session.clone().filter(|_| others), "{scope:?}");
            assert_eq!(open("admin", "a"), None, "another service");
            // What moves from one name to the other makes another key.
            let ticket = tickets(&keys, "shopa", "", scope).encrypt(b"session").unwrap();
            assert_eq!(open_as(&keys, "shop", "a", scope, &ticket), None);
        }
        let node = tickets(&keys, "shop", "a", TicketScope::Node).encrypt(b"session").unwrap();
        assert_eq!(open_as(&keys, "shop", "a", TicketScope::Cluster, &node), None);
    }

    fn open_as(
        keys: &Arc<TicketKeys>,
        service: &str,
        node: &str,
        scope: TicketScope,
        ticket: &[u8],
    ) -> Option<Vec<u8>> {
        tickets(keys, service, node, scope).decrypt(ticket)
    }

    /// The cluster key alone, which both have, opens nothing.
    #[test]
    fn whoever_has_only_the_cluster_key_opens_nothing() {
        let scope = TicketScope::Cluster;
        let ticket = tickets(&keys(), "shop", "a", scope).encrypt(b"session").unwrap();
        assert_eq!(open_as(&keys(), "shop", "a", scope, &ticket), None);
    }

    #[test]
    fn nobody_changes_a_ticket_and_no_two_are_the_same() {
        let tickets = tickets(&keys(), "shop", "a", TicketScope::Node);
        let ticket = tickets.encrypt(b"session").unwrap();
        assert_ne!(tickets.encrypt(b"session").unwrap(), ticket);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.decrypt(&changed), None, "byte {at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None);
        }
    }
}
