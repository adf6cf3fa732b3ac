//! Two switches for the same VIPs, and keepalived says which of them runs, or which of them a router sends clients to, by
//! the files in `packaging/keepalived`.

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::document::block;
use common::http::{Document, download_until};
use common::steady::Steady;
use common::{PATIENCE, PROGRAM, Result, alone, markdown, start_daemon, status, wait_until, write_script};
use switchback_lab::{Cluster, Host, Lab, Process, ServerOptions, Topology};

/// A switch whose master is keepalived.
struct Machine<'a> {
    host: &'a Host,
    /// Where keepalived believes scripts: nobody but root can write into any directory above it.
    scripts: PathBuf,
    keepalived: Option<Process>,
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        // The lab ends the processes; what is left here would harm nobody.
        let _ = fs::remove_dir_all(&self.scripts);
    }
}

impl<'a> Machine<'a> {
    /// The files of the repository, `switchback`, and `systemctl` for one unit.
    fn prepare(host: &'a Host, config: &Path, file: &str) -> Result<Machine<'a>> {
        let scripts = PathBuf::from(format!("/run/switchback-vrrp-{}", host.namespace_name()));
        fs::create_dir(&scripts)?;
        let machine = Machine { host, scripts, keepalived: None };
        let from = markdown::repository().join("packaging/keepalived");
        let own = machine.scripts.display().to_string();
        let notify = fs::read_to_string(from.join("switchback-notify"))?;
        machine.script("switchback-notify", &notify.replace("systemctl", &format!("{own}/systemctl")))?;
        machine.script("switchback", &format!("#!/bin/sh\nexec {PROGRAM} \"$@\"\n"))?;
        machine.script(
            "systemctl",
            &format!(
                "#!/bin/sh\ncd {own}\nexec 9> lock\nflock 9\npid=$(cat pid 2> /dev/null)\n\
                 runs() {{ [ -n \"$pid\" ] && [ -e /proc/$pid/exe ]; }}\n\
                 case \"$1 $2\" in\n\
                 'start switchback-switch')\n\
                 runs || {{ setsid {PROGRAM} switch --config {} --interface eth0 >> log 2>&1 9>&- & echo $! > pid; }} ;;\n\
                 'stop switchback-switch') if runs; then kill $pid; while runs; do sleep 0.01; done; fi ;;\n\
                 'reload switchback-switch') {PROGRAM} reload && echo reloaded >> log ;;\n\
                 *) exit 1 ;;\nesac\n",
                config.display()
            ),
        )?;
        let conf = fs::read_to_string(from.join(file))?;
        let conf = conf.replace("/etc/keepalived", &own).replace("/usr/bin", &own);
        fs::write(machine.scripts.join("keepalived.conf"), conf)?;
        Ok(machine)
    }

    fn script(&self, name: &str, text: &str) -> Result {
        write_script(&self.scripts.join(name), text)
    }

    /// What the switch and its unit have said.
    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.scripts.join("log")).unwrap_or_default())
    }

    fn start(&mut self) -> Result {
        let at = |name: &str| self.scripts.join(name).display().to_string();
        let mut command = self.host.command("keepalived");
        command.args(["--vrrp", "--dont-fork", "--log-console", "--log-detail"]);
        command.args([
            "--use-file",
            &at("keepalived.conf"),
            "--pid",
            &at("parent"),
            "--vrrp_pid",
            &at("child"),
        ]);
        self.keepalived = Some(self.host.spawn("keepalived", command)?);
        Ok(())
    }

    /// SIGTERM, as its unit is stopped.
    fn stop(&mut self) -> Result {
        self.keepalived.take().ok_or("keepalived does not run")?.stop()?;
        Ok(())
    }

    fn enters(&self, state: &str) -> Result {
        let keepalived = self.keepalived.as_ref().ok_or("keepalived does not run")?;
        keepalived.wait_for_log(&format!("Entering {state} STATE"), PATIENCE)?;
        Ok(())
    }

    /// Waits until its switch has become ready this many times.
    fn serves(&self, times: usize) -> Result {
        let readies = || Ok(self.log()?.matches("ready").count());
        wait_until("the switch", PATIENCE, readies, |readies| *readies == times)?;
        Ok(())
    }

    /// Waits until it has no switch, and nothing of one.
    fn rests(&self) -> Result {
        let traces = || common::traces::of(self.host);
        wait_until("what is left of a switch", PATIENCE, traces, Vec::is_empty)?;
        Ok(())
    }

    /// Requests that its switch has given to nodes.
    fn requests(&self) -> Result<u64> {
        let status = status(self.host)?;
        let nodes = status["nodes"].as_array().ok_or("no nodes")?;
        Ok(nodes.iter().filter_map(|node| node["requests"].as_u64()).sum())
    }
}

fn start_nodes(lab: &Lab, config: &Path) -> Result {
    for node in lab.nodes() {
        node.nginx(&ServerOptions::default())?;
        start_daemon(node, "node", config)?;
    }
    Ok(())
}

#[test]
fn the_vips_move_and_downloads_go_on() -> Result {
    let _alone = alone();
    let lab = Lab::builder().switches(2).nodes(2).up()?;
    let config = lab.write_config(&Cluster::with_policy("round-robin"))?;
    let long = Document { path: "/long", body: Arc::new(block(3).repeat(16)) };
    lab.add_document("long", &long.body)?;
    start_nodes(&lab, &config)?;
    let [first, second] =
        [0, 1].map(|switch| Machine::prepare(lab.switch(switch), &config, "keepalived.conf"));
    let [mut first, mut second] = [first?, second?];
    second.start()?;
    second.enters("MASTER")?;
    second.serves(1)?;
    first.start()?;
    first.enters("BACKUP")?;

    // One after the other by each family, some four seconds each, so that every change meets some.
    let over = AtomicBool::new(false);
    let download = |url: &str| download_until(lab.client(0), url, &long, Duration::from_secs(40), &over);
    let urls = [format!("http://{}/long", lab.vip4()), format!("http://[{}]/long", lab.vip6())];
    let load = Steady { clients: 10, pause: Duration::from_millis(20), close: false };
    let (small, vip) = (Document::of(&lab, "/small")?, SocketAddr::new(lab.vip4().into(), 80));
    let changes = || -> Result {
        wait_until("requests", PATIENCE, || second.requests(), |requests| *requests > 100)?;
        // Its cable is cut, which it does not see: both are masters for a while.
        let cut = Instant::now();
        lab.switch(1).cut_link()?;
        first.enters("MASTER")?;
        first.serves(1)?;
        println!("cut off: the other serves after {:?}", cut.elapsed());
        wait_until("requests", PATIENCE, || first.requests(), |requests| *requests > 0)?;
        // Of two masters that of the higher address stays.
        let before = second.requests()?;
        lab.switch(1).mend_link()?;
        first.rests()?;
        wait_until("requests", PATIENCE, || second.requests(), |requests| *requests > before + 20)?;
        assert!(second.log()?.contains("reloaded"), "nobody has said whose the VIPs are");
        // In order.
        let stopped = Instant::now();
        second.stop()?;
        first.serves(2)?;
        second.rests()?;
        println!("stopped: the other serves after {:?}", stopped.elapsed());
        wait_until("requests", PATIENCE, || first.requests(), |requests| *requests > 20)?;
        // Nothing comes from it any more, as from a machine that has died.
        second.start()?;
        second.enters("BACKUP")?;
        let killed = Instant::now();
        lab.switch(0).cut_link()?;
        second.serves(2)?;
        println!("dead: the other serves after {:?}", killed.elapsed());
        wait_until("requests", PATIENCE, || second.requests(), |requests| *requests > 20)?;
        Ok(())
    };
    let (worked, downloads) = thread::scope(|scope| {
        let downloads = urls.each_ref().map(|url| scope.spawn(|| download(url)));
        let worked = load.run_beside(lab.client(0), vip, (small.path, &small.body), changes);
        over.store(true, Ordering::Relaxed);
        (worked, downloads.map(|download| download.join().expect("it does not panic")))
    });
    let ((), served) = worked?;
    println!("{} requests, the slowest {:?}", served.requests, served.slowest);
    served.assert_all_answered();
    assert_eq!(served.closed_idle, 0, "idle connections were closed");
    for downloaded in downloads {
        println!("{} downloads, every byte right", downloaded?);
    }
    drop((first, second));
    lab.down()?;
    Ok(())
}

/// Both run all the time.
#[test]
fn a_switch_that_is_not_ready_gives_up_the_routers_next_hop() -> Result {
    let _alone = alone();
    let lab = Lab::builder().topology(Topology::Routed).switches(2).nodes(2).up()?;
    let config = lab.write_config(&Cluster::with_policy("round-robin"))?;
    start_nodes(&lab, &config)?;
    let router = lab.router().ok_or("no router")?;
    for (vip, hop) in [("192.0.2.100/32", "192.0.2.5"), ("2001:db8::100/128", "2001:db8::5")] {
        router.run(["ip", "route", "replace", vip, "via", hop])?.success()?;
    }
    let start_switch = |switch: usize| -> Result<Process> {
        let mut command = lab.switch(switch).command(PROGRAM);
        command.args(["switch", "--interface", "eth0", "--config"]).arg(&config);
        let process = lab.switch(switch).spawn("switch", command)?;
        process.wait_for_log("ready", PATIENCE)?;
        Ok(process)
    };
    let [_other, process] = [start_switch(0)?, start_switch(1)?];
    let [first, second] = [0, 1].map(|switch| Machine::prepare(lab.switch(switch), &config, "routed.conf"));
    let [mut first, mut second] = [first?, second?];
    second.start()?;
    second.enters("MASTER")?;
    first.start()?;
    first.enters("BACKUP")?;

    let load = Steady { clients: 20, pause: Duration::from_millis(20), close: false };
    let small = Document::of(&lab, "/small")?;
    let [vip4, vip6] = [lab.vip4().into(), lab.vip6().into()].map(|vip| SocketAddr::new(vip, 80));
    let passes_on = |machine: &Machine<'_>| -> Result {
        let before = machine.requests()?;
        wait_until("requests", PATIENCE, || machine.requests(), |requests| *requests > before + 100)?;
        Ok(())
    };
    let changes = || -> Result {
        passes_on(&second)?;
        let killed = Instant::now();
        process.kill()?;
        first.enters("MASTER")?;
        println!("killed: the other is master after {:?}", killed.elapsed());
        passes_on(&first)?;
        start_switch(1)?;
        // It has been that before it was master.
        let log = || Ok(second.keepalived.as_ref().map(Process::log).unwrap_or_default());
        wait_until("a second BACKUP", PATIENCE, log, |log| {
            log.rsplit("Entering FAULT STATE").next().is_some_and(|end| end.contains("Entering BACKUP STATE"))
        })?;
        let cut = Instant::now();
        lab.switch(0).cut_link()?;
        passes_on(&second)?;
        println!("cut off: the other passes requests on after {:?}", cut.elapsed());
        Ok(())
    };
    let (client, document) = (lab.client(0), (small.path, &small.body[..]));
    let (((), six), four) =
        load.run_beside(client, vip4, document, || load.run_beside(client, vip6, document, changes))?;
    for (what, served) in [("IPv4", four), ("IPv6", six)] {
        println!("{what}: {} requests, the slowest {:?}", served.requests, served.slowest);
        served.assert_all_answered();
        assert_eq!(served.closed_idle, 0, "{what}: idle connections were closed");
    }
    drop((first, second));
    lab.down()?;
    Ok(())
}
