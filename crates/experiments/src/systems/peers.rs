//! Other releases of HAProxy and nginx than the installed ones. A distribution has releases that are years old; with newer
//! ones beside them, a measurement shows whether that makes a difference.

use std::path::Path;

use switchback_lab::{Error, Result};

use super::Proxy;
use super::system::{Release, System};
use crate::machine;

const FETCH: &str = "`make target/peers` puts HAProxy and nginx of Debian 13 into target/peers";

/// HAProxy and nginx in the directory's `bin`, and their versions.
pub(in super::super) fn peers(directory: &Path) -> Result<[(Proxy, String); 2]> {
    Ok([peer(directory, "haproxy", System::OtherHaproxy)?, peer(directory, "nginx", System::OtherNginx)?])
}

fn peer(directory: &Path, name: &str, system: fn(Release) -> System) -> Result<(Proxy, String)> {
    let program = directory.join("bin").join(name);
    let shown = program.display();
    if !program.is_file() {
        return Err(Error::NotFound(format!("{shown} is no program; {FETCH}")));
    }
    let version = machine::version(&program, "-v");
    let version = version.map_err(|error| Error::Invalid(format!("{error}; {FETCH}")))?;
    let release = Release::of(&version)
        .ok_or_else(|| Error::Invalid(format!("`{shown} -v` tells no version, but {version:?}; {FETCH}")))?;
    Ok((Proxy { system: system(release), program }, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_proxies_is_named_with_the_remedy() {
        let error = peers(Path::new("/nonexistent")).expect_err("there are no proxies").to_string();
        assert!(error.contains("/nonexistent/bin/haproxy is no program; `make target/peers`"), "{error}");
    }

    #[test]
    fn another_program_is_named_with_the_remedy() {
        let error = |directory, name| {
            let error = peer(Path::new(directory), name, System::OtherNginx).expect_err("it has no version");
            error.to_string()
        };
        // The second file is not executable.
        for (error, begins) in [
            (error("/", "true"), "`/bin/true -v` tells no version, but \"\"; "),
            (error("/", "/etc/passwd"), "start `/etc/passwd -v`: "),
        ] {
            assert!(error.contains(begins) && error.contains("; `make target/peers`"), "{error}");
        }
    }
}
