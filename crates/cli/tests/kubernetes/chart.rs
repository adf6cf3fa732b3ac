//! The Helm chart and the manifest.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use switchback_kubernetes_lab::{Image, Kubernetes, Options};
use switchback_lab::{Host, Lab};

use super::common::{self, PATIENCE, PROGRAM, Result, alone, markdown, said_by, wait_until};
use super::gateways::{MANIFEST, SHOP, SYSTEM, VIPS};
use super::pods::{ECHO, NAMESPACE, apply_certificate, machine, names, wait_for_echo};
use super::tool;

/// A cluster; a test that fails leaves what its processes have said.
struct Cluster {
    kubernetes: Kubernetes,
    lab: Lab,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.lab.print_logs();
        }
    }
}

/// What the chart is told in the lab.
const VALUES: &str = "
addresses: [192.0.2.192/27]
settings: |
  [limits]
  flows = 10000
gateway: { args: [--log-level=debug] }
switch: { zone: west }
";
/// What a listener has that serves HTTPS, too.
const HTTPS: &str = "protocol: HTTP }, { name: https, port: 443, protocol: HTTPS, tls: { certificateRefs: [{ name: tls }] } }";

/// What helm says with these words about the chart.
fn helm(words: &[&str]) -> Result<String> {
    let mut command = Command::new(tool("helm"));
    command.args(words).current_dir(markdown::repository().join("packaging/kubernetes"));
    said_by(&mut command)
}

/// The objects of the chart with the values in a file, and with its own.
fn rendered(values: &[&str]) -> Result<String> {
    helm(&[&["template", "switchback", "chart", "--namespace", SYSTEM], values].concat())
}

/// The chart is as Helm wants it, the manifest is what it makes, an API server knows all fields, and what it makes serves
/// requests, also after an upgrade.
#[test]
#[ignore = "needs what make test-kubernetes builds"]
fn the_chart_makes_a_cluster_that_serves() -> Result {
    let _alone = alone();
    helm(&["lint", "--strict", "chart"])?;
    let namespace = fs::read_to_string(markdown::repository().join("packaging/kubernetes/namespace.yaml"))?;
    assert!(namespace.clone() + &rendered(&[])? == MANIFEST, "make manifests writes the manifest anew");
    assert!(MANIFEST.contains(concat!(
        "image: registry.example.com/switchback:",
        env!("CARGO_PKG_VERSION"),
        "\n"
    )));
    assert!(rendered(&["--set", "adresses=x"]).is_err());

    let lab = Lab::builder().clients(2).switches(1).nodes(2).up()?;
    let script = lab.directory().join("switchback");
    let echo = tool("echo");
    let images = vec![
        Image {
            name: "registry.k8s.io/gateway-api/echo-basic:".to_owned(),
            program: vec![common::text(&echo).to_owned()],
            port: Some(3000),
        },
        Image {
            name: "registry.example.com/switchback:".to_owned(),
            program: vec![common::text(&script).to_owned()],
            port: None,
        },
    ];
    let options = Options { program: tool("cluster"), images };
    let machines = lab.nodes().chain([lab.switch(0)]);
    let kubernetes = Kubernetes::start(lab.client(1), machines, options)?;
    let cluster = Cluster { lab, kubernetes };
    let Cluster { lab, kubernetes } = &cluster;
    // Controllers in pods ask the API server.
    kubernetes.route_pods(lab.client(1))?;
    // In place of the tokens of service accounts.
    let account =
        |name: &str| kubernetes.kubeconfig_of(&format!("system:serviceaccount:{SYSTEM}:{name}"), &[]);
    let (controller, daemon) = (account("switchback-gateway")?, account("switchback-daemon")?);
    let [controller, daemon] = [&controller, &daemon].map(|path| common::text(path));
    common::write_script(
        &script,
        &format!(
            "#!/bin/sh\ncase $1 in gateway) KUBECONFIG={controller} ;; *) KUBECONFIG={daemon} ;; esac\n\
             export KUBECONFIG\nexec {PROGRAM} \"$@\"\n"
        ),
    )?;
    let machines: Api<Node> = Api::all(kubernetes.client());
    let label = json!({ "metadata": { "labels": { "switchback.dev/switch": "true" } } });
    let (name, parameters) = (lab.switch(0).name(), PatchParams::default());
    kubernetes.run(machines.patch(name, &parameters, &Patch::Merge(&label)))??;

    kubernetes.apply(&fs::read_to_string(tool("gateway-api.yaml"))?)?;
    let values = lab.directory().join("values.yaml");
    let apply = |text: &str| -> Result {
        fs::write(&values, text)?;
        kubernetes.apply(&(namespace.clone() + &rendered(&["--values", common::text(&values)])?))?;
        Ok(())
    };
    apply(VALUES)?;
    kubernetes.apply(ECHO)?;
    apply_certificate(kubernetes, "tls")?;
    kubernetes.apply(&SHOP.replace("protocol: HTTP }", HTTPS))?;
    let pods = wait_for_echo(kubernetes)?;
    let machines: BTreeSet<&str> = pods.iter().map(machine).collect();
    assert_eq!(machines, BTreeSet::from(["node0", "node1", "switch0"]), "pods beside the switch, too");

    let deployments: Api<Deployment> = Api::namespaced(kubernetes.client(), SYSTEM);
    kubernetes.wait_for(&deployments, "switchback-gateway", "two controllers", |deployment| {
        deployment.is_some_and(|it| it.status.as_ref().is_some_and(|it| it.ready_replicas == Some(2)))
    })?;
    let daemons: Api<DaemonSet> = Api::namespaced(kubernetes.client(), SYSTEM);
    let wait_for_daemons = |name: &str, count: i32| -> Result {
        kubernetes.wait_for(&daemons, name, &format!("{count} new pods of {name}"), |daemons| {
            let Some((meta, status)) = daemons.and_then(|it| Some((&it.metadata, it.status.as_ref()?)))
            else {
                return false;
            };
            status.observed_generation == meta.generation
                && status.updated_number_scheduled == Some(count)
                && [status.desired_number_scheduled, status.number_ready] == [count; 2]
        })?;
        Ok(())
    };
    wait_for_daemons("switchback-node", 2)?;
    wait_for_daemons("switchback-switch", 1)?;
    let via = lab.switch(0).ipv4().to_string();
    lab.client(0).run(["ip", "route", "add", VIPS, "via", &via])?.success()?;
    let answering = || {
        let urls = ["http://192.0.2.193/", "https://192.0.2.193/"];
        let answers = |url: &&str| answering_pods(lab.client(0), url, 2 * pods.len());
        urls.iter().map(answers).collect::<Result<Vec<_>>>()
    };
    let are_all = |answering: &Vec<BTreeSet<String>>| answering.iter().all(|found| *found == names(&pods));
    wait_until("answers of all pods", PATIENCE, answering, are_all)?;

    apply(&format!("{}node: {{ args: [--log-level=debug] }}\n", VALUES.replace("west", "east")))?;
    wait_for_daemons("switchback-node", 2)?;
    wait_for_daemons("switchback-switch", 1)?;
    wait_until("answers by new agents", PATIENCE, answering, are_all)?;

    kubernetes.apply(&SHOP.replace("name: echo", "name: lost"))?;
    let events: Api<Event> = Api::namespaced(kubernetes.client(), NAMESPACE);
    kubernetes.wait_for_all(&events, "", "event of a route without backend", |events| {
        let of_route = |event: &&Event| {
            let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            (regarding, event.reason.as_deref()) == (Some("lost"), Some("BackendNotFound"))
        };
        let note = events.iter().find(of_route).and_then(|event| event.note.as_deref());
        note.is_some_and(|note| note.contains("there is no Service shop/lost"))
    })?;
    Ok(())
}

/// The pods that answer so many requests.
fn answering_pods(client: &Host, url: &str, requests: usize) -> Result<BTreeSet<String>> {
    let mut pods = BTreeSet::new();
    for _ in 0..requests {
        let said = client.run(["curl", "-sk", "--max-time", "5", url])?.stdout;
        let answer: Value = serde_json::from_str(&said).unwrap_or_default();
        pods.insert(answer["pod"].as_str().unwrap_or_default().to_owned());
    }
    Ok(pods)
}
