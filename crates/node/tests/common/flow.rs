//! Flows whose requests come from a switch, packet by packet, and whose server is the test itself.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Instant;

use nix::sys::socket::sockopt;
use nix::sys::time::TimeVal;
use switchback_lab::{Host, Lab};
use switchback_wire::flow_state::FlowState;
use switchback_wire::message::ToNode;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::{SB_HANDOVER_REQUEST, SB_RELEASE_ABORT, sb_op, sb_option};

use super::{Handoff, PATIENCE, Raw, Result, Sniffer, answer, config, counter, data_from, listen, start};

pub use sb_op::*;

pub const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n";
pub const HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nHost: shop\r\n\r\n";

/// A client, a switch that says what the test wants, and a node with an agent and the test's own server.
pub struct World {
    pub lab: Lab,
    pub client: IpAddr,
    pub vip: IpAddr,
    pub sniffer: Sniffer,
    pub config: PathBuf,
    pub raw: Raw,
    pub ear: UdpSocket,
    pub listener: TcpListener,
    next_port: Cell<u16>,
}

impl World {
    pub fn up(v6: bool) -> Result<World> {
        let lab = Lab::builder().up()?;
        let config = config(&lab)?;
        start(lab.node(0), &config)?;
        let listener = lab.node(0).tcp_listen("[::]:80".parse()?)?;
        nix::sys::socket::setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::new(5, 0))?;
        let (client, vip): (IpAddr, IpAddr) = if v6 {
            (lab.client(0).ipv6().into(), lab.vip6().into())
        } else {
            (lab.client(0).ipv4().into(), lab.vip4().into())
        };
        let (raw, ear) = (Raw::open(lab.switch(0))?, listen(lab.switch(0))?);
        let sniffer = Sniffer::open(lab.client(0))?;
        Ok(World { client, vip, sniffer, config, raw, ear, listener, next_port: Cell::new(40_000), lab })
    }

    pub fn node(&self) -> &Host {
        self.lab.node(0)
    }

    pub fn count(&self, name: &str) -> Result<u64> {
        counter(self.node(), name)
    }

    /// A flow that the node does not know yet.
    pub fn flow(&self) -> Result<Flow<'_>> {
        let port = self.next_port.replace(self.next_port.get() + 1);
        let handoff =
            Handoff::new(&self.config, SocketAddr::new(self.client, port), SocketAddr::new(self.vip, 80))?;
        Ok(Flow { world: self, handoff, port, server: None })
    }
}

/// The port that the packet of an answer comes from.
pub fn client_port(inner: &[u8]) -> u16 {
    let tcp = if inner[0] >> 4 == 4 { 20 } else { 40 };
    u16::from_be_bytes([inner[tcp], inner[tcp + 1]])
}

/// A flow as the client and the switch see it: `handoff.seq` and `handoff.ack` are where the client is.
pub struct Flow<'a> {
    pub world: &'a World,
    pub handoff: Handoff,
    pub port: u16,
    server: Option<TcpStream>,
}

impl Flow<'_> {
    /// The server's end of the connection.
    pub fn server(&self) -> &TcpStream {
        self.server.as_ref().expect("the flow has been adopted")
    }

    pub fn packet(&self, data: &[u8]) -> Vec<u8> {
        self.handoff.packet(if data.is_empty() { flags::ACK } else { flags::ACK | flags::PSH }, data)
    }

    /// The handoff packet with the client's data, or with an acknowledgment.
    pub fn handed_over(&self, op: sb_op, more_flags: u32, data: &[u8]) -> Vec<u8> {
        let inner = self.packet(data);
        self.handed_over_at(op, more_flags, &TcpView::parse(&inner).expect("made by `packet`"), &inner)
    }

    fn handed_over_at(&self, op: sb_op, more_flags: u32, view: &TcpView, inner: &[u8]) -> Vec<u8> {
        let (switch, node) = (self.world.lab.switch(0).ipv4(), self.world.node().ipv4());
        let handoff = Handoff { flags: self.handoff.flags | more_flags, ..self.handoff };
        handoff.encode_at(op, switch.into(), node.into(), view, inner)
    }

    /// Sends the client's data, or an acknowledgment, as `op`.
    pub fn say(&self, op: sb_op, more_flags: u32, data: &[u8]) -> Result<()> {
        self.world.raw.send(self.world.node().ipv4().into(), &self.handed_over(op, more_flags, data))
    }

    /// Sends any message about the flow with the packet.
    pub fn tell(&self, message: ToNode, state: &FlowState, inner: &[u8]) -> Result<()> {
        let (switch, node) = (self.world.lab.switch(0).ipv4().into(), self.world.node().ipv4().into());
        self.world.raw.send(node, &self.handoff.encode_option(message.option(state), (switch, node), inner))
    }

    /// Sends any packet about the flow, with this position in it.
    pub fn send_at(&self, op: sb_op, view: &TcpView, inner: &[u8]) -> Result<()> {
        self.world.raw.send(self.world.node().ipv4().into(), &self.handed_over_at(op, 0, view, inner))
    }

    /// The node's next answer about this flow.
    pub fn answer(&self) -> Result<(sb_option, Vec<u8>)> {
        loop {
            let (option, inner) = answer(&self.world.ear)?;
            if client_port(&inner) == self.port {
                return Ok((option, inner));
            }
        }
    }

    /// What the node answers: operation and reason.
    pub fn ask(&self, op: sb_op, more_flags: u32, data: &[u8]) -> Result<(sb_op, u8)> {
        self.say(op, more_flags, data)?;
        let (option, _) = self.answer()?;
        Ok((sb_op::from_number(option.op).ok_or("an unknown operation")?, option.reason))
    }

    pub fn release(&self) -> Result<(sb_op, u8)> {
        self.ask(SB_OP_RELEASE, 0, &[])
    }

    pub fn abort(&self) -> Result<(sb_op, u8)> {
        self.ask(SB_OP_RELEASE, SB_RELEASE_ABORT, &[])
    }

    /// Hands over the next request, which the server reads.
    pub fn request(&mut self, request: &[u8]) -> Result<()> {
        self.hand_over(request)?;
        self.server().read_exact(&mut vec![0; request.len()])?;
        Ok(())
    }

    /// Hands over the next request.
    pub fn hand_over(&mut self, request: &[u8]) -> Result<()> {
        self.handoff.requests += 1;
        self.handoff.heads = self.handoff.heads << 1 | u32::from(request.starts_with(b"HEAD"));
        if self.server.is_some() {
            self.say(SB_OP_FORWARD, SB_HANDOVER_REQUEST, request)?;
        } else {
            let adopted = self.ask(SB_OP_ADOPT, 0, request)?;
            assert_eq!(adopted, (SB_OP_ADOPTED, 0));
            let (server, client) = self.world.listener.accept()?;
            assert_eq!((client.ip().to_canonical(), client.port()), (self.world.client, self.port));
            server.set_nodelay(true)?;
            server.set_read_timeout(Some(PATIENCE))?;
            self.server = Some(server);
        }
        self.handoff.seq = self.handoff.seq.wrapping_add(request.len() as u32);
        Ok(())
    }

    /// The flow was at another node meanwhile, and comes back with the next request.
    pub fn come_back(&mut self, request: &[u8]) -> Result<()> {
        self.server = None;
        self.request(request)
    }

    /// The server sends this; the client has it, but has not said so yet.
    pub fn show(&mut self, bytes: &[u8]) -> Result<()> {
        self.serve_by(bytes, |mut server| server.write_all(bytes), false)
    }

    /// The server sends this, and the client acknowledges it.
    pub fn serve(&mut self, bytes: &[u8]) -> Result<()> {
        self.serve_by(bytes, |mut server| server.write_all(bytes), true)
    }

    /// The server sends `bytes` in its own way.
    pub fn serve_by(
        &mut self,
        bytes: &[u8],
        write: impl FnOnce(&TcpStream) -> std::io::Result<()> + Send,
        acknowledged: bool,
    ) -> Result<()> {
        let server = self.server().try_clone()?;
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || write(&server));
            let received = self.receive(bytes.len(), acknowledged);
            if received.is_err() {
                // Or the writer would wait for the client for ever.
                self.server().shutdown(Shutdown::Both)?;
            }
            let written = writer.join().expect("it does not panic");
            if received? != bytes {
                return Err("the client has not received what the server has sent".into());
            }
            Ok(written?)
        })
    }

    fn receive(&mut self, len: usize, acknowledged: bool) -> Result<Vec<u8>> {
        let mut received = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while received.len() < len {
            if Instant::now() > deadline {
                return Err(format!("only {} of {len} bytes came", received.len()).into());
            }
            let Some(packet) = self.world.sniffer.next() else { continue };
            let Some((data, view)) = self.response_in(&packet) else { continue };
            let seen = self.handoff.ack.wrapping_sub(view.seq.0) as usize;
            if seen < data.len() {
                received.extend_from_slice(&data[seen..]);
                self.handoff.ack = self.handoff.ack.wrapping_add((data.len() - seen) as u32);
            }
            if acknowledged && !data.is_empty() {
                self.say(SB_OP_FORWARD, 0, &[])?;
            }
        }
        Ok(received)
    }

    /// The data of a packet that goes to the flow's client.
    pub fn response_in<'p>(&self, packet: &'p [u8]) -> Option<(&'p [u8], TcpView)> {
        let data = data_from(packet, self.world.vip)?;
        let view = TcpView::parse(packet)?;
        (packet[view.tcp + 2..view.tcp + 4] == self.port.to_be_bytes()).then_some((data, view))
    }
}
