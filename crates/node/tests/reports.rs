//! What a node tells the switches that ask: each test is one of them.

mod common;

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use common::flow::*;
use common::{Result, call, status};
use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};
use switchback_lab::Cluster;
use switchback_runtime::control::{Request, Response};
use switchback_wire::Reason;
use switchback_wire::packet::TcpView;
use switchback_wire::report::{Report, pool_id};
use switchback_wire::{sb_op, sb_reason};

#[test]
fn agent_process() {
    common::agent_process();
}

fn hello(world: &World) -> Result<()> {
    world.flow()?.say(sb_op::SB_OP_HELLO, 0, &[])
}

/// The next report on a listener of this IP version.
fn report(world: &World, v6: bool) -> Result<Report> {
    loop {
        let (option, inner) = common::answer(&world.ear)?;
        if option.op != sb_op::SB_OP_REPORT as u8 || (inner[0] >> 4 == 6) != v6 {
            continue;
        }
        let view = TcpView::parse(&inner).ok_or("no TCP packet")?;
        let mut flow = world.flow()?.handoff.flow;
        flow.vip = switchback_wire::address_bytes(if v6 {
            world.lab.vip6().into()
        } else {
            world.lab.vip4().into()
        });
        flow.vip_port = 80u16.to_be();
        assert_eq!(inner[view.tcp + 2..view.tcp + 4], 80u16.to_be_bytes());
        return Ok(Report::read(&flow, &option));
    }
}

/// Waits for a report of which this is true.
fn report_that(world: &World, v6: bool, is_so: impl Fn(&Report) -> bool) -> Result<Report> {
    let deadline = Instant::now() + common::PATIENCE;
    loop {
        hello(world)?;
        let found = report(world, v6)?;
        if is_so(&found) {
            return Ok(found);
        }
        assert!(Instant::now() < deadline, "{found:?}");
    }
}

fn reason(wanted: Option<Reason>) -> impl Fn(&Report) -> bool {
    move |report| report.reason == wanted
}

#[test]
fn a_switch_that_says_hello_is_told_how_the_node_is_doing() -> Result<()> {
    let world = World::up(false)?;
    listen(&world.listener, Backlog::new(77)?)?;
    world.ear.set_read_timeout(Some(Duration::from_millis(200)))?;
    assert!(common::answer(&world.ear).is_err(), "nobody has asked");
    hello(&world)?;
    let heard = Instant::now();
    let first = report_that(&world, false, |report| report.queue == (0, 77))?;
    assert_eq!((first.pool, first.reason, first.in_flight, first.flows), (pool_id("web"), None, 0, 0));
    assert_eq!(first.first_byte, None);
    let v6 = report_that(&world, true, |report| report.queue == (0, 77))?;
    assert_eq!((v6.listener.port(), v6.pool), (80, first.pool), "a dual-stack listener");
    assert!(report(&world, false)?.number.wrapping_sub(first.number) > 0);

    let mut flow = world.flow()?;
    flow.request(GET)?;
    let busy = report_that(&world, false, |report| report.in_flight == 1)?;
    assert_eq!((busy.flows, busy.queue), (1, (0, 77)));
    std::thread::sleep(Duration::from_millis(60));
    flow.serve(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    let served = report_that(&world, false, |report| report.first_byte.is_some())?;
    assert!(served.first_byte > Some(Duration::from_millis(60)), "{served:?}");
    let idle = report_that(&world, false, |report| report.first_byte.is_none())?;
    assert_eq!((idle.in_flight, idle.flows), (0, 1));
    // Not accepted yet.
    let waiting = world.flow()?;
    waiting.say(SB_OP_ADOPT, 0, GET)?;
    let waited = report_that(&world, false, |report| report.queue.0 == 1)?;
    assert_eq!((waited.in_flight, waited.flows), (1, 2));
    let shown = status(world.node())?;
    assert_eq!(shown["switches"][0], world.lab.switch(0).ipv4().to_string());
    assert_eq!((&shown["in_flight"], &shown["draining"]), (&1.into(), &false.into()));
    assert_eq!(
        (&shown["listeners"][0]["queue_len"], &shown["listeners"][0]["state"]),
        (&1.into(), &"ready".into())
    );

    // Silence on one side, and soon on the other.
    std::thread::sleep(
        Duration::from_secs(4).saturating_sub(heard.elapsed()).max(Duration::from_millis(3200)),
    );
    world.ear.set_nonblocking(true)?;
    while world.ear.recv(&mut [0; 2048]).is_ok() {}
    world.ear.set_nonblocking(false)?;
    assert!(common::answer(&world.ear).is_err(), "the switch has been silent for long");
    Ok(())
}

#[test]
fn a_listener_that_goes_and_comes_is_reported() -> Result<()> {
    let world = World::up(false)?;
    report_that(&world, true, reason(None))?;
    shutdown(world.listener.as_raw_fd(), Shutdown::Both)?;
    let gone = report_that(&world, true, reason(Some(Reason::NoListener)))?;
    assert_eq!(gone.queue, (0, 0));
    assert_eq!(status(world.node())?["listeners"][0]["state"], "nobody listens");
    listen(&world.listener, Backlog::new(5)?)?;
    assert_eq!(report_that(&world, true, reason(None))?.queue, (0, 5));
    Ok(())
}

#[test]
fn a_command_and_the_file_drain_a_node() -> Result<()> {
    let world = World::up(false)?;
    let node = world.node();
    let drain = |name: &str, on| call(node, Request::Drain { node: name.to_owned(), on });
    let lines = |response| match response {
        Response::Done { lines } => lines,
        other => panic!("{other:?}"),
    };
    report_that(&world, false, reason(None))?;
    let other = drain("node1", true)?;
    assert!(
        matches!(&other, Response::Failed { message } if message.contains("this is node node0")),
        "{other:?}"
    );
    assert_eq!(lines(drain("node0", true)?).len(), 1);
    assert_eq!(lines(drain("node0", true)?).len(), 0, "it drains already");
    report_that(&world, false, reason(Some(Reason::Draining)))?;
    let refused = world.flow()?.ask(SB_OP_ADOPT, 0, GET)?;
    assert_eq!(refused, (SB_OP_REFUSED, sb_reason::SB_REASON_DRAINING as u8));
    // A command stays, whatever the file says.
    call(node, Request::Reload {})?;
    assert_eq!(status(node)?["draining"], true);
    assert_eq!(lines(drain("node0", false)?).len(), 1);
    report_that(&world, false, reason(None))?;
    world.flow()?.request(GET)?;

    let text = std::fs::read_to_string(&world.config)?;
    std::fs::write(&world.config, text.replacen("[[node]]\n", "[[node]]\ndrain = true\n", 1))?;
    call(node, Request::Reload {})?;
    assert_eq!((status(node)?["draining"].clone(), world.count("refused_draining")?), (true.into(), 1));
    let said = lines(drain("node0", false)?);
    assert!(said.len() == 2 && said[1].contains("drain = true"), "{said:?}");
    assert_eq!(status(node)?["draining"], false);
    call(node, Request::Reload {})?;
    assert_eq!(status(node)?["draining"], true, "the file says so again");
    std::fs::write(&world.config, text)?;
    call(node, Request::Reload {})?;
    assert_eq!(status(node)?["draining"], false, "no command has said so");
    Ok(())
}

#[test]
fn a_server_that_fails_its_check_is_reported() -> Result<()> {
    let world = World::up(false)?;
    let mut cluster = Cluster::with_policy("round-robin");
    cluster.pools[0].extra =
        "[pool.health]\npath = \"/up\"\ninterval = \"100ms\"\ntimeout = \"50ms\"\n".to_owned();
    world.lab.write_config(&cluster)?;
    assert!(matches!(call(world.node(), Request::Reload {})?, Response::Done { .. }));
    // The kernel accepts, nobody answers.
    report_that(&world, false, reason(Some(Reason::Unhealthy)))?;
    report_that(&world, true, reason(Some(Reason::Unhealthy)))?;
    let shown = status(world.node())?;
    assert_eq!(
        (&shown["health"][0]["state"], &shown["listeners"][0]["state"]),
        (&"down".into(), &"unhealthy".into())
    );
    assert_eq!(shown["health"][0]["last_error"], "no answer within 50 ms");
    std::thread::scope(|scope| {
        let listener = &world.listener;
        let server = scope.spawn(move || -> std::io::Result<()> {
            use std::io::{Read, Write};
            // What has given up is in the queue, too.
            loop {
                let (mut stream, peer) = listener.accept()?;
                if stream.read(&mut [0; 512]).unwrap_or(0) == 0 || peer.ip().is_loopback() {
                    return Ok(());
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        });
        let ready = report_that(&world, false, reason(None));
        // Ends the server.
        drop(world.node().tcp_connect("127.0.0.1:80".parse()?, common::PATIENCE)?);
        server.join().expect("it does not panic")?;
        ready.map(drop)
    })?;
    assert_eq!(status(world.node())?["health"][0]["state"], "up");
    Ok(())
}
