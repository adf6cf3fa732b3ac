//! A Kubernetes cluster on the lab: `make test-kubernetes`, which builds its programs.

#[path = "kubernetes/chart.rs"]
mod chart;
mod common;
#[path = "kubernetes/gateways.rs"]
mod gateways;
#[path = "kubernetes/pods.rs"]
mod pods;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::Result;
use switchback_kubernetes_lab::{Image, Kubernetes, Options};
use switchback_lab::Lab;

/// What `make test-kubernetes` builds.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/kubernetes");

fn tool(name: &str) -> PathBuf {
    Path::new(TOOLS).join(name)
}

/// Two machines; the second client has API server and controllers.
fn start(lab: &Lab) -> Result<Kubernetes> {
    let image = |name: &str, program: &[&str], port| Image {
        name: name.to_owned(),
        program: program.iter().map(|&word| word.to_owned()).collect(),
        port,
    };
    let echo = tool("echo");
    let images = vec![
        image("registry.k8s.io/gateway-api/echo-basic:", &[common::text(&echo)], Some(3000)),
        // What the conformance suite's base has for routes of UDP, which no test needs.
        image("registry.k8s.io/coredns/coredns:", &["sh", "-c", "exec sleep infinity"], None),
    ];
    let options = Options { program: tool("cluster"), images };
    Ok(Kubernetes::start(lab.client(1), lab.nodes(), options)?)
}

/// The namespaces of pods.
fn guests(lab: &Lab) -> Result<Vec<String>> {
    let beginning = format!("sb{}-", lab.id());
    let mut names = Vec::new();
    for entry in fs::read_dir("/run/netns")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(&beginning) && !lab.info().namespaces.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The programs that run on the lab's hosts, and those of pods, which have a directory of the lab.
fn programs(lab: &Lab) -> Result<Vec<String>> {
    let mut pids = BTreeSet::new();
    for host in lab.hosts() {
        let inside = host.run(["ip", "netns", "pids", host.namespace_name()])?.success()?;
        pids.extend(inside.lines().map(str::to_owned));
    }
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if fs::read_link(entry.path().join("cwd")).is_ok_and(|path| path.starts_with(lab.directory())) {
            pids.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    let names = pids.iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    Ok(names.map(|name| name.trim().to_owned()).collect())
}
