//! A Kubernetes cluster on the lab: `make test-kubernetes`, which builds its programs.

mod common;
#[path = "kubernetes/gateways.rs"]
mod gateways;

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{PATIENCE, Result, alone, wait_until};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use switchback_kubernetes_lab::{Image, Kubernetes, Options};
use switchback_lab::{Host, Lab, Signal};

/// What `make test-kubernetes` builds.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/kubernetes");
const NAMESPACE: &str = "shop";

/// A server that tells its pod's name, on four pods, which take a second to go.
const ECHO: &str = "
apiVersion: v1
kind: Namespace
metadata: { name: shop }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: echo, namespace: shop }
spec:
  replicas: 4
  selector: { matchLabels: { app: echo } }
  template:
    metadata: { labels: { app: echo } }
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: echo
          image: registry.k8s.io/gateway-api/echo-basic:v1.5.1
          ports: [{ name: http, containerPort: 3000 }]
          readinessProbe: { httpGet: { path: /health, port: http } }
          lifecycle: { preStop: { sleep: { seconds: 1 } } }
          env:
            - { name: POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
            - { name: NAMESPACE, valueFrom: { fieldRef: { fieldPath: metadata.namespace } } }
            - { name: SERVICE_NAME, value: first }
---
apiVersion: v1
kind: Service
metadata: { name: echo, namespace: shop }
spec:
  selector: { app: echo }
  ports: [{ port: 80, targetPort: http }]
";

/// A pod that serves HTTPS with a certificate of a Secret.
const SECURE: &str = "
apiVersion: v1
kind: Pod
metadata: { name: secure, namespace: shop, labels: { app: secure } }
spec:
  nodeSelector: { kubernetes.io/hostname: node0 }
  containers:
    - name: echo
      image: registry.k8s.io/gateway-api/echo-basic:v1.5.1
      env:
        - { name: POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
        - { name: TLS_SERVER_CERT, value: /etc/secret-volume/crt }
        - { name: TLS_SERVER_PRIVKEY, value: /etc/secret-volume/key }
      volumeMounts: [{ name: tls, mountPath: /etc/secret-volume }]
  volumes:
    - name: tls
      secret: { secretName: tls, items: [{ key: tls.crt, path: crt }, { key: tls.key, path: key }] }
";

/// A pod that is never ready, since nobody listens, does not heed SIGTERM, and is in its machine's own network.
const STUBBORN: &str = "
apiVersion: v1
kind: Pod
metadata: { name: stubborn, namespace: shop }
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  containers:
    - name: sh
      image: shell
      command: [sh, -c]
      args: ['trap \"\" TERM; echo $(NAME) at $MACHINE; while :; do sleep 0.1; done']
      ports: [{ containerPort: 4000 }]
      env:
        - { name: NAME, value: stubborn }
        - { name: MACHINE, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
";

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

/// What a pod answers to a request from this host.
fn ask(host: &Host, address: IpAddr) -> Result<Value> {
    let url = format!("http://{}/", std::net::SocketAddr::new(address, 3000));
    let said = host.run(["curl", "-sS", "--max-time", "5", &url])?.success()?;
    Ok(serde_json::from_str(&said)?)
}

fn pods(kubernetes: &Kubernetes) -> Api<Pod> {
    Api::namespaced(kubernetes.client(), NAMESPACE)
}

/// Waits until four pods of the newest version are ready, and no others are left; returns them.
fn wait_for_echo(kubernetes: &Kubernetes) -> Result<Vec<Pod>> {
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

fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(ResourceExt::name_any).collect()
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

/// The programs that run in the lab.
fn programs(lab: &Lab) -> Result<Vec<String>> {
    let mut programs = Vec::new();
    for host in lab.hosts() {
        let pids = host.run(["ip", "netns", "pids", host.namespace_name()])?.success()?;
        for pid in pids.lines() {
            programs
                .extend(fs::read_to_string(format!("/proc/{pid}/comm")).map(|name| name.trim().to_owned()));
        }
    }
    Ok(programs)
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
    let logs = programs_logs(&lab, &pod.name_any())?;
    assert!(logs.contains(&format!("to client ({}:", lab.client(0).ipv4())), "{logs}");

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
fn programs_logs(lab: &Lab, pod: &str) -> Result<String> {
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

fn a_container_is_started_again(lab: &Lab, kubernetes: &Kubernetes, pod: &Pod) -> Result {
    let machine =
        lab.host(pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default())?;
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

fn a_pod_waits_for_its_secret(lab: &Lab, kubernetes: &Kubernetes) -> Result {
    kubernetes.apply(SECURE)?;
    let waits = |pod: Option<&Pod>| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        let states =
            statuses.into_iter().flatten().filter_map(|status| status.state.as_ref()?.waiting.as_ref());
        states.filter_map(|waiting| waiting.message.as_deref()).any(|message| message.contains("tls"))
    };
    kubernetes.wait_for(&pods(kubernetes), "secure", "pod that waits for its Secret", waits)?;
    let made = rcgen::generate_simple_self_signed(["shop.example.com".to_owned()])?;
    let data = json!({ "tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem() });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "tls", "namespace": NAMESPACE },
        "type": "kubernetes.io/tls", "stringData": data,
    });
    kubernetes.apply(&secret.to_string())?;
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
    let log = programs_logs(lab, "stubborn")?;
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
