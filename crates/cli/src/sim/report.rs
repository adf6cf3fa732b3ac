//! What a simulated scenario has come to, for people and for programs.

use serde_json::{Map, Value, json};
use switchback_sim::experiments::digits;
use switchback_sim::{Estimate, Outcome, estimate};

use crate::table::{Align, Table};

/// How a number is shown to people.
#[derive(Clone, Copy)]
enum Unit {
    /// Pieces of something.
    Count(&'static str),
    /// Bits per second, as Mbit/s or Gbit/s.
    Bits,
    /// Seconds, as milliseconds.
    Seconds,
    /// A share, as percent.
    Share,
}

impl Unit {
    /// Factor and name for numbers like this one.
    fn scale(self, number: f64) -> (f64, &'static str) {
        match self {
            Unit::Count(name) => (1.0, name),
            Unit::Bits if number >= 1e9 => (1e-9, "Gbit/s"),
            Unit::Bits => (1e-6, "Mbit/s"),
            Unit::Seconds => (1e3, "ms"),
            Unit::Share => (100.0, "%"),
        }
    }
}

type Number = fn(&Outcome) -> f64;

/// The rows of the report in their order: title, unit, number.
const ROWS: [(&str, Unit, Number); 19] = [
    ("offered", Unit::Count("requests"), |outcome| outcome.offered as f64),
    ("answered", Unit::Count("requests"), |outcome| outcome.answered as f64),
    ("refused: no node had room", Unit::Count("requests"), |outcome| outcome.refused as f64),
    ("broken: the node died", Unit::Count("requests"), |outcome| outcome.broken as f64),
    ("answered, rate", Unit::Count("requests/s"), |outcome| outcome.per_second),
    ("responses, throughput", Unit::Bits, |outcome| outcome.bits_per_second),
    ("latency, mean", Unit::Seconds, |outcome| outcome.latency_mean),
    ("latency, median", Unit::Seconds, |outcome| outcome.latency_p50),
    ("latency, 90 of 100 within", Unit::Seconds, |outcome| outcome.latency_p90),
    ("latency, 99 of 100 within", Unit::Seconds, |outcome| outcome.latency_p99),
    ("at a time in the cluster", Unit::Count("requests"), |outcome| outcome.in_system),
    ("switches, CPU in use", Unit::Share, |outcome| outcome.switch_cpu),
    ("switches, links in use", Unit::Share, |outcome| outcome.switch_link),
    ("nodes, CPU in use", Unit::Share, |outcome| outcome.node_cpu),
    ("busiest node, CPU in use", Unit::Share, |outcome| outcome.node_cpu_max),
    ("nodes, links in use", Unit::Share, |outcome| outcome.node_link),
    ("nodes, deviation of CPU from mean", Unit::Share, |outcome| outcome.spread),
    ("TLS sessions resumed", Unit::Share, |outcome| outcome.reuse),
    ("handed over between nodes", Unit::Count("times"), |outcome| outcome.handed_over as f64),
];

/// The report for people.
pub(super) fn text(outcomes: &[Outcome]) -> String {
    let columns = [("", Align::Left), ("MEAN", Align::Right), ("", Align::Left), ("± 95 %", Align::Right)];
    let mut table = Table::new(&columns);
    for (title, unit, number) in ROWS {
        let Estimate { mean, half } = estimate(outcomes, number);
        let (factor, name) = unit.scale(mean);
        let half = if half.is_finite() { digits(half * factor) } else { "–".to_owned() };
        table.row([title.to_owned(), digits(mean * factor), name.to_owned(), half]);
    }
    let saturated = outcomes.iter().filter(|outcome| outcome.is_saturated()).count();
    let note = match (saturated, outcomes.len()) {
        (0, _) => String::new(),
        (some, all) => format!(
            "{some} of {all} replications are saturated: more arrived than was answered, so that latencies depend on \
             the length of the run.\n"
        ),
    };
    table.render(0) + &note
}

/// The report for programs: every number by the name that it has in CSV files, with its unit in the name where it is no
/// count and no share.
pub(super) fn json(outcomes: &[Outcome]) -> Value {
    let numbers = Outcome::default().numbers().into_iter().enumerate().map(|(index, (name, _))| {
        let Estimate { mean, half } = estimate(outcomes, |outcome| outcome.numbers()[index].1);
        // JSON has no infinity: of one replication the half is null.
        (name.to_owned(), json!({"mean": mean, "half": half}))
    });
    Value::Object(numbers.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(latency: f64) -> Outcome {
        Outcome {
            offered: 1000,
            answered: 1000,
            per_second: 5986.2,
            bits_per_second: 2.5e9,
            latency_p99: latency,
            node_cpu: 0.568,
            ..Outcome::default()
        }
    }

    /// The words of the row with this title, without the title.
    fn row(text: &str, title: &str) -> String {
        let line = text.lines().find_map(|line| line.strip_prefix(title)).expect("the row is there");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn people_read_milliseconds_percent_and_bits_per_second() {
        let shown = text(&[outcome(0.0061), outcome(0.0063)]);
        assert_eq!(row(&shown, "latency, 99 of 100 within"), "6.20 ms 1.27");
        assert_eq!(row(&shown, "nodes, CPU in use"), "56.8 % 0");
        assert_eq!(row(&shown, "responses, throughput"), "2.50 Gbit/s 0");
        assert_eq!(row(&shown, "answered, rate"), "5986 requests/s 0");
        assert!(!shown.contains("saturated"), "{shown}");
        assert_eq!(row(&text(&[outcome(0.0061)]), "latency, 99 of 100 within"), "6.10 ms –");
        let saturated = text(&[outcome(1.0), Outcome { offered: 2000, ..outcome(1.0) }]);
        assert!(saturated.contains("1 of 2 replications are saturated"), "{saturated}");
    }

    #[test]
    fn programs_get_every_number_of_the_csv() {
        let value = json(&[outcome(0.0061)]);
        assert_eq!(value["latency_p99_s"]["mean"], 0.0061);
        assert!(value["latency_p99_s"]["half"].is_null());
        let names = Outcome::default().numbers();
        assert_eq!(value.as_object().map(Map::len), Some(names.len()));
    }
}
