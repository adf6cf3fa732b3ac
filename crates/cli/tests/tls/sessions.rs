//! Clients come again with their sessions, and get to a node that knows them.

use serde_json::Value;

use crate::common::{Result, load};
use crate::{PYTHON, TIMEOUT, authority, program, start};

/// How many of the clients go on with their session, and how many get to the same node, as shares of one.
#[derive(Debug)]
struct Shares {
    reused: f64,
    same_node: f64,
}

/// With each version of TLS.
fn shares(lines: &str) -> Result<[Shares; 2]> {
    let (nodes, clients) = load((4, 200), (8, 1000));
    let cluster = start(nodes, lines)?;
    let mut all = Vec::new();
    for version in ["1.2", "1.3"] {
        let (vip, authority) = (cluster.lab.vip4().to_string(), authority(&cluster));
        let count = clients.to_string();
        let words = [PYTHON, &program("sessions.py"), &vip, &authority, version, &count];
        let said = cluster.client().run_within(TIMEOUT, words)?.success()?;
        let said: Value = serde_json::from_str(&said)?;
        let share = |key: &str| said[key].as_f64().unwrap_or(f64::NAN) / f64::from(clients);
        all.push(Shares { reused: share("reused"), same_node: share("same_node") });
    }
    println!("{lines}: {all:?}");
    // Each node counts what it has seen.
    let mut counted = 0;
    for node in 0..nodes {
        counted += crate::tls_status(&cluster, node)?["resumed"].as_u64().unwrap_or_default();
    }
    let reused: f64 = all.iter().map(|shares| shares.reused * f64::from(clients)).sum();
    assert_eq!(counted, reused.round() as u64, "resumed sessions");
    cluster.down()?;
    Ok(all.try_into().expect("two versions"))
}

/// A session is known where it began, where the client gets by chance.
#[test]
fn by_chance_one_of_so_many_nodes_knows_a_session() -> Result {
    for shares in shares("sessions = \"round-robin\"")? {
        assert!((0.05..0.45).contains(&shares.reused), "{shares:?}");
        assert!((shares.same_node - shares.reused).abs() < f64::EPSILON, "{shares:?}");
    }
    Ok(())
}

#[test]
fn a_client_gets_to_the_node_that_has_its_session() -> Result {
    for shares in shares("sessions = \"session\"")? {
        assert!(shares.reused >= 0.99 && shares.same_node >= 0.99, "{shares:?}");
    }
    Ok(())
}

#[test]
fn with_tickets_of_the_cluster_every_node_knows_a_session() -> Result {
    for shares in shares("sessions = \"round-robin\"\ntickets = \"cluster\"")? {
        assert!(shares.reused >= 0.99 && shares.same_node < 0.45, "{shares:?}");
    }
    Ok(())
}
