//! keepalived on a host, with the configuration that is in the host's directory, and the addresses that it moves.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use switchback_lab::{Doing, Host, Process, Result};

/// Files with the process ids of keepalived and of its child.
const PID_FILES: [&str; 2] = ["keepalived.pid", "vrrp.pid"];
const READY: Duration = Duration::from_secs(30);

/// Starts it with the file `keepalived.conf`, and waits until it is a backup.
pub(super) fn start(host: &Host) -> Result<Process> {
    let mut command = Command::new("keepalived");
    command.args(["--vrrp", "--dont-fork", "--log-console", "--log-detail", "--use-file"]);
    command.arg(host.directory().join("keepalived.conf"));
    for (option, name) in ["--pid", "--vrrp_pid"].into_iter().zip(PID_FILES) {
        command.arg(option).arg(host.directory().join(name));
    }
    let process = host.spawn("keepalived", command)?;
    process.wait_for_log("Entering BACKUP STATE", READY)?;
    Ok(process)
}

/// Kills it as if its machine had died.
pub(super) fn kill(host: &Host, keepalived: &Process, addresses: (Ipv4Addr, Ipv6Addr)) -> Result<()> {
    // With its child, which would hand the address over in order.
    let group = Pid::from_raw(keepalived.pid().cast_signed());
    killpg(group, Signal::SIGKILL).doing(|| "kill keepalived".to_owned())?;
    keepalived.kill()?;
    // A machine that has died has no such files when it comes back. With them keepalived would refuse to start while the
    // old child is a zombie.
    for path in PID_FILES.map(|name| host.directory().join(name)) {
        fs::remove_file(&path).doing(|| format!("remove {}", path.display()))?;
    }
    // A machine that has died answers for no address.
    for address in [format!("{}/24", addresses.0), format!("{}/64", addresses.1)] {
        // One that is a backup has none.
        host.run(["ip", "addr", "del", &address, "dev", "eth0"])?;
    }
    Ok(())
}

/// Which of the hosts, by their places, have the address.
pub(super) fn holders<'a>(hosts: impl Iterator<Item = &'a Host>, address: Ipv4Addr) -> Result<Vec<usize>> {
    let address = address.to_string();
    let has_it = |(place, host): (usize, &Host)| {
        let shown = host.run(["ip", "-4", "addr", "show", "dev", "eth0", "to", &address])?.success()?;
        Ok((!shown.is_empty()).then_some(place))
    };
    Ok(hosts.enumerate().map(has_it).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The state that it has entered last.
pub(super) fn state(keepalived: &Process) -> Option<State> {
    let log = keepalived.log();
    let (_, last) = log.rsplit_once("Entering ")?;
    [("MASTER", State::Master), ("BACKUP", State::Backup)]
        .into_iter()
        .find_map(|(word, state)| last.starts_with(word).then_some(state))
}

/// States in which a machine works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Master,
    Backup,
}
