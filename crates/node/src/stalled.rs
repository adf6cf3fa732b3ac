//! Window probes to the clients of stalled flows, when a switch takes flows of another one over, or falls silent.
//!
//! Acknowledgments and updates of the window are lost with the switch that should have forwarded them, and clients do not
//! repeat them. The server's socket asks for them by a timer that doubles up to two minutes: a download that was slow, or
//! had paused, would stand still for as long.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::IpAddr;

use libbpf_rs::{Iter, ProgramMut};
use switchback_runtime::{Doing, Result};
use switchback_wire::packet::{flags, segment, set_window};
use switchback_wire::{Seq, read_from, sb_stalled};

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

/// Switches that are heard.
#[derive(Debug, Default)]
pub(crate) struct Heard(BTreeSet<IpAddr>);

impl Heard {
    /// True if a switch has fallen silent since the last call.
    pub(crate) fn update(&mut self, switches: impl Iterator<Item = IpAddr>) -> bool {
        let before = std::mem::replace(&mut self.0, switches.collect());
        !before.is_subset(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_falls_silent_once() {
        let [one, other] = [10, 11].map(|last| IpAddr::from([192, 0, 2, last]));
        let mut heard = Heard::default();
        assert!(!heard.update([one].into_iter()));
        assert!(!heard.update([one, other].into_iter()));
        assert!(heard.update([other].into_iter()));
        assert!(!heard.update([other].into_iter()));
    }
}
