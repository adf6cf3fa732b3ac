//! `switchback gateway` with switches and nodes on the cluster.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gateway_api::apis::standard::gateways::Gateway;
use gateway_api::apis::standard::httproutes::HttpRoute;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use switchback_kubernetes_lab::Kubernetes;
use switchback_lab::{Host, Lab, Process, within};

use super::common::steady::{Served, Steady};
use super::common::{self, PATIENCE, PROGRAM, Result, alone, wait_until};
use super::pods::{ECHO, NAMESPACE, wait_for_echo};
use super::{start, tool};

/// How long the conformance suite may take.
const SUITE_TIME: Duration = within(Duration::from_secs(2400));
/// Addresses of Gateways; clients have a route to the switch for them.
pub const VIPS: &str = "192.0.2.192/27";
/// What an administrator applies.
pub const MANIFEST: &str = include_str!("../../../../packaging/kubernetes/switchback.yaml");
pub const SYSTEM: &str = "switchback-system";

/// A cluster with the Gateway API: the controller on a client of the lab, a switch, and an agent on each machine.
struct Gateways {
    lab: Lab,
    kubernetes: Kubernetes,
    /// Kubeconfig of the controller.
    controller: PathBuf,
    gateway: Process,
    _daemons: Vec<Process>,
}

/// A test that fails leaves what its processes have said.
impl Drop for Gateways {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.lab.print_logs();
        }
    }
}

/// A command of ours, for a process with this kubeconfig.
fn command(lab: &Lab, host: &Host, kubeconfig: &Path, words: &[&str]) -> Command {
    let mut command = host.command(PROGRAM);
    command.args(words).env("KUBECONFIG", kubeconfig);
    command.env("STATE_DIRECTORY", lab.directory().join(format!("state-{}", host.name())));
    command
}

fn start_controller(lab: &Lab, kubeconfig: &Path) -> Result<Process> {
    let host = lab.client(1);
    Ok(host.spawn("gateway", command(lab, host, kubeconfig, &["gateway", "--addresses", VIPS]))?)
}

impl Gateways {
    fn start() -> Result<Gateways> {
        let lab = Lab::builder().clients(2).switches(1).nodes(2).up()?;
        let kubernetes = start(&lab)?;
        kubernetes.apply(&fs::read_to_string(tool("gateway-api.yaml"))?)?;
        kubernetes.apply(MANIFEST)?;
        let account =
            |name: &str| kubernetes.kubeconfig_of(&format!("system:serviceaccount:{SYSTEM}:{name}"), &[]);
        let (controller, daemon) = (account("switchback-gateway")?, account("switchback-daemon")?);
        let config = format!("kubernetes://{SYSTEM}/cluster");
        // Whatever starts first waits for the other.
        let agents = lab.nodes().map(|host| {
            let words = ["node", "--config", &config, "--name", host.name(), "--interface", "eth0"];
            host.spawn("agent", command(&lab, host, &daemon, &words))
        });
        let mut daemons = agents.collect::<std::result::Result<Vec<_>, _>>()?;
        let gateway = start_controller(&lab, &controller)?;
        let switch = lab.switch(0);
        let words = ["switch", "--config", &config, "--interface", "eth0"];
        daemons.push(switch.spawn("switch", command(&lab, switch, &daemon, &words))?);
        for daemon in &daemons {
            daemon.wait_for_log("ready", PATIENCE)?;
        }
        let via = switch.ipv4().to_string();
        lab.client(0).run(["ip", "route", "add", VIPS, "via", &via])?.success()?;
        Ok(Gateways { lab, kubernetes, controller, gateway, _daemons: daemons })
    }

    /// The address of a Gateway that is programmed.
    fn address(&self, name: &str) -> Result<IpAddr> {
        let gateways: Api<Gateway> = Api::namespaced(self.kubernetes.client(), NAMESPACE);
        let programmed = |gateway: Option<&Gateway>| {
            gateway.is_some_and(|gateway| {
                let status = gateway.status.as_ref();
                let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
                holds(conditions, "Programmed", gateway.metadata.generation)
            })
        };
        let gateway = self.kubernetes.wait_for(&gateways, name, "programmed Gateway", programmed)?;
        let address = gateway.and_then(|gateway| Some(gateway.status?.addresses?.first()?.value.clone()));
        Ok(address.ok_or("a Gateway without address")?.parse()?)
    }

    /// Waits until a route is accepted in its newest version.
    fn wait_for_route(&self, name: &str) -> Result {
        let routes: Api<HttpRoute> = Api::namespaced(self.kubernetes.client(), NAMESPACE);
        self.kubernetes.wait_for(&routes, name, "accepted route", |route| {
            route.is_some_and(|route| {
                let parents = route.status.as_ref().map(|status| &status.parents);
                let mut parents = parents.into_iter().flatten();
                parents.any(|parent| holds(&parent.conditions, "Accepted", route.metadata.generation))
            })
        })?;
        Ok(())
    }
}

/// Whether a condition holds for this generation.
fn holds(conditions: &[Condition], kind: &str, generation: Option<i64>) -> bool {
    conditions.iter().any(|condition| {
        condition.type_ == kind && condition.status == "True" && condition.observed_generation == generation
    })
}

/// A Gateway for the pods of echo.
pub const SHOP: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: shop, namespace: shop }
spec:
  gatewayClassName: switchback
  listeners: [{ name: http, port: 80, protocol: HTTP }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: echo, namespace: shop }
spec:
  parentRefs: [{ name: shop }]
  rules: [{ backendRefs: [{ name: echo, port: 80 }] }]
";

/// Asks for the same while `work` runs, on kept connections and on new ones.
fn beside(gateways: &Gateways, server: SocketAddr, work: impl FnOnce() -> Result) -> Result<Served> {
    let pause = Duration::from_millis(5);
    let kept = Steady { clients: 8, pause, close: false };
    let new = Steady { clients: 4, pause, close: true };
    let client = gateways.lab.client(0);
    let page = ("/health", &b"OK"[..]);
    let both = || new.run_beside(client, server, page, work);
    let (((), mut served), others) = kept.run_beside(client, server, page, both)?;
    served.add(others);
    Ok(served)
}

/// Pods are replaced under load, while the controller and the API server die and come back.
#[test]
#[ignore = "needs what make test-kubernetes builds"]
fn a_rolling_update_fails_no_request() -> Result {
    let _alone = alone();
    let mut gateways = Gateways::start()?;
    let slow =
        ECHO.replace("sleep: { seconds: 1 }", "sleep: { seconds: 3 }").replace("Seconds: 5", "Seconds: 9");
    gateways.kubernetes.apply(&slow)?;
    gateways.kubernetes.apply(SHOP)?;
    wait_for_echo(&gateways.kubernetes)?;
    gateways.wait_for_route("echo")?;
    let server = SocketAddr::new(gateways.address("shop")?, 80);
    let url = format!("http://{server}/health");
    let said = || Ok(gateways.lab.client(0).run(["curl", "-s", "--max-time", "5", &url])?.stdout);
    wait_until("an answer", PATIENCE, said, |said| said == "OK")?;
    let through = gateways.lab.switch(0).count("tcp sport 80 tcp flags & (syn|rst) == 0")?;
    let to_client = gateways.lab.client(0).count("tcp sport 80")?;

    let rounds = |value: &str| -> Result {
        gateways.kubernetes.apply(&slow.replace("value: first", &format!("value: {value}")))?;
        wait_for_echo(&gateways.kubernetes)?;
        Ok(())
    };
    let served = beside(&gateways, server, || {
        rounds("second")?;
        rounds("third")
    })?;
    served.assert_all_answered();
    println!(
        "two rolling updates: {} requests, none failed, the slowest took {:?}",
        served.requests, served.slowest
    );

    // The Secret comes back with the key that daemons have.
    let secrets: Api<Secret> = Api::namespaced(gateways.kubernetes.client(), SYSTEM);
    let key = |secret: &Secret| secret.data.as_ref().and_then(|data| data.get("cluster.key")).cloned();
    let before = gateways.kubernetes.run(secrets.get("cluster"))??;
    gateways.kubernetes.run(secrets.delete("cluster", &DeleteParams::default()))??;
    let is_new = |secret: Option<&Secret>| {
        secret
            .is_some_and(|secret| secret.metadata.uid.is_some() && secret.metadata.uid != before.metadata.uid)
    };
    let after =
        gateways.kubernetes.wait_for(&secrets, "cluster", "new Secret", is_new)?.ok_or("no Secret")?;
    assert!(key(&before).is_some() && key(&before) == key(&after));

    // Without controller and API server nothing changes; what has changed meanwhile comes into force after.
    gateways.gateway.kill()?;
    let lab = &gateways.lab;
    let for_a_while = || {
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    };
    beside(&gateways, server, for_a_while)?.assert_all_answered();
    let gateway = start_controller(lab, &gateways.controller)?;
    gateway.wait_for_log("the resources are known", PATIENCE)?;
    gateways.gateway = gateway;
    gateways.kubernetes.api_server().kill()?;
    beside(&gateways, server, for_a_while)?.assert_all_answered();
    gateways.kubernetes.restart_api_server()?;
    let served = beside(&gateways, server, || {
        gateways.kubernetes.apply(&slow.replace("value: first", "value: fourth"))?;
        wait_for_echo(&gateways.kubernetes)?;
        Ok(())
    })?;
    served.assert_all_answered();

    assert_eq!(through.to_host()?.bytes, 0, "responses do not pass the switch");
    assert!(to_client.to_host()?.packets > served.requests as u64);
    Ok(())
}

/// All core tests of the suite, and those of the features that the class names.
#[test]
#[ignore = "needs what make test-kubernetes builds"]
fn the_conformance_suite_passes() -> Result {
    let _alone = alone();
    let gateways = Gateways::start()?;
    let Gateways { lab, kubernetes, .. } = &gateways;
    let through = lab.switch(0).count("tcp sport {80, 443, 8080} tcp flags & (syn|rst) == 0")?;
    let to_client = lab.client(0).count("tcp sport {80, 443, 8080}")?;
    let report = lab.directory().join("report.yaml");
    let mut suite = lab.client(0).command(tool("conformance"));
    suite.env("KUBECONFIG", kubernetes.kubeconfig());
    suite.env("USABLE_ADDRESS", "192.0.2.220").env("UNUSABLE_ADDRESS", "192.0.2.1");
    suite.args(["-test.v", "-test.timeout", "40m"]);
    suite.args(["-gateway-class", "switchback", "-conformance-profiles", "GATEWAY-HTTP"]);
    suite.args(["-report-output", common::text(&report)]);
    suite.args(["-organization", "Switchback", "-project", "switchback"]);
    suite.args(["-version", env!("CARGO_PKG_VERSION")]);
    suite.args(["-url", "https://switchback.example.com", "-contact", "@switchback"]);
    if let Ok(test) = std::env::var("SWITCHBACK_CONFORMANCE") {
        suite.args(["-run-test", &test]);
    }
    let suite = lab.client(0).spawn("conformance", suite)?;
    let status = suite.wait_timeout(SUITE_TIME)?.ok_or("the suite still runs")?;
    let log = suite.log();
    let failed: Vec<&str> = log.lines().filter(|line| line.trim_start().starts_with("--- FAIL")).collect();
    if let Some(copy) = std::env::var_os("SWITCHBACK_REPORT") {
        fs::copy(&report, copy)?;
    }
    assert!(status.success() && failed.is_empty(), "{status}: {failed:#?}");
    let (to_client, to_switch) = (to_client.to_host()?, through.to_host()?);
    println!(
        "to the client: {to_client:?}, of these {:?} answers of the switch itself; responses to the switch: {to_switch:?}",
        through.from_host()?
    );
    assert_eq!(to_switch.bytes, 0);
    Ok(())
}

/// Routes and endpoints of a large cluster.
const ROUTES: usize = 1000;
const MACHINES: usize = 50;
const ENDPOINTS_OF_MACHINE: usize = 100;

/// Machines that do not run, with endpoints, and routes to them.
fn large_cluster() -> Vec<Value> {
    let machine = |index: usize| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("m{index}") },
            "status": { "addresses": [{ "type": "InternalIP", "address": format!("192.0.2.{}", 130 + index) }] },
        })
    };
    let service = |index: usize| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": format!("s{index}"), "namespace": NAMESPACE },
            "spec": { "ports": [{ "port": 80, "targetPort": 1000 + index }] },
        })
    };
    let slice = |index: usize| {
        let endpoint = |pod: usize| {
            json!({
                "addresses": [format!("198.51.100.{}", 100 + pod)],
                "nodeName": format!("m{index}"),
                "conditions": { "ready": true },
                "targetRef": { "kind": "Pod", "name": format!("p{pod}"), "namespace": NAMESPACE },
            })
        };
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": format!("s{index}"), "namespace": NAMESPACE,
                "labels": { "kubernetes.io/service-name": format!("s{index}") },
            },
            "ports": [{ "port": 1000 + index }],
            "endpoints": (0..ENDPOINTS_OF_MACHINE).map(endpoint).collect::<Vec<_>>(),
        })
    };
    let route = |index: usize| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "name": format!("r{index}"), "namespace": NAMESPACE },
            "spec": {
                "parentRefs": [{ "name": "shop" }],
                "rules": [{
                    "matches": [{ "path": { "value": format!("/r{index}") } }],
                    "backendRefs": [{ "name": format!("s{}", index % MACHINES), "port": 80 }],
                }],
            },
        })
    };
    let machines = (0..MACHINES).flat_map(|index| [machine(index), service(index), slice(index)]);
    machines.chain((0..ROUTES).map(route)).collect()
}

/// A thousand routes and five thousand endpoints come into force beside requests, of which none fails, and so does a change of one.
#[test]
#[ignore = "needs what make test-kubernetes builds"]
fn a_large_cluster_comes_into_force() -> Result {
    let _alone = alone();
    let gateways = Gateways::start()?;
    gateways.kubernetes.apply(ECHO)?;
    gateways.kubernetes.apply(SHOP)?;
    wait_for_echo(&gateways.kubernetes)?;
    gateways.wait_for_route("echo")?;
    let server = SocketAddr::new(gateways.address("shop")?, 80);
    let url = |path: &str| format!("http://{server}{path}");
    let get = |path: &str| {
        let words = ["curl", "-s", "--max-time", "5", "-o", "/dev/null", "-w", "%{http_code}", &url(path)];
        Ok(gateways.lab.client(0).run(words)?.stdout)
    };
    wait_until("an answer", PATIENCE, || get("/health"), |code| code == "200")?;
    let served = beside(&gateways, server, || {
        let begun = Instant::now();
        for part in large_cluster().chunks(100) {
            let manifest = part.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
            gateways.kubernetes.apply(&manifest)?;
        }
        println!("written to the API server in {:?}", begun.elapsed());
        let last = format!("r{}", ROUTES - 1);
        gateways.wait_for_route(&last)?;
        println!("the last route is accepted after {:?}", begun.elapsed());
        // One change more, to see what it takes alone.
        let gone = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "name": "moved", "namespace": NAMESPACE },
            "spec": {
                "parentRefs": [{ "name": "shop" }],
                "rules": [{
                    "matches": [{ "path": { "value": "/moved" } }],
                    "filters": [{ "type": "RequestRedirect", "requestRedirect": { "hostname": "a.example" } }],
                }],
            },
        });
        let begun = Instant::now();
        gateways.kubernetes.apply(&gone.to_string())?;
        wait_until("the redirect", PATIENCE, || get("/moved"), |code| code == "302")?;
        println!("one route more is in force at the switch after {:?}", begun.elapsed());
        Ok(())
    })?;
    served.assert_all_answered();
    println!("{} requests beside, none failed, the slowest took {:?}", served.requests, served.slowest);
    let secrets: Api<Secret> = Api::namespaced(gateways.kubernetes.client(), SYSTEM);
    let secret = gateways.kubernetes.run(secrets.get("cluster"))??;
    let bytes: usize = secret.data.iter().flatten().map(|(_, content)| content.0.len()).sum();
    println!("the Secret has {bytes} bytes");
    Ok(())
}
