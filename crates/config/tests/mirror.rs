//! Pools that get copies of a route's requests.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use common::{GOOD, SECRET, changed, good, read};
use switchback_config::Mirror;

/// The good file with these lines in its route to the pool `web`, and a second pool.
fn mirrored(lines: &str) -> String {
    let pool = "[[pool]]\nname = \"shadow\"\nnodes = [\"n2\"]\npolicy = \"random\"\n\n[[service]]";
    changed("pool = \"web\"", &format!("pool = \"web\"\n{lines}")).replacen("[[service]]", pool, 1)
}

#[test]
fn what_a_mirror_gets() {
    let cluster = good(&mirrored("mirror = \"shadow\""));
    let service = &cluster.services[0];
    assert_eq!(service.routes[0].mirror, Some(Mirror { pool: 1, share: 10_000 }));
    assert!(service.pools().any(|pool| pool == 1), "its servers listen for the service");
    let quarter = good(&mirrored("mirror = \"shadow\"\nmirror_share = \"0.25%\""));
    assert_eq!(quarter.services[0].routes[0].mirror, Some(Mirror { pool: 1, share: 25 }));
    let [gone, new] = &cluster.diff(&quarter)[..] else { panic!("{:?}", cluster.diff(&quarter)) };
    assert!(gone.ends_with("-> web, mirror 100% to shadow"), "{gone}");
    assert!(new.ends_with("-> web, mirror 0.25% to shadow"), "{new}");
}

#[test]
fn copies_reach_no_hidden_nodes() {
    let hidden = mirrored("mirror = \"shadow\"").replacen("weight = 3", "weight = 3\nhidden = true", 1);
    let Err(error) = read(&hidden) else { panic!("copies cannot reach n2") };
    let error = error.to_string();
    assert!(
        error.contains(
            "mirror to pool \"shadow\" with node \"n2\", which is hidden, so that no copy reaches it"
        ),
        "{error}"
    );
}

#[test]
fn what_passes_through_is_not_copied() {
    let passed = format!("{GOOD}{SECRET}mirror = \"web\"\n");
    let passed = passed.replace("server = \"127.0.0.1:8080\"", "passthrough = true");
    let (before, behind) = passed.split_once("[[service.tls.certificate]]").expect("it is there");
    let passed = format!("{before}{}", behind.split_once("\n\n").expect("a route follows").1);
    let error = read(&passed).expect_err("nobody reads the requests").to_string();
    assert!(error.contains("mirror in a service with passthrough, where nobody reads requests"), "{error}");
}
