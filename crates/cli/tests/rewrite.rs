//! Routes that change requests: what servers get, on kept connections, with bodies, over paths that lose packets, whether
//! the kernel adopts or a handshake is replayed.

mod common;

use std::fs;
use std::io::Write;
use std::time::Duration;

use common::document::block;
use common::http::{Documents, fetch};
use common::responses::Connection;
use common::{Cluster, Plan, Result, text};
use switchback_lab::ServerKind;

const TIMEOUT: Duration = Duration::from_secs(60);
/// What makes a head of five packets.
const LONG: usize = 5000;
/// Length of a header field of a response.
const BIG: usize = 3000;
const COPIES: &str = r#"
[[service.route]]
path = "/copy/img/"
rewrite.prefix = "/img/"
pool = "img"

[[service.route]]
path = "/copy/"
rewrite.prefix = "/"
pool = "web"
"#;
const ROUTES: &str = r#"
[[service.route]]
path = "/api/"
rewrite = { host = "internal.example", prefix = "/echo/at/a/longer/place/" }
request_header = { set = { name = "X-Tenant", value = "7" }, remove = "X-Debug" }
pool = "web"

[[service.route]]
path = "/a/place/that/is/longer/than/the/other/one/"
rewrite.prefix = "/echo/"
request_header.remove = "X-Debug"
pool = "img"

[[service.route]]
path = "/long/"
rewrite.prefix = "/echo/"
request_header.add = { name = "X-Long", value = "LONG" }
pool = "img"

[[service.route]]
path = "/same/"
rewrite.prefix = "/echo/"
pool = "web"

[[service.route]]
path = "/web/"
rewrite.prefix = "/uploads/into/a/longer/place/"
pool = "web"

[[service.route]]
path = "/img/uploads/into/a/longer/place/"
rewrite.prefix = "/img/"
pool = "img"
"#;
const SERVER: &str = r#"
dav_methods PUT; create_full_put_path on; client_max_body_size 0; large_client_header_buffers 4 32k;
location /echo/big { add_header X-Big "BIG"; return 200 big; }
location /echo/ { return 200 "$request_uri $http_host $http_x_tenant$http_x_debug $http_x_kept $http_x_long"; }
"#;

fn start(pool_lines: &str) -> Result<Cluster> {
    let routes = (ROUTES.replace("LONG", &"x".repeat(LONG)) + COPIES).leak();
    let server_extra = SERVER.replace("BIG", &"b".repeat(BIG)).leak();
    let (pool_lines, node_lines) = (pool_lines.to_owned(), vec![(1, "adoption = \"replay\"".to_owned())]);
    Cluster::start_with(Plan { routes, server_extra, pool_lines, node_lines, ..Plan::default() })
}

/// A path, and what a server answers to a request for it.
fn rows() -> Vec<(&'static str, String)> {
    let long = "x".repeat(LONG);
    vec![
        ("/api/a?b=/api/", "/echo/at/a/longer/place/a?b=/api/ internal.example 7 kept ".to_owned()),
        ("/a/place/that/is/longer/than/the/other/one/c", "/echo/c shop.example  kept ".to_owned()),
        ("/echo/as/it/is", "/echo/as/it/is shop.example debug kept ".to_owned()),
        ("/long/d", format!("/echo/d shop.example debug kept {long}")),
        ("/same/e", "/echo/e shop.example debug kept ".to_owned()),
        ("/same/big", "big".to_owned()),
        ("/same/f", "/echo/f shop.example debug kept ".to_owned()),
    ]
}

fn connect(cluster: &Cluster) -> Result<Connection> {
    let connection = Connection::open(cluster, cluster.client(), TIMEOUT)?;
    connection.stream.set_nodelay(true)?;
    Ok(connection)
}

impl Connection {
    fn ask(&mut self, paths: &[&str]) -> Result {
        let request = |path: &&str| {
            format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nX-Debug: debug\r\nX-Kept: kept\r\n\r\n")
        };
        Ok(self.stream.write_all(paths.iter().map(request).collect::<String>().as_bytes())?)
    }

    fn answer(&mut self) -> Result<String> {
        let response = self.responses.next(false)?.ok_or("the connection has ended")?;
        assert_eq!(response.status, 200, "{}", response.head);
        let big = response.field("x-big").map_or(0, str::len);
        assert_eq!(big == BIG, response.text() == "big", "{}", response.head);
        Ok(response.text())
    }

    /// Requests one by one, and pipelined.
    fn converse(&mut self, rows: &[(&str, String)]) -> Result {
        for (path, expected) in rows {
            self.ask(&[path])?;
            assert_eq!(self.answer().map_err(|error| format!("{path}: {error}"))?, *expected, "{path}");
        }
        let paths: Vec<&str> = rows.iter().map(|(path, _)| *path).collect();
        self.ask(&paths)?;
        for (path, expected) in rows {
            let answer = self.answer().map_err(|error| format!("{path}, pipelined: {error}"))?;
            assert_eq!(answer, *expected, "{path}, pipelined");
        }
        Ok(())
    }
}

fn converse(cluster: &Cluster, rounds: usize) -> Result {
    let mut client = connect(cluster)?;
    let rows = rows();
    (0..rounds).try_for_each(|_| client.converse(&rows))
}

/// Documents on one connection, of which routes change every request, or every second one.
fn download(cluster: &Cluster) -> Result {
    let documents = Documents::of(&cluster.lab)?;
    let Documents { small, large, img_small, img_large } = &documents;
    let order = [large, small, img_large, large, img_small, img_large, small, small];
    for step in [1, 2] {
        let gets = order.iter().enumerate().map(|(index, document)| {
            let copy = if index % step == 0 { "/copy" } else { "" };
            (cluster.url4(&format!("{copy}{}", document.path)), (*document).clone())
        });
        let responses = fetch(cluster.client(), &gets.collect::<Vec<_>>(), &[], TIMEOUT)?;
        assert_eq!(responses.len(), order.len());
        assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    }
    Ok(())
}

/// Uploads so many mebibytes with curl, which waits for 100 (Continue), or sends chunks.
fn upload(cluster: &Cluster, blocks: usize, name: &str) -> Result {
    let sent = block(7).repeat(blocks);
    let file = cluster.lab.directory().join("upload");
    fs::write(&file, &sent)?;
    for (pool, node, path) in
        [("web", "node0", "uploads/into/a/longer/place"), ("img/uploads/into/a/longer/place", "node1", "img")]
    {
        for (number, encoding) in ["Expect: 100-continue", "Transfer-Encoding: chunked"].iter().enumerate() {
            let url = cluster.url4(&format!("/{pool}/{name}-{number}"));
            let words = [
                "curl",
                "-sS",
                "--max-time",
                "60",
                "-H",
                encoding,
                "-T",
                text(&file),
                "-w",
                "%{response_code}",
                &url,
            ];
            let said = cluster.client().run_within(TIMEOUT, words)?.success()?;
            assert_eq!(said, "201", "{url} {encoding}");
            let arrived =
                format!("{}/roots/{node}/{path}/{name}-{number}", cluster.lab.directory().display());
            assert!(fs::read(&arrived)? == sent, "{arrived} is not what was sent");
        }
    }
    Ok(())
}

#[test]
fn servers_get_what_routes_make_of_requests() -> Result {
    let cluster = start("")?;
    converse(&cluster, 10)?;
    download(&cluster)?;
    upload(&cluster, 20, "quiet")?;
    cluster.lab.switch(0).set_loss(20, 20)?;
    converse(&cluster, 10)?;
    download(&cluster)?;
    upload(&cluster, 2, "lossy-switch")?;
    cluster.lab.switch(0).set_loss(0, 0)?;
    cluster.client().set_loss(20, 20)?;
    converse(&cluster, 10)?;
    download(&cluster)?;
    upload(&cluster, 2, "lossy-client")?;
    cluster.client().set_loss(0, 0)?;
    cluster.down()
}

#[test]
fn other_servers_get_them_too() -> Result {
    let servers = vec![ServerKind::Apache, ServerKind::Caddy];
    let cluster = Cluster::start_with(Plan { servers, routes: COPIES, ..Plan::default() })?;
    download(&cluster)?;
    cluster.down()
}

/// The first data of a new socket comes by way of the program that inserts cookies.
#[test]
fn a_connection_goes_on_whatever_is_killed() -> Result {
    let mut cluster = start("[pool.persistence]\nmode = \"insert\"\n")?;
    let mut client = connect(&cluster)?;
    let rows: Vec<_> = rows().into_iter().filter(|(path, _)| !path.starts_with("/long/")).collect();
    client.converse(&rows)?;
    client.ask(&["/api/a"])?;
    let response = client.responses.next(false)?.ok_or("the connection has ended")?;
    assert!(response.field("set-cookie").is_some_and(|set| set.starts_with("SB-web=")), "{}", response.head);
    cluster.kill_switch()?;
    cluster.start_switch()?;
    client.converse(&rows)?;
    for node in 0..2 {
        cluster.kill_node(node)?;
        cluster.start_node(node)?;
        client.converse(&rows)?;
        cluster.kill_server(node)?;
        cluster.start_server(node)?;
        client.converse(&rows)?;
    }
    cluster.down()
}
