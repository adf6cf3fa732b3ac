//! Connections that the switch has answered itself, until their clients have seen the answer.
//!
//! A client can provoke any number of redirects and errors, so an answer costs only what it takes to retransmit its
//! unacknowledged data, and is charged to no budget of held requests. The table has a bound of its own: when it is
//! full, the oldest answers are dropped, their clients' packets meet no flow, and a request whose answer was lost is
//! retransmitted and answered again.
//!
//! There is no TIME-WAIT either (RFC 9293 section 3.6.1). If the last acknowledgment is lost, the client retransmits
//! its FIN, which meets no flow and is reset, after all data has arrived.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use switchback_wire::packet::{TcpView, flags};
use switchback_wire::{Seq, sb_flow};

use super::{Change, Dispatcher, Moment};
use switchback_flow::answer::Answer;
use switchback_flow::entry::{Entry, Mode};

/// Memory of all answers, in bytes: some 25,000 unacknowledged redirects.
const MOST: usize = 16 << 20;

/// The connection of an answer.
#[derive(Debug)]
struct Answered {
    answer: Answer,
    origin: Seq,
    /// Number of the answer, counted from the first one.
    number: u64,
}

impl Answered {
    /// Bytes for its place in the tables: twice its size in a table that has just grown, two orders, and its text.
    fn cost(&self) -> usize {
        2 * size_of::<(sb_flow, Answered)>() + 2 * size_of::<(Timer, sb_flow)>() + self.answer.held()
    }

    fn timer(&self) -> Timer {
        (self.answer.due(), self.number)
    }
}

/// A deadline, with a number that keeps equal deadlines apart.
type Timer = (Duration, u64);

/// All unacknowledged answers.
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

    /// The flow's entry, with the fields that matter here.
    pub fn entry(&self, flow: &sb_flow) -> Option<Entry> {
        self.flows.get(flow).map(|answered| entry(answered.origin))
    }

    fn add(&mut self, flow: sb_flow, answer: Answer, origin: Seq) {
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

    /// Takes out the oldest answer if the bound is exceeded.
    fn take_excess(&mut self) -> Option<(sb_flow, Answered)> {
        let flow = *self.ages.first_key_value().filter(|_| self.cost > MOST)?.1;
        Some((flow, self.take(&flow)?))
    }
}

fn entry(origin: Seq) -> Entry {
    Entry { origin, mode: Mode::Answered, ..Entry::default() }
}

impl Dispatcher {
    /// Sends an answer; from here on the flow consists of it alone.
    pub(super) fn send_answer(&mut self, flow: &sb_flow, entry: &Entry, answer: Answer) {
        self.set_entry(flow, &Entry { mode: Mode::Answered, ..*entry });
        self.say(flow, &answer.unacknowledged(flow));
        self.answered.add(*flow, answer, entry.origin);
        while let Some((flow, answered)) = self.answered.take_excess() {
            self.stats.answers_forgotten += 1;
            self.forget(&flow, answered.origin);
        }
    }

    /// Handles a packet of an answered connection; false if the connection has no answer.
    pub(super) fn on_answered(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        recorded: &Entry,
        packet: &[u8],
        view: &TcpView,
    ) -> bool {
        let reset = view.flags & flags::RST != 0;
        let origin = recorded.origin;
        // The client may have opened another connection with the same ports.
        let answered = self.answered.take(flow).filter(|answered| answered.origin == origin);
        let Some(mut answered) = answered else {
            // Answered by this process or by an earlier one, whose table is lost.
            let is_answered = recorded.is_answered();
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

    /// Retransmits answers whose acknowledgment is overdue.
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

    /// Ends the connection, so that late records of it do not affect another one.
    fn finish(&mut self, flow: &sb_flow, origin: Seq) {
        self.output.change(flow, Change::Remove { origin });
        self.recent.insert(*flow, entry(origin));
    }

    fn say(&mut self, flow: &sb_flow, packets: &[Vec<u8>]) {
        for packet in packets {
            self.output.to_client(flow, packet);
        }
    }
}
