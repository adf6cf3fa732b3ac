//! The life of a pod on its machine.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use switchback_lab::{Process, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::container::{Program, Waiting};
use crate::kubelet::{Kubelet, persist, uid};
use crate::kubernetes::FIELD_MANAGER;
use crate::machine::Sandbox;
use crate::status::{ContainerStatus, PodStatus};

/// Time until something that a container waits for is looked for again.
const RETRY: Duration = Duration::from_millis(200);
/// Time until a container that has ended is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// What becomes of a container.
enum Change {
    Waits(Waiting),
    Runs,
    Ready(bool),
    Ended(i32),
}

/// What a task of a container needs.
struct Running {
    kubelet: Arc<Kubelet>,
    sandbox: Arc<Sandbox>,
    pod: Pod,
    container: Container,
    restarts: Restarts,
    changes: mpsc::Sender<(usize, Change)>,
    index: usize,
    /// When it has to have ended, from when on it is to end.
    end: watch::Receiver<Option<Instant>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Restarts {
    Always,
    OnFailure,
    Never,
}

/// Runs a pod until it is deleted.
pub(crate) async fn run(kubelet: Arc<Kubelet>, mut pods: watch::Receiver<Pod>) {
    let pod = pods.borrow_and_update().clone();
    let Some(spec) = pod.spec.clone() else { return };
    let restarts = match spec.restart_policy.as_deref() {
        Some("Never") => Restarts::Never,
        Some("OnFailure") => Restarts::OnFailure,
        _ => Restarts::Always,
    };
    let statuses = spec.containers.iter().map(|container| {
        ContainerStatus::new(&container.name, container.image.as_deref().unwrap_or_default())
    });
    let mut status = PodStatus::new(statuses.collect(), restarts == Restarts::Always);
    let mut sandbox = None;
    if pod.metadata.deletion_timestamp.is_none() {
        sandbox = make_sandbox(&kubelet, &pod, spec.host_network == Some(true), &mut status).await;
    }
    let (end, ends) = watch::channel(None);
    let (changes, mut changed) = mpsc::channel(16);
    let mut containers = JoinSet::new();
    if let Some(sandbox) = &sandbox {
        for (index, container) in spec.containers.iter().enumerate() {
            let running = Running {
                kubelet: Arc::clone(&kubelet),
                sandbox: Arc::clone(sandbox),
                pod: pod.clone(),
                container: container.clone(),
                restarts,
                changes: changes.clone(),
                index,
                end: ends.clone(),
            };
            containers.spawn(running.run());
        }
    }
    drop((changes, ends));
    // None if the object has gone already.
    let mut grace = Some(deletion_grace(&pod));
    while grace == Some(None) {
        tokio::select! {
            Some((index, change)) = changed.recv() => {
                apply(&mut status.containers[index], change);
                report(&kubelet, &pod, &mut status).await;
            }
            result = pods.changed() => grace = match result {
                Ok(()) => Some(deletion_grace(&pods.borrow_and_update())),
                Err(_) => None,
            },
        }
    }
    let patience = grace.flatten().unwrap_or_default();
    end.send_replace(Some(Instant::now() + patience));
    while let Some((index, change)) = changed.recv().await {
        apply(&mut status.containers[index], change);
    }
    while containers.join_next().await.is_some() {}
    // What is gone for the API is gone from the machine.
    let _ = tokio::task::spawn_blocking(move || drop(sandbox)).await;
    if grace.is_some() {
        let pods = api(&kubelet, &pod);
        let (name, uid) = (pod.name_any(), pod.uid());
        let parameters = DeleteParams::default()
            .grace_period(0)
            .preconditions(Preconditions { uid, resource_version: None });
        persist(|| pods.delete(&name, &parameters)).await;
    }
}

/// How long a pod that is deleted has for its end.
fn deletion_grace(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    Some(Duration::from_secs(seconds.try_into().unwrap_or_default()))
}

fn apply(status: &mut ContainerStatus, change: Change) {
    match change {
        Change::Waits(waiting) => status.wait(waiting),
        Change::Runs => status.run(),
        Change::Ready(ready) => status.ready = ready,
        Change::Ended(code) => status.end(code),
    }
}

/// None, with the reason in the status, if there is none to be had.
async fn make_sandbox(
    kubelet: &Arc<Kubelet>,
    pod: &Pod,
    in_host: bool,
    status: &mut PodStatus,
) -> Option<Arc<Sandbox>> {
    let machine = Arc::clone(&kubelet.machine);
    let directory = uid(pod);
    let made = tokio::task::spawn_blocking(move || Sandbox::new(&machine, in_host, &directory)).await;
    let made = match made.ok()? {
        Ok(sandbox) => {
            let host = &kubelet.machine.host;
            status.addresses = Some([(host.ipv4(), host.ipv6()), sandbox.addresses()]);
            Some(Arc::new(sandbox))
        }
        Err(error) => {
            for container in &mut status.containers {
                container.wait(Waiting { reason: "CreateSandboxError", message: error.to_string() });
            }
            None
        }
    };
    report(kubelet, pod, status).await;
    made
}

async fn report(kubelet: &Kubelet, pod: &Pod, status: &mut PodStatus) {
    let (pods, name, patch) = (api(kubelet, pod), pod.name_any(), Patch::Merge(status.patch()));
    let parameters = PatchParams::apply(FIELD_MANAGER);
    persist(|| pods.patch_status(&name, &parameters, &patch)).await;
}

fn api(kubelet: &Kubelet, pod: &Pod) -> Api<Pod> {
    Api::namespaced(kubelet.client.clone(), &pod.namespace().unwrap_or_default())
}

/// Waits until a container is to end; returns when it has to have ended.
async fn ordered_end(end: &mut watch::Receiver<Option<Instant>>) -> Instant {
    let ordered = end.wait_for(Option::is_some).await;
    // The sender lives as long as the pod's task.
    ordered.ok().and_then(|deadline| *deadline).unwrap_or_else(Instant::now)
}

impl Running {
    /// Runs the container again and again until it is to end.
    async fn run(mut self) {
        let Some(program) = self.prepare().await else { return };
        loop {
            let name = format!("{}-{}", self.pod.name_any(), self.container.name);
            let command = program.command(&self.sandbox.directory);
            let sandbox = Arc::clone(&self.sandbox);
            let spawned = tokio::task::spawn_blocking(move || {
                let process = sandbox.spawn(&name, command)?;
                let pidfd = process.as_fd().try_clone_to_owned();
                Ok::<_, switchback_lab::Error>((process, pidfd))
            });
            let (process, pidfd) = match spawned.await {
                Ok(Ok((process, Ok(pidfd)))) => (process, pidfd),
                Ok(Ok((_, Err(error)))) => return self.wait("RunContainerError", error.to_string()).await,
                Ok(Err(error)) => return self.wait("RunContainerError", error.to_string()).await,
                Err(_) => return,
            };
            self.tell(Change::Runs).await;
            let code = self.attend(&program, &process, pidfd).await;
            self.tell(Change::Ended(code)).await;
            let again = match self.restarts {
                Restarts::Always => true,
                Restarts::OnFailure => code != 0,
                Restarts::Never => false,
            };
            if !again {
                return;
            }
            tokio::select! {
                () = sleep(RESTART_PAUSE) => {}
                _ = ordered_end(&mut self.end) => return,
            }
        }
    }

    /// None if the container is to end before it has what it needs.
    async fn prepare(&mut self) -> Option<Program> {
        let mut last = String::new();
        loop {
            let Kubelet { client, images, .. } = &*self.kubelet;
            let prepared = Program::prepare(client, images, &self.sandbox, &self.pod, &self.container).await;
            let waiting = match prepared {
                Ok(program) => return Some(program),
                Err(waiting) => waiting,
            };
            if waiting.message != last {
                last.clone_from(&waiting.message);
                self.tell(Change::Waits(waiting)).await;
            }
            tokio::select! {
                () = sleep(RETRY) => {}
                _ = ordered_end(&mut self.end) => return None,
            }
        }
    }

    /// Watches over a process until it has ended; returns its exit code.
    async fn attend(&mut self, program: &Program, process: &Process, pidfd: OwnedFd) -> i32 {
        let probe = &program.probe;
        let (ipv4, _) = self.sandbox.addresses();
        let (mut ready, mut failures, mut probes) = (false, 0, true);
        let mut next = Instant::now() + probe.initial_delay;
        // SAFETY: the descriptor is owned by what it is given to, and closed by nobody else.
        let ended = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        let Ok(ended) = ended else { return -1 };
        loop {
            tokio::select! {
                _ = ended.readable() => break,
                deadline = ordered_end(&mut self.end) => {
                    self.stop(process, &ended, deadline).await;
                    break;
                }
                () = sleep_until(next), if probes => {
                    let holds = probe.holds(&self.sandbox.machine().host, ipv4.into()).await;
                    failures = if holds { 0 } else { failures + 1 };
                    if holds != ready && (holds || failures >= probe.failures) {
                        ready = holds;
                        self.tell(Change::Ready(ready)).await;
                    }
                    probes = probe.repeated || !ready;
                    next = Instant::now() + probe.period(ready);
                }
            }
        }
        let status = process.wait_timeout(Duration::ZERO).ok().flatten();
        status.map_or(-1, |status| status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1))
    }

    /// Ends a process as a kubelet does: hook, SIGTERM, SIGKILL.
    async fn stop(&self, process: &Process, ended: &AsyncFd<OwnedFd>, deadline: Instant) {
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        if let Some(pause) = hook.and_then(|hook| hook.sleep.as_ref()) {
            let until = Instant::now() + Duration::from_secs(pause.seconds.try_into().unwrap_or_default());
            if timeout_at(until.min(deadline), ended.readable()).await.is_ok() {
                return;
            }
        }
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            // A failure means that it has ended.
            let _ = process.signal(signal);
            if signal == Signal::SIGKILL {
                let _ = ended.readable().await;
            } else if timeout_at(deadline, ended.readable()).await.is_ok() {
                return;
            }
        }
    }

    async fn wait(&self, reason: &'static str, message: String) {
        self.tell(Change::Waits(Waiting { reason, message })).await;
    }

    async fn tell(&self, change: Change) {
        // The pod's task listens until its containers have ended.
        let _ = self.changes.send((self.index, change)).await;
    }
}
