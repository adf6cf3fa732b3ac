//! A node dies in the middle of responses, and other nodes go on with them on the same connections.

mod common;

use std::time::{Duration, Instant};

use common::http::{Document, Response, add_long_document, start_fetch};
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::ServerKind;

/// All packets.
const ALL: u32 = 1000;
const DOWNLOADS: usize = 12;

fn start() -> Result<Cluster> {
    Cluster::start_with(Plan {
        servers: vec![ServerKind::Nginx; 3],
        pools: vec![("web", vec![0, 1, 2])],
        pool_lines: "resume = \"range\"\n".to_owned(),
        ..Plan::default()
    })
}

/// What a node says of its resumed responses.
fn of_resume(cluster: &Cluster, node: usize, key: &str) -> Result<u64> {
    let status = cluster.node_status(node)?;
    status["resume"][key].as_u64().ok_or_else(|| format!("no {key} in {status}").into())
}

/// Downloads that run beside `work`.
fn downloading<T>(
    cluster: &Cluster,
    document: &Document,
    urls: Vec<String>,
    options: &[&str],
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Response>)> {
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for url in urls {
            let gets = vec![(url, document.clone())];
            let wait = start_fetch(cluster.client(), gets, options, Duration::from_secs(60))?;
            running.push(scope.spawn(move || wait().map_err(|error| error.to_string())));
        }
        let done = work()?;
        let mut responses = Vec::new();
        for download in running {
            responses.extend(download.join().expect("no panic")?);
        }
        Ok((done, responses))
    })
}

#[test]
fn downloads_go_on_when_their_node_dies() -> Result {
    let cluster = start()?;
    let document = add_long_document(&cluster, "/big", 16)?;
    let urls = (0..DOWNLOADS).map(|index| match index % 2 {
        0 => cluster.url4("/big"),
        _ => cluster.url6("/big"),
    });
    let ((), responses) = downloading(&cluster, &document, urls.collect(), &["--limit-rate", "4M"], || {
        let under_way = || Ok([0, 1, 2].map(|node| of_resume(&cluster, node, "under_way").unwrap_or(0)));
        let told = |counts: &[u64; 3]| counts.iter().sum::<u64>() == DOWNLOADS as u64;
        wait_until("all responses are insured", PATIENCE, under_way, told)?;
        cluster.lab.node(0).set_loss(ALL, ALL)?;
        let start = Instant::now();
        let resumed = || Ok(cluster.switch_status()?["dispatch"]["resumed"].as_u64().unwrap_or(0));
        wait_until("responses have gone on", PATIENCE, resumed, |count| *count >= 1)?;
        println!("the first one after {:?}", start.elapsed());
        Ok(())
    })?;
    for response in &responses {
        println!("{response:?}");
    }
    assert_eq!(responses.len(), DOWNLOADS);
    println!("{}", cluster.switch_status()?["dispatch"]);
    cluster.lab.node(0).set_loss(0, 0)?;
    cluster.down()
}
