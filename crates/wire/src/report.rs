//! REPORT packets: the state of a node's listener. The layout is `struct sb_report` in `bpf/handoff.h`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::Reason;
use crate::handoff::{Peers, Way};
use crate::names::fnv1a;
use crate::packet::{TcpView, bare, flags};
use crate::switches::Software;
use crate::{Seq, address_bytes, handoff, sb_accept_queue, sb_flow, sb_key, sb_op, sb_option, sb_report};

/// Length and limit of an accept queue, in connections, each saturated at 65,535.
pub type Queue = (u16, u16);

/// A node's report on one of its listeners, for one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The VIP and port of the listener.
    pub listener: SocketAddr,
    /// [`pool_id`] of the pool's name.
    pub pool: u32,
    /// The report's number, modulo 2^16.
    pub number: u16,
    /// Why the node must not have the pool's requests; None if it may.
    pub reason: Option<Reason>,
    /// Length and limit of the accept queue, each saturated at 65,535; the limit is 0 without a listener.
    pub queue: Queue,
    /// Requests that the node has not answered completely.
    pub in_flight: u32,
    /// Flows that the node owns.
    pub flows: u32,
    /// Mean time to first byte in the last period, to the microsecond; None if no response began in it.
    pub first_byte: Option<Duration>,
    /// Share of the machine's CPU time in use, in thousandths.
    pub cpu: u16,
    /// The newest version of the format that the node knows.
    pub newest: u8,
    /// The node's program and configuration.
    pub software: Software,
}

/// The number of a pool in reports: the FNV-1a hash of its name. Two pools with one hash would share their reports, so
/// a configuration must not have such names.
pub fn pool_id(name: &str) -> u32 {
    fnv1a(name.bytes())
}

impl From<sb_accept_queue> for Queue {
    fn from(queue: sb_accept_queue) -> Queue {
        (u16::from_be(queue.len), u16::from_be(queue.limit))
    }
}

impl From<Queue> for sb_accept_queue {
    fn from((len, limit): Queue) -> sb_accept_queue {
        sb_accept_queue { len: len.to_be(), limit: limit.to_be() }
    }
}

/// Whether a node may have the requests for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It may.
    Up,
    /// It must not, for this reason; with [`Reason::Unacknowledged`] and [`Reason::Failing`] it gets them if no other node can.
    Down(Reason),
    /// It has not reported on the pool. It gets requests, as if it were up, and may refuse them.
    Unreported,
}

impl Condition {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Condition::Up => "up",
            Condition::Unreported => "not reported",
            Condition::Down(Reason::NoListener) => "no listener",
            Condition::Down(Reason::Draining) => "draining",
            Condition::Down(Reason::Unhealthy) => "unhealthy",
            Condition::Down(Reason::Unacknowledged) => "unacknowledged",
            Condition::Down(Reason::Failing) => "ejected",
            Condition::Down(_) => "unknown",
        }
    }
}

impl Report {
    /// Appends the whole packet from a node to a switch, outer IP header first; appends nothing if the two addresses
    /// differ in IP version.
    pub fn encode(&self, out: &mut Vec<u8>, key: &sb_key, peers: Peers) {
        if peers.node.machine.is_ipv4() != peers.switch.is_ipv4() {
            return;
        }
        // The inner addresses have the VIP's version; the client's is unspecified.
        let nobody: IpAddr = if self.listener.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
        let flow = sb_flow {
            client: address_bytes(nobody),
            vip: address_bytes(self.listener.ip()),
            client_port: 0,
            vip_port: self.listener.port().to_be(),
        };
        let inner = bare(&flow, true, Seq(0), Seq(0), flags::RST);
        let Some(view) = TcpView::parse(&inner) else { return };
        handoff::encode(out, key, &Way::to_switch(peers), &flow, self.option(), &view, &inner);
    }

    /// The option of its packet, without a tag.
    pub fn option(&self) -> sb_option {
        let waited =
            self.first_byte.map_or(0, |time| u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1));
        let said = sb_report {
            pool: self.pool.to_be(),
            number: self.number.to_be(),
            cpu: self.cpu.to_be(),
            queue: self.queue.into(),
            in_flight: self.in_flight.to_be(),
            first_byte_us: waited.to_be(),
            flows: self.flows.to_be(),
            newest: self.newest,
            program: self.software.program,
            config: self.software.config.to_be(),
        };
        let reason = self.reason.map_or(0, Reason::number);
        sb_option { reason, ..handoff::blank(sb_op::SB_OP_REPORT).saying(&said) }
    }

    /// The report in a packet with this flow and option, whose tag has been verified.
    pub fn read(flow: &sb_flow, option: &sb_option) -> Report {
        let said: sb_report = option.said();
        let waited = u32::from_be(said.first_byte_us);
        Report {
            listener: flow.vip(),
            pool: u32::from_be(said.pool),
            number: u16::from_be(said.number),
            reason: Reason::from_number(option.reason),
            queue: said.queue.into(),
            in_flight: u32::from_be(said.in_flight),
            flows: u32::from_be(said.flows),
            first_byte: (waited != 0).then(|| Duration::from_micros(waited.into())),
            cpu: u16::from_be(said.cpu),
            newest: said.newest,
            software: Software { program: said.program, config: u32::from_be(said.config) },
        }
    }

    /// Whether the node may have the pool's requests.
    pub fn is_ready(&self) -> bool {
        self.reason.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read_from, sb_shim};

    fn report(listener: &str) -> Report {
        Report {
            listener: listener.parse().unwrap(),
            pool: pool_id("web"),
            number: 65_535,
            reason: Some(Reason::Unhealthy),
            queue: (3, 511),
            in_flight: 70_000,
            flows: 1_000_000,
            first_byte: Some(Duration::from_micros(4_400)),
            cpu: 999,
            newest: 7,
            software: Software { program: [1, 2, 3], config: 0x1a2b_3c4d },
        }
    }

    fn peers(switch: &str) -> Peers {
        Peers { node: IpAddr::from([192, 0, 2, 21]).into(), switch: switch.parse().unwrap(), epoch: 3 }
    }

    #[test]
    fn a_report_reads_back() {
        let key = sb_key { k0: 1, k1: 2 };
        for listener in ["192.0.2.100:80", "[2001:db8::100]:8080"] {
            for first_byte in [None, Some(Duration::from_micros(1))] {
                let sent = Report { first_byte, ..report(listener) };
                let mut packet = Vec::new();
                sent.encode(&mut packet, &key, peers("192.0.2.10"));
                let shim: sb_shim = read_from(&packet[20..]).unwrap();
                let flow = sb_flow {
                    client: [0; 16],
                    vip: address_bytes(sent.listener.ip()),
                    client_port: 0,
                    vip_port: sent.listener.port().to_be(),
                };
                assert_eq!(Report::read(&flow, &shim.option), sent);
            }
        }
    }

    #[test]
    fn a_switch_of_the_other_ip_version_gets_none() {
        let mut packet = Vec::new();
        report("192.0.2.100:80").encode(&mut packet, &sb_key::default(), peers("2001:db8::10"));
        assert!(packet.is_empty());
    }

    #[test]
    fn names_of_pools_are_told_apart() {
        // The published FNV-1a value of "foobar".
        assert_eq!(pool_id("foobar"), 0xbf9c_f968);
        assert_ne!(pool_id("web"), pool_id("img"));
    }
}
