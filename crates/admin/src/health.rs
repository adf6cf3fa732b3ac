//! Whether a daemon is alive, and whether it can serve.

use std::collections::BTreeMap;

use switchback_status::Status;
use switchback_status::node::{ListenerStatus, NodeStatus};
use switchback_status::switch::{NodeView, SwitchStatus};

use crate::asker::Answers;

/// Errors of the daemons that do not answer, a line each.
pub(crate) fn dead(answers: &Answers) -> Vec<String> {
    answers.iter().filter_map(|answer| answer.as_ref().err().cloned()).collect()
}

/// Reasons why the daemons cannot serve, a line each.
pub(crate) fn unready(answers: &Answers) -> Vec<String> {
    let reasons = |answer: &Result<Status, String>| match answer {
        Ok(Status::Switch(status)) => of_switch(status),
        Ok(Status::Node(status)) => of_node(status),
        Ok(Status::Client(_)) => Vec::new(),
        Err(error) => vec![error.clone()],
    };
    answers.iter().flat_map(reasons).collect()
}

/// A switch needs a node for each pool, at any of the VIPs that lead to the pool.
fn of_switch(status: &SwitchStatus) -> Vec<String> {
    let mut pools: BTreeMap<&str, Vec<&NodeView>> = BTreeMap::new();
    for node in &status.nodes {
        for listener in &node.listeners {
            let nodes = pools.entry(&listener.pool).or_default();
            if nodes.last().is_none_or(|last| last.name != node.name) {
                nodes.push(node);
            }
        }
    }
    let serves = |node: &NodeView, pool: &str| {
        let mut there = node.listeners.iter().filter(|listener| listener.pool == pool);
        // What has never been heard of may be anything.
        node.load.is_some() && there.any(|listener| node.may_serve(listener))
    };
    let mut reasons = Vec::new();
    if status.interfaces.is_empty() {
        reasons.push("switch: attached to no interface".to_owned());
    }
    for (pool, nodes) in pools {
        if !nodes.iter().any(|node| serves(node, pool)) {
            let state = |node: &&NodeView| match node.load {
                None => format!("{} has not reported", node.name),
                Some(_) => format!("{} {}", node.name, node.state()),
            };
            let states: Vec<String> = nodes.iter().map(state).collect();
            reasons.push(format!("switch: pool {pool} has no node that is up: {}", states.join(", ")));
        }
    }
    reasons
}

/// A node needs all of its listeners.
fn of_node(status: &NodeStatus) -> Vec<String> {
    if status.draining {
        return vec![format!("node {}: draining", status.name)];
    }
    let ill = status.listeners.iter().filter(|listener| !listener.is_ready());
    let reason = |listener: &ListenerStatus| {
        let at = listener.address.map_or(String::new(), |address| format!(" at {address}"));
        format!("node {}: pool {}{at}: {}", status.name, listener.pool, listener.state)
    };
    ill.map(reason).collect()
}

#[cfg(test)]
mod tests {
    use switchback_status::switch::{InterfaceStatus, ListenerView, LoadStatus};

    use super::*;

    fn node(name: &str, pools: &[(&str, &str)]) -> NodeView {
        let listener = |(pool, state): &(&str, &str)| ListenerView {
            pool: (*pool).to_owned(),
            state: (*state).to_owned(),
            ..ListenerView::default()
        };
        NodeView {
            name: name.to_owned(),
            load: Some(LoadStatus::default()),
            listeners: pools.iter().map(listener).collect(),
            ..NodeView::default()
        }
    }

    #[test]
    fn a_switch_is_ready_with_a_node_for_each_pool() {
        let mut status = SwitchStatus {
            interfaces: vec![InterfaceStatus::default()],
            nodes: vec![
                node("n1", &[("web", "no listener"), ("img", "up")]),
                node("n2", &[("web", "up"), ("web", "no listener")]),
            ],
            ..SwitchStatus::default()
        };
        let reasons = |status: &SwitchStatus| unready(&vec![Ok(Status::Switch(Box::new(status.clone())))]);
        assert_eq!(reasons(&status), [""; 0]);
        status.nodes[1].silent = true;
        assert_eq!(reasons(&status), ["switch: pool web has no node that is up: n1 no listener, n2 silent"]);
        status.nodes[1] = NodeView { load: None, silent: false, ..status.nodes[1].clone() };
        status.nodes[0].draining = true;
        assert_eq!(
            reasons(&status),
            [
                "switch: pool img has no node that is up: n1 draining",
                "switch: pool web has no node that is up: n1 draining, n2 has not reported",
            ]
        );
        status.interfaces.clear();
        assert_eq!(reasons(&status)[0], "switch: attached to no interface");
    }

    #[test]
    fn a_node_is_ready_with_all_its_listeners() {
        let listener = |state: &'static str| ListenerStatus {
            pool: "web".to_owned(),
            address: Some(([192, 0, 2, 100], 80).into()),
            state: state.into(),
            ..ListenerStatus::default()
        };
        let mut status =
            NodeStatus { name: "n1".to_owned(), listeners: vec![listener("ready")], ..NodeStatus::default() };
        let reasons = |status: &NodeStatus| unready(&vec![Ok(Status::Node(status.clone()))]);
        assert_eq!(reasons(&status), [""; 0]);
        status.listeners.push(listener("nobody listens"));
        assert_eq!(reasons(&status), ["node n1: pool web at 192.0.2.100:80: nobody listens"]);
        status.draining = true;
        assert_eq!(reasons(&status), ["node n1: draining"]);
    }

    #[test]
    fn who_does_not_answer_is_neither_alive_nor_ready() {
        let answers = vec![Ok(Status::Node(NodeStatus::default())), Err("no answer".to_owned())];
        assert_eq!(
            (dead(&answers), unready(&answers)),
            (vec!["no answer".to_owned()], vec!["no answer".to_owned()])
        );
    }
}
