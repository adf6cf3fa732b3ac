//! Descriptions of the file, made from the types that read it: a JSON Schema, and `docs/config-reference.md`.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::shape::{ABSENT, ALLOWED, KIND};
use crate::{client, raw};

const HEAD: &str = "\
# Configuration reference

Every table and every key of `cluster.toml` and `client.toml`, by the alphabet. [Configuration](config.md) and
[clients](client.md) say how they go together, with examples. This page is made from the code:
`cargo run -p switchback-config --example config-reference > docs/config-reference.md`.

A **name** is 1 to 63 of `a` to `z`, `0` to `9` and `-`, each once among its kind. A **size** is a text with a unit: `B`; `KiB`,
`MiB`, `GiB` (1,024 each); `kB`, `MB`, `GB` (1,000 each). A **time** is a text with a unit, too: `ms`, `s`, `m` or `min`, `h`,
or several such as `\"1min 30s\"`. Unknown keys are mistakes.
";

/// The JSON Schema of `cluster.toml`, with which editors complete and check. It cannot say all that `switchback check`
/// knows.
pub fn schema() -> String {
    serde_json::to_string_pretty(&schema_of::<raw::File>()).expect("a schema is JSON") + "\n"
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().into()
}

/// `docs/config-reference.md`.
pub fn reference() -> String {
    let file = |schema: Value| {
        let title = schema["title"].as_str().unwrap_or_default();
        format!("\n## {title}\n\n{}\n{}", described(&schema), table("", &schema))
    };
    [HEAD.to_owned(), file(schema_of::<raw::File>()), file(schema_of::<client::File>())].concat()
}

/// The keys of a table, then the tables in it, each with its keys. `path` is that of the table, with a dot behind it.
fn table(path: &str, schema: &Value) -> String {
    let keys = schema["properties"].as_object().into_iter().flatten();
    let (tables, keys): (Vec<_>, Vec<_>) = keys.partition(|(_, schema)| is_table(schema));
    let head = if keys.is_empty() {
        ""
    } else {
        "\n| key | type | if absent | allowed | what |\n|---|---|---|---|---|\n"
    };
    let is_required = |name: &str| {
        let names = schema["required"].as_array();
        names.is_some_and(|names| names.iter().any(|required| required == name))
    };
    let rows = keys.into_iter().map(|(name, key)| {
        let absent = match (is_required(name), &key["default"], key[ABSENT].as_str()) {
            (true, ..) => "required".to_owned(),
            (_, Value::Null, Some(words)) => words.to_owned(),
            (_, Value::Null, None) => panic!("nothing says what holds without {path}{name}"),
            (_, default, _) => format!("`{default}`"),
        };
        let (kind, allowed) = (kind(key), allowed(key));
        format!("| `{name}` | {kind} | {absent} | {allowed} | {} |\n", described(key))
    });
    let tables = tables.into_iter().map(|(name, schema)| {
        let items = &schema["items"];
        let (title, one) = if items.is_null() {
            (format!("[{path}{name}]"), schema)
        } else {
            (format!("[[{path}{name}]]"), items)
        };
        let (what, how_many) = (described(one), how_many(schema));
        format!("\n### {title}\n\n{what}{how_many}\n{}", table(&format!("{path}{name}."), one))
    });
    [head.to_owned()].into_iter().chain(rows).chain(tables).collect()
}

fn is_table(schema: &Value) -> bool {
    schema["properties"].is_object() || schema["items"]["properties"].is_object()
}

fn how_many(tables: &Value) -> String {
    match (tables["minItems"].as_u64(), tables["maxItems"].as_u64()) {
        (None, None) => String::new(),
        (Some(low), None) => format!(" At least {low}."),
        (None, Some(high)) => format!(" At most {high}."),
        (Some(low), Some(high)) => format!(" At least {low}, at most {high}."),
    }
}

/// A doc comment as one line.
fn described(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_else(|| panic!("no description: {schema}"));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn kind(schema: &Value) -> String {
    if let Some(kind) = schema[KIND].as_str() {
        return kind.to_owned();
    }
    if let Some(kinds) = schema["anyOf"].as_array() {
        return kinds.iter().filter(|kind| kind["type"] != "null").map(kind).collect::<Vec<_>>().join(" or ");
    }
    let types = &schema["type"];
    let types = types.as_array().map_or(std::slice::from_ref(types), Vec::as_slice);
    match types.iter().find_map(|kind| kind.as_str().filter(|kind| *kind != "null")) {
        Some("string") => "text".to_owned(),
        Some("integer") => "number".to_owned(),
        Some("boolean") => "`true` or `false`".to_owned(),
        Some("array") => "list of texts".to_owned(),
        Some("object") => "table".to_owned(),
        _ => panic!("a key without a type: {schema}"),
    }
}

fn allowed(schema: &Value) -> String {
    if let Some(words) = schema[ALLOWED].as_str() {
        return words.to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    }
    let kinds = schema["anyOf"].as_array().into_iter().flatten();
    let kinds = kinds.map(|one| match one["properties"].as_object() {
        None => allowed(one),
        Some(keys) => {
            let keys = keys
                .iter()
                .map(|(name, key)| format!("`{{ {name} = ... }}` with a {} of {}", kind(key), allowed(key)));
            keys.collect()
        }
    });
    kinds.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ")
}
