//! Responses over TLS, which the agents encrypt.

use std::io::Read;
use std::process::{Child, Stdio};

use super::*;
use crate::common::{build_go, text};

fn over_tls(plan: Plan) -> Plan {
    // Of HTTP/2 no response is insured.
    Plan { tls: Some("protocols = [\"http/1.1\"]".to_owned()), ..plan }
}

/// A service over TLS besides, with the same pool.
fn start_over_tls(plan: Plan) -> Result<Cluster> {
    Cluster::start_with(over_tls(plan))
}

impl<'a> Downloads<'a> {
    fn over_tls(lab: &'a Lab, scale: (usize, usize), options: &[&str]) -> Result<Self> {
        let options = ["--insecure"].iter().chain(options).map(|option| (*option).to_owned());
        Ok(Downloads { scheme: "https", options: options.collect(), ..Downloads::of(lab, scale)? })
    }
}

fn goes_on_over_tls(cluster: Cluster, options: &[&str]) -> Result {
    outlive(&cluster, &Downloads::over_tls(&cluster.lab, scale(), options)?)?;
    cluster.lab.node(0).set_loss(0, 0)?;
    cluster.down()
}

#[test]
fn downloads_over_tls_go_on_when_their_node_dies() -> Result {
    goes_on_over_tls(start_over_tls(plan(ServerKind::Nginx, 3))?, &[])
}

#[test]
fn downloads_over_tls_1_2_go_on_over_bad_paths() -> Result {
    let cluster = start_over_tls(plan(ServerKind::Nginx, 3))?;
    for node in cluster.lab.nodes() {
        node.set_loss(LITTLE, LITTLE)?;
    }
    outlive(&cluster, &Downloads::over_tls(&cluster.lab, scale(), &["--tls-max", "1.2"])?)?;
    (0..3).try_for_each(|node| cluster.lab.node(node).set_loss(0, 0))?;
    cluster.down()
}

#[test]
fn a_second_death_ends_no_download_over_tls() -> Result {
    let cluster = start_over_tls(plan(ServerKind::Nginx, 4))?;
    // The small request behind a response is lost with its node, so none may be over before the second death.
    let downloads = Downloads { rate: "2M", ..Downloads::over_tls(&cluster.lab, scale(), &[])? };
    outlive_two_deaths(&cluster, &downloads)?;
    cluster.down()
}

fn goes_on_over_tls_with_two_switches(one_dies: bool) -> Result {
    let plan = over_tls(plan(ServerKind::Nginx, 3));
    goes_on_with_two_switches(&plan, |lab| Downloads::over_tls(lab, scale(), &[]), one_dies)
}

#[test]
fn downloads_over_tls_go_on_when_their_switch_dies_too() -> Result {
    goes_on_over_tls_with_two_switches(true)
}

#[test]
fn downloads_over_tls_go_on_with_two_switches() -> Result {
    goes_on_over_tls_with_two_switches(false)
}

#[test]
fn text_that_is_made_goes_on_over_tls() -> Result {
    goes_on_over_tls(start_text(over_tls(plan_of("repeat", ServerKind::Nginx, 3)))?, &[])
}

/// The agent gets the rest from another node's server.
#[test]
fn downloads_over_tls_go_on_when_their_server_dies() -> Result {
    for resume in ["range", "repeat"] {
        let cluster = start_over_tls(plan_of(resume, ServerKind::Nginx, 3))?;
        let downloads = Downloads { then: None, ..Downloads::over_tls(&cluster.lab, scale(), &[])? };
        downloads.beside(|| cluster.kill_server(0))?;
        let resumed = of_resume(&cluster.lab, 0, "resumed")?;
        println!("{resumed} responses have gone on from other servers");
        assert!(resumed > 0);
        assert_eq!(downloads.dispatched("resumed")?, 0);
        cluster.down()?;
    }
    Ok(())
}

/// The kernel of an agent that is killed would tell its clients.
#[test]
fn downloads_over_tls_go_on_when_their_agent_dies() -> Result {
    let cluster = start_over_tls(plan(ServerKind::Nginx, 3))?;
    let downloads = Downloads::over_tls(&cluster.lab, scale(), &[])?;
    outlive_first(&downloads, || Ok(cluster.agent(0).kill().map(drop)?))
}

/// It may be back before the switch takes the node for dead. Then the kernel sends what it has been given, and a response
/// goes on elsewhere when its client has read that.
#[test]
fn downloads_over_tls_go_on_when_their_agent_is_started_again() -> Result {
    let cluster = start_over_tls(plan(ServerKind::Nginx, 3))?;
    let downloads = Downloads::over_tls(&cluster.lab, scale(), &[])?;
    let (mut had, mut again) = (0, None);
    let anew = downloads.beside(|| {
        had = of_resume(&cluster.lab, 0, "under_way")?;
        cluster.agent(0).kill()?;
        again = Some(cluster.spawn_node(0)?);
        Ok(())
    })?;
    assert!(had > 0);
    assert_eq!((anew, downloads.dispatched("resumed")?, downloads.dispatched("not_resumed")?), (0, had, 0));
    again.iter().try_for_each(stop)
}

/// It waits for responses to end before it does, and these do not.
#[test]
fn downloads_over_tls_go_on_when_their_agent_is_told_to_end() -> Result {
    let cluster = start_over_tls(plan(ServerKind::Nginx, 3))?;
    let downloads =
        Downloads { rate: load("512K", "3M"), ..Downloads::over_tls(&cluster.lab, scale(), &[])? };
    outlive_first(&downloads, || {
        cluster.agent(0).signal(Signal::SIGTERM)?;
        Ok(cluster.agent(0).wait_timeout(PATIENCE)?.map(drop).ok_or("it does not end")?)
    })
}

/// One bit of the records that have gone out is another one, and nothing else tells: the client that reads on gets nothing.
#[test]
fn no_record_of_another_file_is_sent() -> Result {
    let cluster = start_over_tls(plan(ServerKind::Nginx, 3))?;
    set_receive_window(&cluster.lab)?;
    let big = add_long_document(&cluster.lab, "/big", 16)?;
    // Nobody reads: records wait in the node's kernel, and in its agent.
    let gets = vec![(format!("https://{}/big", cluster.lab.vip4()), big.clone())];
    let options = ["--insecure", "--limit-rate", "4M"];
    let fetching = start_fetch(cluster.client(), gets, &options, PATIENCE)?;
    wait_until_insured(&cluster.lab, 1)?;
    let is_here = |node: &usize| of_resume(&cluster.lab, *node, "under_way").is_ok_and(|count| count == 1);
    let owner = (0..3).find(is_here).ok_or("no node has it")?;
    let full = || Ok(cluster.client().tcp_counter("TCPToZeroWindowAdv")?);
    wait_until("the client's buffer is full", PATIENCE, full, |count| *count > 0)?;
    for node in (0..3).filter(|node| *node != owner) {
        let path = cluster.lab.directory().join(format!("roots/node{node}/big"));
        let modified = std::fs::metadata(&path)?.modified()?;
        let mut bytes = big.body.to_vec();
        bytes.iter_mut().step_by(1 << 14).for_each(|byte| *byte ^= 1);
        replace(&cluster, node, &bytes, modified)?;
    }
    cluster.lab.node(owner).set_loss(ALL, ALL)?;
    let failed = || {
        let of = |node: usize| Ok(cluster.node_status(node)?["resume"]["failed"]["mismatch"].as_u64());
        let counts: Vec<Option<u64>> = (0..3).filter(|node| *node != owner).map(of).collect::<Result<_>>()?;
        Ok(counts.into_iter().flatten().sum::<u64>())
    };
    wait_until("the heir refuses", PATIENCE, failed, |count| *count == 1)?;
    let error = fetching().expect_err("it cannot go on").to_string();
    assert!(error.contains("body ends after"), "{error}");
    cluster.lab.node(owner).set_loss(0, 0)?;
    cluster.down()
}

/// A client whose output nobody reads until its node is dead.
fn begin(host: &Host, words: &[&str]) -> Result<Child> {
    let mut command = host.command("timeout");
    command.args(["--signal=KILL", "60"]).args(words);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
}

#[test]
fn openssl_and_go_get_the_rest() -> Result {
    let cluster = start_over_tls(plan(ServerKind::Nginx, 3))?;
    set_receive_window(&cluster.lab)?;
    let big = add_long_document(&cluster.lab, "/big", 16)?;
    let go = build_go("resume-client", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/resume/go/main.go"))?;
    let vip = cluster.lab.vip4();
    let url = format!("https://{vip}/big");
    let openssl = |version: &str| {
        let request = "GET /big HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n";
        format!(
            "printf '{request}' | openssl s_client -quiet -ign_eof -connect {vip}:443 {version} 2> /dev/null"
        )
    };
    let mut clients = Vec::new();
    for version in ["-tls1_2", "-tls1_3"] {
        for _ in 0..3 {
            clients.push(begin(cluster.client(), &["sh", "-c", &openssl(version)])?);
            clients.push(begin(cluster.client(), &[text(&go), &url])?);
        }
    }
    wait_until_insured(&cluster.lab, clients.len())?;
    let had = of_resume(&cluster.lab, 0, "under_way")?;
    assert!(had > 0);
    cluster.lab.node(0).set_loss(ALL, ALL)?;
    for mut client in clients {
        let mut got = Vec::new();
        client.stdout.take().expect("piped").read_to_end(&mut got)?;
        assert!(client.wait()?.success());
        let head = got
            .windows(4)
            .position(|bytes| bytes == b"\r\n\r\n")
            .filter(|_| got.starts_with(b"HTTP/1.1 200"));
        assert!(got[head.map_or(0, |end| end + 4)..] == *big.body, "{} bytes", got.len());
    }
    let resumed = dispatched(cluster.lab.switch(0), "resumed")?;
    assert_eq!((resumed, dispatched(cluster.lab.switch(0), "not_resumed")?), (had, 0));
    cluster.lab.node(0).set_loss(0, 0)?;
    cluster.down()
}
