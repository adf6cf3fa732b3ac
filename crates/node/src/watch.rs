//! Events in the log: what has changed at this node's servers and switches since the last look, and the first packet
//! dropped for each reason.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use log::Level;
use switchback_runtime::Result;
use switchback_runtime::events::{FirstMoves, WRONG_TAG};
use switchback_status::node::{FAILING, ListenerStatus};
use switchback_tls::{InForce, Stage, Validity};
use switchback_wire::NodeCounter;

/// Interval of reading the counters, and of looking at the certificates.
const COUNTED_EVERY: Duration = Duration::from_secs(1);
/// Interval of looking at the revocation lists, which begins when the configuration is read.
const REVOCATIONS_EVERY: Duration = Duration::from_secs(24 * 3600);

/// An event: its level and message.
pub(crate) type Event = (Level, String);

/// What was true at the last look.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// States of the listeners, by node, pool and VIP.
    servers: HashMap<(String, String, Option<SocketAddr>), String>,
    switches: BTreeSet<IpAddr>,
    /// Names of the nodes that have drained.
    drained: BTreeSet<String>,
    drops: FirstMoves,
    /// When the counters were read last.
    counted: Option<Instant>,
    /// How near the ends of certificates were, by service and name.
    certificates: HashMap<(Arc<str>, String), (Validity, Stage)>,
    /// When the revocation lists were looked at last.
    revocations: Option<Instant>,
}

impl Watch {
    /// Servers that have gone or come back, each with the last error of its health check.
    pub(crate) fn servers(
        &mut self,
        listeners: impl IntoIterator<Item = (ListenerStatus, Option<String>)>,
    ) -> Vec<Event> {
        let event = |(listener, error): (ListenerStatus, Option<String>)| {
            let at = (listener.node.clone(), listener.pool.clone(), listener.address);
            let before = self.servers.insert(at, listener.state.to_string());
            let is_ready = listener.is_ready();
            if before.as_ref().map_or(is_ready, |before| *before == listener.state) {
                return None;
            }
            let ListenerStatus { node, pool, state, .. } = listener;
            let address = listener.address.map_or(String::new(), |address| format!(" at {address}"));
            let why = error.map_or(String::new(), |error| format!(": {error}"));
            Some(match is_ready {
                true => (Level::Info, format!("node {node}: the server of pool {pool}{address} is back")),
                // The switches decide what follows.
                false if state == FAILING => {
                    (Level::Warn, format!("node {node}: the server of pool {pool}{address} {state}{why}"))
                }
                false => (
                    Level::Warn,
                    format!("node {node}: pool {pool}{address} gets no requests here: {state}{why}"),
                ),
            })
        };
        listeners.into_iter().filter_map(event).collect()
    }

    /// Switches that are heard for the first time, or no longer.
    pub(crate) fn switches(&mut self, heard: impl Iterator<Item = IpAddr>) -> Vec<Event> {
        let before = std::mem::replace(&mut self.switches, heard.collect());
        let new = self
            .switches
            .difference(&before)
            .map(|switch| (Level::Info, format!("switch {switch} is heard")));
        let gone = before.difference(&self.switches);
        let gone = gone.map(|switch| (Level::Warn, format!("switch {switch} is not heard any more")));
        gone.chain(new).collect()
    }

    /// The end of a node's drain.
    pub(crate) fn drain(&mut self, node: &str, is_draining: bool, flows: u32) -> Option<Event> {
        if !is_draining {
            self.drained.remove(node);
            return None;
        }
        let has_ended = flows == 0 && self.drained.insert(node.to_owned());
        has_ended.then(|| (Level::Info, format!("drained: node {node} has no flows")))
    }

    /// Certificates whose ends have come nearer, by a [`Stage`]. How near the end of a new one is has been said when its file
    /// was read.
    pub(crate) fn certificates(&mut self, now: SystemTime, all: Vec<(Arc<str>, InForce)>) -> Vec<Event> {
        let mut before = std::mem::take(&mut self.certificates);
        let mut events = Vec::new();
        for (service, InForce { name, validity }) in all {
            let (key, stage) = ((service, name), validity.stage(now));
            let known = before.remove(&key).filter(|(known, _)| *known == validity);
            if known.is_some_and(|(_, before)| before < stage)
                && let Some(what) = validity.warning(now)
            {
                let level = if stage < Stage::Day { Level::Warn } else { Level::Error };
                events.push((level, format!("service {}: the certificate {} {what}", key.0, key.1)));
            }
            self.certificates.insert(key, (validity, stage));
        }
        events
    }

    /// What `look` says of the revocation lists, once a day.
    pub(crate) fn revocations(&mut self, now: Instant, look: impl FnOnce() -> Vec<String>) -> Vec<Event> {
        let before = *self.revocations.get_or_insert(now);
        if now < before + REVOCATIONS_EVERY {
            return Vec::new();
        }
        self.revocations = Some(now);
        look().into_iter().map(|what| (Level::Warn, what)).collect()
    }

    /// Whether it is time to look at counters and certificates.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.counted.is_none_or(|counted| now >= counted + COUNTED_EVERY);
        if is_due {
            self.counted = Some(now);
        }
        is_due
    }

    /// The first packets dropped, and adoptions refused by the kernel, since the first call.
    pub(crate) fn drops(&mut self, count: impl Fn(NodeCounter) -> Result<u64>) -> Result<Vec<Event>> {
        let matters = |counter: &NodeCounter| {
            counter.name().starts_with("drop_") || *counter == NodeCounter::RefusedFailed
        };
        let first = |counter: NodeCounter| {
            let now = count(counter)?;
            Ok(self.drops.moves(counter.name(), now).then(|| of_drop(counter)))
        };
        NodeCounter::ALL.into_iter().filter(matters).map(first).filter_map(Result::transpose).collect()
    }
}

fn of_drop(counter: NodeCounter) -> Event {
    let what = format!("for the first time: {} ({})", counter.help(), counter.name());
    match counter {
        NodeCounter::DropTag => (Level::Warn, format!("{what}: {WRONG_TAG}")),
        NodeCounter::RefusedFailed => (Level::Warn, what),
        _ => (Level::Info, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(state: &'static str) -> ListenerStatus {
        let address = Some(([192, 0, 2, 100], 80).into());
        let (node, pool) = ("n1".to_owned(), "web".to_owned());
        ListenerStatus { node, pool, address, state: state.into(), ..ListenerStatus::default() }
    }

    #[test]
    fn servers_that_were_there_are_no_news() {
        let mut watch = Watch::default();
        let mut look = |state| watch.servers([(listener(state), Some("why".to_owned()))]);
        assert_eq!(look("ready"), []);
        let gone = "node n1: pool web at 192.0.2.100:80 gets no requests here: nobody listens: why";
        assert_eq!(look("nobody listens"), [(Level::Warn, gone.to_owned())]);
        assert_eq!(look("nobody listens"), []);
        let back = "node n1: the server of pool web at 192.0.2.100:80 is back";
        assert_eq!(look("ready"), [(Level::Info, back.to_owned())]);
    }

    #[test]
    fn a_server_that_was_never_there_is_news() {
        let events = Watch::default().servers([(listener("nobody listens"), None)]);
        let missing = "node n1: pool web at 192.0.2.100:80 gets no requests here: nobody listens";
        assert_eq!(events, [(Level::Warn, missing.to_owned())]);
    }

    #[test]
    fn switches_come_and_go() {
        let mut watch = Watch::default();
        let [one, two]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        assert_eq!(
            watch.switches([one].into_iter()),
            [(Level::Info, "switch 192.0.2.1 is heard".to_owned())]
        );
        assert_eq!(watch.switches([one].into_iter()), []);
        let both = ["switch 192.0.2.1 is not heard any more", "switch 192.0.2.2 is heard"];
        let events = watch.switches([two].into_iter());
        assert_eq!(events.iter().map(|(_, what)| &what[..]).collect::<Vec<_>>(), both);
    }

    #[test]
    fn revocation_lists_are_looked_at_once_a_day() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        let hours = (0..72).filter(|hour| {
            let now = start + Duration::from_secs(hour * 3600);
            let events = watch.revocations(now, || vec!["it is old".to_owned()]);
            assert!(events.iter().all(|event| *event == (Level::Warn, "it is old".to_owned())));
            !events.is_empty()
        });
        assert_eq!(hours.collect::<Vec<_>>(), [24, 48]);
    }

    #[test]
    fn the_end_of_a_certificate_is_told_of_four_times() {
        let day = Duration::from_secs(24 * 3600);
        let begin = SystemTime::UNIX_EPOCH + day * 20_000;
        let validity = Validity { begin, end: begin + day * 100 };
        let one = |validity| vec![("shop".into(), InForce { name: "a.example".to_owned(), validity })];
        let mut watch = Watch::default();
        // In the middle of the day, because a certificate ends with its last moment.
        let mut told =
            (0..110).map(|passed| watch.certificates(begin + day * passed + day / 2, one(validity)));
        let told: Vec<_> = (0..110)
            .zip(told.by_ref())
            .flat_map(|(passed, events)| events.into_iter().map(move |e| (passed, e)))
            .collect();
        let said = |what: &str| format!("service shop: the certificate a.example {what}");
        assert_eq!(
            told,
            [
                // Of 100 days the last quarter is 25.
                (75, (Level::Warn, said("ends on 2025-01-12, in 24 days"))),
                (93, (Level::Warn, said("ends on 2025-01-12, in 6 days"))),
                (99, (Level::Error, said("ends on 2025-01-12, in 0 days"))),
                (100, (Level::Error, said("ended on 2025-01-12, clients refuse it"))),
            ]
        );
        // What is near its end when it is read has been told of then.
        let next = Validity { begin, end: begin + day * 111 };
        assert_eq!(watch.certificates(begin + day * 105, one(next)), []);
        assert_eq!(watch.certificates(begin + day * 106, Vec::new()), []);
        assert_eq!(watch.certificates(begin + day * 112, one(next)), []);
    }

    #[test]
    fn a_drain_ends_once() {
        let mut watch = Watch::default();
        let ends = [(false, 0), (true, 3), (true, 0), (true, 0), (false, 0), (true, 0)];
        let ends = ends.map(|(is_draining, flows)| watch.drain("n1", is_draining, flows).is_some());
        assert_eq!(ends, [false, false, true, false, false, true]);
    }

    #[test]
    fn the_first_dropped_packet_of_each_kind_is_told_of() {
        let mut watch = Watch::default();
        let mut look = |tags| {
            let moves = [NodeCounter::DropTag, NodeCounter::Adopted];
            watch.drops(|counter| Ok(if moves.contains(&counter) { tags } else { 0 })).unwrap()
        };
        assert_eq!(look(7), [], "of an earlier agent");
        let events = look(8);
        assert!(events.len() == 1 && events[0].1.contains("handoff packet with a wrong tag"), "{events:?}");
        assert_eq!(look(9), []);
    }
}
