//! The package's systemd units, as far as they can be tried without systemd: their command lines, with the capabilities
//! that they leave to root, and what systemd is told.

mod common;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::http::{Documents, fetch, get};
use common::{
    Cluster, PATIENCE, PROGRAM, Plan, Result, TLS_NAME, markdown, status, stop, text, traces, wait_until,
};
use serde_json::Value;
use switchback_lab::{Host, Process, Signal};

/// Where the package has the program.
const PACKAGED_PROGRAM: &str = "/usr/bin/switchback";

/// `switchback-<role>.service`.
struct Unit {
    role: &'static str,
    /// With what all units have.
    lines: Vec<String>,
}

impl Unit {
    fn read(role: &'static str) -> Result<Unit> {
        let directory = markdown::repository().join("packaging/systemd");
        let own = fs::read_to_string(directory.join(format!("switchback-{role}.service")))?;
        let common = fs::read_to_string(directory.join("switchback-.service.d/10-common.conf"))?;
        let lines = own.lines().chain(common.lines()).map(str::to_owned).collect();
        Ok(Unit { role, lines })
    }

    /// The words of the one line with this key.
    fn words(&self, key: &str) -> Vec<&str> {
        let mut values = self.lines.iter().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let value = values.next().unwrap_or_else(|| panic!("the unit {} has no {key}", self.role));
        assert_eq!(values.next(), None, "the unit {} has another {key}", self.role);
        value.split(' ').collect()
    }

    fn capabilities(&self) -> Vec<&str> {
        self.words("CapabilityBoundingSet")
    }

    /// The command of this key as systemd would run it with these capabilities, but with the program of this build,
    /// the files in `directory` and, for the variable, `options`.
    fn command(&self, key: &str, capabilities: &[&str], directory: &Path, options: &[&str]) -> Command {
        let names = capabilities.iter().map(|name| name.trim_start_matches("CAP_").to_lowercase());
        let set = names.fold("-all".to_owned(), |set, name| format!("{set},+{name}"));
        let mut command = Command::new("setpriv");
        command.arg(format!("--bounding-set={set}")).args(["--inh-caps=-all", "--no-new-privs"]);
        for word in self.words(key) {
            if word == PACKAGED_PROGRAM {
                command.arg(PROGRAM);
            } else if word.starts_with('$') {
                assert_eq!(word, format!("${}_OPTIONS", self.role.to_uppercase()));
                let file = if self.role == "client" { "client.toml" } else { "cluster.toml" };
                command.arg("--config").arg(directory.join(file)).args(options);
            } else {
                command.arg(word);
            }
        }
        command
    }

    fn start(&self, host: &Host, directory: &Path, options: &[&str]) -> Result<Process> {
        assert_eq!(self.words("Type"), ["notify"]);
        let path = host.directory().join("notify");
        let manager = UnixDatagram::bind(&path)?;
        manager.set_read_timeout(Some(PATIENCE))?;
        let mut command = self.command("ExecStart", &self.capabilities(), directory, options);
        command.env("NOTIFY_SOCKET", &path);
        let process = host.spawn(self.role, command)?;
        let mut told = [0; 64];
        let len = manager.recv(&mut told).map_err(|error| format!("{error}: {}", process.log()))?;
        assert_eq!(&told[..len], b"READY=1\n");
        assert!(process.log().contains("ready"), "systemd is told too early");
        fs::remove_file(path)?;
        Ok(process)
    }

    /// `systemctl reload`, which shows what the command says.
    fn reload(&self, host: &Host) -> Result<String> {
        let command = self.command("ExecReload", &self.capabilities(), Path::new(""), &[]);
        let words = [command.get_program()].into_iter().chain(command.get_args());
        Ok(host.run(words)?.success()?)
    }
}

fn directory(cluster: &Cluster) -> PathBuf {
    cluster.config.parent().expect("the file is in a directory").to_owned()
}

const SWITCH_OPTIONS: &[&str] = &["--interface", "eth0"];

fn node_options(host: &Host) -> [&str; 4] {
    ["--name", host.name(), "--interface", "eth0"]
}

/// Both daemons of a cluster, with all that needs a right.
#[test]
fn switch_and_nodes_do_all_their_work() -> Result {
    let log = std::env::temp_dir().join(format!("switchback-units-{}.log", std::process::id()));
    let access_log = Some(format!("path = \"{}\"", log.display()));
    let tls = Some(String::new());
    let cluster = Cluster::prepare(Plan { access_log, admin: true, tls, ..Plan::default() })?;
    let (node_unit, switch_unit) = (Unit::read("node")?, Unit::read("switch")?);
    let directory = directory(&cluster);
    let start = || -> Result<(Vec<Process>, Process)> {
        let nodes = cluster.lab.nodes().map(|host| node_unit.start(host, &directory, &node_options(host)));
        let nodes = nodes.collect::<Result<_>>()?;
        Ok((nodes, switch_unit.start(cluster.lab.switch(0), &directory, SWITCH_OPTIONS)?))
    };
    let (nodes, switch) = start()?;
    let documents = Documents::of(&cluster.lab)?;
    get(cluster.client(), &cluster.url4("/1m"), &documents.large)?;
    get(cluster.client(), &cluster.url6("/img/small"), &documents.img_small)?;

    let authority = cluster.lab.directory().join("shop.pem");
    let resolve = format!("{TLS_NAME}:443:{}", cluster.lab.vip4());
    let (cacert, url) = (text(&authority), format!("https://{TLS_NAME}/small"));
    let options = ["--cacert", cacert, "--resolve", &resolve];
    fetch(cluster.client(), &[(url, documents.small.clone())], &options, PATIENCE)?;

    let old = fs::read_to_string(&cluster.config)?;
    fs::write(&cluster.config, old.replacen("listen = [", "listen = [\"192.0.2.101:80\", ", 1))?;
    for host in cluster.lab.nodes() {
        assert!(node_unit.reload(host)?.contains("shop"));
    }
    assert!(switch_unit.reload(cluster.lab.switch(0))?.contains("shop"));
    get(cluster.client(), "http://192.0.2.101/small", &documents.small)?;

    // A file that is moved away is opened again.
    let written = |lines: usize| {
        let read = || Ok(fs::read_to_string(&log).unwrap_or_default().lines().count());
        wait_until("lines of the access log", PATIENCE, read, |count| *count == lines)
    };
    written(4)?;
    fs::remove_file(&log)?;
    switch.signal(Signal::SIGUSR1)?;
    wait_until("a new access log", PATIENCE, || Ok(log.exists()), |exists| *exists)?;

    for process in nodes.iter().chain([&switch]) {
        process.kill()?;
    }
    let (nodes, switch) = start()?;
    get(cluster.client(), &cluster.url4("/small"), &documents.small)?;
    let ready = ["curl", "-s", "--fail", "http://127.0.0.1:9180/readyz"];
    let asked = || Ok(cluster.lab.switch(0).run(ready)?.status.success());
    wait_until("the switch says that it is ready", PATIENCE, asked, |ready| *ready)?;
    written(1)?;
    fs::remove_file(&log)?;
    stop(&switch)?;
    nodes.iter().try_for_each(stop)?;
    cluster.down()
}

#[test]
fn a_machine_that_is_both_does_too() -> Result {
    let cluster = Cluster::prepare(Plan::default())?;
    let host = cluster.lab.node(0);
    host.set_xdp_port(true)?;
    let config = fs::read_to_string(&cluster.config)? + "\n[[switch]]\nname = \"node0\"\n";
    fs::write(&cluster.config, config)?;
    let process = Unit::read("run")?.start(host, &directory(&cluster), &["--name", host.name()])?;
    for role in ["switch", "node"] {
        assert!(process.log().contains(&format!("{role} ")), "{}", process.log());
    }
    let documents = Documents::of(&cluster.lab)?;
    get(cluster.client(), &cluster.url4("/small"), &documents.small)?;
    stop(&process)?;
    cluster.down()
}

#[test]
fn a_client_does_too() -> Result {
    let clients = vec!["192.0.2.0/24"];
    let mut cluster = Cluster::start_with(Plan { clients, ..Plan::default() })?;
    let (host, directory) = (cluster.client(), cluster.client().directory());
    write_client_files(&cluster)?;
    let unit = Unit::read("client")?;
    let process = unit.start(host, &directory, SWITCH_OPTIONS)?;
    let documents = Documents::of(&cluster.lab)?;
    get(host, &cluster.url4("/1m"), &documents.large)?;
    let introduced = |status: &Value| status["nodes"][0]["introductions"].as_u64();
    wait_until("an introduction", PATIENCE, || status(host), |status| introduced(status) > Some(0))?;
    unit.reload(host)?;
    stop(&process)?;
    let left = traces::of(host)?;
    assert!(left.is_empty(), "{left:?}");
    cluster.stop_all()?;
    cluster.down()
}

/// `client.toml` and the key of the lab's client, in its own directory.
fn write_client_files(cluster: &Cluster) -> Result {
    let host = cluster.client();
    let key = host.directory().join("client.key");
    let address = host.ipv4().to_string();
    let make = ["keygen", "--client", &address, "--config", text(&cluster.config), text(&key)];
    cluster.run(host, &make)?.success()?;
    let config = format!("key_file = \"client.key\"\nservices = [\"{}:80\"]\n", cluster.lab.vip4());
    Ok(fs::write(host.directory().join("client.toml"), config)?)
}

/// Without one of them it ends at once, says which and what for, and leaves the machine as it was.
#[test]
fn no_capability_can_be_spared() -> Result {
    let cluster = Cluster::prepare(Plan { tls: Some(String::new()), ..Plan::default() })?;
    write_client_files(&cluster)?;
    let (switch, node, client) = (cluster.lab.switch(0), cluster.lab.node(0), cluster.client());
    let roles: [(_, &Host, PathBuf, &[&str]); 3] = [
        ("switch", switch, directory(&cluster), SWITCH_OPTIONS),
        ("node", node, directory(&cluster), &node_options(node)),
        ("client", client, client.directory(), SWITCH_OPTIONS),
    ];
    for (role, host, directory, options) in roles {
        let unit = Unit::read(role)?;
        for missing in unit.capabilities() {
            let left: Vec<&str> = unit.capabilities().into_iter().filter(|name| *name != missing).collect();
            let process = host.spawn("refused", unit.command("ExecStart", &left, &directory, options))?;
            let ended = process.wait_timeout(PATIENCE)?.ok_or("it goes on")?;
            let log = process.log();
            assert_eq!(ended.code(), Some(2), "{role} without {missing}: {log}");
            assert!(log.contains(&format!("the capability {missing} is missing, needed to ")), "{log}");
            assert!(log.contains("CapabilityBoundingSet="), "{log}");
            let left = traces::of(host)?;
            assert!(left.is_empty(), "{role} without {missing} leaves {left:?}");
        }
    }
    cluster.down()
}
