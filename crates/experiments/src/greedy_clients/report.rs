//! The table of greedy clients.

use super::{AHEAD, Mode, POLITE, Sample};
use crate::report::{Report, header, median, ratio, reached, repeated, row, shown, with_extremes};
use crate::statistics::Spread;

/// Most that the polite clients' p99 may be of what it is without greedy ones.
const SLOWER: f64 = 2.0;
/// By how much what a client gets may differ from its limit.
const EXACT: f64 = 0.05;

/// All measurements.
pub type Results = crate::Results<Sample>;

pub(super) fn describe(sample: &Sample) -> String {
    let Sample { repetition, mode, polite, times_ms, greedy, busy } = sample;
    let (p50, p99) = times_ms.unzip();
    let ms = |ms| shown(ms, |ms: f64| format!("{ms:.2}"));
    let passed = greedy.map_or_else(String::new, |greedy| {
        format!("  greedy: {} of {} passed", greedy.requests.passed, greedy.requests.asked)
    });
    format!(
        "round {repetition}  {:<34} polite: p50 {}, p99 {} ms, {} failed{passed}  CPUs {:.0} %",
        mode.name(),
        ms(p50),
        ms(p99),
        polite.failed,
        100.0 * busy
    )
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 10] = [
    ("Over the limit", false),
    ("Polite alone: p50, ms", true),
    ("p99 (min–max)", true),
    ("Beside greedy: p50, ms", true),
    ("p99 (min–max)", true),
    ("p99 ÷ alone", true),
    ("Polite, failed", true),
    ("Greedy: asked/s", true),
    ("passed ÷ limit: each client's least–most", true),
    ("CPUs busy, %: alone, beside", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,mode,load,polite_asked,polite_failed,polite_p50_ms,polite_p99_ms,\
        greedy_asked,greedy_passed,greedy_refused,greedy_failed,least_by_limit,most_by_limit,busy";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, mode, polite, times_ms, greedy, busy } = sample;
        let load = if greedy.is_some() { "beside" } else { "alone" };
        let mut cells = vec![repetition.to_string(), format!("\"{}\"", mode.name()), load.to_owned()];
        cells.extend([polite.asked, polite.failed].map(|count| count.to_string()));
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
        let (p50, p99) = times_ms.unzip();
        cells.extend([p50, p99].map(number));
        let counts = greedy.map(|greedy| {
            let requests = greedy.requests;
            [requests.asked, requests.passed, requests.refused, requests.failed]
        });
        let counts = counts.map(|counts| counts.map(|count| count.to_string()));
        cells.extend(counts.unwrap_or_default());
        let (least, most) = greedy.and_then(|greedy| greedy.by_limit).unzip();
        cells.extend([least, most, Some(*busy)].map(number));
        cells
    }

    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for mode in Mode::ALL {
            text += &row(&self.cells(mode));
        }
        text
    }

    fn how(&self) -> String {
        let limited = || Mode::ALL.into_iter().filter(|mode| *mode != Mode::Unlimited);
        let slower = limited().filter_map(|mode| {
            let [alone, beside] = [false, true].map(|beside| self.p99(mode, beside));
            Some((ratio(beside, alone)?, beside?.max / alone?.min))
        });
        let is_slow = |of: fn((f64, f64)) -> f64| slower.clone().any(|ratios| of(ratios) > SLOWER);
        let exact = limited().filter_map(|mode| self.by_limit(mode));
        let is_exact = exact.clone().all(|(least, most)| least >= 1.0 - EXACT && most <= 1.0 + EXACT);
        format!(
            "{} In each, {POLITE} polite clients ask at half of their limit; beside them, greedy ones at ten times theirs.\n\n\
             Targets: with limits, the polite clients' p99 is at most {SLOWER} times what it is alone: {}. Each greedy client gets \
             what its limit allows within {:.0} %: {}.",
            repeated(self),
            reached(!is_slow(|(medians, _)| medians), !is_slow(|(_, extremes)| extremes)),
            100.0 * EXACT,
            reached(is_exact, is_exact)
        )
    }
}

impl Results {
    fn spread(&self, mode: Mode, beside: bool, value: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        let of =
            self.samples.iter().filter(|sample| (sample.mode, sample.greedy.is_some()) == (mode, beside));
        Spread::of(of.filter_map(value))
    }

    fn p99(&self, mode: Mode, beside: bool) -> Option<Spread> {
        self.spread(mode, beside, |sample| Some(sample.times_ms?.1))
    }

    /// What a client has got of what its limit allows, the least and the most of all rounds.
    fn by_limit(&self, mode: Mode) -> Option<(f64, f64)> {
        let by_limit = |sample: &Sample| sample.greedy?.by_limit;
        let least = self.spread(mode, true, |sample| Some(by_limit(sample)?.0));
        let most = self.spread(mode, true, |sample| Some(by_limit(sample)?.1));
        Some((least?.min, most?.max))
    }

    fn cells(&self, mode: Mode) -> [String; COLUMNS.len()] {
        let ms = |ms: f64| format!("{ms:.2}");
        let p50 = |beside| median(self.spread(mode, beside, |sample| Some(sample.times_ms?.0)), ms);
        let [alone, beside] = [false, true].map(|beside| self.p99(mode, beside));
        let busy = |beside| {
            let busy = self.spread(mode, beside, |sample| Some(100.0 * sample.busy));
            median(busy, |percent| format!("{percent:.0}"))
        };
        let failed: u64 =
            self.samples.iter().filter(|sample| sample.mode == mode).map(|sample| sample.polite.failed).sum();
        let asked = self.spread(mode, true, |sample| Some(sample.greedy?.requests.asked as f64));
        [
            mode.name().to_owned(),
            p50(false),
            with_extremes(alone, ms),
            p50(true),
            with_extremes(beside, ms),
            shown(ratio(beside, alone), |ratio| format!("{ratio:.2}")),
            failed.to_string(),
            shown(asked, |asked| {
                format!(
                    "{:.0}",
                    asked.median / ((mode.interval() + AHEAD).as_secs_f64() + f64::from(self.seconds))
                )
            }),
            shown(self.by_limit(mode), |(least, most)| format!("{least:.3}–{most:.3}")),
            format!("{}, {}", busy(false), busy(true)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Greedy, Requests};
    use super::*;
    use crate::fixtures;

    #[test]
    fn the_table_compares_polite_clients_and_limits() {
        let sample = |greedy, p99| Sample {
            repetition: 1,
            mode: Mode::Queued,
            polite: Requests { asked: 100, passed: 99, refused: 0, failed: 1 },
            times_ms: Some((0.5, p99)),
            greedy,
            busy: 0.25,
        };
        let requests = Requests { asked: 10_000, passed: 1600, refused: 6000, failed: 400 };
        let greedy = |most| Some(Greedy { requests, by_limit: Some((0.97, most)) });
        let results = fixtures::results(1, vec![sample(None, 2.0), sample(greedy(1.04), 3.0)]);
        let expected = "| queued, new connections | 0.50 | 2.00 (2.00–2.00) | 0.50 | 3.00 (3.00–3.00) | 1.50 | 2 | 4000 | \
                        0.970–1.040 | 25, 25 |";
        assert!(results.table().lines().any(|line| line == expected), "{}", results.table());
        assert!(
            results.csv().contains("beside,100,1,0.5000,3.0000,10000,1600,6000,400,0.9700,1.0400,0.2500")
        );
        assert!(
            results.how().ends_with(
                "alone: reached. Each greedy client gets what its limit allows within 5 %: reached."
            )
        );
        let slow = fixtures::results(1, vec![sample(None, 2.0), sample(greedy(1.06), 4.1)]);
        assert_eq!(slow.how().matches("**not reached**").count(), 2, "{}", slow.how());
    }
}
