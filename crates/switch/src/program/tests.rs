//! Packets through the real program, as rows: description, packet, verdict and all effects. A row names exactly the
//! counters that move, the frame that is sent, the record for the L7 thread and the flow entry afterwards. The rows
//! need the capabilities to load a program, but no network.

mod bench;
mod bodies;
mod damaged;
mod forged;
mod forward;
mod frames;
mod fuzz;
mod guard;
mod handshake;
mod headroom;
mod icmp;
mod invariants;
mod malformed;
mod many_clients;
mod many_flows;
mod neighbour;
mod new_connections;
mod node;
mod observed;
mod once;
mod pins;
mod placed;
mod probes;
mod recycled;
mod strangers;
mod threads;
mod transmit;
mod verifier;
mod walker;

use switchback_wire::packet::TcpView;
use switchback_wire::*;

use crate::plan::NodeId;
use bench::{Bench, Verdict};
use frames::flows;

/// One packet and its expected effects.
struct Row {
    what: String,
    frame: Vec<u8>,
    verdict: Verdict,
    /// Counters that move by one; no others may move.
    moves: Vec<SwitchCounter>,
    flow: sb_flow,
    before: Option<sb_flow_entry>,
    after: Option<sb_flow_entry>,
    /// The frame afterwards; None if the program leaves it unchanged.
    sent: Option<Vec<u8>>,
    record: Option<sb_record_kind>,
    /// The packet in the record; None if it is the frame's IP packet.
    inner: Option<Vec<u8>>,
    /// Node and option of the record.
    from_node: Option<(NodeId, sb_option)>,
}

impl Row {
    /// A packet of a flow without an entry before and after.
    fn new(
        what: &str,
        flow: &sb_flow,
        frame: Vec<u8>,
        verdict: Verdict,
        moves: impl Into<Vec<SwitchCounter>>,
    ) -> Self {
        Row {
            what: what.to_string(),
            frame,
            verdict,
            moves: moves.into(),
            flow: *flow,
            before: None,
            after: None,
            sent: None,
            record: None,
            inner: None,
            from_node: None,
        }
    }

    /// Gives the flow an entry, which must not change.
    fn with(mut self, entry: &sb_flow_entry) -> Self {
        self.before = Some(*entry);
        self.leaves(Some(*entry))
    }

    fn leaves(mut self, entry: Option<sb_flow_entry>) -> Self {
        self.after = entry;
        self
    }

    fn sends(mut self, frame: Vec<u8>) -> Self {
        self.sent = Some(frame);
        self
    }

    fn records(mut self, kind: sb_record_kind) -> Self {
        self.record = Some(kind);
        self
    }

    /// Whether the frame ends where its IP packet does.
    fn is_whole(&self) -> bool {
        let word = |at: usize| Some(u16::from_be_bytes(self.frame.get(at..at + 2)?.try_into().ok()?));
        let len = match word(12) {
            Some(0x0800) => word(14 + 2).map(usize::from),
            Some(0x86dd) => word(14 + 4).map(|len| 40 + usize::from(len)),
            _ => None,
        };
        len == Some(self.frame.len() - 14)
    }

    fn run(&self, bench: &Bench) {
        self.run_padded(bench, &[]);
    }

    fn run_padded(&self, bench: &Bench, padding: &[u8]) {
        let what = format!("{} [{}], {} bytes of padding", self.what, self.flow.client(), padding.len());
        let frame = [&self.frame, padding].concat();
        bench.forget(&self.flow);
        if let Some(view) = self.frame.get(14..).and_then(TcpView::parse) {
            bench.forget_handshake(view.ack.0.wrapping_sub(1));
        }
        if let Some(entry) = &self.before {
            bench.put(&self.flow, entry);
        }
        let outcome = bench.send(&frame);
        assert_eq!(outcome.verdict, self.verdict, "{what}: verdict; moved {:?}", outcome.moved);
        let mut moves: Vec<_> = self.moves.iter().map(|counter| (*counter, 1)).collect();
        moves.sort_by_key(|(counter, _)| *counter as u32);
        assert_eq!(outcome.moved, moves, "{what}: counters");
        let is_tcp = |frame: &[u8]| frame[if frame[14] >> 4 == 4 { 23 } else { 20 }] == 6;
        match &self.sent {
            // A TCP answer is written anew. What is forwarded is UDP.
            Some(sent) if self.verdict == Verdict::Tx && is_tcp(sent) => {
                assert_eq!(hex(&outcome.frame), hex(sent), "{what}: frame out");
            }
            Some(sent) => {
                assert_eq!(hex(&outcome.frame), hex(&[sent, padding].concat()), "{what}: frame out");
            }
            None => assert_eq!(hex(&outcome.frame), hex(&frame), "{what}: the frame is left alone"),
        }
        assert_eq!(bench.l7().mapped(&self.flow), self.after, "{what}: entry");
        let kinds: Vec<u32> = outcome.records.iter().map(|record| record.head.kind).collect();
        assert_eq!(kinds, Vec::from_iter(self.record.map(|kind| kind as u32)), "{what}: records");
        for record in &outcome.records {
            assert_eq!(record.head.flow, self.flow, "{what}: flow of the record");
            let inner = self.inner.as_ref().map_or(&self.frame[14..], |inner| inner);
            assert_eq!(hex(&record.packet), hex(inner), "{what}: packet of the record");
            match self.from_node {
                Some((node, option)) => {
                    let said = (NodeAddress::from_wire(record.head.node), record.head.option);
                    assert_eq!(said, (bench.node_address(node), option), "{what}: who says what");
                }
                None => {
                    let entry = self.after.unwrap_or_default();
                    assert_eq!(record.head.entry, entry, "{what}: entry of the record");
                }
            }
        }
    }
}

/// Bytes in groups of four, for messages.
fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> =
        bytes.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    words.join(" ")
}

/// Runs each row, and again with padding: a network card delivers short Ethernet frames with what fills them up to 60
/// bytes (IEEE 802.3 section 3.2.7), and a veth none.
fn run_all(bench: &Bench, rows: Vec<Row>) {
    assert!(!rows.is_empty());
    for row in rows {
        row.run(bench);
        if row.is_whole() {
            row.run_padded(bench, &[0xa5; 6]);
        }
    }
}

/// All rows that need only an entry beforehand, by topic.
fn all_rows(bench: &Bench) -> [Vec<Row>; 11] {
    [
        handshake::rows(bench),
        probes::rows(bench),
        strangers::rows(bench),
        forward::rows(bench),
        forward::express_rows(bench),
        bodies::rows(bench),
        damaged::rows(bench),
        node::rows(bench),
        icmp::rows(bench),
        neighbour::rows(),
        malformed::rows(bench),
    ]
}

#[test]
fn every_counter_is_moved_by_some_row() {
    let bench = Bench::new();
    for rows in all_rows(&bench) {
        run_all(&bench, rows);
    }
    for flow in flows() {
        malformed::fill_the_ring(&bench, &flow);
    }
    headroom::have_too_little(&bench);
    observed::fill_the_ring(&bench);
    once::ask_too_much(&bench);
    placed::send_twice(&bench);
    placed::confirm(&bench);
    guard::refuse(&bench);
    let still: Vec<&str> = SwitchCounter::ALL
        .into_iter()
        .filter(|counter| bench.program.counter(*counter) == 0)
        .map(SwitchCounter::name)
        .collect();
    assert!(still.is_empty(), "nothing moves {still:?}");
}
