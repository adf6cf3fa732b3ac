//! A TCP client in user space, which sends what no kernel would. By itself it acknowledges what it reads, and
//! sends again what is not acknowledged.
//!
//! It has addresses of its own on the client's interface, so that the kernel answers ARP and neighbour
//! solicitations for them; a rule keeps their TCP from the kernel, which would answer with RST. What arrives
//! is read off the interface by a packet socket.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::sb_flow;

use super::common::packets::{Raw, flow};
use super::common::{Cluster, PATIENCE, Result};
pub use super::segments::{Packet, Segment, Syn};

pub const ECE: u8 = 0x40;
pub const CWR: u8 = 0x80;
/// Data in one packet, less than any MSS that the switch advertises.
const CHUNK: usize = 1300;
/// After so much time without progress what is not acknowledged is sent again, whatever else comes (RFC 6298).
const RESEND: Duration = Duration::from_millis(250);
/// So many SYNs are sent.
const SYNS: u32 = 8;
const PACKET_BYTES: usize = 1 << 17;
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// The addresses and the sockets to send from them.
pub struct Stack<'a> {
    cluster: &'a Cluster,
    raw: [Raw; 2],
    addresses: [IpAddr; 2],
    begun: Instant,
}

impl<'a> Stack<'a> {
    pub fn new(cluster: &'a Cluster) -> Result<Stack<'a>> {
        let host = cluster.client();
        let addresses: [IpAddr; 2] = ["192.0.2.219".parse()?, "2001:db8::219".parse()?];
        host.run(["ip", "addr", "add", "192.0.2.219/32", "dev", "eth0"])?.success()?;
        // With no preference, so that the kernel's own connections do not begin there.
        let words = ["2001:db8::219/128", "dev", "eth0", "nodad", "preferred_lft", "0"];
        host.run([&["ip", "addr", "add"], &words[..]].concat())?.success()?;
        let chain = "table inet quiet {\nchain in {\ntype filter hook prerouting priority -300;\n\
                     ip daddr 192.0.2.219 meta l4proto tcp drop\n\
                     ip6 daddr 2001:db8::219 meta l4proto tcp drop\n}\n}";
        host.run(["nft", chain])?.success()?;
        let raw = [Raw::open(host)?, Raw::open_v6(host)?];
        Ok(Stack { cluster, raw, addresses, begun: Instant::now() })
    }

    /// A connection that has not begun.
    pub fn socket(&self, v6: bool, port: u16) -> Result<Connection<'_>> {
        let lab = &self.cluster.lab;
        let vip: IpAddr = if v6 { lab.vip6().into() } else { lab.vip4().into() };
        let open = || {
            let protocol = SockProtocol::EthAll;
            socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol)
        };
        let socket = self.cluster.client().enter(open)??;
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES)?;
        let client = SocketAddr::new(self.addresses[usize::from(v6)], port);
        Ok(Connection {
            stack: self,
            flow: flow(client, SocketAddr::new(vip, 80)),
            socket,
            syn: Syn::default(),
            isn: 0,
            next: 0,
            expected: 0,
            window: u16::MAX,
            echo: 0,
            tos: 0,
            unacknowledged: Vec::new(),
            received: Vec::new(),
            ended: None,
        })
    }

    /// A connection after its handshake.
    pub fn connect(&self, v6: bool, port: u16, syn: Syn) -> Result<Connection<'_>> {
        let mut connection = self.socket(v6, port)?;
        connection.open(syn)?;
        Ok(connection)
    }
}

/// One connection. The numbers are there to be changed.
pub struct Connection<'a> {
    stack: &'a Stack<'a>,
    flow: sb_flow,
    socket: OwnedFd,
    pub syn: Syn,
    pub isn: u32,
    /// The sequence number of the next byte to send.
    pub next: u32,
    /// The sequence number of the next byte to come, which every packet acknowledges.
    pub expected: u32,
    /// As it is in the header.
    pub window: u16,
    echo: u32,
    pub tos: u8,
    /// Sequence number, flags and data of what is sent again.
    unacknowledged: Vec<(u32, u8, Vec<u8>)>,
    /// What has come in order and has not been taken.
    pub received: Vec<u8>,
    /// The flag that ended it: FIN or RST.
    pub ended: Option<u8>,
}

impl Connection<'_> {
    /// The handshake; returns the SYN-ACK.
    pub fn open(&mut self, syn: Syn) -> Result<Segment> {
        // A number that differs each time, as RFC 6528 has it.
        self.isn = self.stack.begun.elapsed().as_nanos() as u32;
        self.syn = syn;
        (self.unacknowledged, self.received, self.ended) = (Vec::new(), Vec::new(), None);
        let answer = self.send_syn()?;
        self.next = self.isn.wrapping_add(1);
        self.expected = answer.seq.wrapping_add(1);
        self.echo = answer.timestamps().map_or(0, |(value, _)| value);
        self.send(&self.packet())?;
        Ok(answer)
    }

    /// The SYN, and what comes back.
    pub fn send_syn(&mut self) -> Result<Segment> {
        let Syn { mss, wscale, sack, timestamps, ecn } = self.syn;
        let mut options = Vec::new();
        if let Some(mss) = mss {
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
        }
        options.extend(if sack { &[1, 1, 4, 2][..] } else { &[] });
        options.extend(wscale.map(|wscale| [1, 3, 3, wscale]).into_iter().flatten());
        if timestamps {
            options.extend([1, 1, 8, 10]);
            options.extend(self.clock().to_be_bytes());
            options.extend([0; 4]);
        }
        let tcp_flags = flags::SYN | if ecn { ECE | CWR } else { 0 };
        let window = self.window;
        let syn = Packet { seq: self.isn, flags: tcp_flags, window, options, ..Packet::default() };
        for _ in 0..SYNS {
            self.send(&syn)?;
            let deadline = Instant::now() + RESEND;
            while let Some(segment) = self.receive(deadline)? {
                if segment.has(flags::SYN | flags::ACK) && segment.ack == self.isn.wrapping_add(1) {
                    return Ok(segment);
                }
            }
        }
        Err("no SYN-ACK".into())
    }

    fn clock(&self) -> u32 {
        1_000_000 + self.stack.begun.elapsed().as_millis() as u32
    }

    /// An ACK that says where we are.
    pub fn packet(&self) -> Packet {
        let mut options = Vec::new();
        if self.syn.timestamps {
            options.extend([1, 1, 8, 10]);
            options.extend(self.clock().to_be_bytes());
            options.extend(self.echo.to_be_bytes());
        }
        let Connection { next: seq, expected: ack, window, tos, .. } = *self;
        Packet { seq, ack, flags: flags::ACK, window, tos, options, ..Packet::default() }
    }

    pub fn send(&self, packet: &Packet) -> Result {
        self.send_cut(packet, None)
    }

    /// In two fragments, the first of which has so many bytes behind the IP header.
    pub fn send_fragments(&self, packet: &Packet, first: usize) -> Result {
        self.send_cut(packet, Some(first))
    }

    fn send_cut(&self, packet: &Packet, first: Option<usize>) -> Result {
        let raw = &self.stack.raw[usize::from(self.flow.vip().is_ipv6())];
        packet.build(&self.flow, first).iter().try_for_each(|part| raw.send(self.flow.vip().ip(), part))
    }

    /// Data at a place of the stream, whatever has been sent.
    pub fn send_at(&self, seq: u32, data: &[u8]) -> Result {
        self.send(&Packet { seq, data: data.to_vec(), flags: flags::ACK | flags::PSH, ..self.packet() })
    }

    /// The next data.
    pub fn write(&mut self, data: &[u8]) -> Result {
        self.wrote(data);
        data.chunks(CHUNK).try_fold(self.next.wrapping_sub(data.len() as u32), |seq, part| {
            self.send_at(seq, part).map(|()| seq.wrapping_add(part.len() as u32))
        })?;
        Ok(())
    }

    /// The next data has been sent, in whatever pieces; from now on it is sent again until it is
    /// acknowledged.
    pub fn wrote(&mut self, data: &[u8]) {
        for part in data.chunks(CHUNK) {
            self.unacknowledged.push((self.next, flags::ACK | flags::PSH, part.to_vec()));
            self.next = self.next.wrapping_add(part.len() as u32);
        }
    }

    fn send_again(&self) -> Result {
        let Some((seq, flags, data)) = self.unacknowledged.first().cloned() else { return Ok(()) };
        self.send(&Packet { seq, flags, data, ..self.packet() })
    }

    /// FIN, with data before it.
    pub fn finish(&mut self, data: &[u8]) -> Result {
        let tcp_flags = flags::ACK | flags::FIN;
        self.send(&Packet { flags: tcp_flags, data: data.to_vec(), ..self.packet() })?;
        self.unacknowledged.push((self.next, tcp_flags, data.to_vec()));
        self.next = self.next.wrapping_add(data.len() as u32 + 1);
        Ok(())
    }

    /// RST, and one for whatever still comes, as a kernel answers for a connection that it has forgotten.
    pub fn reset(&mut self) -> Result {
        self.send(&Packet { flags: flags::RST | flags::ACK, ..self.packet() })?;
        let deadline = Instant::now() + RESEND;
        while let Some(segment) = self.receive(deadline)? {
            if !segment.has(flags::RST) {
                self.send(&Packet { seq: segment.ack, flags: flags::RST, ..Packet::default() })?;
            }
        }
        Ok(())
    }

    /// Says how far it has come.
    pub fn acknowledge(&self) -> Result {
        self.send(&self.packet())
    }

    /// The next packet of the connection, if one comes in time.
    pub fn receive(&mut self, deadline: Instant) -> Result<Option<Segment>> {
        let mut buffer = vec![0; PACKET_BYTES];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timeout = TimeVal::new(left.as_secs() as i64, (left.subsec_micros().max(1)).into());
            setsockopt(&self.socket, sockopt::ReceiveTimeout, &timeout)?;
            let len = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(len) => len,
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if let Some(segment) = self.read(&buffer[..len]) {
                return Ok(Some(segment));
            }
        }
    }

    fn read(&self, packet: &[u8]) -> Option<Segment> {
        let v6 = self.flow.vip().is_ipv6();
        if packet.first()? >> 4 != if v6 { 6 } else { 4 } {
            return None;
        }
        let (protocol, addresses, tos) = match v6 {
            false => (packet.get(9)?, packet.get(12..20)?, *packet.get(1)?),
            true => (packet.get(6)?, packet.get(8..40)?, packet[0] << 4 | packet.get(1)? >> 4),
        };
        let (client, vip) = (self.flow.client(), self.flow.vip());
        let expected = match (vip.ip(), client.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
            _ => [self.flow.vip, self.flow.client].concat(),
        };
        if *protocol != 6 || addresses != expected {
            return None;
        }
        let view = TcpView::parse(packet)?;
        let ports = [vip.port().to_be_bytes(), client.port().to_be_bytes()].concat();
        if packet[view.tcp..view.tcp + 4] != ports {
            return None;
        }
        Some(Segment {
            seq: view.seq.0,
            ack: view.ack.0,
            flags: view.flags,
            tos,
            options: packet[view.tcp + 20..view.data].to_vec(),
            data: packet[view.data..view.end].to_vec(),
        })
    }

    /// Takes what is next of a segment's data, and its end.
    pub fn take(&mut self, segment: &Segment) {
        if segment.has(flags::RST) {
            // One of an earlier connection with these ports is no end of this one (RFC 9293 section 3.5.3).
            if segment.seq.wrapping_sub(self.expected) <= u32::from(u16::MAX) {
                self.ended = Some(flags::RST);
            }
            return;
        }
        // The answer to a SYN within the connection acknowledges that SYN and no data (RFC 5961 section 4).
        if !segment.has(flags::SYN) {
            self.unacknowledged.retain(|(seq, tcp_flags, data)| {
                let end = seq.wrapping_add(data.len() as u32 + u32::from(tcp_flags & flags::FIN));
                segment.ack.wrapping_sub(end).cast_signed() < 0
            });
        }
        if let (Some((value, _)), 0..) = (segment.timestamps(), self.behind(segment.seq)) {
            self.echo = value;
        }
        let skip = self.behind(segment.seq);
        if skip < 0 || skip as usize > segment.data.len() || segment.has(flags::SYN) {
            return;
        }
        let news = &segment.data[skip as usize..];
        self.received.extend(news);
        self.expected = self.expected.wrapping_add(news.len() as u32);
        if segment.has(flags::FIN) && self.ended.is_none() {
            self.ended = Some(flags::FIN);
            self.expected = self.expected.wrapping_add(1);
        }
    }

    /// How far a number lies before what is expected.
    fn behind(&self, seq: u32) -> i32 {
        self.expected.wrapping_sub(seq).cast_signed()
    }

    /// Takes and acknowledges what comes, until it is enough.
    pub fn read_until(&mut self, what: &str, enough: impl Fn(&Self) -> bool) -> Result {
        let deadline = Instant::now() + PATIENCE;
        let mut resend_at = Instant::now() + RESEND;
        while !enough(self) {
            if Instant::now() > deadline {
                let text =
                    String::from_utf8_lossy(&self.received[..self.received.len().min(400)]).into_owned();
                let waiting = self.unacknowledged.len();
                return Err(format!(
                    "{what} does not come; ended {:?}, {waiting} packets unacknowledged, {text:?}",
                    self.ended
                )
                .into());
            }
            let Some(segment) = self.receive(resend_at)? else {
                self.send_again()?;
                resend_at = Instant::now() + RESEND;
                continue;
            };
            let waiting = self.unacknowledged.len();
            self.take(&segment);
            if self.unacknowledged.len() < waiting {
                resend_at = Instant::now() + RESEND;
            }
            let lasts = !segment.data.is_empty() || segment.has(flags::FIN);
            if lasts && !segment.has(flags::SYN) && self.ended != Some(flags::RST) {
                self.acknowledge()?;
            }
        }
        Ok(())
    }

    /// Sends again what is not acknowledged until all is.
    pub fn settle(&mut self) -> Result {
        self.read_until("the last acknowledgment", |c| {
            c.unacknowledged.is_empty() || c.ended == Some(flags::RST)
        })
    }

    /// What comes until nothing has come for a while, acknowledged.
    pub fn read_for(&mut self, time: Duration) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        let deadline = Instant::now() + time;
        while let Some(segment) = self.receive(deadline)? {
            self.take(&segment);
            if !segment.data.is_empty() {
                self.acknowledge()?;
            }
            segments.push(segment);
        }
        Ok(segments)
    }

    /// The next response, which says how long it is: status and body.
    pub fn response(&mut self) -> Result<(u16, Vec<u8>)> {
        let head_end = |received: &[u8]| received.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
        self.read_until("a head", |c| head_end(&c.received).is_some() || c.ended == Some(flags::RST))?;
        let head_len = head_end(&self.received).ok_or("reset")?;
        let head = String::from_utf8(self.received[..head_len].to_vec())?;
        let field = head.split("\r\n").find_map(|line| line.strip_prefix("Content-Length: "));
        let end = head_len + field.ok_or_else(|| format!("no length: {head}"))?.parse::<usize>()?;
        self.read_until("a body", |c| c.received.len() >= end || c.ended == Some(flags::RST))?;
        let response: Vec<u8> = self.received.drain(..end.min(self.received.len())).collect();
        let status = head.get(9..12).ok_or("no status")?.parse()?;
        Ok((status, response[head_len..].to_vec()))
    }

    /// Asks for a document, which must come.
    pub fn get(&mut self, path: &str, body: &[u8]) -> Result {
        self.write(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
        self.expect(200, body)
    }

    pub fn expect(&mut self, status: u16, body: &[u8]) -> Result {
        let (got, bytes) = self.response()?;
        if got == status && (body.is_empty() || bytes == body) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        Err(format!("{got} with {} bytes instead of {status}: {text}", bytes.len()).into())
    }

    /// FIN, the other side's FIN, and no RST.
    pub fn close(&mut self) -> Result {
        self.finish(b"")?;
        self.read_until("FIN", |c| c.ended.is_some())?;
        if self.ended == Some(flags::FIN) { Ok(()) } else { Err("reset".into()) }
    }
}
