//! Lists of the nodes' flows, for switches that ask for one: those that have just started, or that meet many flows that
//! they do not know.
//!
//! A list consists of the flows that the node had when the switch asked. Their state is read when a packet is made, also
//! when it is sent again.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Instant;

use switchback_runtime::Result;
use switchback_wire::records::{Numbered, Record, encode};
use switchback_wire::{SB_FLOWS_LAST, sb_flow, sb_listed};

use crate::facts::Asker;
use crate::flow_map::Walk;
use crate::signer::Signer;
use crate::window::Window;

/// Switches that get lists at a time; the keys of a million flows take 36 MB. Other switches ask again.
const SWITCHES_MAX: usize = 4;

/// A list of a node's flows that a switch wants, and the number of its last packet that the switch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) asker: Asker,
    pub(crate) epoch: u32,
    pub(crate) number: u32,
}

/// The flows of all nodes, by number.
type Flows = HashMap<u16, Vec<sb_flow>>;

/// Lists in progress.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    lists: HashMap<Asker, List>,
    /// A walk for the lists that were wanted when it began.
    walk: Option<(Vec<Wanted>, Walk<Flows>)>,
}

#[derive(Debug)]
struct List {
    epoch: u32,
    flows: Vec<sb_flow>,
    /// Number of packets acknowledged.
    taken: usize,
    /// Those behind them.
    window: Window,
}

impl Lists {
    /// Begins, continues and ends lists as the switches want. `walk` begins to read the flows.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        wanted: &[Wanted],
        walk: impl Fn() -> Result<Walk<Flows>>,
    ) -> Result<()> {
        self.lists.retain(|asker, list| {
            wanted.iter().any(|wanted| (wanted.asker, wanted.epoch) == (*asker, list.epoch))
        });
        let mut new = Vec::new();
        for wanted in wanted {
            if let Some(list) = self.lists.get_mut(&wanted.asker) {
                list.acknowledged(wanted.number as usize, now);
            } else if wanted.number == 0 {
                new.push(*wanted);
            }
        }
        if self.walk.is_none() && new.iter().any(|wanted| self.has_room_for(wanted.asker)) {
            self.walk = Some((new.clone(), walk()?));
        }
        if let Some((asked, walk)) = self.walk.take_if(|(_, walk)| walk.is_over()) {
            let here = walk.result()?;
            for Wanted { asker, epoch, .. } in asked.into_iter().filter(|asked| new.contains(asked)) {
                if self.has_room_for(asker) {
                    let flows = here.get(&asker.1).cloned().unwrap_or_default();
                    self.lists.insert(asker, List { epoch, flows, taken: 0, window: Window::default() });
                }
            }
        }
        Ok(())
    }

    fn has_room_for(&self, (switch, _): Asker) -> bool {
        let others: HashSet<IpAddr> =
            self.lists.keys().map(|(other, _)| *other).filter(|other| *other != switch).collect();
        others.len() < SWITCHES_MAX
    }

    /// Whether any list is in progress.
    pub(crate) fn are_in_progress(&self) -> bool {
        !self.lists.is_empty() || self.walk.is_some()
    }

    /// Packets to send now. `describe` gives the state of those of the flows that the node still has.
    pub(crate) fn packets(
        &mut self,
        now: Instant,
        signer: &Signer,
        describe: impl Fn(u16, &[sb_flow]) -> Result<Vec<sb_listed>>,
    ) -> Result<Vec<(IpAddr, Vec<u8>)>> {
        let mut out = Vec::new();
        for ((switch, node), list) in &mut self.lists {
            for index in list.due(now) {
                let flows = list.flows.chunks(sb_listed::MAX).nth(index).unwrap_or_default();
                let flags = if index + 1 == list.len() { SB_FLOWS_LAST as u8 } else { 0 };
                let numbered = Numbered { epoch: list.epoch, number: index as u32 + 1, lost: 0 };
                let packet = encode(
                    &signer.key,
                    signer.of(*node).peers(*switch),
                    flags,
                    numbered,
                    &describe(*node, flows)?,
                );
                out.extend(packet.map(|packet| (*switch, packet)));
            }
        }
        Ok(out)
    }
}

impl List {
    /// Number of its packets; an empty list is one.
    fn len(&self) -> usize {
        self.flows.len().div_ceil(sb_listed::MAX).max(1)
    }

    fn acknowledged(&mut self, taken: usize, now: Instant) {
        if self.window.acknowledged(taken.wrapping_sub(self.taken), now) {
            self.taken = taken;
        }
    }

    /// Indices of packets to send now.
    fn due(&mut self, now: Instant) -> Range<usize> {
        let due = self.window.due(self.len() - self.taken, now);
        self.taken + due.start..self.taken + due.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window;
    use switchback_wire::clock::NodeClock;
    use switchback_wire::handoff::OVERHEAD_V4;
    use switchback_wire::packet::TcpView;
    use switchback_wire::records::read;
    use switchback_wire::{read_from, sb_key, sb_shim};

    const KEY: sb_key = sb_key { k0: 1, k1: 2 };
    const SWITCH: &str = "192.0.2.10";

    struct Agent {
        lists: Lists,
        now: Instant,
        flows: u16,
        ended: Option<u16>,
    }

    impl Agent {
        fn new(flows: u16) -> Agent {
            Agent { lists: Lists::default(), now: Instant::now(), flows, ended: None }
        }

        /// Numbers, client ports and whether it is the last one, of the packets that go when the switch says this.
        fn hears(&mut self, epoch: u32, number: u32) -> Vec<(u32, Vec<u16>, bool)> {
            let wanted = [Wanted { asker: (SWITCH.parse().unwrap(), 0), epoch, number }];
            self.hears_all(if epoch == 0 { &[] } else { &wanted })
        }

        fn hears_all(&mut self, wanted: &[Wanted]) -> Vec<(u32, Vec<u16>, bool)> {
            let flow = |port: u16| sb_flow { client_port: port.to_be(), ..Default::default() };
            let flows: Vec<sb_flow> = (1..=self.flows).map(flow).collect();
            let nodes = wanted.iter().map(|wanted| wanted.asker.1);
            let here: Flows = nodes.map(|node| (node, flows.clone())).collect();
            let walk = || {
                let here = here.clone();
                Walk::begin(|| Ok(here))
            };
            self.lists.update(self.now, wanted, walk).unwrap();
            while self.lists.walk.is_some() {
                std::thread::yield_now();
                self.lists.update(self.now, wanted, walk).unwrap();
            }
            let node = IpAddr::from([192, 0, 2, 21]).into();
            let signer = Signer { key: KEY, node, clock: NodeClock::default() };
            let ended = self.ended.map(u16::to_be);
            let describe = |_: u16, flows: &[sb_flow]| {
                let here = flows.iter().filter(|flow| Some(flow.client_port) != ended);
                Ok(here.map(|flow| sb_listed { flow: *flow, ..Default::default() }).collect())
            };
            let packets = self.lists.packets(self.now, &signer, describe).unwrap();
            let read = packets.iter().map(|(_, packet)| {
                let shim: sb_shim = read_from(&packet[OVERHEAD_V4 - size_of::<sb_shim>()..]).unwrap();
                let inner = &packet[OVERHEAD_V4..];
                let view = TcpView::parse(inner).unwrap();
                let (numbered, listed) = read::<sb_listed>(&inner[view.data..view.end], &[KEY, KEY]).unwrap();
                let ports = listed.iter().map(|listed| u16::from_be(listed.flow.client_port)).collect();
                (numbered.number, ports, u32::from(shim.option.flags) & SB_FLOWS_LAST != 0)
            });
            read.collect()
        }
    }

    #[test]
    fn all_flows_arrive_in_order_within_a_window() {
        let mut agent = Agent::new(2000);
        let (mut ports, mut taken) = (Vec::new(), 0);
        while agent.lists.are_in_progress() || taken == 0 {
            let packets = agent.hears(7, taken);
            assert!(packets.len() <= window::PACKETS);
            for (number, some, last) in packets {
                taken += 1;
                assert_eq!((number, last), (taken, ports.len() + some.len() == 2000));
                ports.extend(some);
            }
            if ports.len() == 2000 {
                agent.hears(0, 0);
            }
        }
        assert_eq!(ports, (1..=2000).collect::<Vec<u16>>());
    }

    #[test]
    fn what_is_lost_is_sent_again_in_its_present_state() {
        let mut agent = Agent::new(20);
        assert_eq!(agent.hears(7, 0).len(), 2);
        assert!(agent.hears(7, 1).is_empty(), "sent already");
        agent.now += window::RESEND;
        agent.ended = Some(20);
        assert_eq!(agent.hears(7, 1), [(2, (16..=19).collect(), true)]);
    }

    #[test]
    fn a_node_without_flows_says_so() {
        assert_eq!(Agent::new(0).hears(7, 0), [(1, vec![], true)]);
    }

    /// What the node has adopted since a walk began may be missing in it.
    #[test]
    fn a_list_is_that_of_a_walk_that_has_begun_since_it_was_wanted() {
        let wanted = |last: u8| Wanted { asker: (IpAddr::from([192, 0, 2, last]), 0), epoch: 7, number: 0 };
        let (mut lists, now) = (Lists::default(), Instant::now());
        let walks = std::cell::Cell::new(0);
        let (go_on, gate) = std::sync::mpsc::channel();
        let gate = std::cell::Cell::new(Some(gate));
        let walk = || {
            walks.set(walks.get() + 1);
            let gate: Option<std::sync::mpsc::Receiver<()>> = gate.take();
            Walk::begin(move || {
                gate.map(|gate| gate.recv());
                Ok(Flows::new())
            })
        };
        lists.update(now, &[wanted(1)], walk).unwrap();
        lists.update(now, &[wanted(1), wanted(2)], walk).unwrap();
        assert_eq!((lists.lists.len(), walks.get()), (0, 1));
        go_on.send(()).unwrap();
        while lists.lists.is_empty() {
            lists.update(now, &[wanted(1), wanted(2)], walk).unwrap();
        }
        assert!(lists.lists.contains_key(&wanted(1).asker));
        while lists.lists.len() < 2 {
            lists.update(now, &[wanted(1), wanted(2)], walk).unwrap();
        }
        assert_eq!(walks.get(), 2);
    }

    #[test]
    fn a_new_epoch_begins_a_new_list_and_an_unknown_one_is_not_continued() {
        let mut agent = Agent::new(1);
        assert!(agent.hears(7, 5).is_empty(), "of an agent before this one");
        assert_eq!(agent.hears(7, 0).len(), 1);
        agent.flows = 2;
        assert_eq!(agent.hears(8, 0), [(1, vec![1, 2], true)]);
    }

    #[test]
    fn lists_are_few_at_a_time() {
        let mut agent = Agent::new(1);
        let wanted = |last: u8| Wanted { asker: (IpAddr::from([192, 0, 2, last]), 0), epoch: 7, number: 0 };
        let all: Vec<Wanted> = (10..20).map(wanted).collect();
        assert_eq!(agent.hears_all(&all).len(), SWITCHES_MAX);
        assert_eq!(agent.hears_all(&all[SWITCHES_MAX..]).len(), SWITCHES_MAX, "when the first are over");
        let of_nodes =
            |node: u16| Wanted { asker: (IpAddr::from([192, 0, 2, 9]), node), epoch: 7, number: 0 };
        let all: Vec<Wanted> = (0..9).map(of_nodes).collect();
        assert_eq!(agent.hears_all(&all).len(), 9, "one switch gets those of all nodes");
    }
}
