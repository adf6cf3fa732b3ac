//! Each of three switches shows all of them, from what the nodes tell: in `status`, in `top`, in the metrics, on the page.

mod common;

use std::fs;
use std::path::Path;

use common::browser::Browser;
use common::openmetrics::{self, Metrics};
use common::{PATIENCE, PROGRAM, Plan, Result, start_daemon, status, stop, traces, wait_until};
use switchback_lab::{Host, Lab, Process, Signal};

const ADDRESS: &str = "http://127.0.0.1:9180";

/// Of each switch its state, and how many nodes hear it.
fn shown(host: &Host) -> Result<Vec<(String, u64)>> {
    let status = status(host)?;
    let switches = status["switches"].as_array().ok_or("no switches")?;
    let row = |switch: &serde_json::Value| {
        Some((switch["state"].as_str()?.to_owned(), switch["heard_by"].as_u64()?))
    };
    switches.iter().map(|switch| row(switch).ok_or_else(|| format!("{switch}").into())).collect()
}

fn becomes(host: &Host, wanted: [(&str, u64); 3]) -> Result {
    let is_so = |rows: &Vec<(String, u64)>| {
        rows.iter().map(|(state, heard_by)| (&state[..], *heard_by)).eq(wanted.iter().copied())
    };
    wait_until(host.name(), PATIENCE, || shown(host), is_so).map(drop)
}

/// What a command prints on a host.
fn said(host: &Host, words: &[&str]) -> Result<String> {
    Ok(host.run([&[PROGRAM], words].concat())?.success()?)
}

/// Waits until `status` has these warnings, and checks that `top` has them too.
fn warns(host: &Host, wanted: &[String]) -> Result {
    let warnings = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix("warning: ")).map(str::to_owned).collect()
    };
    let of_status = || Ok(warnings(&said(host, &["status"])?));
    wait_until(host.name(), PATIENCE, of_status, |found| found == wanted)?;
    assert_eq!(warnings(&said(host, &["top", "--once"])?), wanted);
    Ok(())
}

fn scrape(host: &Host) -> Result<Metrics> {
    let url = format!("{ADDRESS}/metrics");
    Ok(openmetrics::parse(&host.run(["curl", "-sS", "--max-time", "5", &url])?.success()?)?)
}

fn digits(config: &Path) -> Result<String> {
    let said = std::process::Command::new("sha256sum").arg(config).output()?.stdout;
    Ok(String::from_utf8(said)?[..8].to_owned())
}

fn start_as(host: &Host, name: &str, config: &Path) -> Result<Process> {
    let mut command = host.command(PROGRAM);
    command.args(["switch", "--name", name, "--interface", "eth0", "--config"]).arg(config);
    let process = host.spawn("switch", command)?;
    process.wait_for_log("ready", PATIENCE)?;
    Ok(process)
}

#[test]
fn each_switch_tells_of_all() -> Result {
    let lab = Lab::builder().switches(3).nodes(2).up()?;
    let plan = Plan { admin: true, pools: vec![("web", vec![0, 1])], ..Plan::default() };
    let config = lab.write_config_text(&(plan.config(&lab) + "\n{switches}"))?;
    let own = lab.directory().join("own.toml");
    fs::copy(&config, &own)?;
    let agents = [start_daemon(lab.node(0), "node", &config)?, start_daemon(lab.node(1), "node", &own)?];
    let [first, second, third] = [0, 1, 2].map(|index| lab.switch(index));
    let switches = [
        start_daemon(first, "switch", &config)?,
        start_daemon(second, "switch", &own)?,
        start_daemon(third, "switch", &config)?,
    ];
    for host in [first, second, third] {
        becomes(host, [("serving", 2); 3])?;
        warns(host, &[])?;
    }
    let before = digits(&config)?;
    let text = said(first, &["status"])?;
    let version = env!("CARGO_PKG_VERSION");
    for row in [
        format!("switch0  serving, this machine  {version}    {before}  2 of 2 nodes           0"),
        format!("switch1  serving                {version}    {before}  2 of 2 nodes           0"),
        format!("switch2  serving                {version}    {before}  2 of 2 nodes           0"),
    ] {
        assert!(text.lines().any(|line| line == row), "{row:?} is not in\n{text}");
        assert!(said(first, &["top", "--once"])?.lines().any(|line| line == row), "{row:?}");
    }

    // A comment is a difference, too.
    fs::write(&own, fs::read_to_string(&own)? + "# changed\n")?;
    let after = digits(&own)?;
    switches[1].signal(Signal::SIGHUP)?;
    let differs = |who: &str, theirs: &str, here: &str| {
        vec![format!("{who} another configuration ({theirs}, here {here}): copy the file and reload")]
    };
    for host in [first, third] {
        warns(host, &differs("switch switch1 has", &after, &before))?;
    }
    let others = "switch switch0, switch switch2, node node0 and node node1 have";
    warns(second, &differs(others, &before, &after))?;
    agents[1].signal(Signal::SIGHUP)?;
    warns(first, &differs("switch switch1 and node node1 have", &after, &before))?;
    warns(second, &differs("switch switch0, switch switch2 and node node0 have", &before, &after))?;
    let metrics = scrape(first)?;
    assert_eq!(metrics.sum("switchback_switch_other_configurations", &[]), Some(2.0));
    assert_eq!(metrics.sum("switchback_switch_other_versions", &[]), Some(0.0));
    for (switch, config) in [("switch0", &before), ("switch1", &after), ("switch2", &before)] {
        let labels = [("switch", switch), ("version", version), ("config", config)];
        assert_eq!(metrics.sum("switchback_switch_software_info", &labels), Some(1.0), "{switch}");
    }

    let mut browser = Browser::start(first.command("sh"), &lab.directory().join("chromium"))?;
    browser.open(ADDRESS)?;
    let page = |words: &str| format!("document.querySelector('#switches').innerText.includes({words:?})");
    let warning =
        format!("switch switch1 and node node1 have another configuration ({after}, here {before})");
    browser.wait_for(&format!("document.querySelector('#warnings').innerText.includes({warning:?})"))?;
    assert_eq!(browser.eval("document.querySelectorAll('#switches tbody tr').length")?, 3);

    said(second, &["drain", "--self"])?;
    switches[2].kill()?;
    becomes(first, [("serving", 2), ("withdrawn", 2), ("silent", 0)])?;
    let text = said(first, &["status"])?;
    let is_silent = |line: &str| line.starts_with("switch2  silent for ") && line.contains("0 of 2 nodes");
    assert!(text.lines().any(is_silent), "{text}");
    browser.wait_for(&page("switch1 withdrawn"))?;
    browser.wait_for(&page("switch2 silent for"))?;
    let metrics = scrape(first)?;
    for (name, values) in [("up", [1.0, 1.0, 0.0]), ("serving", [1.0, 0.0, 0.0])] {
        for (index, value) in values.into_iter().enumerate() {
            let (name, switch) = (format!("switchback_switch_{name}"), format!("switch{index}"));
            assert_eq!(metrics.sum(&name, &[("switch", &switch)]), Some(value), "{name} {switch}");
        }
    }

    said(second, &["undrain", "--self"])?;
    becomes(first, [("serving", 2), ("serving", 2), ("silent", 0)])?;
    fs::copy(&config, &own)?;
    switches[1].signal(Signal::SIGHUP)?;
    agents[1].signal(Signal::SIGHUP)?;
    warns(first, &[])?;

    // A machine that was set up as a copy of another one.
    let copy = start_as(third, "switch1", &config)?;
    let same = "2 machines say that they are switch switch1: start each with a name of its own (--name)";
    for host in [first, second, third] {
        warns(host, &[same.to_owned()])?;
    }
    stop(&copy)?;
    warns(first, &[])?;

    // One that has just started knows of all within seconds, of the last one that there is such a switch.
    stop(&switches[0])?;
    let first_again = start_daemon(first, "switch", &config)?;
    becomes(first, [("serving", 2), ("serving", 2), ("unknown", 0)])?;

    browser.complaints.retain(|complaint| !complaint.contains("ERR_"));
    browser.close()?;
    [&first_again, &switches[1], &agents[0], &agents[1]].into_iter().try_for_each(stop)?;
    for host in lab.switches().chain(lab.nodes()) {
        let traces = traces::of(host)?;
        assert!(traces.is_empty(), "left on {}: {traces:#?}", host.name());
    }
    lab.down()?;
    Ok(())
}
