//! What the switch answers itself arrives whole and in its turn, and the connection ends in order: FIN from
//! both sides, no RST.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use common::cluster::TLS_NAME;
use common::responses::{End, Responses};
use common::{Cluster, PATIENCE, Plan, Result, text, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use switchback_lab::Impairment;

/// Twice the longest wait of a client whose packets are lost four times in a row.
const TIMEOUT: Duration = Duration::from_secs(30);
const LIMITS: &str = "head = \"1KiB\"\nbody = \"1KiB\"\nhead_timeout = \"600ms\"\nwait_timeout = \"400ms\"";
const ROUTES: &str = "
[[service.route]]
host = \"old.example.com\"
redirect = { host = \"www.example.com\", status = 308 }

[[service.route]]
path = \"/moved\"
redirect = { scheme = \"https\", path = \"/here\" }

[[service.route]]
path = \"/upload\"
pool = \"web\"

[[service.route]]
path = \"/long\"
pool = \"web\"
";
/// Long enough to be on its way when the next request comes.
const LONG: usize = 2 << 20;
/// Likewise, where a fifth of all packets is lost.
const LONG_WITH_LOSS: usize = 32 << 10;

/// A request that the switch answers itself.
struct Case {
    request: String,
    status: u16,
    /// A field that the answer must have.
    field: Option<(&'static str, &'static str)>,
    /// A part of the body.
    says: &'static str,
}

fn case(request: &str, status: u16, says: &'static str) -> Case {
    Case { request: request.to_owned(), status, field: None, says }
}

fn cases() -> Vec<Case> {
    let long = "y".repeat(1100);
    let retry = Some(("Retry-After", "1"));
    let here = Some(("Location", "https://old.example.org/here?b=c"));
    let www = Some(("Location", "http://www.example.com/a?b=c"));
    let requests = [
        case("GET /small HTTP/1.1\nHost: a\r\n\r\n", 400, "Reason: bare_lf."),
        case("GET /none HTTP/1.1\r\nHost: a\r\n\r\n", 404, "No route"),
        case("GET /small HTTP/1.1\r\nHo", 408, "did not arrive in time"),
        case(
            "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\nabc",
            413,
            "Reason: body_too_long.",
        ),
        case(
            "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\nExpect: 100-continue\r\n\r\n",
            413,
            "Reason: body_too_long.",
        ),
        case(
            "POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3fe\r\nabc",
            413,
            "Reason: body_too_long.",
        ),
        case(&format!("GET /small HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"), 431, "Reason: head_too_long."),
        case("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 501, "Reason: connect."),
        Case { field: retry, ..case("GET /img/small HTTP/1.1\r\nHost: a\r\n\r\n", 503, "No server") },
        case("GET /small HTTP/2.2\r\nHost: a\r\n\r\n", 505, "Reason: unsupported_version."),
        Case {
            field: here,
            ..case(
                "GET /moved/x?b=c HTTP/1.1\r\nHost: old.example.org\r\n\r\n",
                301,
                "https://old.example.org/here",
            )
        },
        Case {
            field: www,
            ..case("GET /a?b=c HTTP/1.1\r\nHost: old.example.com\r\n\r\n", 308, "http://www.example.com/a")
        },
    ];
    // The same with HEAD, where the method does not matter.
    let heads = requests.iter().filter(|case| case.request.starts_with("GET ") && case.status != 408);
    let heads: Vec<Case> = heads
        .map(|case| Case { request: case.request.replacen("GET", "HEAD", 1), says: "", ..*case })
        .collect();
    requests.into_iter().chain(heads).collect()
}

/// What the connection has seen before.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    /// Two requests, served.
    Served,
    /// Two requests, and no wait for their responses.
    Pipelined,
}

/// One pool that serves, another whose server is gone, and no route for everything.
fn start() -> Result<Cluster> {
    let plan = Plan {
        limits: LIMITS,
        routes: ROUTES,
        node_extra: vec![(0, "dav_methods PUT; client_max_body_size 0;")],
        ..Plan::default()
    };
    let mut cluster = Cluster::prepare(plan)?;
    let all = cluster.plan.config(&cluster.lab);
    let last = all.rfind("pool = \"web\"").ok_or("the last route takes everything")?;
    cluster.lab.write_config_text(&format!("{}path = \"/small\"\n{}", &all[..last], &all[last..]))?;
    let pid_file = cluster.lab.node(1).directory().join("nginx-80/nginx.pid");
    kill(Pid::from_raw(fs::read_to_string(pid_file)?.trim().parse()?), Signal::SIGTERM)?;
    cluster.start_node(0)?;
    cluster.start_node(1)?;
    cluster.start_switch()?;
    Ok(cluster)
}

fn converse(cluster: &Cluster, case: &Case, before: Before, v6: bool, long: &[u8]) -> Result {
    let vip = if v6 { cluster.lab.vip6().into() } else { cluster.lab.vip4().into() };
    let mut stream = cluster.client().tcp_connect(SocketAddr::new(vip, 80), TIMEOUT)?;
    stream.set_nodelay(true)?;
    let mut responses = Responses::new(&stream, TIMEOUT)?;
    let served: &[(&str, &[u8])] = match before {
        Before::Nothing => &[],
        _ => &[("/small", &[b'.'; 100]), ("/long", long)],
    };
    let gets: String =
        served.iter().map(|(path, _)| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    if matches!(before, Before::Pipelined) {
        stream.write_all(&[gets.as_bytes(), case.request.as_bytes()].concat())?;
    } else {
        stream.write_all(gets.as_bytes())?;
    }
    for (path, body) in served {
        let response = responses.next(false)?.ok_or("the connection ends before its time")?;
        if response.status != 200 || response.body != *body {
            return Err(format!("{path}: {} {} bytes", response.head, response.body.len()).into());
        }
    }
    if !matches!(before, Before::Pipelined) {
        stream.write_all(case.request.as_bytes())?;
    }
    let is_head = case.request.starts_with("HEAD ");
    let answer = responses.next(is_head)?.ok_or("no answer")?;
    let has_field = case.field.is_none_or(|(name, value)| answer.field(name) == Some(value));
    let len: usize = answer.field("Content-Length").ok_or("no length")?.parse()?;
    let whole = if is_head { len > 0 && answer.body.is_empty() } else { len == answer.body.len() };
    let closes = answer.field("Connection") == Some("close") && answer.field("X-Node").is_none();
    if answer.status != case.status || !has_field || !whole || !closes || !answer.text().contains(case.says) {
        return Err(format!("{answer:?}").into());
    }
    match responses.rest()? {
        (rest, End::Closed) if rest.is_empty() => Ok(()),
        rest => Err(format!("after the answer: {rest:?}").into()),
    }
}

/// All cases in all places, over both families.
fn answered(cluster: &Cluster, long: usize, at_once: usize) -> Result {
    let long = vec![b'l'; long];
    cluster.lab.add_document("long", &long)?;
    let client = cluster.client();
    let ends = client.count("tcp flags & fin == fin")?;
    let cases = cases();
    let mut tries = Vec::new();
    for case in &cases {
        for before in [Before::Nothing, Before::Served, Before::Pipelined] {
            tries.extend([false, true].map(|v6| (case, before, v6)));
        }
    }
    let count = tries.len() as u64;
    let mut expected = BTreeMap::<String, u64>::new();
    for (case, ..) in &tries {
        *expected.entry(case.status.to_string()).or_default() += 1;
    }
    let next = Mutex::new(tries.into_iter());
    let work = || {
        let take = || next.lock().expect("nobody panics with it").next();
        let attempt = |(case, before, v6): (&Case, Before, bool)| {
            let tried = converse(cluster, case, before, v6, &long);
            tried.err().map(|error| format!("{:?} {before:?}, IPv6 {v6}: {error}", case.request))
        };
        std::iter::from_fn(take).filter_map(attempt).collect::<Vec<_>>()
    };
    let failed: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no worker panics")).collect()
    });
    let status = cluster.switch_status()?;
    assert!(failed.is_empty(), "{failed:#?}\n{status:#}");
    assert_eq!(status["dispatch"]["answered"], serde_json::json!(expected));
    // Nobody has to be given up.
    wait_until("flows", PATIENCE, || cluster.flows(), |flows| *flows == 0)?;
    let dispatch = cluster.switch_status()?["dispatch"].clone();
    assert_eq!(dispatch["pending"], 0);
    let (from, to) = (ends.from_host()?.packets, ends.to_host()?.packets);
    println!("{count} answers, FINs: {from} of the client, {to} to it");
    assert!(from >= count && to >= count, "{from} and {to} FINs for {count} connections");
    Ok(())
}

/// While this is done, the client gets no RST but for what it sends again of connections that are over, as it does when the
/// machine is busy.
fn without_resets(cluster: &Cluster, work: impl FnOnce() -> Result) -> Result {
    let host = cluster.client();
    let (resets, before) = (host.count("tcp flags & rst == rst")?, host.tcp_counter("RetransSegs")?);
    work()?;
    let (resets, again) = (resets.to_host()?.packets, host.tcp_counter("RetransSegs")? - before);
    assert!(resets <= again, "{resets} RSTs to the client, which has sent {again} packets again");
    Ok(())
}

#[test]
fn answers_arrive_in_their_turn() -> Result {
    let cluster = start()?;
    without_resets(&cluster, || answered(&cluster, LONG, 16))?;
    cluster.down()
}

#[test]
fn answers_arrive_where_every_tenth_packet_is_lost() -> Result {
    let cluster = start()?;
    let impaired =
        cluster.client().impair(Impairment { loss_permille: 100, seed: 11, ..Impairment::default() })?;
    answered(&cluster, LONG_WITH_LOSS, 64)?;
    // A last acknowledgment that is lost often enough ends in a RST, when the client has long had all.
    let (from, to) = (impaired.from_host(), impaired.to_host());
    assert!(from.lost > 50 && to.lost > 50, "{from:?} {to:?}");
    impaired.heal()?;
    cluster.down()
}

/// As curl shows it: its words for a request, and what it must say of the answer.
#[test]
fn answers_are_what_curl_takes() -> Result {
    let cluster = start()?;
    let upload = cluster.lab.directory().join("upload");
    fs::write(&upload, [b'u'; 300_000])?;
    let data = format!("@{}", text(&upload));
    let long = format!("X: {}", "y".repeat(1100));
    let www = "http://www.example.com/small";
    let chunked = "Transfer-Encoding: chunked";
    let rows: &[(&str, &[&str], &str)] = &[
        ("/none", &[], "404 "),
        ("/none", &["--head"], "404 "),
        ("/small", &["-H", "Host: old.example.com"], &format!("308 {www}")),
        ("/small", &["-H", "Host: old.example.com", "--head"], &format!("308 {www}")),
        ("/moved", &["-H", "Host: a"], "301 https://a/here"),
        ("/img/small", &[], "503 "),
        ("/small", &["-H", &long], "431 "),
        ("/small", &["-H", "Content-Length: 5", "-H", chunked, "--data", "hello"], "400 "),
        ("/upload", &["--data-binary", &data], "413 "),
        ("/upload", &["--data-binary", &data, "-H", "Expect: 100-continue"], "413 "),
        ("/upload", &["-T", text(&upload), "-H", "Expect:"], "413 "),
        ("/upload", &["-T", text(&upload), "-H", chunked, "-H", "Expect:"], "413 "),
        ("/upload", &["-T", text(&upload), "-H", chunked, "-H", "Expect: 100-continue"], "413 "),
    ];
    without_resets(&cluster, || {
        for v6 in [false, true] {
            let url = |path: &str| if v6 { cluster.url6(path) } else { cluster.url4(path) };
            for (path, options, expected) in rows {
                // Alone, and on a connection that has served a request.
                for first in [false, true] {
                    let (small, url) = (url("/small"), url(path));
                    let before: &[&str] =
                        if first { &["-s", "-o", "/dev/null", &small, "--next"] } else { &[] };
                    let asked = ["-sS", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}\\n"];
                    let words = [&["curl"], before, &asked, *options, &[&url]].concat();
                    let said = cluster.client().run(&words)?.success();
                    let said = said.map_err(|error| format!("{path} {options:?}, first {first}: {error}"))?;
                    assert_eq!(said, format!("{expected}\n"), "{path} {options:?}, first {first}, IPv6 {v6}");
                }
            }
        }
        Ok(())
    })?;
    wait_until("flows", PATIENCE, || cluster.flows(), |flows| *flows == 0)?;
    cluster.down()
}

/// A client of a port that has no service hears so at once.
#[test]
fn a_port_without_a_service_refuses() -> Result {
    let cluster = Cluster::start()?;
    for vip in [cluster.lab.vip4().into(), cluster.lab.vip6().into()] {
        let refused = cluster.client().tcp_connect(SocketAddr::new(vip, 81), PATIENCE);
        let error = refused.err().ok_or("there is a service")?.to_string();
        assert!(error.contains("Connection refused"), "{vip}: {error}");
    }
    assert_eq!(cluster.switch_counter("no_service")?, 2);
    cluster.down()
}

/// The client is in 192.0.2.0/24.
#[test]
fn a_route_answers_clients_of_other_networks_with_its_status() -> Result {
    let routes = "
[[service.route]]
path = \"/here/\"
not = { client = \"192.0.2.0/24\" }
respond = 403

[[service.route]]
path = \"/there/\"
not = { client = \"198.51.100.0/24\" }
respond = 451
";
    let plan = Plan { routes, tls: Some(String::new()), server_logs: true, ..Plan::default() };
    let cluster = Cluster::start_with(plan)?;
    let authority = cluster.lab.directory().join("shop.pem").display().to_string();
    let vip = cluster.lab.vip4();
    let status = |url: &str, more: &[&str]| {
        let resolve = format!("{TLS_NAME}:443:{vip}");
        let words = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &authority];
        let words = words.into_iter().chain(["--resolve", &resolve]).chain(more.iter().copied()).chain([url]);
        cluster.client().run(words)?.success()
    };
    let secure = format!("https://{TLS_NAME}");
    for (base, more) in
        [(format!("http://{vip}"), &[][..]), (secure.clone(), &["--http1.1"]), (secure, &["--http2"])]
    {
        assert_eq!(
            status(&format!("{base}/here/small"), more)?,
            "404",
            "the server's answer: {base} {more:?}"
        );
        assert_eq!(status(&format!("{base}/there/small"), more)?, "451", "{base} {more:?}");
    }
    assert!(!cluster.server_log(0)?.contains("/there/"), "no server is asked");
    cluster.down()
}
