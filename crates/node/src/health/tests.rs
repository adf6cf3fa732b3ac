//! Checks of single-threaded servers on loopback addresses.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

fn settings(check: Check) -> Settings {
    Settings {
        check,
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(200),
        rise: 2,
        fall: 3,
    }
}

fn get(path: &str, host: Option<&str>) -> Check {
    Check::Http { path: path.to_owned(), host: host.map(str::to_owned), status: vec![200..=299, 404..=404] }
}

/// Answers one request with `answer` and returns the request.
fn serve_one(listener: &TcpListener, answer: &[u8]) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        request.push(byte[0]);
    }
    stream.write_all(answer).unwrap();
    String::from_utf8(request).unwrap()
}

/// Result of one check of a server with this answer, and the request that the server got.
fn ask(address: &str, check: &Check, answer: &[u8]) -> (std::result::Result<(), String>, String) {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| serve_one(&listener, answer));
        let outcome = try_once(address, ServerProtocol::Http11, check, Duration::from_secs(2));
        (outcome, server.join().unwrap())
    })
}

fn cluster() -> Cluster {
    let text = "cluster.key_file = \"cluster.key\"
        [[node]]\nname = \"a\"\naddress = \"192.0.2.1\"
        [[pool]]\nname = \"img\"\nnodes = [\"a\"]\npolicy = \"random\"
        [[pool]]\nname = \"web\"\nnodes = [\"a\"]\npolicy = \"random\"
        [[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:80\"]
        route = [{ path = \"/img/\", pool = \"img\" }, { pool = \"web\" }]";
    let path = std::path::Path::new("cluster.toml");
    switchback_config::parse(text, path, |_| Ok(vec![switchback_config::ClusterKey::from_bytes([1; 32])]))
        .unwrap()
}

#[test]
fn the_status_decides() {
    let rows = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Ok(())),
        ("HTTP/1.1 204 No Content\r\n\r\n", Ok(())),
        ("HTTP/1.0 404 Not Found\r\n\r\n", Ok(())),
        // Redirects are not followed, because only this server matters.
        (
            "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n",
            Err("the answer has status 302"),
        ),
        ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", Err("the answer has status 503")),
    ];
    for (answer, expected) in rows {
        let (outcome, _) = ask("127.0.0.1:0", &get("/", None), answer.as_bytes());
        assert_eq!(outcome, expected.map_err(str::to_owned), "{answer}");
    }
    let (outcome, _) = ask("127.0.0.1:0", &get("/", None), b"220 mail ready\r\n\r\n");
    assert!(outcome.is_err());
}

#[test]
fn the_request_follows_the_configuration() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let (_, request) = ask("[::1]:0", &get("/up?from=lb", Some("shop.example.com")), answer);
    let mut lines: Vec<String> = request.lines().map(str::to_lowercase).collect();
    assert_eq!(lines.remove(0), "get /up?from=lb http/1.1");
    for line in ["host: shop.example.com", "connection: close", "user-agent: switchback-health"] {
        assert_eq!(lines.iter().filter(|found| *found == line).count(), 1, "{line} in {request}");
    }
    let (_, request) = ask("[::1]:0", &get("/", None), answer);
    assert!(request.to_lowercase().contains("\r\nhost: [::1]"), "{request}");
}

#[test]
fn silence_and_refusal_are_failures() {
    let timeout = Duration::from_millis(100);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let begun = Instant::now();
    assert_eq!(
        try_once(address, ServerProtocol::Http11, &get("/", None), timeout),
        Err("no answer within 100 ms".to_owned())
    );
    assert!(begun.elapsed() < timeout * 3, "{:?}", begun.elapsed());
    assert_eq!(try_once(address, ServerProtocol::Http11, &Check::Tcp, timeout), Ok(()));
    drop(listener);
    for check in [Check::Tcp, get("/", None)] {
        let error = try_once(address, ServerProtocol::Http11, &check, timeout).expect_err("nobody listens");
        assert!(error.contains("refused"), "{error}");
    }
}

#[test]
fn several_opposite_results_change_the_health() {
    let (good, bad) = (Ok(()), Err("bad".to_owned()));
    let rows = [
        // Results, and the health after them.
        (vec![&good], Health::Up),
        (vec![&bad], Health::Down),
        (vec![&good, &bad, &bad], Health::Up),
        (vec![&good, &bad, &bad, &bad], Health::Down),
        (vec![&good, &bad, &bad, &good, &bad, &bad], Health::Up),
        (vec![&bad, &good], Health::Down),
        (vec![&bad, &good, &good], Health::Up),
        (vec![&bad, &good, &bad, &good], Health::Down),
    ];
    for (outcomes, expected) in rows {
        let mut history = History::new(Instant::now());
        let mut changes = 0;
        let mut before = history.health;
        for outcome in &outcomes {
            let changed = history.add(&settings(Check::Tcp), (*outcome).clone(), Instant::now());
            assert_eq!(changed, history.health != before);
            before = history.health;
            changes += usize::from(changed);
        }
        assert_eq!(history.health, expected, "{outcomes:?}");
        assert!(changes > 0);
        assert_eq!(history.error.is_some(), outcomes.contains(&&bad), "the last error stays for people");
    }
}

#[test]
fn changes_are_signaled_and_known_servers_keep_their_health() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let at = |pool| PoolListener { node: 0, pool, address, at: address };
    let wanted = |pool, settings| {
        let listener = at(pool);
        vec![CheckSpec { server: listener.address, protocol: ServerProtocol::Http11, listener, settings }]
    };
    let mut checks = Checks::new().unwrap();
    let wait = |checks: &Checks| {
        let deadline = Instant::now() + Duration::from_secs(2);
        while !checks.have_changed() {
            assert!(Instant::now() < deadline, "nothing has changed");
            thread::sleep(Duration::from_millis(1));
        }
    };
    checks.set(wanted(0, settings(Check::Tcp))).unwrap();
    wait(&checks);
    assert_eq!((checks.of(&at(0)), checks.of(&at(1))), (Some(Health::Up), None));

    // The pools have moved and the check has changed; the state is kept.
    let slow = Settings { interval: Duration::from_secs(600), ..settings(Check::Tcp) };
    checks.set(wanted(1, slow)).unwrap();
    assert_eq!((checks.of(&at(0)), checks.of(&at(1))), (None, Some(Health::Up)));
    checks.set(wanted(1, settings(get("/", None)))).unwrap();
    assert_eq!(checks.of(&at(1)), Some(Health::Unknown), "another question");
    wait(&checks);
    assert_eq!(checks.of(&at(1)), Some(Health::Down), "nobody answers");
    let status = checks.status(&cluster());
    assert_eq!((&status[0].node[..], &status[0].pool[..], &status[0].state[..]), ("a", "web", "down"));
    assert_eq!(status[0].last_error.as_deref(), Some("no answer within 200 ms"));

    checks.set(Vec::new()).unwrap();
    assert_eq!(checks.of(&at(1)), None);
}
