//! The loads as a table, and the functions derived from their differences.

use switchback_plot::{Bars, Panel, Plot};

use super::{CONNECTIONS, Results, Sample, Way};
use crate::report::{Report, header, median, micros, repeated, row, shown, thousands, with_extremes};
use crate::statistics::Spread;

/// The columns of the table, with true for numbers; µs are per request.
const COLUMNS: [(&str, bool); 11] = [
    ("Requests", false),
    ("Requests/s", true),
    ("Switch: µs of CPU (min–max)", true),
    ("of it L7 thread", true),
    ("of it receive", true),
    ("of that XDP program", true),
    ("its packets", true),
    ("Nodes: µs in the program, in", true),
    ("its packets", true),
    ("out", true),
    ("Nodes: µs of CPU, with the server", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,way,requests,requests_per_s,errors,xdp_runs,xdp_ns,ingress_runs,\
        ingress_ns,egress_runs,egress_ns,insert_runs,insert_ns,socket_state_runs,socket_state_ns,\
        switch_process_us,switch_receive_us,nodes_process_us,nodes_receive_us,moves";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, way, load, bpf, switch, nodes, moves } = sample;
        let mut cells = vec![repetition.to_string(), format!("\"{way}\""), load.requests.to_string()];
        cells.extend([format!("{:.2}", load.requests_per_s), load.errors.total().to_string()]);
        for program in [bpf.xdp, bpf.ingress, bpf.egress, bpf.insert, bpf.socket_state] {
            cells.extend([program.runs.to_string(), program.time.as_nanos().to_string()]);
        }
        let times = [switch.process, switch.receive, nodes.process, nodes.receive];
        cells.extend(times.map(|time| time.as_micros().to_string()));
        cells.push(moves.to_string());
        cells
    }

    /// A line for each path.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for way in Way::ALL {
            let each = |value: fn(&Sample) -> f64| median(self.spread(way, value), hundredths);
            let cpu = |value: fn(&Sample) -> f64| self.spread(way, value);
            text += &row(&[
                way.to_string(),
                median(self.spread(way, |sample| sample.load.requests_per_s), thousands),
                with_extremes(cpu(|sample| sample.each(micros(sample.switch.total()))), hundredths),
                each(|sample| sample.each(micros(sample.switch.process))),
                each(|sample| sample.each(micros(sample.switch.receive))),
                each(|sample| sample.us_each(|bpf| bpf.xdp)),
                each(|sample| sample.runs_each(|bpf| bpf.xdp)),
                each(|sample| sample.us_each(|bpf| bpf.ingress)),
                each(|sample| sample.runs_each(|bpf| bpf.ingress)),
                each(|sample| sample.us_each(|bpf| bpf.egress)),
                each(|sample| sample.each(micros(sample.nodes.total()))),
            ]);
        }
        text
    }

    fn beside_the_paper(&self) -> String {
        let columns =
            [("Function", false), ("Paper, µs", true), ("Here, µs", true), ("How measured here", false)];
        let mut text = header(&columns);
        for Function { name, paper, ours, how } in self.functions() {
            let paper = shown(paper, |us| format!("{us}"));
            text += &row(&[name.to_owned(), paper, shown(ours, hundredths), how.to_owned()]);
        }
        text + "\nThe paper's machines were Pentium III and Athlon XP of 1 to 1.5 GHz, these CPUs are some twenty years younger, \
                so the times alone say little; what differs by design is which functions there are. Where the kernel \
                makes the socket from the packet, with the client's own numbers, nothing is masqueraded afterwards, and \
                responses are only watched for their ends. The request of a kept connection \
                needs no entry to be made and no user space. What makes a move dear for the nodes is that one has to \
                prove that its response is complete, and remove a socket, before the other makes one.\n"
    }

    fn how(&self) -> String {
        let share = self.moved_part();
        format!(
            "{} Requests of some 500 bytes with four cookies, responses of 6 KiB that set the application's, {CONNECTIONS} \
             connections, no limit of the links. *Receive* is the kernel's work for what arrives at the switch, with the XDP \
             program. A kernel that counts takes some 20 ns more for each run of a program, which is in all figures. Of the \
             requests to two nodes in turn {} moved their connection. Functions that differ by less than the extremes of the \
             loads that they are made of, are not shown by this run, and may come out below zero. What the L7 thread's parts \
             cost, without packets, is in `cargo bench -p switchback-switch`.",
            repeated(self),
            shown(share, |share| format!("{:.0} %", share * 100.0)),
        )
    }

    /// A plot of the functions that the paper has.
    fn plot(&self) -> Option<Plot> {
        let functions: Vec<Function> =
            self.functions().into_iter().filter(|function| function.paper.is_some()).collect();
        let bars = |value: fn(&Function) -> Option<f64>| {
            functions
                .iter()
                .map(|function| value(function).map(|us| (us.max(0.0), format!("{us:.2}"))))
                .collect()
        };
        let panels = vec![
            Panel { title: "paper, µs".to_owned(), bars: bars(|function| function.paper) },
            Panel { title: "here, µs".to_owned(), bars: bars(|function| function.ours) },
        ];
        let names = functions.iter().map(|function| (function.name.to_owned(), 3)).collect();
        let title = "Time of the functions of switch and nodes".to_owned();
        Some(Plot::Bars(Bars { title, names, panels, one_scale: true }))
    }
}

/// A function with a figure in the paper, or its replacement.
#[derive(Clone)]
struct Function {
    name: &'static str,
    paper: Option<f64>,
    /// Our cost, in microseconds.
    ours: Option<f64>,
    how: &'static str,
}

impl Results {
    fn spread(&self, way: Way, value: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().filter(|sample| sample.way == way).map(value))
    }

    /// The difference of the medians.
    fn more(&self, than: Way, way: Way, value: fn(&Sample) -> f64) -> Option<f64> {
        Some(self.spread(way, value)?.median - self.spread(than, value)?.median)
    }

    /// The share of requests to two nodes in turn before which the connection moved.
    fn moved_part(&self) -> Option<f64> {
        let moved = self.spread(Way::Moved, |sample| sample.each(sample.moves as f64))?;
        (moved.median > 0.0).then_some(moved.median)
    }

    /// The additional cost of a move.
    fn of_a_move(&self, value: fn(&Sample) -> f64) -> Option<f64> {
        Some(self.more(Way::Thread, Way::Moved, value)? / self.moved_part()?)
    }

    /// The median of a value over the loads of a way.
    fn of(&self, way: Way, value: fn(&Sample) -> f64) -> Option<f64> {
        self.spread(way, value).map(|spread| spread.median)
    }

    fn functions(&self) -> Vec<Function> {
        [self.of_switch(), self.of_nodes(), self.of_cookies()].concat()
    }

    fn of_switch(&self) -> Vec<Function> {
        let xdp = |sample: &Sample| sample.us_each(|bpf| bpf.xdp);
        let run = |sample: &Sample| sample.us_per_run(|bpf| bpf.xdp);
        let whole = self.of(Way::New, switch);
        let entry = self.of(Way::New, xdp);
        let entry_how = "XDP program, all packets of a new connection";
        let l7 = self.of(Way::New, thread);
        vec![
            function("Whole switch, new connection", Some(69.7), whole, "its CPU, handshake to end"),
            function("Whole switch, kept, L7 thread", None, self.of(Way::Thread, switch), "its CPU"),
            function("Whole switch, kept, automaton", None, self.of(Way::Automaton, switch), "its CPU"),
            function("Entry, look-up, redirection", Some(46.0), entry, entry_how),
            function("The same, kept", None, self.of(Way::Automaton, xdp), "XDP program, with the automaton"),
            function("XDP program, one packet", None, self.of(Way::Automaton, run), "kept, automaton"),
            function("L7 work", Some(24.0), l7, "L7 thread: decision, entry, ADOPT, end"),
            function("The same, kept", None, self.of(Way::Thread, thread), "L7 thread: decision, FORWARD"),
            function("Move: switch", None, self.of_a_move(switch), "RELEASE, ADOPT: two nodes less one"),
        ]
    }

    fn of_nodes(&self) -> Vec<Function> {
        let forward = self.of(Way::Automaton, |sample| sample.us_per_run(|bpf| bpf.ingress));
        // One packet of a new connection is an ADOPT, the others are forwarded.
        let adopt = self
            .of(Way::New, |sample| sample.us_each(|bpf| bpf.ingress))
            .zip(self.of(Way::New, |sample| sample.runs_each(|bpf| bpf.ingress)))
            .zip(forward)
            .map(|((all, packets), forward)| all - (packets - 1.0) * forward);
        let nodes = |sample: &Sample| sample.each(micros(sample.nodes.total()));
        let egress = |sample: &Sample| sample.us_each(|bpf| bpf.egress);
        let packet = |sample: &Sample| {
            let time = sample.us_each(|bpf| bpf.ingress) + sample.us_each(|bpf| bpf.egress);
            time / (sample.runs_each(|bpf| bpf.ingress) + sample.runs_each(|bpf| bpf.egress))
        };
        vec![
            function(
                "Move: nodes",
                None,
                self.of_a_move(nodes),
                "both, with their kernels and servers: two less one",
            ),
            function(
                "Rebuild TCP state",
                Some(101.39),
                self.more(Way::Automaton, Way::New, nodes),
                "node's CPU, new connection less kept: also what its server does to take and close it",
            ),
            function(
                "Of it the node's program",
                None,
                adopt,
                "on ADOPT: new connection, less what is forwarded",
            ),
            function(
                "Forwarded packet at the node",
                None,
                forward,
                "node's program, mean of kept, automaton",
            ),
            function(
                "Handshake replayed",
                Some(101.39),
                self.more(Way::Masqueraded, Way::Replayed, nodes),
                "likewise, at a node that replays handshakes",
            ),
            function(
                "TCP masquerade, one packet",
                Some(3.54),
                self.more(Way::Automaton, Way::Masqueraded, packet),
                "node's programs, mean of both directions: replayed less kept",
            ),
            function(
                "Response followed",
                None,
                self.of(Way::Automaton, egress),
                "kept: the program watches it for its end",
            ),
        ]
    }

    fn of_cookies(&self) -> Vec<Function> {
        let filter = |sample: &Sample| {
            sample.us_each(|bpf| bpf.ingress)
                + sample.us_each(|bpf| bpf.egress)
                + sample.us_each(|bpf| bpf.insert)
        };
        let more = |way, value| self.more(Way::Thread, way, value);
        vec![
            function(
                "Cookie, switch",
                Some(12.0),
                more(Way::Rewritten, thread),
                "L7 thread: rewritten less kept",
            ),
            function("Cookie, filter", Some(4.47), more(Way::Rewritten, filter), "both ways, likewise"),
            function("Cookie inserted", None, more(Way::Inserted, filter), "all programs, likewise"),
        ]
    }
}

fn function(name: &'static str, paper: Option<f64>, ours: Option<f64>, how: &'static str) -> Function {
    Function { name, paper, ours, how }
}

/// CPU time of the whole switch, in microseconds per request.
fn switch(sample: &Sample) -> f64 {
    sample.each(micros(sample.switch.total()))
}

/// CPU time of the L7 thread, in microseconds per request.
fn thread(sample: &Sample) -> f64 {
    sample.each(micros(sample.switch.process))
}

fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bpf_time::{BpfTime, BpfTimes};
    use crate::cpu::CpuTimes;
    use crate::fixtures;

    fn results() -> Results {
        let sample = |way| {
            let time = |runs: u64, ns: u64| BpfTime { runs, time: Duration::from_nanos(ns) };
            let is_new = matches!(way, Way::New | Way::Replayed);
            let (packets, adopt_ns) = if is_new { (400, 300_000) } else { (200, 0) };
            let masquerade_ns = if way == Way::Masqueraded { 6_000 } else { 0 };
            let rewritten_ns = if way == Way::Rewritten { 50_000 } else { 0 };
            let moved_us = if way == Way::Moved { 600 } else { 0 };
            let cpu = |process, receive| CpuTimes {
                process: Duration::from_micros(process),
                receive: Duration::from_micros(receive),
            };
            Sample {
                repetition: 1,
                way,
                load: fixtures::load(100, 50.0),
                bpf: BpfTimes {
                    xdp: time(200, 20_000),
                    // One packet of a new connection is not a FORWARD.
                    ingress: time(packets, (packets - if adopt_ns > 0 { 100 } else { 0 }) * 100 + adopt_ns),
                    egress: time(100, 40_000 + rewritten_ns + masquerade_ns),
                    ..BpfTimes::default()
                },
                switch: cpu(100 + moved_us, 300),
                nodes: cpu(1000, 1000 + moved_us + if is_new { 3000 } else { 0 }),
                moves: if way == Way::Moved { 50 } else { 0 },
            }
        };
        fixtures::results(1, Way::ALL.map(sample).to_vec())
    }

    #[test]
    fn a_line_for_each_way() {
        let table = results().table();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), Way::ALL.len(), "{table}");
        let expected = "| kept, automaton | 50.0 | 4.00 (4.00–4.00) | 1.00 | 3.00 | 0.20 | 2.00 | 0.20 | 2.00 | 0.40 | 20.00 |";
        assert_eq!(rows[0], expected);
    }

    #[test]
    fn functions_are_differences_of_loads() {
        let text = results().beside_the_paper();
        for line in [
            "| Whole switch, new connection | 69.7 | 4.00 |",
            "| Rebuild TCP state | 101.39 | 30.00 |",
            "| Of it the node's program | – | 3.00 |",
            "| Handshake replayed | 101.39 | 30.00 |",
            "| TCP masquerade, one packet | 3.54 | 0.02 |",
            "| Forwarded packet at the node | – | 0.10 |",
            // Six per request, and every second request moved.
            "| Move: switch | – | 12.00 |",
            "| Cookie, filter | 4.47 | 0.50 |",
            "| Cookie, switch | 12 | 0.00 |",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        assert!(results().how().contains("50 % moved"), "{}", results().how());
    }

    #[test]
    fn the_plot_has_the_papers_functions_on_one_scale() {
        let svg = results().plot().expect("it has one").svg().expect("nothing but text is written");
        for text in ["Rebuild TCP state", "101.39", "30.00", "paper, µs", "here, µs"] {
            assert!(svg.contains(&format!(">\n{text}\n<")), "no {text:?} in {svg}");
        }
        assert!(!svg.contains("Move: switch"));
    }

    #[test]
    fn the_file_has_as_many_cells_as_titles() {
        let csv = results().csv();
        let commas = |line: &str| line.matches(',').count();
        let titles = commas(csv.lines().next().expect("titles"));
        // The names of the paths contain commas.
        let quoted = |line: &str| line.split('"').nth(1).map_or(0, commas);
        assert!(csv.lines().skip(1).all(|line| commas(line) - quoted(line) == titles), "{csv}");
    }
}
