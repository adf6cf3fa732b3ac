//! The cluster key is replaced, as `config.md` says, while a connection moves.

use std::fs;

use serde_json::Value;

use crate::common::{Cluster, PATIENCE, Plan, Result, wait_until};
use crate::{Connection, tls_status};

#[test]
fn a_connection_moves_while_the_cluster_key_is_replaced() -> Result {
    let mut cluster = Cluster::start_with(Plan { tls: Some(String::new()), ..Plan::default() })?;
    let file = cluster.lab.directory().join("cluster.key");
    let old = fs::read_to_string(&file)?;
    let new = cluster.run(cluster.client(), &["keygen"])?.success()?;
    let mut connection = Connection::open(&cluster)?;
    let mut there_and_back = || -> Result {
        for (path, node) in [("/img/small", "200 node1 "), ("/small", "200 node0 ")] {
            let answer = connection.ask(&format!("get {path}"))?;
            assert!(answer.starts_with(node), "{answer}");
        }
        Ok(())
    };
    let mut moves = 0;
    for keys in [format!("{old}{new}"), format!("{new}{old}"), new] {
        fs::write(&file, &keys)?;
        for host in [cluster.lab.node(0), cluster.lab.switch(0), cluster.lab.node(1)] {
            cluster.run(host, &["reload"])?.success()?;
            there_and_back()?;
            moves += 1;
        }
    }
    // One that has never known the old key.
    cluster.stop_node(1)?;
    cluster.start_node(1)?;
    there_and_back()?;
    let counts = || -> Result<Vec<Value>> {
        let [first, second] = [tls_status(&cluster, 0)?, tls_status(&cluster, 1)?];
        Ok([&first["given"], &first["forwarded"], &second["given"], &second["forwarded"]]
            .map(Value::clone)
            .to_vec())
    };
    let expected = [moves + 1, 0, 1, 0];
    wait_until("moves", PATIENCE, counts, |counts| *counts == expected)?;
    drop(connection);
    cluster.down()
}
