//! Statistics from the end of the warm-up on.

use crate::events::{SECOND, Time};
use crate::measure::{Latencies, Outcome};
use crate::station::Station;

/// Counts and sums of a run.
pub(super) struct Statistics {
    since: Option<Time>,
    latencies: Latencies,
    outcome: Outcome,
    bits: f64,
    /// Handshakes of clients that had a session, and those of them that resumed it.
    returning: u64,
    resumed: u64,
    /// Requests in the system, since when, and the sum over time until then.
    in_system: (u64, Time, f64),
    /// Bytes on the switches' links.
    pub(super) switch_bytes: f64,
    /// Work done by each station during the warm-up.
    used_before: Vec<f64>,
}

impl Statistics {
    pub(super) fn new(stations: usize) -> Self {
        Statistics {
            since: None,
            latencies: Latencies::new(),
            outcome: Outcome::default(),
            bits: 0.0,
            returning: 0,
            resumed: 0,
            in_system: (0, 0, 0.0),
            switch_bytes: 0.0,
            used_before: vec![0.0; stations],
        }
    }

    /// Ends the warm-up.
    pub(super) fn begin(&mut self, now: Time, stations: &mut [Station]) {
        self.since = Some(now);
        self.in_system.1 = now;
        self.in_system.2 = 0.0;
        self.switch_bytes = 0.0;
        for (station, used) in stations.iter_mut().zip(&mut self.used_before) {
            *used = station.used(now);
        }
    }

    /// Adds 1 to a count of the outcome.
    pub(super) fn count(&mut self, of: fn(&mut Outcome) -> &mut u64) {
        *of(&mut self.outcome) += u64::from(self.since.is_some());
    }

    pub(super) fn count_in_system(&mut self, now: Time, more: bool) {
        let (count, since, sum) = &mut self.in_system;
        *sum += *count as f64 * (now - *since) as f64;
        *since = now;
        *count = if more { *count + 1 } else { *count - 1 };
    }

    /// Counts the handshake of a client that had a session.
    pub(super) fn return_of_client(&mut self, resumes: bool) {
        if self.since.is_some() {
            self.returning += 1;
            self.resumed += u64::from(resumes);
        }
    }

    /// Counts a response.
    pub(super) fn answer(&mut self, asked: Time, latency: Time, bytes: f64) {
        let Some(since) = self.since else { return };
        if asked >= since {
            self.latencies.add(latency);
        }
        self.outcome.answered += 1;
        self.bits += bytes * 8.0;
    }

    /// Nanoseconds since the end of the warm-up.
    pub(super) fn nanos(&self, now: Time) -> f64 {
        (now - self.since.unwrap_or(0)) as f64
    }

    /// Work of a station since the end of the warm-up.
    pub(super) fn used(&self, stations: &mut [Station], station: u32, now: Time) -> f64 {
        let station = station as usize;
        stations[station].used(now) - self.used_before[station]
    }

    /// The outcome, without the use of stations and links.
    pub(super) fn outcome(self, now: Time) -> Outcome {
        let nanos = self.nanos(now);
        let mut outcome = self.outcome;
        outcome.per_second = outcome.answered as f64 / nanos * SECOND;
        outcome.bits_per_second = self.bits / nanos * SECOND;
        outcome.set_latency(&self.latencies);
        let (count, at, sum) = self.in_system;
        outcome.in_system = (sum + count as f64 * (now - at) as f64) / nanos;
        outcome.reuse = if self.returning > 0 { self.resumed as f64 / self.returning as f64 } else { 0.0 };
        outcome
    }
}
