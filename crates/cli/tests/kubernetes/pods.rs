//! The cluster itself: pods come, are reached, are replaced and go.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use switchback_kubernetes_lab::Kubernetes;
use switchback_lab::{Host, Lab, Signal};

use super::common::{self, PATIENCE, Result, alone, start_daemon, wait_until};
use super::{guests, programs, start};

/// The namespace of all of these.
pub const NAMESPACE: &str = "shop";
pub const ECHO: &str = include_str!("echo.yaml");
const SECURE: &str = include_str!("secure.yaml");
const STUBBORN: &str = include_str!("stubborn.yaml");
const READER: &str = include_str!("reader.yaml");

/// What a pod answers to a request from this host.
fn ask(host: &Host, address: IpAddr) -> Result<Value> {
    ask_at(host, SocketAddr::new(address, 3000))
}

fn ask_at(host: &Host, address: SocketAddr) -> Result<Value> {
    let url = format!("http://{address}/");
    let said = host.run(["curl", "-sS", "--max-time", "5", &url])?.success()?;
    Ok(serde_json::from_str(&said)?)
}

fn pods(kubernetes: &Kubernetes) -> Api<Pod> {
    Api::namespaced(kubernetes.client(), NAMESPACE)
}

/// Waits until four pods of the newest version are ready, and no others are left; returns them.
pub fn wait_for_echo(kubernetes: &Kubernetes) -> Result<Vec<Pod>> {
    let deployments: Api<Deployment> = Api::namespaced(kubernetes.client(), NAMESPACE);
    kubernetes.wait_for(&deployments, "echo", "Deployment that is ready", |deployment| {
        let Some((meta, status)) = deployment.and_then(|it| Some((&it.metadata, it.status.as_ref()?))) else {
            return false;
        };
        status.observed_generation == meta.generation
            && [status.replicas, status.updated_replicas, status.ready_replicas] == [Some(4); 3]
    })?;
    Ok(kubernetes.wait_for_all(&pods(kubernetes), "app=echo", "four pods", |pods| pods.len() == 4)?)
}

fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let ips = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    ips.filter_map(|ip| ip.ip.parse().ok()).collect()
}

pub fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

#[test]
#[ignore = "needs what make test-kubernetes builds"]
fn pods_come_answer_and_go() -> Result {
    let _alone = alone();
    let lab = Lab::builder().clients(2).nodes(2).up()?;
    let mut kubernetes = start(&lab)?;
    kubernetes.apply(ECHO)?;
    let first = wait_for_echo(&kubernetes)?;

    let slices: Api<EndpointSlice> = Api::namespaced(kubernetes.client(), NAMESPACE);
    let expected: BTreeSet<(String, String)> = first
        .iter()
        .map(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            (node, addresses(pod)[0].to_string())
        })
        .collect();
    assert_eq!(expected.iter().filter(|(node, _)| node == "node0").count(), 2, "{expected:?}");
    assert_eq!(expected.len(), 4);
    let of_echo = "kubernetes.io/service-name=echo";
    kubernetes.wait_for_all(&slices, of_echo, "endpoints of all pods", |slices| {
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
        let ready = endpoints
            .filter(|endpoint| endpoint.conditions.as_ref().is_some_and(|it| it.ready == Some(true)));
        let found = ready
            .map(|endpoint| (endpoint.node_name.clone().unwrap_or_default(), endpoint.addresses[0].clone()));
        found.collect::<BTreeSet<_>>() == expected
    })?;

    for pod in &first {
        for address in addresses(pod) {
            for machine in lab.nodes() {
                let answer = ask(machine, address)?;
                assert_eq!(
                    (answer["pod"].as_str(), answer["namespace"].as_str()),
                    (Some(&*pod.name_any()), Some("shop"))
                );
            }
        }
    }
    // A client reaches pods only if it has routes to them, and is seen with its own address.
    let pod = &first[0];
    assert!(ask(lab.client(0), addresses(pod)[0]).is_err());
    kubernetes.route_pods(lab.client(0))?;
    ask(lab.client(0), addresses(pod)[0])?;
    let log = logs(&lab, &pod.name_any())?;
    assert!(log.contains(&format!("to client ({}:", lab.client(0).ipv4())), "{log}");

    pods_are_nodes(&lab, &first)?;
    users_may_do_what_roles_allow(&lab, &kubernetes)?;
    kubernetes.apply(STUBBORN)?;
    a_container_is_started_again(&lab, &kubernetes, pod)?;
    a_pod_waits_for_its_secret(&lab, &kubernetes)?;

    // Pods are replaced, also by an API server that has been started again.
    kubernetes.api_server().kill()?;
    kubernetes.restart_api_server()?;
    kubernetes.apply(&ECHO.replace("value: first", "value: second"))?;
    let second = wait_for_echo(&kubernetes)?;
    assert!(names(&first).is_disjoint(&names(&second)));
    for pod in &second {
        assert_eq!(ask(lab.node(0), addresses(pod)[0])?["service"], "second");
    }
    assert_eq!(guests(&lab)?.len(), 5, "four pods and one with TLS");
    assert!(programs(&lab)?.contains(&"echo".to_owned()));

    a_stubborn_pod_is_killed(&lab, &kubernetes)?;
    pods_have_time_to_go(&kubernetes, &second[0])?;

    kubernetes.delete(ECHO)?;
    assert_eq!(guests(&lab)?, Vec::<String>::new());
    assert!(!programs(&lab)?.contains(&"echo".to_owned()));
    drop(kubernetes);
    assert_eq!(programs(&lab)?, Vec::<String>::new());
    Ok(())
}

/// What the pod has printed.
fn logs(lab: &Lab, pod: &str) -> Result<String> {
    let mut logs = String::new();
    for host in lab.nodes() {
        for entry in fs::read_dir(host.directory())? {
            let path = entry?.path();
            if path.is_file() && common::text(&path).contains(pod) {
                logs += &fs::read_to_string(path)?;
            }
        }
    }
    Ok(logs)
}

pub fn machine(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Requests for the VIPs reach all pods, which see the client.
fn pods_are_nodes(lab: &Lab, pods: &[Pod]) -> Result {
    let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n{switches}\n".to_owned();
    let mut nodes = Vec::new();
    for pod in pods {
        let host = machine(pod);
        // An agent has the name of one of its machine's nodes.
        let is_first = !nodes.iter().any(|node| node == host);
        let name = if is_first { host.to_owned() } else { pod.name_any() };
        let servers: Vec<String> =
            addresses(pod).iter().map(|ip| SocketAddr::new(*ip, 3000).to_string()).collect();
        let address = lab.host(host)?.ipv4();
        text += &format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nserver = {servers:?}\n\n");
        nodes.push(name);
    }
    text += &format!("[[pool]]\nname = \"web\"\nnodes = {nodes:?}\npolicy = \"round-robin\"\n\n");
    text += "[[service]]\nname = \"shop\"\nlisten = [\"{vip4}:80\", \"[{vip6}]:80\"]\n\n\
             [[service.route]]\npool = \"web\"\n";
    let config = lab.write_config_text(&text)?;
    let mut daemons = Vec::new();
    for machine in lab.nodes() {
        daemons.push(start_daemon(machine, "node", &config)?);
    }
    daemons.push(start_daemon(lab.switch(0), "switch", &config)?);
    let up = || {
        let status = common::status(lab.switch(0))?;
        let views = status["nodes"].as_array().cloned().unwrap_or_default();
        let listeners = views.iter().flat_map(|node| node["listeners"].as_array().into_iter().flatten());
        Ok(listeners.map(|listener| listener["state"].as_str().unwrap_or_default().to_owned()).collect())
    };
    wait_until("the pods are up", PATIENCE, up, |states: &Vec<String>| {
        states.len() == 2 * pods.len() && states.iter().all(|state| state == "up")
    })?;
    let client = lab.client(0);
    for (vip, own) in
        [(IpAddr::from(lab.vip4()), IpAddr::from(client.ipv4())), (lab.vip6().into(), client.ipv6().into())]
    {
        let mut answering = BTreeSet::new();
        for _ in 0..2 * pods.len() {
            let answer = ask_at(client, SocketAddr::new(vip, 80))?;
            answering.insert(answer["pod"].as_str().unwrap_or_default().to_owned());
        }
        assert_eq!(answering, names(pods));
        let seen = format!("to client ({}", SocketAddr::new(own, 0).to_string().trim_end_matches('0'));
        for pod in pods {
            let log = logs(lab, &pod.name_any())?;
            assert!(log.contains(&seen), "no {seen} in {log}");
        }
    }
    daemons.iter().try_for_each(common::stop)
}

/// A service account reads pods as soon as a role allows it.
fn users_may_do_what_roles_allow(lab: &Lab, kubernetes: &Kubernetes) -> Result {
    let path = kubernetes.kubeconfig_of("system:serviceaccount:shop:reader", &[])?;
    let config: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let text = |place: &str| {
        let text = config.pointer(place).and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| format!("no {place} in {config}"))
    };
    let url = text("/clusters/0/cluster/server")? + "/api/v1/namespaces/shop/pods";
    let (authority, certificate, key) = (
        text("/clusters/0/cluster/certificate-authority")?,
        text("/users/0/user/client-certificate")?,
        text("/users/0/user/client-key")?,
    );
    let code = || -> Result<String> {
        let curl = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &authority];
        let own = ["--cert", &certificate, "--key", &key, &url];
        Ok(lab.node(0).run(curl.into_iter().chain(own))?.success()?)
    };
    assert_eq!(code()?, "403");
    kubernetes.apply(READER)?;
    wait_until("the role is in force", PATIENCE, code, |code| code == "200")?;
    Ok(())
}

fn a_container_is_started_again(lab: &Lab, kubernetes: &Kubernetes, pod: &Pod) -> Result {
    let machine = lab.host(machine(pod))?;
    let name = guests(lab)?
        .into_iter()
        .find(|guest| {
            let shown = machine.run(["ip", "-n", guest, "-4", "-br", "addr", "show", "eth0"]);
            let shown = shown.and_then(|output| output.success()).unwrap_or_default();
            shown.contains(&format!(" {}/", addresses(pod)[0]))
        })
        .ok_or("no namespace has the pod's address")?;
    let pids = machine.run(["ip", "netns", "pids", &name])?.success()?;
    let pid: i32 = pids.trim().parse()?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL)?;
    kubernetes.wait_for(&pods(kubernetes), &pod.name_any(), "restarted pod", |pod| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        statuses.is_some_and(|statuses| statuses.iter().all(|it| it.ready && it.restart_count == 1))
    })?;
    ask(machine, addresses(pod)[1])?;
    Ok(())
}

/// A Secret with a certificate.
pub fn apply_certificate(kubernetes: &Kubernetes, name: &str) -> Result {
    let made = rcgen::generate_simple_self_signed(["shop.example.com".to_owned()])?;
    let data = json!({ "tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem() });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": NAMESPACE },
        "type": "kubernetes.io/tls", "stringData": data,
    });
    kubernetes.apply(&secret.to_string())?;
    Ok(())
}

fn a_pod_waits_for_its_secret(lab: &Lab, kubernetes: &Kubernetes) -> Result {
    kubernetes.apply(SECURE)?;
    let waits = |pod: Option<&Pod>| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        let states =
            statuses.into_iter().flatten().filter_map(|status| status.state.as_ref()?.waiting.as_ref());
        states.filter_map(|waiting| waiting.message.as_deref()).any(|message| message.contains("tls"))
    };
    kubernetes.wait_for(&pods(kubernetes), "secure", "pod that waits for its Secret", waits)?;
    apply_certificate(kubernetes, "tls")?;
    let ready = |pod: Option<&Pod>| {
        let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
    };
    let pod = kubernetes.wait_for(&pods(kubernetes), "secure", "ready pod", ready)?.ok_or("it has gone")?;
    assert_eq!(pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("node0"));
    let url = format!("https://{}:8443/", addresses(&pod)[0]);
    let answers = || Ok(lab.node(0).run(["curl", "-sk", "--max-time", "5", &url])?.stdout);
    wait_until("the server with TLS", PATIENCE, answers, |said| said.contains("TLSv1.3"))?;
    Ok(())
}

fn a_stubborn_pod_is_killed(lab: &Lab, kubernetes: &Kubernetes) -> Result {
    let pod = kubernetes.run(pods(kubernetes).get("stubborn"))??;
    let (status, machine) =
        pod.status.zip(pod.spec.and_then(|spec| spec.node_name)).ok_or("a pod without machine or status")?;
    let container = &status.container_statuses.as_ref().ok_or("no container")?[0];
    assert_eq!((container.started, container.ready), (Some(true), false));
    assert_eq!(status.pod_ip, Some(lab.host(&machine)?.ipv4().to_string()));
    let log = logs(lab, "stubborn")?;
    assert!(log.contains(&format!("stubborn at {machine}\n")), "{log}");
    let begun = Instant::now();
    kubernetes.delete(STUBBORN)?;
    assert!(begun.elapsed() >= Duration::from_secs(2), "it had only {:?}", begun.elapsed());
    assert!(!programs(lab)?.contains(&"sh".to_owned()));
    Ok(())
}

/// Echo's pods wait a second before they end.
fn pods_have_time_to_go(kubernetes: &Kubernetes, pod: &Pod) -> Result {
    let (pods, name) = (pods(kubernetes), pod.name_any());
    let begun = Instant::now();
    kubernetes.run(pods.delete(&name, &DeleteParams::default()))??;
    kubernetes.wait_for(&pods, &name, "end of a pod", |pod| pod.is_none())?;
    assert!(begun.elapsed() >= Duration::from_secs(1), "it had only {:?}", begun.elapsed());
    Ok(())
}
