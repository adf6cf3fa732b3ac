//! Session tickets (RFC 8446 section 4.6.1, RFC 5077) that name their node and open for as long as their keys are valid.
//!
//! A ticket is sealed under a key that is made of the cluster key and the time: a new one each [`EPOCH`], of which the
//! latest and the one before open. So agents agree on keys without talking, and a restarted one knows them again. Where
//! only the node itself is to resume its sessions, its name goes into the key.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use switchback_config::TicketScope;
use switchback_hello::Tickets as Names;
use zeroize::Zeroizing;

/// How long one key seals tickets. A ticket opens in its own epoch and the next: between 12 and 24 hours.
pub const EPOCH: Duration = Duration::from_secs(12 * 3600);

/// Seals and opens sessions, and names this node in what it seals.
pub struct Tickets {
    /// The cluster's keys: the first seals, every one opens.
    secrets: Vec<Zeroizing<[u8; 32]>>,
    names: Names,
    node: String,
    scope: TicketScope,
    now: fn() -> Duration,
}

/// Says nothing of keys.
impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets")
            .field("node", &self.node)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Tickets {
    /// For the node with this name.
    pub fn new(cluster_keys: &[[u8; 32]], names: Names, node: &str, scope: TicketScope) -> Arc<Self> {
        let secrets = cluster_keys.iter().map(|key| Zeroizing::new(*key)).collect();
        Arc::new(Tickets { secrets, names, node: node.to_owned(), scope, now: since_1970 })
    }

    fn epoch(&self) -> u64 {
        (self.now)().as_secs() / EPOCH.as_secs()
    }

    fn key(&self, secret: &[u8; 32], epoch: u64) -> Option<LessSafeKey> {
        struct Length;
        impl KeyType for Length {
            fn len(&self) -> usize {
                32
            }
        }
        let node: &[u8] = if self.scope == TicketScope::Node { self.node.as_bytes() } else { b"" };
        let parts: [&[u8]; 4] = [b"switchback ticket v1", &epoch.to_be_bytes(), &[self.scope as u8], node];
        let mut key = Zeroizing::new([0; 32]);
        Prk::new_less_safe(HKDF_SHA256, secret).expand(&parts, Length).ok()?.fill(&mut key[..]).ok()?;
        Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key[..]).ok()?))
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        !self.secrets.is_empty()
    }

    fn lifetime(&self) -> u32 {
        EPOCH.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(self.secrets.first()?, self.epoch())?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut text = Zeroizing::new(plain.to_vec());
        let tag =
            key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text);
        let sealed = [&nonce[..], &text, tag.ok()?.as_ref()].concat();
        self.names.name(&self.node, &sealed)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let sealed = self.names.read(ticket)?.sealed;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let epoch = self.epoch();
        let keys =
            self.secrets.iter().flat_map(|secret| [(secret, epoch), (secret, epoch.saturating_sub(1))]);
        keys.into_iter().find_map(|(secret, epoch)| {
            let key = self.key(secret, epoch)?;
            let mut text = sealed.to_vec();
            let len =
                key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut text).ok()?.len();
            text.truncate(len);
            Some(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use switchback_wire::keys::ticket_name_key;

    use super::*;

    const OLD: [u8; 32] = [1; 32];
    const NEW: [u8; 32] = [2; 32];

    fn tickets(keys: &[[u8; 32]], node: &str, scope: TicketScope) -> Tickets {
        let name_keys: Vec<_> = keys.iter().map(ticket_name_key).collect();
        let names = Names::new(&name_keys, ["a", "b"]);
        Arc::into_inner(Tickets::new(keys, names, node, scope)).expect("nobody else has it")
    }

    #[test]
    fn only_those_who_may_open_a_ticket() {
        for (scope, others) in [(TicketScope::Node, false), (TicketScope::Cluster, true)] {
            let ticket = tickets(&[OLD], "a", scope).encrypt(b"session").unwrap();
            let open = |keys: &[[u8; 32]], node| tickets(keys, node, scope).decrypt(&ticket);
            let session = Some(b"session".to_vec());
            assert_eq!(open(&[OLD], "a"), session, "{scope:?}");
            assert_eq!(open(&[NEW, OLD], "a"), session, "while keys are replaced");
            assert_eq!(open(&[NEW], "a"), None);
            assert_eq!(open(&[OLD], "b"), session.filter(|_| others), "{scope:?}");
        }
        let node = tickets(&[OLD], "a", TicketScope::Node).encrypt(b"session").unwrap();
        assert_eq!(tickets(&[OLD], "a", TicketScope::Cluster).decrypt(&node), None);
    }

    #[test]
    fn a_ticket_opens_in_its_epoch_and_the_next() {
        static NOW: AtomicU64 = AtomicU64::new(0);
        let mut tickets = tickets(&[OLD], "a", TicketScope::Node);
        tickets.now = || Duration::from_secs(NOW.load(Ordering::Relaxed));
        let epoch = EPOCH.as_secs();
        NOW.store(5 * epoch, Ordering::Relaxed);
        let ticket = tickets.encrypt(b"session").unwrap();
        for (now, opens) in [(6 * epoch - 1, true), (7 * epoch - 1, true), (7 * epoch, false)] {
            NOW.store(now, Ordering::Relaxed);
            assert_eq!(tickets.decrypt(&ticket).is_some(), opens, "{now}");
        }
    }

    #[test]
    fn nobody_changes_a_ticket_and_no_two_are_the_same() {
        let tickets = tickets(&[OLD], "a", TicketScope::Node);
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
