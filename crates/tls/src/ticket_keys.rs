//! Keys that seal session tickets: random, shared among the agents of a cluster, and erased when their time
//! is over.
//!
//! Every agent has the keys of all, because agents tell each other what they have when they start, when they
//! make a key, and each minute one of the others. So a session can be resumed at another node, and at its own
//! after a restart, when the others send an agent the keys it has made before. An agent that cannot be
//! reached uses a key of its own. Of several keys the oldest that still seals is used, so agents that have
//! started at the same time agree; the next one is made an hour before it is needed, in which it comes to
//! all.
//!
//! An attacker who learns the cluster key later can take part, but cannot open tickets whose keys have been
//! erased.

use std::fmt;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use aws_lc_rs::rand;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Age after which a key seals no more tickets.
pub const SEALS: Duration = Duration::from_secs(12 * 3600);
/// Age after which a key opens no more tickets, and is erased: every ticket opens for its whole lifetime.
const OPENS: Duration = Duration::from_secs(24 * 3600);
/// Time before the end of a key at which the next one is made.
const AHEAD: Duration = Duration::from_secs(3600);
/// Most keys: more than the agents of a large cluster make in a day.
const KEYS_MAX: usize = 4096;

/// A key's name, which its tickets begin with.
pub type KeyId = [u8; 8];

/// A key on its way between agents, whose clocks may differ.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SharedKey {
    id: KeyId,
    secret: Zeroizing<[u8; 32]>,
    age: Duration,
}

#[derive(Clone)]
struct Key {
    id: KeyId,
    secret: Zeroizing<[u8; 32]>,
    made: Instant,
}

impl Key {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.made)
    }
}

/// The keys of an agent. Handshakes read them, and take no lock.
#[derive(Default)]
pub struct TicketKeys(ArcSwap<Vec<Key>>);

/// Without keys.
impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys")
    }
}

impl TicketKeys {
    /// Erases old keys, and makes one if it is needed soon; true if it has.
    pub(crate) fn renew(&self, now: Instant) -> bool {
        let mut made = false;
        self.0.rcu(|keys| {
            let mut keys: Vec<Key> = keys.iter().filter(|key| key.age(now) < OPENS).cloned().collect();
            let is_enough = keys.iter().any(|key| key.age(now) + AHEAD < SEALS);
            let (mut id, mut secret) = ([0; 8], Zeroizing::new([0; 32]));
            // Without random numbers there are no tickets, and no TLS either.
            made = !is_enough && rand::fill(&mut id).is_ok() && rand::fill(&mut secret[..]).is_ok();
            if made {
                keys.push(Key { id, secret, made: now });
            }
            keys
        });
        made
    }

    /// The key that seals.
    pub(crate) fn sealing(&self, now: Instant) -> Option<(KeyId, Zeroizing<[u8; 32]>)> {
        let keys = self.0.load();
        let sealing = keys.iter().filter(|key| key.age(now) < SEALS);
        sealing.max_by_key(|key| (key.age(now), key.id)).map(|key| (key.id, key.secret.clone()))
    }

    /// The key with this name, if it still opens.
    pub(crate) fn opening(&self, id: KeyId, now: Instant) -> Option<Zeroizing<[u8; 32]>> {
        let keys = self.0.load();
        keys.iter().find(|key| key.id == id && key.age(now) < OPENS).map(|key| key.secret.clone())
    }

    /// All keys, for another agent.
    pub(crate) fn tell(&self, now: Instant) -> Vec<SharedKey> {
        let share = |key: &Key| SharedKey { id: key.id, secret: key.secret.clone(), age: key.age(now) };
        self.0.load().iter().filter(|key| key.age(now) < OPENS).map(share).collect()
    }

    /// Adds the keys of another agent. Keys that are known already keep their age.
    pub(crate) fn learn(&self, told: Vec<SharedKey>, now: Instant) {
        self.0.rcu(|keys| {
            let mut keys = Vec::clone(keys);
            for SharedKey { id, secret, age } in &told {
                let Some(made) = now.checked_sub(*age).filter(|_| *age < OPENS) else { continue };
                let known = keys.iter_mut().find(|key| key.id == *id);
                if let Some(known) = known {
                    known.made = known.made.min(made);
                } else if keys.len() < KEYS_MAX {
                    keys.push(Key { id: *id, secret: secret.clone(), made });
                }
            }
            keys
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn id(keys: &TicketKeys, now: Instant) -> KeyId {
        keys.sealing(now).expect("a key").0
    }

    #[test]
    fn a_key_seals_then_opens_then_is_erased() {
        let (keys, start) = (TicketKeys::default(), Instant::now());
        assert!(keys.sealing(start).is_none());
        assert!(keys.renew(start) && !keys.renew(start));
        let first = id(&keys, start);
        assert!(!keys.renew(start + 10 * HOUR));
        assert!(keys.renew(start + 11 * HOUR), "the next one is made in time");
        assert_eq!(id(&keys, start + 11 * HOUR), first);
        let second = id(&keys, start + 12 * HOUR);
        assert_ne!(second, first);
        assert!(keys.opening(first, start + 24 * HOUR - Duration::from_secs(1)).is_some());
        assert!(keys.opening(first, start + 24 * HOUR).is_none());
        keys.renew(start + 24 * HOUR);
        assert!(keys.0.load().iter().all(|key| key.id != first), "it is still in memory");
    }

    #[test]
    fn agents_agree_and_one_that_is_restarted_knows_its_keys_again() {
        let now = Instant::now();
        let [one, other] = [TicketKeys::default(), TicketKeys::default()];
        one.renew(now);
        other.renew(now);
        one.learn(other.tell(now), now);
        other.learn(one.tell(now), now);
        assert_eq!(id(&one, now), id(&other, now));
        let later = now + HOUR;
        let restarted = TicketKeys::default();
        restarted.renew(later);
        restarted.learn(other.tell(later), later);
        assert_eq!(id(&restarted, later), id(&one, later));
        assert_eq!(restarted.0.load().len(), 3);
    }

    #[test]
    fn no_key_gets_younger_by_being_told() {
        let now = Instant::now() + 48 * HOUR;
        let keys = TicketKeys::default();
        keys.renew(now);
        let told = keys.tell(now);
        keys.learn(told.clone(), now + 2 * HOUR);
        assert_eq!(keys.tell(now + 2 * HOUR)[0].age, 2 * HOUR);
        let old: Vec<SharedKey> = told.into_iter().map(|key| SharedKey { age: OPENS, ..key }).collect();
        let others = TicketKeys::default();
        others.learn(old, now);
        assert!(others.0.load().is_empty(), "it would have been erased");
    }
}
