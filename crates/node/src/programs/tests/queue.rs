//! Adoptions and the room in accept queues.

use std::time::Duration;

use nix::sys::socket::{Backlog, listen};
use sb_op::*;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;

/// Unaccepted flows at a listener.
struct Queue<'a> {
    bench: &'a Bench,
    port: u16,
}

impl Queue<'_> {
    fn new(bench: &Bench, limit: i32) -> Queue<'_> {
        listen(bench.listener(&flow(false, 1, PORT)), Backlog::new(limit).unwrap()).unwrap();
        Queue { bench, port: 50_000 }
    }

    fn next(&mut self) -> KnownFlow {
        self.port += 1;
        KnownFlow { flow: flow(false, self.port, PORT), seq: 1000, ack: 5000, socket: None }
    }

    /// Adds a connection to the queue.
    fn fill(&mut self) {
        let known = self.next();
        let adopted = self.bench.counter(NodeCounter::Adopted);
        let option = known.option(SB_OP_ADOPT).with(|said: &mut sb_handover| said.queue_share = 0);
        self.bench.send(&known.hand_over(option, REQUEST));
        wait_until("an adoption", || self.bench.counter(NodeCounter::Adopted) > adopted);
    }

    /// The queue reported by a refusal, if this share of it has no room.
    fn refuses(&mut self, share: u8) -> Option<(u16, u16)> {
        let known = self.next();
        let option = known.option(SB_OP_ADOPT).with(|said: &mut sb_handover| said.queue_share = share);
        let (verdict, out) = self.bench.ingress(&to_us(&known.hand_over(option, REQUEST)), 0);
        // In a test run the kernel refuses the flow, so its entry is dropped at last.
        wait_until("the end of the adoption", || self.bench.flow(&known.flow).is_none());
        if verdict == Verdict::Drop {
            return None;
        }
        let answer = Handoff::parse(&out).expect("an answer").option;
        assert_eq!((answer.op, answer.reason), (SB_OP_REFUSED as u8, sb_reason::SB_REASON_QUEUE_FULL as u8));
        Some(answer.said::<sb_outcome>().queue.into())
    }
}

#[test]
fn a_share_of_the_queue_is_used() {
    alone(|| {
        let bench = Bench::new();
        // The kernel admits one more than the limit. Rows: share, and the length at which it is used up.
        let mut queue = Queue::new(&bench, 3);
        let rows = [
            (0, None),
            (1, Some(1)),
            (25, Some(1)),
            (50, Some(2)),
            (99, Some(3)),
            (100, Some(4)),
            (255, Some(4)),
        ];
        for len in 0..=4 {
            for (share, full) in rows {
                let expected = full.filter(|full| len >= *full).map(|_| (len, 3));
                assert_eq!(queue.refuses(share), expected, "{share}% with {len} in the queue");
            }
            assert_eq!(bench.reserved(), 0, "places that are not given back");
            if len < 4 {
                queue.fill();
            }
        }
    });
}

#[test]
fn reserved_places_count_until_they_are_lost() {
    alone(|| {
        let bench = Bench::new();
        let mut queue = Queue::new(&bench, 3);
        bench.reserve(3, Duration::from_millis(50));
        assert_eq!(queue.refuses(100), None, "one place is left");
        bench.reserve(4, Duration::ZERO);
        assert_eq!(queue.refuses(100), Some((4, 3)));
        queue.fill();
        assert_eq!(queue.refuses(100), Some((5, 3)), "one is in the queue already");
        bench.reserve(4, Duration::from_millis(150));
        let before = bench.reserved();
        assert_eq!(queue.refuses(100), None, "nobody has touched them for long");
        assert_eq!(bench.reserved(), before - 4, "this listener's places");
    });
}

/// A flow replaced by its client gets a place once its old socket has gone.
#[test]
fn a_cured_flow_takes_one_place() {
    alone(|| {
        let bench = Bench::new();
        let mut queue = Queue::new(&bench, 10);
        let mut known = queue.next();
        known.adopt(&bench);
        known.answer();
        known.seq += 1 << 20;
        let adopted = bench.counter(NodeCounter::Adopted);
        bench.send(&known.hand_over(known.option(SB_OP_ADOPT), REQUEST));
        wait_until("the adoption", || bench.counter(NodeCounter::Adopted) > adopted);
        assert_eq!((bench.counter(NodeCounter::Cured), bench.reserved()), (1, 0));
        let owned = bench.flow(&known.flow).expect("it is here");
        assert_eq!((owned.queue_len, owned.queue_limit, owned.slot), (1, 10, 0));
    });
}

/// A flow on the node stays there when the node drains.
#[test]
fn a_draining_node_keeps_its_flows() {
    alone(|| {
        let bench = Bench::new();
        let mut queue = Queue::new(&bench, 10);
        let mut known = queue.next();
        let adopt = to_us(&known.hand_over(known.option(SB_OP_ADOPT), REQUEST));
        known.adopt(&bench);
        bench.set(NODE[0], true);
        let answers = |frame: &[u8]| {
            let (verdict, out) = bench.ingress(frame, 0);
            assert_eq!(verdict, Verdict::Redirect);
            let option = Handoff::parse(&out).expect("an answer").option;
            (option.op, option.reason)
        };
        assert_eq!(answers(&adopt), (SB_OP_ADOPTED as u8, 0), "a copy");
        let forward = to_us(&known.hand_over(known.option(SB_OP_FORWARD), REQUEST));
        assert_eq!(bench.ingress(&forward, 0).0, Verdict::Pass);
        let other = queue.next();
        let refused = (SB_OP_REFUSED as u8, sb_reason::SB_REASON_DRAINING as u8);
        let adopt = to_us(&other.hand_over(other.option(SB_OP_ADOPT), REQUEST));
        assert_eq!(answers(&adopt), refused);
        // A flow that was here, but has been released.
        let state = sb_ownership::SB_OWN_RELEASED as u8;
        bench.put(&other.flow, &sb_owned { state, ..other.owned() });
        assert_eq!(answers(&adopt), refused);
        assert_eq!(bench.flow(&other.flow).map(|owned| owned.state), Some(state), "it stays mute");
        bench.set(NODE[0], false);
        bench.forget(&other.flow);
        assert_eq!(bench.ingress(&adopt, 0).0, Verdict::Drop, "it is adopted");
    });
}
