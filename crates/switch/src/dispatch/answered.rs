//! Connections that the switch has answered itself, until their clients have seen the answer.
//!
//! Whoever asks for redirects, or for nonsense, gets as many answers as they want, so an answer costs what it takes to send
//! again what has not been acknowledged, and nobody's budget of held requests. The table has a bound of its own, in which the
//! oldest give way: their clients' packets meet no flow, and a request whose answer was lost comes again and is answered again.
//!
//! Nor is there a TIME-WAIT (RFC 9293 section 3.6.1). If the last acknowledgment is lost, the client's FIN comes again, meets no
//! flow, and is reset, when everything has been said.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use switchback_wire::packet::{TcpView, flags};
use switchback_wire::{sb_flow, sb_flow_entry, sb_mode};

use super::{Change, Dispatcher, Moment};
use switchback_flow::answer::Answer;

/// Memory that all may take, in bytes: some 25,000 redirects that nobody has acknowledged.
const MOST: usize = 16 << 20;

/// The connection of an answer.
#[derive(Debug)]
struct Answered {
    answer: Answer,
    origin: u32,
    /// Counted from the first one.
    number: u64,
}

impl Answered {
    /// Twice its size in a table that has just grown, its places in two orders, and its text.
    fn cost(&self) -> usize {
        2 * size_of::<(sb_flow, Answered)>() + 2 * size_of::<(Timer, sb_flow)>() + self.answer.held()
    }

    fn timer(&self) -> Timer {
        (self.answer.due(), self.number)
    }
}

/// The number keeps equal deadlines apart.
type Timer = (Duration, u64);

/// All answers under way.
#[derive(Debug, Default)]
pub(super) struct AnsweredFlows {
    flows: HashMap<sb_flow, Answered>,
    timers: BTreeMap<Timer, sb_flow>,
    ages: BTreeMap<u64, sb_flow>,
    last: u64,
    cost: usize,
}

impl AnsweredFlows {
    /// The next deadline.
    pub fn deadline(&self) -> Option<Duration> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    /// What the flow map has of a flow, as far as it matters.
    pub fn entry(&self, flow: &sb_flow) -> Option<sb_flow_entry> {
        self.flows.get(flow).map(|answered| entry(answered.origin))
    }

    fn add(&mut self, flow: sb_flow, answer: Answer, origin: u32) {
        self.last += 1;
        self.put(flow, Answered { answer, origin, number: self.last });
    }

    fn put(&mut self, flow: sb_flow, answered: Answered) {
        self.cost += answered.cost();
        self.timers.insert(answered.timer(), flow);
        self.ages.insert(answered.number, flow);
        self.flows.insert(flow, answered);
    }

    fn take(&mut self, flow: &sb_flow) -> Option<Answered> {
        let answered = self.flows.remove(flow)?;
        self.cost -= answered.cost();
        self.timers.remove(&answered.timer());
        self.ages.remove(&answered.number);
        Some(answered)
    }

    fn take_due(&mut self, now: Duration) -> Option<(sb_flow, Answered)> {
        let ((due, _), flow) = self.timers.first_key_value()?;
        let flow = *flow;
        (*due <= now).then(|| self.take(&flow).map(|answered| (flow, answered)))?
    }

    /// The oldest one, if there are too many.
    fn take_excess(&mut self) -> Option<(sb_flow, Answered)> {
        let flow = *self.ages.first_key_value().filter(|_| self.cost > MOST)?.1;
        Some((flow, self.take(&flow)?))
    }
}

/// The switch has the flow itself.
pub(super) fn is_answered(entry: &sb_flow_entry) -> bool {
    entry.mode == sb_mode::SB_MODE_ANSWERED as u8
}

fn entry(origin: u32) -> sb_flow_entry {
    sb_flow_entry { origin, mode: sb_mode::SB_MODE_ANSWERED as u8, ..Default::default() }
}

impl Dispatcher {
    /// Sends an answer, of which the flow consists from here on.
    pub(super) fn send_answer(&mut self, flow: &sb_flow, entry: &sb_flow_entry, answer: Answer) {
        self.set_entry(flow, &sb_flow_entry { mode: sb_mode::SB_MODE_ANSWERED as u8, ..*entry });
        self.say(flow, &answer.unacknowledged(flow));
        self.answered.add(*flow, answer, entry.origin);
        while let Some((flow, answered)) = self.answered.take_excess() {
            self.stats.answers_forgotten += 1;
            self.forget(&flow, answered.origin);
        }
    }

    /// Deals with a packet of a connection that has been answered; false if it has not.
    pub(super) fn on_answered(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        recorded: &sb_flow_entry,
        packet: &[u8],
        view: &TcpView,
    ) -> bool {
        let reset = view.flags & flags::RST != 0;
        let origin = recorded.origin;
        // The client may have begun another connection with the same ports.
        let answered = self.answered.take(flow).filter(|answered| answered.origin == origin);
        let Some(mut answered) = answered else {
            // By this process or by an earlier one, which has forgotten it.
            let is_answered = is_answered(recorded);
            if is_answered && !reset && self.mapped(at, flow).is_some_and(|entry| entry.origin == origin) {
                self.reset(flow, origin, view.ack);
            }
            return is_answered;
        };
        let packets = answered.answer.on_packet(flow, packet, view);
        self.say(flow, &packets);
        if reset || answered.answer.is_over() {
            self.finish(flow, origin);
        } else {
            self.answered.put(*flow, answered);
        }
        true
    }

    /// Sends again what has not been acknowledged in time.
    pub(super) fn send_answers_again(&mut self, now: Duration) {
        while let Some((flow, mut answered)) = self.answered.take_due(now) {
            match answered.answer.on_time(&flow, now) {
                Some(packets) => {
                    self.say(&flow, &packets);
                    self.answered.put(flow, answered);
                }
                None => self.finish(&flow, answered.origin),
            }
        }
    }

    /// The connection is over; late records of it say nothing about another one.
    fn finish(&mut self, flow: &sb_flow, origin: u32) {
        self.output.change(flow, Change::Remove { origin });
        self.recent.insert(*flow, entry(origin));
    }

    fn say(&mut self, flow: &sb_flow, packets: &[Vec<u8>]) {
        for packet in packets {
            self.output.to_client(flow, packet);
        }
    }
}
