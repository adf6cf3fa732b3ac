//! Clients that a service does not let in, and those that come too often.

mod common;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::responses::{Connection, Response};
use common::{Cluster, PATIENCE, Plan, Result, TLS_NAME, counter, text, wait_until};
use switchback_lab::Host;

const TIMEOUT: Duration = Duration::from_secs(5);

fn connect(cluster: &Cluster, client: &Host, timeout: Duration) -> Result<TcpStream> {
    Ok(client.tcp_connect(SocketAddr::new(cluster.lab.vip4().into(), 80), timeout)?)
}

impl Connection {
    fn get(&mut self, path: &str) -> Result<Response> {
        // In one packet, so that XDP can read it.
        self.stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {TLS_NAME}\r\n\r\n").as_bytes())?;
        Ok(self.responses.next(false)?.ok_or("no response")?)
    }
}

/// A request on a connection of its own.
fn get(cluster: &Cluster, client: &Host, path: &str) -> Result<Response> {
    Connection::open(cluster, client, TIMEOUT)?.get(path)
}

/// Seconds after which a client may ask again.
fn retry_after(response: &Response) -> Result<u64> {
    assert_eq!(response.status, 429, "{}", response.head);
    assert_eq!(response.field("connection"), Some("close"));
    Ok(response.field("retry-after").ok_or("429 without Retry-After")?.parse()?)
}

/// Statuses of as many requests over TLS.
fn statuses_over_tls(cluster: &Cluster, client: &Host, http: &str, count: usize) -> Result<Vec<String>> {
    let authority = cluster.lab.directory().join("shop.pem");
    let resolve = format!("{TLS_NAME}:443:{}", cluster.lab.vip4());
    let url = format!("https://{TLS_NAME}/small?[1-{count}]");
    let written = "%{http_code} %header{retry-after}\\n";
    let words = ["curl", "-sS", "--max-time", "30", http, "-o", "/dev/null", "-w", written];
    let of_cluster = ["--cacert", text(&authority), "--resolve", &resolve, &url];
    let said = client.run([&words[..], &of_cluster].concat())?.success()?;
    Ok(said.lines().map(|line| line.trim().to_owned()).collect())
}

#[test]
fn requests_over_the_limit_are_refused_or_wait() -> Result {
    let plan = Plan {
        clients_len: 2,
        tls: Some(String::new()),
        service_lines: "limit.client.requests = { rate = 6, period = \"1h\", burst = 6 }",
        routes: r#"
[[service.route]]
path = "/rare"
pool = "web"
limit = { client = { rate = 1, period = "1h" } }

[[service.route]]
path = "/queue"
pool = "web"
limit = { all = { rate = 10, burst = 1, over = "wait" } }
"#,
        ..Plan::default()
    };
    let cluster = Cluster::start_with(plan)?;
    let (greedy, polite) = (cluster.lab.client(0), cluster.lab.client(1));

    // A connection on which XDP has forwarded requests, and the limit of a route.
    let mut connection = Connection::open(&cluster, greedy, TIMEOUT)?;
    assert_eq!(connection.get("/small")?.status, 200);
    let adopted = || Ok(cluster.switch_status()?["nodes"][0]["adopted"].clone());
    wait_until("the adoption to be known", PATIENCE, adopted, |adopted| adopted == 1)?;
    assert_eq!(connection.get("/small")?.status, 200);
    assert_eq!(cluster.switch_counter("express")?, 1);
    assert_eq!(connection.get("/rare")?.status, 404, "the server has no such document");
    let wait = retry_after(&connection.get("/rare")?)?;
    assert!((3500..=3600).contains(&wait), "{wait} s");

    // What the route has refused took no token of the service, of which six requests are allowed.
    for _ in 0..3 {
        assert_eq!(get(&cluster, greedy, "/small")?.status, 200);
    }
    let wait = retry_after(&get(&cluster, greedy, "/small")?)?;
    assert!((500..=600).contains(&wait), "{wait} s");
    assert_eq!(get(&cluster, polite, "/small")?.status, 200, "another client");

    // Requests that wait their turn.
    let began = Instant::now();
    let mut connection = Connection::open(&cluster, polite, TIMEOUT)?;
    for _ in 0..5 {
        assert_eq!(connection.get("/queue")?.status, 404, "the server has no such document");
    }
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
    let refused = cluster.switch_status()?["dispatch"]["refused_requests"]["rate-limit"].clone();
    assert_eq!(refused, 2, "{}", cluster.switch_status()?);

    // Over TLS the node counts.
    for (client, http) in [(greedy, "--http1.1"), (polite, "--http2")] {
        let statuses = statuses_over_tls(&cluster, client, http, 8)?;
        assert_eq!(&statuses[..6], ["200"; 6], "{http}");
        let is_refused = |line: &String| line.starts_with("429 5") || line == "429 600";
        assert!(statuses[6..].iter().all(is_refused), "{http}: {statuses:?}");
    }
    cluster.down()
}

#[test]
fn clients_have_as_many_connections_as_they_may() -> Result {
    let cluster = Cluster::start_with(Plan { clients_len: 2, ..Plan::default() })?;
    let [greedy, other] = [0, 1].map(|index| cluster.lab.client(index));
    let mut open = Vec::new();
    let mut ask = |client: &Host| -> Result {
        let mut connection = Connection::open(&cluster, client, TIMEOUT)?;
        assert_eq!(connection.get("/small")?.status, 200);
        open.push(connection);
        Ok(())
    };
    ask(greedy)?;
    ask(greedy)?;
    // The limit comes when there are connections already.
    let file = cluster.lab.directory().join("cluster.toml");
    let text = fs::read_to_string(&file)?;
    let limited = text.replacen("[[service.route]]", "limit.client.concurrent = 3\n\n[[service.route]]", 1);
    fs::write(&file, limited)?;
    cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
    let begun = connect(&cluster, greedy, TIMEOUT)?;
    ask(greedy)?;
    let is_full = || Ok(connect(&cluster, greedy, Duration::from_millis(300)).is_err());
    wait_until("the connections to be counted", PATIENCE, is_full, |is_full| *is_full)?;
    assert!(counter(&cluster.switch_status()?, "drop_concurrent")? > 0);
    ask(other)?;
    // The kernel sends the SYN, or the request, again.
    let mut waiting = Connection::on(begun, PATIENCE)?;
    let asked = std::thread::spawn(move || waiting.get("/small").map_err(|error| error.to_string()));
    let drops = counter(&cluster.switch_status()?, "drop_concurrent")?;
    let dropped = || counter(&cluster.switch_status()?, "drop_concurrent");
    wait_until("its request to be dropped", PATIENCE, dropped, |now| *now > drops)?;
    open.remove(0);
    assert_eq!(asked.join().expect("it does not panic")?.status, 200);
    drop(open);
    cluster.down()
}

#[test]
fn connections_of_other_clients_are_not_answered() -> Result {
    let plan = Plan {
        clients_len: 3,
        networks: "[[networks]]\nname = \"abusers\"\nfile = \"abusers.txt\"\n",
        service_lines: "clients = { deny = [\"abusers\"] }\n\
                        limit.client.connections = { rate = 2, period = \"1h\" }",
        ..Plan::default()
    };
    let mut cluster = Cluster::prepare(plan)?;
    let file = cluster.lab.directory().join("abusers.txt");
    fs::write(&file, "# nobody yet\n")?;
    cluster.start_daemons()?;
    let [abuser, greedy, other] = [0, 1, 2].map(|index| cluster.lab.client(index));
    let drops = |name: &str| counter(&cluster.switch_status()?, name);
    let is_dropped = |client: &Host, counter: &str| -> Result {
        let before = drops(counter)?;
        assert!(connect(&cluster, client, Duration::from_millis(500)).is_err(), "a SYN was answered");
        assert!(drops(counter)? > before);
        Ok(())
    };

    let mut open = Connection::open(&cluster, abuser, TIMEOUT)?;
    assert_eq!(open.get("/small")?.status, 200);
    fs::write(&file, format!("203.0.113.0/24 ; a documentation network\n{}\n", abuser.ipv4()))?;
    cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
    let response = open.get("/small")?;
    assert_eq!((response.status, response.field("connection")), (403, Some("close")));
    is_dropped(abuser, "drop_client")?;
    assert_eq!(get(&cluster, other, "/small")?.status, 200);

    // Connections that send nothing do not count.
    let idle: Vec<_> = (0..5).map(|_| connect(&cluster, greedy, TIMEOUT)).collect::<Result<_>>()?;
    for _ in 0..2 {
        assert_eq!(get(&cluster, greedy, "/small")?.status, 200);
    }
    is_dropped(greedy, "drop_rate")?;
    drop(idle);

    // A list with a mistake changes nothing.
    fs::write(&file, "198.51.100.300\n")?;
    let output = cluster.run(cluster.lab.switch(0), &["reload"])?;
    assert!(!output.status.success());
    assert!(output.stderr.contains("abusers.txt line 1"), "{}", output.stderr);
    is_dropped(abuser, "drop_client")?;
    fs::write(&file, "")?;
    cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
    let again = || Ok(get(&cluster, abuser, "/small").map(|response| response.status).ok());
    wait_until("the client to be let in", PATIENCE, again, |status| *status == Some(200))?;
    cluster.down()
}
