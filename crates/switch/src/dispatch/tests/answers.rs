//! Many connections that the switch answers itself.

use std::collections::HashMap;
use std::time::Duration;

use switchback_flow::entry::{Entry, Mode};
use switchback_wire::flow_state::Handshake;
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::{Seq, sb_flow, sb_record, sb_record_kind};

use super::model::{World, apply, flow, get};
use crate::dispatch::Moment;

const FIRST: Seq = Seq(5);
const SERVER: Seq = Seq(9);

/// A dispatcher, and clients each of which has made one connection.
struct Clients {
    world: World,
    map: HashMap<sb_flow, Entry>,
}

/// The entry of a connection whose request is held.
fn held(origin: Seq) -> Entry {
    Entry { handshake: Handshake { mss: 1460, ..Default::default() }, ..Entry::new(origin) }
}

impl Clients {
    fn new() -> Self {
        Clients { world: World::new(), map: HashMap::new() }
    }

    /// A packet of the client's, as the program hands it over; what the client gets.
    fn packet(&mut self, flow: &sb_flow, numbers: (Seq, Seq), tcp_flags: u8, data: &[u8]) -> Vec<Vec<u8>> {
        self.world.waiting.insert(*flow);
        let entry = self.map.entry(*flow).or_insert(held(FIRST)).encode();
        let kind = sb_record_kind::SB_RECORD_REQUEST as u32;
        let record = sb_record { kind, flow: *flow, entry, ..Default::default() };
        let packet = segment(flow, true, numbers, flags::ACK | tcp_flags, None, data);
        let at = Moment {
            now: self.world.now,
            map: &|flow| self.map.get(flow).copied(),
            take: &crate::dispatch::unlimited,
        };
        self.world.dispatcher.on_record(at, &record, &packet);
        let World { dispatcher, locked, waiting, over, .. } = &mut self.world;
        let output = &mut dispatcher.output;
        for changes in [&output.changes, &output.moves] {
            apply(changes, &mut self.map, locked, waiting, over);
        }
        let said = output.packets().filter(|(_, to)| *to == flow.client().ip());
        let said = said.map(|(packet, _)| packet.to_vec()).collect();
        output.clear();
        said
    }

    /// A request that is answered; the sequence number after the answer.
    fn redirect(&mut self, flow: &sb_flow) -> Seq {
        let said = self.packet(flow, (FIRST, SERVER), 0, &get("/old/a"));
        let view = TcpView::parse(&said[0]).unwrap();
        assert!(said[0][view.data..].starts_with(b"HTTP/1.1 308 "));
        view.end_seq() + 1u32
    }
}

/// All from one address.
fn of_port(number: usize) -> sb_flow {
    let port = u16::try_from(number).expect("so many are enough");
    sb_flow { client_port: port.to_be(), ..flow() }
}

#[test]
fn answers_cost_nobodys_budget() {
    let mut clients = Clients::new();
    let limit = clients.world.dispatcher.seen().limits.held_per_source;
    for port in 0..limit / 512 {
        clients.redirect(&of_port(1 + port));
    }
    assert_eq!((clients.world.dispatcher.held(), clients.world.dispatcher.pending()), (0, 0));
    // Somebody behind the same address has room for a head that comes in pieces.
    let good = of_port(60_000);
    clients.packet(&good, (FIRST, SERVER), 0, b"GET / HT");
    assert_eq!(clients.world.dispatcher.pending(), 1);
    assert_eq!(clients.world.dispatcher.stats.dropped_source_full, 0);
}

#[test]
fn an_answer_is_over_when_both_sides_have_closed() {
    let mut clients = Clients::new();
    let one = of_port(1);
    let end = clients.redirect(&one);
    let next = FIRST + get("/old/a").len();
    assert!(clients.packet(&one, (next, end), 0, b"").is_empty());
    let said = clients.packet(&one, (next, end), flags::FIN, b"");
    let view = TcpView::parse(&said[0]).unwrap();
    assert_eq!((view.seq, view.ack, view.flags), (end, next + 1u32, flags::ACK));
    assert!(clients.map.is_empty());
    assert_eq!(clients.world.dispatcher.deadline(), None);
    // A late copy of the request, with its cookie, begins nothing.
    assert!(clients.packet(&one, (FIRST, SERVER), 0, &get("/old/a")).is_empty());
    assert_eq!((clients.map.len(), clients.world.dispatcher.stats.probed), (0, 0));
}

/// Another connection with the same ports begins before the client has acknowledged the first one's answer.
#[test]
fn ports_can_be_used_again_at_once() {
    let mut clients = Clients::new();
    let one = of_port(1);
    clients.redirect(&one);
    clients.map.insert(one, held(Seq(70_000)));
    let said = clients.packet(&one, (Seq(70_000), Seq(80_000)), 0, &get("/old/a"));
    let view = TcpView::parse(&said[0]).unwrap();
    assert_eq!((view.seq, view.ack), (Seq(80_000), Seq(70_000 + get("/old/a").len() as u32)));
    assert_eq!(clients.map[&one].origin, Seq(70_000));
}

#[test]
fn the_oldest_answers_give_way() {
    let mut clients = Clients::new();
    let mut asked = 0;
    while clients.world.dispatcher.stats.answers_forgotten == 0 {
        asked += 1;
        assert!(asked < 65_000, "no bound");
        clients.redirect(&of_port(asked));
        clients.world.now += Duration::from_micros(10);
    }
    assert!(asked > 10_000, "{asked}");
    assert!(!clients.map.contains_key(&of_port(1)) && clients.map.contains_key(&of_port(2)));
    // If the answer was lost, the request comes again and is answered again.
    clients.redirect(&of_port(1));
}

/// By a switch that has been restarted since.
#[test]
fn what_was_answered_by_somebody_else_is_reset() {
    let mut clients = Clients::new();
    let one = of_port(1);
    clients.map.insert(one, Entry { mode: Mode::Answered, ..Entry::new(FIRST) });
    let said = clients.packet(&one, (FIRST + 10u32, SERVER + 200u32), flags::FIN, b"");
    let view = TcpView::parse(&said[0]).unwrap();
    assert_eq!((view.seq, view.flags), (SERVER + 200u32, flags::RST));
    assert!(clients.map.is_empty());
}
