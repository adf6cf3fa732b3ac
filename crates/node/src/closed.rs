//! CLOSED packets, which report ended flows so that the switches' flow maps contain live flows only. A lost report does
//! no harm: the flow entry ages out.
//!
//! A switch whose link was down for a moment gets those again that it may have missed.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use switchback_wire::flow_state::FlowState;
use switchback_wire::message::FromNode;
use switchback_wire::packet::{bare, flags};
use switchback_wire::{Seq, address_from, sb_closed, sb_flow};

use crate::signer::Signer;

/// Ends remembered, at 128 bytes each.
const REMEMBERED: usize = 1 << 15;
/// Switches say HELLO each second. One that has been silent for longer may have missed something.
const SILENCE: Duration = Duration::from_millis(1500);
/// A switch that has been silent for so long is a new one, and ends before that are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Ends of flows.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// The last ones, with the time.
    recent: VecDeque<(Duration, End)>,
    /// When each switch has said HELLO last.
    heard: HashMap<IpAddr, Duration>,
}

/// The end of a flow.
#[derive(Clone, Copy, Debug)]
struct End {
    flow: sb_flow,
    state: FlowState,
    /// Number of the node.
    node: u16,
}

impl Ends {
    /// The CLOSED packets about these ends with their destinations: the switch that handed the flow over last, and those that
    /// listen, which may have heard of the flow before or by a list; and packets about earlier ones for a switch that has been
    /// silent. `listening`: the switches with the time of their last HELLO.
    pub(crate) fn packets(
        &mut self,
        signer: &Signer,
        reports: &[sb_closed],
        listening: &[(IpAddr, Duration)],
    ) -> Vec<(IpAddr, Vec<u8>)> {
        let mut packets = self.missed(signer, listening);
        for report in reports {
            let last = address_from(report.owned.switch_address);
            let others = listening.iter().map(|(switch, _)| *switch).filter(|switch| *switch != last);
            let (flow, state, node) = (report.flow, report.owned.flow_state(), report.owned.node);
            let end = End { flow, state, node };
            packets
                .extend(std::iter::once(last).chain(others).filter_map(|switch| end.packet(signer, switch)));
            self.recent.push_back((Duration::from_micros(report.at_us), end));
        }
        let latest = self.heard.values().copied().max().unwrap_or_default();
        let old = self.recent.partition_point(|(at, _)| *at + FORGOTTEN < latest);
        let surplus = self.recent.len().saturating_sub(REMEMBERED);
        self.recent.drain(..old.max(surplus));
        packets
    }

    /// What switches may have missed that are heard again.
    fn missed(&mut self, signer: &Signer, listening: &[(IpAddr, Duration)]) -> Vec<(IpAddr, Vec<u8>)> {
        let mut packets = Vec::new();
        for (switch, heard) in listening {
            let before = self.heard.insert(*switch, *heard).unwrap_or(*heard);
            if heard.saturating_sub(before) > SILENCE {
                let ends = self.recent.iter().filter(|(at, _)| *at >= before);
                packets.extend(ends.filter_map(|(_, end)| end.packet(signer, *switch)));
            }
        }
        let latest = self.heard.values().copied().max().unwrap_or_default();
        self.heard.retain(|_, heard| *heard + FORGOTTEN > latest);
        packets
    }
}

impl End {
    /// CLOSED. The inner packet only names the flow.
    fn packet(&self, signer: &Signer, switch: IpAddr) -> Option<(IpAddr, Vec<u8>)> {
        if !signer.can_reach(switch) {
            return None;
        }
        let inner = bare(&self.flow, true, self.state.next, Seq(0), flags::RST);
        let packet =
            signer.of(self.node).packet(switch, &self.flow, FromNode::Closed(self.state).option(), &inner)?;
        Some((switch, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::clock::NodeClock;
    use switchback_wire::{address_bytes, sb_key, sb_owned};

    const SWITCHES: [IpAddr; 2] = [address(10), address(11)];

    const fn address(last: u8) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, last))
    }

    fn ended(ms: u64, by: IpAddr) -> sb_closed {
        let owned = sb_owned { switch_address: address_bytes(by), ..Default::default() };
        sb_closed { at_us: ms * 1000, owned, ..Default::default() }
    }

    /// How many packets each switch gets.
    fn told(ends: &mut Ends, reports: &[sb_closed], heard_ms: [Option<u64>; 2]) -> [usize; 2] {
        let signer =
            Signer { key: sb_key { k0: 1, k1: 2 }, node: address(21).into(), clock: NodeClock::default() };
        let listening = std::iter::zip(SWITCHES, heard_ms);
        let listening: Vec<_> =
            listening.filter_map(|(switch, ms)| Some((switch, Duration::from_millis(ms?)))).collect();
        let packets = ends.packets(&signer, reports, &listening);
        SWITCHES.map(|switch| packets.iter().filter(|(to, _)| *to == switch).count())
    }

    #[test]
    fn all_switches_hear_of_an_end_once() {
        let mut ends = Ends::default();
        let all = [Some(1000), Some(1100)];
        assert_eq!(told(&mut ends, &[ended(1200, SWITCHES[0]), ended(1300, SWITCHES[1])], all), [2, 2]);
        assert_eq!(told(&mut ends, &[], [Some(2000), Some(2100)]), [0, 0]);
        assert_eq!(told(&mut ends, &[ended(2200, SWITCHES[1])], [Some(2000), None]), [1, 1], "its last one");
    }

    #[test]
    fn a_switch_that_was_silent_hears_of_what_it_may_have_missed() {
        let mut ends = Ends::default();
        told(&mut ends, &[ended(900, SWITCHES[0])], [Some(1000), Some(1000)]);
        told(&mut ends, &[ended(1100, SWITCHES[0]), ended(2500, SWITCHES[0])], [Some(2000), Some(1000)]);
        told(&mut ends, &[ended(4500, SWITCHES[0])], [Some(4000), None]);
        assert_eq!(told(&mut ends, &[], [Some(5000), Some(5000)]), [0, 3]);
        assert_eq!(told(&mut ends, &[], [Some(6000), Some(6000)]), [0, 0]);
    }

    #[test]
    fn what_is_remembered_is_limited() {
        let mut ends = Ends::default();
        for _ in 0..3 {
            told(&mut ends, &vec![ended(900, SWITCHES[0]); REMEMBERED / 2], [Some(100), Some(100)]);
        }
        assert_eq!(ends.recent.len(), REMEMBERED);
        told(&mut ends, &[ended(60_800, SWITCHES[0])], [Some(60_901), None]);
        assert_eq!((ends.heard.len(), ends.recent.len()), (1, 1));
    }
}
