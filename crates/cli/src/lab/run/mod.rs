//! `lab run`: measurements on labs.

mod all;
mod measure;
mod progress;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use switchback_experiments::{self as experiment, Experiment, Options};

use crate::failure::Failure;
use all::All;
use measure::{failure, measure, own_program};

/// Defines the commands, one for each experiment: its options, then the common ones, with defaults of its own. A macro,
/// because clap keeps one default for all instances of a generic type.
macro_rules! experiments {
    ($(
        $(#[$about:meta])*
        $name:ident { $($(#[$attribute:meta])* $option:ident: $type:ty,)* }
    )*) => {
        /// Make a lab, measure, remove it
        #[derive(Subcommand)]
        pub enum Run {
            $($name($name),)*
            All(All),
        }

        impl Run {
            pub fn run(self) -> Result<(), Failure> {
                match self {
                    $(Run::$name(command) => command.run(),)*
                    Run::All(command) => command.run(),
                }
            }
        }

        $(
            $(#[$about])*
            #[derive(Args)]
            pub struct $name {
                $($(#[$attribute])* $option: $type,)*
                /// How long each load lasts
                #[arg(long, default_value_t = experiment::$name::SECONDS)]
                #[arg(value_parser = clap::value_parser!(u32).range(1..=7200))]
                seconds: u32,
                /// How often each load is repeated
                #[arg(long, value_name = "N", default_value_t = experiment::$name::REPETITIONS)]
                #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
                repetitions: u32,
                /// Where the files go
                #[arg(long, alias = "out", value_name = "DIR", default_value = "bench-out")]
                output: PathBuf,
            }

            impl $name {
                fn run(self) -> Result<(), Failure> {
                    let $name { $($option,)* seconds, repetitions, output } = self;
                    let options = Options { seconds, repetitions, program: own_program()? };
                    measure(&experiment::$name { $($option),* }, &options, &output).map(drop).map_err(failure)
                }
            }
        )*
    };
}

experiments! {
    /// Compare Switchback with HAProxy, nginx and the direct way to a node
    ///
    /// Prints a Markdown table; the output directory gets proxies.md, with facts about the machine, and proxies.csv
    /// with every single measurement. Takes 20 loads for each repetition, 30 with --peers. Needs root, haproxy, nginx and
    /// wrk.
    Proxies {
        /// Where bin/haproxy and bin/nginx of another release are, which are measured too, such as target/peers
        #[arg(long, value_name = "DIR")]
        peers: Option<PathBuf>,
        /// The proxies.csv of an earlier run, with whose ratios to HAProxy the new ones are compared
        #[arg(long, value_name = "FILE")]
        compare: Option<PathBuf>,
    }

    /// Measure how long new connections take at half of the greatest rate: direct, through proxies, and through Switchback
    ///
    /// First the greatest rate of each system, then connections that begin at random times at half of it, whether or not
    /// earlier ones have ended. Prints a Markdown table; the output directory gets connection-latency.md, with facts about the
    /// machine, and connection-latency.csv with every single measurement. Needs root, haproxy, nginx and wrk.
    ConnectionLatency {}

    /// Measure what packets, requests, handshakes and hand-overs cost, for the simulator
    ///
    /// Prints a Markdown table; the output directory gets calibrate.toml, which `switchback sim` takes with --costs,
    /// calibrate.md and calibrate.csv. Needs root, nginx and wrk.
    Calibrate {}

    /// Compare policies on two servers with short accept queues, as the paper on them did
    ///
    /// One client opens connections at random times within the seconds, which nftables and the policies random (with and
    /// without a look at the queue), fill and accept-queue give to the servers in turn. Prints a Markdown table; the output
    /// directory gets accept-queue.md, with facts about the machine, accept-queue.csv with every single measurement, and a
    /// plot of the average connection times as accept-queue.svg and accept-queue.png. Needs root, apache2, nft and the
    /// DejaVu fonts.
    AcceptQueue {
        /// Numbers of connections
        #[arg(long, value_name = "N,...", value_delimiter = ',')]
        #[arg(default_values_t = experiment::AcceptQueue::CONNECTIONS)]
        #[arg(value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
        connections: Vec<u32>,
    }

    /// Measure what session persistence costs nodes and switch
    ///
    /// The same requests and responses with each mode and without, in turn. Prints a Markdown table; the output directory
    /// gets session-cost.md, with facts about the machine, and session-cost.csv with every single measurement. Needs root,
    /// nginx and wrk.
    SessionCost {}

    /// Measure what the access log and the metrics cost
    ///
    /// The same loads with both and without, in turn. Prints a Markdown table; the output directory gets log-cost.md, with
    /// facts about the machine, and log-cost.csv with every single measurement. Needs root, nginx, wrk and curl.
    LogCost {
        /// The log-cost.csv of an earlier run, with whose ratios the new ones are compared
        #[arg(long, value_name = "FILE")]
        compare: Option<PathBuf>,
    }

    /// Compare downloads by a client that is 40 ms away: direct, through proxies, and behind Switchback
    ///
    /// What arrives in the first seconds of a connection, with each congestion control that net.ipv4.tcp_allowed_congestion_control
    /// lists. Prints a Markdown table; the output directory gets far-clients.md, with facts about the machine, and far-clients.csv
    /// with every single measurement. Needs root, haproxy, nginx and curl.
    FarClients {}

    /// Kill the node of a hundred downloads in their middle, beside HAProxy and nginx
    ///
    /// The node's link is cut, its machine dies, or its server: behind Switchback with `resume = "range"` other nodes go on with
    /// its downloads. Every byte is compared. Fails if a byte is wrong, or if a download of Switchback does not become whole.
    /// Prints a Markdown table; the output directory gets resume.md, with facts about the machine, resume.csv with every
    /// download, and the course of one of each system as resume.svg and resume.png. Needs root, curl, haproxy, nginx and the
    /// DejaVu fonts.
    Resume {
        /// Downloads at a time
        #[arg(long, value_name = "N", default_value_t = experiment::Resume::DOWNLOADS)]
        #[arg(value_parser = clap::value_parser!(u32).range(3..=1000))]
        downloads: u32,
        /// Size of each, in megabytes
        #[arg(long, value_name = "N", default_value_t = experiment::Resume::MEGABYTES)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
        megabytes: u32,
    }

    /// Measure what responses that can be resumed cost while no node dies
    ///
    /// The same loads with `resume` and without, in turn, over HTTP and HTTPS: responses of 64 KiB and of 1 MiB. Prints a
    /// Markdown table; the output directory gets resume-cost.md, with facts about the machine, and resume-cost.csv with every
    /// single measurement. Needs root, nginx and wrk.
    ResumeCost {}

    /// Measure what nodes pay that replay handshakes, compared with those to which the kernel gives connections
    ///
    /// Small responses on kept and on new connections, and responses of 1 MiB, on two nodes in turn. Prints a Markdown table; the
    /// output directory gets adoption-cost.md, with facts about the machine, and adoption-cost.csv with every single
    /// measurement. Needs root, nginx and wrk.
    AdoptionCost {}

    /// Measure what the reports of a thousand nodes cost the switch
    ///
    /// One host sends the reports that so many nodes would send, every 50 ms each, while there are no requests. Prints a Markdown
    /// table; the output directory gets report-cost.md, with facts about the machine, and report-cost.csv with every single
    /// measurement. Needs root.
    ReportCost {}

    /// Measure what polite clients notice of greedy ones, and what those get
    ///
    /// Clients at ten times their limit, over new connections and kept ones, plain and over TLS, that are answered 429, wait, or
    /// have their SYNs dropped. Prints a Markdown table; the output directory gets greedy-clients.md, with facts about the
    /// machine, and greedy-clients.csv. Needs root, nginx and apache2.
    GreedyClients {
        /// Greedy clients
        #[arg(long, value_name = "N", default_value_t = experiment::GreedyClients::GREEDY)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=200))]
        greedy: u32,
    }

    /// Compare three ways to distribute clients over nodes that end TLS, as the paper on backend forwarding did
    ///
    /// Round robin, by session, and by session with busy nodes that give connections to others, on six nodes with a small
    /// part of a CPU each; clients that come back, documents and intervals as in the paper. Prints a Markdown table and the
    /// paper's figure; the output directory gets tls-forwarding.md, .csv, .svg and .png. Needs root, nginx, php-fpm, control
    /// groups with the CPU controller and the DejaVu fonts.
    TlsForwarding {
        /// Values of the paper's parameter k, each client's shortest interval; the least is the greatest load
        #[arg(long, value_name = "N,...", value_delimiter = ',')]
        #[arg(default_values_t = experiment::TlsForwarding::K)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
        k: Vec<u32>,
    }

    /// Compare Switchback, whose nodes end TLS, with HAProxy and nginx that end it in front of the same servers
    ///
    /// Full and resumed handshakes with TLS 1.3 and 1.2, small responses over HTTP/2, and responses of 1 MiB on kept connections;
    /// CPU time of what is between client and nodes, and of the nodes. Prints a Markdown table; the output directory gets
    /// tls-proxies.md, with facts about the machine, and tls-proxies.csv with every single measurement. Needs root, haproxy,
    /// nginx, h2load and openssl.
    TlsProxies {
        /// The tls-proxies.csv of an earlier run, with whose ratios to HAProxy the new ones are compared
        #[arg(long, value_name = "FILE")]
        compare: Option<PathBuf>,
    }

    /// Measure how many data servers one connection server can serve
    ///
    /// Responses of 64 KiB from 1 to 8 data servers behind links of 100 Mbit/s. Prints a Markdown table and the paper's
    /// figures; the output directory gets split-scaling.md, .csv, .svg and .png. Needs root, nginx, wrk and the DejaVu
    /// fonts.
    SplitScaling {}

    /// Measure what it brings to send acknowledgments past the connection server, and fewer of them
    ///
    /// Downloads of 1 MiB without a shim on the client, with one, and with one that leaves acknowledgments out. Prints a
    /// Markdown table and the paper's figure; the output directory gets split-acks.md, .csv, .svg and .png. Needs root,
    /// nginx, wrk and the DejaVu fonts.
    SplitAcks {}

    /// Compare machines that are connection and data servers with as many servers that are not
    ///
    /// The paper's configurations 1, 2 and 3 with full and partial delegation, files of 4 to 128 KiB. Prints a Markdown
    /// table and the paper's figures; the output directory gets mini-cluster.md, .csv, .svg and .png. Needs root, nginx,
    /// wrk and the DejaVu fonts.
    MiniCluster {}

    /// Measure requests/s with 1 to 12 nodes while the switch's link is no faster than theirs, beside proxies
    ///
    /// Table I of "Direct Web Switch Routing". Links of 100 Mbit/s; Switchback, HAProxy, nginx and, if it is there, Envoy.
    /// Prints a Markdown table and the paper's figures; the output directory gets dwsr-table1.md, .csv, .svg and .png. Needs
    /// root, haproxy, nginx, wrk and the DejaVu fonts.
    DwsrTable1 {
        /// Numbers of nodes, besides one
        #[arg(long, value_name = "N,...", value_delimiter = ',')]
        #[arg(default_values_t = experiment::DwsrTable1::NODES)]
        #[arg(value_parser = clap::value_parser!(u32).range(2..=40))]
        nodes: Vec<u32>,
        /// Envoy's program; without, the one in the PATH, if there is one
        #[arg(long, value_name = "PATH")]
        envoy: Option<PathBuf>,
    }

    /// Compare Switchback with proxies in front of six nodes: requests/s, latency, CPU and bytes on the switch
    ///
    /// Table II of "Direct Web Switch Routing", once limited by the nodes' links, once by nothing but the machine. Prints a
    /// Markdown table and the paper's figures; the output directory gets dwsr-table2.md, .csv, .svg and .png. Needs root,
    /// haproxy, nginx, wrk and the DejaVu fonts.
    DwsrTable2 {
        /// Envoy's program; without, the one in the PATH, if there is one
        #[arg(long, value_name = "PATH")]
        envoy: Option<PathBuf>,
    }

    /// Measure what each function costs switch and nodes
    ///
    /// Table III of "Direct Web Switch Routing": requests that take different ways through switch and nodes, and what the
    /// differences cost, by the kernel's own clocks. Prints a Markdown table and the paper's figures; the output directory
    /// gets dwsr-table3.md, .csv, .svg and .png. Needs root, nginx, wrk and the DejaVu fonts.
    DwsrTable3 {}

    /// Count the connections that clients lose when switches die, are cut off, restart and come back, beside HAProxy
    ///
    /// Three switches behind a router with ECMP, then two machines with HAProxy and keepalived, under the same load of many
    /// kinds. Each fault once, then faults in random order for the seconds. Prints Markdown tables; the output directory gets
    /// switch-failover.md, with facts about the machine and every connection that Switchback has lost, and
    /// switch-failover.csv. Needs root, bird, haproxy, keepalived and nginx.
    SwitchFailover {
        /// Connections with a short request every ten seconds
        #[arg(long, value_name = "N", default_value_t = experiment::SwitchFailover::CONNECTIONS)]
        #[arg(value_parser = clap::value_parser!(u32).range(..=24_000))]
        connections: u32,
        /// Downloads at a time
        #[arg(long, value_name = "N", default_value_t = experiment::SwitchFailover::OTHERS)]
        #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
        downloads: u32,
        /// Size of a download, in megabytes
        #[arg(long, value_name = "N", default_value_t = experiment::SwitchFailover::MEGABYTES)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
        megabytes: u32,
        /// Uploads at a time
        #[arg(long, value_name = "N", default_value_t = experiment::SwitchFailover::OTHERS)]
        #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
        uploads: u32,
        /// WebSockets
        #[arg(long, value_name = "N", default_value_t = experiment::SwitchFailover::OTHERS)]
        #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
        websockets: u32,
        /// Connections over TLS, half of them with HTTP/2
        #[arg(long, value_name = "N", default_value_t = experiment::SwitchFailover::OTHERS)]
        #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
        tls: u32,
        /// Clients that pipeline
        #[arg(long, value_name = "N", default_value_t = experiment::SwitchFailover::PIPELINES)]
        #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
        pipelines: u32,
        /// Packets of flows that nobody has in a second, from spoofed addresses
        #[arg(long, value_name = "N", default_value_t = 0)]
        #[arg(value_parser = clap::value_parser!(u32).range(..=100_000))]
        flood: u32,
        /// Seed of the random order
        #[arg(long, value_name = "N", default_value_t = experiment::SwitchFailover::SEED)]
        seed: u64,
    }

    /// Look for lost connections and for leaks under half an hour of faults
    ///
    /// The load and the faults of switch-failover with Switchback alone, connections that end and begin anew, nodes that drain
    /// and agents that are restarted. Fails if a connection is broken or cannot be made, if wrong bytes come, if a request is
    /// served twice, or if the daemons have more memory, open files or flows at the end than after each fault has
    /// happened once. Prints Markdown tables; the output directory gets soak.md, with facts about the machine, and soak.csv.
    /// Needs root, bird and nginx.
    Soak {
        /// Connections with a short request every ten seconds
        #[arg(long, value_name = "N", default_value_t = experiment::Soak::CONNECTIONS)]
        #[arg(value_parser = clap::value_parser!(u32).range(..=24_000))]
        connections: u32,
        /// Downloads, uploads, WebSockets, connections over TLS with HTTP/1.1, with HTTP/2, and clients that pipeline: of each
        #[arg(long, value_name = "N", default_value_t = experiment::Soak::OTHERS)]
        #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
        others: u32,
        /// Seed of the random order
        #[arg(long, value_name = "N", default_value_t = experiment::Soak::SEED)]
        seed: u64,
    }
}
