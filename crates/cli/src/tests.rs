//! Command lines in the documents are accepted by this program, whether a test runs them or not.

use std::collections::BTreeSet;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use crate::Cli;

#[path = "../tests/common/markdown.rs"]
#[allow(dead_code)] // tests/documents.rs uses the rest
mod markdown;

/// Labels of key derivation, which begin like commands.
const LABELS: [&str; 3] = ["switchback handoff v1", "switchback client v1", "switchback cookie v1"];
/// Programs to which `switchback` is a file or a package.
const INSTALLERS: [&str; 2] = ["apt-get", "install"];
/// Operators that end a command in a shell.
const OPERATORS: [&str; 4] = ["|", "||", "&&", ";"];

/// The `switchback` command lines in a shell's text, without the program's name, nested ones included.
fn ours(text: &str) -> Vec<Vec<String>> {
    let lines = text.replace("\\\n", " ");
    let lines = lines.lines().map(|line| shlex::split(line).unwrap_or_else(|| panic!("no words: {line}")));
    let commands = lines.flat_map(|words| {
        let parts = words.split(|word| OPERATORS.contains(&word.as_str()));
        parts.map(<[String]>::to_vec).collect::<Vec<_>>()
    });
    let is_ours = |word: &String| word == "switchback" || word.ends_with("/switchback");
    let from = |words: Vec<String>| -> Vec<Vec<String>> {
        let starts = words.iter().enumerate().filter(|(_, word)| is_ours(word));
        starts.map(|(at, _)| words[at + 1..].to_vec()).collect()
    };
    let runs = |words: &Vec<String>| words.first().is_some_and(|first| !INSTALLERS.contains(&&first[..]));
    commands.filter(runs).flat_map(from).collect()
}

/// The mistakes in the `switchback` command lines of a shell's text.
pub fn mistakes(text: &str) -> Vec<String> {
    ours(text).iter().filter_map(|words| mistake(words, true)).collect()
}

/// The mistake in the words after the program's name. Unless `whole`, required arguments may be missing.
fn mistake(words: &[String], whole: bool) -> Option<String> {
    let program = ["switchback".to_owned()];
    let error = Cli::command().try_get_matches_from(program.iter().chain(words)).err()?;
    let incomplete = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    let answers = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
    let is_mistake = !answers.contains(&error.kind()) && (whole || !incomplete.contains(&error.kind()));
    is_mistake.then(|| error.to_string())
}

/// The long options of a command and all its subcommands.
fn options(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_long()).map(str::to_owned);
    own.chain(command.get_subcommands().flat_map(options)).collect()
}

#[test]
fn every_command_line_in_the_documents_is_valid() {
    let mut count = 0;
    let mut mistakes = Vec::new();
    for code in markdown::all_code() {
        let is_block = code.language.is_some();
        let is_shell = code.is_commands() || code.language.as_deref() == Some("ini");
        let is_span = !is_block && code.text.starts_with("switchback ") && !LABELS.contains(&&code.text[..]);
        if !is_shell && !is_span {
            continue;
        }
        for words in ours(&code.text) {
            count += 1;
            let found = mistake(&words, is_block);
            let place = format!("{}:{}: {}", code.file, code.line, words.join(" "));
            mistakes.extend(found.map(|what| format!("{place}: {what}")));
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(count > 80, "{count}: have the documents been read?");
}

#[test]
fn every_option_that_the_documents_name_exists() {
    let known = options(&Cli::command());
    let spans = markdown::all_code().into_iter().filter(|code| code.language.is_none());
    // Options of other programs follow that program's name.
    let unknown = spans.filter(|code| {
        let mut words = code.text.split_whitespace();
        code.text.starts_with("--")
            && words.any(|word| word.strip_prefix("--").is_some_and(|option| !known.contains(option)))
    });
    let unknown: Vec<String> =
        unknown.map(|code| format!("{}:{}: {}", code.file, code.line, code.text)).collect();
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}
