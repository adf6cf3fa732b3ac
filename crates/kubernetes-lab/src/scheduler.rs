//! In place of the scheduler: pods go to machines in turn, those of a DaemonSet to their own.

use std::sync::Arc;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::kubelet::persist;
use crate::machine::Machine;

/// Gives each pod without a machine the next one that it may have.
pub(crate) async fn run(client: Client, machines: Vec<Arc<Machine>>) {
    let config = watcher::Config::default().fields("spec.nodeName=");
    let events = watcher(Api::<Pod>::all(client.clone()), config).default_backoff();
    pin_mut!(events);
    let nodes: Api<Node> = Api::all(client.clone());
    let parameters = ListParams::default();
    let mut next = 0;
    while let Some(event) = events.next().await {
        // An error is one of the connection, which is made again.
        let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event else { continue };
        if pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let Some(nodes) = persist(|| nodes.list(&parameters)).await else { continue };
        let allowed: Vec<&Machine> = machines
            .iter()
            .map(Arc::as_ref)
            .filter(|machine| {
                let node = nodes.items.iter().find(|node| node.name_any() == machine.name());
                node.is_some_and(|node| allows(&pod, node))
            })
            .collect();
        if allowed.is_empty() {
            continue;
        }
        bind(&client, &pod, allowed[next % allowed.len()].name()).await;
        next += 1;
    }
}

fn allows(pod: &Pod, node: &Node) -> bool {
    let spec = pod.spec.as_ref();
    let mut wanted = spec.and_then(|spec| spec.node_selector.as_ref()).into_iter().flatten();
    wanted.all(|(label, value)| node.labels().get(label) == Some(value))
        && own_machine(pod).is_none_or(|name| node.name_any() == name)
}

/// The machine that a DaemonSet has made a pod for: the only field of machines that an affinity can name.
fn own_machine(pod: &Pod) -> Option<&str> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let field = terms.first()?.match_fields.as_ref()?.first()?;
    field.values.as_ref()?.first().map(String::as_str)
}

async fn bind(client: &Client, pod: &Pod, machine: &str) {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": name, "namespace": namespace },
        "target": { "apiVersion": "v1", "kind": "Node", "name": machine },
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let parameters = PostParams::default();
    // None if the pod has gone, or has a machine already.
    let _: Option<serde_json::Value> =
        persist(|| pods.create_subresource("binding", &name, &parameters, &binding)).await;
}
