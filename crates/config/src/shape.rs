//! What a schema says of a key beyond its type: which values are allowed, and what holds if it is absent. The ranges
//! are those that values are checked against. Where JSON Schema has no word for it, `x-kind`, `x-allowed` and
//! `x-absent` have the words of the reference.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::Schema;
use serde_json::Value;

use crate::{limits, syntax};

/// The name of the type.
pub(crate) const KIND: &str = "x-kind";
/// The allowed values.
pub(crate) const ALLOWED: &str = "x-allowed";
/// The behaviour without the key, if it is not a value.
pub(crate) const ABSENT: &str = "x-absent";

pub(crate) fn time(allowed: RangeInclusive<Duration>) -> impl Fn(&mut Schema) {
    ranged("time", [*allowed.start(), *allowed.end()].map(limits::time))
}

pub(crate) fn size(allowed: RangeInclusive<u64>) -> impl Fn(&mut Schema) {
    ranged("size", [*allowed.start(), *allowed.end()].map(limits::size))
}

fn ranged(kind: &'static str, [low, high]: [String; 2]) -> impl Fn(&mut Schema) {
    move |schema| {
        insert(schema, KIND, kind);
        insert(schema, ALLOWED, format!("{low} to {high}"));
    }
}

pub(crate) fn number<T: Copy + Display + Into<Value>>(allowed: RangeInclusive<T>) -> impl Fn(&mut Schema) {
    move |schema| {
        let (low, high) = (*allowed.start(), *allowed.end());
        schema.remove("format");
        insert(schema, "minimum", low);
        insert(schema, "maximum", high);
        insert(schema, ALLOWED, format!("{low} to {high}"));
    }
}

/// A share, or one of `words`.
pub(crate) fn percent(
    allowed: RangeInclusive<u8>,
    words: impl IntoIterator<Item = &'static str> + Clone,
) -> impl Fn(&mut Schema) {
    move |schema| {
        let words: String = words.clone().into_iter().map(|word| format!("`\"{word}\"`, ")).collect();
        let (low, high) = (allowed.start(), allowed.end());
        insert(schema, ALLOWED, format!("{words}`\"{low}%\"` to `\"{high}%\"`"));
    }
}

pub(crate) fn one_of<T: Clone + Into<Value>, const N: usize>(values: [T; N]) -> impl Fn(&mut Schema) {
    move |schema| {
        schema.remove("format");
        insert(schema, "enum", values.to_vec());
    }
}

/// A name as all in the file.
pub(crate) fn name(schema: &mut Schema) {
    insert(schema, "pattern", format!("^[a-z0-9-]{{1,{}}}$", syntax::MAX_NAME));
    insert(schema, KIND, "name");
}

pub(crate) fn allowed(words: impl Into<String>) -> impl Fn(&mut Schema) {
    said(ALLOWED, words.into())
}

pub(crate) fn absent(words: impl Into<String>) -> impl Fn(&mut Schema) {
    said(ABSENT, words.into())
}

fn said(key: &'static str, words: String) -> impl Fn(&mut Schema) {
    move |schema| insert(schema, key, words.clone())
}

fn insert(schema: &mut Schema, key: &str, value: impl Into<Value>) {
    schema.insert(key.to_owned(), value.into());
}
