//! The status of a pod, as a kubelet reports it.

use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::container::Waiting;

/// The present time, in full seconds, as the API has it.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The state of a container.
pub(crate) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: String },
    Ended { since: String, until: String, code: i32 },
}

/// A container's part of the status.
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    image: String,
    pub(crate) state: State,
    last_end: Option<Value>,
    pub(crate) ready: bool,
    restarts: u32,
}

impl ContainerStatus {
    pub(crate) fn new(name: &str, image: &str) -> ContainerStatus {
        let state = State::Waiting { reason: "ContainerCreating", message: String::new() };
        let (name, image) = (name.to_owned(), image.to_owned());
        ContainerStatus { name, image, state, last_end: None, ready: false, restarts: 0 }
    }

    pub(crate) fn wait(&mut self, Waiting { reason, message }: Waiting) {
        self.state = State::Waiting { reason, message };
    }

    pub(crate) fn run(&mut self) {
        if let State::Ended { .. } = self.state {
            self.last_end = Some(self.state());
            self.restarts += 1;
        }
        self.state = State::Running { since: now() };
    }

    pub(crate) fn end(&mut self, code: i32) {
        let since = match &self.state {
            State::Running { since } => since.clone(),
            _ => now(),
        };
        self.state = State::Ended { since, until: now(), code };
        self.ready = false;
    }

    fn state(&self) -> Value {
        match &self.state {
            State::Waiting { reason, message } => {
                json!({ "waiting": { "reason": reason, "message": message } })
            }
            State::Running { since } => json!({ "running": { "startedAt": since } }),
            State::Ended { since, until, code } => json!({ "terminated": {
                "exitCode": code, "startedAt": since, "finishedAt": until,
                "reason": if *code == 0 { "Completed" } else { "Error" },
            }}),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.ready,
            "started": matches!(self.state, State::Running { .. }),
            "restartCount": self.restarts,
            "state": self.state(),
            "lastState": self.last_end.clone().unwrap_or(json!({})),
        })
    }
}

/// A pod's status.
pub(crate) struct PodStatus {
    pub(crate) containers: Vec<ContainerStatus>,
    /// Whether a container that ends is not started again.
    pub(crate) restarts: bool,
    /// The addresses of machine and pod, as soon as there are any.
    pub(crate) addresses: Option<[(Ipv4Addr, Ipv6Addr); 2]>,
    since: String,
    ready: (bool, String),
}

impl PodStatus {
    pub(crate) fn new(containers: Vec<ContainerStatus>, restarts: bool) -> PodStatus {
        PodStatus { containers, restarts, addresses: None, since: now(), ready: (false, now()) }
    }

    fn phase(&self) -> &'static str {
        let mut states = self.containers.iter().map(|container| &container.state);
        if states.clone().any(|state| matches!(state, State::Waiting { .. })) {
            return "Pending";
        }
        if self.restarts || states.clone().any(|state| matches!(state, State::Running { .. })) {
            return "Running";
        }
        if states.all(|state| matches!(state, State::Ended { code: 0, .. })) { "Succeeded" } else { "Failed" }
    }

    /// The patch of the pod.
    pub(crate) fn patch(&mut self) -> Value {
        let ready = self.containers.iter().all(|container| container.ready);
        if self.ready.0 != ready {
            self.ready = (ready, now());
        }
        let condition = |kind: &str, holds: bool, since: &String| {
            json!({
                "type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": since,
            })
        };
        let has_network = self.addresses.is_some();
        let mut status = json!({
            "phase": self.phase(),
            "startTime": self.since,
            "containerStatuses": self.containers.iter().map(ContainerStatus::to_json).collect::<Vec<_>>(),
            "conditions": [
                condition("PodScheduled", true, &self.since),
                condition("PodReadyToStartContainers", has_network, &self.since),
                condition("Initialized", true, &self.since),
                condition("ContainersReady", ready, &self.ready.1),
                condition("Ready", ready, &self.ready.1),
            ],
        });
        if let Some([(host4, host6), (pod4, pod6)]) = self.addresses {
            status["hostIP"] = json!(host4);
            status["hostIPs"] = json!([{ "ip": host4 }, { "ip": host6 }]);
            status["podIP"] = json!(pod4);
            status["podIPs"] = json!([{ "ip": pod4 }, { "ip": pod6 }]);
        }
        json!({ "status": status })
    }
}
