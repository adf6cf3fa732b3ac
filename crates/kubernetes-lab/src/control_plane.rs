//! etcd, the API server and the controllers, on one host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use switchback_lab::{Host, Process, within};

use crate::certificates::{Authority, Signed};
use crate::error::{Doing, Error, Result};
use crate::machine::SERVICES;

const API_PORT: u16 = 6443;
const ETCD_PORT: u16 = 2379;
const ETCD_PEER_PORT: u16 = 2380;
/// How long a program may take to start. The API server needs ten seconds of a processor.
pub(crate) const START_TIMEOUT: Duration = within(Duration::from_secs(120));
/// The group of users who may do everything.
const ADMINISTRATORS: &str = "system:masters";

/// The controllers that pods behind Services need. Without that of nodes' life nobody doubts that machines are there.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,daemonset-controller,endpointslice-controller,\
                           namespace-controller,garbage-collector-controller";
/// Service accounts have no tokens in pods, and nobody removes the taints of new machines.
const WITHOUT_ADMISSION: &str = "ServiceAccount,TaintNodesByCondition";

pub(crate) struct ControlPlane {
    host: Host,
    program: PathBuf,
    directory: PathBuf,
    pub(crate) authority: Authority,
    certificate: Signed,
    token_key: Signed,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) processes: Vec<Process>,
}

impl ControlPlane {
    /// Starts etcd and the API server, which may not be ready yet.
    pub(crate) fn start(host: &Host, program: &Path) -> Result<ControlPlane> {
        if !program.exists() {
            let missing = format!("{} is missing; `make test-kubernetes` builds it", program.display());
            return Err(Error::Invalid(missing));
        }
        let directory = host.directory().join("kubernetes");
        fs::create_dir(&directory).doing(|| format!("create {}", directory.display()))?;
        let authority = Authority::new(&directory)?;
        let certificate = authority.server("api", &[host.ipv4().into(), host.ipv6().into()])?;
        let token_key = authority.token_key()?;
        let kubeconfig = authority.kubeconfig(&url(host), "admin", &[ADMINISTRATORS])?;
        let mut control_plane = ControlPlane {
            host: host.clone(),
            program: program.to_owned(),
            directory,
            authority,
            certificate,
            token_key,
            kubeconfig,
            processes: Vec::new(),
        };
        control_plane.start_etcd()?;
        control_plane.start_api_server()?;
        Ok(control_plane)
    }

    fn start_etcd(&mut self) -> Result<()> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (clients, peers) = (url(ETCD_PORT), url(ETCD_PEER_PORT));
        let mut etcd = Command::new("etcd");
        etcd.args(["--name", "etcd", "--initial-cluster", &format!("etcd={peers}"), "--logger", "zap"]);
        etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        etcd.arg("--data-dir").arg(self.directory.join("etcd"));
        // The API server waits for it.
        self.processes.push(self.host.spawn("kubernetes-etcd", etcd)?);
        Ok(())
    }

    /// Starts the API server, which may take some seconds until it answers.
    pub(crate) fn start_api_server(&mut self) -> Result<()> {
        let address = self.host.ipv4();
        let mut server = Command::new(&self.program);
        server.arg("kube-apiserver");
        let mut option = |name: &str, value: String| {
            server.arg(format!("--{name}={value}"));
        };
        let path = |path: &Path| path.display().to_string();
        option("etcd-servers", format!("http://127.0.0.1:{ETCD_PORT}"));
        option("bind-address", "::".to_owned());
        option("secure-port", API_PORT.to_string());
        option("advertise-address", address.to_string());
        option("tls-cert-file", path(&self.certificate.certificate));
        option("tls-private-key-file", path(&self.certificate.key));
        option("client-ca-file", path(&self.authority.certificate()));
        option("service-account-issuer", "https://kubernetes.default.svc".to_owned());
        option("service-account-key-file", path(&self.token_key.certificate));
        option("service-account-signing-key-file", path(&self.token_key.key));
        option("service-cluster-ip-range", SERVICES.to_owned());
        option("authorization-mode", "RBAC".to_owned());
        option("disable-admission-plugins", WITHOUT_ADMISSION.to_owned());
        option("endpoint-reconciler-type", "none".to_owned());
        option("allow-privileged", "true".to_owned());
        option("profiling", "false".to_owned());
        self.processes.push(self.host.spawn("kube-apiserver", server)?);
        Ok(())
    }

    /// Starts the controllers, for which the API server must be ready.
    pub(crate) fn start_controllers(&mut self) -> Result<()> {
        let mut controllers = Command::new(&self.program);
        controllers.args(["kube-controller-manager", "--leader-elect=false", "--profiling=false"]);
        // Nobody reads what it would serve, and nobody else burdens the API server.
        controllers.args(["--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000"]);
        controllers.arg(format!("--controllers={CONTROLLERS}"));
        controllers.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        self.processes.push(self.host.spawn("kube-controller-manager", controllers)?);
        Ok(())
    }

    /// The newest process of this program.
    pub(crate) fn process(&self, name: &str) -> Option<&Process> {
        let name = format!("{}/{name}", self.host.name());
        self.processes.iter().rev().find(|process| process.name() == name)
    }

    pub(crate) fn url(&self) -> String {
        url(&self.host)
    }
}

/// Ends the processes; their data goes with the lab.
impl Drop for ControlPlane {
    fn drop(&mut self) {
        for process in self.processes.iter().rev() {
            if let Err(error) = process.kill() {
                eprintln!("{} is not gone: {error}", process.name());
            }
        }
    }
}

fn url(host: &Host) -> String {
    format!("https://{}:{API_PORT}", host.ipv4())
}
