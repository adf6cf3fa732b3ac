//! `documents`: manual pages, completions and a JSON Schema, generated from the definitions of the command line and the
//! configuration, and not committed.

mod completions;
mod examples;
mod man;

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};

use crate::failure::Failure;

const SCHEMA: &str = "switchback/cluster.schema.json";

/// Write the manual pages, the completions for bash, zsh and fish, and a JSON Schema of cluster.toml
///
/// The packages have them.
#[derive(Args)]
pub struct Documents {
    /// Below which directory, such as /usr/local/share
    directory: PathBuf,
}

impl Documents {
    pub fn run(self, program: Command) -> Result<(), Failure> {
        for (name, text) in documents(&program) {
            let path = self.directory.join(name);
            let written =
                path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
            written.map_err(|error| Failure::system(format!("write {}: {error}", path.display())))?;
        }
        Ok(())
    }
}

/// The program without its hidden commands, which clap's completions would offer.
fn visible(program: &Command) -> Command {
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("switchback")
        .about(program.get_about().cloned().unwrap_or_default())
        .long_about(program.get_long_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .subcommands(commands)
}

/// All documents, with their names.
fn documents(program: &Command) -> Vec<(String, Vec<u8>)> {
    let program = visible(program);
    let mut all = completions::completions(&program);
    all.push((SCHEMA.to_owned(), switchback_config::schema().into_bytes()));
    all.extend(man::pages(program));
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::process::{Command, Stdio};

    use clap::CommandFactory;

    use super::documents;
    use crate::Cli;

    /// Output of a command that reads `input`.
    pub(super) fn said(words: &[&str], input: &[u8]) -> String {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{words:?}: {error}"));
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{words:?}: {text}");
        text
    }

    pub(super) fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_document_is_there_once_and_none_of_hidden_commands() {
        let names: Vec<String> = documents(&Cli::command()).into_iter().map(|(name, _)| name).collect();
        let different: BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
        for expected in [
            "bash-completion/completions/switchback",
            "fish/vendor_completions.d/switchback.fish",
            "man/man1/switchback-lab-up.1",
            "man/man1/switchback.1",
            "man/man5/client.toml.5",
            "man/man5/cluster.toml.5",
            "switchback/cluster.schema.json",
            "zsh/site-functions/_switchback",
        ] {
            assert!(names.iter().any(|name| name == expected), "{expected}");
        }
        assert!(!names.iter().any(|name| name.contains("node-names")), "{names:?}");
    }
}
