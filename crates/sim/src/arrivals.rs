//! Arrivals of connections.

use std::fs;

use rand_distr::{Distribution as _, Exp1, Pareto};
use serde::Deserialize;

use crate::events::SECOND;
use crate::random::{Amount, Generator, Source};
use crate::scenario::{self, Interval, ScenarioError};

/// Source of the times between arrivals.
#[derive(Debug)]
pub(crate) enum Arrivals {
    /// Random times with this mean, in nanoseconds.
    Exponential(f64),
    Constant(f64),
    Pareto(Pareto<f64>),
    /// The end of another connection (closed loop).
    Closed,
    /// Recorded times, in nanoseconds since the first, and the number that have been used.
    Log(Vec<f64>, usize),
}

/// The relevant fields of a line of the access log.
#[derive(Deserialize)]
struct Line {
    /// Arrival of the request.
    time: String,
    /// Bytes of the response, if any.
    bytes: Option<u64>,
}

impl Arrivals {
    /// Arrivals of a scenario; with an access log, also the lengths of its responses.
    pub(crate) fn new(arrivals: &scenario::Arrivals) -> Result<(Self, Option<Source>), ScenarioError> {
        if let Some(path) = &arrivals.access_log {
            let text =
                fs::read_to_string(path).map_err(|error| ScenarioError::Unread(path.clone(), error))?;
            return read_log(path, &text);
        }
        if arrivals.at_a_time.is_some() {
            return Ok((Arrivals::Closed, None));
        }
        let mean = SECOND / arrivals.per_second;
        let arrivals = match arrivals.interval {
            Interval::Exponential => Arrivals::Exponential(mean),
            Interval::Constant => Arrivals::Constant(mean),
            Interval::Pareto(alpha) => {
                let least = mean * (alpha - 1.0) / alpha;
                Arrivals::Pareto(Pareto::new(least, alpha).expect("it has been looked at"))
            }
        };
        Ok((arrivals, None))
    }

    /// Time to the next arrival in nanoseconds; None at the end.
    pub(crate) fn next(&mut self, random: &mut Generator) -> Option<f64> {
        Some(match self {
            Arrivals::Exponential(mean) => {
                let unit: f64 = Exp1.sample(random);
                unit * *mean
            }
            Arrivals::Constant(mean) => *mean,
            Arrivals::Pareto(pareto) => pareto.sample(random),
            Arrivals::Closed => return None,
            Arrivals::Log(times, next) => {
                let before = next.checked_sub(1).map_or(0.0, |last| times[last]);
                let at = *times.get(*next)?;
                *next += 1;
                at - before
            }
        })
    }
}

fn read_log(path: &str, text: &str) -> Result<(Arrivals, Option<Source>), ScenarioError> {
    let mut requests = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong =
            |error: &dyn std::fmt::Display| ScenarioError::Invalid(format!("{path}, line {number}: {error}"));
        let line: Line = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        let time: jiff::Timestamp = line.time.parse().map_err(|error| wrong(&error))?;
        requests.push((time, line.bytes.unwrap_or(0) as f64));
    }
    // Lines are written when responses end.
    requests.sort_by_key(|(at, _)| *at);
    let Some(&(first, _)) = requests.first() else {
        return Err(ScenarioError::Invalid(format!("{path}: no line in it")));
    };
    let times = requests.iter().map(|(at, _)| at.duration_since(first).as_secs_f64() * SECOND).collect();
    let lengths = requests.iter().map(|(_, bytes)| *bytes).collect();
    Ok((Arrivals::Log(times, 0), Some(Source::new(&Amount::Trace(lengths)))))
}
