//! The results as a table and as a CSV file.

use std::time::Duration;

use switchback_plot::{COLORS, Curve, Lines, Plot};

use super::sample::{Model, NODES, NodeShare, QUOTA, Results, Sample};
use crate::report::{Report, header, micros, repeated, row, shown, thousands, with_extremes};
use crate::statistics::Spread;

/// The paper's latency with forwarding, relative to session-aware distribution.
const PAPER: f64 = 0.7;

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 15] = [
    ("k", true),
    ("Load", true),
    ("Model", false),
    ("Mean latency, ms (min–max)", true),
    ("÷ session's", true),
    ("Median, ms", true),
    ("p99, ms", true),
    ("Handshake, ms", true),
    ("First byte, ms", true),
    ("Requests/s", true),
    ("Failed", true),
    ("Sessions reused", true),
    ("Spread of handshakes", true),
    ("of requests", true),
    ("of CPU", true),
];

impl Sample {
    /// The mean time of all responses, in milliseconds.
    fn mean_ms(&self) -> Option<f64> {
        let times = &self.outcome.responses_ms;
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }

    fn requests_per_s(&self) -> f64 {
        self.outcome.responses_ms.len() as f64 / self.outcome.lasted.as_secs_f64().max(1e-9)
    }

    /// The share of resumed handshakes.
    fn reused(&self) -> Option<f64> {
        let handshakes = self.outcome.handshakes_ms.len();
        (handshakes > 0).then(|| self.outcome.resumed as f64 / handshakes as f64)
    }

    /// The unevenness of a value among the nodes.
    fn spread(&self, of: fn(&NodeShare) -> f64) -> Option<f64> {
        coefficient_of_variation(&self.nodes.iter().map(of).collect::<Vec<_>>())
    }

    /// Connections and requests that nodes handed over.
    fn handed_over(&self) -> u64 {
        self.sum(|node| node.given + node.requests_given)
    }

    fn sum(&self, of: fn(&NodeShare) -> u64) -> u64 {
        self.nodes.iter().map(of).sum()
    }
}

/// Standard deviation divided by mean.
fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

/// The quantile of sorted times for this share.
fn quantile(times: &[f64], part: f64) -> Option<f64> {
    let rank = (part * times.len() as f64).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied()
}

pub(super) fn describe(sample: &Sample) -> String {
    let Sample { repetition, model, k, outcome, load, .. } = sample;
    let ms = |value: Option<f64>| shown(value, |ms| format!("{ms:.1}"));
    format!(
        "round {repetition}  k {k:>2} (load {load:.2})  {model:<18} {:>6.0} requests/s  mean {:>7} ms  p99 {:>7} ms  {} reused  {} handed over  {} failed",
        sample.requests_per_s(),
        ms(sample.mean_ms()),
        ms(quantile(&outcome.responses_ms, 0.99)),
        shown(sample.reused(), |part| format!("{part:.2}")),
        sample.handed_over(),
        outcome.errors(),
    )
}

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,k,load,model,offered_per_s,requests,requests_per_s,bytes,mean_ms,p50_ms,\
        p99_ms,handshake_p50_ms,first_byte_p50_ms,errors,timeouts,broken,wrong,handshakes,resumed,given,requests_given,\
        spread_handshakes,spread_requests,spread_cpu,cpu_us";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, model, k, offered, load, outcome, .. } = sample;
        let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let mut cells = vec![repetition.to_string(), k.to_string(), format!("{load:.3}")];
        cells.extend([
            format!("\"{model}\""),
            format!("{offered:.1}"),
            outcome.responses_ms.len().to_string(),
        ]);
        cells.extend([format!("{:.2}", sample.requests_per_s()), outcome.bytes.to_string()]);
        cells.extend([
            number(sample.mean_ms()),
            number(quantile(&outcome.responses_ms, 0.5)),
            number(quantile(&outcome.responses_ms, 0.99)),
            number(quantile(&outcome.handshakes_ms, 0.5)),
            number(quantile(&outcome.first_bytes_ms, 0.5)),
        ]);
        // Timeouts are no errors under overload; they are part of the measurement.
        let errors = outcome.broken + outcome.wrong;
        cells
            .extend([errors, outcome.timeouts, outcome.broken, outcome.wrong].map(|count| count.to_string()));
        cells.extend([outcome.handshakes_ms.len().to_string(), outcome.resumed.to_string()]);
        cells.extend(
            [sample.sum(|node| node.given), sample.sum(|node| node.requests_given)]
                .map(|count| count.to_string()),
        );
        cells.extend(SPREADS.map(|of| number(sample.spread(of))));
        cells.push(micros(sample.nodes.iter().map(|node| node.cpu).sum::<Duration>()).round().to_string());
        cells
    }

    /// A line for each load and model.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for k in self.loads() {
            for model in Model::ALL {
                text += &row(&self.cells(k, model));
            }
        }
        text
    }

    fn beside_the_paper(&self) -> String {
        let forwarding =
            Model::ALL.into_iter().filter(|model| *model != Model::RoundRobin && *model != Model::Session);
        let columns = [
            ("k", true),
            ("Model", false),
            ("Mean latency ÷ session's (min–max)", true),
            ("Paper", true),
            ("Handed over, of the requests", true),
        ];
        let mut text = header(&columns);
        let forwarding: Vec<Model> = forwarding.collect();
        for k in self.loads() {
            for &model in &forwarding {
                let given = Spread::of(self.of(k, model).map(|sample| {
                    sample.handed_over() as f64 / sample.outcome.responses_ms.len().max(1) as f64
                }));
                text += &row(&[
                    k.to_string(),
                    model.to_string(),
                    with_extremes(self.part(k, model), |part| format!("{part:.2}")),
                    format!("{PAPER:.2}"),
                    shown(given, |given| format!("{:.1} %", 100.0 * given.median)),
                ]);
            }
        }
        for model in forwarding {
            let part = shown(self.part_of_all(model), |part| format!("{part:.2}"));
            text += &row(&["all".to_owned(), model.to_string(), part, format!("{PAPER:.2}"), String::new()]);
        }
        text
    }

    fn how(&self) -> String {
        format!(
            "{} {NODES} nodes with {QUOTA}/1000 of a CPU each, for agent and server. Load is what is offered, as a part of what the \
             session-aware cluster does when {} clients that come back take turns. Latency is that of requests; the first of \
             a connection has the handshake in it; its parts of session's are of the same round, and of all the geometric mean. Spread is the coefficient of variation among the nodes. Failed are \
             connections of all repetitions that were not over within {} s, or broke.\n",
            repeated(self),
            super::CAPACITY_CLIENTS,
            super::TIMEOUT.as_secs(),
        )
    }

    /// A plot of latency with forwarding relative to the session-aware cluster's.
    fn plot(&self) -> Option<Plot> {
        let load = |k| {
            Some(
                (100.0 * Spread::of(self.samples.iter().filter(|s| s.k == k).map(|s| s.load))?.median).round()
                    as u32,
            )
        };
        let curve = |model: Model| Curve {
            name: model.to_string(),
            color: COLORS[model as usize + 2],
            dashed: false,
            points: self
                .loads()
                .into_iter()
                .filter_map(|k| Some((load(k)?, self.part(k, model)?.median)))
                .collect(),
        };
        let mut curves: Vec<Curve> =
            Model::ALL.into_iter().filter(|model| *model != Model::RoundRobin).map(curve).collect();
        curves.push(Curve {
            name: "paper: forwarding".to_owned(),
            color: COLORS[6],
            dashed: true,
            points: self.loads().into_iter().filter_map(|k| Some((load(k)?, PAPER))).collect(),
        });
        Some(Plot::Lines(Lines {
            title: "Mean latency over load, as part of that without forwarding".to_owned(),
            x_title: "load, % of what the cluster can do",
            y_title: "mean latency, part of session's",
            is_logarithmic: false,
            margin: 4,
            curves,
        }))
    }
}

/// The values whose spread the table shows.
const SPREADS: [fn(&NodeShare) -> f64; 3] =
    [|node| node.handshakes as f64, |node| node.responses as f64, |node| node.cpu.as_secs_f64()];

impl Results {
    /// The values of k, from the smallest load on.
    fn loads(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.samples.iter().map(|sample| sample.k).collect();
        all.sort_unstable_by_key(|k| std::cmp::Reverse(*k));
        all.dedup();
        all
    }

    fn of(&self, k: u32, model: Model) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.k == k && sample.model == model)
    }

    fn median(&self, k: u32, model: Model, value: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.of(k, model).filter_map(value))
    }

    /// The mean latency relative to session-aware distribution's in the same round: the popular clients differ between
    /// rounds, and are the same for all models of one.
    fn parts(&self, k: u32, model: Model) -> impl Iterator<Item = f64> {
        self.of(k, model).filter_map(move |sample| {
            let session = self.of(k, Model::Session).find(|other| other.repetition == sample.repetition)?;
            Some(sample.mean_ms()? / session.mean_ms()?)
        })
    }

    fn part(&self, k: u32, model: Model) -> Option<Spread> {
        Spread::of(self.parts(k, model))
    }

    /// The geometric mean over all rounds and loads, for which half and twice as much cancel out.
    fn part_of_all(&self, model: Model) -> Option<f64> {
        let logarithms: Vec<f64> =
            self.loads().into_iter().flat_map(|k| self.parts(k, model)).map(f64::ln).collect();
        let count = logarithms.len() as f64;
        (count > 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
    }

    fn cells(&self, k: u32, model: Model) -> [String; COLUMNS.len()] {
        let median = |value: &dyn Fn(&Sample) -> Option<f64>, decimals: usize| {
            shown(self.median(k, model, value), |spread| format!("{:.decimals$}", spread.median))
        };
        let failed: u64 = self.of(k, model).map(|sample| sample.outcome.errors()).sum();
        let [handshakes, requests, cpu] = SPREADS.map(|of| median(&|sample| sample.spread(of), 2));
        [
            k.to_string(),
            median(&|sample| Some(sample.load), 2),
            model.to_string(),
            with_extremes(self.median(k, model, Sample::mean_ms), |ms| format!("{ms:.1}")),
            shown(self.part(k, model), |part| format!("{:.2}", part.median)),
            median(&|sample| quantile(&sample.outcome.responses_ms, 0.5), 1),
            median(&|sample| quantile(&sample.outcome.responses_ms, 0.99), 1),
            median(&|sample| quantile(&sample.outcome.handshakes_ms, 0.5), 1),
            median(&|sample| quantile(&sample.outcome.first_bytes_ms, 0.5), 1),
            shown(self.median(k, model, |sample| Some(sample.requests_per_s())), |spread| {
                thousands(spread.median)
            }),
            failed.to_string(),
            median(&Sample::reused, 3),
            handshakes,
            requests,
            cpu,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::tls_load::open::Outcome;

    fn sample(model: Model, mean_ms: f64, given: u64) -> Sample {
        let node = |responses| NodeShare { handshakes: 10, responses, given, ..NodeShare::default() };
        Sample {
            repetition: 1,
            model,
            k: 45,
            offered: 20.0,
            load: 0.5,
            outcome: Outcome {
                handshakes_ms: vec![1.0; 20],
                first_bytes_ms: vec![mean_ms; 40],
                responses_ms: vec![mean_ms; 40],
                resumed: 5,
                lasted: Duration::from_secs(2),
                timeouts: 1,
                ..Outcome::default()
            },
            nodes: vec![node(10), node(30)],
        }
    }

    #[test]
    fn models_stand_beside_the_session_aware_one() {
        let samples = vec![sample(Model::Session, 20.0, 0), sample(Model::Relay, 10.0, 4)];
        let results = fixtures::results(1, samples);
        let table = results.table();
        let expected = "| 45 | 0.50 | forwarding, relay | 10.0 (10.0–10.0) | 0.50 | 10.0 | 10.0 | 1.0 | 10.0 | 20.0 | 1 | 0.250 | \
            0.00 | 0.50 | – |";
        assert!(table.lines().any(|line| line == expected), "{table}");
        let beside = results.beside_the_paper();
        assert!(beside.contains("| 45 | forwarding, relay | 0.50 (0.50–0.50) | 0.70 | 20.0 % |"), "{beside}");
        let csv = results.csv();
        let titles = csv.lines().next().map(|line| line.split(',').count());
        // The name of the model has a comma, in quotes.
        assert_eq!(csv.lines().nth(2).map(|line| line.split(',').count()), titles.map(|count| count + 1));
    }

    #[test]
    fn what_is_even_has_no_spread() {
        assert_eq!(coefficient_of_variation(&[5.0, 5.0]), Some(0.0));
        assert_eq!(coefficient_of_variation(&[0.0, 2.0]), Some(1.0));
        assert_eq!(coefficient_of_variation(&[0.0, 0.0]), None);
    }
}
