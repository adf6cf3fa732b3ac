//! One experiment, from the lab to the files of its report.

use std::path::{Path, PathBuf};

use switchback_experiments::{Experiment, Options, Report, Results};
use switchback_lab::Error;

use super::progress::Shown;
use crate::failure::Failure;

/// The exit status after SIGINT, as shells report it.
const INTERRUPTED: u8 = 130;

/// Runs an experiment, prints its tables, and returns the paths of its files; an error if the measurements show what they
/// must not.
pub(super) fn measure<E: Experiment>(
    experiment: &E,
    options: &Options,
    output: &Path,
) -> switchback_lab::Result<Vec<PathBuf>>
where
    Results<E::Sample>: Report<Sample = E::Sample>,
{
    let mut progress = Shown::new(E::NAME);
    let results = experiment.run(options, &mut progress)?;
    // The bar is removed before anything else is printed.
    drop(progress);
    print!("{}", results.summary());
    // Before the files are written: one of them may take the place of the one that is compared with.
    let comparison = experiment.comparison(&results);
    let written = results.write(output, E::NAME)?;
    written.iter().for_each(|path| eprintln!("{} written", path.display()));
    match comparison?.as_str() {
        "" => {}
        text => print!("\n{text}"),
    }
    results.failure().map_or(Ok(written), |failure| Err(Error::Invalid(failure)))
}

/// The running `switchback` binary.
pub(super) fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::system(format!("find this program's own file: {error}")))
}

/// The failure of a command whose experiment fails.
pub(super) fn failure(error: Error) -> Failure {
    match error {
        // ^C needs no message.
        Error::TornDown => Failure::silent(INTERRUPTED),
        error => error.into(),
    }
}
