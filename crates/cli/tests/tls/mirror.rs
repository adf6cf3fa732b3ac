//! Pools that get copies of requests over TLS: those of both versions of HTTP, as their servers would get them.

use std::fs;

use switchback_lab::ServerKind;

use crate::common::{PATIENCE, Plan, Result, wait_until};
use crate::{curl, prepare_echo, url};

/// The node of the mirror, which has no certificate.
const SHADOW: usize = 2;
const ROUTES: &str = r#"
[[service.route]]
path = "/here/"
request_header = { set = { name = "X-Set", value = "1" } }
pool = "web"
mirror = "shadow"

[[service.route]]
path = "/elsewhere/"
pool = "img"
mirror = "shadow"
"#;

#[test]
fn copies_are_as_the_mirrors_servers_would_get_them() -> Result {
    let mut cluster = prepare_echo(Plan {
        servers: vec![ServerKind::Nginx; 3],
        pools: vec![("web", vec![0]), ("img", vec![1]), ("shadow", vec![SHADOW])],
        tls: Some(String::new()),
        tls_routes: ROUTES,
        ..Plan::default()
    })?;
    cluster.start_daemons()?;
    let client = cluster.client().ipv4();
    let log = cluster.lab.directory().join(format!("requests-{SHADOW}"));
    for http in ["--http1.1", "--http2"] {
        fs::write(&log, "")?;
        let fields =
            ["-H", "Cookie: a=b", "-H", "X-Mirrored: 2", "-w", "%header{x-node}\n", "-o", "/dev/null"];
        let ask = |words: &[&str]| curl(&cluster, &[&[http], &fields[..], words].concat());
        assert_eq!(ask(&[&url("/here/a?b")])?, "node0\n");
        assert_eq!(ask(&[&url("/elsewhere/c")])?, "node1\n");
        assert_eq!(ask(&["--data", "body", &url("/here/d")])?, "node0\n");
        assert_eq!(ask(&[&url("/none")])?, "node0\n");
        assert_eq!(ask(&[&url("/elsewhere/last")])?, "node1\n");
        // A body in HTTP/2 comes behind its head.
        let bodies = if http == "--http2" { 0 } else { 1 };
        let copies = || Ok(fs::read_to_string(&log)?.lines().map(str::to_owned).collect::<Vec<_>>());
        let copies = wait_until("copies", PATIENCE, copies, |copies| copies.len() == 3 + bodies)?;
        for (line, field) in
            [("GET /here/a?b", "x-set: 1"), ("GET /elsewhere/c", ""), ("GET /elsewhere/last", "")]
        {
            let copy = copies.iter().find(|copy| copy.starts_with(&format!("'{line} HTTP/1.1\\r\\n")));
            let copy = copy.ok_or_else(|| format!("{http} {line}: {copies:?}"))?.to_lowercase();
            let has = |field: &str| copy.contains(&format!("\\r\\n{field}"));
            assert!(has(&format!("x-forwarded-for: {client}\\r\\n")) && has("cookie: a=b\\r\\n"), "{copy}");
            assert!(has("host: ") && has("connection: close\\r\\n") && has(field), "{copy}");
            assert!(has("x-mirrored: 1\\r\\n") && !has("x-mirrored: 2"), "{copy}");
        }
        if bodies > 0 {
            let copy = copies.iter().find(|copy| copy.starts_with("'POST /here/d"));
            assert!(copy.is_some_and(|copy| copy.ends_with("\\r\\n\\r\\nbody'")), "{copies:?}");
        }
    }
    let status = cluster.node_status(SHADOW)?;
    assert_eq!(
        (&status["copies"]["answered"], &status["copies"]["failed"]),
        (&7.into(), &0.into()),
        "{status}"
    );
    cluster.down()
}
