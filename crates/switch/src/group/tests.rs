//! What the policy is told of changes, against a group that looks at all nodes before each choice.

use std::path::Path;

use proptest::prelude::*;
use switchback_config::ClusterKey;

use super::*;

const NODES: u32 = 5;

/// What happens to a group.
#[derive(Clone, Debug)]
enum Step {
    Pick { tried: Vec<u32>, waited: bool },
    Ahead(usize),
    Used(u32),
    Withdrawn,
    Sent(u32),
    Request(u32),
    Adopted(u32, u16),
    Refused(u32, bool),
    Reported(u32, u32, Option<Reason>),
    Drained(u32),
    Pass(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    prop_oneof![
        4 => (proptest::collection::vec(node(), 0..2), any::<bool>())
            .prop_map(|(tried, waited)| Step::Pick { tried, waited }),
        1 => (1..5usize).prop_map(Step::Ahead),
        1 => (1..3u32).prop_map(Step::Used),
        1 => Just(Step::Withdrawn),
        1 => node().prop_map(Step::Sent),
        1 => node().prop_map(Step::Request),
        1 => (node(), 0..4u16).prop_map(|(node, len)| Step::Adopted(node, len)),
        1 => (node(), any::<bool>()).prop_map(|(node, gone)| Step::Refused(node, gone)),
        1 => (node(), 0..9u32, proptest::option::of(reason()))
            .prop_map(|(node, busy, reason)| Step::Reported(node, busy, reason)),
        1 => node().prop_map(Step::Drained),
        1 => (1..6u32).prop_map(Step::Pass),
    ]
}

fn reason() -> impl Strategy<Value = Reason> {
    prop_oneof![Just(Reason::NoListener), Just(Reason::Failing), Just(Reason::Unacknowledged)]
}

fn group(policy: PolicyKind) -> Group {
    let names = (0..NODES).map(|node| format!("\"n{node}\""));
    let mut text = format!(
        "[cluster]\nkey_file = \"key\"\n[[pool]]\nname = \"web\"\nnodes = [{}]\npolicy = \"{policy}\"\n\
         outliers = {{ max_share = \"40%\" }}\n",
        names.collect::<Vec<_>>().join(", ")
    );
    text += "[[service]]\nname = \"s\"\nlisten = [\"192.0.2.100:80\"]\n[[service.route]]\npool = \"web\"\n";
    for node in 0..NODES {
        text += &format!("[[node]]\nname = \"n{node}\"\naddress = \"198.51.100.{}\"\n", node + 1);
    }
    let keys = |_: &Path| Ok(vec![ClusterKey::from_bytes([7; 32])]);
    let cluster = switchback_config::parse(&text, Path::new("cluster.toml"), keys).unwrap();
    Group::new(&cluster, 0, LocalMachine::default(), |index| NodeId(index as u32))
}

/// A group with what the plan knows besides.
struct Told {
    group: Group,
    /// Whether it looks at all nodes before each choice.
    looks: bool,
    drained: Vec<bool>,
    now: Duration,
    number: u16,
    drawn: u64,
}

impl Told {
    fn new(policy: PolicyKind, looks: bool) -> Self {
        let drained = vec![false; NODES as usize];
        Told { group: group(policy), looks, drained, now: Duration::ZERO, number: 0, drawn: 0 }
    }

    /// Does a step; the result is the nodes chosen.
    fn take(&mut self, step: &Step) -> Vec<NodeId> {
        let Told { group, drained, now, drawn, .. } = self;
        if self.looks {
            group.look_again();
        }
        let drained = drained.clone();
        let state =
            |id: NodeId| NodeState { drained: drained[id.index()], silent: false, dead: false, adopting: 0 };
        let mut random = || {
            *drawn = drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
            *drawn
        };
        let ask = Ask { key: Some(7), now: *now };
        match step {
            Step::Pick { tried, waited } => {
                let tried: Vec<NodeId> = tried.iter().copied().map(NodeId).collect();
                return Vec::from_iter(group.pick(&ask, None, (&tried, *waited), state, &mut random));
            }
            Step::Ahead(count) => return group.choose_ahead(*count, |_| true, state, *now, &mut random),
            Step::Used(count) => group.choices_used(*count),
            Step::Withdrawn => group.withdraw_choices(),
            Step::Sent(node) => group.adoption_sent(NodeId(*node)),
            Step::Request(node) => group.request_sent(NodeId(*node)),
            Step::Adopted(node, len) => group.adopted(NodeId(*node), (*len, 3), *now),
            Step::Refused(node, gone) => {
                let reason = if *gone { Reason::NoListener } else { Reason::QueueFull };
                group.refused(NodeId(*node), Some(reason), (4, 3), *now);
            }
            Step::Reported(node, busy, reason) => {
                self.number += 1;
                let report = Report {
                    listener: "192.0.2.100:80".parse().unwrap(),
                    pool: group.id(),
                    number: self.number,
                    reason: *reason,
                    queue: (0, 3),
                    in_flight: *busy,
                    flows: *busy,
                    first_byte: Some(Duration::from_micros((*busy).into())),
                    cpu: 0,
                    newest: 0,
                    software: Default::default(),
                };
                group.report(NodeId(*node), &report, false, *now);
            }
            Step::Drained(node) => {
                self.drained[*node as usize] ^= true;
                group.look_again();
            }
            Step::Pass(times) => self.now += NOTED_FOR * *times,
        }
        Vec::new()
    }
}

/// All of a node's listeners are heard again at once when its agent has been started again.
#[test]
fn late_reports_are_told_from_those_of_another_agent() {
    let mut told = Told::new(PolicyKind::RoundRobin, false);
    let mut report = |number: u16, reason: Option<Reason>| {
        told.number = number.wrapping_sub(1);
        told.take(&Step::Reported(0, 0, reason));
        told.group.members[0].reason
    };
    let draining = Some(Reason::Draining);
    assert_eq!(report(5000, draining), draining);
    assert_eq!(report(4999, None), draining, "it is late");
    assert_eq!(report(5000, None), draining, "it is a copy");
    assert_eq!(report(5001, None), None);
    assert_eq!(report(5002, draining), draining);
    assert_eq!(report(1, None), None, "the agent begins anew");
    assert_eq!(report(u16::MAX, draining), None, "it is late");
}

proptest! {
    #[test]
    fn some_nodes_are_ejected_and_never_too_many(reports in proptest::collection::vec(
        (0..NODES, prop_oneof![2 => Just(Some(Reason::Failing)), 1 => Just(None), 1 => reason().prop_map(Some)]),
        1..100,
    )) {
        let mut told = Told::new(PolicyKind::RoundRobin, false);
        for (node, reason) in reports {
            let before = told.group.members.clone();
            told.take(&Step::Reported(node, 0, reason));
            let (before, others): (Vec<_>, Vec<_>) =
                before.into_iter().partition(|member| member.node == NodeId(node));
            let (fails, failed) = (reason == Some(Reason::Failing), before[0].reason == Some(Reason::Failing));
            let has_room = others.iter().filter(|member| member.ejected).count() < 2;
            let expected = fails && if failed { before[0].ejected } else { has_room };
            let member = &told.group.members[node as usize];
            prop_assert_eq!(member.ejected, expected);
            prop_assert_eq!(member.ejections, before[0].ejections + u64::from(expected && !failed));
            let ejected = told.group.members.iter().filter(|member| member.ejected).count();
            prop_assert!(ejected <= 2, "40 % of five");
        }
    }

    #[test]
    fn choices_are_as_if_all_nodes_were_looked_at(steps in proptest::collection::vec(step(), 1..200)) {
        for policy in PolicyKind::ALL {
            let (mut told, mut looks) = (Told::new(policy, false), Told::new(policy, true));
            for (number, step) in steps.iter().enumerate() {
                prop_assert_eq!(told.take(step), looks.take(step), "{} at {}", policy, number);
            }
        }
    }
}
