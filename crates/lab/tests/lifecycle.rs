//! Labs come up, stand side by side, and leave nothing behind, however their owner ends.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use switchback_lab::{GuestNetwork, Lab, LabInfo, Result, UpOptions};

const PATIENCE: Duration = Duration::from_secs(10);
/// Set for the copy of this program that holds a lab, or executes a command in one, for a test.
const HELPER: &str = "SWITCHBACK_LAB_TEST_HELPER";

fn sleeper(lab: &Lab) -> Result<u32> {
    let mut command = Command::new("sleep");
    command.arg("1000");
    Ok(lab.node(0).spawn("sleep", command)?.pid())
}

fn assert_gone(lab: &LabInfo, pids: &[u32]) {
    // With those of guests.
    let beginning = format!("sb{}-", lab.id);
    for entry in fs::read_dir("/run/netns").expect("the directory of namespaces") {
        let name = entry.expect("a name").file_name().into_string().expect("text");
        assert!(!name.starts_with(&beginning), "{name} is still there");
    }
    assert!(!lab.directory.exists(), "{} is still there", lab.directory.display());
    let ids: Vec<String> =
        switchback_lab::list().expect("the list of labs").into_iter().map(|lab| lab.id).collect();
    assert!(!ids.contains(&lab.id), "{} is still listed", lab.id);
    for pid in pids {
        // Empty for a zombie: its parent is no longer ours to wait for it.
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!words.starts_with("sleep"), "process {pid} still runs");
    }
}

#[test]
fn up_and_down_leave_nothing() -> Result<()> {
    let start = Instant::now();
    let lab = Lab::builder().nodes(3).up()?;
    let up = start.elapsed();
    let pid = sleeper(&lab)?;
    let info = lab.info().clone();
    assert_eq!(info.namespaces.len(), 6, "client, switch, three nodes and the bridge: {:?}", info.namespaces);
    assert!(info.namespaces.iter().all(|name| Path::new("/run/netns").join(name).exists()));
    assert!(info.directory.join("node0/sleep.log").exists());

    let start = Instant::now();
    lab.down()?;
    let down = start.elapsed();
    assert_gone(&info, &[pid]);
    println!("up {up:?}, down {down:?}");
    Ok(())
}

#[test]
fn a_quota_is_all_that_a_host_has_and_goes_with_the_lab() -> Result<()> {
    let lab = Lab::builder().up()?;
    let node = lab.node(0);
    node.group_cpu()?;
    node.limit_cpu(100)?;
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]);
    let busy = node.spawn("busy", command)?;
    let group = format!("switchback-lab-{}-node0", lab.id());
    let cgroup = fs::read_to_string(format!("/proc/{}/cgroup", busy.pid())).expect("it runs");
    assert!(cgroup.contains(&group), "{cgroup}");
    let used = || {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", busy.pid())).expect("it runs");
        let nanoseconds = stat.split(' ').next().and_then(|word| word.parse().ok());
        Duration::from_nanos(nanoseconds.expect("a number"))
    };
    let (start, before) = (Instant::now(), used());
    std::thread::sleep(Duration::from_secs(1));
    let share = (used() - before).div_duration_f64(start.elapsed());
    assert!((0.001..0.2).contains(&share), "{share} of a CPU, not a tenth");
    lab.down()?;
    let left =
        Command::new("find").args(["/sys/fs/cgroup", "-name", &group]).output().expect("find is everywhere");
    assert!(left.stdout.is_empty(), "{}", String::from_utf8_lossy(&left.stdout));
    Ok(())
}

#[test]
fn labs_side_by_side_do_not_meet() -> Result<()> {
    let (one, two) = (Lab::builder().up()?, Lab::builder().up()?);
    let address = SocketAddr::from((one.node(0).ipv4(), 7000));
    assert_eq!(one.node(0).ipv4(), two.node(0).ipv4());
    let _listener = one.node(0).tcp_listen(address)?;
    one.client(0).tcp_connect(address, PATIENCE)?;
    let refused = two.client(0).tcp_connect(address, PATIENCE);
    assert!(refused.is_err(), "a client of one lab has reached the other");

    one.down()?;
    two.client(0).ping(two.node(0).ipv4())
}

#[test]
fn a_panic_takes_the_lab_down() -> Result<()> {
    let mut seen = None;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let lab = Lab::builder().up().expect("a lab");
        let pid = sleeper(&lab).expect("a process");
        seen = Some((lab.info().clone(), pid));
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let (info, pid) = seen.expect("the lab came up");
    assert_gone(&info, &[pid]);
    Ok(())
}

#[test]
fn what_a_killed_owner_leaves_is_swept() -> Result<()> {
    let mut owner = lab_of_another_process();
    owner.child.kill().expect("the owner can be killed");
    owner.child.wait().expect("the owner ends");
    // Unless the start of another test's lab has been faster, this is what removes it.
    switchback_lab::sweep()?;
    assert_gone(&owner.info, &[owner.pid]);
    Ok(())
}

#[test]
fn the_lab_of_a_living_owner_is_not_swept() -> Result<()> {
    let lab = Lab::builder().up()?;
    assert!(!switchback_lab::sweep()?.contains(&lab.id().to_owned()));
    lab.client(0).ping(lab.node(0).ipv4())
}

#[test]
fn interrupt_and_terminate_take_the_lab_down() {
    for signal in ["-INT", "-TERM"] {
        let mut owner = lab_of_another_process();
        let sent =
            Command::new("kill").args([signal, &owner.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        assert_eq!(owner.child.wait().expect("the owner ends").code(), Some(130));
        assert_gone(&owner.info, &[owner.pid]);
    }
}

#[test]
fn a_process_that_ignores_sigterm_is_killed_after_two_seconds() -> Result<()> {
    let lab = Lab::builder().nodes(1).up()?;
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"]);
    let process = lab.node(0).spawn("stubborn", command)?;
    process.wait_for_log("ready", PATIENCE)?;
    let info = lab.info().clone();
    let start = Instant::now();
    lab.down()?;
    let took = start.elapsed();
    assert!(took > Duration::from_millis(1900), "{took:?}");
    assert_gone(&info, &[]);
    assert!(process.wait_timeout(Duration::ZERO)?.is_some());
    Ok(())
}

#[test]
fn a_persistent_lab_stays_until_it_is_taken_down() -> Result<()> {
    let info = switchback_lab::up(&UpOptions::default())?;
    switchback_lab::sweep()?;
    assert!(switchback_lab::list()?.iter().any(|lab| lab.id == info.id && lab.persistent));

    let exec = helper(&format!("exec {}", info.id)).output().expect("the helper runs");
    let shown = String::from_utf8_lossy(&exec.stdout).into_owned();
    assert!(shown.contains("192.0.2.20/24") && shown.contains("2001:db8::20/64"), "{shown}");
    assert_eq!(exec.status.code(), Some(0));

    switchback_lab::down(Some(&info.id))?;
    assert_gone(&info, &[]);
    assert!(switchback_lab::down(Some(&info.id)).is_err());
    Ok(())
}

/// A copy of this program that holds a lab with a process in it.
struct Owner {
    child: Child,
    info: LabInfo,
    pid: u32,
    /// Kept open: the copy must not fail for want of a reader.
    _stdout: BufReader<ChildStdout>,
}

/// Starts a copy of this program that makes a lab with a process in it and waits.
fn lab_of_another_process() -> Owner {
    let mut child = helper("hold").stdout(Stdio::piped()).spawn().expect("the helper starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
    let mut lines = stdout.by_ref().lines().map(|line| line.expect("the helper writes text"));
    let line = lines.find(|line| line.contains("holding ")).expect("the helper makes a lab");
    let mut words = line.split("holding ").nth(1).expect("what follows").split(' ');
    let (id, pid) =
        (words.next().expect("an id"), words.next().and_then(|pid| pid.parse().ok()).expect("a pid"));
    let labs = switchback_lab::list().expect("the list of labs");
    let info = labs.into_iter().find(|lab| lab.id == id).expect("the lab is listed");
    Owner { child, info, pid, _stdout: stdout }
}

fn helper(task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program's path"));
    command.args(["--exact", "helper_process", "--nocapture", "--ignored"]).env(HELPER, task);
    command
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_process() -> Result<()> {
    let task = std::env::var(HELPER).unwrap_or_default();
    if let Some(id) = task.strip_prefix("exec ") {
        switchback_lab::exec(Some(id), "node0", &["ip", "addr", "show", "dev", "eth0"])?;
    } else if task == "hold" {
        let lab = Lab::builder().up()?;
        let network = GuestNetwork {
            ipv4: (Ipv4Addr::new(198, 51, 100, 1), 24),
            ipv6: (Ipv6Addr::new(0x2001, 0xdb8, 4, 0, 0, 0, 0, 1), 64),
        };
        lab.node(0).make_guest_network(network)?;
        let (ipv4, ipv6) = (Ipv4Addr::new(198, 51, 100, 2), Ipv6Addr::new(0x2001, 0xdb8, 4, 0, 0, 0, 0, 2));
        let _guest = lab.node(0).guest("guest2", network, ipv4, ipv6)?;
        println!("holding {} {} ", lab.id(), sleeper(&lab)?);
        // A signal may end a single park.
        let deadline = Instant::now() + 6 * PATIENCE;
        while Instant::now() < deadline {
            std::thread::park_timeout(PATIENCE);
        }
    }
    Ok(())
}
