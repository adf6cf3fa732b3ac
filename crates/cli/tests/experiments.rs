//! `switchback lab run`: the papers' experiments in a short form, and what is left when they are interrupted.
//!
//! Each test starts the program itself. They take turns, because all put load on the same CPUs.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(30);
/// There is no event for a file that appears.
const POLL: Duration = Duration::from_millis(1);

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory that is not there.
fn output(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("experiments-{test}"));
    let _ = fs::remove_dir_all(&path);
    path
}

fn lab_run(words: &[&str], output: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchback"));
    command.args(["lab", "run"]).args(words);
    if !words.contains(&"--seconds") {
        command.args(["--seconds", "1"]);
    }
    command.args(["--repetitions", "1", "--output"]);
    command.arg(output);
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Files of an experiment by their endings, and what each begins with.
const TEXTS: [(&str, &[u8]); 2] = [("md", b"| "), ("csv", b"repetition,")];
const WITH_PLOT: [(&str, &[u8]); 4] = [TEXTS[0], TEXTS[1], ("svg", b"<svg "), ("png", b"\x89PNG")];

/// Runs it to its end, which must be a good one, and returns its tables. All its files must be there.
fn short_form(words: &[&str]) -> String {
    short_form_with(words, &WITH_PLOT)
}

fn short_form_with(words: &[&str], files: &[(&str, &[u8])]) -> String {
    let (table, csv) = tables(words, files);
    let titles: Vec<&str> = csv.lines().next().expect("a line of titles").split(',').collect();
    let errors = titles.iter().position(|title| *title == "errors").expect("errors are counted");
    for line in csv.lines().skip(1) {
        assert_eq!(cells_of_csv(line).get(errors), Some(&"0".to_owned()), "a load had errors: {line}");
    }
    table
}

/// The cells of a line, without the names in quotes, which may have commas.
fn cells_of_csv(line: &str) -> Vec<String> {
    let plain: String = line.split('"').step_by(2).collect::<Vec<_>>().join("");
    plain.split(',').map(str::to_owned).collect()
}

/// Runs it to its end, which must be a good one, and returns its tables and every single measurement.
fn tables(words: &[&str], files: &[(&str, &[u8])]) -> (String, String) {
    let _alone = alone();
    let name = words[0];
    let directory = output(name);
    let done = lab_run(words, &directory).output().expect("the binary has been built");
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stderr(&done).contains("1/"), "no progress in {}", stderr(&done));
    for (ending, begins) in files {
        let bytes = fs::read(directory.join(format!("{name}.{ending}"))).expect("it says that it is written");
        assert!(bytes.starts_with(begins), "{name}.{ending} is something else");
    }
    let csv = fs::read_to_string(directory.join(format!("{name}.csv"))).expect("it has just been read");
    (stdout(&done), csv)
}

/// The cells of the line that begins with these.
fn cells<'a>(table: &'a str, first: &[&str]) -> Vec<&'a str> {
    let mut lines = table.lines().map(|line| line.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>());
    lines.find(|cells| cells.starts_with(first)).unwrap_or_else(|| panic!("no {first:?} in {table}"))
}

/// `1,234 (1,200–1,250)` or `0.985`.
fn number(cell: &str) -> f64 {
    let first = cell.split(' ').next().expect("there is a first").replace(',', "");
    first.parse().unwrap_or_else(|_| panic!("{cell:?} is not a number"))
}

/// The installed programs stand for those of another release.
#[test]
fn proxies_of_another_release_are_systems_of_their_own_and_ratios_are_compared() {
    let peers = output("peers");
    fs::create_dir_all(peers.join("bin")).expect("a place for them");
    for program in ["haproxy", "nginx"] {
        let path = env::var_os("PATH").expect("there is one");
        let mut paths = env::split_paths(&path).map(|directory| directory.join(program));
        let installed = paths.find(|path| path.is_file()).expect("it is installed");
        symlink(installed, peers.join("bin").join(program)).expect("the directory is new");
    }
    let peers = peers.to_str().expect("it is text");
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks/proxies.csv");
    let (text, csv) = tables(&["proxies", "--peers", peers, "--compare", committed], &TEXTS);
    let lines: Vec<Vec<String>> = csv.lines().skip(1).map(cells_of_csv).collect();
    let systems: BTreeSet<&str> = lines.iter().map(|cells| cells[2].as_str()).collect();
    assert!(systems.len() == 7 && lines.len() == 5 * systems.len(), "{csv}");
    for proxy in ["HAProxy ", "nginx "] {
        let others = systems.iter().filter(|name| name.starts_with(proxy) && name.contains('.'));
        assert_eq!(others.count(), 1, "{systems:?}");
    }
    assert!(lines.iter().all(|cells| number(&cells[3]) > 0.0), "a load without requests: {csv}");
    for workload in ["100 B, keep-alive", "1 MiB, new connection"] {
        for ratio in ["requests/s ÷ HAProxy's", "CPU ÷ HAProxy's"] {
            assert_compared(&text, committed, &[workload, ratio]);
        }
    }
}

/// Fails if the ratio in the line of the comparison that begins with these is not there for both runs.
fn assert_compared(text: &str, earlier: &str, line: &[&str]) {
    let (_, comparison) = text.split_once(&format!("Compared with {earlier}:\n")).expect("a comparison");
    let cells = cells(comparison, line);
    assert!(number(cells[2]) > 0.0 && number(cells[3]) > 0.0, "{comparison}");
}

#[test]
fn what_the_log_costs_is_compared_with_what_it_has_cost() {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks/log-cost.csv");
    let table = short_form_with(&["log-cost", "--compare", committed], &TEXTS);
    for load in ["100 B, keep-alive", "100 B, new connections", "1 MiB, keep-alive"] {
        let cells = cells(&table, &[load]);
        assert!(number(cells[1]) > 0.0 && number(cells[2]) > 0.0, "{table}");
        for ratio in ["requests/s with log ÷ without", "switch's CPU with log ÷ without"] {
            assert_compared(&table, committed, &[load, ratio]);
        }
    }
}

#[test]
fn new_connections_get_answers_at_half_of_the_greatest_rate() {
    let table = short_form_with(&["connection-latency"], &TEXTS);
    for rate in ["half of Switchback's", "half of its own"] {
        for system in ["direct", "HAProxy", "nginx", "Switchback"] {
            let cells = cells(&table, &[rate, system]);
            let [greatest, begun, p50, p99] = [2, 3, 4, 5].map(|column| number(cells[column]));
            assert!(begun > 0.0 && p50 > 0.0 && p99 > 0.0, "{table}");
            assert!(rate == "half of Switchback's" || (begun - greatest / 2.0).abs() <= 1.0, "{table}");
        }
    }
}

#[test]
fn a_switch_hears_a_thousand_nodes() {
    let (table, _) = tables(&["report-cost"], &TEXTS);
    let [none, all] = ["0", "1000"].map(|nodes| cells(&table, &[nodes]));
    assert_eq!((number(none[1]), number(none[4])), (0.0, 0.0), "{table}");
    assert!(number(all[1]) > 4_000.0 && number(all[4]) > 0.0, "{table}");
}

/// On a busy machine it is not to be seen how long polite clients wait, and a request comes later than it is sent. Ten times the
/// limit is more than five times what it allows in a second.
#[test]
fn greedy_clients_get_what_their_limit_allows() {
    let (table, csv) = tables(&["greedy-clients", "--greedy", "20"], &TEXTS);
    let titles = cells_of_csv(csv.lines().next().expect("a line of titles"));
    let column = |name: &str| titles.iter().position(|title| title == name).expect("it is measured");
    let [load, failed, least, most] =
        ["load", "polite_failed", "least_by_limit", "most_by_limit"].map(column);
    let lines = csv.lines().filter(|line| !line.contains("no limit")).skip(1).map(cells_of_csv);
    let (alone, beside): (Vec<_>, Vec<_>) = lines.partition(|cells| cells[load] == "alone");
    assert_eq!((alone.len(), beside.len()), (6, 6), "{csv}");
    for cells in alone.iter().chain(&beside) {
        assert_eq!(cells[failed], "0", "{cells:?}, {table}");
    }
    for cells in beside {
        assert!(number(&cells[least]) > 0.3 && number(&cells[most]) < 3.0, "{cells:?}, {table}");
    }
}

/// What a proxy passes on cannot be more than its link carries, which is half of what the nodes' links do; a load of a second
/// has some of what queues held besides. How much more two nodes serve with Switchback depends on
/// what else this machine does; `docs/benchmarks.md` has it on a quiet one.
#[test]
fn proxies_have_one_link() {
    let table = short_form(&["dwsr-table1", "--nodes", "2"]);
    for response in ["6 KiB", "16 KiB"] {
        let cells = cells(&table, &[response, "2"]);
        let [link, switchback, haproxy, nginx] =
            [number(cells[2]) / 2.0, number(cells[3]), number(cells[7]), number(cells[8])];
        assert!(switchback > 0.0, "{cells:?}");
        assert!(haproxy < 1.5 * link && nginx < 1.5 * link, "{cells:?}");
    }
}

#[test]
fn responses_are_not_on_the_switchs_link() {
    let table = short_form(&["dwsr-table2"]);
    for limit in ["links of the nodes", "the machine's CPUs"] {
        let bytes = |system| number(cells(&table, &[limit, system])[9]);
        assert!(bytes("Switchback") < 1000.0, "{table}");
        // In and out: twice a response of 6 KiB.
        assert!(bytes("HAProxy") > 12_000.0 && bytes("nginx") > 12_000.0, "{table}");
    }
}

#[test]
fn functions_have_costs() {
    let table = short_form(&["dwsr-table3"]);
    let us = |function| number(cells(&table, &[function])[2]);
    for measured in ["L7 work", "Forwarded packet at the node", "XDP program, one packet"] {
        assert!(us(measured) > 0.0, "{table}");
    }
    // Differences of two measurements.
    for difference in ["Rebuild TCP state", "Of it the node's program"] {
        assert!(us(difference).is_finite(), "{table}");
    }
    for way in ["kept, automaton", "kept, L7 thread"] {
        assert!(number(cells(&table, &[way])[3]) >= 0.0, "{table}");
    }
    assert!(cells(&table, &["kept, two nodes in turn"]).len() == 11, "{table}");
}

/// No error means that every answer was the right one, byte by byte.
#[test]
fn sessions_are_reused_where_clients_get_to_their_node_and_busy_nodes_hand_over() {
    let table = short_form(&["tls-forwarding", "--k", "25"]);
    let row = |model: &str, columns: usize| {
        let lines = table.lines().map(|line| line.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>());
        let mut fitting = lines.filter(|cells| cells.len() == columns && cells.contains(&model));
        fitting.next().unwrap_or_else(|| panic!("no {model} in {table}"))
    };
    let reused = |model| number(row(model, 15)[11]);
    // Six nodes, of which a client gets to one by chance.
    assert!((0.05..0.35).contains(&reused("round robin")), "{table}");
    assert!(reused("session") > 0.9, "{table}");
    for model in ["forwarding, direct", "forwarding, relay"] {
        assert!(reused(model) > 0.9, "{table}");
        // A request is handed over at most once.
        let handed_over = number(row(model, 5)[4]);
        assert!(handed_over > 0.0 && handed_over <= 100.0, "{table}");
    }
}

#[test]
fn costs_are_measured_and_the_simulator_takes_them() {
    let table = short_form_with(&["calibrate"], &[TEXTS[0], TEXTS[1], ("toml", b"[costs]\n")]);
    let cost = |name: &str| number(cells(&table, &[&format!("`{name}`")])[1]);
    // What is measured by itself took time. The difference of two measurements on a busy machine can be nothing.
    for name in ["switch_packet_us", "node_request_us"] {
        assert!(cost(name) > 0.0, "{name}: {table}");
    }
    let differences = [
        "switch_connection_us",
        "switch_request_us",
        "node_connection_us",
        "node_kib_us",
        "tls_full_us",
        "tls_resumed_us",
        "tls_kib_us",
        "move_us",
        "relay_us",
    ];
    for name in differences {
        assert!(cost(name) >= 0.0, "{name}: {table}");
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("experiments-calibrate");
    let mut sim = Command::new(env!("CARGO_BIN_EXE_switchback"));
    sim.args(["sim", "split", "--most", "2", "--replications", "2", "--costs"]);
    sim.arg(directory.join("calibrate.toml")).arg("--output").arg(&directory);
    let simulated = sim.output().expect("the binary has been built");
    assert!(simulated.status.success(), "{}", stderr(&simulated));
}

#[test]
fn every_system_that_ends_tls_answers() {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks/tls-proxies.csv");
    let table = short_form_with(&["tls-proxies", "--compare", committed], &TEXTS);
    let handshakes =
        ["full handshake, TLS 1.3", "full handshake, TLS 1.2", "resumed, TLS 1.3", "resumed, TLS 1.2"];
    for workload in handshakes.into_iter().chain(["100 B, HTTP/2", "1 MiB, keep-alive"]) {
        for system in ["HAProxy", "nginx", "Switchback", "XDP alone"] {
            let cells = cells(&table, &[workload, system]);
            // The rate, and the CPU time of the machine in front and of the nodes.
            assert!(number(cells[2]) > 0.0 && number(cells[4]) >= 0.0 && number(cells[8]) >= 0.0, "{table}");
        }
        assert_compared(&table, committed, &[workload, "balancer's CPU ÷ HAProxy's"]);
    }
}

/// The same load and the same faults, of which only clients of HAProxy notice something, apart from pauses.
#[test]
fn switches_die_and_clients_keep_their_connections() {
    let words = [
        "switch-failover",
        "--seconds",
        "10",
        "--connections",
        "400",
        "--downloads",
        "8",
        "--megabytes",
        "2",
    ];
    let others = ["--uploads", "8", "--websockets", "8", "--tls", "8", "--pipelines", "4"];
    let (table, csv) = tables(&[&words[..], &others].concat(), &TEXTS);
    let titles = cells_of_csv(csv.lines().next().expect("a line of titles"));
    let column = |name: &str| titles.iter().position(|title| title == name).expect("it is measured");
    let [requests, unlogged] = ["requests", "unlogged"].map(column);
    let harmed = ["broken", "wrong", "twice", "on_two_nodes"].map(column);
    let lines = csv.lines().skip(1).map(cells_of_csv);
    let (ours, theirs): (Vec<_>, Vec<_>) = lines.partition(|cells| cells[1] != "HAProxy");
    assert_eq!((ours.len(), theirs.len()), (14, 7), "a line for each kind of load");
    for cells in ours {
        assert_ne!(cells[requests], "0", "no requests: {cells:?}");
        assert_eq!(cells[unlogged], "0", "not all requests are counted: {cells:?}");
        assert_eq!(harmed.map(|column| cells[column].as_str()), ["0"; 4], "{cells:?}, {table}");
    }
    for cells in theirs {
        assert_ne!(cells[harmed[0]], "0", "the faults do no harm: {cells:?}");
    }
}

#[test]
fn nothing_is_lost_and_nothing_grows() {
    let _alone = alone();
    let words = ["soak", "--seconds", "5", "--connections", "200", "--others", "8"];
    let directory = output("soak");
    let done = lab_run(&words, &directory).output().expect("the binary has been built");
    let (table, said) = (stdout(&done), stderr(&done));
    let written = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    assert_eq!(done.status.code(), Some(0), "{said}{}", written("soak.md"));
    let csv = written("soak.csv");
    for event in ["killed", "cut off", "restarted in order", "withdrawn", "node drained", "agent restarted"] {
        assert!(number(cells(&table, &[event])[1]) >= 1.0, "{table}");
    }
    let titles = cells_of_csv(csv.lines().next().expect("a line of titles"));
    let flows = titles.iter().position(|title| title == "agents_flows").expect("flows are counted");
    let values = cells_of_csv(csv.lines().nth(1).expect("a line for the run"));
    assert!(number(&values[flows]) > 200.0, "no flows: {csv}");
}

/// With BBR and a round trip that the node has not measured, a connection got a twentieth.
#[test]
fn far_clients_are_no_slower_than_with_a_server() {
    let (table, _) = tables(&["far-clients"], &TEXTS);
    let ratio = |control: &str| number(cells(&table, &[control])[5]);
    assert!(ratio("reno") > 0.25, "{table}");
    if table.contains("| bbr |") {
        assert!(ratio("bbr") > 0.25, "{table}");
    }
}

/// What the proxies have read ahead, some 15 MB, is less than what is left of a download.
#[test]
fn downloads_go_on_when_their_node_dies_and_proxies_lose_theirs() {
    let words = ["resume", "--seconds", "4", "--downloads", "6", "--megabytes", "150"];
    let (table, csv) = tables(&words, &WITH_PLOT);
    for fault in ["link cut", "machine killed", "server killed"] {
        let of = |system| {
            let cells = cells(&table, &[fault, system]);
            [3, 4, 7].map(|column| number(cells[column]))
        };
        let [struck, whole, wrong] = of("Switchback");
        assert!(struck > 0.0 && whole == struck && wrong == 0.0, "{table}");
        for system in ["HAProxy", "nginx"] {
            let [struck, whole, wrong] = of(system);
            assert!(struck > 0.0 && whole == 0.0 && wrong == 0.0, "{table}");
        }
    }
    assert_eq!(csv.lines().count(), 1 + 3 * 3 * 6, "a line for each download");
}

/// How much it costs is not to be seen on a busy machine.
#[test]
fn only_long_responses_are_reported_to_agents() {
    let table = short_form_with(&["resume-cost"], &TEXTS);
    for resume in ["range", "repeat"] {
        let sizes = ["64 KiB, keep-alive", "1 MiB, keep-alive"];
        let [medium, large] = sizes.map(|size| cells(&table, &[size, resume]));
        assert!(number(medium[4]) > 0.0 && number(large[4]) > 0.0, "{table}");
        assert!(number(medium[11]) == 0.0 && number(large[11]) > 0.0, "{table}");
    }
}

#[test]
fn nodes_that_replay_handshakes_serve_the_same_loads() {
    let table = short_form_with(&["adoption-cost"], &TEXTS);
    for work in ["100 B, keep-alive", "100 B, new connections", "1 MiB, keep-alive"] {
        let cells = cells(&table, &[work]);
        assert!(number(cells[1]) > 0.0 && number(cells[2]) > 0.0, "{table}");
    }
}

#[test]
fn one_that_fails_does_not_keep_the_others_from_running() {
    let _alone = alone();
    let directory = output("all");
    let words = ["all", "--only", "dwsr-table2,session-cost", "--envoy", "/nonexistent/envoy"];
    let done = lab_run(&words, &directory).output().expect("the binary has been built");
    assert_eq!(done.status.code(), Some(2), "{}", stderr(&done));
    assert!(stderr(&done).ends_with("switchback: 1 of 2 experiments failed\n"), "{}", stderr(&done));
    let report = fs::read_to_string(directory.join("all.md")).expect("the report");
    let failed = "failed: /nonexistent/envoy is no program; ";
    assert!(cells(&report, &["dwsr-table2"])[2].starts_with(failed), "{report}");
    assert!(report.contains("[session-cost.md](session-cost.md)"), "{report}");
    assert!(directory.join("session-cost.md").exists() && !directory.join("dwsr-table2.md").exists());
}

/// A program in a process group of its own, as a shell starts it.
struct Interrupted {
    child: Child,
    /// Inodes of its lab's namespaces, as far as they have been seen, which name what is pinned for them.
    inodes: BTreeSet<u64>,
}

impl Interrupted {
    fn start(words: &[&str], directory: &Path) -> Interrupted {
        let mut command = lab_run(words, directory);
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
        Interrupted { child: command.spawn().expect("the binary has been built"), inodes: BTreeSet::new() }
    }

    fn namespaces(&self) -> Vec<PathBuf> {
        let prefix = format!("sb{}-", self.child.id());
        entries("/run/netns").into_iter().filter(|path| name(path).starts_with(&prefix)).collect()
    }

    /// What there is of it on this machine, apart from itself.
    fn traces(&self) -> Vec<String> {
        let id = format!("{}-", self.child.id());
        let lab = format!("switchback-lab-{id}");
        let mut traces: Vec<PathBuf> = self.namespaces();
        traces.extend(entries("/run/switchback-lab").into_iter().filter(|path| name(path).starts_with(&id)));
        let temporary = env::temp_dir();
        traces.extend(entries(&temporary).into_iter().filter(|path| name(path).starts_with(&lab)));
        let is_pinned = |path: &PathBuf| {
            let inode =
                name(path).trim_end_matches(".sock").rsplit('-').next().and_then(|end| end.parse().ok());
            inode.is_some_and(|inode| self.inodes.contains(&inode))
        };
        for directory in ["/sys/fs/bpf/switchback", "/run/switchback"] {
            traces.extend(entries(directory).into_iter().filter(is_pinned));
        }
        // All that a lab starts has a file of the lab's directory among its arguments, but wrk.
        let is_ours = |path: &PathBuf| {
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned();
            let in_namespace = || {
                let inode = fs::metadata(path.join("ns/net")).ok()?.ino();
                Some(self.inodes.contains(&inode))
            };
            words.contains(&lab) || in_namespace() == Some(true)
        };
        traces.extend(entries("/proc").into_iter().filter(is_ours));
        traces.iter().map(|path| path.display().to_string()).collect()
    }

    /// ^C, and everything must be gone when the program is.
    fn interrupt(mut self, directory: &Path) {
        self.inodes =
            self.namespaces().iter().filter_map(|path| Some(fs::metadata(path).ok()?.ino())).collect();
        assert!(!self.traces().is_empty(), "nothing would be seen");
        let group = Pid::from_raw(self.child.id().cast_signed());
        killpg(group, Signal::SIGINT).expect("it still runs");
        assert_eq!(self.child.wait().expect("it is ours").code(), Some(130));
        assert_eq!(self.traces(), [] as [&str; 0]);
        assert_eq!(entries(directory), [] as [&Path; 0], "files of an experiment that did not end");
    }
}

fn entries(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[test]
fn an_interrupt_under_load_leaves_nothing_behind() {
    let _alone = alone();
    for (index, words) in [&["dwsr-table1", "--nodes", "4"][..], &["all"]].into_iter().enumerate() {
        let directory = output(&format!("interrupt-{index}"));
        let mut run = Interrupted::start(words, &directory);
        // The first load is over, the second begins.
        let stderr = BufReader::new(run.child.stderr.take().expect("it is a pipe"));
        let mut lines = stderr.lines().map(|line| line.expect("it writes text"));
        let line = lines.find(|line| line.starts_with('['));
        assert!(line.is_some(), "it has ended before its first load has");
        run.interrupt(&directory);
        let rest: Vec<String> = lines.collect();
        assert!(rest.iter().all(|line| line.starts_with('[')), "it has nothing to say: {rest:?}");
    }
}

#[test]
fn an_interrupt_while_the_lab_is_made_leaves_nothing_behind() {
    let _alone = alone();
    let directory = output("interrupt-early");
    let run = Interrupted::start(&["dwsr-table1"], &directory);
    let deadline = Instant::now() + PATIENCE;
    while run.namespaces().is_empty() {
        assert!(Instant::now() < deadline, "no lab within {PATIENCE:?}");
        thread::sleep(POLL);
    }
    run.interrupt(&directory);
}
