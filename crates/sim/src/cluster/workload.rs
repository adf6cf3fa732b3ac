//! The requests of a run, drawn at random.

use crate::arrivals::Arrivals;
use crate::random::{Clients, Source, Streams, requests};
use crate::scenario::{Scenario, ScenarioError};

/// The sources of a scenario's requests.
pub(super) struct Workload {
    pub(super) random: Streams,
    arrivals: Arrivals,
    clients: Clients,
    think: Source,
    bytes: Source,
    service: Source,
}

impl Workload {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        let (arrivals, trace) = Arrivals::new(&scenario.arrivals)?;
        Ok(Workload {
            random: Streams::new(seed),
            arrivals,
            clients: Clients::new(scenario.clients.count, scenario.clients.skew),
            think: Source::new(&scenario.clients.think_ms),
            bytes: trace.unwrap_or_else(|| Source::new(&scenario.responses.bytes)),
            service: Source::new(&scenario.responses.service_us),
        })
    }

    /// Time until the next arrival, in nanoseconds; None if there is no more.
    pub(super) fn interval(&mut self) -> Option<f64> {
        self.arrivals.next(&mut self.random.arrivals)
    }

    /// Number of the client of a connection.
    pub(super) fn client(&mut self) -> u32 {
        self.clients.draw(&mut self.random.clients)
    }

    /// Number of requests of a connection.
    pub(super) fn requests(&mut self, mean: f64) -> u32 {
        requests(mean, &mut self.random.clients)
    }

    /// Time of a client between two requests, in milliseconds.
    pub(super) fn think_ms(&mut self) -> f64 {
        self.think.draw(&mut self.random.clients)
    }

    /// Length of a response, in bytes.
    pub(super) fn bytes(&mut self) -> f64 {
        self.bytes.draw(&mut self.random.sizes)
    }

    /// Time of a server for a request, in microseconds.
    pub(super) fn service_us(&mut self) -> f64 {
        self.service.draw(&mut self.random.service)
    }
}
