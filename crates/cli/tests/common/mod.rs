//! What tests of whole clusters share.

#![allow(dead_code, unused_imports)] // each test file uses its part

pub mod announced;
pub mod browser;
pub mod chromium;
pub mod cluster;
pub mod document;
pub mod http;
pub mod log_file;
pub mod markdown;
pub mod openmetrics;
pub mod packets;
pub mod responses;
pub mod steady;
pub mod traces;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use switchback_lab::{Host, Process, Signal, within};

pub use cluster::{Cluster, Plan, TLS_NAME};

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T = ()> = std::result::Result<T, Error>;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_switchback");
/// How long anything may take that has no load to do.
pub const PATIENCE: Duration = within(Duration::from_secs(30));
/// How often a state is looked at that nobody announces.
const POLL: Duration = Duration::from_millis(10);

/// The size of a load: that of `make test`, or with `SWITCHBACK_LONG=1` that of `make test-long`.
pub fn load<T>(short: T, long: T) -> T {
    let is_long = std::env::var_os("SWITCHBACK_LONG").is_some_and(|value| value == "1");
    if is_long { long } else { short }
}

/// How long a load lasts.
pub fn load_seconds() -> u64 {
    load(3, 10)
}

/// Tests that measure time, or fill the machine with packets, have it for themselves. Test programs run one
/// after the other anyway.
pub fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds a client in Go from one file.
pub fn build_go(name: &str, source: &str) -> Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let binary = target.join(name);
    let mut build = Command::new("timeout");
    build.args(["300", "go", "build", "-o"]).arg(&binary).arg(source);
    build.env("GOCACHE", target.join("go-cache"));
    // Nothing of it comes from the network, and it needs no C compiler.
    build.env("GO111MODULE", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    match build.status()?.success() {
        true => Ok(binary),
        false => Err(format!("{source} does not build").into()),
    }
}

/// A server at port 81 of the node's loopback address that answers with what it gets, and writes that to `log`: see
/// `tls/echo.py`.
pub fn start_echo(node: &Host, log: &Path) -> Result<Process> {
    fs::write(log, "")?;
    let mut echo = Command::new("/usr/bin/python3");
    echo.args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/echo.py"), node.name(), text(log)]);
    let echo = node.spawn("echo", echo)?;
    node.wait_for_listeners(&echo, &[([127, 0, 0, 1], 81).into()], PATIENCE)?;
    Ok(echo)
}

/// Waits until `state` is what is wanted; an error tells the last state otherwise.
pub fn wait_until<T: std::fmt::Debug>(
    what: &str,
    patience: Duration,
    mut state: impl FnMut() -> Result<T>,
    wanted: impl Fn(&T) -> bool,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        let now = state()?;
        if wanted(&now) {
            return Ok(now);
        }
        if Instant::now() > deadline {
            return Err(format!("{what}: still {now:?} after {patience:?}").into());
        }
        std::thread::sleep(POLL);
    }
}

/// `switchback switch` or `switchback node` on a host that has the name in the configuration, when it is ready.
pub fn start_daemon(host: &Host, role: &str, config: &Path) -> Result<Process> {
    let mut command = host.command(PROGRAM);
    command.args([role, "--name", host.name(), "--interface", "eth0", "--config"]).arg(config);
    let process = host.spawn(role, command)?;
    process.wait_for_log("ready", PATIENCE)?;
    Ok(process)
}

/// SIGTERM, a second one if there are connections, and status 0 soon after.
pub fn stop(process: &Process) -> Result {
    let status = process.stop()?;
    assert!(status.success(), "{} ends with {status}:\n{}", process.name(), process.log());
    Ok(())
}

/// What `switchback status --json` says on a host.
pub fn status(host: &Host) -> Result<Value> {
    let shown = host.run([PROGRAM, "status", "--json"])?.success()?;
    Ok(serde_json::from_str(&shown)?)
}

pub fn counter(status: &Value, name: &str) -> Result<u64> {
    let value = status["counters"][name].as_u64();
    value.ok_or_else(|| format!("no counter {name} in {}", status["counters"]).into())
}

/// Applies a script of nftables in the host's namespace.
pub fn nft(host: &Host, script: &str) -> Result {
    let path = host.directory().join("rules.nft");
    fs::write(&path, script)?;
    host.run(["nft", "-f", text(&path)])?.success()?;
    Ok(())
}

/// What a command that ends with status 0 prints.
pub fn said_by(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} ends with {}: {said}{errors}", output.status).into())
}

/// A program for everybody.
pub fn write_script(path: &Path, text: &str) -> Result {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// The file's name in the lab, for messages.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the lab's paths are UTF-8")
}
