//! Keys of the program: SYN cookie keys by epoch, and keys for handoff tags.

use std::time::Duration;

use switchback_config::ClusterKey;
use switchback_wire::keys::{cookie_epoch, cookie_key, handoff_key};
use switchback_wire::{SB_INSTANCES, sb_key, sb_switch_settings};

/// Two switch processes started this far apart have different instance numbers for as long as a cookie is valid.
const INSTANCE_STEP: Duration = Duration::from_millis(250);

/// All of `shared_slots`: other switches make cookies at any time.
pub const ALL_SLOTS: u32 = 0b11;

/// Keeps the program's keys current.
///
/// A new cluster key takes effect for cookies with the next epoch, so that cookies of the present one stay valid.
pub struct Keys {
    sign: ClusterKey,
    /// Key that signs handoff packets, and the other key accepted from nodes.
    handoff: (sb_key, Option<sb_key>),
    /// Instance number of this process in its cookies.
    instance: u32,
    /// Epoch in which the process started; other processes may have made cookies in it.
    first_epoch: u64,
    epoch: u64,
    slots: [sb_key; 2],
}

impl Keys {
    /// `now` is the time since 1970.
    pub fn new(keys: &[ClusterKey], now: Duration) -> Self {
        let epoch = cookie_epoch(now);
        let sign = keys[0].clone();
        let instance = (now.as_millis() / INSTANCE_STEP.as_millis()) as u32 % SB_INSTANCES;
        let handoff = handoff_keys(keys);
        let mut made = Keys { sign, handoff, instance, first_epoch: epoch, epoch, slots: Default::default() };
        made.fill(epoch.wrapping_sub(1));
        made.fill(epoch);
        made
    }

    /// Takes the keys of a changed configuration.
    pub fn replace(&mut self, keys: &[ClusterKey]) {
        self.sign = keys[0].clone();
        self.handoff = handoff_keys(keys);
    }

    /// Advances to the epoch of `now`; true if the settings have changed.
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

    /// Key that signs handoff packets.
    pub fn sign(&self) -> sb_key {
        self.handoff.0
    }

    /// Keys accepted in handoff packets of nodes.
    pub fn accepted(&self) -> [sb_key; 2] {
        let (sign, accept) = self.handoff;
        [sign, accept.unwrap_or(sign)]
    }

    /// Settings for the program.
    pub fn settings(&self) -> sb_switch_settings {
        sb_switch_settings {
            cookie_keys: self.slots,
            sign: self.sign(),
            accept: self.handoff.1.unwrap_or_default(),
            cookie_slot: (self.epoch & 1) as u32,
            instance: self.instance,
            shared_slots: self.shared_slots(),
            ..Default::default()
        }
    }

    /// Bitmap of the slots in which another process may have made cookies.
    fn shared_slots(&self) -> u32 {
        let epochs = [self.epoch, self.epoch.wrapping_sub(1)];
        epochs
            .iter()
            .filter(|epoch| **epoch <= self.first_epoch)
            .fold(0, |slots, epoch| slots | 1 << (epoch & 1))
    }

    fn fill(&mut self, epoch: u64) {
        self.slots[(epoch & 1) as usize] = cookie_key(self.sign.as_bytes(), epoch);
    }
}

/// Handoff keys of the first cluster key and, if present, of the second.
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
        let late = Keys::new(&[key(1)], COOKIE_EPOCH * 9).settings();
        let early = early.settings();
        assert_eq!((early.cookie_keys, early.cookie_slot), (late.cookie_keys, late.cookie_slot));
    }

    #[test]
    fn a_process_knows_its_own_cookies_from_those_before_it() {
        let begun = COOKIE_EPOCH * 8 + Duration::from_secs(60);
        let mut keys = Keys::new(&[key(1)], begun);
        assert_eq!(keys.settings().shared_slots, 0b11);
        keys.turn(COOKIE_EPOCH * 9);
        assert_eq!(keys.settings().shared_slots, 0b01, "both made cookies in epoch 8");
        keys.turn(COOKIE_EPOCH * 10);
        assert_eq!(keys.settings().shared_slots, 0);
        let instance = |after: Duration| Keys::new(&[key(1)], begun + after).settings().instance;
        let mut instances: Vec<u32> =
            (0..1024).map(|step| instance(Duration::from_millis(250 * step))).collect();
        assert!(2 * COOKIE_EPOCH <= Duration::from_millis(250 * 1024), "by then no cookie is valid");
        instances.sort_unstable();
        instances.dedup();
        assert_eq!((instances.len(), instances.last()), (1024, Some(&1023)));
        assert_eq!(keys.settings().instance, instance(Duration::ZERO), "it stays the same");
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
