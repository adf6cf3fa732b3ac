//! What clients that do not read cost a node's memory, and those beside them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Cluster, PATIENCE, Result, load, wait_until};
use crate::{PYTHON, authority, curl, program, start, tls_status, url};

/// Memory of the first node's agent, in mebibytes (proc_pid_status(5), VmRSS).
pub fn resident(cluster: &Cluster) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", cluster.agent(0).pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib >> 10)
}

#[test]
fn clients_that_do_not_read_cost_little_memory() -> Result {
    // The first has as many streams as one connection may have.
    let (clients, most, left) = load((100, 300, 60), (1000, 1000, 200));
    let cluster = start(1, "")?;
    curl(&cluster, &["--http2", "-o", "/dev/null", &url("/1m")])?;
    let before = resident(&cluster)?;
    let vip = cluster.lab.vip4().to_string();
    let mut command = cluster.client().command(PYTHON);
    command.args([&program("unread.py"), &vip, &authority(&cluster), &clients.to_string(), "128", "/1m"]);
    let mut unread = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(unread.stdout.take().expect("piped")).read_line(&mut said)?;
    assert_eq!(said, "asked\n");
    // All are asked, answered as far as they are to be, or refused.
    let settled = || -> Result<(u64, u64)> {
        let status = tls_status(&cluster, 0)?;
        let count = |key: &str| status[key].as_u64().unwrap_or_default();
        Ok((count("requests") + count("streams_refused"), count("streams_refused")))
    };
    let all = clients * 128 + 1;
    let (_, refused) = wait_until("all streams", Duration::from_secs(60), settled, |(seen, _)| *seen == all)?;
    assert!(refused > 0, "more than a source may have");
    let during = resident(&cluster)?;
    // Somebody who comes from the same address, and reads.
    for http in ["--http1.1", "--http2"] {
        let size = curl(&cluster, &[http, "-o", "/dev/null", "-w", "%{size_download}", &url("/1m")])?;
        assert_eq!(size, (1 << 20).to_string(), "{http}");
    }
    writeln!(unread.stdin.take().expect("piped"))?;
    unread.wait()?;
    let gone = || Ok(tls_status(&cluster, 0)?["connections"].as_u64().unwrap_or_default());
    wait_until("the end of the connections", PATIENCE, gone, |left| *left == 0)?;
    let after = wait_until(
        "memory to be given back",
        PATIENCE,
        || resident(&cluster),
        |after| *after < before + left,
    )?;
    println!("{clients} clients: {before} MiB before, {during} during, {after} after, {refused} refused");
    assert!(during < before + most, "{before} MiB before, {during} MiB while {clients} clients do not read");
    cluster.down()
}
