//! Reports responses to the switches, which log and count them although responses do not pass them.
//!
//! Switches acknowledge FACTS packets, and unacknowledged ones are sent again. So a fact is lost only with its switch,
//! or when too many wait.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use switchback_wire::facts::{End, Fact};
use switchback_wire::records::{Numbered, Record, encode};
use switchback_wire::{Seq, address_from, sb_asking, sb_closed, sb_end, sb_fact};

use crate::signer::Signer;
use crate::window::Window;

/// Packets kept for a switch: some 120,000 facts.
const KEPT: usize = 8192;

/// A switch's acknowledgment of facts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FactsAck {
    /// Whether the switch wants facts.
    pub(crate) facts: bool,
    /// Epoch of the agent that is acknowledged.
    pub(crate) epoch: u32,
    /// Number of the last packet received in sequence.
    pub(crate) number: u32,
}

/// A switch, and the number of the node of this machine about which it asks.
pub(crate) type Asker = (IpAddr, u16);

/// Who asks, as maps and rings of the programs say it.
pub(crate) fn asker_of(by: sb_asking) -> Asker {
    (address_from(by.switch_address), by.node as u16)
}

/// Queues of facts.
#[derive(Debug)]
pub(crate) struct Outboxes {
    /// Epoch of the next new queue.
    epoch: u32,
    by_asker: HashMap<Asker, Outbox>,
    /// Facts dropped because too many waited.
    lost: u32,
}

#[derive(Debug)]
struct Outbox {
    /// Epoch of the packets, which are numbered from 1.
    epoch: u32,
    /// Whether the switch has acknowledged the epoch.
    known: bool,
    /// Facts that are not in a packet yet.
    loose: Vec<sb_fact>,
    /// Unacknowledged packets, by number.
    packets: VecDeque<Vec<sb_fact>>,
    /// Number of the first packet, or of the next one if there is none.
    first: u32,
    window: Window,
}

impl Outboxes {
    /// `epoch` is random, so that it differs from those of earlier and later agents of this node.
    pub(crate) fn new(epoch: u32) -> Self {
        Outboxes { epoch, by_asker: HashMap::new(), lost: 0 }
    }

    /// Adds a fact for a switch.
    pub(crate) fn add(&mut self, asker: Asker, fact: sb_fact) {
        let epoch = &mut self.epoch;
        let outbox = self.by_asker.entry(asker).or_insert_with(|| Outbox::new(next(epoch)));
        if outbox.packets.len() >= KEPT {
            self.lost = self.lost.wrapping_add(1);
            return;
        }
        outbox.loose.push(fact);
        if outbox.loose.len() == sb_fact::MAX {
            outbox.close();
        }
    }

    /// Adds the facts about unfinished responses of an ended flow.
    pub(crate) fn add_ended(&mut self, closed: &sb_closed) {
        let asker = (address_from(closed.owned.switch_address), closed.owned.node);
        unfinished(closed).iter().for_each(|fact| self.add(asker, fact.to_wire()));
    }

    /// Whether there is nothing to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_asker.is_empty()
    }

    /// Whether packets wait for acknowledgments before they can be sent.
    pub(crate) fn is_behind(&self) -> bool {
        self.by_asker.values().any(|outbox| outbox.packets.len() > outbox.window.sent())
    }

    /// Packets to send now. `listening` gives the last acknowledgment of a switch; a switch without one, or one that
    /// wants no facts, gets no packets.
    pub(crate) fn packets(
        &mut self,
        now: Instant,
        signer: &Signer,
        program_lost: u32,
        listening: impl Fn(Asker) -> Option<FactsAck>,
    ) -> Vec<(IpAddr, Vec<u8>)> {
        let lost = self.lost.wrapping_add(program_lost);
        let mut out = Vec::new();
        self.by_asker.retain(|asker @ (switch, node), outbox| {
            let Some(ack) = listening(*asker).filter(|ack| ack.facts) else { return false };
            if !outbox.loose.is_empty() {
                outbox.close();
            }
            if ack.epoch == outbox.epoch {
                outbox.acknowledged(ack.number, now);
            } else if outbox.known {
                // The switch has been restarted.
                outbox.begin_again(next(&mut self.epoch));
            }
            let epoch = outbox.epoch;
            for (number, facts) in outbox.due(now) {
                let numbered = Numbered { epoch, number, lost };
                let packet = encode(&signer.key, signer.of(*node).peers(*switch), 0, numbered, facts);
                out.extend(packet.map(|packet| (*switch, packet)));
            }
            true
        });
        out
    }
}

/// The next epoch; 0 is reserved for a switch that knows none.
fn next(epoch: &mut u32) -> u32 {
    *epoch = epoch.wrapping_add(1).max(1);
    *epoch
}

impl Outbox {
    fn new(epoch: u32) -> Self {
        Outbox {
            epoch,
            known: false,
            loose: Vec::new(),
            packets: VecDeque::new(),
            first: 1,
            window: Window::default(),
        }
    }

    fn close(&mut self) {
        self.packets.push_back(std::mem::take(&mut self.loose));
    }

    fn begin_again(&mut self, epoch: u32) {
        (self.epoch, self.known, self.first, self.window) = (epoch, false, 1, Window::default());
    }

    fn acknowledged(&mut self, number: u32, now: Instant) {
        self.known = true;
        let count = number.wrapping_sub(self.first).wrapping_add(1) as usize;
        // Ignores numbers that were not sent.
        if self.window.acknowledged(count, now) {
            self.packets.drain(..count);
            self.first = number.wrapping_add(1);
        }
    }

    /// Packets to send now, with their numbers.
    fn due(&mut self, now: Instant) -> Vec<(u32, &[sb_fact])> {
        let due = self.window.due(self.packets.len(), now);
        let numbers = self.first.wrapping_add(due.start as u32)..;
        std::iter::zip(numbers, self.packets.range(due).map(Vec::as_slice)).collect()
    }
}

/// Facts about the requests without a whole, acknowledged response when a flow ends.
fn unfinished(closed: &sb_closed) -> Vec<Fact> {
    let owned = &closed.owned;
    let count = owned.requests.wrapping_sub(owned.responses);
    let is_lost = owned.framing.is_lost();
    let end = match closed.end {
        end if end == sb_end::SB_END_CLIENT as u8 => End::ByClient,
        _ => End::ByServer,
    };
    let waited = Duration::from_micros(closed.at_us.saturating_sub(owned.turn_us));
    let fact = |request| Fact {
        flow: closed.flow,
        origin: Seq(owned.origin),
        request,
        status: None,
        end: if is_lost { End::Unknown } else { end },
        bytes: 0,
        head_bytes: 0,
        first_byte: None,
        duration: waited,
    };
    let mut facts: Vec<Fact> = (1..=count).map(|more| fact(owned.responses.wrapping_add(more))).collect();
    if let Some(first) = facts.first_mut()
        && !owned.framing.is_between_messages()
        && owned.sent > 0
    {
        let status = owned.framing.status();
        first.bytes = owned.sent;
        first.head_bytes = owned.head_bytes;
        first.first_byte = Some(Duration::from_micros(owned.first_byte_us.into()));
        first.status = (owned.head_bytes > 0 && status != 0).then_some(status);
        // The response ends with the connection, or is no longer HTTP.
        if is_lost && owned.head_bytes > 0 {
            first.end = if status == 101 || end == End::ByServer { End::Complete } else { end };
        }
    }
    unacknowledged(closed).into_iter().chain(facts).collect()
}

/// The fact about a response that was sent whole, and that the client has not acknowledged: it has not got it, or has
/// gone before it could say so.
fn unacknowledged(closed: &sb_closed) -> Option<Fact> {
    let sb_closed { flow, owned, .. } = closed;
    let ended = owned.ended;
    (ended.status != 0).then(|| Fact {
        flow: *flow,
        origin: Seq(owned.origin),
        request: ended.number,
        status: Some(ended.status),
        end: End::ByClient,
        bytes: ended.bytes,
        head_bytes: ended.head_bytes,
        first_byte: Some(Duration::from_micros(ended.first_byte_us.into())),
        duration: Duration::from_micros(ended.duration_us),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::PACKETS as WINDOW;
    use switchback_http::framing::Framing;
    use switchback_http::framing::generated::{
        SB_FRAMING_BODY, SB_FRAMING_HEAD, SB_FRAMING_LOST, SB_FRAMING_SKIP, sb_framing,
    };
    use switchback_wire::handoff::OVERHEAD_V4;
    use switchback_wire::packet::TcpView;
    use switchback_wire::records::read;
    use switchback_wire::{sb_ended, sb_flow, sb_key, sb_owned};

    const KEY: sb_key = sb_key { k0: 1, k1: 2 };
    const SWITCH: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 10));
    const NODE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 21));

    fn signer() -> Signer {
        Signer { key: KEY, node: NODE.into(), clock: Default::default() }
    }

    struct Bench {
        outboxes: Outboxes,
        start: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Bench { outboxes: Outboxes::new(7), start: Instant::now() }
        }

        fn add(&mut self, facts: usize) {
            for request in 0..facts {
                self.outboxes
                    .add((SWITCH, 0), sb_fact { request: (request as u16).to_be(), ..Default::default() });
            }
        }

        /// Numbers and sizes of the packets due at this time, with the losses they report.
        fn sent(&mut self, ms: u64, ack: Option<FactsAck>) -> Vec<(Numbered, usize)> {
            let now = self.start + Duration::from_millis(ms);
            let packets = self.outboxes.packets(now, &signer(), 0, |_| ack);
            let read = |(switch, packet): (IpAddr, Vec<u8>)| {
                assert_eq!(switch, SWITCH);
                let inner = &packet[OVERHEAD_V4..];
                let view = TcpView::parse(inner).unwrap();
                let (numbered, facts) = read::<sb_fact>(&inner[view.data..view.end], &[KEY, KEY]).unwrap();
                (numbered, facts.len())
            };
            packets.into_iter().map(read).collect()
        }

        fn numbers(&mut self, ms: u64, acknowledged: u32) -> Vec<u32> {
            let sent = self.sent(ms, Some(FactsAck { facts: true, epoch: 8, number: acknowledged }));
            sent.into_iter().map(|(numbered, _)| numbered.number).collect()
        }
    }

    #[test]
    fn unacknowledged_packets_are_sent_again() {
        let mut bench = Bench::new();
        bench.add(sb_fact::MAX + 1);
        assert_eq!(bench.numbers(0, 0), [1, 2]);
        assert!(bench.numbers(199, 0).is_empty());
        assert_eq!(bench.numbers(200, 0), [1, 2], "all of it, in order");
        bench.add(1);
        assert_eq!(bench.numbers(201, 1), [3], "the rest has been acknowledged or is on its way");
        assert_eq!(bench.numbers(401, 1), [2, 3]);
        assert!(bench.numbers(402, 3).is_empty());
        assert!(bench.numbers(700, 3).is_empty(), "nothing is left");
    }

    #[test]
    fn acknowledgments_of_another_agent_are_ignored() {
        let mut bench = Bench::new();
        bench.add(1);
        let ack = FactsAck { facts: true, epoch: 6, number: 1 };
        assert_eq!(bench.sent(0, Some(ack)).len(), 1);
        assert!(bench.sent(100, Some(ack)).is_empty());
        assert_eq!(bench.sent(200, Some(ack)).len(), 1, "nobody has acknowledged it");
        assert_eq!(bench.numbers(500, 9), [1], "nor what has not been sent");
    }

    #[test]
    fn only_listening_switches_get_facts() {
        let mut bench = Bench::new();
        bench.add(1);
        assert!(bench.sent(0, None).is_empty());
        bench.add(1);
        assert!(bench.sent(0, Some(FactsAck { facts: false, epoch: 8, number: 0 })).is_empty());
        assert!(bench.outboxes.is_empty());
        bench.add(1);
        assert_eq!(bench.sent(0, Some(FactsAck { facts: true, epoch: 0, number: 0 }))[0].0.epoch, 10);
    }

    #[test]
    fn a_restarted_switch_gets_the_unacknowledged_facts() {
        let mut bench = Bench::new();
        bench.add(2 * sb_fact::MAX);
        assert_eq!(bench.numbers(0, 0), [1, 2]);
        assert!(bench.numbers(1, 1).is_empty());
        bench.add(1);
        let forgotten = Some(FactsAck { facts: true, epoch: 0, number: 0 });
        let sent = bench
            .sent(2, forgotten)
            .into_iter()
            .map(|(numbered, facts)| (numbered.epoch, numbered.number, facts));
        assert_eq!(sent.collect::<Vec<_>>(), [(9, 1, sb_fact::MAX), (9, 2, 1)]);
        assert!(bench.sent(3, forgotten).is_empty(), "it need not know of that yet");
    }

    #[test]
    fn kept_and_sent_packets_have_limits() {
        let mut bench = Bench::new();
        bench.add((KEPT + 1) * sb_fact::MAX);
        let first = bench.sent(0, Some(FactsAck { facts: true, epoch: 8, number: 0 }));
        assert_eq!(first.len(), WINDOW);
        assert_eq!(first[0], (Numbered { epoch: 8, number: 1, lost: sb_fact::MAX as u32 }, sb_fact::MAX));
        let next = bench.numbers(1, 10);
        assert_eq!((next.len(), next[0]), (10, WINDOW as u32 + 1));
        assert!(bench.outboxes.is_behind());
        (WINDOW as u32..=KEPT as u32).step_by(WINDOW).for_each(|number| drop(bench.numbers(2, number)));
        assert!(!bench.outboxes.is_behind(), "the last ones are on their way");
    }

    fn in_state(state: u16, status: u16) -> Framing {
        sb_framing { state, status, ..Default::default() }.into()
    }

    /// A connection with two requests; `framing` and `sent` give the state of the first response.
    fn closed(end: sb_end, framing: Framing, sent: u64, head_bytes: u32) -> sb_closed {
        let flow = sb_flow { client_port: 1, ..Default::default() };
        let owned = sb_owned {
            requests: 5,
            responses: 3,
            framing,
            sent,
            head_bytes,
            first_byte_us: 40,
            turn_us: 1000,
            ..Default::default()
        };
        sb_closed { flow, end: end as u8, at_us: 1500, owned, ..Default::default() }
    }

    #[test]
    fn requests_without_a_whole_response_have_an_end() {
        let body = in_state(SB_FRAMING_BODY | SB_FRAMING_SKIP, 200);
        let facts = unfinished(&closed(sb_end::SB_END_CLIENT, body, 700, 200));
        let [first, second] = facts[..] else { panic!("{facts:?}") };
        assert_eq!((first.request, second.request), (4, 5));
        assert_eq!((first.status, first.bytes, first.head_bytes), (Some(200), 700, 200));
        assert_eq!((first.end, first.first_byte), (End::ByClient, Some(Duration::from_micros(40))));
        assert_eq!(first.duration, Duration::from_micros(500));
        assert_eq!((second.status, second.bytes, second.first_byte), (None, 0, None));
        assert_eq!(second.end, End::ByClient);

        // No byte of a response has been sent.
        let facts = unfinished(&closed(sb_end::SB_END_SERVER, Framing::default(), 700, 200));
        assert!(facts.iter().all(|fact| (fact.status, fact.bytes, fact.end) == (None, 0, End::ByServer)));

        // Half a head has been sent.
        let head = in_state(SB_FRAMING_HEAD, 20);
        let facts = unfinished(&closed(sb_end::SB_END_SERVER, head, 12, 0));
        assert_eq!((facts[0].status, facts[0].bytes), (None, 12));
    }

    #[test]
    fn a_response_that_was_not_acknowledged_is_not_complete() {
        let mut closed = closed(sb_end::SB_END_SERVER, Framing::default(), 0, 0);
        let ended = sb_ended {
            bytes: 900,
            duration_us: 70,
            head_bytes: 100,
            first_byte_us: 40,
            number: 3,
            status: 200,
            ..Default::default()
        };
        closed.owned = sb_owned { requests: 3, ended, ..closed.owned };
        let [fact] = unfinished(&closed)[..] else { panic!("one request is open") };
        assert_eq!((fact.request, fact.status, fact.bytes, fact.end), (3, Some(200), 900, End::ByClient));
        assert_eq!((fact.head_bytes, fact.duration), (100, Duration::from_micros(70)));
    }

    #[test]
    fn a_response_may_be_as_long_as_its_connection() {
        let lost = |status| in_state(SB_FRAMING_LOST, status);
        let first = |end, status| unfinished(&closed(end, lost(status), 900, 100))[0];
        assert_eq!(first(sb_end::SB_END_SERVER, 200).end, End::Complete);
        assert_eq!(first(sb_end::SB_END_CLIENT, 200).end, End::ByClient);
        assert_eq!(first(sb_end::SB_END_CLIENT, 101).end, End::Complete, "a tunnel ends as it likes");
        assert_eq!(
            (first(sb_end::SB_END_SERVER, 101).status, first(sb_end::SB_END_SERVER, 101).bytes),
            (Some(101), 900)
        );
        let second = unfinished(&closed(sb_end::SB_END_SERVER, lost(200), 900, 100))[1];
        assert_eq!((second.end, second.status), (End::Unknown, None));
    }
}
