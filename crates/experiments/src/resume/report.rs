//! The table of resumed downloads, and the picture.

use std::time::Duration;

use switchback_plot::{COLORS, Curve, Lines, Plot};

use super::super::report::{ABSENT, Report, header, row, shown, thousands};
use super::super::statistics::Spread;
use super::super::systems::System;
use super::download::PATIENCE;
use super::{End, Fault, Results, SYSTEMS, Sample};

/// So many downloads that Switchback has lost are described.
const DESCRIBED: usize = 20;
/// The fault of the picture.
const PICTURED: Fault = Fault::Killed;

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 11] = [
    ("What happens", false),
    ("System", false),
    ("Downloads", true),
    ("under way on that node", true),
    ("of them whole, every byte right", true),
    ("cut off", true),
    ("silent", true),
    ("wrong bytes", true),
    ("Longest pause of the whole ones, ms: median", true),
    ("max", true),
    ("of the other nodes' downloads: max", true),
];

pub(super) fn describe(samples: &[Sample], [resumed, not_resumed]: [u64; 2]) -> String {
    let Some(Sample { repetition, system, fault, .. }) = samples.first() else {
        return "no download".to_owned();
    };
    let struck = || samples.iter().filter(|sample| sample.is_struck);
    let whole = struck().filter(|sample| sample.end == End::Whole).count();
    let wrong = samples.iter().filter(|sample| is_wrong(sample)).count();
    let mut line = format!(
        "round {repetition}  {fault:<14} {system:<10} {whole:>3} of {} whole, {wrong} wrong",
        struck().count()
    );
    if *system == System::Switchback {
        line += &format!("  {resumed} resumed, {not_resumed} not");
    }
    line
}

fn is_wrong(sample: &Sample) -> bool {
    matches!(sample.end, End::Wrong(_))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str =
        "repetition,fault,system,node,under_way,end,received,longest_pause_ms,ended_s_after_fault";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, system, fault, node, is_struck, end, received, pause, ended_s, .. } = sample;
        vec![
            repetition.to_string(),
            fault.to_string(),
            system.to_string(),
            node.clone(),
            is_struck.to_string(),
            end.to_string(),
            received.to_string(),
            format!("{:.1}", ms(*pause)),
            format!("{ended_s:.3}"),
        ]
    }

    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for fault in Fault::ALL {
            for system in SYSTEMS {
                text += &row(&self.cells(fault, system));
            }
        }
        text
    }

    fn how(&self) -> String {
        let Results { seconds, repetitions, .. } = self;
        let silent = PATIENCE.as_secs();
        let mut text = format!(
            "`switchback lab run resume --seconds {seconds} --repetitions {repetitions}`. Each download takes {seconds} s by \
             its client's pace; in the middle of all, something happens to the first of three nodes. A pause is the \
             time that a client which is ready to read waits for a byte; its buffer of 256 KiB may hide the first \
             part of it. A client without a byte for {silent} s gives up: that is \"silent\". Every byte is compared with \
             the original. The picture shows, for each system, the download with the median of the longest pauses."
        );
        let lost: Vec<String> = self.lost().map(describe_lost).collect();
        if !lost.is_empty() {
            text += &format!("\n\nNot whole with Switchback, {} in all:\n\n", lost.len());
            text.extend(lost.iter().take(DESCRIBED).map(|line| format!("- {line}\n")));
        }
        text
    }

    fn failure(&self) -> Option<String> {
        let wrong = self.samples.iter().filter(|sample| is_wrong(sample)).count();
        let lost = self.lost().count();
        (wrong + lost > 0)
            .then(|| format!("{lost} downloads of Switchback did not become whole, {wrong} had wrong bytes"))
    }

    /// A download of each system whose node's machine dies.
    fn plot(&self) -> Option<Plot> {
        // Ours is drawn last, above the others.
        let colors =
            [(System::Haproxy, COLORS[0]), (System::Nginx, COLORS[4]), (System::Switchback, COLORS[3])];
        let curves = colors.into_iter().filter_map(|(system, color)| {
            let point = |(at, bytes): &(Duration, u64)| (at.as_millis() as u32, *bytes as f64 / 1e6);
            let points = self.typical(system)?.course.iter().map(point).collect();
            Some(Curve { name: system.to_string(), color, dashed: false, points })
        });
        Some(Plot::Lines(Lines {
            title: "A download whose node's machine dies".to_owned(),
            x_title: "time, ms (it dies at 2,000)",
            y_title: "received, MB",
            is_logarithmic: false,
            margin: 0,
            curves: curves.collect(),
        }))
    }
}

fn describe_lost(sample: &Sample) -> String {
    let Sample { repetition, fault, node, end, received, ended_s, .. } = sample;
    let received = thousands(*received as f64);
    format!(
        "round {repetition}, {fault}, on {node}: {end} after {received} bytes, {ended_s:.1} s after the fault"
    )
}

impl Results {
    fn of(&self, fault: Fault, system: System) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.fault == fault && sample.system == system)
    }

    /// Those of Switchback that did not become whole.
    fn lost(&self) -> impl Iterator<Item = &Sample> {
        let ours = self.samples.iter().filter(|sample| sample.system == System::Switchback);
        ours.filter(|sample| sample.end != End::Whole)
    }

    /// The download with the median of the longest pauses.
    fn typical(&self, system: System) -> Option<&Sample> {
        let mut struck: Vec<&Sample> = self
            .of(PICTURED, system)
            .filter(|sample| sample.is_struck && !sample.course.is_empty())
            .collect();
        struck.sort_by_key(|sample| sample.pause);
        struck.get(struck.len() / 2).copied()
    }

    fn cells(&self, fault: Fault, system: System) -> [String; COLUMNS.len()] {
        let samples = || self.of(fault, system);
        let struck = || samples().filter(|sample| sample.is_struck);
        let count = |is: fn(&End) -> bool| struck().filter(|sample| is(&sample.end)).count().to_string();
        let whole = struck().filter(|sample| sample.end == End::Whole);
        let pauses = Spread::of(whole.map(|sample| ms(sample.pause)));
        let others = Spread::of(samples().filter(|sample| !sample.is_struck).map(|sample| ms(sample.pause)));
        let whole_ms = |value: f64| format!("{value:.0}");
        [
            fault.to_string(),
            system.to_string(),
            samples().count().to_string(),
            struck().count().to_string(),
            count(|end| *end == End::Whole),
            count(|end| matches!(end, End::Cut(_))),
            count(|end| *end == End::Silent),
            samples().filter(|sample| is_wrong(sample)).count().to_string(),
            shown(pauses, |spread| whole_ms(spread.median)),
            shown(pauses, |spread| whole_ms(spread.max)),
            others.map_or_else(|| ABSENT.to_owned(), |spread| whole_ms(spread.max)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn sample(system: System, fault: Fault, is_struck: bool, end: End, pause_ms: u64) -> Sample {
        let times = [0, 2000, 2000 + pause_ms, 8000].map(Duration::from_millis);
        Sample {
            repetition: 1,
            system,
            fault,
            node: if is_struck { "node0" } else { "node1" }.to_owned(),
            is_struck,
            end,
            received: 50_000_000,
            pause: Duration::from_millis(pause_ms),
            ended_s: 10.0,
            course: std::iter::zip(times, [0, 3_000_000, 3_000_000, 9_000_000]).collect(),
        }
    }

    fn samples() -> Vec<Sample> {
        let ours = |is_struck, pause| sample(System::Switchback, Fault::Killed, is_struck, End::Whole, pause);
        let theirs = |end| sample(System::Haproxy, Fault::Killed, true, end, 5_000);
        vec![
            ours(true, 1_100),
            ours(true, 1_200),
            ours(true, 1_400),
            ours(false, 30),
            theirs(End::Silent),
            theirs(End::Cut("reset".to_owned())),
        ]
    }

    #[test]
    fn the_table_counts_what_became_of_the_downloads_of_the_dead() {
        let results = fixtures::results(1, samples());
        let table = results.table();
        let ours = "| machine killed | Switchback | 4 | 3 | 3 | 0 | 0 | 0 | 1200 | 1400 | 30 |\n";
        assert!(table.contains(ours), "{table}");
        assert!(
            table.contains("| machine killed | HAProxy | 2 | 2 | 0 | 1 | 1 | 0 | – | – | – |\n"),
            "{table}"
        );
        assert!(results.csv().contains("1,machine killed,HAProxy,node0,true,reset,50000000,5000.0,10.000\n"));
        assert_eq!(results.failure(), None);
        assert_eq!(results.typical(System::Switchback).map(|sample| sample.pause.as_millis()), Some(1_200));
    }

    #[test]
    fn what_is_lost_is_a_failure_and_described() {
        let mut samples = samples();
        samples.push(sample(System::Switchback, Fault::Cut, true, End::Wrong(7), 0));
        let results = fixtures::results(1, samples);
        let failure = results.failure().expect("one is lost");
        assert_eq!(failure, "1 downloads of Switchback did not become whole, 1 had wrong bytes");
        let line =
            "- round 1, link cut, on node0: wrong byte 7 after 50,000,000 bytes, 10.0 s after the fault\n";
        assert!(results.how().contains(line), "{}", results.how());
    }

    #[test]
    fn the_picture_has_a_curve_for_each_system() {
        let svg =
            fixtures::results(1, samples()).plot().expect("it has one").svg().expect("the font is there");
        assert!(
            svg.contains("Switchback") && svg.contains("HAProxy") && svg.contains("received, MB"),
            "{svg}"
        );
    }
}
