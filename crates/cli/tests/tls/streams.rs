//! Requests of HTTP/2, on a node that has too much to do, or drains: another answers, and the connection stays.

use std::fs;

use crate::common::document::block;
use crate::common::{Cluster, PATIENCE, Plan, Result, text, wait_until};
use crate::{Connection, change_config, curl, tls_status, url};

/// Who answers a client that asks once.
fn answers(cluster: &Cluster) -> Result<String> {
    curl(cluster, &["--http2", "-w", "%header{x-node} %{response_code}", "-o", "/dev/null", &url("/small")])
}

fn wait_for(cluster: &Cluster, node: &str) -> Result {
    let expected = format!("{node} 200");
    wait_until("an answer", PATIENCE, || answers(cluster), |answer| *answer == expected)?;
    Ok(())
}

/// What the first node has forwarded and given.
fn counts(cluster: &Cluster) -> Result<[u64; 2]> {
    let status = tls_status(cluster, 0)?;
    Ok(["forwarded", "given"].map(|key| status[key].as_u64().unwrap_or_default()))
}

#[test]
fn a_busy_node_has_another_answer_streams() -> Result {
    for who in ["x-forwarded", "proxy"] {
        let lines = format!(
            "client_address = \"{who}\"\nsessions = \"forwarding\"\nbusy_connections = 2\nbusy_cpu = \"100%\""
        );
        let mut cluster = Cluster::prepare(Plan {
            // All connections begin at the first node.
            policy: "fill",
            pools: vec![("web", vec![0, 1])],
            tls: Some(lines),
            // Those that are idle may be so for longer than this takes.
            limits: "head_timeout = \"60s\"",
            server_extra: "listen 127.0.0.1:81 proxy_protocol;
                dav_methods PUT; create_full_put_path on; client_max_body_size 0;",
            ..Plan::default()
        })?;
        if who == "proxy" {
            change_config(&cluster, "server = \"127.0.0.1:80\"", "server = \"127.0.0.1:81\"")?;
        }
        cluster.start_daemons()?;
        wait_for(&cluster, "node0")?;
        let idle = [Connection::open(&cluster)?, Connection::open(&cluster)?, Connection::open(&cluster)?];
        wait_for(&cluster, "node1")?;

        let [before, _] = counts(&cluster)?;
        let large = fs::read(cluster.lab.directory().join("documents/1m"))?;
        let out: Vec<_> = (0..10).map(|index| cluster.lab.directory().join(format!("got{index}"))).collect();
        let mut words = vec!["--http2", "-w", "%header{x-node} %{num_connects} %{http_version}\\n"];
        let page = url("/1m");
        out.iter().for_each(|out| words.extend(["-o", text(out), &page]));
        let expected = (0..10).map(|index| format!("node1 {} 2\n", u8::from(index == 0)));
        assert_eq!(curl(&cluster, &words)?, expected.collect::<String>(), "{who}");
        for out in &out {
            assert!(fs::read(out)? == large, "{who}: {} is not what it should be", out.display());
        }
        let (sent, file) = (block(7).repeat(5), cluster.lab.directory().join("upload"));
        fs::write(&file, &sent)?;
        curl(&cluster, &["--http2", "--fail", "-T", text(&file), &url("/upload")])?;
        let arrived = cluster.lab.directory().join("roots/node1/upload");
        assert!(fs::read(arrived)? == sent, "{who}: the upload is not what was sent");
        assert_eq!(counts(&cluster)?, [before + 11, 0], "{who}");

        // It has not heard yet that the other one has gone.
        cluster.kill_node(1)?;
        assert_eq!(answers(&cluster)?, "node0 200", "{who}");
        cluster.start_node(1)?;
        wait_for(&cluster, "node1")?;
        drop(idle);
        wait_for(&cluster, "node0")?;
        cluster.run(cluster.lab.node(0), &["drain", "--no-wait", "node0"])?.success()?;
        assert_eq!(answers(&cluster)?, "node1 200", "{who}");
        cluster.down()?;
    }
    Ok(())
}
