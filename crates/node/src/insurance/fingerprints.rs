//! Fingerprints of responses that can be made once more (docs/decisions/0051): those that this node's program makes of its own,
//! and those that it hears of other nodes'.

use std::io;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};
use switchback_resume::{Failure, Fingerprint, Flow, Key, Message, Proof, Record, Running};
use switchback_wire::{bytes_of, read_from, sb_fingerprint, sb_heard_fingerprint, sb_key};

use super::{Insurance, lock, wire};

/// Attempts to read a fingerprint that the program may be writing.
const READS: usize = 100;
/// Time between two times at which heirs are told the fingerprints of all responses.
const AGAIN: Duration = Duration::from_secs(1);

impl Insurance {
    /// The fingerprint of all that has been sent of a response until now.
    pub(super) fn proof(&self, flow: &Flow, origin: u32) -> Option<Proof> {
        let of = self.read_fingerprint(flow).filter(|of| of.origin == origin)?;
        Some(Proof { key: key_of(of.key), last: Running::of_parts(of.v, of.tail, of.len).fingerprint() })
    }

    /// Reads what the program may be writing.
    fn read_fingerprint(&self, flow: &Flow) -> Option<sb_fingerprint> {
        let key = wire(flow);
        let read = || self.0.fingerprints.lookup(bytes_of(&key), MapFlags::ANY).ok().flatten();
        let all = std::iter::repeat_with(|| read_from::<sb_fingerprint>(&read()?)).take(READS);
        all.map_while(|of| of).find(|of| of.check == check_of(of.v, of.tail, of.len))
    }

    /// Tells heirs the fingerprints of all responses once more: those of the program may be lost.
    pub(super) fn tell_fingerprints(&self) {
        let mut last = lock(&self.0.told_at);
        if last.elapsed() < AGAIN {
            return;
        }
        *last = Instant::now();
        let records: Vec<(Flow, u32)> = lock(&self.0.own).repeated();
        for (flow, origin) in records {
            let Some(Proof { last, .. }) = self.proof(&flow, origin) else { continue };
            if let Some(heirs) = lock(&self.0.own).note(&flow, origin, last) {
                lock(&self.0.heirs).say(&heirs, &Message::Fingerprint(flow, origin, last));
            }
        }
    }

    /// An heir knows of a response. The program's fingerprints may have overtaken what the agent has told.
    pub(super) fn heir_knows(&self, heir: &str, flow: Flow, origin: u32) {
        let is_under_way = lock(&self.0.own).note_known(&flow, origin);
        if is_under_way && let Some(Proof { last, .. }) = self.proof(&flow, origin) {
            lock(&self.0.heirs).say(&[heir.to_owned()], &Message::Fingerprint(flow, origin, last));
        }
    }

    /// Has the program hear the fingerprints of another node's response.
    pub(super) fn await_fingerprints(&self, record: &Record) {
        let Record { flow, origin, proof: Some(Proof { key, .. }), .. } = record else { return };
        let key = wire_key(*key);
        let has_begun = |of: sb_heard_fingerprint| of.origin == *origin && of.key == key;
        if self.heard(flow).is_some_and(has_begun) {
            return;
        }
        let begun = sb_heard_fingerprint { origin: *origin, key, ..Default::default() };
        // What the program does not hear the other node's agent tells each second.
        let _ = self.0.heard.update(bytes_of(&wire(flow)), bytes_of(&begun), MapFlags::ANY);
    }

    fn heard(&self, flow: &Flow) -> Option<sb_heard_fingerprint> {
        let heard = self.0.heard.lookup(bytes_of(&wire(flow)), MapFlags::LOCK).ok().flatten()?;
        read_from(&heard)
    }

    /// Notes the last fingerprint that the program has heard of another node's response.
    fn note_heard(&self, flow: &Flow) {
        let Some(sb_heard_fingerprint { origin, key, len, value, .. }) = self.heard(flow) else { return };
        let mut estate = lock(&self.0.estate);
        if estate.key(flow, origin) == Some(key_of(key)) {
            estate.note(flow, origin, Fingerprint { len, value });
        }
    }

    /// Whether the client of a response that is known by fingerprints has more of it than they are of.
    pub(super) fn lacks_fingerprint(&self, flow: &Flow) -> bool {
        self.note_heard(flow);
        let Some(owned) = self.owned(flow) else { return false };
        lock(&self.0.estate).lacks_fingerprint(flow, owned.sent)
    }

    /// The program goes on from here with the fingerprint of a response that the agent sends.
    pub(super) fn go_on_with_fingerprint(
        &self,
        flow: &Flow,
        origin: u32,
        key: Key,
        has: &Running,
        end: u32,
    ) -> std::result::Result<(), Failure> {
        let (v, tail, len) = has.parts();
        let (check, key) = (check_of(v, tail, len), wire_key(key));
        let state = sb_fingerprint { v, tail, len, check, key, origin, end };
        let done = self.0.fingerprints.update(bytes_of(&wire(flow)), bytes_of(&state), MapFlags::ANY);
        done.map_err(|error| Failure::Here(io::Error::other(error)))
    }
}

fn key_of(key: sb_key) -> Key {
    Key { k0: key.k0, k1: key.k1 }
}

fn wire_key(key: Key) -> sb_key {
    sb_key { k0: key.k0, k1: key.k1 }
}

/// `sb_fingerprint.check`
pub(crate) fn check_of(v: [u64; 4], tail: u64, len: u64) -> u64 {
    v.into_iter().fold(tail ^ len, |sum, part| sum ^ part)
}
