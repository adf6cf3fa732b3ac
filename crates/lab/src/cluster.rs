//! Writes a `cluster.toml` that fits a lab.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::error::{Doing, Result};
use crate::lab::Lab;

const HTTP_PORT: u16 = 80;
const KEY_BYTES: usize = 32;
const KEY_FILE: &str = "cluster.key";
const CONFIG_FILE: &str = "cluster.toml";

/// The contents of a lab's `cluster.toml`. All nodes of the lab are in it; the default is one pool, `web`, of
/// all nodes, and one service on port 80 of both VIPs.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The pools; the first is that of the last route, which takes every request.
    pub pools: Vec<Pool>,
    /// Routes before that last one.
    pub routes: Vec<Route>,
    /// Port of the service on both VIPs.
    pub port: u16,
    /// Additional lines of TOML, appended at the end.
    pub extra: String,
}

/// A pool of nodes.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Indices of its nodes; empty for all nodes of the lab.
    pub nodes: Vec<usize>,
    /// Name of its policy, such as `round-robin`.
    pub policy: String,
    /// Additional lines of TOML, in the pool's table.
    pub extra: String,
}

/// A route: requests that go to a pool.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// Condition on the host, if any.
    pub host: Option<String>,
    /// Condition on the path prefix, if any.
    pub path: Option<String>,
    /// Name of the pool.
    pub pool: String,
    /// Additional lines of TOML, in the route's table.
    pub extra: String,
}

impl Cluster {
    /// One pool of all nodes with this policy.
    pub fn with_policy(policy: &str) -> Cluster {
        let pool = Pool { name: "web".to_owned(), policy: policy.to_owned(), ..Pool::default() };
        Cluster { pools: vec![pool], routes: Vec::new(), port: HTTP_PORT, extra: String::new() }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Cluster::with_policy("accept-queue")
    }
}

impl Lab {
    /// Writes `cluster.toml` and a new cluster key beside it into the lab's directory; returns the path of
    /// `cluster.toml`.
    pub fn write_config(&self, cluster: &Cluster) -> Result<PathBuf> {
        self.write_config_text(&self.config_text(cluster))
    }

    /// Writes this text as `cluster.toml`, and a key beside it if absent. Replaces `{key_file}`, `{vip4}`, `{vip6}`,
    /// `{nodes}` (a `[[node]]` table for each node), `{node_names}` (`"node0", "node1"`) and `{switches}` (a `[[switch]]`
    /// table for each switch).
    pub fn write_config_text(&self, text: &str) -> Result<PathBuf> {
        let nodes = self
            .nodes()
            .map(|node| format!("[[node]]\nname = \"{}\"\naddress = \"{}\"\n", node.name(), node.ipv4()));
        let switches = self.switches().map(|switch| format!("[[switch]]\nname = \"{}\"\n", switch.name()));
        let names: Vec<String> = self.nodes().map(|node| format!("\"{}\"", node.name())).collect();
        let text = text
            .replace("{key_file}", KEY_FILE)
            .replace("{vip4}", &self.vip4().to_string())
            .replace("{vip6}", &self.vip6().to_string())
            .replace("{nodes}", &nodes.collect::<Vec<_>>().join("\n"))
            .replace("{node_names}", &names.join(", "))
            .replace("{switches}", &switches.collect::<Vec<_>>().join("\n"));
        self.write_key()?;
        let path = self.directory().join(CONFIG_FILE);
        fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    fn write_key(&self) -> Result<()> {
        let path = self.directory().join(KEY_FILE);
        let mut key = [0; KEY_BYTES];
        let mut random = File::open("/dev/urandom").doing(|| "open /dev/urandom".to_owned())?;
        random.read_exact(&mut key).doing(|| "read /dev/urandom".to_owned())?;
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        match File::options().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            opened => {
                opened.and_then(|mut file| io::Write::write_all(&mut file, format!("{digits}\n").as_bytes()))
            }
        }
        .doing(|| format!("write {}", path.display()))
    }

    fn config_text(&self, cluster: &Cluster) -> String {
        let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n{nodes}\n".to_owned();
        let mut add = |part: String| text.write_str(&part).expect("writing to a string does not fail");
        for Pool { name, nodes, policy, extra } in &cluster.pools {
            let names: Vec<String> =
                nodes.iter().map(|&index| format!("\"{}\"", self.node(index).name())).collect();
            let names = if names.is_empty() { "{node_names}".to_owned() } else { names.join(", ") };
            add(format!("[[pool]]\nname = \"{name}\"\nnodes = [{names}]\npolicy = \"{policy}\"\n{extra}\n"));
        }
        let port = cluster.port;
        add(format!(
            "[[service]]\nname = \"service\"\nlisten = [\"{{vip4}}:{port}\", \"[{{vip6}}]:{port}\"]\n\n"
        ));
        for Route { host, path, pool, extra } in &cluster.routes {
            let key = |key: &str, value: &Option<String>| {
                value.as_ref().map(|value| format!("{key} = \"{value}\"\n")).unwrap_or_default()
            };
            let (host, path) = (key("host", host), key("path", path));
            add(format!("[[service.route]]\n{host}{path}pool = \"{pool}\"\n{extra}\n"));
        }
        if let Some(pool) = cluster.pools.first() {
            add(format!("[[service.route]]\npool = \"{}\"\n", pool.name));
        }
        add(cluster.extra.clone());
        text
    }
}
