//! `explain`: the switch's decisions on requests, with reasons. The requests come from the command line, a file or a
//! capture; the decisions are made by the switch's own code.

mod capture;
mod explained;
mod json;
mod request;
mod text;
mod tls;
mod words;

use std::path::PathBuf;

use clap::Args;
use switchback_access_log::escape::{printable, printable_json};
use switchback_config::Cluster;
use switchback_switch::explain::{Connection, Explainer};
use switchback_wire::Seq;

use crate::config::Config;
use crate::failure::Failure;
use crate::files::CLUSTER_FILE;
use explained::{Begins, Explained};
use request::{Destination, Options, Request};

/// Tell which route, pool and node would take a request, and why
///
/// Asks the code that the switch runs, as it is right after its start. Needs neither a running switch nor
/// root. Exit status 0 also for requests that the switch would refuse.
#[derive(Args)]
pub struct Explain {
    /// The cluster.toml; its key file is needed only to tell what session cookies say
    #[arg(long, value_name = "FILE", default_value = CLUSTER_FILE)]
    config: Config,
    /// An http:// or https:// URL, or a path
    #[arg(value_name = "URL", required_unless_present_any = ["request", "pcap"])]
    url: Option<String>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    destination: Destination,
    /// One or more requests byte by byte, as a client would send them on one connection; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "Options"])]
    request: Option<PathBuf>,
    /// A capture (pcap or pcapng): all connections to the VIPs, and handoff packets to nodes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "Options", "Destination", "request"])]
    pcap: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub fn run(self) -> Result<(), Failure> {
        let mut explainer = Explainer::new(load(&self.config)?);
        let (explained, incomplete) = if let Some(file) = &self.pcap {
            capture::explain(&mut explainer, file)?
        } else {
            let Request { bytes, flow, hello } = match (&self.request, &self.url) {
                (Some(file), _) => {
                    let flow = self.destination.flow(explainer.cluster(), None, None)?;
                    Request { bytes: request::read(file)?, flow, hello: None }
                }
                (None, Some(url)) => self.options.request(&self.destination, explainer.cluster(), url)?,
                (None, None) => unreachable!("clap asks for one of the three"),
            };
            let mut connection = Connection::new(flow, Seq(0));
            match hello {
                None => connection.data(&mut explainer, &bytes),
                Some(hello) => {
                    connection.data(&mut explainer, &hello);
                    connection.request_over_tls(&mut explainer, &bytes);
                }
            }
            let missing = connection.finish(&explainer);
            (vec![Explained { connection, begins: Begins::Given, missing }], None)
        };
        if self.json {
            let json = json::render(explainer.cluster(), &explained).to_string();
            println!("{}", printable_json(&json));
        } else {
            print!("{}", printable(&text::render(explainer.cluster(), &explained)));
        }
        incomplete.map_or(Ok(()), Err)
    }
}

/// The configuration, without its key if that cannot be read: possibly only root may.
pub fn load(config: &Config) -> Result<Cluster, Failure> {
    let document = config.resolved()?;
    Ok(document.cluster().or_else(|_| document.check_text().map(|checked| checked.cluster))?)
}
