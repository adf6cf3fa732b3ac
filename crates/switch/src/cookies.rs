//! The keys of the program: SYN cookies by epoch, handoff tags by the cluster key.

use std::time::Duration;

use switchback_config::ClusterKey;
use switchback_wire::keys::{cookie_epoch, cookie_key, handoff_key};
use switchback_wire::{sb_key, sb_switch_settings};

/// Keeps the program's keys current.
///
/// A new cluster key makes cookies from the next epoch on, so that the cookies of this one stay valid.
pub struct Keys {
    sign: ClusterKey,
    /// What signs handoff packets, and what else may have signed those of nodes.
    handoff: (sb_key, Option<sb_key>),
    epoch: u64,
    slots: [sb_key; 2],
}

impl Keys {
    /// `now` is the time since 1970.
    pub fn new(keys: &[ClusterKey], now: Duration) -> Self {
        let epoch = cookie_epoch(now);
        let sign = keys[0].clone();
        let mut made = Keys { sign, handoff: handoff_keys(keys), epoch, slots: Default::default() };
        made.fill(epoch.wrapping_sub(1));
        made.fill(epoch);
        made
    }

    /// Takes the keys of a changed configuration.
    pub fn replace(&mut self, keys: &[ClusterKey]) {
        self.sign = keys[0].clone();
        self.handoff = handoff_keys(keys);
    }

    /// True when the epoch has changed, and with it the settings.
    pub fn turn(&mut self, now: Duration) -> bool {
        let epoch = cookie_epoch(now);
        if epoch == self.epoch {
            return false;
        }
        if epoch != self.epoch.wrapping_add(1) {
            self.fill(epoch.wrapping_sub(1));
        }
        self.fill(epoch);
        self.epoch = epoch;
        true
    }

    /// What signs handoff packets.
    pub fn sign(&self) -> sb_key {
        self.handoff.0
    }

    /// What may have signed those of nodes.
    pub fn accepted(&self) -> [sb_key; 2] {
        let (sign, accept) = self.handoff;
        [sign, accept.unwrap_or(sign)]
    }

    /// For the program.
    pub fn settings(&self) -> sb_switch_settings {
        sb_switch_settings {
            cookie_keys: self.slots,
            sign: self.sign(),
            accept: self.handoff.1.unwrap_or_default(),
            cookie_slot: (self.epoch & 1) as u32,
            is_node: 0,
        }
    }

    fn fill(&mut self, epoch: u64) {
        self.slots[(epoch & 1) as usize] = cookie_key(self.sign.as_bytes(), epoch);
    }
}

/// Of the first cluster key, and of the second one, if there is one.
fn handoff_keys(keys: &[ClusterKey]) -> (sb_key, Option<sb_key>) {
    let key = |key: &ClusterKey| handoff_key(key.as_bytes());
    (key(&keys[0]), keys.get(1).map(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::keys::COOKIE_EPOCH;

    fn key(byte: u8) -> ClusterKey {
        ClusterKey::from_bytes([byte; 32])
    }

    #[test]
    fn two_epochs_are_valid_at_a_time() {
        let mut keys = Keys::new(&[key(1)], COOKIE_EPOCH * 10);
        let first = keys.settings();
        assert!(!keys.turn(COOKIE_EPOCH * 10 + Duration::from_secs(1)));
        assert!(keys.turn(COOKIE_EPOCH * 11));
        let second = keys.settings();
        let slot = first.cookie_slot as usize;
        assert_eq!(second.cookie_slot as usize, 1 - slot);
        assert_eq!(first.cookie_keys[slot], second.cookie_keys[slot], "the last epoch's cookies stay valid");
        assert_ne!(first.cookie_keys[1 - slot], second.cookie_keys[1 - slot]);
    }

    #[test]
    fn all_switches_agree_whenever_they_started() {
        let mut early = Keys::new(&[key(1)], COOKIE_EPOCH * 3);
        early.turn(COOKIE_EPOCH * 9);
        assert_eq!(early.settings(), Keys::new(&[key(1)], COOKIE_EPOCH * 9).settings());
    }

    #[test]
    fn a_new_cluster_key_signs_at_once_and_makes_cookies_later() {
        let mut keys = Keys::new(&[key(1)], COOKIE_EPOCH * 4);
        let before = keys.settings();
        keys.replace(&[key(2), key(1)]);
        let after = keys.settings();
        assert_eq!(after.cookie_keys, before.cookie_keys);
        assert_eq!((after.sign, after.accept), (handoff_key(&[2; 32]), before.sign));
        keys.turn(COOKIE_EPOCH * 5);
        assert_eq!(keys.settings().cookie_keys[1], cookie_key(&[2; 32], 5));
    }
}
