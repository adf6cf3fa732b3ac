//! Every command in README, CONTRIBUTING and docs works.
//!
//! Each command in a block is one of three kinds. Most are taken from the document by the beginning of their text and run as
//! they stand there, on the machines that the document means, which are hosts of a lab here. Some are run by another test or
//! by CI: a table in `documents/script.rs` says by which. The rest is marked in the document, and `docs/limits.md` lists it. A
//! command that is nothing of this fails the test, and so does an entry here whose command no document has any more.
//!
//! Options and subcommands of all command lines, those in the text too, are checked in `crates/cli/src/tests.rs`, and
//! configurations in `crates/config/tests/examples.rs`.

mod common;
#[path = "documents/script.rs"]
mod script;
#[path = "documents/site.rs"]
mod site;

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::http::Document;
use common::markdown;
use common::steady::Steady;
use common::{Error, PATIENCE, PROGRAM, Result, alone, counter, said_by, status, stop, wait_until};
use script::Script;
use site::{Site, in_place};
use switchback_lab::{Host, Process, Server, ServerOptions};

/// README, from the key to a running cluster, and what other pages do with such a cluster.
fn a_cluster_by_hand(script: &mut Script) -> Result {
    let readme = "README.md";
    let site = Site::new(3)?;
    let switch = site.lab.switch(0);
    // Addresses of nodes count from 20 here, and from 21 there.
    let nodes = [site.lab.node(1), site.lab.node(2)];
    for node in nodes {
        node.nginx(&ServerOptions::default())?;
    }
    let cluster = script.configuration(readme, "[cluster]").to_owned();
    site.write("cluster.toml", &cluster)?;
    site.run(switch, &script.take(readme, "switchback keygen"))?;
    let said = site.run(switch, &script.take(readme, "switchback check"))?;
    assert_eq!(said, "ok: 2 nodes, 1 pool, 1 service, 1 route\n");
    let doctor = script.take(readme, "switchback doctor");
    site.run(switch, &doctor)?;
    let agent = script.take(readme, "switchback node");
    for (node, name) in nodes.iter().zip(["n1", "n2"]) {
        site.run(node, &doctor)?;
        site.start(node, "agent", &agent.replace("--name n1", &format!("--name {name}")))?;
    }
    site.start(switch, "switch", &script.take(readme, "switchback switch"))?;
    let tested = script.take(readme, "switchback test");
    let all_is_well = || Ok(site.run(switch, &tested).unwrap_or_default());
    wait_until("all is well", PATIENCE, all_is_well, |said| said.contains(" 0 failed"))?;
    site.run(site.lab.client(0), &script.take(readme, "curl http://192.0.2.100/"))?;
    let mut answered = (0..2).map(|_| site.get("/node")).collect::<Result<Vec<_>>>()?;
    answered.sort();
    assert_eq!(answered, ["node1", "node2"]);
    let shown = script.take(readme, "switchback status");
    assert!(site.run(switch, &shown)?.contains("shop") && site.run(nodes[0], &shown)?.contains("n1"));
    assert!(site.run(switch, &script.take(readme, "switchback top"))?.contains("n2"));
    for beginning in ["switchback doctor", "switchback test", "switchback status"] {
        site.run(switch, &script.take("docs/troubleshooting.md", beginning))?;
    }
    for rest in ["test --config cluster.toml --wait", "test --config cluster.toml --json", "test", "doctor"] {
        let said = site.run(switch, &script.take("docs/operations.md", &format!("switchback {rest}")))?;
        assert!(said.contains("n1") && said.contains("ok"), "{said}");
    }
    explained(script, &site, &cluster)?;
    a_client_with_the_shim(script, &site, &cluster)?;
    site.lab.down()?;
    Ok(())
}

fn explained(script: &mut Script, site: &Site, cluster: &str) -> Result {
    let page = "docs/operations.md";
    let client = site.lab.client(0);
    // As many packets as a request takes.
    let capture = script.in_text(page, "tcpdump -s 0 -w clients.pcap").replace("tcpdump", "tcpdump -c 4");
    let capture = client.spawn("tcpdump", site.shell(client, &format!("exec {capture}")))?;
    capture.wait_for_log("listening on", PATIENCE)?;
    site.get("/small")?;
    capture.wait_timeout(PATIENCE)?.ok_or("tcpdump goes on")?;
    for (rest, part) in [("http://", "/img/a.png"), ("--method POST", "/cart"), ("--pcap", "/small")] {
        let command = script.take(page, &format!("switchback explain --config cluster.toml {rest}"));
        let said = site.run(client, &command)?;
        assert!(said.contains("shop") && said.contains(part), "{command}\n{said}");
    }
    let said = site.run(client, &script.take(page, "printf 'GET"))?;
    assert!(said.contains("shop"), "{said}");
    let secure = "[[service]]\nname = \"secure\"\nlisten = [\"192.0.2.100:443\"]\n\
        [service.tls]\nserver = \"127.0.0.1:80\"\n\
        [[service.tls.certificate]]\nchain = \"a.pem\"\nkey = \"a.key\"\n\
        [[service.route]]\npool = \"web\"\n";
    site.write("cluster.toml", &format!("{cluster}\n{secure}"))?;
    let said = site.run(client, &script.take(page, "switchback explain --config cluster.toml --alpn"))?;
    assert!(said.contains("ClientHello: www.example.com") && said.contains("the connection stays"), "{said}");
    site.write("cluster.toml", cluster)?;
    Ok(())
}

fn a_client_with_the_shim(script: &mut Script, site: &Site, cluster: &str) -> Result {
    let page = "docs/client.md";
    let client = site.lab.client(0);
    for address in ["198.51.100.7/24", "2001:db8:1::7/64"] {
        client.run(["ip", "addr", "add", address, "dev", "eth0"])?.success()?;
    }
    site.write("cluster.toml", &format!("{cluster}\n{}", script.configuration(page, "[[client]]")))?;
    for host in [site.lab.node(1), site.lab.node(2), site.lab.switch(0)] {
        host.run(["ip", "route", "add", "198.51.100.0/24", "dev", "eth0"])?.success()?;
        site.run(host, script.in_text(page, "switchback reload"))?;
    }
    site.run(site.lab.switch(0), &script.take(page, "switchback keygen"))?;
    site.write("client.toml", script.configuration(page, "services"))?;
    let shim = site.start(client, "shim", &script.take(page, "switchback client"))?;
    site.run(
        client,
        "curl -sS --fail --max-time 5 --interface 198.51.100.7 --output /dev/null http://192.0.2.100/1m",
    )?;
    site.run(client, &script.take(page, "switchback status"))?;
    assert!(counter(&status(client)?, "direct")? > 0, "nothing went directly");
    stop(&shim)
}

/// A node whose units can be restarted.
struct Node<'a> {
    name: &'static str,
    host: &'a Host,
    server: Server,
    agent: Process,
}

impl<'a> Node<'a> {
    fn start(site: &Site, name: &'static str, host: &'a Host) -> Result<Node<'a>> {
        let agent = Node::agent(site, name, host)?;
        Ok(Node { name, host, server: host.nginx(&ServerOptions::default())?, agent })
    }

    fn agent(site: &Site, name: &str, host: &Host) -> Result<Process> {
        let command = format!("switchback node --config cluster.toml --name {name} --interface eth0");
        site.start(host, "agent", &command)
    }

    fn restart(&mut self, site: &Site, unit: &str) -> Result {
        match unit {
            "nginx" => {
                self.server.stop()?;
                self.server = self.host.nginx(&ServerOptions::default())?;
            }
            "switchback-node" => {
                stop(&self.agent)?;
                self.agent = Node::agent(site, self.name, self.host)?;
            }
            unit => return Err(format!("no such unit: {unit}").into()),
        }
        Ok(())
    }
}

/// What `ssh` writes its words to, and where it finds why they have not been followed.
const REQUEST: &str = "ssh-request";
const REFUSED: &str = "ssh-refused";

/// Stands for the machines that `ssh` reaches, until it is over. How many units it has restarted.
fn remote(site: &Site, nodes: &mut [Node<'_>], over: &AtomicBool) -> Result<usize> {
    let request = site.directory.join(REQUEST);
    let mut restarted = 0;
    while !over.load(Ordering::Relaxed) {
        let Ok(text) = fs::read_to_string(&request) else {
            // There is no event for a file that appears.
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let followed = match &words[..] {
            [name, "systemctl", "restart", units @ ..] => {
                restarted += units.len();
                let node = nodes.iter_mut().find(|node| node.name == *name).ok_or("no such host");
                let restart =
                    |node: &mut Node<'_>| units.iter().try_for_each(|unit| node.restart(site, unit));
                node.map_err(Error::from).and_then(restart)
            }
            _ => Err("this is not about units".into()),
        };
        if let Err(error) = followed {
            site.write(REFUSED, &format!("ssh {text}: {error}"))?;
        }
        fs::remove_file(&request)?;
    }
    Ok(restarted)
}

/// Three nodes that are drained and restarted while clients ask.
fn a_cluster_in_service(script: &mut Script) -> Result {
    let page = "docs/operations.md";
    let site = Site::new(3)?;
    let (switch, log) = (site.lab.switch(0), site.directory.join("access.log"));
    let names = ["web1", "web2", "web3"];
    let list = site.lab.nodes().zip(names);
    let list =
        list.map(|(node, name)| format!("[[node]]\nname = \"{name}\"\naddress = \"{}\"\n", node.ipv4()));
    site.write(
        "cluster.toml",
        &format!(
            "[cluster]\nkey_file = \"cluster.key\"\n[access_log]\npath = {log:?}\n{}\
             [[pool]]\nname = \"web\"\nnodes = {names:?}\npolicy = \"round-robin\"\n\
             [[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:80\"]\n[[service.route]]\npool = \"web\"\n",
            list.collect::<String>()
        ),
    )?;
    site.run(switch, "switchback keygen cluster.key")?;
    let nodes = names.iter().zip(site.lab.nodes()).map(|(name, host)| Node::start(&site, name, host));
    let mut nodes = nodes.collect::<Result<Vec<_>>>()?;
    site.start(switch, "switch", "switchback switch --config cluster.toml --interface eth0")?;
    site.stub(
        "ssh",
        &format!(
            "echo \"$@\" > new && mv new {REQUEST}\nwhile [ -e {REQUEST} ]; do sleep 0.01; done\n\
             if [ -e {REFUSED} ]; then cat {REFUSED} >&2; exit 1; fi"
        ),
    )?;

    let undrain = script.in_text(page, "switchback undrain").to_owned();
    let [drain, agent] =
        ["switchback drain web1", "switchback drain web1 &&"].map(|text| script.take(page, text));
    let servers = script.take(page, "for node");
    let load = Steady { clients: 20, pause: Duration::from_millis(20), close: false };
    let (body, vip) = (Document::of(&site.lab, "/small")?, SocketAddr::from(([192, 0, 2, 100], 80)));
    let over = AtomicBool::new(false);
    let (restarted, worked) = thread::scope(|scope| {
        let remote = scope.spawn(|| remote(&site, &mut nodes, &over));
        let worked = load.run_beside(site.lab.client(0), vip, (body.path, &body.body), || {
            let said = [&drain, &undrain, &servers, &agent].map(|text| site.run(switch, text));
            said.into_iter().collect::<Result<Vec<_>>>()
        });
        over.store(true, Ordering::Relaxed);
        (remote.join().expect("it does not panic"), worked)
    });
    let (said, served) = worked?;
    assert_eq!(said.concat().matches(": free after ").count(), 1 + 3 + 1, "{said:?}");
    assert_eq!(restarted?, 3 + 2, "units");
    served.assert_all_answered();
    assert_eq!(served.closed_idle, 0, "idle connections were closed");

    let shown = site.run(switch, &script.take(page, "switchback top"))?;
    assert!(names.iter().all(|name| shown.contains(name)), "{shown}");
    site.run(switch, &script.take(page, "mv"))?;
    site.run(switch, &script.take(page, "kill -USR1"))?;
    wait_until("a new log", PATIENCE, || Ok(log.exists()), |exists| *exists)?;
    site.get("/small?again")?;
    let text = || Ok(fs::read_to_string(&log)?);
    wait_until("a line in it", PATIENCE, text, |text| text.contains("\"/small?again\""))?;
    assert!(fs::read_to_string(log.with_extension("log.1"))?.lines().count() >= served.requests);
    site.lab.down()?;
    Ok(())
}

/// A lab that stays, until this is dropped.
struct Persistent(String);

impl Drop for Persistent {
    fn drop(&mut self) {
        // It is gone already if all went well.
        let _ = switchback_lab::down(Some(&self.0));
    }
}

/// A lab that a command has made on the machine itself, with its daemons.
struct ByHand {
    tools: Site,
    lab: Persistent,
    /// With their outputs, which stay open.
    daemons: Vec<(Child, Lines<BufReader<ChildStdout>>)>,
}

impl ByHand {
    /// Runs `switchback lab up`, and starts the daemons as it says.
    fn up(text: &str) -> Result<ByHand> {
        let tools = Site::new(0)?;
        let mut shell = Command::new("sh");
        in_place(shell.args(["-c", text]), &tools.path, &tools.directory);
        let said = said_by(&mut shell)?;
        let id = said.strip_prefix("lab ").and_then(|rest| rest.split(',').next()).ok_or("no id")?;
        let mut by_hand = ByHand { tools, lab: Persistent(id.to_owned()), daemons: Vec::new() };
        for line in said.lines().map(str::trim).filter(|line| line.starts_with("switchback lab exec")) {
            // One that hangs is ended.
            let mut daemon = by_hand.shell(&format!("exec timeout 60 {line} 2>&1"));
            let mut daemon = daemon.stdout(Stdio::piped()).spawn()?;
            let mut output = BufReader::new(daemon.stdout.take().expect("it is a pipe")).lines();
            let ready = output.find(|line| line.as_ref().is_ok_and(|line| line.contains("ready")));
            assert!(ready.is_some(), "{line} does not become ready");
            by_hand.daemons.push((daemon, output));
        }
        Ok(by_hand)
    }

    fn shell(&self, text: &str) -> Command {
        let mut command = Command::new("sh");
        // There may be other labs on this machine.
        command.args(["-c", &text.replace("lab exec ", &format!("lab exec --lab {} ", self.lab.0))]);
        in_place(&mut command, &self.tools.path, &self.tools.directory);
        command
    }

    fn run(&self, text: &str) -> Result<String> {
        said_by(&mut self.shell(text))
    }

    /// Runs `switchback lab down`.
    fn down(mut self, text: &str) -> Result {
        let id = &self.lab.0;
        assert_eq!(self.run(&format!("{text} {id}"))?, format!("lab {id} is gone\n"));
        self.daemons.iter_mut().try_for_each(|(daemon, _)| daemon.wait().map(drop))?;
        self.tools.lab.down()?;
        Ok(())
    }
}

/// The lab of CONTRIBUTING.
fn a_lab_by_hand(script: &mut Script) -> Result {
    let page = "CONTRIBUTING.md";
    let lab = ByHand::up(&script.take(page, "switchback lab up"))?;
    assert_eq!(lab.daemons.len(), 3);
    lab.run(&script.take(page, "switchback lab exec switch0  "))?;
    // tcpdump takes HELLO and SYNC for another protocol, because of their port; they are two in a second.
    let capture = script.take(page, "switchback lab exec node0 tcpdump").replace("tcpdump", "tcpdump -c 5");
    let mut capture =
        lab.shell(&format!("exec {capture}")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut notes = BufReader::new(capture.stderr.take().expect("it is a pipe")).lines();
    let listens = notes.any(|line| line.is_ok_and(|line| line.contains("listening on")));
    assert!(listens, "tcpdump does not begin");
    lab.run(&script.take(page, "switchback lab exec client0 curl"))?;
    let captured = capture.wait_with_output()?;
    assert!(String::from_utf8_lossy(&captured.stdout).contains("Geneve"), "{captured:?}");
    assert!(lab.run(&script.take(page, "switchback lab exec switch0 switchback status"))?.contains("node1"));
    lab.down(&script.take(page, "switchback lab down"))
}

/// Three switches behind a router.
fn several_switches(script: &mut Script) -> Result {
    let page = "docs/scale-out.md";
    let lab = ByHand::up(&script.take(page, "switchback lab up"))?;
    assert_eq!(lab.daemons.len(), 3 + 3);
    let routes = script.take(page, "switchback lab exec router ip route");
    let hops = |routes: &String| routes.matches("nexthop via 192.0.2.1").count();
    wait_until("the routes", PATIENCE, || lab.run(&routes), |routes| hops(routes) == 3)?;
    assert_eq!(lab.run(&script.take(page, "switchback lab exec switch0 switchback ready"))?, "ready\n");
    lab.run(&script.take(page, "switchback lab exec client0 curl"))?;
    lab.down(&script.take(page, "switchback lab down"))
}

/// `make demo` without the building, and with less of a load.
fn the_demonstration(script: &mut Script) -> Result {
    let makefile = fs::read_to_string(markdown::repository().join("Makefile"))?;
    assert_eq!(script.take("README.md", "make demo"), "make demo");
    assert!(makefile.contains("\ndemo: deps-demo root\n") && makefile.contains("$(QUICK) -- lab demo\n"));
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "demo", "--load", "1"]);
    assert!(said_by(&mut command)?.contains("1 MiB"));
    Ok(())
}

#[test]
fn every_command_works_or_says_why_nobody_tries() -> Result {
    let _alone = alone();
    let mut script = Script::read()?;
    script.not_run()?;
    script.run_elsewhere()?;
    a_cluster_by_hand(&mut script)?;
    a_cluster_in_service(&mut script)?;
    a_lab_by_hand(&mut script)?;
    several_switches(&mut script)?;
    the_demonstration(&mut script)?;
    let left: Vec<String> =
        script.steps.iter().map(|step| format!("{}: {}", step.place, step.text)).collect();
    assert!(left.is_empty(), "nothing runs these commands:\n{}", left.join("\n"));
    Ok(())
}
