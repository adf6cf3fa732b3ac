//! The number of data servers for a connection server (split protocol, HTTP request splitting): the switch is the
//! connection server, the nodes are data servers, and all are always busy.

use super::report::{Curves, Point, Progress, Report, curve, digits, table};
use crate::ScenarioError;
use crate::random::Amount;
use crate::scenario::{Arrivals, Costs, Nodes, Responses, Scenario, Switch};

/// Options of the series.
#[derive(Clone, Debug)]
pub struct Split {
    /// Seed of the first replication.
    pub seed: u64,
    /// Replications of each point.
    pub replications: u32,
    /// Costs of a request at both kinds of servers.
    pub costs: Costs,
    /// Bytes of each response.
    pub bytes: f64,
    /// Link of a data server.
    pub link_mbit: f64,
    /// Greatest number of data servers.
    pub most: u32,
    /// Acknowledgments that the client sends in place of each one: fewer mean less work for the connection server.
    pub acknowledged: f64,
}

impl Default for Split {
    fn default() -> Self {
        Split {
            seed: 1,
            replications: 5,
            costs: Costs::default(),
            bytes: 65_536.0,
            link_mbit: 1000.0,
            most: 64,
            acknowledged: 0.5,
        }
    }
}

const ALL: &str = "every acknowledgment";
const FEWER: &str = "fewer acknowledgments";
const DIRECT: &str = "acknowledgments direct";

impl Split {
    /// A scenario with enough concurrent requests to keep every server busy.
    fn scenario(&self, data_servers: u32, acknowledgments: f64) -> Scenario {
        let node_us = self.costs.node_connection_us
            + self.costs.node_request_us
            + self.bytes / 1024.0 * self.costs.node_kib_us;
        let link_us = self.bytes * 8.0 / self.link_mbit;
        let capacity = f64::from(data_servers) * 1e6 / node_us.max(link_us);
        let costs = Costs { switch_packet_us: self.costs.switch_packet_us * acknowledgments, ..self.costs };
        Scenario {
            seed: self.seed,
            replications: self.replications,
            warm_up_s: 20_000.0 / capacity,
            seconds: 100_000.0 / capacity,
            arrivals: Arrivals { at_a_time: Some(16 * data_servers), ..Arrivals::default() },
            responses: Responses { bytes: Amount::Constant(self.bytes), service_us: Amount::Constant(0.0) },
            costs,
            switch: Switch { link_mbit: self.link_mbit, ..Switch::default() },
            nodes: vec![Nodes {
                count: data_servers,
                workers: Some(1),
                accept_queue: 64,
                link_mbit: self.link_mbit,
                ..Nodes::default()
            }],
            ..Scenario::default()
        }
    }
}

/// Runs with one data server, two, four, and so on.
pub fn split(split: &Split, progress: Progress<'_>) -> Result<Report, ScenarioError> {
    let counts = (0..).map(|power| 1 << power).take_while(|count| *count <= split.most.max(1));
    let mut points = Vec::new();
    for count in counts {
        for (name, acknowledgments) in [(ALL, 1.0), (FEWER, split.acknowledged), (DIRECT, 0.0)] {
            points.push(Point::run(name, count, &split.scenario(count, acknowledgments), progress)?);
        }
    }
    let one = |name: &str| {
        let first = points.iter().find(|point| point.series == name && point.x == 1);
        first.map_or(f64::NAN, |point| point.estimate(|run| run.per_second).mean)
    };
    let knee = |name: &str| {
        let linear = points.iter().filter(|point| point.series == name).take_while(|point| {
            point.estimate(|run| run.per_second).mean >= 0.95 * f64::from(point.x) * one(name)
        });
        linear.last().map_or(0, |point| point.x)
    };
    let knees = [ALL, FEWER, DIRECT]
        .map(|name| format!("- {name}: linear (within 5 %) up to {} data servers", knee(name)))
        .join("\n");
    let markdown = [
        format!(
            "Answered requests in 1/s, by data servers:\n\n{}",
            table("data servers", &points, |point| digits(point.estimate(|run| run.per_second).mean))
        ),
        format!(
            "The connection server's CPU time in use:\n\n{}",
            table("data servers", &points, |point| digits(point.estimate(|run| run.switch_cpu).mean))
        ),
        format!("{knees}\n"),
    ]
    .join("\n");
    let throughput =
        |name: &str| curve(&points, name, |point| Some(point.estimate(|run| run.per_second).mean));
    let curves = vec![Curves {
        name: "",
        title: "Requests that a connection server can pass on".to_owned(),
        y_title: "answered requests, 1/s",
        is_logarithmic: false,
        curves: [ALL, FEWER, DIRECT].map(throughput).to_vec(),
    }];
    Ok(Report { axis: "data servers", points, markdown, curves })
}
