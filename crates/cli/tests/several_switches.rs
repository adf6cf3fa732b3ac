//! Several active switches behind a router that spreads flows over them (ECMP), and changes its mind.

mod common;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::document::block;
use common::http::{Documents, alternating, fetch};
use common::{PATIENCE, PROGRAM, Plan, Result, alone};
use switchback_lab::{Lab, Process, ServerOptions, Topology};

const SWITCHES: usize = 3;

fn start_switch(lab: &Lab, switch: usize, config: &std::path::Path) -> Result<Process> {
    let mut command: Command = lab.switch(switch).command(PROGRAM);
    command.args(["switch", "--interface", "eth0", "--config"]).arg(config);
    let process = lab.switch(switch).spawn("switch", command)?;
    process.wait_for_log("ready", PATIENCE)?;
    Ok(process)
}

#[test]
fn connections_stay_while_the_router_sends_them_by_way_of_any_switch() -> Result {
    let _alone = alone();
    let lab = Lab::builder().topology(Topology::Routed).switches(SWITCHES).nodes(2).up()?;
    lab.add_document("img/small", &[b'#'; 200])?;
    lab.add_document("img/1m", &block(1))?;
    let config = lab.write_config_text(&Plan::default().config(&lab))?;
    for node in lab.nodes() {
        node.nginx(&ServerOptions::default())?;
        let mut agent = node.command(PROGRAM);
        agent.args(["node", "--name", node.name(), "--interface", "eth0", "--config"]).arg(&config);
        node.spawn("agent", agent)?.wait_for_log("ready", PATIENCE)?;
    }
    let _switches =
        (0..SWITCHES).map(|switch| start_switch(&lab, switch, &config)).collect::<Result<Vec<_>>>()?;
    let documents = Documents::of(&lab)?;
    let over = AtomicBool::new(false);
    let routes: [&[usize]; 5] = [&[0, 1, 2], &[1, 2], &[0], &[2, 0], &[1]];
    thread::scope(|scope| -> Result {
        let flaps = scope.spawn(|| -> Result<usize> {
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                lab.spread_vips(routes[count % routes.len()])?;
                count += 1;
                thread::sleep(Duration::from_millis(97));
            }
            Ok(count)
        });
        let client = || -> Result<(usize, Duration)> {
            let gets = alternating(&documents, 200, |path| format!("http://{}{path}", lab.vip4()));
            let start = Instant::now();
            let responses = fetch(lab.client(0), &gets, &[], Duration::from_secs(100))?;
            let connects: u64 = responses.iter().map(|response| response.connects).sum();
            assert_eq!(connects, 1, "connections were lost");
            Ok((responses.len(), start.elapsed()))
        };
        let clients: Vec<_> = (0..6).map(|_| scope.spawn(client)).collect();
        let served: Vec<_> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
        over.store(true, Ordering::Relaxed);
        println!("{} changes of the route", flaps.join().expect("no panic")?);
        for client in served {
            println!("{:?}", client?);
        }
        Ok(())
    })?;
    lab.down()?;
    Ok(())
}
