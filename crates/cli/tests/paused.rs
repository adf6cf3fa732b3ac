//! A download that its client has paused goes on when its switch has died, although the client's word that it has room
//! again died with it.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::http::Document;
use common::steady::Steady;
use common::{PATIENCE, PROGRAM, Plan, Result, alone, counter, start_daemon, status, wait_until};
use nix::sys::socket::{setsockopt, sockopt};
use switchback_lab::{Host, Lab, ServerKind, ServerOptions, Topology};

/// What the client's socket holds, in bytes.
const RECEIVE_BUFFER: usize = 1 << 16;
/// The server's socket has asked for room so often that it waits 6.4 seconds before it asks again.
const BACKED_OFF: &str = "backoff:5";

/// Reads what has arrived.
fn drain(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result {
    stream.set_nonblocking(true)?;
    let drained = stream.read_to_end(received);
    stream.set_nonblocking(false)?;
    match drained {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        other => Err(format!("the download ended: {other:?}").into()),
    }
}

/// Whether the node's server waits for the client's window.
fn is_backed_off(node: &Host) -> Result<bool> {
    let output = node.run(["ss", "-tinH", "state", "established"])?;
    Ok(output.stdout.contains(BACKED_OFF))
}

/// Pauses a download until its server's timer has backed off, cuts its switch off, and lets it go on. Returns how long it
/// stood still after its client's packets went to the other switch, which gets those of `others` clients, too.
fn pause_and_go_on(others: usize) -> Result<Duration> {
    let _alone = alone();
    let lab = Lab::builder().topology(Topology::Routed).switches(2).nodes(2).up()?;
    let plan =
        Plan { servers: vec![ServerKind::Nginx; 2], pools: vec![("web", vec![0, 1])], ..Default::default() };
    let config = lab.write_config_text(&(plan.config(&lab) + "\n{switches}"))?;
    for node in lab.nodes() {
        node.nginx(&ServerOptions { extra: "keepalive_requests 1000000;".to_owned(), ..Default::default() })?;
        start_daemon(node, "node", &config)?;
    }
    for index in 0..2 {
        start_daemon(lab.switch(index), "switch", &config)?;
        // It has asked for the nodes' flows, and knows none of those that begin after that.
        let ready = || Ok(lab.switch(index).run([PROGRAM, "ready"])?);
        wait_until("ready", PATIENCE, ready, |said| said.status.success())?;
    }
    let vip = SocketAddr::new(lab.vip4().into(), 80);
    let (small, large) = (Document::of(&lab, "/small")?, Document::of(&lab, "/1m")?);
    let pause = || -> Result<Duration> {
        let mut stream = lab.client(0).enter(|| TcpStream::connect_timeout(&vip, PATIENCE))??;
        setsockopt(&stream, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = format!("GET {} HTTP/1.1\r\nHost: {vip}\r\nConnection: close\r\n\r\n", large.path);
        stream.write_all(request.as_bytes())?;
        let backed_off = || lab.nodes().map(is_backed_off).collect::<Result<Vec<bool>>>();
        wait_until("probes of the window", PATIENCE, backed_off, |nodes| nodes.contains(&true))?;
        let mut received = Vec::new();
        lab.switch(0).cut_link()?;
        drain(&mut stream, &mut received)?;
        lab.move_vips(1)?;
        let moved = Instant::now();
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        let waited = moved.elapsed();
        received.extend(byte);
        stream.read_to_end(&mut received)?;
        assert!(received.ends_with(&large.body), "{} bytes are wrong", received.len());
        Ok(waited)
    };
    let steady = Steady { clients: others, pause: Duration::from_millis(100), close: false };
    let (waited, served) = steady.run_beside(lab.client(0), vip, (small.path, &small.body), pause)?;
    println!("it went on after {waited:?}; the slowest request took {:?}", served.slowest);
    served.assert_all_answered();
    let probes = lab.nodes().map(|node| counter(&status(node)?, "stalled")).sum::<Result<u64>>()?;
    assert!(probes >= 1, "no client was asked");
    lab.down()?;
    Ok(waited)
}

/// Nodes notice that flows come by another switch.
#[test]
fn a_paused_download_goes_on_when_its_switch_has_died() -> Result {
    let waited = pause_and_go_on(60)?;
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    Ok(())
}

/// Nodes notice that the switch is silent: no flow but this one could tell them.
#[test]
fn a_paused_download_goes_on_though_its_switch_had_no_other_flow() -> Result {
    let waited = pause_and_go_on(0)?;
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    Ok(())
}
