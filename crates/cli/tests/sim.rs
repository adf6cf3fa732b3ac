//! The simulator's commands, as in `docs/simulator.md`, in a short form.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{PROGRAM, Result, markdown, text};

/// A directory of its own for a test.
fn directory(name: &str) -> Result<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{name}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn sim(words: &[&str]) -> Result<Output> {
    Ok(Command::new(PROGRAM).arg("sim").args(words).output()?)
}

fn stdout(words: &[&str]) -> Result<String> {
    let output = sim(words)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The scenario of the docs, but for less time.
fn scenario(directory: &Path) -> Result<PathBuf> {
    let code = markdown::all_code();
    let block =
        code.iter().find(|block| block.file == "docs/simulator.md" && block.text.contains("[arrivals]"));
    let written = &block.ok_or("docs/simulator.md has no scenario")?.text;
    let path = directory.join("scenario.toml");
    let short =
        written.replace("seconds = 30", "seconds = 2").replace("replications = 5", "replications = 2");
    assert_ne!(*written, short);
    fs::write(&path, short)?;
    Ok(path)
}

#[test]
fn a_scenario_gives_the_same_numbers_every_time() -> Result {
    let directory = directory("run")?;
    let path = scenario(&directory)?;
    let checked = Command::new(PROGRAM).args(["check", text(&path)]).output()?;
    assert_eq!(String::from_utf8(checked.stdout)?, "ok: 8 nodes, 7 s, 2 replications\n");
    let csv = directory.join("runs.csv");
    let said = stdout(&["run", text(&path), "--json", "--csv", text(&csv)])?;
    let numbers: serde_json::Value = serde_json::from_str(&said)?;
    let mean = |name: &str| numbers[name]["mean"].as_f64();
    assert!(mean("answered") > Some(1000.0) && mean("refused") == Some(0.0), "{said}");
    assert_eq!(said, stdout(&["run", text(&path), "--json"])?);
    let shown = stdout(&["run", text(&path)])?;
    let row = shown.lines().find_map(|line| line.strip_prefix("latency, median")).ok_or("no median")?;
    let shown = row.split_whitespace().collect::<Vec<_>>();
    let median = mean("latency_p50_s").ok_or("no median")? * 1e3;
    assert!((shown[0].parse::<f64>()? - median).abs() < 0.01 && shown[1] == "ms", "{row}, {median}");
    let lines = fs::read_to_string(&csv)?;
    assert_eq!(lines.lines().count(), 3, "{lines}");
    Ok(())
}

#[test]
fn a_plan_says_what_saturates_first() -> Result {
    let path = scenario(&directory("plan")?)?;
    let plan = stdout(&["plan", text(&path), "--p99-ms", "50"])?;
    assert!(plan.contains(" nodes, ") && plan.contains("What saturates first: "), "{plan}");
    let output = sim(&["plan", text(&path), "--p99-ms", "0.001", "--nodes-max", "2"])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("even 2 nodes do not answer"), "{output:?}");
    Ok(())
}

#[test]
fn each_series_writes_its_files() -> Result {
    let directory = directory("series")?;
    let out = ["--replications", "2", "--output", text(&directory)];
    for (words, files) in [
        (
            &["tls", "--requests", "2000"][..],
            &["sim-tls.md", "sim-tls-latency.svg", "sim-tls-throughput.png"][..],
        ),
        (&["split", "--most", "2"], &["sim-split.csv", "sim-split.svg"]),
        (&["policies", "--nodes", "4", "--requests", "2000"], &["sim-policies.csv", "sim-policies.png"]),
        (&["policies", "--nodes", "4", "--requests", "2000", "--mix", "half-slow"], &["sim-policies.md"]),
        (&["policies", "--nodes", "4", "--requests", "2000", "--ahead", "8"], &["sim-policies.md"]),
    ] {
        let said = stdout(&[words, &out].concat())?;
        assert!(said.contains("| ---: |"), "{said}");
        for file in files {
            assert!(directory.join(file).metadata()?.len() > 100, "{file}");
            fs::remove_file(directory.join(file))?;
        }
    }
    Ok(())
}

#[test]
fn what_is_wrong_has_its_place() -> Result {
    let directory = directory("wrong")?;
    let path = directory.join("scenario.toml");
    fs::write(&path, "[arrivals]\nper_second = 10\n\n[nodes]\n")?;
    let wrong = sim(&["run", text(&path)])?;
    let said = String::from_utf8(wrong.stderr)?;
    assert_eq!(wrong.status.code(), Some(1), "{said}");
    assert_eq!(
        said,
        format!("{}:4:1: nodes is a table, allowed is a list of tables: [[nodes]]\n", text(&path))
    );
    let missing = sim(&["run", "/nonexistent.toml"])?;
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8(missing.stderr)?.contains("read /nonexistent.toml: No such file"));
    Ok(())
}
