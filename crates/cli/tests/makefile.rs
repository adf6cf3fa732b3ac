//! What `make` does before it builds: it installs what the target needs, and says how to get Rust.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Result, markdown, said_by, write_script};

fn make(words: &[&str]) -> Command {
    let mut command = Command::new("make");
    // Options of the make that runs this test are not for this one.
    command.args(words).current_dir(markdown::repository()).env_remove("MAKEFLAGS").env_remove("MFLAGS");
    command
}

/// The packages that a target looks for, by their Debian names.
fn needs(target: &str) -> Result<BTreeSet<String>> {
    let commands = said_by(&mut make(&["--dry-run", target]))?;
    let lists =
        commands.lines().filter_map(|line| line.strip_prefix("for entry in ")?.strip_suffix("; do \\"));
    let entries = lists.flat_map(str::split_whitespace);
    Ok(entries.map(|entry| entry.rsplit(':').next().unwrap_or(entry).to_owned()).collect())
}

#[test]
fn each_target_installs_what_it_needs_and_no_more() -> Result {
    let [release, demo, bench, test] = ["release", "demo", "bench", "test"].map(needs);
    let (release, demo, bench, test) = (release?, demo?, bench?, test?);
    assert!(release.contains("clang") && !release.contains("nginx-light"), "{release:?}");
    assert!(demo.contains("nginx-light") && demo.contains("wrk"), "{demo:?}");
    for package in ["chromium", "default-jdk-headless", "php-fpm", "golang-go", "libclang-dev"] {
        assert!(test.contains(package), "{package}");
        assert!(!demo.contains(package) && !bench.contains(package), "{package}");
    }
    assert!(release.is_subset(&demo) && demo.is_subset(&bench) && bench.is_subset(&test));
    Ok(())
}

#[test]
fn a_missing_or_old_rust_is_told_with_the_command_that_brings_it() -> Result {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("old-rust");
    fs::create_dir_all(&directory)?;
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    for (found, is_enough) in [("1.87.9", false), (wanted, true), ("1.100.0", true)] {
        write_script(&directory.join("rustc"), &format!("#!/bin/sh\necho 'rustc {found} (0 2025-01-01)'\n"))?;
        let path = format!("{}:/usr/bin:/bin", directory.display());
        let output = make(&["rust"]).env("PATH", path).output()?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.success(), is_enough, "{found}: {said}");
        let tells = [wanted, found, "sh.rustup.rs", "rustup update"].iter().all(|part| said.contains(part));
        assert_eq!(tells, !is_enough, "{found}: {said}");
    }
    Ok(())
}
