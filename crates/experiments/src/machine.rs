//! The machine and the programs of a measurement.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use switchback_lab::{Doing, Error, Result};

/// The machine and the programs; each value is one line.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Names and values.
    pub facts: Vec<(String, String)>,
}

impl Machine {
    /// Collects the facts; an error if one of the programs, each with the argument that asks for its version, is
    /// missing.
    pub(super) fn look(programs: &[(&str, &str)]) -> Result<Machine> {
        let missing: Vec<&str> =
            programs.iter().map(|(program, _)| *program).filter(|program| find(program).is_none()).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(Error::NotFound(format!(
                "the measurement needs programs that are missing: {missing}"
            )));
        }
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        let mut facts = vec![
            (
                "Kernel".to_owned(),
                format!("Linux {} {}", setting("kernel/osrelease")?, std::env::consts::ARCH),
            ),
            ("CPU".to_owned(), format!("{cpus} × {}", cpu_model()?)),
            // New network namespaces inherit the setting, which affects large responses.
            ("TCP congestion control".to_owned(), setting("net/ipv4/tcp_congestion_control")?),
            ("switchback".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ];
        for (program, argument) in programs {
            facts.push(((*program).to_owned(), version(Path::new(program), argument)?));
        }
        Ok(Machine { facts })
    }

    /// The facts as a Markdown table.
    pub(super) fn table(&self) -> String {
        let facts = self.facts.iter().map(|(name, value)| format!("| {name} | {value} |\n"));
        format!("| Machine | |\n| --- | --- |\n{}", facts.collect::<String>())
    }
}

/// The path of a program in the PATH.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}

fn setting(name: &str) -> Result<String> {
    let path = format!("/proc/sys/{name}");
    let value = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    Ok(value.trim().to_owned())
}

/// The CPU's model, which some architectures do not name.
fn cpu_model() -> Result<String> {
    let path = "/proc/cpuinfo";
    let text = fs::read_to_string(path).doing(|| format!("read {path}"))?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut models = fields.filter(|(name, _)| name.trim() == "model name");
    Ok(models.next().map_or("unnamed model".to_owned(), |(_, model)| model.trim().to_owned()))
}

/// The first line of a program's version output, which may be on stderr, or with exit status 1.
pub(super) fn version(program: &Path, argument: &str) -> Result<String> {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    let output = output.doing(|| format!("start `{} {argument}`", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(first_sentence(&program.display().to_string(), &String::from_utf8_lossy(&text)))
}

/// The text without the program's name, copyright and address.
fn first_sentence(program: &str, text: &str) -> String {
    let line = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
    if let Some((_, build)) = line.split_once("  version: ") {
        // Envoy's, whose second part is the version.
        return build.split('/').nth(1).unwrap_or(build).to_owned();
    }
    let line = line.strip_prefix("nginx version: nginx/").unwrap_or(line);
    let line = line.strip_prefix("HAProxy version ").unwrap_or(line);
    let line = line.strip_prefix("Server version: Apache/").unwrap_or(line);
    let line = line.strip_prefix("nftables ").unwrap_or(line);
    let line = line.strip_prefix(program).unwrap_or(line).trim();
    let end = line.find(" [").or_else(|| line.find(" - http")).unwrap_or(line.len());
    line[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_what_is_left_of_the_first_line() {
        let cases = [
            ("nginx", "nginx version: nginx/1.22.1\n", "1.22.1"),
            ("wrk", "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\n", "debian/4.1.0-3+b2"),
            (
                "haproxy",
                "HAProxy version 2.6.12-1 2025/10/03 - https://haproxy.org/\nStatus:",
                "2.6.12-1 2025/10/03",
            ),
            ("apache2", "Server version: Apache/2.4.71 (Debian)\nServer built:", "2.4.71 (Debian)"),
            ("nft", "nftables v1.0.6 (Lester Gooch #5)\n", "v1.0.6 (Lester Gooch #5)"),
            ("envoy", "\nenvoy  version: 9e558093/1.40.0/Clean/RELEASE/BoringSSL\n\n", "1.40.0"),
            ("other", "", ""),
        ];
        for (program, text, expected) in cases {
            assert_eq!(first_sentence(program, text), expected);
        }
    }

    #[test]
    fn what_is_not_installed_is_named() {
        let error =
            Machine::look(&[("sh", "-c"), ("no-such-program", "-v")]).expect_err("it cannot be there");
        assert!(error.to_string().ends_with(": no-such-program"), "{error}");
    }
}
