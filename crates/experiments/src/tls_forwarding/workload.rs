//! The paper's load: sizes of documents, and arrivals of clients.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::time::Duration;

use crate::open_loop::uniform;
use crate::tls_load::Document;
use crate::tls_load::open::Arrival;

/// Pareto exponent of sizes and of intervals.
const ALPHA: f64 = 1.1;
/// Mean and deviation of the logarithm of a small document's size in KB.
const BODY: (f64, f64) = (1.16, 0.9);
/// Boundary between small and large documents, in KB.
const BODY_MAX_KB: f64 = 10.0;
const TAIL_MAX_KB: f64 = 2000.0;
/// Numbers of documents and of large ones. The paper does not give the share; this one is from Barford and Crovella
/// (SURGE), the source of its model.
const DOCUMENTS: usize = 1000;
const LARGE: usize = 70;
/// Number of clients.
pub(super) const CLIENTS: usize = 120;
/// Zipf exponent of the clients' rates. The paper gives none; measured values are 0.6 to 0.9.
const POPULARITY: f64 = 0.8;
/// Most documents that a client requests on a connection; the least is one.
const REQUESTS_MAX: u64 = 3;

/// All documents.
pub(super) fn documents() -> Vec<Document> {
    let mut state = 1;
    let small = std::iter::repeat_with(|| body_kb(&mut state)).filter(|kb| *kb <= BODY_MAX_KB);
    let large = (0..LARGE).map(|rank| tail_kb((rank as f64 + 0.5) / LARGE as f64));
    let sizes = small.take(DOCUMENTS - LARGE).chain(large);
    sizes
        .enumerate()
        .map(|(number, kb)| Document { path: format!("/d{number}"), len: (kb * 1024.0) as usize })
        .collect()
}

/// A lognormal size.
fn body_kb(state: &mut u64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(state)).ln()).sqrt();
    (BODY.0 + BODY.1 * radius * (TAU * uniform(state)).cos()).exp()
}

/// A bounded Pareto size: the quantile of this share.
fn tail_kb(part: f64) -> f64 {
    let all = 1.0 - (BODY_MAX_KB / TAIL_MAX_KB).powf(ALPHA);
    BODY_MAX_KB * (1.0 - part * all).powf(-1.0 / ALPHA)
}

/// The clients' rates and requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload<'a> {
    pub(super) documents: &'a [Document],
    /// The seed of arrival times and popularity.
    pub(super) seed: u64,
    /// The paper's parameter k: a client's shortest interval.
    pub(super) k: f64,
    /// The paper's unit of time, in seconds, for a client of average popularity.
    pub(super) unit: f64,
}

impl Workload<'_> {
    /// The arrivals within this many seconds, with their requests. A client's intervals are distributed as in the
    /// paper.
    pub(super) fn arrivals(&self, seconds: f64) -> Vec<Arrival> {
        let mut state = self.seed;
        let mut all = BTreeMap::new();
        for (client, weight) in weights(&mut state).into_iter().enumerate() {
            let shortest = self.k * self.unit / weight;
            // The client has been coming for as long before.
            let mut at = -seconds;
            loop {
                at += shortest * (1.0 - uniform(&mut state)).powf(-1.0 / ALPHA);
                if at >= seconds {
                    break;
                }
                if at >= 0.0 {
                    let at = Duration::from_secs_f64(at);
                    all.insert((at, client), self.conversation(&mut state));
                }
            }
        }
        all.into_iter().map(|((at, client), documents)| Arrival { at, client, documents }).collect()
    }

    /// A client's requests on one connection.
    pub(super) fn conversation(&self, state: &mut u64) -> Vec<Document> {
        let count = 1 + below(state, REQUESTS_MAX);
        (0..count)
            .map(|_| self.documents[below(state, self.documents.len() as u64) as usize].clone())
            .collect()
    }

    /// The workload with the unit that gives this rate on the average of the seeds from 1 to `rounds`.
    pub(super) fn with_rate(self, per_second: f64, seconds: f64, rounds: u32) -> Self {
        let with = |unit: f64| Workload { unit, ..self };
        let rate = |unit: f64| {
            let count = |round: u32| Workload { seed: round.into(), ..with(unit) }.arrivals(seconds).len();
            (1..=rounds).map(count).sum::<usize>() as f64 / seconds / f64::from(rounds)
        };
        // The longer the unit, the fewer arrivals.
        let (mut short, mut long) = (1e-6, 1.0);
        for _ in 0..24 {
            let middle = f64::sqrt(short * long);
            if rate(middle) > per_second { short = middle } else { long = middle }
        }
        with(long)
    }
}

/// The clients' weights, with mean one, in random order.
fn weights(state: &mut u64) -> Vec<f64> {
    let mut weights: Vec<f64> = (1..=CLIENTS).map(|rank| (rank as f64).powf(-POPULARITY)).collect();
    let mean = weights.iter().sum::<f64>() / CLIENTS as f64;
    weights.iter_mut().for_each(|weight| *weight /= mean);
    for last in (1..CLIENTS).rev() {
        weights.swap(last, below(state, last as u64 + 1) as usize);
    }
    weights
}

fn below(state: &mut u64, limit: u64) -> u64 {
    (uniform(state) * limit as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(documents: &[Document]) -> Workload<'_> {
        Workload { documents, seed: 1, k: 25.0, unit: 1e-3 }
    }

    #[test]
    fn sizes_are_those_of_the_paper() {
        let documents = documents();
        let (small, large): (Vec<_>, Vec<_>) =
            documents.iter().map(|document| document.len).partition(|len| *len <= 10 << 10);
        assert_eq!((small.len(), large.len()), (DOCUMENTS - LARGE, LARGE));
        // A lognormal distribution's median is e^mu, 3.19 KB; cut off at 10 KB it is less.
        let median = {
            let mut sorted = small;
            sorted.sort_unstable();
            sorted[sorted.len() / 2] as f64 / 1024.0
        };
        assert!((2.5..3.2).contains(&median), "{median}");
        assert!(large.iter().max().is_some_and(|max| (500 << 10..2000 << 10).contains(max)), "{large:?}");
        // The median of the tail is 10 KB times 2^(1/1.1), 18.7 KB.
        assert!((17 << 10..20 << 10).contains(&large[LARGE / 2]), "{large:?}");
    }

    #[test]
    fn a_rate_is_reached_and_falls_as_k_grows() {
        let documents = documents();
        let fast = workload(&documents).with_rate(500.0, 4.0, 2);
        let rate = |workload: Workload<'_>| workload.arrivals(4.0).len() as f64 / 4.0;
        let mean = f64::midpoint(rate(fast), rate(Workload { seed: 2, ..fast }));
        assert!((480.0..520.0).contains(&mean), "{mean}");
        let slow = rate(Workload { k: 45.0, ..fast });
        assert!((0.5..0.75).contains(&(slow / rate(fast))), "{slow}");
    }

    #[test]
    fn a_seed_always_makes_the_same_load_in_order_of_time() {
        let documents = documents();
        let arrivals = |seed| Workload { seed, ..workload(&documents) }.arrivals(2.0);
        let times =
            |seed| arrivals(seed).iter().map(|arrival| (arrival.at, arrival.client)).collect::<Vec<_>>();
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
        assert!(
            times(1).is_sorted()
                && arrivals(1).iter().all(|arrival| (1..=3).contains(&arrival.documents.len()))
        );
    }
}
