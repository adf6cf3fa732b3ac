//! Any text as `cluster.toml`: it is a cluster or a list of mistakes that stand in the text, and no difference
//! between two clusters goes unsaid.

#[allow(dead_code)] // Another test uses all of it.
mod common;
#[path = "../../wire/tests/fuzzing/mod.rs"]
mod fuzzing;
mod plain;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use bolero::{TypeGenerator, check};
use common::{GOOD, good, read};
use fuzzing::Input;
use switchback_config::{
    Action, Balance, CertificateFiles, CertificateSource, Check, Checked, ClientCertificates, Cluster,
    Conditions, Delegate, Document, Error, HandOver, HashKey, InsertedCookie, Model, Outliers, Persistence,
    PersistenceMode, PolicyKind, Pool, Protocol, Resume, Route, SameSite, Server, Service, TlsMode, WEIGHTS,
};

/// More of what a file can have.
const RICH: &str = r#"
[limits]
head = "16KiB"
fields = 100
body = "1GiB"
head_timeout = "10s"
wait_timeout = "1m 30s"
waiting = 1024
held_per_flow = "64KiB"
held_per_source = "1MiB"
held = "64MiB"

[reports]
interval = "50ms"
suspect_after = 3
dead_after = 20

[access_log]
path = "/var/log/switchback/access.log"
format = "combined"
lines_per_second = 5000

[admin]
listen = "127.0.0.1:9180"
hosts = ["lb.example.com"]

[[node]]
name = "n3"
address = "192.0.2.23"
weight = 0
zone = "rack-1"
drain = true
hidden = true
tunnel = true
server = ["127.0.0.1:8080", "[::1]:8080"]

[dns]
servers = ["192.0.2.53", "[2001:db8::53]:5353"]
hold = "1m"

[[pool]]
name = "api"
nodes = ["n3", "n1"]
nodes_from = "dns:api.example.com:8080"
policy = "hash"
balance = "connection"
hash = "header X-User"
slow_start = "30s"
queue_limit = "80%"

[pool.health]
path = "/healthz"
host = "www.example.com"
status = ["200-299", "304"]
interval = "2s"
timeout = "1s"
rise = 2
fall = 3

[pool.outliers]
failures = 7
time = "10s"
max_time = "20s"
max_share = "40%"

[pool.persistence]
mode = "insert"
cookie = "sid"
sticky = "strict"
path = "/api"
domain = "example.com"
secure = true
http_only = false
same_site = "none"
max_age = "1h"

[[pool]]
name = "batch"
nodes = ["n1", "n3"]
nodes_from = "dns:batch.example.com"
policy = "random"
balance = "request"
queue_limit = "off"
health = { timeout = "250ms" }

[pool.persistence]
mode = "rewrite"
cookie = "PHPSESSID"

[[pool]]
name = "files"
nodes = ["n1"]
policy = "latency"
delegate = { above = "32KiB" }
persistence.mode = "hash"
persistence.hash = "path"

[[pool]]
name = "bulk"
nodes = ["n2", "n1"]
policy = "two-choices"
second_candidate = true
delegate = "25%"

[[service]]
name = "old"
listen = ["192.0.2.101:80"]

[[service.route]]
host = "api.example.com"
pool = "api"

[[service.route]]
host = "batch.example.com"
pool = "batch"

[[service.route]]
host = "*.example.com"
method = "GET"
redirect = { scheme = "https", host = "www.example.com", port = 8443, path = "/new", status = 308 }

[[service.route]]
header = { name = "X-Old" }
redirect = { path = "/old" }

[[service]]
name = "secret"
listen = ["192.0.2.101:443"]

[service.tls]
server = "127.0.0.1:8080"
sessions = "forwarding"
hand_over = "relay"
tickets = "cluster"
protocols = ["http/1.1", "h2"]
min_version = "1.3"
client_address = "proxy"
client_certificates = { mode = "optional", ca = "clients.pem", crl = "/etc/tls/clients.crl" }
busy_connections = 7
busy_cpu = "90%"

[[service.tls.certificate]]
chain = "shop.pem"
key = "shop.key"

[[service.tls.certificate]]
chain = "/etc/tls/old.pem"
key = "/etc/tls/old.key"
staple = "old.ocsp"

[[service.route]]
alpn = "h2"
pool = "web"
rewrite = { host = "web.example.com", path = "/new" }
request_header = { set = { name = "X-Set", value = "1" }, add = [{ name = "X-Add", value = "a b" }], remove = ["X-Old"] }

[[service.route]]
path = "/api/"
pool = "web"
rewrite = { prefix = "/v2" }

[[service.route]]
header = { name = "X-Old" }
alpn = ["http/1.1", "h2"]
redirect = { port = 8443 }

[[service]]
name = "passed"
listen = ["192.0.2.102:443"]

[service.tls]
passthrough = true

[[service.route]]
host = "*.example.com"
alpn = "h2"
pool = "web"

[[client]]
network = "198.51.100.0/24"

[[client]]
network = "2001:db8:1::/48"

[[switch]]
name = "n1"

[[switch]]
name = "s1"
services = ["old", "shop", "secret", "passed"]
"#;

const PIECES: &[&[u8]] = &[
    b"\"",
    b"\n",
    b" = ",
    b"[[",
    b"]]",
    b"{",
    b", ",
    b"\\u0000",
    b"\xc3\xa9",
    b"0",
    b"1KiB",
    b"1.5GiB",
    b"18446744073709551615B",
    b"1m 30s",
    b"100ms",
    b"1ns",
    b"-1s",
    b"\"GET\"",
    b"\"A|B\"",
    b"\"A\", \"B\"",
    b"\"n2\", ",
    b"[::1]",
    b"*.",
    b"_",
    b"\n[[service.route]]\npool = \"web\"\n",
    b"\n[[pool]]\nname = \"img\"\nnodes = [\"n2\"]\npolicy = \"round-robin\"\n",
    b"\nredirect = { scheme = \"https\" }\n",
    b"\nweight = 7\n",
    b"\nzone = \"none\"\n",
    b"\ndrain = true\n",
    b"\nqueue_limit = \"off\"\n",
    b"\nhidden = true\n",
    b"\ntunnel = true\n",
    b"\nserver = \"127.0.0.1:8080\"\n",
    b"\n[[client]]\nnetwork = \"10.0.0.0/8\"\n",
    b"\ndelegate = \"none\"\n",
    b"\ndelegate = { above = \"1GiB\" }\n",
    b"\n[[switch]]\nname = \"n2\"\n",
    b"\nservices = [\"shop\"]\n",
    b"\nhash = \"path\"\n",
    b"\nhealth = { path = \"/\" }\n",
    b"\n[pool.health]\nhost = \"a\"\n",
    b"\npersistence = { mode = \"insert\" }\n",
    b"\n[pool.persistence]\nmode = \"rewrite\"\ncookie = \"JSESSIONID\"\n",
    b"\n[pool.persistence]\nmode = \"hash\"\nhash = \"header x\"\n",
    b"__Host-",
    b"SB",
    b"\n[reports]\n",
    b"%",
    b"100%",
    b"200-",
    b"\nheader = { name = \"a\" }\n",
    b"\nmethod = [\"A\", \"B\"]\n",
    b"\npath_exact = \"/a\"\n",
    b"\npath_regex = \"/a+\"\n",
    b"\nquery = [{ name = \"a\", regex = \"1\" }]\n",
    b"\nclient = \"10.0.0.0/8\"\n",
    b"\nsplit = [{ pool = \"web\", weight = 99 }, { pool = \"api\", weight = 1 }]\n",
    b"\nsplit_by = \"cookie a\"\n",
    b"\nmirror = \"api\"\n",
    b"\nmirror_share = \"2.5%\"\n",
    b"\nrespond = 403\n",
    b"\nnot = { path = \"/b\" }\n",
    b"\n[[service.route.not]]\nheader = { name = \"a\", absent = true }\n",
    b"\nalpn = \"h2\"\n",
    b"\n[service.tls]\nserver = \"[::1]:80\"\n",
    b"\n[[service.tls.certificate]]\nchain = \"a\"\nkey = \"a\"\n",
    b"\nclient_certificates.ca = \"a\"\n",
    b"\nbusy_cpu = \"1%\"\n",
    b"\npassthrough = true\n",
    b"\nktls = true\n",
    b"unix:/",
    b"h2",
    b"[[",
    b"\n[pool]\n",
    b"\nnam = \"n1\"\n",
    b"\nport = 99999999999999999999\n",
];

/// What can stand behind a key.
const VALUES: &[&str] = &[
    "7",
    "0",
    "303",
    "true",
    "\"off\"",
    "\"1%\"",
    "\"100%\"",
    "\"request\"",
    "\"connection\"",
    "\"client\"",
    "\"path\"",
    "\"header A|B\"",
    "\"cookie A|B\"",
    "\"hash\"",
    "\"fill\"",
    "\"accept-queue\"",
    "\"latency\"",
    "\"200-599\"",
    "[\"204\", \"200-200\"]",
    "{ path = \"/?a\" }",
    "{ path = \"/,\", status = \"204\", interval = \"1s\" }",
    "{ rise = 7, fall = 7 }",
    "{ mode = \"insert\" }",
    "{ mode = \"insert\", path = \"/,sticky\", http_only = false, max_age = \"400s\" }",
    "{ mode = \"rewrite\", cookie = \"PHPSESSID\" }",
    "{ mode = \"hash\", hash = \"client\", sticky = \"strict\" }",
    "\"insert\"",
    "\"rewrite\"",
    "\"PHPSESSID\"",
    "\"SB-api\"",
    "\"__Secure-a\"",
    "\"__host-a\"",
    "\"prefer\"",
    "\"strict\"",
    "\"lax\"",
    "\"b.example\"",
    "\"/\"",
    "false",
    "\"api\"",
    "\"none\"",
    "\"\"",
    "\"1KiB\"",
    "\"1025B\"",
    "\"1.5MB\"",
    "\"999GiB\"",
    "\"1EiB\"",
    "\"250ms\"",
    "\"1m 1ns\"",
    "\"0s\"",
    "\"n1\"",
    "[\"n2\"]",
    "[\"n2\", \"n1\"]",
    "\"web\"",
    "\"10.0.0.1\"",
    "\"2001:db8::7\"",
    "[\"10.0.0.2:80\"]",
    "\"/a\"",
    "\"*.b.example\"",
    "\"[::1]\"",
    "\"A|B\"",
    "[\"A\", \"B\"]",
    "[\"B\", \"A|B\"]",
    "{ name = \"x\" }",
    "{ name = \"x\", value = \"1, method A -> web\" }",
    "{ path = \"/z\" }",
    "\"all\"",
    "\"99%\"",
    "{ above = \"1B\" }",
    "{ above = \"1025B\" }",
    "[\"shop\"]",
    "[\"old\"]",
    "\"s1\"",
    "{ scheme = \"https\", port = 444, status = 308 }",
    "\"h2\"",
    "\"http/1.1\"",
    "[\"h2\"]",
    "[\"h2\", \"http/1.1\"]",
    "[\"http/1.1\", \"h2\"]",
    "{ name = \"x\", value = \"1, alpn h2\" }",
    "\"unix:/run/a\"",
    "\"[::1]:8080\"",
    "\"127.0.0.1:9180\"",
    "\"session\"",
    "\"round-robin\"",
    "\"forwarding\"",
    "\"node\"",
    "\"1.2\"",
    "\"forwarded\"",
    "\"direct\"",
    "\"a\\\", key = \\\"b\"",
    "[{ chain = \"a\", key = \"b\" }]",
    "[7, \"a\"]",
    "{}",
    "-7.5",
    "1979-05-27",
    "99999999999999999999",
];

/// The value of one line becomes another one; both numbers are taken modulo how many there are.
#[derive(Clone, Debug, TypeGenerator)]
struct Change(u8, u8);

impl Change {
    fn apply(&self, text: &str) -> String {
        let lines = text.split_inclusive('\n');
        let wanted = usize::from(self.0) % lines.clone().filter(|line| line.contains(" = ")).count().max(1);
        let value = VALUES[usize::from(self.1) % VALUES.len()];
        let mut seen = 0..;
        let changed = lines.map(|line| match line.split_once(" = ") {
            Some((key, _)) if seen.next() == Some(wanted) => format!("{key} = {value}\n"),
            _ => line.to_owned(),
        });
        changed.collect()
    }
}

#[derive(Clone, Debug, TypeGenerator)]
struct Case {
    text: Input,
    #[generator(bolero::produce::<Vec<Change>>().with().len(0usize..4))]
    changes: Vec<Change>,
    /// What else is changed in the other cluster.
    #[generator(bolero::produce::<Vec<Change>>().with().len(0usize..4))]
    more: Vec<Change>,
}

#[test]
fn clusters() {
    let examples = [GOOD.to_owned(), format!("{GOOD}{RICH}")];
    examples.iter().for_each(|text| drop(good(text)));
    let examples = examples.map(String::into_bytes);
    check!().with_test_time(fuzzing::time()).with_type::<Case>().for_each(|case| {
        let bytes = case.text.bytes(&examples, PIECES);
        let change =
            |text: String, changes: &[Change]| changes.iter().fold(text, |t, change| change.apply(&t));
        let one = change(String::from_utf8_lossy(&bytes).into_owned(), &case.changes);
        let other = change(one.clone(), &case.more);
        let clusters =
            [&one, &other].map(|text| read(text).inspect_err(|error| check_mistakes(text, error)).ok());
        check_names(&one, clusters[0].as_ref());
        clusters.iter().flatten().for_each(check_cluster);
        if let [Some(one), Some(other)] = &clusters {
            check_difference(one, other);
        }
    });
}

/// Whatever names stand for, the file holds or does not, and what holds is as it is for other nodes.
fn check_names(text: &str, cluster: Option<&Cluster>) {
    let addresses = ["192.0.2.21", "192.0.2.23", "192.0.2.77", "192.0.2.100", "127.0.0.1", "2001:db8::77"];
    let addresses: BTreeSet<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let names = ["api.example.com", "batch.example.com"].map(|name| (name.to_owned(), addresses.clone()));
    let document = Document::new(text, Path::new("etc/cluster.toml")).with_addresses(names.into());
    let resolved = document.check_text().ok();
    assert_eq!(resolved.is_some(), cluster.is_some(), "{text}");
    if let Some(Checked { cluster, .. }) = resolved {
        check_cluster(&cluster);
    }
}

fn check_mistakes(text: &str, error: &Error) {
    let Error::Invalid(mistakes) = error else { panic!("{error}: nothing but the text was read") };
    assert!(!mistakes.is_empty() && mistakes.is_sorted_by_key(|mistake| (mistake.line, mistake.column)));
    let lines: Vec<&str> = text.split('\n').collect();
    for mistake in mistakes {
        plain::check(&mistake.message);
        assert!((1..=lines.len()).contains(&mistake.line), "{mistake}");
        assert!((1..=lines[mistake.line - 1].chars().count() + 1).contains(&mistake.column), "{mistake}");
    }
}

/// What the program relies on in a cluster, and what can be said of one.
fn check_cluster(cluster: &Cluster) {
    assert_eq!(cluster.diff(cluster), [""; 0]);
    assert!(cluster.summary().contains(" node"));
    for pool in &cluster.pools {
        assert!(pool.nodes.iter().all(|&node| node < cluster.nodes.len()));
        check_pool(pool);
    }
    check_switches(cluster);
    for service in &cluster.services {
        assert!(!service.listen.is_empty() && !service.routes.is_empty());
        check_cookies(cluster, service);
        check_tls(cluster, service);
        for route in &service.routes {
            assert!(route.action.pools().all(|pool| pool < cluster.pools.len()));
            if let Action::Split(split) = &route.action {
                let pools: BTreeSet<usize> = route.action.pools().collect();
                assert!(pools.len() == split.shares.len() && pools.len() > 1);
                assert!(split.shares.iter().any(|(_, weight)| *weight > 0));
            }
        }
    }
    let limits = &cluster.limits;
    let sizes = [limits.head, limits.held_per_flow, limits.held_per_source, limits.held];
    assert!(sizes.is_sorted());
    assert!(cluster.nodes.iter().all(|node| WEIGHTS.contains(&node.weight)));
    check_words(cluster);
}

fn check_pool(pool: &Pool) {
    if let Some(Outliers { terms, max_share }) = &pool.outliers {
        assert!(terms.failures > 0 && !terms.time.is_zero() && terms.time <= terms.max_time);
        assert!((1..=100).contains(max_share) && pool.nodes.len() > 1);
    }
    assert!(pool.policy == PolicyKind::Hash || pool.hash == HashKey::Client);
    let about_the_queue = matches!(pool.policy, PolicyKind::Fill | PolicyKind::AcceptQueue);
    assert!(pool.queue_limit <= 100 && (pool.queue_limit != 0 || !about_the_queue));
    assert!(pool.slow_start <= Duration::from_secs(3600));
    if let Some(persistence) = &pool.persistence {
        check_persistence(persistence);
    }
    let Some(health) = &pool.health else { return };
    assert!(!health.timeout.is_zero() && health.timeout <= health.interval);
    assert!(health.rise > 0 && health.fall > 0);
    let Check::Http { path, host, status } = &health.check else { return };
    let blank = |c: char| c.is_ascii_whitespace() || c.is_control();
    assert!(path.starts_with('/') && !path.contains(blank));
    assert!(!host.as_ref().is_some_and(|host| host.is_empty() || host.contains(blank)));
    assert!(!status.is_empty() && status.iter().all(|range| !range.is_empty()));
}

/// Every service has a switch if there are any, and only switches delegate.
fn check_switches(cluster: &Cluster) {
    let switches = &cluster.switches;
    assert!(switches.len() <= 64);
    for switch in switches {
        assert!(!switch.services.is_empty() && switch.services.is_sorted_by(|a, b| a < b));
        assert!(switch.services.iter().all(|&service| service < cluster.services.len()));
    }
    let served = |service| switches.iter().any(|switch| switch.services.contains(&service));
    assert!(switches.is_empty() || (0..cluster.services.len()).all(served));
    let is_switch = |&node: &usize| switches.iter().any(|switch| switch.name == cluster.nodes[node].name);
    for pool in &cluster.pools {
        let Some(delegate) = pool.delegate else { continue };
        assert!(pool.nodes.iter().any(is_switch));
        match delegate {
            Delegate::All => assert!(pool.nodes.len() > 1),
            Delegate::Share(percent) => assert!(pool.nodes.len() > 1 && (1..=99).contains(&percent)),
            Delegate::None => {}
            Delegate::Above(bytes) => assert!((1..=1 << 30).contains(&bytes)),
        }
    }
}

fn check_persistence(persistence: &Persistence) {
    let token =
        |name: &str| name.bytes().all(|c| c.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&c));
    let prefixed = |name: &str, prefix| name.to_ascii_lowercase().starts_with(prefix);
    match &persistence.mode {
        PersistenceMode::Rewrite { cookie } => {
            assert!(token(cookie) && (8..=32).contains(&cookie.len()) && !cookie.starts_with("SB"));
            assert!(!prefixed(cookie, "__host-") && !prefixed(cookie, "__secure-"));
        }
        PersistenceMode::Insert(cookie) => {
            let InsertedCookie { name, path, domain, secure, same_site, max_age, .. } = cookie;
            assert!(token(name) && (1..=32).contains(&name.len()));
            assert!(path.starts_with('/') && path.len() <= 64);
            let host = prefixed(name, "__host-");
            assert!(*secure || !host && !prefixed(name, "__secure-") && *same_site != Some(SameSite::None));
            assert!(!host || path == "/" && domain.is_none());
            let age = |age: Duration| age.subsec_nanos() == 0 && (1..=34_560_000).contains(&age.as_secs());
            assert!(max_age.is_none_or(age));
            let line = format!("Set-Cookie: {name}=12345678901234{}\r\n", cookie.attributes());
            assert!(line.len() <= 255 && line.matches(['\r', '\n']).count() == 2 && line.is_ascii());
        }
        PersistenceMode::Hash(_) => {}
    }
}

/// The pools of a service share the name of a cookie only if none of them inserts it.
fn check_cookies(cluster: &Cluster, service: &Service) {
    let pools: Vec<usize> = service.routes.iter().flat_map(|route| route.action.pools()).collect();
    let mode = |pool: usize| cluster.pools[pool].persistence.as_ref().map(|persistence| &persistence.mode);
    for &one in &pools {
        let Some(PersistenceMode::Insert(InsertedCookie { name, .. })) = mode(one) else { continue };
        for &other in pools.iter().filter(|&&other| other != one) {
            assert!(!matches!(mode(other), Some(PersistenceMode::Insert(cookie)) if cookie.name == *name));
            assert!(!matches!(mode(other), Some(PersistenceMode::Rewrite { cookie }) if cookie == name));
        }
    }
}

/// The path is not empty, and a relative one begins at the directory of the file.
fn is_joined(path: &Path) -> bool {
    path.is_absolute() || path.starts_with("etc") && path.as_os_str() != "etc/"
}

/// A switch never has to read what comes over TLS, and nothing but loopback sees it in clear.
fn check_tls(cluster: &Cluster, service: &Service) {
    if service.tls == TlsMode::Off {
        return assert!(service.routes.iter().all(|route| route.alpn.is_empty()));
    }
    for route in &service.routes {
        let by = if let Action::Split(split) = &route.action { split.by.as_ref() } else { None };
        assert!(by.is_none_or(|by| *by == HashKey::Client));
        for pool in route.action.pools().map(|pool| &cluster.pools[pool]) {
            assert_eq!(
                (&pool.hash, pool.balance, pool.delegate),
                (&HashKey::Client, Balance::Connection, None)
            );
            let mode = pool.persistence.as_ref().map(|persistence| &persistence.mode);
            assert!(matches!(mode, None | Some(PersistenceMode::Hash(HashKey::Client))));
        }
    }
    let Some(tls) = service.tls.terminated() else { return check_passthrough(cluster, service) };
    assert!(!tls.certificates.is_empty());
    for certificate in &tls.certificates {
        match certificate {
            CertificateSource::Files(CertificateFiles { chain, key, staple }) => {
                assert!([chain, key].into_iter().chain(staple).all(|path| is_joined(path)));
            }
            CertificateSource::Issued(domains) => assert!(cluster.acme.is_some() && !domains.is_empty()),
        }
    }
    if let Some(ClientCertificates { ca, crl, .. }) = &tls.client_certificates {
        assert!(std::iter::once(ca).chain(crl).all(|path| is_joined(path)));
    }
    let nodes = cluster.nodes_of(service).map(|node| &cluster.nodes[node]);
    assert!({ nodes }.all(|node| tls.server_of(node).is_some()));
    match &tls.server {
        None => assert_ne!(tls.model, Model::Forwarding),
        Some(Server::Tcp(address)) => {
            assert!(address.ip().is_loopback() && address.port() != 0);
            assert!(cluster.admin.as_ref().is_none_or(|admin| admin.listen != *address));
        }
        Some(Server::Unix(path)) => assert!(path.is_absolute() && path.as_os_str().len() < 108),
    }
    assert!(matches!(
        tls.protocols[..],
        [_] | [Protocol::Http2, Protocol::Http11] | [Protocol::Http11, Protocol::Http2]
    ));
    assert!((0..=1_000_000).contains(&tls.busy_connections) && (1..=100).contains(&tls.busy_cpu));
    assert!(
        tls.model == Model::Forwarding
            || (tls.hand_over, tls.busy_connections, tls.busy_cpu) == (HandOver::Direct, 1000, 80)
    );
    assert!(!tls.ktls || (tls.model, tls.hand_over) != (Model::Forwarding, HandOver::Relay));
    for route in &service.routes {
        assert!(route.alpn.iter().all(|protocol| tls.protocols.contains(protocol)));
    }
}

/// Nobody but the server has to read what passes through.
fn check_passthrough(cluster: &Cluster, service: &Service) {
    for route in &service.routes {
        assert!(takes_hellos(route));
        assert!(!matches!(route.action, Action::Redirect(_) | Action::Respond(_)));
        for pool in route.action.pools().map(|pool| &cluster.pools[pool]) {
            assert_eq!((pool.resume, pool.outliers), (Resume::Off, None));
            assert!(pool.health.as_ref().is_none_or(|health| health.check == Check::Tcp));
        }
    }
}

/// Whether the route has no conditions but those on a ClientHello.
fn takes_hellos(route: &Route) -> bool {
    let reads_no_request = |conditions: &Conditions| {
        let Conditions { hosts: _, path, methods, headers, query, clients: _ } = conditions;
        path.is_none() && methods.is_empty() && headers.is_empty() && query.is_empty()
    };
    !route.h2c && std::iter::once(&route.conditions).chain(&route.except).all(reads_no_request)
}

/// What is said of limits, reports and pools is what the file could have in their place. Not so the nodes of
/// a pool, which are a list there, and its health, its outliers and its persistence, which are tables.
fn check_words(cluster: &Cluster) {
    let default = Cluster { limits: Default::default(), ..cluster.clone() };
    let text = format!("{GOOD}[limits]\n{}", said("limits", &default.diff(cluster)));
    assert_eq!(good(&text).limits, cluster.limits);
    let default = Cluster { reports: Default::default(), ..cluster.clone() };
    let text = format!("{GOOD}[reports]\n{}", said("reports", &default.diff(cluster)));
    assert_eq!(good(&text).reports, cluster.reports);

    // With a switch, so that a pool may delegate.
    let base = format!("{GOOD}[[switch]]\nname = \"n1\"\n");
    let default = good(&base);
    for pool in &cluster.pools {
        let usual = &default.pools[0];
        let mut new = default.clone();
        let (name, nodes) = (usual.name.clone(), usual.nodes.clone());
        new.pools[0] = Pool { name, nodes, health: None, outliers: None, persistence: None, ..pool.clone() };
        let mut lines = said("pool web", &default.diff(&new));
        if !lines.contains("policy = ") {
            lines += &format!("policy = \"{}\"\n", usual.policy);
        }
        // What balance is if it is not said depends on other keys.
        if !lines.contains("balance = ") {
            lines += &format!("balance = \"{}\"\n", usual.balance);
        }
        let text = base.replace("policy = \"round-robin\"\n", &lines);
        assert_eq!(good(&text).pools, new.pools);
    }
}

/// The lines of a file that make the differences `lines`, all of which are about `thing`.
fn said(thing: &str, lines: &[String]) -> String {
    let line = |line: &String| {
        let (key, values) = line.strip_prefix(thing).unwrap()[2..].split_once(' ').unwrap();
        let (_, new) = values.split_once(" -> ").unwrap();
        match key {
            "fields" | "waiting" | "suspect_after" | "dead_after" | "second_candidate" => {
                format!("{key} = {new}\n")
            }
            "delegate" if new.starts_with('{') => format!("{key} = {new}\n"),
            _ => format!("{key} = \"{new}\"\n"),
        }
    };
    lines.iter().map(line).collect()
}

/// Clusters of which a reload says nothing are the same, but for the order of what has names.
fn check_difference(one: &Cluster, other: &Cluster) {
    if one.diff(other).is_empty() {
        let sorted = |cluster: &Cluster| {
            let name = |index: &usize| cluster.nodes[*index].name.clone();
            let pools = cluster.pools.iter().map(|pool| {
                let nodes: Vec<_> = pool.nodes.iter().map(name).collect();
                (nodes, Pool { nodes: Vec::new(), ..pool.clone() })
            });
            let services = cluster.services.iter().map(|service| {
                let routes = service.routes.iter().map(|route| {
                    let pool = match &route.action {
                        Action::Pool(pool) => cluster.pools[*pool].name.clone(),
                        Action::Split(split) => {
                            let share = |(pool, weight): &(usize, u32)| (&cluster.pools[*pool].name, *weight);
                            format!("{:?} {:?}", split.shares.iter().map(share).collect::<Vec<_>>(), split.by)
                        }
                        Action::Redirect(redirect) => format!("{redirect:?}"),
                        Action::Respond(status) => format!("respond {status}"),
                    };
                    let Route { conditions, except, alpn, h2c, limit, action: _, rewrite, mirror } = route;
                    let mirror = mirror.map(|mirror| (&cluster.pools[mirror.pool].name, mirror.share));
                    format!(
                        "{conditions:?} {except:?} {alpn:?} {h2c} {limit:?} {pool} {rewrite:?} {mirror:?}"
                    )
                });
                let routes: Vec<_> = routes.collect();
                let guards = (service.admitted.clone(), service.limits);
                (service.name.clone(), service.listen.clone(), service.tls.clone(), guards, routes)
            });
            let switches = cluster.switches.iter().map(|switch| {
                let names = switch.services.iter().map(|&service| cluster.services[service].name.clone());
                let mut names: Vec<_> = names.collect();
                names.sort();
                (switch.name.clone(), names)
            });
            let mut switches: Vec<_> = switches.collect();
            switches.sort();
            let mut clients: Vec<_> = cluster.clients.iter().map(ToString::to_string).collect();
            clients.sort();
            let (mut nodes, mut pools) = (cluster.nodes.clone(), pools.collect::<Vec<_>>());
            let mut services = services.collect::<Vec<_>>();
            nodes.sort_by(|a, b| a.name.cmp(&b.name));
            pools.sort_by(|a, b| a.1.name.cmp(&b.1.name));
            services.sort_by(|a, b| a.0.cmp(&b.0));
            let tables = (cluster.limits.clone(), cluster.reports.clone(), cluster.admin.clone());
            (tables, nodes, pools, services, switches, clients)
        };
        assert_eq!(sorted(one), sorted(other));
    }
}
