//! Makes `generated.rs` of `crates/wire` and `crates/http`, and the tables in `docs/wire-format.md`, from the headers of
//! formats in the crates' `bpf`: `cargo run -p switchback-wire-generate`. A test fails when a committed file differs. A
//! package of its own, so that it still builds when the formats and the code that uses them do not agree.

mod header;
mod page;

use std::fmt::Write;
use std::fs;

use bindgen::callbacks::{DeriveTrait, ImplementsTrait, IntKind, ParseCallbacks};
use header::Header;

/// Headers that define what C and Rust share, but [`FRAMING`].
const HEADERS: [&str; 6] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/flow.h"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/handoff.h"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/switch_maps.h"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/node_maps.h"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/client_maps.h"),
    COUNTERS,
];
/// Of these, the headers of what is on the wire, whose comments are in the page.
const ON_THE_WIRE: [&str; 2] = [HEADERS[0], HEADERS[1]];
const COUNTERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/counters.h");
const GENERATED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/generated.rs");
/// The folder of the framing's headers.
const FRAMING_INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../http/bpf");
const FRAMING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../http/bpf/framing.h");
const FRAMING_GENERATED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../http/src/framing/generated.rs");
/// What `switchback_http` defines and the other formats use: the framing's items in C.
const FRAMING_ITEMS: &str = "(sb_framing|SB_FRAMING)(_.*)?";
const NOTE: &str = "// Made from the headers in bpf/ by crates/wire/generate; edit those.\n";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/wire-format.md");

/// `X(NAME, "help")` lines of a counter list become an enum that can be iterated.
fn counters(header: &str, list: &str, name: &str) -> String {
    let start = header.find(&format!("#define {list}(X)")).expect("the list is in the header");
    let body = &header[start..];
    let body = &body[..body.find("\n\n").expect("a blank line ends the list")];
    let entries: Vec<(&str, &str)> = body
        .split(" X(")
        .skip(1)
        .map(|entry| {
            let (name, rest) = entry.split_once(", \"").expect("name, then help");
            (name, rest.split_once("\")").expect("help ends").0)
        })
        .collect();
    let variants: Vec<_> = entries.iter().map(|&(entry, help)| (camel(entry), "", help)).collect();
    let mut out = format!("\n{}", enumeration(name, "u32", &variants));
    writeln!(out, "\n    pub fn name(self) -> &'static str {{\n        match self {{").unwrap();
    for (entry, _) in &entries {
        writeln!(out, "            {name}::{} => \"{}\",", camel(entry), entry.to_lowercase()).unwrap();
    }
    writeln!(out, "        }}\n    }}\n\n    pub fn help(self) -> &'static str {{\n        match self {{")
        .unwrap();
    for (entry, help) in &entries {
        writeln!(out, "            {name}::{} => \"{help}\",", camel(entry)).unwrap();
    }
    writeln!(out, "        }}\n    }}\n}}").unwrap();
    out
}

/// The reasons of nodes as an enum without `SB_REASON_NONE`, which is None in Rust.
fn reasons(header: &Header) -> String {
    let entries = header.block("enum sb_reason").entries.iter().filter(|entry| entry.value != "0");
    let variants: Vec<_> = entries
        .map(|entry| (camel(entry.name.trim_start_matches("SB_REASON_")), &*entry.value, &*entry.comment))
        .collect();
    format!(
        "\n/// Why a node did not do what it was asked for, or did it in a special way (`enum sb_reason`).\n{}}}\n",
        enumeration("Reason", "u8", &variants)
    )
}

/// All operations, of the enum that bindgen makes.
fn operations(header: &Header) -> String {
    let names: Vec<&str> = header.block("enum sb_op").entries.iter().map(|entry| &*entry.name).collect();
    let mut out = format!("\nimpl sb_op {{\n    pub const ALL: [sb_op; {}] = [\n", names.len());
    for name in names {
        writeln!(out, "        sb_op::{name},").unwrap();
    }
    out + "    ];\n}\n"
}

/// An enum, and its `impl` up to the end of `ALL`. A variant has a name, a value or "", and documentation.
fn enumeration(name: &str, repr: &str, variants: &[(String, &str, &str)]) -> String {
    let mut out =
        format!("#[derive(Clone, Copy, Debug, PartialEq, Eq)]\n#[repr({repr})]\npub enum {name} {{\n");
    for (variant, value, doc) in variants {
        let value = if value.is_empty() { String::new() } else { format!(" = {value}") };
        writeln!(out, "    #[doc = {doc:?}]\n    {variant}{value},").unwrap();
    }
    writeln!(out, "}}\n\nimpl {name} {{\n    pub const ALL: [{name}; {}] = [", variants.len()).unwrap();
    for (variant, ..) in variants {
        writeln!(out, "        {name}::{variant},").unwrap();
    }
    out + "    ];\n"
}

fn camel(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_string() + &word[1..].to_lowercase()).collect()
}

/// Types of numbers that C writes without one, and traits of types that are defined elsewhere.
#[derive(Debug)]
struct Types;

impl ParseCallbacks for Types {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        match name {
            _ if name.starts_with("SB_FRAMING_HAS_") || name.starts_with("SB_VERSION") => Some(IntKind::U8),
            _ if name.starts_with("SB_FRAMING_") || name.starts_with("SB_MARK_") => Some(IntKind::U16),
            _ => None,
        }
    }

    fn blocklisted_type_implements_trait(&self, _: &str, _: DeriveTrait) -> Option<ImplementsTrait> {
        Some(ImplementsTrait::Yes)
    }
}

fn builder() -> bindgen::Builder {
    bindgen::Builder::default()
        .clang_arg("--target=x86_64-linux-gnu")
        .parse_callbacks(Box::new(Types))
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_eq(true)
        .derive_hash(true)
        .no_hash("sb_flow")
        .layout_tests(false)
        .generate_comments(false)
        .disable_header_comment()
}

fn framing() -> String {
    let bindings =
        builder().header(FRAMING).allowlist_item(FRAMING_ITEMS).rustified_enum("sb_framing_action");
    format!("{NOTE}{}", bindings.generate().expect("libclang reads the header"))
}

fn formats() -> String {
    let lists = fs::read_to_string(COUNTERS).expect("the header is there");
    let bindings = builder()
        .headers(HEADERS)
        .clang_arg(format!("-I{FRAMING_INCLUDE}"))
        .raw_line("use switchback_http::framing::Framing as sb_framing;")
        .raw_line("use crate::payload::Payload as sb_payload;")
        .allowlist_item("(sb|SB)_.*")
        .blocklist_item("SB_(SWITCH|NODE|CLIENT)_(COUNTERS_LEN)?.*")
        .blocklist_type("sb_(switch|node|client)_counter")
        .blocklist_item(FRAMING_ITEMS)
        .blocklist_type("sb_payload")
        .rustified_enum(
            "sb_(op|reason|mode|record_kind|ownership|adoption|replay|session_mode|hook|direct_state|end|switch_state)",
        )
        .no_default("sb_(persistence|tag_input|heads|insurable|choices)");
    let mut made = format!("{NOTE}{}", bindings.generate().expect("libclang reads the headers"));
    made.push_str(&counters(&lists, "SB_SWITCH_COUNTERS", "SwitchCounter"));
    made.push_str(&counters(&lists, "SB_NODE_COUNTERS", "NodeCounter"));
    made.push_str(&counters(&lists, "SB_CLIENT_COUNTERS", "ClientCounter"));
    let wire = on_the_wire();
    made.push_str(&reasons(&wire));
    made.push_str(&operations(&wire));
    made
}

fn on_the_wire() -> Header {
    let mut header = Header::default();
    for path in ON_THE_WIRE {
        header.read(&fs::read_to_string(path).expect("the header is there"));
    }
    header
}

/// The page as it is, and with its tables made from the headers.
fn documentation() -> (String, String) {
    let committed = fs::read_to_string(PAGE).expect("the page is there");
    let made = page::rewrite(&committed, &on_the_wire());
    (committed, made)
}

fn main() {
    fs::write(FRAMING_GENERATED, framing()).expect("the file can be written");
    fs::write(GENERATED, formats()).expect("the file can be written");
    fs::write(PAGE, documentation().1).expect("the page can be written");
}

#[test]
fn generated_rs_is_made_from_the_headers() {
    for (path, made) in [(FRAMING_GENERATED, framing()), (GENERATED, formats())] {
        let committed = fs::read_to_string(path).expect("the file is committed");
        assert!(committed == made, "{path} is stale: run `cargo run -p switchback-wire-generate`");
    }
}

#[test]
fn tables_of_the_page_are_made_from_the_headers() {
    let (committed, made) = documentation();
    assert!(committed == made, "docs/wire-format.md is stale: run `cargo run -p switchback-wire-generate`");
}
