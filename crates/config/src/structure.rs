//! The structure of a file: which keys its tables have, and of which type their values are.
//!
//! Both are compared with the JSON Schema of the type that the file is read as, which is made from the same definition
//! as the code of serde that reads it. What is wrong is reported and then mended, so that serde can read the whole: a key
//! with a slip of the pen is taken for the one that was meant, what should be in a list is put into one, and any other
//! wrong or missing value is replaced by one of the right type that stands [nowhere](NOWHERE).
//!
//! Ranges and `enum` in the schema are left to whoever checks the values; numbers that do not fit their type at all, and
//! the names of a Rust enum's variants (`const`), are checked here.

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use crate::mistakes::{Mistakes, NOWHERE};
use crate::syntax;

/// Reports what does not fit `schema` in `document`, and makes it fit.
pub(crate) fn mend(document: &mut Spanned<DeTable<'_>>, schema: &Value, mistakes: &mut Mistakes) {
    let place = document.span().start;
    Mender { mistakes }.table("", place, document.get_mut(), &[schema]);
}

struct Mender<'m> {
    mistakes: &'m mut Mistakes,
}

impl Mender<'_> {
    /// `path` is that of the key, such as `service.route`, and `name` what messages call the value.
    fn value(&mut self, path: &str, name: &str, value: &mut Spanned<DeValue<'_>>, schema: &Value) {
        let place = value.span().start;
        let alternatives = alternatives(schema);
        let fits = |alternative: &&Value| is_a(value.get_ref(), kind(alternative));
        let fitting: Vec<&Value> = alternatives.iter().copied().filter(fits).collect();
        let mistake = match value.get_mut() {
            found if fitting.is_empty() => {
                let what = format!("{name} is {}, allowed is {}", words(found), wanted(path, schema));
                if alternatives.iter().any(|list| is_a(found, kind(&list["items"]))) {
                    self.mistakes.at_offset(place, what);
                    let item = std::mem::replace(value, Spanned::new(NOWHERE, DeValue::Boolean(false)));
                    *value = Spanned::new(NOWHERE, DeValue::Array(DeArray::from_iter([item])));
                    return self.value(path, name, value, schema);
                }
                Some(what)
            }
            DeValue::Table(table) => {
                self.table(path, place, table, &fitting);
                None
            }
            DeValue::Array(items) => self.list(path, items, fitting[0]),
            DeValue::String(text) => unknown_word(name, text, &fitting),
            DeValue::Integer(number) => out_of_range(name, number, fitting[0]),
            DeValue::Float(number) if number.as_str().parse().is_ok_and(f64::is_finite) => None,
            DeValue::Float(number) => Some(format!("{name} {number}, allowed are finite numbers")),
            DeValue::Boolean(_) | DeValue::Datetime(_) => None,
        };
        if let Some(what) = mistake {
            self.mistakes.at_offset(place, what);
            *value = placeholder(schema);
        }
    }

    /// `schemas` are the kinds of tables that may stand here, which are told apart by their keys.
    fn table(&mut self, path: &str, place: usize, table: &mut DeTable<'_>, schemas: &[&Value]) {
        let known: Vec<&str> = schemas.iter().flat_map(|schema| keys(schema)).collect();
        self.rename_misspelt(table, &known);
        let is_meant = |schema: &&&Value| keys(schema).any(|key| table.contains_key(key));
        let schema = schemas.iter().find(is_meant).unwrap_or(&schemas[0]);
        if schemas.len() > 1 && table.is_empty() {
            self.mistakes
                .at_offset(place, format!("{} is empty, allowed is one of {}", last(path), known.join(", ")));
            *table = table_of(schema);
            return;
        }
        let allowed: Vec<&str> = keys(schema).collect();
        let others: Vec<_> =
            table.keys().filter(|key| !allowed.contains(&key.get_ref().as_ref())).cloned().collect();
        for key in others {
            table.remove(key.get_ref().as_ref());
            if known.contains(&key.get_ref().as_ref()) {
                let what = format!(
                    "{} beside {}, allowed is one of {}",
                    key.get_ref(),
                    allowed[0],
                    known.join(", ")
                );
                self.mistakes.at_offset(key.span().start, what);
            }
        }
        for key in required(schema).filter(|key| !table.contains_key(*key)).collect::<Vec<_>>() {
            let schema = &schema["properties"][key];
            let what = format!("key {key:?} is missing, {} is needed", wanted(&below(path, key), schema));
            self.mistakes.at_offset(place, what);
            table.insert(Spanned::new(NOWHERE, key.to_owned().into()), placeholder(schema));
        }
        for (key, value) in table.iter_mut() {
            let key = key.get_ref().as_ref();
            self.value(&below(path, key), key, value, &schema["properties"][key]);
        }
    }

    /// Reports the keys that are not in `known`. Those with a slip of the pen get the name that was meant, unless it is
    /// taken.
    fn rename_misspelt(&mut self, table: &mut DeTable<'_>, known: &[&str]) {
        let unknown: Vec<_> =
            table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())).cloned().collect();
        for key in unknown {
            let name = key.get_ref().as_ref();
            self.mistakes.at_offset(key.span().start, syntax::unknown_key(name, known));
            let meant = syntax::closest_key(name, known).filter(|meant| !table.contains_key(*meant));
            if let (Some(meant), Some(value)) = (meant, table.remove(name)) {
                table.insert(Spanned::new(key.span(), meant.to_owned().into()), value);
            }
        }
    }

    /// Returns a mistake in the list as a whole.
    fn list(&mut self, path: &str, items: &mut DeArray<'_>, schema: &Value) -> Option<String> {
        let name = format!("an item of {}", last(path));
        match schema["items"].as_array() {
            None => items.iter_mut().for_each(|item| self.value(path, &name, item, &schema["items"])),
            Some(each) if each.len() == items.len() => {
                let pairs = items.iter_mut().zip(each);
                pairs.for_each(|(item, schema)| self.value(path, &name, item, schema));
            }
            Some(each) => {
                return Some(format!("{} has {} items, allowed are {}", last(path), items.len(), each.len()));
            }
        }
        None
    }
}

/// The kinds of values that a schema allows.
fn alternatives(schema: &Value) -> Vec<&Value> {
    let all = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    let Some(all) = all else { return vec![schema] };
    all.iter().filter(|schema| schema["type"] != "null").flat_map(alternatives).collect()
}

/// The type in a schema, as JSON Schema calls it.
fn kind(schema: &Value) -> &str {
    let types = &schema["type"];
    let types = types.as_array().map_or(std::slice::from_ref(types), Vec::as_slice);
    types.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or_default()
}

fn is_a(value: &DeValue<'_>, kind: &str) -> bool {
    match value {
        DeValue::String(_) => kind == "string",
        DeValue::Integer(_) => kind == "integer" || kind == "number",
        DeValue::Float(_) => kind == "number",
        DeValue::Boolean(_) => kind == "boolean",
        DeValue::Array(_) => kind == "array",
        DeValue::Table(_) => kind == "object",
        DeValue::Datetime(_) => false,
    }
}

fn is_list_of_tables(schema: &Value) -> bool {
    kind(schema) == "array" && kind(&schema["items"]) == "object"
}

/// What a value is.
fn words(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a decimal point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time without quotes",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// What the value of the key with this path has to be.
fn wanted(path: &str, schema: &Value) -> String {
    let mut all: Vec<String> = Vec::new();
    for schema in alternatives(schema) {
        let one = match (kind(schema), schema["const"].as_str()) {
            (_, Some(word)) => format!("{word:?}"),
            ("string", None) => "a text in quotes".to_owned(),
            ("integer", _) => "a whole number without quotes".to_owned(),
            ("number", _) => "a number without quotes".to_owned(),
            ("boolean", _) => "true or false without quotes".to_owned(),
            ("array", _) if is_list_of_tables(schema) => format!("a list of tables: [[{path}]]"),
            ("array", _) => "a list".to_owned(),
            _ => "a table".to_owned(),
        };
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all.join(" or ")
}

/// The mistake in a text that has to be one of the names in `schemas`.
fn unknown_word(key: &str, text: &str, schemas: &[&Value]) -> Option<String> {
    let words: Vec<&str> = schemas.iter().filter_map(|schema| schema["const"].as_str()).collect();
    (!words.is_empty() && !words.contains(&text)).then(|| syntax::unknown_word(key, text, &words))
}

/// The mistake in a number that its type cannot hold.
fn out_of_range(key: &str, number: &DeInteger<'_>, schema: &Value) -> Option<String> {
    let (low, high) = match schema["format"].as_str() {
        Some("uint32") => (0, u32::MAX.into()),
        Some("uint64") => (0, i64::MAX),
        _ => (i64::MIN, i64::MAX),
    };
    let value = i64::from_str_radix(number.as_str(), number.radix()).ok();
    let fits = value.is_some_and(|value| (low..=high).contains(&value));
    (!fits).then(|| format!("{key} {number}, allowed are {low} to {high}"))
}

/// A value that the schema allows.
fn placeholder(schema: &Value) -> Spanned<DeValue<'static>> {
    let schema = alternatives(schema)[0];
    let value = match kind(schema) {
        "integer" | "number" => DeValue::Integer(DeInteger::default()),
        "boolean" => DeValue::Boolean(false),
        "array" => {
            let items = schema["items"].as_array().into_iter().flatten();
            DeValue::Array(items.map(placeholder).collect())
        }
        "object" => DeValue::Table(table_of(schema)),
        _ => DeValue::String(schema["const"].as_str().unwrap_or_default().to_owned().into()),
    };
    Spanned::new(NOWHERE, value)
}

/// A table with the keys that the schema requires.
fn table_of(schema: &Value) -> DeTable<'static> {
    let values = required(schema)
        .map(|key| (Spanned::new(NOWHERE, key.to_owned().into()), placeholder(&schema["properties"][key])));
    values.collect()
}

fn keys(schema: &Value) -> impl Iterator<Item = &str> {
    schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.as_str())
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The name of the key with this path.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
