//! Whether a daemon is alive, and whether it can serve.

use switchback_status::Status;
use switchback_status::node::{ListenerStatus, NodeStatus};
use switchback_status::switch::{SwitchStatus, pools};

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
    let mut reasons = Vec::new();
    if status.interfaces.is_empty() {
        reasons.push("switch: attached to no interface".to_owned());
    }
    for pool in pools(&status.nodes).iter().filter(|pool| pool.serving().next().is_none()) {
        let states: Vec<String> =
            pool.others().map(|(node, state)| format!("{} {state}", node.name)).collect();
        reasons.push(format!("switch: pool {} has no node that is up: {}", pool.name, states.join(", ")));
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
        format!("node {}: pool {}{at}: {}", listener.node, listener.pool, listener.state)
    };
    ill.map(reason).collect()
}

#[cfg(test)]
mod tests {
    use switchback_status::switch::{InterfaceStatus, ListenerView, LoadStatus, NodeView};

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
                "switch: pool web has no node that is up: n1 draining, n2 not reported",
            ]
        );
        status.interfaces.clear();
        assert_eq!(reasons(&status)[0], "switch: attached to no interface");
    }

    #[test]
    fn a_node_is_ready_with_all_its_listeners() {
        let listener = |state: &'static str| ListenerStatus {
            node: "n1".to_owned(),
            pool: "web".to_owned(),
            address: Some(([192, 0, 2, 100], 80).into()),
            state: state.into(),
            ..ListenerStatus::default()
        };
        let mut status =
            NodeStatus { name: "n1".to_owned(), listeners: vec![listener("ready")], ..NodeStatus::default() };
        let reasons = |status: &NodeStatus| unready(&vec![Ok(Status::Node(Box::new(status.clone())))]);
        assert_eq!(reasons(&status), [""; 0]);
        status.listeners.push(listener("nobody listens"));
        assert_eq!(reasons(&status), ["node n1: pool web at 192.0.2.100:80: nobody listens"]);
        status.draining = true;
        assert_eq!(reasons(&status), ["node n1: draining"]);
    }

    #[test]
    fn who_does_not_answer_is_neither_alive_nor_ready() {
        let answers = vec![Ok(Status::Node(Box::default())), Err("no answer".to_owned())];
        assert_eq!(
            (dead(&answers), unready(&answers)),
            (vec!["no answer".to_owned()], vec!["no answer".to_owned()])
        );
    }
}
