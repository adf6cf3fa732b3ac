//! Routes that share their requests out to several pools, by weight.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use common::responses::Connection;
use common::{Cluster, Plan, Result, wait_until};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(5);
const ROUTES: &str = r#"
[[service.route]]
path = "/each"
split = [{ pool = "web", weight = 90 }, { pool = "img", weight = 10 }]

[[service.route]]
path = "/by-user"
split = [{ pool = "web", weight = 1 }, { pool = "img", weight = 1 }]
split_by = "cookie user"

[[service.route]]
path = "/none"
split = [{ pool = "web", weight = 1 }, { pool = "img", weight = 0 }]
"#;
/// The servers have no such documents, and say who they are all the same.
const REQUESTS: usize = 2000;

fn connect(cluster: &Cluster) -> Result<Connection> {
    Connection::open(cluster, cluster.client(), TIMEOUT)
}

impl Connection {
    /// The node that answers, and the cookie that it sets.
    fn get(&mut self, path: &str, cookie: &str) -> Result<(String, Option<String>)> {
        let cookie = if cookie.is_empty() { String::new() } else { format!("Cookie: {cookie}\r\n") };
        self.stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{cookie}\r\n").as_bytes())?;
        let response = self.responses.next(false)?.ok_or("no response")?;
        let node = response.field("x-node").ok_or("a response of no node")?.to_owned();
        let set = response.field("set-cookie").and_then(|set| set.split(';').next());
        Ok((node, set.map(str::to_owned)))
    }
}

#[test]
fn requests_are_shared_out_by_weight_and_the_log_names_their_pools() -> Result {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("canary.log");
    let _ = fs::remove_file(&log);
    let lines = format!("path = \"{}\"\nformat = \"json\"", log.display());
    let plan = Plan { routes: ROUTES, access_log: Some(lines), ..Plan::default() };
    let cluster = Cluster::start_with(plan)?;
    let mut canary = 0;
    for number in 0..REQUESTS / 100 {
        let mut client = connect(&cluster)?;
        for _ in 0..100 {
            canary += usize::from(client.get("/each", "")?.0 == "node1");
        }
        assert_eq!(
            client.get("/none", "")?.0,
            "node0",
            "connection {number}: a pool without weight gets nothing"
        );
    }
    // Six standard deviations of a tenth.
    assert!((120..=280).contains(&canary), "{canary} of {REQUESTS}");
    let lines = || -> Result<Vec<Value>> {
        let text = fs::read_to_string(&log)?;
        Ok(text.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
    };
    let all = REQUESTS + REQUESTS / 100;
    for line in wait_until("a line for each request", TIMEOUT, lines, |lines| lines.len() == all)? {
        let pool = if line["node"] == "node0" { "web" } else { "img" };
        assert_eq!(line["pool"], pool, "{line}");
    }
    cluster.down()
}

#[test]
fn a_client_that_is_known_by_a_cookie_stays_on_its_side() -> Result {
    let cluster = Cluster::start_with(Plan { routes: ROUTES, ..Plan::default() })?;
    let mut sides = BTreeSet::new();
    for user in 0..20 {
        let cookie = format!("lang=en; user={user}");
        let mut nodes = BTreeSet::new();
        for _ in 0..3 {
            let mut client = connect(&cluster)?;
            for _ in 0..3 {
                nodes.insert(client.get("/by-user", &cookie)?.0);
            }
        }
        assert_eq!(nodes.len(), 1, "user {user}: {nodes:?}");
        sides.extend(nodes);
    }
    assert_eq!(sides.len(), 2, "both pools have users");
    cluster.down()
}

/// With a cookie that the nodes insert there is no need for one of the application's.
#[test]
fn a_session_by_cookie_stays_in_its_pool() -> Result {
    let pool_lines = "persistence = { mode = \"insert\" }\n".to_owned();
    let cluster = Cluster::start_with(Plan { routes: ROUTES, pool_lines, ..Plan::default() })?;
    let mut client = connect(&cluster)?;
    let mut sessions = BTreeSet::new();
    for _ in 0..100 {
        let (node, cookie) = client.get("/each", "")?;
        sessions.insert((node, cookie.ok_or("no cookie")?));
    }
    assert_eq!(sessions.len(), 2, "one for each node: {sessions:?}");
    for (node, cookie) in &sessions {
        let mut client = connect(&cluster)?;
        for _ in 0..50 {
            assert_eq!(client.get("/each", cookie)?.0, *node, "{cookie}");
        }
    }
    cluster.down()
}
