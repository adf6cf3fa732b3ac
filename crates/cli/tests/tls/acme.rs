//! Certificates that a CA issues: Pebble, which Let's Encrypt tests clients with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use switchback_lab::{Output, Process};

use crate::authority::{Authority, in_an_hour};
use crate::common::{Cluster, PATIENCE, Plan, Result, text, wait_until};
use crate::{NAME, TIMEOUT, change_config, plan};

/// `make test` builds what is there.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools");
/// Seconds that a certificate lives.
const LIFE: u32 = 15;
/// Of the same certificate as [`NAME`].
const OTHER: &str = "www.example.com";
/// A domain for which the CA issues nothing.
const BLOCKED: &str = "blocked.example.com";
/// A domain that leads to where nobody listens.
const ELSEWHERE: &str = "elsewhere.example.com";

/// The key of the account that the CA demands.
const EXTERNAL_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

const DEMANDS: &str = "client_certificates = { mode = \"required\", ca = \"clients.pem\" }";

/// The CA, and the name server that it asks.
struct Ca {
    pebble: Process,
    /// Its address.
    address: String,
    root: PathBuf,
}

impl Ca {
    fn start(cluster: &Cluster) -> Result<Ca> {
        let (client, directory) = (cluster.client(), cluster.lab.directory());
        let (address, vip) = (client.ipv4().to_string(), cluster.lab.vip4().to_string());
        let mut names = Command::new(tool("pebble-challtestsrv")?);
        names.args(["-dnsserver", "127.0.0.1:8053", "-management", "127.0.0.1:8055", "-defaultIPv4", &vip]);
        names.args(["-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]);
        let names = client.spawn("names", names)?;
        client.wait_for_listeners(
            &names,
            &[([127, 0, 0, 1], 8053).into(), ([127, 0, 0, 1], 8055).into()],
            PATIENCE,
        )?;
        let elsewhere = json!({"host": ELSEWHERE, "addresses": [address]}).to_string();
        run(cluster, &["curl", "-sS", "-d", &elsewhere, "http://127.0.0.1:8055/add-a"])?;

        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([address.clone()])?.self_signed(&key)?;
        fs::write(directory.join("pebble.pem"), certificate.pem())?;
        fs::write(directory.join("pebble.key"), key.serialize_pem())?;
        let config = json!({"pebble": {
            "listenAddress": format!("{address}:14000"),
            "managementListenAddress": format!("{address}:15000"),
            "certificate": directory.join("pebble.pem"),
            "privateKey": directory.join("pebble.key"),
            "httpPort": 80,
            "tlsPort": 443,
            "domainBlocklist": [BLOCKED],
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"short": {"description": "for tests", "validityPeriod": LIFE}},
            "externalAccountBindingRequired": true,
            "externalAccountMACKeys": {"kid-1": EXTERNAL_KEY},
        }});
        fs::write(directory.join("pebble.json"), config.to_string())?;
        let mut pebble = Command::new(tool("pebble")?);
        pebble.arg("-config").arg(directory.join("pebble.json")).args(["-dnsserver", "127.0.0.1:8053"]);
        // Each order takes a proof, at once; some answers are that a nonce is bad, as usual.
        pebble.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
        let pebble = client.spawn("pebble", pebble)?;
        let listening = [14000, 15000].map(|port| (client.ipv4(), port).into());
        client.wait_for_listeners(&pebble, &listening, PATIENCE)?;
        let url = format!("https://{address}:15000/roots/0");
        let authority = directory.join("pebble.pem");
        let root = run(cluster, &["curl", "-sS", "--cacert", text(&authority), &url])?;
        fs::write(directory.join("root.pem"), root)?;
        Ok(Ca { pebble, address, root: directory.join("root.pem") })
    }

    /// Number of certificates that it has issued.
    fn issued(&self) -> usize {
        self.pebble.log().matches("Issued certificate serial").count()
    }
}

fn tool(name: &str) -> Result<PathBuf> {
    let path = Path::new(TOOLS).join(name);
    Ok(path
        .canonicalize()
        .map_err(|error| format!("{}: {error}: make target/tools/{name}", path.display()))?)
}

fn run(cluster: &Cluster, words: &[&str]) -> Result<String> {
    Ok(cluster.client().run_within(TIMEOUT, words)?.success()?)
}

/// When the certificate at this node begins, in seconds since 1970; None if it has none.
fn begins(cluster: &Cluster, node: usize) -> Result<Option<u64>> {
    let status = cluster.node_status(node)?;
    let own = status["certificates"].as_array().and_then(|all| all.iter().find(|one| one["name"] == NAME));
    Ok(own.and_then(|own| own["not_before"].as_u64()))
}

/// Waits until these nodes have the same certificate, later than that of `before`.
fn wait_for_certificate(cluster: &Cluster, nodes: &[usize], before: Option<u64>) -> Result<u64> {
    let begin = || nodes.iter().map(|node| begins(cluster, *node)).collect::<Result<Vec<_>>>();
    let same = wait_until("a certificate", TIMEOUT, begin, |begin| {
        begin[0] > before && begin.iter().all(|other| *other == begin[0])
    })?;
    Ok(same[0].expect("it is later than none"))
}

/// Asks for a page, and writes out who has answered.
fn get(cluster: &Cluster, ca: &Ca, client: &Path, url: &str) -> Result<Output> {
    let vip = cluster.lab.vip4();
    let [own, other] = [NAME, OTHER].map(|name| format!("{name}:443:{vip}"));
    let words = ["curl", "-sS", "--max-time", "30", "--cacert", text(&ca.root), "--cert", text(client)];
    let more = ["--resolve", &own, "--resolve", &other, "-o", "/dev/null", "-w", "%header{x-node}", url];
    Ok(cluster.client().run_within(TIMEOUT, [&words[..], &more].concat())?)
}

/// The nodes that answer over as many connections as there are nodes.
fn nodes_that_answer(cluster: &Cluster, ca: &Ca, client: &Path) -> Result<Vec<String>> {
    let urls = [NAME, OTHER, NAME].map(|name| format!("https://{name}/small"));
    let mut nodes = Vec::new();
    for url in urls {
        nodes.push(get(cluster, ca, client, &url)?.success()?);
    }
    nodes.sort();
    Ok(nodes)
}

/// What the first node says of the order of a certificate.
fn order(cluster: &Cluster, domain: &str) -> Result<Value> {
    let status = cluster.node_status(0)?;
    let orders = status["orders"].as_array().ok_or("no orders")?;
    Ok(orders.iter().find(|order| order["certificate"] == domain).cloned().unwrap_or_default())
}

/// The certificate's file at a node.
fn file(cluster: &Cluster, node: usize) -> PathBuf {
    cluster.state_directory(node).join(format!("{NAME}.pem"))
}

#[test]
fn certificates_from_a_ca() -> Result {
    let mut cluster =
        Cluster::prepare(Plan { access_log: Some("path = \"-\"".to_owned()), ..plan(3, DEMANDS) })?;
    // Client certificates do not keep the CA out.
    let clients = Authority::new("clients")?;
    fs::write(cluster.lab.directory().join("clients.pem"), clients.pem()?)?;
    let client = clients.certify(&cluster, "alice", 1, in_an_hour())?;
    let address = cluster.client().ipv4();
    let acme = format!(
        "[acme]\nnode = \"node0\"\nterms_agreed = true\nemail = \"ops@example.com\"\nprofile = \"short\"\n\
         directory = \"https://{address}:14000/dir\"\nca = \"pebble.pem\"\nchallenge = \"tls-alpn-01\"\n\
         external_account_id = \"kid-1\"\nexternal_account_key = \"ca-account.key\"\n\n[limits]"
    );
    fs::write(cluster.lab.directory().join("ca-account.key"), format!("{EXTERNAL_KEY}\n"))?;
    change_config(&cluster, "[limits]", &acme)?;
    let certificates = format!(
        "domains = [{NAME:?}, {OTHER:?}]\n\n[[service.tls.certificate]]\ndomains = [{BLOCKED:?}]\n\n\
         [[service.tls.certificate]]\ndomains = [{ELSEWHERE:?}]"
    );
    change_config(&cluster, "chain = \"shop.pem\"\nkey = \"shop.key\"", &certificates)?;
    let ca = Ca::start(&cluster)?;
    assert_eq!(ca.address, address.to_string());
    // The node that orders begins at once, so it comes last.
    cluster.start_node(1)?;
    cluster.start_node(2)?;
    cluster.start_switch()?;
    // From then on it gets no connections.
    cluster.switch().wait_for_log("node0: not heard since the start", PATIENCE)?;

    // Until there is a certificate the service has one that nobody has signed.
    let unsigned = get(&cluster, &ca, &client, &format!("https://{NAME}/small"))?;
    assert_eq!(unsigned.status.code(), Some(60), "{}", unsigned.stderr);
    cluster.agent(1).wait_for_log(&format!("there is no certificate for {NAME} yet"), PATIENCE)?;
    cluster.start_node(0)?;

    // It dies in the middle, and goes on with its account.
    ca.pebble.wait_for_log("Pulled a task from the Tasks queue", TIMEOUT)?;
    cluster.kill_node(0)?;
    let account = cluster.state_directory(0).join(format!("{address}-14000-dir.account.json"));
    let before = fs::read_to_string(&account)?;
    cluster.start_node(0)?;
    let first = wait_for_certificate(&cluster, &[0, 1, 2], None)?;
    assert_eq!(fs::read_to_string(&account)?, before);
    assert_eq!(nodes_that_answer(&cluster, &ca, &client)?, ["node0", "node1", "node2"]);
    for node in 0..3 {
        let file = file(&cluster, node);
        wait_until("the file", PATIENCE, || Ok(file.exists()), |exists| *exists)?;
        assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    }

    // One that has lost everything gets it from the others.
    let issued = ca.issued();
    cluster.kill_node(2)?;
    fs::remove_dir_all(cluster.state_directory(2))?;
    cluster.start_node(2)?;
    wait_for_certificate(&cluster, &[2, 1, 0], None)?;
    assert!(ca.issued() <= issued + 1, "the node has ordered one");

    // What the CA refuses is told, is not asked for again soon, and is in nobody's way.
    for (domain, why) in [(BLOCKED, "rejectedIdentifier"), (ELSEWHERE, "the CA has found no proof for ")] {
        let failed =
            wait_until("a failed order", TIMEOUT, || order(&cluster, domain), |order| order["failed"] == 1)?;
        let error = failed["error"].as_str().unwrap_or_default();
        assert!(error.contains(why), "{failed}");
        let log = cluster.agent(0).log();
        assert!(log.contains(&format!("no new certificate for {domain}: {error}; tried again in ")), "{log}");
    }

    // It is renewed at all nodes before it ends, now by HTTP, which is redirected to them.
    let second = wait_for_certificate(&cluster, &[0, 1, 2], Some(first))?;
    assert_eq!(nodes_that_answer(&cluster, &ca, &client)?, ["node0", "node1", "node2"]);
    change_config(&cluster, "tls-alpn-01", "http-01")?;
    change_config(&cluster, DEMANDS, "")?;
    let redirect =
        "[[service.route]]\npath = \"/.well-known/acme-challenge/\"\nredirect = { scheme = \"https\" }\n";
    let config = fs::read_to_string(&cluster.config)?;
    fs::write(
        &cluster.config,
        config.replacen("[[service.route]]", &format!("{redirect}\n[[service.route]]"), 1),
    )?;
    for host in [cluster.lab.node(0), cluster.lab.node(1), cluster.lab.node(2), cluster.lab.switch(0)] {
        cluster.run(host, &["reload"])?.success()?;
    }
    let third = wait_for_certificate(&cluster, &[0, 1, 2], begins(&cluster, 0)?.max(Some(second)))?;
    assert!(ca.pebble.log().contains("Attempting to validate w/ HTTP: "), "it has not asked by HTTP");
    assert_eq!(nodes_that_answer(&cluster, &ca, &client)?, ["node0", "node1", "node2"]);
    assert_eq!(order(&cluster, NAME)?["failed"], 0);

    // A CA that is away does no harm.
    ca.pebble.kill()?;
    let failed =
        wait_until("a failed order", TIMEOUT, || order(&cluster, NAME), |order| order["failed"] == 1)?;
    assert!(failed["error"].as_str().unwrap_or_default().contains("refused"), "{failed}");
    for node in 0..3 {
        assert!(begins(&cluster, node)? >= Some(third));
    }
    cluster.down()
}
