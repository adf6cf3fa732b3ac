//! Tables of `docs/wire-format.md`, made from the comments of the headers.

use std::fmt::Write;

use crate::header::{Entry, Header};

/// Names of the page's blocks: structures and enums by their own names, and tables of other kinds.
pub const BLOCKS: [&str; 12] = [
    "operations",
    "flags",
    "reasons",
    "report",
    "struct sb_option",
    "struct sb_second",
    "struct sb_facts",
    "struct sb_fact",
    "enum sb_end",
    "struct sb_tag_input",
    "struct sb_introduction",
    "struct sb_introduction_input",
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
        "report" => report(header),
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

fn flags(header: &Header) -> String {
    let is_flag = |entry: &&Entry| {
        (entry.name.starts_with("SB_SYN_") || entry.name.starts_with("SB_FLAG_"))
            && header.number(&entry.value).is_power_of_two()
    };
    let mut flags: Vec<&Entry> = header.constants.iter().filter(is_flag).collect();
    flags.sort_by_key(|flag| header.number(&flag.value));
    rows(
        &["bit", "flag", "in", "meaning"],
        flags.into_iter().map(|flag| {
            let name = flag.name.trim_start_matches("SB_SYN_").trim_start_matches("SB_FLAG_").to_owned();
            let (operations, meaning) = occurrence(flag);
            vec![flag.value.clone(), name, operations, meaning]
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

/// The list in the comment of `struct sb_option`: a field, two spaces or more, and what it means, over several lines.
fn report(header: &Header) -> String {
    let mut out: Vec<Vec<String>> = Vec::new();
    for line in header.block("struct sb_option").comment.iter().filter(|line| line.starts_with("  ")) {
        let text = line.trim();
        match (text.split_once("  "), out.last_mut()) {
            (Some((field, meaning)), _) => out.push(vec![field.to_owned(), meaning.trim().to_owned()]),
            (None, Some(row)) => row[1].push_str(&format!(" {text}")),
            (None, None) => panic!("{text} belongs to no field"),
        }
    }
    assert!(!out.is_empty(), "no list of fields above struct sb_option");
    rows(&["field", "meaning"], out.into_iter().map(|row| vec![row[0].clone(), cell(&row[1])]))
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
