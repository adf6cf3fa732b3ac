//! Applications that keep sessions, each asked by clients directly.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use switchback_lab::{Error, Host, Lab, Result, SessionServerKind, SessionServerOptions};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/sessions/client.py");
const PATIENCE: Duration = Duration::from_secs(5);
const BYTES: usize = 300_000;

#[test]
fn nginx_and_php_keep_sessions() -> Result<()> {
    keeps_sessions(SessionServerKind::NginxPhp, "PHPSESSID")
}

#[test]
fn apache_and_php_keep_sessions() -> Result<()> {
    keeps_sessions(SessionServerKind::ApachePhp, "PHPSESSID")
}

#[test]
fn tomcat_keeps_sessions() -> Result<()> {
    keeps_sessions(SessionServerKind::Tomcat, "JSESSIONID")
}

fn keeps_sessions(kind: SessionServerKind, cookie: &str) -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    let (client, node, other) = (lab.client(0), lab.node(0), lab.node(1));
    let defaults = SessionServerOptions::default();
    let start = Instant::now();
    let server = node.session_server(kind, &defaults)?;
    println!("{kind:?} ready in {:?}", start.elapsed());

    let (head, first) = ask(client, node.ipv4(), "/", &[])?;
    assert_eq!((first.node.as_str(), first.counter), ("node0", 1));
    let set = header(&head, "set-cookie").expect("a new session sets a cookie");
    assert!(set.starts_with(&format!("{cookie}={};", first.session)), "{set}");
    assert!(set.to_lowercase().contains("; path=/;") || set.to_lowercase().ends_with("; path=/"), "{set}");
    assert_eq!(header(&head, "x-node"), Some("node0"));
    assert_eq!(header(&head, "content-type").map(|kind| kind.starts_with("text/plain")), Some(true));

    // Any path, either family; the counter goes on and the cookie is not set again.
    let known = format!("{cookie}={}", first.session);
    let (head, second) = ask(client, node.ipv6(), "/img/some/thing.php?q=/", &["-b", &known])?;
    assert_eq!(second, Answer { counter: 2, ..first.clone() });
    assert_eq!(header(&head, "set-cookie"), None);

    let (head, long) = ask(client, node.ipv4(), &format!("/?bytes={BYTES}"), &["-b", &known])?;
    assert_eq!((long.counter, long.filler), (3, BYTES));
    assert!(header(&head, "content-length").is_some(), "{head}");
    let pieces = format!("/img/?chunked=1&bytes={BYTES}");
    let (head, pieces) = ask(client, node.ipv4(), &pieces, &["-b", &known])?;
    assert_eq!((pieces.counter, pieces.filler), (4, BYTES));
    assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));

    // Another host does not know the session, and gives out one of its own under a name of its own.
    let named = SessionServerOptions { cookie: Some("APP".into()), ..defaults.clone() };
    other.session_server(kind, &named)?;
    let (head, stranger) = ask(client, other.ipv4(), "/", &["-b", &format!("APP={}", first.session)])?;
    assert_eq!((stranger.node.as_str(), stranger.counter), ("node1", 1));
    assert_ne!(stranger.session, first.session);
    let set = header(&head, "set-cookie").expect("a new session sets a cookie");
    assert!(set.starts_with(&format!("APP={};", stranger.session)), "{set}");
    assert_eq!(ask(client, node.ipv4(), "/", &["-b", &known])?.1.counter, 5);

    let base = format!("http://{}", node.ipv4());
    let many = ["--clients", "20", "--requests", "10", "--pools", "/a", "--base", &base, "--seed", "1"];
    let many = client.run([&["python3", CLIENT][..], &many].concat())?.success()?;
    println!("{kind:?}: {many}");
    for expected in [r#""requests": 200, "error_count": 0,"#, r#""nodes": {"/a": {"node0": 20}}"#] {
        assert!(many.contains(expected), "{many}");
    }

    // The server and its workers; PHP too has a process of its own, and eight more.
    let expected = if kind == SessionServerKind::Tomcat { 1 } else { 1 + 1 + 8 };
    assert!(processes(node).len() >= expected, "{:?}", processes(node));
    server.stop()?;
    assert_eq!(processes(node), Vec::<u32>::new());
    let again = node.session_server(kind, &defaults)?;
    let (_, after) = ask(client, node.ipv4(), "/", &["-b", &known])?;
    // Files outlive the server, memory does not.
    assert_eq!(after.counter, if kind == SessionServerKind::Tomcat { 1 } else { 6 });
    again.kill()?;
    let start = Instant::now();
    while !processes(node).is_empty() {
        // The main processes have been waited for; the kernel ends the others in its own time.
        assert!(start.elapsed() < PATIENCE, "{:?}", processes(node));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(ask(client, node.ipv4(), "/", &[]).is_err());
    again.kill()?;

    let left = processes(other);
    assert!(!left.is_empty(), "the other host's server still runs");
    let directory = lab.directory().to_owned();
    lab.down()?;
    assert!(!directory.exists(), "{} is still there", directory.display());
    for pid in left {
        // Empty for a zombie.
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert_eq!(words, "", "process {pid} still runs");
    }
    Ok(())
}

#[test]
fn php_that_is_not_strict_takes_over_the_id_of_a_strange_session() -> Result<()> {
    let lab = Lab::builder().up()?;
    let options = SessionServerOptions { strict: false, ..SessionServerOptions::default() };
    lab.node(0).session_server(SessionServerKind::NginxPhp, &options)?;
    let (_, answer) = ask(lab.client(0), lab.node(0).ipv4(), "/", &["-b", "PHPSESSID=strange"])?;
    assert_eq!((answer.session.as_str(), answer.counter), ("strange", 1));
    lab.down()
}

#[test]
fn tomcat_listens_where_it_is_told() -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    let addresses = |node: &Host| [(node.ipv4(), 8080).into(), (node.ipv6(), 8080).into()];
    for (node, families) in [(lab.node(0), 1), (lab.node(1), 2)] {
        let listen = addresses(node)[..families].to_vec();
        let options = SessionServerOptions { listen: listen.clone(), ..SessionServerOptions::default() };
        node.session_server(SessionServerKind::Tomcat, &options)?;
        assert_eq!(node.run(["ss", "-Hltn", "sport", "8080"])?.success()?.lines().count(), families);
        for address in listen {
            let answer = lab.client(0).run(["curl", "-sS", &format!("http://{address}/")])?.success()?;
            assert!(answer.starts_with(node.name()), "{answer}");
        }
    }
    lab.down()
}

#[test]
fn three_tomcats_start_together() -> Result<()> {
    let lab = Lab::builder().nodes(3).up()?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let starting: Vec<_> = lab
            .nodes()
            .map(|node| {
                scope.spawn(|| {
                    node.session_server(SessionServerKind::Tomcat, &SessionServerOptions::default()).map(drop)
                })
            })
            .collect();
        starting.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    println!("three Tomcats ready in {:?}", start.elapsed());
    lab.down()
}

#[test]
fn what_cannot_be_a_cookies_name_is_refused() -> Result<()> {
    let lab = Lab::builder().up()?;
    for cookie in ["", "a b", "a]=1"] {
        let options = SessionServerOptions { cookie: Some(cookie.into()), ..SessionServerOptions::default() };
        let refused = lab.node(0).session_server(SessionServerKind::NginxPhp, &options);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{cookie:?}");
    }
    Ok(())
}

#[test]
fn the_client_sees_a_session_that_is_lost() -> Result<()> {
    let lab = Lab::builder().up()?;
    let node = lab.node(0);
    node.session_server(SessionServerKind::NginxPhp, &SessionServerOptions::default())?;
    let base = format!("http://{}", node.ipv4());
    // Two pools are one session here, so the counter of each grows by more than one.
    let words = ["python3", CLIENT, "--clients", "2", "--pools", "/a,/img/a", "--base", &base];
    let strict = lab.client(0).run(words)?;
    assert_eq!(strict.status.code(), Some(1), "{}", strict.stdout);
    assert!(strict.stdout.contains(r#""cookies": "PHPSESSID="#), "{}", strict.stdout);
    let moves = lab.client(0).run([&words[..], &["--expect-moves", "--header", "x-user"]].concat())?;
    assert_eq!(moves.status.code(), Some(0), "{}", moves.stdout);
    assert!(!moves.stdout.contains(r#""restarted_sessions": 0"#), "{}", moves.stdout);
    lab.down()
}

#[test]
fn two_applications_keep_sessions_apart() -> Result<()> {
    let lab = Lab::builder().nodes(3).up()?;
    let kinds = [SessionServerKind::NginxPhp, SessionServerKind::ApachePhp, SessionServerKind::Tomcat];
    for (node, kind) in std::iter::zip(lab.nodes(), kinds) {
        let options = SessionServerOptions { img_cookie: Some("IMGSESSION".into()), ..Default::default() };
        node.session_server(kind, &options)?;
        let base = format!("http://{}", node.ipv4());
        let words = ["python3", CLIENT, "--clients", "2", "--pools", "/a,/img/a", "--base", &base];
        lab.client(0).run(words)?.success()?;
        let (head, _) = ask(lab.client(0), node.ipv4(), "/img/a", &[])?;
        let set = header(&head, "set-cookie").expect("a new session sets a cookie").to_lowercase();
        assert!(set.starts_with("imgsession=") && set.contains("path=/"), "{kind:?}: {set}");
    }
    lab.down()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    node: String,
    session: String,
    counter: u32,
    filler: usize,
}

/// One request by curl: the response's head, and what its body says.
fn ask(from: &Host, to: impl Into<IpAddr>, path: &str, options: &[&str]) -> Result<(String, Answer)> {
    let address = std::net::SocketAddr::new(to.into(), 80);
    let url = format!("http://{address}{path}");
    let response = from
        .run([&["curl", "-sS", "-i", "--fail", "--max-time", "10", &url], options].concat())?
        .success()?;
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    let (line, filler) = body.split_once('\n').expect("a line");
    let [node, session, counter] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert!(filler.bytes().all(|byte| byte == b'.'), "{filler}");
    let answer = Answer {
        node: node.into(),
        session: session.into(),
        counter: counter.parse().expect("a number"),
        filler: filler.len(),
    };
    Ok((head.to_owned(), answer))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The processes in a host's network.
fn processes(of: &Host) -> Vec<u32> {
    let output = Command::new("ip").args(["netns", "pids", of.namespace_name()]).output().expect("ip runs");
    let text = String::from_utf8(output.stdout).expect("ip writes numbers");
    text.lines().map(|pid| pid.trim().parse().expect("a number")).collect()
}
