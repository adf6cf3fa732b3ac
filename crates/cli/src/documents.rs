//! `documents`: manual pages, completions and a JSON Schema, generated from the definitions of the command line and the
//! configuration, and not committed.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::failure::Failure;

/// Directories of the shells' completions, below `/usr/local/share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/switchback"),
    (Shell::Zsh, "zsh/site-functions/_switchback"),
    (Shell::Fish, "fish/vendor_completions.d/switchback.fish"),
];
const PAGES: &str = "man/man1";
const SCHEMA: &str = "switchback/cluster.schema.json";

/// Files that the commands read and write.
const FILES: [(&str, &str); 4] = [
    (
        "/etc/switchback/cluster.toml",
        "The cluster, the same file on every machine; the package's units read it.",
    ),
    ("/etc/switchback/cluster.key", "The cluster key, readable by root only."),
    ("/run/switchback", "Sockets of the processes that run; status, reload and drain speak to them."),
    ("/sys/fs/bpf/switchback", "What goes on when a process is killed, until the next one takes it over."),
];

/// Write the manual pages, the completions for bash, zsh and fish, and a JSON Schema of cluster.toml
///
/// The Debian package has them.
#[derive(Args)]
pub struct Documents {
    /// Below which directory, such as /usr/local/share
    directory: PathBuf,
}

impl Documents {
    pub fn run(self, program: Command) -> Result<(), Failure> {
        for (name, text) in documents(program) {
            let path = self.directory.join(name);
            let written =
                path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
            written.map_err(|error| Failure::system(format!("write {}: {error}", path.display())))?;
        }
        Ok(())
    }
}

/// All documents, with their names.
fn documents(program: Command) -> Vec<(String, Vec<u8>)> {
    let completions = COMPLETIONS.map(|(shell, name)| {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut program.clone(), "switchback", &mut text);
        (name.to_owned(), text)
    });
    let schema = (SCHEMA.to_owned(), switchback_config::schema().into_bytes());
    let pages = for_pages(program);
    completions.into_iter().chain([schema]).chain(with_pages(&pages).into_iter().map(page)).collect()
}

/// Completes the definitions, without `help`, which needs no page.
fn for_pages(program: Command) -> Command {
    let mut program = program.disable_help_subcommand(true).bin_name("switchback");
    program.build();
    program
}

/// The command and all its subcommands.
fn with_pages(command: &Command) -> Vec<&Command> {
    [command].into_iter().chain(command.get_subcommands().flat_map(with_pages)).collect()
}

fn page(command: &Command) -> (String, Vec<u8>) {
    let source = concat!("switchback ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("Switchback");
    let mut text = Vec::new();
    let written = man.render(&mut text).and_then(|()| ending(command).to_writer(&mut text));
    written.expect("memory can be written to");
    (format!("{PAGES}/{}", man.get_filename()), text)
}

/// The last sections of a page. The page of `switchback` itself lists the files, and all others refer to it.
fn ending(command: &Command) -> Roff {
    let mut roff = Roff::default();
    let is_first = command.get_name() == "switchback";
    if is_first {
        roff.control("SH", ["FILES"]);
        for (path, what) in FILES {
            roff.control("TP", []).text([bold(path)]).text([roman(what)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    if !is_first {
        roff.text([bold("switchback"), roman("(1)")]);
    }
    roff.text([roman("The documentation in /usr/share/doc/switchback.")]);
    roff
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{self, Stdio};

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Output of a command that reads `input`.
    fn said(words: &[&str], input: &[u8]) -> String {
        let mut command = process::Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{words:?}: {error}"));
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{words:?}: {text}");
        text
    }

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_command_has_a_page_with_all_its_options() {
        let program = for_pages(Cli::command());
        for command in with_pages(&program) {
            let (file, text) = page(command);
            let name = command.get_display_name().unwrap_or("switchback");
            assert_eq!(file, format!("man/man1/{name}.1"));
            // As shown on a wide screen.
            let shown = words(&said(&["groff", "-man", "-Tascii", "-P-cbou", "-rLL=250n"], &text));
            let mut parts = vec![format!("{name} - {}", command.get_about().unwrap())];
            for argument in command.get_arguments() {
                parts.extend(argument.get_long().map(|long| format!("--{long}")));
                // The page's text about --help is that of a page.
                let help = argument.get_help().filter(|_| argument.get_id() != "help");
                parts.extend(help.map(ToString::to_string));
            }
            parts.extend(command.get_subcommands().map(|below| {
                format!("{}(1) {}", below.get_display_name().unwrap(), below.get_about().unwrap())
            }));
            for part in parts {
                assert!(shown.contains(&words(&part)), "{name}: {part:?} is not in {shown}");
            }
        }
    }

    #[test]
    fn each_document_is_there_once() {
        let program = for_pages(Cli::command());
        let mut expected: Vec<String> = COMPLETIONS.iter().map(|(_, name)| (*name).to_owned()).collect();
        expected.push(SCHEMA.to_owned());
        expected.extend(with_pages(&program).into_iter().map(|command| page(command).0));
        let written: Vec<String> = documents(Cli::command()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(written, expected);
    }

    #[test]
    fn groff_has_nothing_to_say_of_the_pages() {
        for command in with_pages(&for_pages(Cli::command())) {
            let (name, text) = page(command);
            assert_eq!(said(&["groff", "-ww", "-man", "-z", "-Tascii"], &text), "", "{name}");
        }
    }

    #[test]
    fn bash_completes_commands_and_options() {
        let documents = documents(Cli::command());
        let (_, completions) = documents.iter().find(|(name, _)| name.starts_with("bash")).unwrap();
        assert_eq!(said(&["bash", "-n"], completions), "");
        // One shell for all: it reads a line of words and prints the candidates for the last word.
        let script = "source \"$0\"
            while read -ra COMP_WORDS; do
                COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
                _switchback switchback \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"
                echo \"${COMPREPLY[@]}\"
            done";
        let program = for_pages(Cli::command());
        let mut questions = Vec::new();
        for command in with_pages(&program) {
            let name = command.get_bin_name().unwrap();
            let longs = command.get_arguments().filter_map(|argument| argument.get_long());
            questions.extend(longs.map(|long| (name, format!("--{long}"))));
            questions.extend(command.get_subcommands().map(|below| (name, below.get_name().to_owned())));
        }
        let lines: String = questions.iter().map(|(before, word)| format!("{before} {word}\n")).collect();
        let file = std::env::temp_dir().join(format!("switchback-completions-{}", process::id()));
        fs::write(&file, completions).unwrap();
        let answers = said(&["bash", "-c", script, file.to_str().unwrap()], lines.as_bytes());
        fs::remove_file(&file).unwrap();
        assert_eq!(answers.lines().count(), questions.len(), "{answers}");
        for ((before, word), answer) in questions.iter().zip(answers.lines()) {
            assert!(answer.split(' ').any(|candidate| candidate == word), "{before} {word}: {answer}");
        }
    }
}
