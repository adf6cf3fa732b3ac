//! Tables of `docs/wire-format.md`, made from the comments of the headers.

use std::fmt::Write;

use crate::header::{Entry, Header};

/// Names of the page's blocks: structures and enums by their own names, and tables of other kinds.
pub const BLOCKS: [&str; 30] = [
    "operations",
    "flags",
    "reasons",
    "payloads",
    "settled options",
    "struct sb_option",
    "struct sb_flow_state",
    "struct sb_handover",
    "struct sb_outcome",
    "struct sb_confirmed",
    "struct sb_move",
    "struct sb_death",
    "struct sb_kept",
    "struct sb_hello",
    "struct sb_sync",
    "struct sb_report",
    "struct sb_numbered",
    "struct sb_size",
    "struct sb_direct",
    "struct sb_second",
    "struct sb_records",
    "struct sb_fact",
    "enum sb_end",
    "struct sb_listed",
    "struct sb_switch_heard",
    "enum sb_switch_state",
    "struct sb_tag_input",
    "struct sb_introduction",
    "struct sb_introduction_input",
    "struct sb_told_fingerprint",
];

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

/// The page with all blocks made anew; what is not between their marks stays.
pub fn rewrite(page: &str, header: &Header) -> String {
    let mut out = String::new();
    let mut lines = page.lines();
    let mut left = BLOCKS.to_vec();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        let at = left.iter().position(|block| *block == name);
        left.remove(at.unwrap_or_else(|| panic!("the page has the block {name} twice, or nobody knows it")));
        assert!(lines.any(|line| line == END), "the block {name} of the page has no end");
        writeln!(out, "\n{}\n{END}", table(name, header)).unwrap();
    }
    assert!(left.is_empty(), "the page has no block {left:?}");
    out
}

fn table(name: &str, header: &Header) -> String {
    match name {
        "operations" => operations(header),
        "flags" => flags(header),
        "reasons" => reasons(header),
        "payloads" => payloads(header),
        "settled options" => settled(header),
        name if name.starts_with("enum ") => numbers(name, header),
        name => fields(name, header),
    }
}

fn rows(title: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = format!("| {} |\n|{}\n", title.join(" | "), "---|".repeat(title.len()));
    for row in rows {
        writeln!(out, "| {} |", row.join(" | ")).unwrap();
    }
    out
}

/// The comment of an entry, which must have one.
fn comment(entry: &Entry) -> &str {
    assert!(!entry.comment.is_empty(), "{} has no comment", entry.name);
    &entry.comment
}

/// Sentences in a table end without a period.
fn cell(text: &str) -> String {
    text.trim_end_matches('.').replace('|', "\\|")
}

fn short(entry: &Entry, prefix: &str) -> String {
    entry.name.strip_prefix(prefix).unwrap_or_else(|| panic!("{} is no {prefix}", entry.name)).to_owned()
}

/// A table for each direction, in the order of the header.
fn operations(header: &Header) -> String {
    let mut entries: Vec<&Entry> = header.block("enum sb_op").entries.iter().collect();
    let mut directions: Vec<&str> = entries.iter().map(|entry| entry.direction.as_str()).collect();
    directions.dedup();
    entries.sort_by_key(|entry| header.number(&entry.value));
    let table = |direction: &str| {
        let entries = entries.iter().filter(|entry| entry.direction == direction);
        let rows = rows(
            &["operation", "number", "meaning", "inner packet"],
            entries.map(|entry| {
                let says = comment(entry).split_once(" Inner packet: ");
                let (meaning, inner) = says.unwrap_or_else(|| panic!("{}: no inner packet", entry.name));
                vec![short(entry, "SB_OP_"), entry.value.clone(), cell(meaning), cell(inner)]
            }),
        );
        format!("From {direction}:\n\n{rows}")
    };
    directions.into_iter().map(table).collect::<Vec<_>>().join("\n")
}

/// A comment that says first in which operations its entry occurs.
fn occurrence(entry: &Entry) -> (String, String) {
    let (operations, meaning) =
        comment(entry).split_once(": ").unwrap_or_else(|| panic!("{}: in which operations?", entry.name));
    (cell(operations), cell(meaning))
}

/// Constants that are one bit each, and whose names begin with one of the prefixes, in the order of the header.
fn bits<'a>(header: &'a Header, prefixes: &'a [&str]) -> impl Iterator<Item = (&'a Entry, &'a str)> {
    header.constants.iter().filter_map(|entry| {
        let name = prefixes.iter().find_map(|prefix| entry.name.strip_prefix(prefix))?;
        header.number(&entry.value).is_power_of_two().then_some((entry, name))
    })
}

fn flags(header: &Header) -> String {
    let flags = bits(header, &["SB_HANDOVER_", "SB_RELEASE_", "SB_HELLO_", "SB_DIRECT_"]);
    rows(
        &["bit", "flag", "in", "meaning"],
        flags.map(|(flag, name)| {
            let (operations, meaning) = occurrence(flag);
            vec![flag.value.clone(), name.to_owned(), operations, meaning]
        }),
    )
}

fn settled(header: &Header) -> String {
    let options = bits(header, &["SB_SYN_"]);
    rows(
        &["bit", "option", "meaning"],
        options.map(|(bit, name)| vec![bit.value.clone(), name.to_owned(), cell(comment(bit))]),
    )
}

fn payloads(header: &Header) -> String {
    rows(
        &["operations", "payload"],
        header.block("union sb_payload").entries.iter().map(|member| {
            let structure = member.kind.trim_start_matches("struct ");
            vec![cell(comment(member)), format!("`{structure}`")]
        }),
    )
}

fn reasons(header: &Header) -> String {
    rows(
        &["reason", "number", "in", "meaning"],
        header.block("enum sb_reason").entries.iter().map(|reason| {
            let (operations, meaning) = occurrence(reason);
            vec![short(reason, "SB_REASON_"), reason.value.clone(), operations, meaning]
        }),
    )
}

fn numbers(name: &str, header: &Header) -> String {
    let entries = header.block(name).entries.iter();
    rows(&["number", "meaning"], entries.map(|entry| vec![entry.value.clone(), cell(comment(entry))]))
}

fn fields(name: &str, header: &Header) -> String {
    rows(
        &["offset", "length", "field", "meaning"],
        header.fields(name).into_iter().map(|field| {
            assert!(!field.comment.is_empty(), "{name}: {} has no comment", field.name);
            let (offset, len) = (field.offset.to_string(), field.len.to_string());
            vec![offset, len, format!("`{}`", field.name), cell(field.comment)]
        }),
    )
}
