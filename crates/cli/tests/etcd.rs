//! The configuration in etcd: daemons follow it, refuse what does not hold, and live without it.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::http::answering;
use common::packets::{Random, seed};
use common::steady::beside;
use common::{Cluster, PATIENCE, PROGRAM, Plan, Result, load, nft, text, wait_until};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use switchback_etcd::{Address, Record, Store};
use switchback_lab::{Host, Lab, Output, Process, ServerKind};

/// Machines whose daemons follow the configuration.
const DAEMONS: usize = 4;

/// An etcd cluster: its members run on all of the lab's clients but the first.
struct Etcd {
    members: Vec<Option<Process>>,
}

impl Etcd {
    fn start(lab: &Lab) -> Result<Etcd> {
        let members = members(lab).map(|host| Ok(Some(start_member(lab, host)?))).collect::<Result<_>>()?;
        let health = || Ok(etcdctl(lab, &["endpoint", "health"])?.success().is_ok());
        wait_until("etcd", PATIENCE, health, |healthy| *healthy)?;
        Ok(Etcd { members })
    }

    fn kill(&mut self, member: usize) -> Result {
        self.members[member].take().expect("the member runs").kill()?;
        Ok(())
    }

    fn restart(&mut self, lab: &Lab, member: usize) -> Result {
        let host = members(lab).nth(member).expect("a host of etcd");
        self.members[member] = Some(start_member(lab, host)?);
        Ok(())
    }

    fn end(self) -> Result {
        self.members.into_iter().flatten().try_for_each(|member| member.kill().map(drop))?;
        Ok(())
    }
}

fn members(lab: &Lab) -> impl Iterator<Item = &Host> {
    lab.clients().skip(1)
}

fn start_member(lab: &Lab, host: &Host) -> Result<Process> {
    let peer = |host: &Host| format!("{}=http://{}:2380", host.name(), host.ipv4());
    let all = members(lab).map(peer).collect::<Vec<_>>().join(",");
    let [clients, peers] = [2379, 2380].map(|port| format!("http://{}:{port}", host.ipv4()));
    let mut etcd = Command::new("etcd");
    etcd.args(["--name", host.name(), "--initial-cluster", &all, "--logger", "zap"]);
    etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    etcd.arg("--data-dir").arg(host.directory().join("etcd"));
    Ok(host.spawn("etcd", etcd)?)
}

fn endpoints(lab: &Lab) -> String {
    members(lab).map(|host| format!("{}:2379", host.ipv4())).collect::<Vec<_>>().join(",")
}

fn etcdctl(lab: &Lab, arguments: &[&str]) -> Result<Output> {
    let endpoints = endpoints(lab);
    let words = ["env", "ETCDCTL_API=3", "etcdctl", "--endpoints", &endpoints];
    Ok(lab.client(0).run(words.iter().chain(arguments))?)
}

/// Where the configuration is, with the lab's directory for relative paths.
fn address(lab: &Lab) -> String {
    format!("etcd://{}/switchback?directory={}", endpoints(lab), text(lab.directory()))
}

/// Three machines, of which the first two are nodes of one pool, and etcd, in which nothing is yet.
fn prepare(etcd_members: usize) -> Result<(Cluster, Plan, Etcd)> {
    let plan = Plan {
        servers: vec![ServerKind::Nginx; DAEMONS - 1],
        pools: vec![("web", vec![0, 1]), ("img", vec![2])],
        clients_len: 1 + etcd_members,
        ..Plan::default()
    };
    let mut cluster = Cluster::prepare(plan.clone())?;
    let etcd = Etcd::start(&cluster.lab)?;
    cluster.config = address(&cluster.lab).into();
    Ok((cluster, plan, etcd))
}

/// These machines, whose daemons follow three members.
fn start_with_three() -> Result<(Cluster, Plan, Etcd)> {
    let (mut cluster, plan, etcd) = prepare(3)?;
    apply(&cluster, &plan)?;
    cluster.start_daemons()?;
    Ok((cluster, plan, etcd))
}

/// The plan with other nodes in the pool `web`.
fn with_web(plan: &Plan, web: Vec<usize>) -> Plan {
    Plan { pools: vec![("web", web), ("img", vec![2])], ..plan.clone() }
}

/// `switchback apply`, `history` or `rollback`.
fn command(cluster: &Cluster, arguments: &[&str]) -> Result<Output> {
    cluster.run(cluster.lab.client(0), &[arguments, &["--etcd", &address(&cluster.lab)]].concat())
}

/// Writes the configuration to a file and that to etcd; returns what is said.
fn apply(cluster: &Cluster, plan: &Plan) -> Result<String> {
    let file = cluster.lab.write_config_text(&plan.config(&cluster.lab))?;
    Ok(command(cluster, &["apply", text(&file)])?.success()?)
}

/// All daemons.
fn daemons(cluster: &Cluster) -> Vec<&Process> {
    let agents = (0..DAEMONS - 1).map(|node| cluster.agent(node));
    agents.chain([cluster.switch()]).collect()
}

fn wait_for_all(cluster: &Cluster, expected: &str) -> Result {
    daemons(cluster).into_iter().try_for_each(|daemon| daemon.wait_for_log(expected, PATIENCE).map(drop))?;
    Ok(())
}

#[test]
fn changes_are_followed_and_broken_documents_refused() -> Result {
    let (mut cluster, plan, etcd) = prepare(1)?;
    let failed = cluster.spawn_switch()?;
    let status = failed.wait_timeout(PATIENCE)?.ok_or("a switch starts without a configuration")?;
    let log = failed.log();
    assert!(
        status.code() == Some(2) && log.contains("etcd has no /switchback/cluster.toml"),
        "{status} {log}"
    );

    let said = apply(&cluster, &plan)?;
    assert!(said.starts_with("version 1 is written: 3 nodes, 2 pools"), "{said}");
    assert_eq!(apply(&cluster, &plan)?, "version 1 has this text already\n");
    cluster.start_daemons()?;
    assert_eq!(answering(&cluster)?, ["node0", "node1"]);
    assert_eq!(cluster.switch_status()?["config_version"], 1);

    let file = cluster
        .lab
        .write_config_text(&plan.config(&cluster.lab).replace("pool = \"img\"", "pool = \"web\""))?;
    let warned = command(&cluster, &["apply", "--dry-run", text(&file)])?.stderr;
    assert!(warned.contains("warning: pool \"img\" is in no route"), "{warned}");
    let more = with_web(&plan, vec![0, 1, 2]);
    let file = cluster.lab.write_config_text(&more.config(&cluster.lab))?;
    let said = command(&cluster, &["apply", "--dry-run", text(&file)])?.success()?;
    let change = "pool web: nodes node0, node1 -> node0, node1, node2\n";
    assert_eq!(said, format!("{change}nothing is written\n"));
    let said = command(&cluster, &["apply", "--message", "a third node", text(&file)])?.success()?;
    assert!(said.starts_with(&format!("{change}version 2 is written")), "{said}");
    wait_for_all(&cluster, "reloaded version 2: pool web: nodes")?;
    assert_eq!(answering(&cluster)?, ["node0", "node1", "node2"]);

    // Refused where it is written, and by whoever gets it all the same.
    let broken = more.config(&cluster.lab).replace("round-robin", "round-robins");
    let file = cluster.lab.write_config_text(&broken)?;
    let refused = command(&cluster, &["apply", text(&file)])?;
    assert_eq!(refused.status.code(), Some(1));
    let line = broken.lines().position(|line| line.contains("round-robins")).ok_or("no line")? + 1;
    assert!(
        refused.stderr.contains(&format!("cluster.toml:{line}:10: unknown policy")),
        "{}",
        refused.stderr
    );
    let written = fs::read_to_string(&file)?;
    etcdctl(&cluster.lab, &["put", "/switchback/cluster.toml", &written])?.success()?;
    let place = format!("etcd:/switchback/cluster.toml@3:{line}:10: unknown policy");
    wait_for_all(&cluster, &format!("reload refused, the old configuration goes on: {place}"))?;
    assert_eq!(answering(&cluster)?, ["node0", "node1", "node2"]);
    assert_eq!(cluster.switch_status()?["config_version"], 2);
    assert_eq!(cluster.node_status(0)?["config_version"], 2);

    // A daemon that starts now has only its own copy of what was good.
    cluster.stop_switch()?;
    cluster.start_switch()?;
    let log = cluster.switch().log();
    let started = "the start is with the last good configuration, etcd:/switchback/cluster.toml@2: ";
    assert!(log.contains(&format!("{started}{place}")), "{log}");

    let history = command(&cluster, &["history"])?.success()?;
    let lines: Vec<&str> = history.lines().collect();
    assert_eq!(lines[0], "3  written without switchback apply");
    assert!(lines[1].starts_with("2  20") && lines[1].ends_with("  a third node"), "{history}");
    assert!(lines[2].starts_with("1  20") && lines.len() == 3, "{history}");
    let first = command(&cluster, &["history", "1"])?.success()?;
    let said = command(&cluster, &["rollback", "1"])?.success()?;
    assert!(said.starts_with("the document in etcd is invalid:\netcd:/switchback/cluster.toml@3:"), "{said}");
    assert!(said.contains("version 4 is written"), "{said}");
    wait_for_all(&cluster, "reloaded version 4: pool web: nodes node0, node1, node2 -> node0, node1")?;
    assert_eq!(command(&cluster, &["history", "4"])?.success()?, first);
    let unknown = command(&cluster, &["rollback", "3"])?;
    assert!(unknown.stderr.contains("no record of version 3, it has 1 to 4"), "{}", unknown.stderr);

    // A document that is deleted is missed, and changes nothing.
    etcdctl(&cluster.lab, &["del", "/switchback/cluster.toml"])?.success()?;
    wait_for_all(&cluster, "reload refused, the old configuration goes on: cannot read etcd://")?;
    assert_eq!(answering(&cluster)?, ["node0", "node1"]);
    let said = apply(&cluster, &more)?;
    assert!(said.starts_with("version 1 is written"), "{said}");
    wait_for_all(&cluster, "reloaded version 1: pool web: nodes node0, node1 -> node0, node1, node2")?;
    assert_eq!(command(&cluster, &["history"])?.success()?.lines().count(), 1);
    etcd.end()?;
    cluster.down()
}

/// A pool without nodes gets some, which leave in order or die; a mistaken one does not get in.
#[test]
fn nodes_join_and_leave() -> Result {
    let (mut cluster, _, etcd) = prepare(1)?;
    let config = "[cluster]\nkey_file = \"{key_file}\"\n\n[[pool]]\nname = \"web\"\npolicy = \"round-robin\"\n\n\
        [[service]]\nname = \"shop\"\nlisten = [\"{vip4}:80\"]\n\n[[service.route]]\npool = \"web\"\n";
    let file = cluster.lab.write_config_text(config)?;
    let said = command(&cluster, &["apply", text(&file)])?.success()?;
    assert!(said.starts_with("version 1 is written: 0 nodes"), "{said}");
    cluster.start_switch()?;
    let status = || -> Result<String> {
        let url = cluster.url4("/small");
        let words = ["curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", &url];
        Ok(cluster.client().run(words)?.stdout)
    };
    assert_eq!(status()?, "503");

    let join = |node: usize, also: &[&str]| -> Result<Process> {
        let host = cluster.lab.node(node);
        let mut agent = host.command(PROGRAM);
        agent.args(["node", "--interface", "eth0", "--name", host.name(), "--join", "pool=web"]).args(also);
        agent.arg("--config").arg(&cluster.config).env("STATE_DIRECTORY", cluster.state_directory(node));
        Ok(host.spawn("agent", agent)?)
    };
    let is_answered_by = |nodes: &[&str]| {
        let answering =
            || Ok((status()? == "200").then(|| answering(&cluster)).transpose()?.unwrap_or_default());
        wait_until("the nodes", PATIENCE, answering, |answering| *answering == *nodes).map(drop)
    };
    let first = join(0, &[])?;
    first.wait_for_log("node node0 ready", PATIENCE)?;
    is_answered_by(&["node0"])?;
    let second = join(1, &["--join", "weight=100"])?;
    second.wait_for_log("node node1 ready", PATIENCE)?;
    is_answered_by(&["node0", "node1"])?;

    // Commands see what daemons see; who writes the document has that alone.
    let on_client = |arguments: &[&str]| cluster.run(cluster.client(), arguments);
    let place = text(&cluster.config).to_owned();
    etcdctl(&cluster.lab, &["put", "/switchback/nodes/broken", "address = 7"])?.success()?;
    let checked = on_client(&["check", &place])?;
    assert!(checked.stdout.starts_with("ok: 2 nodes"), "{checked:?}");
    let warning = "warning: a node that has joined is left out, broken: ";
    assert!(checked.stderr.contains(warning), "{checked:?}");
    etcdctl(&cluster.lab, &["del", "/switchback/nodes/broken"])?.success()?;
    let explained = on_client(&["explain", "--config", &place, &cluster.url4("/small")])?.success()?;
    assert!(explained.contains("node0") && explained.contains("node1"), "{explained}");
    let surveyed = on_client(&["test", "--config", &place])?.stdout;
    assert!(surveyed.contains("node0") && surveyed.contains("node1"), "{surveyed}");
    assert_eq!(command(&cluster, &["history", "1"])?.success()?, fs::read_to_string(&file)?);
    let said = command(&cluster, &["apply", "--dry-run", text(&file)])?.success()?;
    assert_eq!(said, "version 1 has this text already\n");

    // Its address is the VIP.
    let address = format!("address={}", cluster.lab.vip4());
    let mistaken = join(2, &["--join", &address])?;
    let ended = mistaken.wait_timeout(PATIENCE)?.ok_or("a mistaken node joins")?;
    let log = mistaken.log();
    assert!(
        ended.code() == Some(1) && log.contains("a node that has joined is left out, node2: "),
        "{ended} {log}"
    );
    is_answered_by(&["node0", "node1"])?;

    let begun = Instant::now();
    common::stop(&second)?;
    cluster.switch().wait_for_log("node node1 removed", PATIENCE)?;
    assert!(begun.elapsed() < Duration::from_secs(5), "only its lease has ended");
    is_answered_by(&["node0"])?;
    // What dies is away after ten seconds, and back when it is started again.
    first.kill()?;
    cluster.switch().wait_for_log("node node0 removed", PATIENCE)?;
    let first = join(0, &[])?;
    first.wait_for_log("node node0 ready", PATIENCE)?;
    is_answered_by(&["node0"])?;
    common::stop(&first)?;
    etcd.end()?;
    cluster.down()
}

/// A member that asks for certificates of its clients and for a user's password.
#[test]
fn connections_have_certificates_and_passwords() -> Result {
    let (mut cluster, plan, etcd) = prepare(1)?;
    etcd.end()?;
    let host = members(&cluster.lab).next().ok_or("no host for etcd")?;
    write_certificates(&cluster.lab, host)?;
    let files = ["ca.pem", "etcd.pem", "etcd.key", "client.pem", "client.key", "password"];
    let files = files.map(|name| cluster.lab.directory().join(name));
    let [ca, certificate, key, own, own_key, password] = files.each_ref().map(|file| text(file));
    let place = format!("{}:2379", host.ipv4());
    let url = format!("https://{place}");
    let mut etcd = Command::new("etcd");
    etcd.args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--client-cert-auth"]);
    etcd.args(["--trusted-ca-file", ca, "--cert-file", certificate, "--key-file", key, "--logger", "zap"]);
    etcd.arg("--data-dir").arg(host.directory().join("secure"));
    let etcd = host.spawn("etcd", etcd)?;
    let ask = |arguments: &[&str]| -> Result<Output> {
        let words = ["env", "ETCDCTL_API=3", "etcdctl", "--endpoints", &url];
        let files = ["--cacert", ca, "--cert", own, "--key", own_key];
        Ok(cluster.lab.client(0).run(words.iter().chain(&files).chain(arguments))?)
    };
    let health = || Ok(ask(&["endpoint", "health"])?.success().is_ok());
    wait_until("etcd", PATIENCE, health, |healthy| *healthy)?;
    for arguments in [
        &["user", "add", "root:first"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "shop"],
        &["role", "grant-permission", "shop", "--prefix=true", "readwrite", "/shop/"],
        &["user", "add", "shop:second"],
        &["user", "grant-role", "shop", "shop"],
        &["auth", "enable"],
    ] {
        ask(arguments)?.success()?;
    }
    fs::write(password, "second\n")?;
    fs::set_permissions(password, fs::Permissions::from_mode(0o600))?;

    let directory = text(cluster.lab.directory()).to_owned();
    let address = |user: &str, also: &str| {
        format!("etcds://{user}@{place}/shop?directory={directory}&ca={ca}&password_file={password}{also}")
    };
    let certified = format!("&cert={own}&key={own_key}");
    let file = cluster.lab.write_config_text(&plan.config(&cluster.lab))?;
    let apply =
        |address: &str| cluster.run(cluster.lab.client(0), &["apply", text(&file), "--etcd", address]);
    for (wrong, said) in [
        (address("shop", ""), "closed"),
        (address("other", &certified), "authentication failed"),
        (address("shop", &certified).replace("/shop?", "/other?"), "permission denied"),
        (address("shop", &certified).replace("etcds://shop@", "etcd://shop@"), "begins with etcds://"),
    ] {
        let failed = apply(&wrong)?;
        assert!(failed.status.code() == Some(2) && failed.stderr.contains(said), "{wrong}: {failed:?}");
    }
    let right = address("shop", &certified);
    apply(&right)?.success()?;
    fs::set_permissions(password, fs::Permissions::from_mode(0o644))?;
    let failed = apply(&right)?.stderr;
    assert!(failed.contains("mode 0644") && failed.contains("chmod 600"), "{failed}");
    fs::set_permissions(password, fs::Permissions::from_mode(0o600))?;
    cluster.config = right.into();
    cluster.start_daemons()?;
    assert_eq!(answering(&cluster)?, ["node0", "node1"]);
    etcd.kill()?;
    cluster.down()
}

/// A CA, a certificate of etcd at the host's address, and one of its clients.
fn write_certificates(lab: &Lab, host: &Host) -> Result {
    let write = |name: &str, content: &str| fs::write(lab.directory().join(name), content);
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    write("ca.pem", &parameters.self_signed(&key)?.pem())?;
    let ca = Issuer::new(parameters, key);
    for (name, host) in [("etcd", host.ipv4().to_string()), ("client", "client.example.com".to_owned())] {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new([host])?;
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        write(&format!("{name}.pem"), &parameters.signed_by(&key, &ca)?.pem())?;
        write(&format!("{name}.key"), &key.serialize_pem())?;
    }
    Ok(())
}

/// Somebody else has written since the author has looked.
#[test]
fn nothing_is_written_over_what_its_author_has_not_seen() -> Result {
    let (cluster, plan, etcd) = prepare(1)?;
    let config = plan.config(&cluster.lab);
    let record = |text: &str| Record {
        time: Timestamp::now(),
        author: "test".to_owned(),
        message: String::new(),
        text: text.to_owned(),
    };
    let address: Address = address(&cluster.lab).parse()?;
    cluster.client().enter(|| -> Result {
        let store = Store::new(address)?;
        assert_eq!(store.write(None, &record(&config))?, 1);
        let error = store.write(None, &record("")).unwrap_err().to_string();
        assert!(error.starts_with("somebody has written another version"), "{error}");
        let seen = store.current()?;
        assert_eq!(store.write(seen.as_ref(), &record("2"))?, 2);
        assert!(store.write(seen.as_ref(), &record("3")).is_err());
        assert_eq!(store.current()?.map(|stored| stored.document.text), Some("2".to_owned()));
        // Of more than a hundred records the oldest are dropped.
        for number in 3..=105 {
            // All of them together are longer than a message of gRPC, 4 MiB.
            let text = format!("{number}{}", "#".repeat(50_000));
            store.write(store.current()?.as_ref(), &record(&text))?;
        }
        let kept: Vec<u64> = store.history()?.iter().map(|(version, _)| *version).collect();
        assert_eq!(kept, (6..=105).rev().collect::<Vec<_>>());
        Ok(())
    })??;
    etcd.end()?;
    cluster.down()
}

/// All members are dead, daemons are killed and started again, and no client notices.
#[test]
fn daemons_live_and_start_without_etcd() -> Result {
    let (mut cluster, plan, mut etcd) = start_with_three()?;
    let away = Duration::from_secs(load(4, 60));
    let work = || -> Result<[Process; 2]> {
        (0..3).try_for_each(|member| etcd.kill(member))?;
        wait_for_all(&cluster, "no member of etcd answers, the configuration stays")?;
        let begun = Instant::now();
        cluster.switch().kill()?;
        let switch = cluster.spawn_switch()?;
        switch.wait_for_log("ready", PATIENCE)?;
        cluster.agent(1).kill()?;
        let agent = cluster.spawn_node(1)?;
        agent.wait_for_log("ready", PATIENCE)?;
        let restarted = [switch, agent];
        for daemon in &restarted {
            let log = daemon.log();
            assert!(log.contains("the start is with the last good configuration, etcd:"), "{log}");
        }
        thread::sleep(away.saturating_sub(begun.elapsed()));
        (0..3).try_for_each(|member| etcd.restart(&cluster.lab, member))?;
        for daemon in restarted.iter().chain([cluster.agent(0), cluster.agent(2)]) {
            daemon.wait_for_log("answers again", PATIENCE)?;
        }
        Ok(restarted)
    };
    let ([switch, agent], served) = beside(&cluster, work)?;
    served.assert_all_answered();
    cluster.replace_switch(switch);
    cluster.replace_agent(1, agent);
    let more = with_web(&plan, vec![0, 1, 2]);
    apply(&cluster, &more)?;
    wait_for_all(&cluster, "reloaded version 2: pool web: nodes")?;
    assert_eq!(answering(&cluster)?, ["node0", "node1", "node2"]);
    etcd.end()?;
    cluster.down()
}

/// A member is cut off without a word; daemons that follow it hear of changes from others.
#[test]
fn a_member_falls_silent() -> Result {
    let (cluster, plan, etcd) = start_with_three()?;
    let rules = "table inet cut { chain in { type filter hook input priority 0; policy drop; }; }\n";
    for (member, version) in [(0, 2), (1, 3), (2, 4)] {
        let host = members(&cluster.lab).nth(member).ok_or("no such member")?;
        nft(host, rules)?;
        let web = if version % 2 == 0 { vec![0, 1, 2] } else { vec![0, 1] };
        apply(&cluster, &with_web(&plan, web))?;
        wait_for_all(&cluster, &format!("reloaded version {version}: pool web: nodes"))?;
        nft(host, "flush ruleset\n")?;
        let health = || Ok(etcdctl(&cluster.lab, &["endpoint", "health"])?.success().is_ok());
        wait_until("etcd", PATIENCE, health, |healthy| *healthy)?;
    }
    etcd.end()?;
    cluster.down()
}

/// Members join and leave a pool again and again, while members of etcd are killed and its history is compacted.
#[test]
fn changes_are_in_force_everywhere_soon() -> Result {
    let (cluster, plan, mut etcd) = start_with_three()?;
    let copies: Vec<PathBuf> = (0..DAEMONS - 1)
        .map(|node| cluster.state_directory(node).join("last-good-node.toml"))
        .chain([cluster.lab.directory().join("state-switch/last-good-switch.toml")])
        .collect();
    let text_with = |web| -> Result<String> {
        let plan = with_web(&plan, web);
        Ok(fs::read_to_string(cluster.lab.write_config_text(&plan.config(&cluster.lab))?)?)
    };
    let texts = [text_with(vec![0, 1])?, text_with(vec![0, 1, 2])?];
    let mut random = Random::new(seed()?);
    let address: Address = address(&cluster.lab).parse()?;
    let changes: u64 = load(100, 10_000);
    let work = || -> Result<Vec<Duration>> {
        let mut took = Vec::new();
        for number in 0..changes {
            // A fifth of all changes are made while a member is dead.
            let dead = (number % 25 == 10).then(|| random.below(3) as usize);
            if let Some(member) = dead {
                etcd.kill(member)?;
            }
            for _ in 0..if dead.is_some() { 5 } else { 1 } {
                let (begun, version) = cluster.client().enter(|| change(&address, &texts))??;
                let in_force = || Ok(copies.iter().map(version_of).min().flatten());
                wait_until("a change", PATIENCE, in_force, |least| *least >= Some(version))?;
                took.push(begun.elapsed());
            }
            if let Some(member) = dead {
                etcd.restart(&cluster.lab, member)?;
            }
            if number % 20 == 15 {
                let status = etcdctl(&cluster.lab, &["get", "/switchback/cluster.toml", "-w", "json"])?;
                let json: serde_json::Value = serde_json::from_str(&status.success()?)?;
                let revision = json["header"]["revision"].to_string();
                etcdctl(&cluster.lab, &["compact", &revision])?.success()?;
            }
        }
        Ok(took)
    };
    let (mut took, served) = beside(&cluster, work)?;
    served.assert_all_answered();
    took.sort();
    let [median, p99] = [took.len() / 2, took.len() * 99 / 100].map(|index| took[index]);
    println!("{} changes, {} requests: median {median:?}, p99 {p99:?}", took.len(), served.requests);
    etcd.end()?;
    cluster.down()
}

/// Writes the other text; returns when that was done, and the version.
fn change(address: &Address, texts: &[String; 2]) -> Result<(Instant, u64)> {
    let store = Store::new(address.clone())?;
    let current = store.current()?.ok_or("no document")?;
    let other = usize::from(current.document.text == texts[0]);
    let record = Record {
        time: Timestamp::now(),
        author: "test".to_owned(),
        message: String::new(),
        text: texts[other].clone(),
    };
    let version = store.write(Some(&current), &record)?;
    Ok((Instant::now(), version))
}

/// Version of the document that a daemon has in force.
fn version_of(copy: &PathBuf) -> Option<u64> {
    let text = fs::read_to_string(copy).ok()?;
    text.lines().next()?.rsplit(' ').next()?.parse().ok()
}
