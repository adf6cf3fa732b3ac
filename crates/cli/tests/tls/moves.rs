//! Connections that move from node to node at every request of clients of many makes, with downloads and uploads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;
use switchback_lab::Signal;

use crate::clients::go_client;
use crate::common::browser::Browser;
use crate::common::http::add_long_document;
use crate::common::{Cluster, PATIENCE, Plan, Result, load, said_by, text, traces, wait_until};
use crate::{Connection, NAME, PYTHON, TIMEOUT, authority, curl, program, tls_status, url};

/// Why connections move.
struct Model {
    /// Of `[service.tls]`.
    lines: &'static str,
    /// Whether requests for paths under `/img/` are for another node than the others. Otherwise all connections begin at the
    /// first node, which is busy.
    alternates: bool,
    /// What nodes count.
    counted: [&'static str; 2],
}

const MOVES: [&str; 2] = ["given", "taken"];
const RELAYS: [&str; 2] = ["requests_given", "requests_taken"];

const MODELS: [Model; 4] = [
    Model { lines: "sessions = \"round-robin\"", alternates: true, counted: MOVES },
    Model { lines: "sessions = \"session\"", alternates: true, counted: MOVES },
    Model { lines: "sessions = \"forwarding\"", alternates: true, counted: MOVES },
    Model {
        lines: "sessions = \"forwarding\"\nhand_over = \"relay\"\nbusy_connections = 2\nbusy_cpu = \"100%\"",
        alternates: false,
        counted: RELAYS,
    },
];

/// Mebibytes of what is long: more than all buffers on the way hold.
fn long_mebibytes() -> usize {
    load(24, 100)
}
const LONG_DOCUMENT: &str = "/img/long";
const SHORT_DOCUMENT: &str = "/img/1m";

/// What fetches and sends.
enum Client {
    /// It is told the VIP, the authority's file and the list, and says how many requests it has made.
    Program(Vec<String>),
    Curl,
    Chromium,
}

/// One request.
struct Transfer {
    method: &'static str,
    path: String,
    /// The document that must come, or that is sent.
    document: &'static str,
}

impl Transfer {
    fn get(document: &'static str) -> Transfer {
        Transfer { method: "GET", path: document.to_owned(), document }
    }

    fn put(path: String, document: &'static str) -> Transfer {
        Transfer { method: "PUT", path, document }
    }
}

/// Requests that go to the one node and to the other in turn; nothing is uploaded twice to the same `place`.
fn transfers(place: usize, long_download: bool, long_upload: bool) -> Vec<Transfer> {
    let document = |long| if long { LONG_DOCUMENT } else { SHORT_DOCUMENT };
    vec![
        Transfer::get("/small"),
        Transfer::get(document(long_download)),
        Transfer::put(format!("/put-{place}"), document(long_upload)),
        Transfer::put(format!("/img/put-{place}"), "/1m"),
        Transfer::get("/1m"),
        Transfer::get("/img/small"),
    ]
}

fn clients() -> Result<Vec<(String, Client)>> {
    let words = |words: &[&str]| Client::Program(words.iter().map(|word| (*word).to_owned()).collect());
    let openssl = |version: &str, option: &str, suite: &str| {
        (format!("openssl {suite}"), words(&[PYTHON, &program("s_client.py"), version, option, suite]))
    };
    let (go, node) = (go_client()?, program("fetch.js"));
    Ok(vec![
        ("curl".to_owned(), Client::Curl),
        openssl("-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"),
        openssl("-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"),
        openssl("-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"),
        openssl("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        openssl("-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        openssl("-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("Go".to_owned(), words(&[text(&go), "HTTP/1.1"])),
        ("Python".to_owned(), words(&[PYTHON, &program("fetch.py"), "requests"])),
        ("Node".to_owned(), words(&["node", &node, "https-alone"])),
        ("Chromium".to_owned(), Client::Chromium),
    ])
}

/// As the model wants it.
fn plan(model: &Model) -> Plan {
    let (policy, pools) = if model.alternates {
        ("round-robin", vec![("web", vec![0]), ("img", vec![1])])
    } else {
        ("fill", vec![("web", vec![0, 1])])
    };
    Plan {
        policy,
        pools,
        // Without a type for the page Chromium would not show it.
        server_extra: "types { text/html html; }
            dav_methods PUT; create_full_put_path on; client_max_body_size 0;",
        // And it would speak HTTP/2.
        tls: Some(format!("protocols = [\"http/1.1\"]\n{}", model.lines)),
        ..Plan::default()
    }
}

/// Every client, every direction and every model has a long transfer.
#[test]
fn connections_move_at_every_request() -> Result {
    const PAGE: &[u8] = b"<!DOCTYPE html><title>page</title><link rel=icon href=data:,>";
    let clients = clients()?;
    let cluster = Cluster::start_with(plan(&MODELS[0]))?;
    add_long_document(&cluster.lab, LONG_DOCUMENT, long_mebibytes())?;
    cluster.lab.add_document("page.html", PAGE)?;
    let mut sealed_before = 0;
    for (row, model) in MODELS.iter().enumerate() {
        cluster.write_config(&plan(model))?;
        for host in cluster.lab.nodes().chain(cluster.lab.switches()) {
            cluster.run(host, &["reload"])?.success()?;
        }
        let mut idle = if model.alternates { None } else { Some(make_busy(&cluster)?) };
        for (column, (name, client)) in clients.iter().enumerate() {
            if let Some(idle) = &mut idle {
                wait_for_the_second_node(idle)?;
            }
            let has_turn = (row + column) % MODELS.len() == 0;
            let is_long = |direction| load(false, true) || has_turn && column % 2 == direction;
            let transfers = transfers(column, is_long(0), is_long(1));
            let moved = moves(&cluster, model, client, &transfers);
            moved.map_err(|error| format!("{name}, {}: {error}", model.lines))?;
        }
        // What another node encrypts no kernel does.
        let sealed = sealed_by_kernel(&cluster)?;
        let expected = if model.alternates { has_ktls()? } else { false };
        assert_eq!(sealed - sealed_before > 0, expected, "{}: {sealed_before} to {sealed}", model.lines);
        sealed_before = sealed;
    }
    cluster.down()
}

/// Long downloads on a connection that moves between them, and to a client that reads slowly.
#[test]
#[ignore = "needs a kernel with kTLS: make test-kernels"]
fn the_kernel_moves_what_it_encrypts() -> Result {
    let cluster = Cluster::start_with(plan(&MODELS[0]))?;
    add_long_document(&cluster.lab, LONG_DOCUMENT, 8)?;
    let options = ["s_client.py", "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    let words = [PYTHON.to_owned(), program(options[0])].into_iter();
    let words = words.chain(options[1..].iter().map(|option| (*option).to_owned()));
    let paths = ["/small", LONG_DOCUMENT, "/1m", LONG_DOCUMENT, "/small", "/img/small"];
    moves(&cluster, &MODELS[0], &Client::Program(words.collect()), &paths.map(Transfer::get))?;
    let got = cluster.lab.directory().join("got");
    let url = url(LONG_DOCUMENT);
    let slow = ["--http1.1", "--tls-max", "1.2", "--limit-rate", "2M", "--fail", "-o", text(&got), &url];
    curl(&cluster, &slow)?;
    check_same(&got, &document(&cluster, LONG_DOCUMENT))?;
    let [sealed, spliced] = sums(&cluster, ["kernel", "spliced"])?;
    assert!(sealed >= 2 && spliced >= 3, "{sealed} connections, {spliced} responses");
    cluster.down()
}

/// How many connections the kernels of the nodes have encrypted.
fn sealed_by_kernel(cluster: &Cluster) -> Result<u64> {
    let [sealed] = sums(cluster, ["kernel"])?;
    Ok(sealed)
}

/// Whether the kernel has kTLS, of which the agents' first use has loaded the module.
fn has_ktls() -> Result<bool> {
    let protocols = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp")?;
    Ok(protocols.split_whitespace().any(|name| name == "tls"))
}

/// Connections that the first node has, of which it has too many as long as they are kept.
fn make_busy(cluster: &Cluster) -> Result<[Connection; 3]> {
    Ok([Connection::open(cluster)?, Connection::open(cluster)?, Connection::open(cluster)?])
}

/// None is silent for so long that it ends, and the first node hears how little the other one has to do.
fn wait_for_the_second_node(idle: &mut [Connection; 3]) -> Result {
    for connection in idle {
        let answer = || connection.ask("get /small");
        wait_until("the second node's answer", PATIENCE, answer, |answer| answer.contains(" node1 "))?;
    }
    Ok(())
}

/// Has the client make the requests and sees whether the right bytes have come, on one connection that has moved.
fn moves(cluster: &Cluster, model: &Model, client: &Client, transfers: &[Transfer]) -> Result {
    let is_chromium = matches!(client, Client::Chromium);
    let counted = || counted(cluster, model);
    let before = wait_until("the end of other moves", PATIENCE, counted, |[given, taken]| given == taken)?;
    let opened = cluster.client().count("tcp dport 443 tcp flags & (syn | ack) == syn")?;
    match client {
        Client::Program(words) => run_program(cluster, words, transfers)?,
        Client::Curl => run_curl(cluster, transfers)?,
        Client::Chromium => run_chromium(cluster, transfers)?,
    }
    // Chromium opens connections as it likes.
    if !is_chromium {
        assert_eq!(opened.from_host()?.packets, 1, "connections");
    }
    for put in transfers.iter().filter(|transfer| transfer.method == "PUT") {
        check_upload(cluster, put)?;
    }
    let now = || -> Result<[u64; 2]> {
        let now = counted()?;
        Ok([0, 1].map(|index| now[index] - before[index]))
    };
    // The first request of an alternating list is for the node that has the connection.
    let least = transfers.len() as u64 - u64::from(model.alternates);
    let is_right = |count: u64| count == least || is_chromium && count > least;
    wait_until("moves", PATIENCE, now, |[given, taken]| given == taken && is_right(*given))?;
    Ok(())
}

/// How much nodes have given and taken.
fn counted(cluster: &Cluster, model: &Model) -> Result<[u64; 2]> {
    sums(cluster, model.counted)
}

/// What both nodes have counted together.
fn sums<const N: usize>(cluster: &Cluster, keys: [&str; N]) -> Result<[u64; N]> {
    let nodes = [tls_status(cluster, 0)?, tls_status(cluster, 1)?];
    Ok(keys.map(|key| nodes.iter().filter_map(|node| node[key].as_u64()).sum()))
}

fn document(cluster: &Cluster, path: &str) -> PathBuf {
    cluster.lab.directory().join("documents").join(path.trim_start_matches('/'))
}

/// One node has it, whole.
fn check_upload(cluster: &Cluster, put: &Transfer) -> Result {
    let roots = cluster.lab.directory().join("roots");
    let at = |node: &str| roots.join(node).join(put.path.trim_start_matches('/'));
    let arrived: Vec<PathBuf> = ["node0", "node1"].map(at).into_iter().filter(|path| path.exists()).collect();
    let [arrived] = &arrived[..] else { return Err(format!("{}: it is in {arrived:?}", put.path).into()) };
    check_same(arrived, &document(cluster, put.document))?;
    Ok(fs::remove_file(arrived)?)
}

fn check_same(one: &Path, other: &Path) -> Result {
    said_by(Command::new("cmp").args([one, other])).map(drop)
}

fn run_program(cluster: &Cluster, words: &[String], transfers: &[Transfer]) -> Result {
    let line = |transfer: &Transfer| {
        let Transfer { method, path, document } = transfer;
        format!("{method} {} {}\n", url(path), self::document(cluster, document).display())
    };
    let list = cluster.lab.directory().join("transfers");
    fs::write(&list, transfers.iter().map(line).collect::<String>())?;
    let (vip, authority) = (cluster.lab.vip4().to_string(), authority(cluster));
    let words: Vec<&str> = words.iter().map(String::as_str).chain([&*vip, &authority, text(&list)]).collect();
    let said = cluster.client().run_within(TIMEOUT, words)?.success()?;
    if said.trim() == transfers.len().to_string() { Ok(()) } else { Err(format!("it says {said}").into()) }
}

fn run_curl(cluster: &Cluster, transfers: &[Transfer]) -> Result {
    let got = |index: usize| cluster.lab.directory().join(format!("got-{index}"));
    let mut config = String::new();
    for (index, Transfer { method, path, document }) in transfers.iter().enumerate() {
        let document = self::document(cluster, document);
        if *method == "PUT" {
            config += &format!("upload-file = \"{}\"\n", document.display());
        }
        config += &format!("url = \"{}\"\noutput = \"{}\"\nfail\n", url(path), got(index).display());
        config += &format!("cacert = \"{}\"\nnext\n", authority(cluster));
    }
    let path = cluster.lab.directory().join("transfers");
    fs::write(&path, config.strip_suffix("next\n").unwrap_or(&config))?;
    curl(cluster, &["-K", text(&path)])?;
    for (index, transfer) in transfers.iter().enumerate().filter(|(_, transfer)| transfer.method == "GET") {
        check_same(&got(index), &document(cluster, transfer.document))?;
    }
    Ok(())
}

/// What it sends it fetches first.
fn run_chromium(cluster: &Cluster, transfers: &[Transfer]) -> Result {
    const SCRIPT: &str = "(async () => {
        const get = async (path) => await (await fetch(path, { cache: 'no-store' })).arrayBuffer();
        if (METHOD === 'PUT') {
            return (await fetch(PATH, { method: METHOD, body: await get(DOCUMENT) })).status;
        }
        const digest = await crypto.subtle.digest('SHA-256', await get(PATH));
        return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
    })()";
    let resolve = format!("--host-resolver-rules=MAP {NAME} {}", cluster.lab.vip4());
    let profile = cluster.lab.directory().join("chromium");
    let options = ["--ignore-certificate-errors", &resolve];
    let mut browser = Browser::start_with(cluster.client().command("sh"), &profile, &options)?;
    browser.open(&url("/page.html"))?;
    for Transfer { method, path, document } in transfers {
        let script = [("METHOD", *method), ("PATH", path), ("DOCUMENT", document)];
        let script = script
            .iter()
            .fold(SCRIPT.to_owned(), |script, (name, value)| script.replace(name, &format!("{value:?}")));
        let said = browser.eval(&script)?;
        let right = if *method == "PUT" {
            said == 201
        } else {
            let sum = said_by(Command::new("sha256sum").arg(self::document(cluster, document)))?;
            said == Value::from(sum.split(' ').next())
        };
        if !right {
            return Err(format!("{method} {path}: {said}").into());
        }
    }
    browser.close()
}

/// A process that uses a CPU as long as it is not dropped.
struct Hog(Child);

impl Hog {
    fn start() -> Result<Hog> {
        Ok(Hog(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Every request takes its connection along, while other processes keep all cores busy.
#[test]
fn no_move_of_many_on_one_connection_is_lost() -> Result {
    let count: u64 = load(300, 100_000);
    let cluster = Cluster::start_with(plan(&MODELS[0]))?;
    let _hogs = [Hog::start()?, Hog::start()?];
    let (vip, authority) = (cluster.lab.vip4().to_string(), authority(&cluster));
    let words = [PYTHON, &program("alternate.py"), &vip, &authority, &count.to_string(), "40"];
    let said = cluster.client().run_within(Duration::from_secs(1800), words)?.success()?;
    println!("{said}");
    let said: Value = serde_json::from_str(&said)?;
    assert_eq!(said["answered"], count, "{said}");
    let now = || counted(&cluster, &MODELS[0]);
    wait_until("moves", PATIENCE, now, |[given, taken]| *given == count - 1 && given == taken)?;
    cluster.down()
}

/// Connections that are used move to the other node; an idle one is closed with the agent, which leaves nothing for it.
#[test]
fn connections_leave_an_agent_that_is_told_to_end() -> Result {
    let pools = vec![("web", vec![0, 1])];
    let plan = Plan { tls: Some(String::new()), policy: "fill", pools, ..Plan::default() };
    let mut cluster = Cluster::start_with(plan)?;
    let (mut used, mut idle) = (Connection::open(&cluster)?, Connection::open(&cluster)?);
    for connection in [&mut used, &mut idle] {
        let answer = connection.ask("get /small")?;
        assert!(answer.starts_with("200 node0 "), "{answer}");
    }
    let agent = cluster.agent(0).clone();
    agent.signal(Signal::SIGTERM)?;
    agent.wait_for_log("told to end: node node0 drains", PATIENCE)?;
    let answer = used.ask("get /small")?;
    assert!(answer.starts_with("200 node1 "), "{answer}");
    let ended = agent.wait_timeout(PATIENCE)?.ok_or("the agent does not end")?;
    let log = agent.log();
    assert!(ended.success() && log.contains("no other node has taken are closed: 1\n"), "{log}");
    let left = traces::of(cluster.lab.node(0))?;
    assert!(left.is_empty(), "{left:#?}");
    let answer = used.ask("get /small")?;
    assert!(answer.starts_with("200 node1 "), "{answer}");
    drop((used, idle));
    cluster.start_node(0)?;
    cluster.down()
}
