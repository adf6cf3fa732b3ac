//! Events in the log: what has changed at nodes and pools since the last look, and the first packet dropped for each
//! reason.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use log::Level;
use switchback_runtime::events::{FirstMoves, WRONG_TAG};
use switchback_status::switch::{NodeView, SwitchStatus, pools};
use switchback_wire::SwitchCounter;

/// Time after the start within which nodes that have not reported are not missed.
const START: Duration = Duration::from_secs(3);
/// Most nodes that an event of a pool names. What happened to each of them is an event of its own.
const MAX_LISTED: usize = 8;

/// An event: its level and message.
pub type Event = (Level, String);

/// What was true at the last look.
#[derive(Debug, Default)]
pub struct Watch {
    nodes: HashMap<String, Seen>,
    /// Pools that had no node in service.
    empty: BTreeSet<String>,
    /// Warnings about machines that do not agree.
    warnings: BTreeSet<String>,
    /// Warnings at the last look, of which some may not have been told.
    seen_warnings: BTreeSet<String>,
    drops: FirstMoves,
}

/// A node at the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    voice: Voice,
    draining: bool,
    drained: bool,
    /// Pools with the state of the node's server, while the node is heard.
    pools: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Voice {
    /// It has not reported.
    #[default]
    None,
    /// Nor did it within [`START`].
    Missed,
    Heard,
    Suspect,
    Dead,
}

impl Voice {
    fn of(node: &NodeView, uptime: Duration) -> Voice {
        match node.load {
            None if uptime < START => Voice::None,
            None => Voice::Missed,
            Some(_) if node.dead => Voice::Dead,
            Some(_) if node.silent => Voice::Suspect,
            Some(_) => Voice::Heard,
        }
    }
}

/// What has changed at a node.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    level: Level,
    /// What of the node: empty, or `pool web at `.
    of: String,
    what: String,
}

impl Watch {
    /// Compares the nodes with those of the last look. The same change of several nodes is one event.
    pub fn look(&mut self, nodes: &[NodeView], uptime: Duration) -> Vec<Event> {
        let mut before = std::mem::take(&mut self.nodes);
        let mut changes: Vec<(Change, Vec<&str>)> = Vec::new();
        for node in nodes {
            let before = before.remove(&node.name).unwrap_or_default();
            let seen = see(node, &before, uptime);
            let all = of_voice(before.voice, seen.voice).into_iter().chain(of_drain(&before, &seen));
            for change in all.chain(of_servers(&before, &seen)) {
                match changes.iter_mut().find(|(same, _)| *same == change) {
                    Some((_, names)) => names.push(&node.name),
                    None => changes.push((change, vec![&node.name])),
                }
            }
            self.nodes.insert(node.name.clone(), seen);
        }
        let event = |(Change { level, of, what }, names): (Change, Vec<&str>)| {
            let plural = if names.len() == 1 { "" } else { "s" };
            (level, format!("{of}node{plural} {}: {what}", names.join(", ")))
        };
        let events = changes.into_iter().map(event).collect::<Vec<_>>();
        [events, self.of_pools(nodes, uptime)].concat()
    }

    /// Pools that have lost their last node, or have one again.
    fn of_pools(&mut self, nodes: &[NodeView], uptime: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        for pool in pools(nodes) {
            let serving: Vec<&str> = pool.serving().map(|node| &node.name[..]).collect();
            if !serving.is_empty() && self.empty.remove(pool.name) {
                let what = format!("pool {} is in service again: {}", pool.name, listed(&serving));
                events.push((Level::Info, what));
            }
            if serving.is_empty() && uptime >= START && self.empty.insert(pool.name.to_owned()) {
                let why: Vec<String> =
                    pool.others().map(|(node, state)| format!("{} {state}", node.name)).collect();
                let what = format!("pool {} has no node in service: {}", pool.name, listed(&why));
                events.push((Level::Error, what));
            }
        }
        events
    }

    /// Compares the machines' configurations and versions. What differs at two looks running is told: machines that follow
    /// changes one after the other differ for a moment each time.
    pub fn compare(&mut self, status: &SwitchStatus) -> Vec<Event> {
        let seen: BTreeSet<String> = status.warnings().into_iter().collect();
        let held: BTreeSet<String> = seen.intersection(&self.seen_warnings).cloned().collect();
        self.seen_warnings = seen;
        let before = std::mem::replace(&mut self.warnings, held);
        let new = self.warnings.difference(&before).map(|warning| (Level::Warn, warning.clone()));
        let gone =
            before.difference(&self.warnings).map(|warning| (Level::Info, format!("no longer: {warning}")));
        gone.chain(new).collect()
    }

    /// Looks for the first packets dropped for a reason since the first call.
    pub fn look_at_drops(&mut self, count: impl Fn(SwitchCounter) -> u64) -> Vec<Event> {
        let drops = SwitchCounter::ALL.into_iter().filter(|counter| counter.name().starts_with("drop_"));
        let new = drops.filter(|counter| self.drops.moves(counter.name(), count(*counter)));
        new.map(of_drop).collect()
    }
}

/// The first of these, and how many others there are.
fn listed(all: &[impl AsRef<str>]) -> String {
    let first: Vec<&str> = all.iter().take(MAX_LISTED).map(AsRef::as_ref).collect();
    let others = match all.len() - first.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    first.join(", ") + &others
}

fn see(node: &NodeView, before: &Seen, uptime: Duration) -> Seen {
    let voice = Voice::of(node, uptime);
    // A node that is not heard says nothing of its servers.
    let pools = if voice == Voice::Heard && !node.draining {
        let names: BTreeSet<&String> = node.listeners.iter().map(|listener| &listener.pool).collect();
        names.into_iter().map(|pool| (pool.clone(), node.state_for(pool).to_owned())).collect()
    } else {
        before.pools.clone()
    };
    let has_none = node.load.is_some_and(|load| load.flows == 0);
    Seen { voice, draining: node.draining, drained: node.draining && (has_none || before.drained), pools }
}

fn change(level: Level, what: &str) -> Option<Change> {
    Some(Change { level, of: String::new(), what: what.to_owned() })
}

fn of_voice(before: Voice, now: Voice) -> Option<Change> {
    match (before, now) {
        (before, now) if before == now => None,
        (Voice::None, Voice::Heard) => change(Level::Info, "heard for the first time"),
        (_, Voice::Heard) => change(Level::Info, "heard again"),
        (_, Voice::Suspect) => {
            change(Level::Warn, "suspect, reports have stopped; gets requests if no other node can")
        }
        (_, Voice::Dead) => change(Level::Error, "dead, reports have stopped; its flows go to other nodes"),
        (_, Voice::Missed) => change(
            Level::Warn,
            "not heard since the start; start the agent, let UDP port 6081 pass in both directions, and compare the \
             cluster keys: switchback test",
        ),
        (_, Voice::None) => None,
    }
}

fn of_drain(before: &Seen, now: &Seen) -> Option<Change> {
    match (before.draining, now.draining) {
        (false, true) => change(Level::Info, "drains, and gets no new flows"),
        (true, false) => change(Level::Info, "drains no more"),
        (true, true) if now.drained && !before.drained => change(Level::Info, "drained, has no flows"),
        _ => None,
    }
}

/// Servers that have gone or come back. What a node says first is no change, unless a server is missing.
fn of_servers(before: &Seen, now: &Seen) -> Vec<Change> {
    let of_pool = |(pool, state): (&String, &String)| {
        let is_up = state == "up";
        let was_up = before.pools.get(pool).is_none_or(|before| before == "up");
        if before.pools.get(pool) == Some(state) || is_up && was_up {
            return None;
        }
        let level = if is_up { Level::Info } else { Level::Warn };
        Some(Change { level, of: format!("pool {pool} at "), what: state.clone() })
    };
    now.pools.iter().filter_map(of_pool).collect()
}

fn of_drop(counter: SwitchCounter) -> Event {
    let what = format!("first packet {} ({})", counter.help(), counter.name());
    match counter {
        SwitchCounter::DropTag => (Level::Warn, format!("{what}: {WRONG_TAG}")),
        SwitchCounter::DropRingFull => (Level::Warn, what),
        _ => (Level::Info, what),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use switchback_status::switch::{ListenerView, LoadStatus, SwitchView};

    use super::*;

    const LATER: Duration = Duration::from_secs(10);

    fn node(name: &str, pools: &[(&str, &str)]) -> NodeView {
        let listener = |(pool, state): &(&str, &str)| ListenerView {
            pool: (*pool).to_owned(),
            state: (*state).to_owned(),
            ..ListenerView::default()
        };
        NodeView {
            name: name.to_owned(),
            load: Some(LoadStatus { flows: 3, ..LoadStatus::default() }),
            listeners: pools.iter().map(listener).collect(),
            ..NodeView::default()
        }
    }

    fn messages(events: Vec<Event>) -> Vec<String> {
        events.into_iter().map(|(level, what)| format!("{} {what}", level.as_str().to_lowercase())).collect()
    }

    /// A change of the nodes and the events that it brings.
    type Change<'a> = (fn(&mut Vec<NodeView>), &'a [&'a str]);

    fn assert_events(mut nodes: Vec<NodeView>, changes: &[Change<'_>]) {
        let mut watch = Watch::default();
        watch.look(&nodes, Duration::ZERO);
        watch.look(&nodes, LATER);
        for (number, (change, expected)) in changes.iter().enumerate() {
            change(&mut nodes);
            assert_eq!(messages(watch.look(&nodes, LATER)), *expected, "change {number}");
            assert_eq!(watch.look(&nodes, LATER), [], "change {number} is news once");
        }
    }

    #[test]
    fn the_start_is_one_line() {
        let nodes = [node("n1", &[("web", "up")]), node("n2", &[("web", "up")])];
        let mut watch = Watch::default();
        assert_eq!(
            messages(watch.look(&nodes, Duration::ZERO)),
            ["info nodes n1, n2: heard for the first time"]
        );
        assert_eq!(watch.look(&nodes, LATER), []);
    }

    #[test]
    fn a_node_falls_silent_and_dies_and_comes_back() {
        assert_events(
            vec![node("n1", &[("web", "up")]), node("n2", &[("web", "up")])],
            &[
                (
                    |nodes| nodes[0].silent = true,
                    &["warn node n1: suspect, reports have stopped; gets requests if no other node can"],
                ),
                (
                    |nodes| nodes[0].dead = true,
                    &["error node n1: dead, reports have stopped; its flows go to other nodes"],
                ),
                (|nodes| nodes[0] = node("n1", &[("web", "up")]), &["info node n1: heard again"]),
            ],
        );
    }

    #[test]
    fn a_node_that_is_never_heard_is_missed_after_some_seconds() {
        let mut nodes = [NodeView { load: None, ..node("n1", &[("web", "not reported")]) }];
        let mut watch = Watch::default();
        assert_eq!(watch.look(&nodes, Duration::from_secs(2)), []);
        let missed = messages(watch.look(&nodes, LATER));
        assert!(missed[0].starts_with("warn node n1: not heard since the start; "), "{missed:?}");
        assert_eq!(missed[1..], ["error pool web has no node in service: n1 not reported"]);
        nodes[0] = node("n1", &[("web", "up")]);
        let heard = ["info node n1: heard again", "info pool web is in service again: n1"];
        assert_eq!(messages(watch.look(&nodes, LATER)), heard);
    }

    #[test]
    fn an_event_of_a_pool_names_some_nodes() {
        let mut nodes: Vec<NodeView> =
            (0..100).map(|number| node(&format!("n{number}"), &[("web", "up")])).collect();
        let mut watch = Watch::default();
        watch.look(&nodes, LATER);
        for state in ["unhealthy", "up"] {
            nodes.iter_mut().for_each(|node| node.listeners[0].state = state.to_owned());
            let events = messages(watch.look(&nodes, LATER));
            let of_pool = events.last().expect("the pool has changed");
            assert!(of_pool.contains("n7") && of_pool.ends_with(" and 92 more"), "{of_pool}");
        }
    }

    #[test]
    fn servers_go_and_come_back_pool_by_pool() {
        assert_events(
            vec![node("n1", &[("web", "up"), ("img", "up")]), node("n2", &[("web", "up")])],
            &[
                (
                    |nodes| nodes[0].listeners[1].state = "no listener".to_owned(),
                    &[
                        "warn pool img at node n1: no listener",
                        "error pool img has no node in service: n1 no listener",
                    ],
                ),
                (
                    |nodes| nodes[0].listeners[1].state = "up".to_owned(),
                    &["info pool img at node n1: up", "info pool img is in service again: n1"],
                ),
                (
                    |nodes| nodes[1].listeners[0].state = "unhealthy".to_owned(),
                    &["warn pool web at node n2: unhealthy"],
                ),
            ],
        );
    }

    #[test]
    fn a_drain_has_an_end() {
        assert_events(
            vec![node("n1", &[("web", "up")]), node("n2", &[("web", "up")])],
            &[
                (|nodes| nodes[0].draining = true, &["info node n1: drains, and gets no new flows"]),
                (|nodes| nodes[0].listeners[0].state = "draining".to_owned(), &[]),
                (
                    |nodes| nodes[0].load = Some(LoadStatus::default()),
                    &["info node n1: drained, has no flows"],
                ),
                (|nodes| nodes[0] = node("n1", &[("web", "up")]), &["info node n1: drains no more"]),
            ],
        );
    }

    #[test]
    fn machines_that_differ_are_told_of_once() {
        let here = SwitchView { name: "s1".to_owned(), here: true, ..SwitchView::default() };
        let mut status =
            SwitchStatus { config: "aaaaaaaa".to_owned(), switches: vec![here], ..SwitchStatus::default() };
        let mut watch = Watch::default();
        assert_eq!(watch.compare(&status), []);
        status.nodes = vec![NodeView { config: Some("bbbbbbbb".to_owned()), ..node("n1", &[]) }];
        let other = "node n1 has another configuration (bbbbbbbb, here aaaaaaaa): copy the file and reload";
        assert_eq!(watch.compare(&status), [], "it may be about to follow");
        assert_eq!(messages(watch.compare(&status)), [format!("warn {other}")]);
        assert_eq!(watch.compare(&status), []);
        status.nodes.clear();
        assert_eq!(messages(watch.compare(&status)), [format!("info no longer: {other}")]);
    }

    #[test]
    fn the_first_dropped_packet_of_each_kind_is_told_of() {
        let tags = Cell::new(7);
        let count = |counter| if counter == SwitchCounter::DropTag { tags.get() } else { 0 };
        let mut watch = Watch::default();
        assert_eq!(watch.look_at_drops(count), [], "of an earlier process");
        tags.set(9);
        let events = messages(watch.look_at_drops(count));
        let first =
            "warn first packet dropped: handoff packet with a wrong tag (drop_tag): a machine has another";
        assert!(events.len() == 1 && events[0].starts_with(first), "{events:?}");
        tags.set(10);
        assert_eq!(watch.look_at_drops(count), []);
    }
}
