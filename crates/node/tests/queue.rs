//! Adoptions that arrive together, at a queue that has no room for all of them.

mod common;

use common::flow::*;
use common::{Result, tcp_counter, wait_for_counter};
use nix::sys::socket::{Backlog, listen, setsockopt, sockopt};
use switchback_wire::report::Queue;
use switchback_wire::{sb_outcome, sb_reason};

const FLOWS: usize = 200;

#[test]
fn agent_process() {
    common::agent_process();
}

/// Packets that arrive together all pass the program before the first of them reaches the listener.
fn burst(world: &World, share: u8, room: usize) -> Result<()> {
    let (adopted, refused) = (world.count("adopted")?, world.count("refused_queue_full")?);
    let mut packets = Vec::new();
    for _ in 0..FLOWS {
        let mut flow = world.flow()?;
        flow.handoff.share = share;
        packets.push(flow.handed_over(SB_OP_ADOPT, 0, GET));
    }
    for packet in &packets {
        world.raw.send(world.node().ipv4().into(), packet)?;
    }
    let wanted = refused + (FLOWS - room) as u64;
    assert_eq!(
        wait_for_counter(world.node(), "refused_queue_full", wanted)?,
        wanted,
        "{share}% of the queue"
    );
    assert_eq!(wait_for_counter(world.node(), "adopted", adopted + room as u64)?, adopted + room as u64);
    assert_eq!(tcp_counter(world.node(), "ListenOverflows")?, 0);
    world.listener.set_nonblocking(true)?;
    let accepted: Vec<_> = std::iter::from_fn(|| world.listener.accept().ok()).collect();
    assert_eq!(accepted.len(), room, "{share}% of the queue");
    for _ in 0..FLOWS {
        let mut option = common::answer(&world.ear)?.0;
        while option.op == SB_OP_CLOSED as u8 {
            // Of an earlier burst.
            option = common::answer(&world.ear)?.0;
        }
        let queue = Queue::from(option.said::<sb_outcome>().queue);
        if option.op == SB_OP_ADOPTED as u8 {
            assert!(usize::from(queue.0) <= room, "{queue:?}");
        } else {
            assert_eq!(
                (option.op, option.reason),
                (SB_OP_REFUSED as u8, sb_reason::SB_REASON_QUEUE_FULL as u8)
            );
            assert_eq!(usize::from(queue.0), room);
        }
    }
    Ok(())
}

#[test]
fn a_burst_fills_the_queue_and_no_more() -> Result<()> {
    let world = World::up(false)?;
    setsockopt(&world.ear, sockopt::RcvBufForce, &(1 << 22))?;
    // The kernel lets one more in than the limit.
    for (limit, share, room) in [(19, 100, 20), (19, 50, 10), (0, 100, 1), (19, 1, 1)] {
        listen(&world.listener, Backlog::new(limit)?)?;
        burst(&world, share, room)?;
    }
    Ok(())
}

/// Who does not ask about the queue loses what is too much for it, as with any SYN.
#[test]
fn blind_adoptions_overflow_the_queue() -> Result<()> {
    let world = World::up(false)?;
    listen(&world.listener, Backlog::new(4)?)?;
    for _ in 0..20 {
        let mut flow = world.flow()?;
        flow.handoff.share = 0;
        flow.say(SB_OP_ADOPT, 0, GET)?;
    }
    assert_eq!(wait_for_counter(world.node(), "refused_failed", 15)?, 15);
    assert_eq!((world.count("adopted")?, tcp_counter(world.node(), "ListenOverflows")?), (5, 15));
    Ok(())
}
