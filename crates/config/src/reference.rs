//! Descriptions of the files, made from the types that read them: a JSON Schema, `docs/config-reference.md`, and what
//! manual pages are made of.

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

";

/// How names, sizes and times are written in the files, in Markdown.
pub const NOTATION: &str = "\
A **name** is 1 to 63 of `a` to `z`, `0` to `9` and `-`, each once among its kind. A **size** is a text with a unit: `B`; `KiB`,
`MiB`, `GiB` (1,024 each); `kB`, `MB`, `GB` (1,000 each). A **time** is a text with a unit, too: `ms`, `s`, `m` or `min`, `h`,
or several such as `\"1min 30s\"`. Unknown keys are mistakes.
";

/// A file of the configuration. All texts are in Markdown, of which they have code and nothing else.
pub struct FileReference {
    /// Its name, such as `cluster.toml`.
    pub name: String,
    /// What it is for, in sentences.
    pub what: String,
    /// Its tables, each behind the one that it is in. If the file has keys outside of tables, the first one is theirs,
    /// without a title.
    pub tables: Vec<TableReference>,
}

/// A table of a file.
pub struct TableReference {
    /// As it stands in the file: `[cluster]`, `[[pool]]`.
    pub title: String,
    /// What it is for, and how many there may be.
    pub what: String,
    /// Its keys, by the alphabet.
    pub keys: Vec<KeyReference>,
}

/// A key of a table.
pub struct KeyReference {
    /// As it stands in the file.
    pub name: String,
    /// Type of its value.
    pub kind: String,
    /// What holds without it: a value, or words; empty if it depends on another key.
    pub absent: String,
    /// Which values are allowed, if the type does not say it all.
    pub allowed: String,
    /// What it does.
    pub what: String,
}

/// The JSON Schema of `cluster.toml`, with which editors complete and check. It cannot say all that `switchback check`
/// knows.
pub fn schema() -> String {
    serde_json::to_string_pretty(&schema_of::<raw::File>()).expect("a schema is JSON") + "\n"
}

pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().into()
}

/// The files, `cluster.toml` first.
pub fn files() -> [FileReference; 2] {
    [schema_of::<raw::File>(), schema_of::<client::File>()].map(|schema| FileReference {
        name: schema["title"].as_str().unwrap_or_default().to_owned(),
        what: described(&schema),
        tables: tables("", String::new(), String::new(), &schema),
    })
}

/// `docs/config-reference.md`.
pub fn reference() -> String {
    let files = files().map(|FileReference { name, what, tables }| {
        let tables: String = tables.iter().map(markdown).collect();
        format!("\n## {name}\n\n{what}\n{tables}")
    });
    [HEAD.to_owned(), NOTATION.to_owned()].into_iter().chain(files).collect()
}

fn markdown(TableReference { title, what, keys }: &TableReference) -> String {
    let title = if title.is_empty() { String::new() } else { format!("\n### {title}\n\n{what}\n") };
    let head = if keys.is_empty() {
        ""
    } else {
        "\n| key | type | if absent | allowed | what |\n|---|---|---|---|---|\n"
    };
    let rows = keys.iter().map(|KeyReference { name, kind, absent, allowed, what }| {
        format!("| `{name}` | {kind} | {absent} | {allowed} | {what} |\n")
    });
    [title, head.to_owned()].into_iter().chain(rows).collect()
}

/// The table, unless it has no title and no keys, and the tables in it. `path` is that of the table, with a dot behind it.
fn tables(path: &str, title: String, what: String, schema: &Value) -> Vec<TableReference> {
    let keys = schema["properties"].as_object().into_iter().flatten();
    let (inner, keys): (Vec<_>, Vec<_>) = keys.partition(|(_, schema)| table_of(schema).is_some());
    let is_required = |name: &str| {
        let names = schema["required"].as_array();
        names.is_some_and(|names| names.iter().any(|required| required == name))
    };
    let keys = keys.into_iter().map(|(name, key)| KeyReference {
        name: name.clone(),
        kind: kind(key),
        absent: match (is_required(name), &key["default"], key[ABSENT].as_str()) {
            (true, ..) => "required".to_owned(),
            (_, Value::Null, Some(words)) => words.to_owned(),
            (_, Value::Null, None) => panic!("nothing says what holds without {path}{name}"),
            (_, default, _) => format!("`{default}`"),
        },
        allowed: allowed(key),
        what: described(key),
    });
    let table = TableReference { title, what, keys: keys.collect() };
    let own = (!table.title.is_empty() || !table.keys.is_empty()).then_some(table);
    let inner = inner.into_iter().flat_map(|(name, schema)| {
        let (one, is_list) = table_of(schema).expect("it is a table");
        let title = if is_list { format!("[[{path}{name}]]") } else { format!("[{path}{name}]") };
        let of_key = if schema["anyOf"].is_array() { described(schema) + " " } else { String::new() };
        tables(&format!("{path}{name}."), title, of_key + &described(one) + &how_many(schema), one)
    });
    own.into_iter().chain(inner).collect()
}

/// The schema of a table, and whether there is a list of them, or can be. None of what is or can be something else.
fn table_of(schema: &Value) -> Option<(&Value, bool)> {
    let Some(kinds) = schema["anyOf"].as_array() else {
        let [own, items] = [schema, &schema["items"]].map(|one| one["properties"].is_object().then_some(one));
        return own.map(|own| (own, false)).or(items.map(|items| (items, true)));
    };
    let mut tables = kinds.iter().filter(|kind| kind["type"] != "null").map(table_of);
    let (first, _) = tables.next()??;
    tables.all(|table| table.is_some()).then_some((first, true))
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
