//! The workloads, and one load, measured.

use crate::cpu::CpuTimes;
use crate::systems::System;
use crate::tls_load::{Version, closed};

/// The measured systems, in the order of the tables.
pub(super) const SYSTEMS: [System; 4] =
    [System::Haproxy, System::Nginx, System::Switchback, System::Forwarder];
/// Path of the small document, which is a part of the documents' common text.
pub(super) const SMALL_PATH: &str = "/tls-small";
/// Path of the large one.
pub(super) const LARGE_PATH: &str = "/tls-large";

/// The unit of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Handshakes, each with one request and a response of 100 bytes.
    Handshake,
    /// Requests with a response of 100 bytes, over HTTP/2.
    Request,
    /// 10^6 bytes of responses.
    Megabyte,
}

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name in tables.
    pub name: &'static str,
    pub(super) version: Version,
    /// Whether clients have earlier sessions.
    pub(super) returns: bool,
    pub(super) unit: Unit,
    /// Number of concurrent conversations, or of connections with HTTP/2.
    pub(super) clients: u32,
}

/// All workloads, in the order of the tables.
pub const WORKLOADS: [Workload; 6] = [
    workload("full handshake, TLS 1.3", Version::Tls13, false),
    workload("full handshake, TLS 1.2", Version::Tls12, false),
    workload("resumed, TLS 1.3", Version::Tls13, true),
    workload("resumed, TLS 1.2", Version::Tls12, true),
    Workload {
        name: "100 B, HTTP/2",
        version: Version::Tls13,
        returns: false,
        unit: Unit::Request,
        clients: 4,
    },
    Workload {
        name: "1 MiB, keep-alive",
        version: Version::Tls13,
        returns: false,
        unit: Unit::Megabyte,
        clients: 16,
    },
];

const fn workload(name: &'static str, version: Version, returns: bool) -> Workload {
    Workload { name, version, returns, unit: Unit::Handshake, clients: 32 }
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The kind of load.
    pub workload: Workload,
    /// The measured system.
    pub system: System,
    /// The clients' measurement.
    pub done: closed::Done,
    /// CPU time of the host between client and nodes.
    pub balancer: CpuTimes,
    /// CPU time of all nodes, agents and servers.
    pub nodes: CpuTimes,
}

impl Sample {
    /// Number of units done.
    pub(super) fn units(&self) -> f64 {
        match self.workload.unit {
            Unit::Handshake => self.done.handshakes as f64,
            Unit::Request => self.done.responses as f64,
            Unit::Megabyte => self.done.bytes as f64 / 1e6,
        }
    }

    /// Units per second.
    pub(super) fn per_second(&self) -> f64 {
        self.units() / self.done.lasted.as_secs_f64().max(1e-9)
    }
}

/// All measurements.
pub type Results = crate::Results<Sample>;
