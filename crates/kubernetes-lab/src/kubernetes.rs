//! A running cluster.

use std::fmt::Debug;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::DynamicObject;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Api, Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use switchback_lab::{Host, Process};
use tokio::runtime::Runtime;

use crate::control_plane::{ControlPlane, START_TIMEOUT};
use crate::error::{Doing, Error, Result};
use crate::kubelet::{self, Kubelet};
use crate::machine::Machine;
use crate::{apply, scheduler, wait};

/// The name under which this crate writes to objects.
pub(crate) const FIELD_MANAGER: &str = "switchback-kubernetes-lab";
/// Time between two looks at an API server that starts.
const POLL: Duration = Duration::from_millis(50);
/// Lines of a log that an error has.
const LOG_LINES: usize = 20;

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program with API server and controllers: `crates/cli/tests/kubernetes/cluster`.
    pub program: PathBuf,
    /// What runs in place of the containers' images.
    pub images: Vec<Image>,
}

/// A program of this machine in place of an image.
#[derive(Clone, Debug)]
pub struct Image {
    /// How the image's name begins, for example `registry.k8s.io/gateway-api/echo-basic:`.
    pub name: String,
    /// The program and its first arguments; the container's come after them.
    pub program: Vec<String>,
    /// The port that accepts connections when a container that names no port and has no probe is ready.
    pub port: Option<u16>,
}

/// A cluster. Its processes and pods end with it.
pub struct Kubernetes {
    // Its tasks end first: dropped pods are gone before the API server.
    runtime: Runtime,
    client: Client,
    host: Host,
    machines: Vec<Arc<Machine>>,
    control_plane: ControlPlane,
}

impl Kubernetes {
    /// Starts a cluster with etcd, API server and controllers on one host, and pods on these. The lab is to be flat.
    pub fn start<'a>(
        control_plane: &Host,
        machines: impl IntoIterator<Item = &'a Host>,
        options: Options,
    ) -> Result<Kubernetes> {
        let host = control_plane.clone();
        let machines = machines.into_iter().enumerate();
        let machines = machines.map(|(index, host)| Machine::new(index, host).map(Arc::new));
        let machines: Vec<Arc<Machine>> = machines.collect::<Result<_>>()?;
        for (machine, other) in
            machines.iter().flat_map(|machine| machines.iter().map(move |to| (machine, to)))
        {
            if machine.name() != other.name() {
                machine.route_from(&other.host)?;
            }
        }
        let mut control_plane = ControlPlane::start(&host, &options.program)?;
        // Threads of the runtime are in the host's network, as the thread that makes them.
        let runtime = host.enter(|| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(2).enable_all().build()
        })?;
        let runtime = runtime.doing(|| "start threads for the API".to_owned())?;
        let client = host.enter(|| runtime.block_on(connect(&control_plane.kubeconfig)))??;
        let server = control_plane.process("kube-apiserver").expect("it has been started").clone();
        host.enter(|| runtime.block_on(wait_until_ready(&client, &server)))??;
        control_plane.start_controllers()?;
        let images: Arc<[Image]> = options.images.into();
        host.enter(|| {
            runtime.block_on(async {
                for machine in &machines {
                    machine.register(&client).await?;
                    let (client, machine) = (client.clone(), Arc::clone(machine));
                    let kubelet = Kubelet { client, machine, images: Arc::clone(&images) };
                    tokio::spawn(kubelet::run(Arc::new(kubelet)));
                }
                tokio::spawn(scheduler::run(client.clone(), machines.clone()));
                Ok::<_, Error>(())
            })
        })??;
        Ok(Kubernetes { runtime, client, host, machines, control_plane })
    }

    /// A kubeconfig file of an administrator, for hosts of the lab.
    pub fn kubeconfig(&self) -> &Path {
        &self.control_plane.kubeconfig
    }

    /// Writes a kubeconfig file of a user in these groups, who may do what roles allow. The user of a service account is
    /// `system:serviceaccount:NAMESPACE:NAME`.
    pub fn kubeconfig_of(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        self.control_plane.authority.kubeconfig(&self.control_plane.url(), user, groups)
    }

    /// An administrator's client, for what [`run`](Self::run) runs.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Runs this in the network of the cluster's first host, where the API server is reached.
    pub fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T> {
        Ok(self.host.enter(|| self.runtime.block_on(work))?)
    }

    /// Runs this beside, in the same network, until it ends or the cluster does.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Creates or changes the objects of a manifest in YAML. Kinds that it defines exist when this returns.
    pub fn apply(&self, manifest: &str) -> Result<Vec<DynamicObject>> {
        self.run(apply::apply(&self.client, manifest))?
    }

    /// Deletes the objects of a manifest with what depends on them, and waits until they are gone.
    pub fn delete(&self, manifest: &str) -> Result<()> {
        self.run(apply::delete(&self.client, manifest))?
    }

    /// Waits for a state of an object, which may be absent. `what` is the state, for an error: "ready Deployment echo".
    pub fn wait_for<K>(
        &self,
        api: &Api<K>,
        name: &str,
        what: &str,
        wanted: impl Fn(Option<&K>) -> bool + Send + Sync,
    ) -> Result<Option<K>>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + Sync + 'static,
    {
        self.run(wait::object(api, name, what, wanted))?
    }

    /// Waits for a state of all objects with these labels (`app=echo`; all if empty).
    pub fn wait_for_all<K>(
        &self,
        api: &Api<K>,
        labels: &str,
        what: &str,
        wanted: impl Fn(&[K]) -> bool + Send + Sync,
    ) -> Result<Vec<K>>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + Sync + 'static,
    {
        let mut selection = watcher::Config::default();
        if !labels.is_empty() {
            selection = selection.labels(labels);
        }
        self.run(wait::list(api, selection, what, wanted))?
    }

    /// Gives a host routes to all pods. Without, only machines have them.
    pub fn route_pods(&self, host: &Host) -> Result<()> {
        self.machines.iter().try_for_each(|machine| machine.route_from(host))
    }

    /// The API server's process. It may be killed: see [`restart_api_server`](Self::restart_api_server).
    pub fn api_server(&self) -> &Process {
        self.control_plane.process("kube-apiserver").expect("it has been started")
    }

    /// Starts another API server with the same data, when the last one has ended, and waits until it is ready.
    pub fn restart_api_server(&mut self) -> Result<()> {
        self.control_plane.start_api_server()?;
        let server = self.api_server().clone();
        self.run(wait_until_ready(&self.client, &server))?
    }
}

async fn connect(kubeconfig: &Path) -> Result<Client> {
    let invalid =
        |error: &dyn std::error::Error| Error::Invalid(format!("{}: {error}", kubeconfig.display()));
    let read = Kubeconfig::read_from(kubeconfig).map_err(|error| invalid(&error))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let config = config.map_err(|error| invalid(&error))?;
    Client::try_from(config).doing(|| "make a client".to_owned())
}

async fn wait_until_ready(client: &Client, server: &Process) -> Result<()> {
    let begun = Instant::now();
    loop {
        let request = http::Request::get("/readyz").body(Vec::new()).expect("a path is a URI");
        let last = match client.request_text(request).await {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        };
        if let Some(status) = server.wait_timeout(Duration::ZERO)? {
            let log = server.log();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            return Err(Error::Invalid(format!("kube-apiserver has ended ({status}); its log ends:\n{end}")));
        }
        if begun.elapsed() > START_TIMEOUT {
            let waiting_for = "ready API server".to_owned();
            return Err(Error::Timeout { waiting_for, after: START_TIMEOUT, last });
        }
        tokio::time::sleep(POLL).await;
    }
}
