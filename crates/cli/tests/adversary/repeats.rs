//! A request that comes again.

use switchback_lab::Signal;

use crate::client::{Packet, Stack, Syn};
use crate::common::{PATIENCE, Result, wait_until};
use crate::victims::Scene;

/// Requests with this in their targets that servers have had.
fn served(scene: &Scene, what: &str) -> Result<usize> {
    let mut served = 0;
    for node in [0, 1] {
        served += scene.cluster.server_log(node)?.lines().filter(|line| line.contains(what)).count();
    }
    Ok(served)
}

/// A client whose acknowledgment has been lost asks again, and the switch is another process by then. Nor does a copy begin
/// anything that comes when the connection is over.
#[test]
fn a_first_request_that_comes_again_after_a_restart_is_served_once() -> Result {
    let mut scene = Scene::start()?;
    let stack = Stack::new(&scene.cluster)?;
    let mut restarted = None;
    let restarts = [(Signal::SIGTERM, true), (Signal::SIGTERM, false), (Signal::SIGKILL, true)];
    for (number, (signal, timestamps)) in restarts.into_iter().enumerate() {
        let syn = Syn { timestamps, ..Syn::USUAL };
        let mut connection = stack.connect(false, 33_000 + number as u16, syn)?;
        let request = format!("GET /small?again-{number} HTTP/1.1\r\nHost: a\r\n\r\n");
        let first = Packet { data: request.clone().into_bytes(), flags: 0x18, ..connection.packet() };
        connection.write(request.as_bytes())?;
        connection.response()?;
        let switch = restarted.as_ref().unwrap_or(scene.cluster.switch());
        switch.signal(signal)?;
        switch.wait_timeout(PATIENCE)?.ok_or("the switch does not end")?;
        let switch = scene.cluster.spawn_switch()?;
        switch.wait_for_log("ready", PATIENCE)?;
        restarted = Some(switch);
        // As if nothing had come: neither the response nor an acknowledgment.
        connection.send(&first)?;
        // The connection goes on, with whoever has it.
        connection.get(&format!("/small?next-{number}"), b"")?;
        let closed = || scene.cluster.switch_counter("closed");
        let before = closed()?;
        connection.close()?;
        wait_until("CLOSED", PATIENCE, closed, |now| *now > before)?;
        connection.send(&first)?;
        // Or the times between their retransmissions would grow beyond their patience.
        scene.victims.go_on()?;
        let what = format!("?again-{number} ");
        assert_eq!(served(&scene, &what)?, 1, "{what} after {signal}");
    }
    drop(stack);
    scene.cluster.replace_switch(restarted.expect("the switch has been restarted"));
    scene.down()
}
