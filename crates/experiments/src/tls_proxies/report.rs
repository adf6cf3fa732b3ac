//! The results as a table and as a CSV file.

use super::sample::{Results, SYSTEMS, Sample, Unit, WORKLOADS, Workload};
use crate::cpu::CpuTimes;
use crate::report::{
    Report, cpu_time, header, median, micros, ratio, repeated, row, shown, thousands, with_extremes,
};
use crate::statistics::Spread;
use crate::systems::System;

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 12] = [
    ("Workload", false),
    ("System", false),
    ("Handshakes, requests or MB/s (min–max)", true),
    ("÷ HAProxy's", true),
    ("Balancer: CPU µs each (min–max)", true),
    ("÷ HAProxy's", true),
    ("of it process", true),
    ("of it receive", true),
    ("Nodes: CPU µs each (min–max)", true),
    ("Both", true),
    ("÷ HAProxy's", true),
    ("Errors", true),
];

impl Sample {
    /// Microseconds per handshake, request or megabyte; None without any.
    fn each(&self, cpu: impl Fn(&Sample) -> f64) -> Option<f64> {
        (self.units() > 0.0).then(|| cpu(self) / self.units())
    }

    fn balancer_us(&self) -> f64 {
        micros(self.balancer.total())
    }

    fn both_us(&self) -> f64 {
        micros(self.balancer.total() + self.nodes.total())
    }
}

pub(super) fn describe(sample: &Sample) -> String {
    let Sample { repetition, workload, system, done, .. } = sample;
    let unit = match workload.unit {
        Unit::Handshake => "handshakes/s",
        Unit::Request => "requests/s",
        Unit::Megabyte => "MB/s",
    };
    let us = |value: Option<f64>| shown(value, |us| format!("{us:.0}"));
    format!(
        "round {repetition}  {:<23} {system:<10} {:>7.0} {unit:<12}  {:>5} us of the balancer's CPU, {:>5} of the nodes'  {} errors",
        workload.name,
        sample.per_second(),
        us(sample.each(Sample::balancer_us)),
        us(sample.each(|sample| micros(sample.nodes.total()))),
        done.errors
    )
}

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,workload,system,handshakes,resumed,responses,bytes,seconds,errors,\
        balancer_process_us,balancer_receive_us,nodes_process_us,nodes_receive_us,\
        units_per_s,balancer_us_per_unit,hosts_us_per_unit";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, workload, system, done, balancer, nodes } = sample;
        let mut cells = vec![repetition.to_string(), format!("\"{}\"", workload.name), system.to_string()];
        cells.extend(
            [done.handshakes, done.resumed, done.responses, done.bytes].map(|count| count.to_string()),
        );
        cells.extend([format!("{:.3}", done.lasted.as_secs_f64()), done.errors.to_string()]);
        let times = |cpu: &CpuTimes| [cpu.process, cpu.receive].map(|time| time.as_micros().to_string());
        cells.extend(times(balancer));
        cells.extend(times(nodes));
        let each = [sample.each(Sample::balancer_us), sample.each(Sample::both_us)];
        cells.push(format!("{:.2}", sample.per_second()));
        cells.extend(each.map(|time| time.map(|time| format!("{time:.3}")).unwrap_or_default()));
        cells
    }

    /// A line for each workload and system.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for workload in WORKLOADS {
            for system in SYSTEMS {
                text += &row(&self.cells(workload, system));
            }
        }
        text
    }

    fn how(&self) -> String {
        format!(
            "{}\nA handshake has one request and a response of 100 bytes behind it, and the end of the connection. A connection with \
             HTTP/2 has 100 requests at a time. Receive is what receiving costs the kernel. Errors are those of all repetitions together.\n",
            repeated(self)
        )
    }
}

impl Results {
    fn spread(
        &self,
        workload: Workload,
        system: System,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Spread> {
        let wanted = |sample: &&Sample| sample.workload == workload && sample.system == system;
        Spread::of(self.samples.iter().filter(wanted).filter_map(value))
    }

    fn cells(&self, workload: Workload, system: System) -> [String; COLUMNS.len()] {
        let rate = |system| self.spread(workload, system, |sample| Some(sample.per_second()));
        let cpu = |system, of: fn(&Sample) -> f64| self.spread(workload, system, |sample| sample.each(of));
        let balancer: fn(&Sample) -> f64 = Sample::balancer_us;
        let part = |of| shown(ratio(cpu(system, of), cpu(System::Haproxy, of)), |part| format!("{part:.2}"));
        let errors: u64 = self
            .samples
            .iter()
            .filter(|s| s.workload == workload && s.system == system)
            .map(|s| s.done.errors)
            .sum();
        [
            workload.name.to_owned(),
            system.to_string(),
            with_extremes(rate(system), thousands),
            shown(ratio(rate(system), rate(System::Haproxy)), |part| format!("{part:.2}")),
            with_extremes(cpu(system, balancer), cpu_time),
            part(balancer),
            median(cpu(system, |sample| micros(sample.balancer.process)), cpu_time),
            median(cpu(system, |sample| micros(sample.balancer.receive)), cpu_time),
            with_extremes(cpu(system, |sample| micros(sample.nodes.total())), cpu_time),
            median(cpu(system, Sample::both_us), cpu_time),
            part(Sample::both_us),
            errors.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures;
    use crate::tls_load::closed::Done;

    #[test]
    fn times_are_for_each_handshake_request_or_megabyte() {
        let us = Duration::from_micros;
        let sample = |workload, system, handshakes, bytes, balancer, nodes| Sample {
            repetition: 1,
            workload,
            system,
            done: Done { handshakes, bytes, lasted: Duration::from_secs(2), ..Done::default() },
            balancer: CpuTimes { process: us(balancer), receive: us(1000) },
            nodes: CpuTimes { process: us(nodes), receive: us(1000) },
        };
        let (first, last) = (WORKLOADS[0], WORKLOADS[5]);
        let mut http2 = sample(WORKLOADS[4], System::Haproxy, 4, 40_000, 9_000, 3_000);
        http2.done.responses = 400;
        let samples = vec![
            sample(first, System::Haproxy, 100, 0, 9_000, 1_000),
            sample(first, System::Switchback, 200, 0, 1_000, 21_000),
            http2,
            sample(last, System::Haproxy, 16, 10_000_000, 9_000, 9_000),
        ];
        let results = fixtures::results(1, samples);
        let table = results.table();
        for expected in [
            "| full handshake, TLS 1.3 | HAProxy | 50.0 (50.0–50.0) | 1.00 | 100 (100–100) | 1.00 | 90.0 | 10.0 | 20.0 (20.0–20.0) | 120 | 1.00 | 0 |",
            "| full handshake, TLS 1.3 | Switchback | 100.0 (100.0–100.0) | 2.00 | 10.0 (10.0–10.0) | 0.10 | 5.0 | 5.0 | 110 (110–110) | 120 | 1.00 | 0 |",
            "| 100 B, HTTP/2 | HAProxy | 200.0 (200.0–200.0) | 1.00 | 25.0 (25.0–25.0) | 1.00 | 22.5 | 2.5 | 10.0 (10.0–10.0) | 35.0 | 1.00 | 0 |",
            "| 1 MiB, keep-alive | HAProxy | 5.0 (5.0–5.0) | 1.00 | 1,000 (1,000–1,000) | 1.00 | 900 | 100 | 1,000 (1,000–1,000) | 2,000 | 1.00 | 0 |",
        ] {
            assert!(table.lines().any(|line| line == expected), "{table}");
        }
        let line =
            "1,\"100 B, HTTP/2\",HAProxy,4,0,400,40000,2.000,0,9000,1000,3000,1000,200.00,25.000,35.000\n";
        assert!(results.csv().contains(line), "{}", results.csv());
    }
}
