//! `gateway`: the controller for the Gateway API of Kubernetes.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use switchback_config::Document;
use switchback_gateway::{Address, IpNet, Options, Settings};
use switchback_runtime::privileges::{self, CapabilitySet};

use crate::daemon::Log;
use crate::failure::Failure;

/// Run the controller for the Gateway API of Kubernetes
///
/// Makes cluster.toml from GatewayClasses, Gateways, HTTPRoutes, Services and their endpoints, and writes it to a Secret, which switches
/// and nodes follow with --config kubernetes://NAMESPACE/SECRET. Finds the API server by KUBECONFIG, ~/.kube/config or the
/// service account of its pod. Ends on SIGTERM or SIGINT; switches and nodes go on without it.
#[derive(Args)]
pub struct Gateway {
    /// Addresses of Gateways, such as 203.0.113.0/28; may be given more than once. Packets to them have to reach the switches
    #[arg(long, value_name = "RANGE", required = true, value_parser = range)]
    addresses: Vec<IpNet>,
    /// The Secret for cluster.toml, the cluster's key and certificates
    #[arg(long, value_name = "ADDRESS", default_value = "kubernetes://switchback-system/cluster")]
    publish: Address,
    /// The controllerName of the GatewayClasses that it serves
    #[arg(long, value_name = "NAME", default_value = "switchback.dev/gateway")]
    controller: String,
    /// Tables of cluster.toml that no resource has, such as [limits], [access_log] and [admin]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    #[command(flatten)]
    log: Log,
}

impl Gateway {
    pub fn run(self) -> Result<(), Failure> {
        let Gateway { addresses, publish, controller, settings, log } = self;
        log.begin();
        let tables = match settings {
            None => String::new(),
            Some(file) => Document::read(&file)?.text,
        };
        privileges::keep_only(CapabilitySet::empty())?;
        let settings = Settings { controller, addresses, tables };
        settings.check()?;
        Ok(switchback_gateway::run(Options { publish, settings })?)
    }
}

/// A network, or an address.
fn range(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    address
        .or_else(|_| text.parse())
        .map_err(|_| "allowed is such as 203.0.113.0/28 or 203.0.113.7".to_owned())
}
