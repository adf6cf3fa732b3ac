//! Servers, processes and configurations of a lab.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use switchback_lab::{
    Cluster, Error, Host, Lab, ONE_MIB, ONE_MIB_SHA256, Pool, Result, Route, SMALL, ServerKind,
    ServerOptions, Signal,
};

const PATIENCE: Duration = Duration::from_secs(10);

fn get(from: &Host, to: IpAddr, port: u16, path: &str, options: &[&str]) -> Result<String> {
    let address = std::net::SocketAddr::new(to, port);
    let url = format!("http://{address}{path}");
    from.run([&["curl", "-sS", "--fail", "--max-time", "10", &url], options].concat())?.success()
}

fn assert_serves_the_documents(lab: &Lab, node: usize, port: u16) -> Result<()> {
    let (client, node) = (lab.client(0), lab.node(node));
    for address in [IpAddr::from(node.ipv4()), node.ipv6().into()] {
        assert_eq!(get(client, address, port, "/node", &[])?, node.name());
        assert_eq!(get(client, address, port, "/small", &[])?.len(), SMALL);
        let headers = get(client, address, port, "/small", &["-I"])?;
        let has = |wanted: &str| headers.lines().any(|line| line.eq_ignore_ascii_case(wanted));
        assert!(has(&format!("x-node: {}", node.name())), "{headers}");
        let file = client.directory().join("got").display().to_string();
        get(client, address, port, "/1m", &["-o", &file])?;
        assert_eq!(std::fs::metadata(&file).expect("curl has written it").len(), ONE_MIB as u64);
        let sum = client.run(["sha256sum", &file])?.success()?;
        assert_eq!(sum.split(' ').next(), Some(ONE_MIB_SHA256));
        let missing = get(client, address, port, "/missing", &["-I", "--no-fail"])?;
        assert!(missing.contains(" 404 ") && missing.to_lowercase().contains("x-node: "), "{missing}");
    }
    Ok(())
}

#[test]
fn nginx_serves_the_documents() -> Result<()> {
    serves(ServerKind::Nginx)
}

#[test]
fn apache_serves_the_documents() -> Result<()> {
    serves(ServerKind::Apache)
}

#[test]
fn caddy_serves_the_documents() -> Result<()> {
    serves(ServerKind::Caddy)
}

fn serves(kind: ServerKind) -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    let options = ServerOptions { access_log: true, ..ServerOptions::default() };
    let start = Instant::now();
    let server = lab.node(0).server(kind, &options)?;
    println!("{kind:?} ready in {:?}", start.elapsed());
    assert_serves_the_documents(&lab, 0, 80)?;
    let log = std::fs::read_to_string(server.access_log()).expect("the access log is there");
    assert!(log.contains("/small"), "{log}");

    lab.node(1).server(kind, &ServerOptions { workers: 2, ..ServerOptions::on_port(8080) })?;
    assert_serves_the_documents(&lab, 1, 8080)?;
    lab.add_document("img/logo", b"logo")?;
    let client = lab.client(0);
    assert_eq!(get(client, lab.node(0).ipv4().into(), 80, "/img/logo", &[])?, "logo");
    let header = |node: usize, port: u16| -> Result<String> {
        let headers = get(client, lab.node(node).ipv4().into(), port, "/1m", &["-I"])?;
        let tag = headers.lines().find(|line| line.to_lowercase().starts_with("etag:"));
        Ok(tag.unwrap_or_else(|| panic!("no ETag in {headers}")).to_owned())
    };
    assert_eq!(header(0, 80)?, header(1, 8080)?);
    let page = get(client, lab.node(1).ipv4().into(), 8080, "/", &["-i"])?;
    assert!(page.contains("text/html") && page.contains("<title>node1</title>"), "{page}");

    server.stop()?;
    assert!(get(client, lab.node(0).ipv4().into(), 80, "/node", &[]).is_err());
    lab.node(0).server(kind, &options)?;
    assert_eq!(get(client, lab.node(0).ipv4().into(), 80, "/node", &[])?, "node0");
    let start = Instant::now();
    lab.down()?;
    println!("{kind:?} down in {:?}", start.elapsed());
    Ok(())
}

#[test]
fn a_server_that_cannot_start_says_why() -> Result<()> {
    let lab = Lab::builder().up()?;
    let options = ServerOptions { extra: "no_such_directive;".to_owned(), ..ServerOptions::default() };
    match lab.node(0).nginx(&options) {
        Err(Error::Exited { log, .. }) => assert!(log.contains("no_such_directive"), "{log}"),
        other => panic!("{other:?}"),
    }
    Ok(())
}

#[test]
fn logs_are_captured_and_can_be_waited_for() -> Result<()> {
    let lab = Lab::builder().up()?;
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo one; trap 'echo two >&2; exit 3' USR1; echo ready; while :; do sleep 0.05; done"]);
    let process = lab.client(0).spawn("shell", command)?;
    assert_eq!(process.wait_for_log("one", PATIENCE)?, "one");
    process.wait_for_log("ready", PATIENCE)?;
    match process.wait_for_log("two", Duration::from_millis(50)) {
        Err(Error::Timeout { log, .. }) => assert!(log.contains("ready"), "{log}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(process.wait_timeout(Duration::ZERO)?, None);
    process.signal(Signal::SIGUSR1)?;
    process.wait_for_log("two", PATIENCE)?;
    let status = process.wait_timeout(PATIENCE)?.expect("it has been told to exit");
    assert_eq!(status.code(), Some(3));
    assert!(matches!(process.wait_for_log("three", PATIENCE), Err(Error::Exited { .. })));
    // Signals to a process that has ended reach nobody.
    process.signal(Signal::SIGKILL)?;
    assert_eq!(process.stop()?.code(), Some(3));

    // Another process of the same name does not see its predecessor's log.
    let mut again = Command::new("sleep");
    again.arg("1000");
    let again = lab.client(0).spawn("shell", again)?;
    assert_eq!(again.log(), "");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&again.stop()?), Some(15));
    Ok(())
}

#[test]
fn commands_have_a_status_an_output_and_a_time_limit() -> Result<()> {
    let lab = Lab::builder().up()?;
    let output = lab.client(0).run(["sh", "-c", "echo out; echo err >&2; exit 4"])?;
    assert_eq!(
        (output.stdout.as_str(), output.stderr.as_str(), output.status.code()),
        ("out\n", "err\n", Some(4))
    );
    assert!(matches!(output.success(), Err(Error::Command { output, .. }) if output == "err\n"));
    let start = Instant::now();
    let late = lab.client(0).run_within(Duration::from_millis(100), ["sh", "-c", "echo begun; sleep 1000"]);
    assert!(matches!(late, Err(Error::Timeout { log, .. }) if log == "begun\n"));
    assert!(start.elapsed() < PATIENCE);
    assert!(lab.client(0).run(["/no/such/program"]).is_err());
    Ok(())
}

#[test]
fn the_configuration_fits_the_lab() -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    let mut cluster = Cluster::with_policy("round-robin");
    cluster.pools.push(Pool {
        name: "img".into(),
        nodes: vec![1],
        policy: "random".into(),
        ..Pool::default()
    });
    cluster.routes.push(Route { path: Some("/img/".into()), pool: "img".into(), ..Route::default() });
    let path = lab.write_config(&cluster)?;
    let expected = r#"[cluster]
key_file = "cluster.key"

[[node]]
name = "node0"
address = "192.0.2.20"

[[node]]
name = "node1"
address = "192.0.2.21"

[[pool]]
name = "web"
nodes = ["node0", "node1"]
policy = "round-robin"

[[pool]]
name = "img"
nodes = ["node1"]
policy = "random"

[[service]]
name = "service"
listen = ["192.0.2.100:80", "[2001:db8::100]:80"]

[[service.route]]
path = "/img/"
pool = "img"

[[service.route]]
pool = "web"
"#;
    assert_eq!(std::fs::read_to_string(&path).expect("the file is there"), expected);
    let key = path.with_file_name("cluster.key");
    let digits = std::fs::read_to_string(&key).expect("the key is there");
    assert!(digits.trim_end().len() == 64 && digits.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(std::fs::metadata(&key).expect("the key is there").permissions().mode() & 0o777, 0o600);
    // A changed configuration keeps the key.
    lab.write_config(&Cluster::default())?;
    assert_eq!(std::fs::read_to_string(&key).expect("the key is there"), digits);
    Ok(())
}
