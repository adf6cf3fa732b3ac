//! Manual pages: of every command from clap's definitions, of the files from the reference of the configuration.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, line_break, roman};
use switchback_config::{FileReference, KeyReference, TableReference};

use super::examples::{EXAMPLES, FILES};

const SOURCE: &str = concat!("switchback ", env!("CARGO_PKG_VERSION"));
/// Documents with examples of the files: one in which the file has this part.
const CONFIGURATIONS: [(&str, &str, &str); 2] = [
    ("cluster.toml", include_str!("../../../../README.md"), "[cluster]"),
    ("client.toml", include_str!("../../../../docs/client.md"), "services"),
];

/// All pages with their files.
pub(super) fn pages(program: Command) -> Vec<(String, Vec<u8>)> {
    let program = for_pages(program);
    let commands = with_pages(&program).into_iter().map(page);
    commands.chain(switchback_config::files().iter().map(page_of_file)).collect()
}

/// Completes the definitions, without `help`, which needs no page.
pub(super) fn for_pages(program: Command) -> Command {
    let mut program = program.disable_help_subcommand(true).bin_name("switchback");
    program.build();
    program
}

/// The command and all its subcommands.
pub(super) fn with_pages(command: &Command) -> Vec<&Command> {
    [command].into_iter().chain(command.get_subcommands().flat_map(with_pages)).collect()
}

fn page(command: &Command) -> (String, Vec<u8>) {
    let man = Man::new(command.clone()).source(SOURCE).manual("Switchback");
    let mut text = Vec::new();
    let written = man.render(&mut text).and_then(|()| ending(command).to_writer(&mut text));
    written.expect("memory can be written to");
    (format!("man/man1/{}", man.get_filename()), text)
}

/// The last sections of a page. The page of `switchback` itself lists all files.
fn ending(command: &Command) -> Roff {
    let mut roff = Roff::default();
    let name = command.get_bin_name().unwrap_or_default();
    let is_first = name == "switchback";
    let mut examples = EXAMPLES.iter().filter(|(of, ..)| *of == name).peekable();
    if examples.peek().is_some() {
        roff.control("SH", ["EXAMPLES"]);
    }
    for (_, line, what) in examples {
        roff.control("TP", []).text([bold(*line)]).text([roman(*what)]);
    }
    let is_used =
        |commands: &[&str]| is_first || commands.iter().any(|of| name == format!("switchback {of}"));
    let files: Vec<_> = FILES.iter().filter(|(.., commands)| is_used(commands)).collect();
    if !files.is_empty() {
        roff.control("SH", ["FILES"]);
    }
    for (path, what, _) in &files {
        roff.control("TP", []).text([bold(*path)]).text([roman(*what)]);
    }
    let mut others = if is_first { Vec::new() } else { vec!["switchback(1)".to_owned()] };
    let described = switchback_config::files().map(|file| file.name);
    let described = described.into_iter().filter(|name| files.iter().any(|(path, ..)| path.ends_with(name)));
    others.extend(described.map(|name| format!("{name}(5)")));
    see_also(&mut roff, &others);
    roff
}

fn see_also(roff: &mut Roff, pages: &[String]) {
    roff.control("SH", ["SEE ALSO"]);
    for page in pages {
        let (name, section) = page.split_once('(').expect("a page has a section");
        roff.text([bold(name), roman(format!("({section},"))]);
    }
    roff.text([roman("the documentation in /usr/share/doc/switchback")]);
}

fn page_of_file(FileReference { name, what, tables }: &FileReference) -> (String, Vec<u8>) {
    let mut roff = Roff::default();
    roff.control("TH", [name, "5", "", SOURCE, "Switchback"]);
    roff.control("SH", ["NAME"]).text([roman(format!("{name} - {}", what.trim_end_matches('.')))]);
    roff.control("SH", ["SYNOPSIS"]).text([roman(format!("/etc/switchback/{name}"))]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman("A file in TOML, with the tables and keys below.")]);
    roff.text(inlines(&switchback_config::NOTATION.replace("**", "`")));
    roff.control("SH", [if tables.len() > 1 { "TABLES" } else { "KEYS" }]);
    tables.iter().for_each(|table| describe(&mut roff, table));
    roff.control("SH", ["EXAMPLES"]).control("EX", []);
    for line in example(name).lines() {
        roff.text([roman(line)]);
    }
    roff.control("EE", []);
    see_also(&mut roff, &["switchback(1)", "switchback-check(1)"].map(str::to_owned));
    (format!("man/man5/{name}.5"), roff.to_roff().into_bytes())
}

fn describe(roff: &mut Roff, TableReference { title, what, keys }: &TableReference) {
    if !title.is_empty() {
        roff.control("SS", [&title[..]]).text(inlines(what));
    }
    for KeyReference { name, kind, absent, allowed, what } in keys {
        let mut tag = vec![bold(name), roman(" (")];
        tag.extend(inlines(kind));
        tag.push(roman(if absent == "required" { "), required" } else { ")" }));
        roff.control("TP", []).text(tag);
        let mut text = inlines(what);
        let absent = Some(absent).filter(|absent| !absent.is_empty() && *absent != "required");
        for (title, words) in [("Allowed: ", Some(allowed)), ("If absent: ", absent)] {
            let words = words.filter(|words| !words.is_empty());
            text.extend(words.into_iter().flat_map(|words| {
                [line_break(), roman(title)].into_iter().chain(inlines(words)).chain([roman(".")])
            }));
        }
        roff.text(text);
    }
}

/// Markdown that has code and nothing else.
fn inlines(markdown: &str) -> Vec<Inline> {
    let text = markdown.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(index, part)| if index % 2 == 0 { roman(part) } else { bold(part) }).collect()
}

/// The example of a file in the documents.
fn example(name: &str) -> &'static str {
    let found = CONFIGURATIONS.iter().find(|(file, ..)| *file == name);
    let (_, document, part) = found.expect("each file has an example");
    let blocks = document.split("```toml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    blocks.into_iter().find(|block| block.contains(part)).expect("the document has it")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::super::tests::{said, words};
    use super::super::visible;
    use super::*;
    use crate::Cli;

    /// A page as shown on a wide screen, its words separated by single spaces.
    fn shown(page: &[u8]) -> String {
        words(&said(&["groff", "-man", "-Tutf8", "-Kutf8", "-P-cbou", "-rLL=250n"], page))
    }

    #[test]
    fn every_command_has_a_page_with_all_its_options() {
        let program = for_pages(visible(&Cli::command()));
        for command in with_pages(&program) {
            let (file, text) = page(command);
            let name = command.get_display_name().unwrap_or("switchback");
            assert_eq!(file, format!("man/man1/{name}.1"));
            let shown = shown(&text);
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
    fn examples_and_files_are_on_the_pages_of_their_commands() {
        let program = for_pages(visible(&Cli::command()));
        let all = with_pages(&program);
        let page_of = |name: &str| {
            let command = all.iter().find(|command| command.get_bin_name() == Some(name));
            shown(&page(command.unwrap_or_else(|| panic!("no command {name}"))).1)
        };
        for (name, line, what) in EXAMPLES {
            let page = page_of(name);
            assert!(
                page.contains(" EXAMPLES ") && page.contains(line) && page.contains(what),
                "{name}: {page}"
            );
            assert_eq!(crate::tests::mistakes(line), Vec::<String>::new(), "{line}");
        }
        for (path, _, commands) in FILES {
            for name in commands {
                let page = page_of(&format!("switchback {name}"));
                assert!(page.contains(" FILES ") && page.contains(path), "{name}: {page}");
            }
            assert!(page_of("switchback").contains(path), "{path}");
        }
        assert!(page_of("switchback check").contains("cluster.toml(5)"));
    }

    #[test]
    fn the_pages_of_the_files_have_every_key_and_a_valid_example() {
        for file in switchback_config::files() {
            let (name, text) = page_of_file(&file);
            assert_eq!(name, format!("man/man5/{}.5", file.name));
            let shown = shown(&text);
            let plain = |text: &str| words(&text.replace('`', ""));
            for table in &file.tables {
                assert!(
                    shown.contains(&table.title) && shown.contains(&plain(&table.what)),
                    "{}",
                    table.title
                );
                for key in &table.keys {
                    let title = format!("{} ({})", key.name, plain(&key.kind));
                    let parts = [title, plain(&key.what), plain(&key.allowed), plain(&key.absent)];
                    for part in parts {
                        assert!(shown.contains(&part), "{part:?} is not in {shown}");
                    }
                }
            }
            assert!(shown.contains(&words(example(&file.name))), "{shown}");
        }
        let cluster =
            switchback_config::parse(example("cluster.toml"), Path::new("cluster.toml"), |_| Ok(Vec::new()));
        assert!(cluster.is_ok_and(|cluster| !cluster.services.is_empty()));
    }

    #[test]
    fn groff_has_nothing_to_say_of_the_pages() {
        for (name, text) in pages(visible(&Cli::command())) {
            assert_eq!(said(&["groff", "-ww", "-man", "-z", "-Tutf8", "-Kutf8"], &text), "", "{name}");
        }
    }
}
