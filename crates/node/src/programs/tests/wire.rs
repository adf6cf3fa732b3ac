//! Packets that are really sent: servers' packets pass the egress program on the loopback interface, and a packet
//! socket behind it captures them. IPv6 has no route to other machines through that interface, so it has another one.

use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, socket};
use sb_op::*;
use switchback_wire::packet::{TcpView, bare, flags};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;

const ETHERNET: usize = 14;
/// Index of the interface for IPv6.
const OUT: u32 = 7;
/// PACKET_OUTGOING of linux/if_packet.h; on this interface every packet is also received.
const OUTGOING: u8 = 4;

pub struct Wire {
    pub bench: Bench,
    socket: OwnedFd,
    _egress: [Attached; 2],
}

impl Wire {
    pub fn new() -> Wire {
        let bench = Bench::new();
        for line in [
            "link add out index 7 arp off type veth peer name far",
            "link set out up",
            "link set far up",
            "-6 route add 2001:db8:1::/64 dev out",
        ] {
            ip(line);
        }
        let egress = [LOOPBACK, OUT].map(|index| bench.attach_egress(index));
        let kind = (AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, SockProtocol::EthAll);
        let socket = socket(kind.0, kind.1, kind.2, kind.3).expect("the right to see packets");
        Wire { bench, socket, _egress: egress }
    }

    /// Frames sent since the last call.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        let mut frame = vec![0; 1 << 17];
        let mut left = Vec::new();
        while let Ok((len, from)) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame) {
            if from.is_some_and(|from| from.pkttype() == OUTGOING) {
                left.push(frame[..len].to_vec());
            }
        }
        left
    }

    /// TCP packets to the flow's client among them.
    pub fn left(&self, flow: &sb_flow) -> Vec<TcpView> {
        self.frames().iter().filter_map(|frame| to_client(frame, flow)).collect()
    }
}

fn to_client(frame: &[u8], flow: &sb_flow) -> Option<TcpView> {
    let packet = frame.get(ETHERNET..)?;
    let protocol = if packet.first()? >> 4 == 4 { packet.get(9)? } else { packet.get(6)? };
    let view = TcpView::parse(packet).filter(|_| *protocol == 6)?;
    let ports = [flow.vip_port.to_ne_bytes(), flow.client_port.to_ne_bytes()].concat();
    (packet[view.tcp..view.tcp + 4] == ports).then_some(view)
}

/// A client with an adopted flow, and the switch in between.
pub struct Client<'a> {
    pub wire: &'a Wire,
    /// `seq` is the client's next sequence number, `ack` that of the server's first byte.
    pub known: KnownFlow,
    pub origin: u32,
    requests: u16,
    /// End of the data that the switch has read, where the next request begins.
    read: u32,
    mark: u32,
    got: Vec<Option<u8>>,
    /// Operations of the node's handoff packets.
    pub answers: Vec<u8>,
}

impl<'a> Client<'a> {
    pub fn new(wire: &'a Wire, flow: sb_flow, seq: u32) -> Self {
        let known = KnownFlow { flow, seq, ack: 5000, socket: None };
        Client {
            wire,
            known,
            origin: seq,
            requests: 0,
            read: seq,
            mark: seq,
            got: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// The handoff packet with the next request.
    pub fn request(&mut self, op: sb_op, session: sb_session, data: &[u8]) -> Vec<u8> {
        self.begin(op, session, data, data.len())
    }

    /// The handoff packet with the first `len` bytes of the next request, whose head the switch has read.
    pub fn begin(&mut self, op: sb_op, session: sb_session, request: &[u8], len: usize) -> Vec<u8> {
        self.requests += 1;
        let head = head_len(request);
        self.read = self.known.seq.wrapping_add(head as u32);
        self.mark = self.known.seq.wrapping_add(request.len() as u32);
        let option =
            self.option(op, session).with(|said: &mut sb_handover| said.boundary = (head as u16).to_be());
        let packet = self.here().hand_over(option, &request[..len]);
        self.known.seq = self.known.seq.wrapping_add(len as u32);
        packet
    }

    /// The handoff packet with further data.
    pub fn more(&mut self, session: sb_session, data: &[u8]) -> Vec<u8> {
        let is_read = (self.known.seq.wrapping_sub(self.read) as i32) < 0;
        let flags = if is_read { SB_HANDOVER_READ as u8 } else { 0 };
        let option = sb_option {
            flags,
            ..self.option(SB_OP_FORWARD, session).with(|said: &mut sb_handover| said.boundary = 0)
        };
        let packet = self.here().hand_over(option, data);
        self.known.seq = self.known.seq.wrapping_add(data.len() as u32);
        packet
    }

    /// The flow with all received data acknowledged.
    fn here(&self) -> KnownFlow {
        KnownFlow { ack: self.known.ack.wrapping_add(self.has() as u32), socket: None, ..self.known }
    }

    fn option(&self, op: sb_op, session: sb_session) -> sb_option {
        let begins = if op == SB_OP_FORWARD { SB_HANDOVER_REQUEST as u8 } else { 0 };
        sb_option {
            flags: begins,
            ..self.known.option(op).with(|flow: &mut sb_flow_state| {
                flow.origin = self.origin.to_be();
                flow.requests = self.requests.to_be();
                flow.next = self.mark.to_be();
                flow.session = session;
            })
        }
    }

    pub fn adopt(&mut self, session: sb_session, request: &[u8]) {
        let packet = self.request(SB_OP_ADOPT, session, request);
        self.known.socket = Some(self.wire.bench.adopt(&packet, &self.known.flow));
    }

    pub fn ask(&mut self, session: sb_session, request: &[u8]) {
        let packet = self.request(SB_OP_FORWARD, session, request);
        self.wire.bench.send(&packet);
    }

    pub fn server(&self) -> &TcpStream {
        self.known.socket.as_ref().expect("an adopted flow")
    }

    /// Number of bytes received without a gap.
    pub fn has(&self) -> usize {
        self.got.iter().position(Option::is_none).unwrap_or(self.got.len())
    }

    pub fn stream(&self) -> Vec<u8> {
        self.got.iter().map_while(|byte| *byte).collect()
    }

    /// Receives what was sent, except what is `lost`. Retransmitted data must be the same.
    pub fn look(&mut self, mut lost: impl FnMut() -> bool) -> usize {
        let mut new = 0;
        for frame in self.wire.frames() {
            let option = frame.get(ETHERNET + 20 + 16..).and_then(read_from::<sb_option>);
            let Some(view) = to_client(&frame, &self.known.flow) else {
                let ours = option.filter(|option| u32::from(option.type_) == SB_OPTION_TYPE);
                self.answers.extend(ours.map(|option| option.op).filter(|op| *op >= SB_OP_ADOPTED as u8));
                continue;
            };
            let at = (view.seq - Seq(self.known.ack)) as usize;
            let data = &frame[ETHERNET..][view.data..view.end];
            if data.is_empty() || lost() {
                continue;
            }
            let missing = (at + data.len()).saturating_sub(self.got.len());
            self.got.resize(self.got.len() + missing, None);
            for (place, byte) in self.got[at..].iter_mut().zip(data) {
                assert!(place.is_none_or(|before| before == *byte), "what is sent again differs, at {at}");
                *place = Some(*byte);
            }
            new += 1;
        }
        new
    }

    pub fn acknowledge(&self) {
        self.send_bare(flags::ACK);
    }

    /// Sends a packet without data. Its acknowledgment number is behind all that has come.
    pub fn send_bare(&self, flags: u8) {
        let here = self.here();
        let inner = bare(&here.flow, true, Seq(here.seq), Seq(here.ack), flags);
        let view = TcpView::parse(&inner).expect("a TCP packet");
        let option = sb_option { flags: 0, ..self.option(SB_OP_FORWARD, sb_session::default()) };
        self.wire.bench.send(&here.hand_over_packet(option, &view, &inner));
    }

    /// Receives and acknowledges data until there are `len` bytes.
    pub fn wait_for(&mut self, len: usize) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while self.has() < len {
            assert!(std::time::Instant::now() < deadline, "{} of {len} bytes", self.has());
            if self.look(|| false) == 0 {
                std::thread::yield_now();
                continue;
            }
            self.acknowledge();
        }
    }
}
