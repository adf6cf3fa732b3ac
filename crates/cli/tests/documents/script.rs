//! What the documents tell people to do, and who does it.

use std::fs;
use std::process::{Command, Stdio};

use super::common::Result;
use super::common::markdown::{self, Code};

/// Installs, uses and removes the package.
const PACKAGE: &str = "crates/cli/tests/package.rs";
const FROM_THE_SWITCH: &str = "crates/cli/tests/from_the_switch.rs";
const SIM: &str = "crates/cli/tests/sim.rs";
/// Document, beginning of the command, and who runs it: a file, and what stands in it for this.
const ELSEWHERE: [(&str, &str, (&str, &str)); 43] = [
    ("README.md", "apt-get install -y git make", (".ci/run", "--no-install-recommends make")),
    ("README.md", "make test", (".ci/run", "make test")),
    ("CONTRIBUTING.md", "cargo build && export", ("Makefile", "cargo test --no-fail-fast")),
    (
        "docs/names.md",
        "switchback node --interface eth0",
        ("crates/cli/tests/names.rs", "\"node\", \"--interface\", \"eth0\", \"--config\""),
    ),
    (
        "CONTRIBUTING.md",
        "cargo run -p switchback-wire-generate",
        ("crates/wire/generate/src/main.rs", "fn generated_rs_is_made_from_the_headers()"),
    ),
    (
        "CONTRIBUTING.md",
        "cargo run -p switchback-admin --example metrics-reference",
        ("crates/admin/src/metrics/tests.rs", "fn the_reference_is_up_to_date()"),
    ),
    (
        "CONTRIBUTING.md",
        "cargo run -p switchback-admin --example page-preview",
        ("crates/admin/tests/page.rs", "fn forty_nodes_fit_on_a_desk_and_on_a_phone()"),
    ),
    (
        "CONTRIBUTING.md",
        "cargo run -p switchback-config --example config-reference",
        ("crates/config/tests/examples.rs", "fn the_reference_is_up_to_date()"),
    ),
    (
        "docs/installing.md",
        "apt-get install ./switchback",
        (PACKAGE, "\"--install\", \"/tmp/switchback.deb\""),
    ),
    ("docs/installing.md", "cp /usr/share/doc", (PACKAGE, "/usr/share/doc/switchback/examples/cluster.toml")),
    ("docs/installing.md", "switchback keygen", (PACKAGE, "\"keygen\", \"/etc/switchback/cluster.key\"")),
    ("docs/installing.md", "switchback check", (PACKAGE, "\"switchback\", \"check\"")),
    (
        "docs/installing.md",
        "switchback doctor",
        ("crates/cli/tests/documents.rs", "script.take(readme, \"switchback doctor\")"),
    ),
    ("docs/installing.md", "apt-get remove", (PACKAGE, "\"--remove\", \"switchback\"")),
    ("docs/installing.md", "apt-get purge", (PACKAGE, "\"--purge\", \"switchback\"")),
    ("docs/operations.md", "ip link add vip0", (FROM_THE_SWITCH, "\"ip link add vip0\"")),
    ("docs/operations.md", "ethtool -K vip0", (FROM_THE_SWITCH, "\"ip link add vip0\"")),
    ("docs/operations.md", "ip route add", (FROM_THE_SWITCH, "\"ip link add vip0\"")),
    // In a short form.
    (
        "docs/benchmarks.md",
        "switchback lab run all",
        ("crates/cli/tests/experiments.rs", "fn one_that_fails_does_not_keep_the_others_from_running()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run dwsr-table1",
        ("crates/cli/tests/experiments.rs", "fn proxies_have_one_link()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run dwsr-table2",
        ("crates/cli/tests/experiments.rs", "fn responses_are_not_on_the_switchs_link()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run dwsr-table3",
        ("crates/cli/tests/experiments.rs", "fn functions_have_costs()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run far-clients",
        ("crates/cli/tests/experiments.rs", "fn far_clients_are_no_slower_than_with_a_server()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run resume --output",
        (
            "crates/cli/tests/experiments.rs",
            "fn downloads_go_on_when_their_node_dies_and_proxies_lose_theirs()",
        ),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run log-cost",
        ("crates/cli/tests/experiments.rs", "fn what_the_log_costs_is_compared_with_what_it_has_cost()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run connection-latency",
        ("crates/cli/tests/experiments.rs", "fn new_connections_get_answers_at_half_of_the_greatest_rate()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run report-cost",
        ("crates/cli/tests/experiments.rs", "fn a_switch_hears_a_thousand_nodes()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run greedy-clients",
        ("crates/cli/tests/experiments.rs", "fn greedy_clients_get_what_their_limit_allows()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run adoption-cost",
        ("crates/cli/tests/experiments.rs", "fn nodes_that_replay_handshakes_serve_the_same_loads()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run resume-cost",
        ("crates/cli/tests/experiments.rs", "fn only_long_responses_are_reported_to_agents()"),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run tls-forwarding",
        (
            "crates/cli/tests/experiments.rs",
            "fn sessions_are_reused_where_clients_get_to_their_node_and_busy_nodes_hand_over()",
        ),
    ),
    (
        "docs/benchmarks.md",
        "switchback lab run tls-proxies",
        ("crates/cli/tests/experiments.rs", "fn every_system_that_ends_tls_answers()"),
    ),
    (
        "docs/scale-out.md",
        "switchback lab run switch-failover",
        ("crates/cli/tests/experiments.rs", "fn switches_die_and_clients_keep_their_connections()"),
    ),
    (
        "docs/reliability.md",
        "switchback lab run soak",
        ("crates/cli/tests/experiments.rs", "fn nothing_is_lost_and_nothing_grows()"),
    ),
    (
        "docs/simulator.md",
        "switchback lab run calibrate",
        ("crates/cli/tests/experiments.rs", "fn costs_are_measured_and_the_simulator_takes_them()"),
    ),
    ("docs/simulator.md", "switchback check", (SIM, "\"check\", text(&path)")),
    ("docs/simulator.md", "switchback sim run", (SIM, "fn a_scenario_gives_the_same_numbers_every_time()")),
    ("docs/simulator.md", "switchback sim plan", (SIM, "fn a_plan_says_what_saturates_first()")),
    ("docs/simulator.md", "switchback sim policies --nodes 16 --output", (SIM, "\"policies\", \"--nodes\"")),
    ("docs/simulator.md", "switchback sim policies --nodes 16 --mix", (SIM, "\"--mix\", \"half-slow\"")),
    ("docs/policies.md", "switchback sim policies --nodes 16 --ahead", (SIM, "\"--ahead\", \"8\"")),
    ("docs/simulator.md", "switchback sim tls", (SIM, "\"tls\", \"--requests\"")),
    ("docs/simulator.md", "switchback sim split", (SIM, "\"split\", \"--most\"")),
];
/// The page whose commands are all run by `tests/cookbook.rs`.
const COOKBOOK: &str = "docs/cookbook.md";
/// The section that lists the commands with a mark.
const LIMITS: &str = "## Commands that no test runs\n";

/// A command in a document, as a shell takes it: one line, or several if they belong together.
pub struct Step {
    pub place: String,
    file: String,
    pub text: String,
    not_run: Option<String>,
}

/// What the documents say. A command that somebody has dealt with is gone from `steps`.
pub struct Script {
    pub steps: Vec<Step>,
    code: Vec<Code>,
}

impl Script {
    pub fn read() -> Result<Script> {
        let code = markdown::all_code();
        let mut steps = Vec::new();
        for block in code.iter().filter(|code| code.is_commands()) {
            let (mut text, mut first) = (String::new(), 0);
            for (number, line) in block.text.lines().enumerate() {
                if text.is_empty() {
                    first = block.line + number;
                }
                text += line;
                if line.ends_with('\\') || !is_whole(&text)? {
                    text.push('\n');
                    continue;
                }
                let text = std::mem::take(&mut text);
                if !text.trim().is_empty() && block.file != COOKBOOK {
                    let (file, not_run) = (block.file.clone(), block.not_run.clone());
                    steps.push(Step { place: format!("{file}:{first}"), file, text, not_run });
                }
            }
            assert!(text.is_empty(), "{}:{first}: no shell takes {text:?}", block.file);
        }
        Ok(Script { steps, code })
    }

    /// The command of this document that begins so.
    pub fn take(&mut self, file: &str, beginning: &str) -> String {
        let fits =
            |step: &Step| step.file == file && step.not_run.is_none() && step.text.starts_with(beginning);
        let at = self.steps.iter().position(fits);
        let at =
            at.unwrap_or_else(|| panic!("{file} has no command any more that begins with {beginning:?}"));
        self.steps.remove(at).text
    }

    /// A configuration of this document, by something that is in it.
    pub fn configuration(&self, file: &str, part: &str) -> &str {
        let fits = |code: &&Code| {
            code.file == file && code.language.as_deref() == Some("toml") && code.text.contains(part)
        };
        &self.code.iter().find(fits).unwrap_or_else(|| panic!("{file} has no TOML with {part:?}")).text
    }

    /// A command in the text of this document.
    pub fn in_text(&self, file: &str, beginning: &str) -> &str {
        let fits =
            |code: &&Code| code.file == file && code.language.is_none() && code.text.starts_with(beginning);
        &self.code.iter().find(fits).unwrap_or_else(|| panic!("{file} does not say {beginning:?}")).text
    }

    /// Who is said to run a command has to be there.
    pub fn run_elsewhere(&mut self) -> Result {
        for (file, beginning, (by, part)) in ELSEWHERE {
            self.take(file, beginning);
            let text = fs::read_to_string(markdown::repository().join(by))
                .map_err(|error| format!("{by}, which is to run {beginning:?}: {error}"))?;
            assert!(text.contains(part), "{by}, which is to run {beginning:?}, has no {part:?}");
        }
        Ok(())
    }

    /// Those with a mark are listed among the limits, and nothing else is.
    pub fn not_run(&mut self) -> Result {
        let marked = self.steps.extract_if(.., |step| step.not_run.is_some());
        let mut wanted: Vec<String> = marked
            .map(|Step { file, text, not_run, .. }| {
                let text = text.split_once(" # ").map_or(&text[..], |(command, _)| command);
                let text = text.replace("\\\n", " ").split_whitespace().collect::<Vec<_>>().join(" ");
                let page = file.trim_start_matches("docs/").trim_end_matches(".md");
                format!("| `{text}` | [{page}]({page}.md) | {} |", not_run.unwrap_or_default())
            })
            .collect();
        let limits = fs::read_to_string(markdown::repository().join("docs/limits.md"))?;
        let (_, section) = limits.split_once(LIMITS).ok_or("docs/limits.md has no list of commands")?;
        let section = section.split("\n#").next().unwrap_or_default();
        let mut listed: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
        wanted.sort();
        listed.sort_unstable();
        assert_eq!(listed, wanted, "docs/limits.md has to list:\n{}", wanted.join("\n"));
        Ok(())
    }
}

/// Whether a shell could run this as it is.
fn is_whole(text: &str) -> Result<bool> {
    let checked = Command::new("sh").args(["-n", "-c", text]).stderr(Stdio::null()).status()?;
    Ok(checked.success())
}
