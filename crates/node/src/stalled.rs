//! Window probes to the clients of stalled flows, when flows come by another switch than before, or a switch falls silent.
//!
//! Acknowledgments and updates of the window are lost with the switch that should have forwarded them, and clients do not
//! repeat them. The server's socket asks for them by a timer that doubles up to two minutes: a download that was slow, or
//! had paused, would stand still for as long.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use libbpf_rs::{Iter, ProgramMut};
use switchback_runtime::{Doing, Result};
use switchback_wire::packet::{flags, segment, set_window};
use switchback_wire::{Seq, read_from, sb_stalled};

/// Time between walks over the sockets, or a multiple of the time that a walk takes.
const REST: Duration = Duration::from_millis(200);
const REST_FACTOR: u32 = 5;
/// How long after the last flow was taken over clients are asked, since a probe or its answer may be lost as well.
const LASTS: Duration = Duration::from_secs(1);

/// Runs `switchback_stalled` (bpf/stalled.h) on the sockets of this network namespace.
pub(crate) fn read(program: &ProgramMut<'_>) -> Result<Vec<sb_stalled>> {
    let doing = || "run the program switchback_stalled";
    let link = program.attach().doing(doing)?;
    let mut sockets = Iter::new(&link).doing(doing)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        match sockets.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => bytes.extend_from_slice(&buffer[..len]),
            // bpf_seq_read() has visited a million sockets, and goes on.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).doing(doing),
        }
    }
    Ok(bytes.chunks_exact(size_of::<sb_stalled>()).filter_map(read_from).collect())
}

/// Asks the client for an acknowledgment with its present window: repeats one byte that it has, with any content, as in a
/// keep-alive segment (RFC 1122 section 4.2.3.6). Linux answers segments without data only twice a second
/// (`tcp_invalid_ratelimit`).
pub(crate) fn window_probe(stalled: &sb_stalled) -> (IpAddr, Vec<u8>) {
    let timestamps = (stalled.has_timestamps != 0).then_some((stalled.tsval, stalled.tsecr));
    let numbers = (Seq(stalled.seq), Seq(stalled.ack));
    let mut packet = segment(&stalled.flow, false, numbers, flags::ACK, timestamps, &[0]);
    set_window(&mut packet, stalled.window);
    (stalled.flow.client().ip(), packet)
}

/// Decides when clients are asked.
#[derive(Debug)]
pub(crate) struct Probing {
    /// Switches that are heard.
    heard: BTreeSet<IpAddr>,
    /// The counter `taken_over` as it was seen last.
    taken_over: u64,
    /// Until when clients are asked.
    until: Instant,
    /// When they may be asked again.
    rested: Instant,
}

impl Probing {
    pub(crate) fn new(now: Instant, taken_over: u64) -> Probing {
        Probing { heard: BTreeSet::new(), taken_over, until: now, rested: now }
    }

    /// Whether to ask: flows have come by another switch a moment ago, or a switch has fallen silent.
    pub(crate) fn is_due(
        &mut self,
        now: Instant,
        heard: impl Iterator<Item = IpAddr>,
        taken_over: u64,
    ) -> bool {
        let before = std::mem::replace(&mut self.heard, heard.collect());
        let is_silent = !before.is_subset(&self.heard);
        if is_silent || taken_over != self.taken_over {
            self.taken_over = taken_over;
            self.until = now + LASTS;
        }
        is_silent || now < self.until && now >= self.rested
    }

    /// Clients were asked from `begun` to `ended`.
    pub(crate) fn rest(&mut self, begun: Instant, ended: Instant) {
        self.rested = ended + REST.max(REST_FACTOR * (ended - begun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn a_switch_falls_silent_once() {
        let now = Instant::now();
        let mut probing = Probing::new(now, 0);
        let is_due = |probing: &mut Probing, heard: &[u8]| {
            probing.is_due(now, heard.iter().map(|last| switch(*last)), 0)
        };
        assert!(!is_due(&mut probing, &[10]));
        assert!(!is_due(&mut probing, &[10, 11]));
        assert!(is_due(&mut probing, &[11]));
        probing.rest(now, now);
        assert!(!is_due(&mut probing, &[11]));
    }

    #[test]
    fn flows_that_are_taken_over_are_asked_about_after_a_rest() {
        let begun = Instant::now();
        let mut probing = Probing::new(begun, 7);
        let is_due = |probing: &mut Probing, now, taken_over| probing.is_due(now, [].into_iter(), taken_over);
        assert!(!is_due(&mut probing, begun, 7));
        assert!(is_due(&mut probing, begun, 8));
        let ended = begun + REST;
        probing.rest(begun, ended);
        let rested = ended + REST_FACTOR * REST;
        assert!(!is_due(&mut probing, rested - Duration::from_millis(1), 9));
        assert!(is_due(&mut probing, rested, 9));
    }

    #[test]
    fn clients_are_asked_again_for_a_while() {
        let begun = Instant::now();
        let mut probing = Probing::new(begun, 7);
        let mut asked = Vec::new();
        for ms in (0..3_000).step_by(10).map(Duration::from_millis) {
            if probing.is_due(begun + ms, [].into_iter(), 8) {
                probing.rest(begun + ms, begun + ms);
                asked.push(ms.as_millis());
            }
        }
        assert_eq!(asked, [0, 200, 400, 600, 800]);
    }
}
