//! In place of a kubelet on each machine: a task that follows the machine's pods, and has one task for each of them.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::kubernetes::Image;
use crate::machine::Machine;
use crate::pod;

/// Time between two tries to tell the API server something.
const RETRY: Duration = Duration::from_millis(200);

/// What the pods of one machine share.
pub(crate) struct Kubelet {
    pub(crate) client: Client,
    pub(crate) machine: Arc<Machine>,
    pub(crate) images: Arc<[Image]>,
}

/// The newest state of a pod for its task, which ends early when this is dropped.
type Known = HashMap<String, watch::Sender<Pod>>;

/// Follows the machine's pods.
pub(crate) async fn run(kubelet: Arc<Kubelet>) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", kubelet.machine.name()));
    let events = watcher(Api::<Pod>::all(kubelet.client.clone()), config).default_backoff();
    pin_mut!(events);
    let mut known = Known::new();
    let mut listed = HashSet::new();
    let mut tasks = JoinSet::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            Some(_) = tasks.join_next() => continue,
        };
        match event {
            Some(Ok(Event::Apply(pod))) => tell(&kubelet, &mut known, &mut tasks, pod),
            Some(Ok(Event::Delete(pod))) => {
                known.remove(&uid(&pod));
            }
            Some(Ok(Event::Init)) => listed.clear(),
            Some(Ok(Event::InitApply(pod))) => {
                listed.insert(uid(&pod));
                tell(&kubelet, &mut known, &mut tasks, pod);
            }
            Some(Ok(Event::InitDone)) => known.retain(|uid, _| listed.contains(uid)),
            // The connection is made again.
            Some(Err(_)) => {}
            None => return,
        }
    }
}

fn tell(kubelet: &Arc<Kubelet>, known: &mut Known, tasks: &mut JoinSet<()>, pod: Pod) {
    match known.get(&uid(&pod)) {
        // A pod whose task has ended has nothing to hear.
        Some(sender) => drop(sender.send(pod)),
        None => {
            let uid = uid(&pod);
            let (sender, receiver) = watch::channel(pod);
            tasks.spawn(pod::run(Arc::clone(kubelet), receiver));
            known.insert(uid, sender);
        }
    }
}

pub(crate) fn uid(pod: &Pod) -> String {
    pod.meta().uid.clone().unwrap_or_default()
}

/// Repeats a request until the API server has answered. None if that is a refusal.
pub(crate) async fn persist<T, F: Future<Output = kube::Result<T>>>(
    mut request: impl FnMut() -> F,
) -> Option<T> {
    loop {
        match request().await {
            Ok(answer) => return Some(answer),
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                return None;
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}
