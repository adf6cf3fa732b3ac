//! From the text of a TOML file to the type that serde reads it as.
//!
//! serde stops at the first value that does not fit, and says so in the words of Rust. So it only reads a file whose
//! structure is right; of any other one, [`structure`] finds all mistakes and puts something readable in the places of
//! what is wrong, so that the rest of the file is read and checked, too.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::error::{self, Error, Mistake};
use crate::mistakes::Mistakes;
use crate::reference::schema_of;
use crate::structure;

use std::path::Path;

/// Reads `text`, the content of `file`, as a `T`.
///
/// `check` returns what is wrong with the values, each time with the path of its key, such as `nodes.0.count` for a key
/// of the first `[[nodes]]`. Its mistakes are reported together with those in the structure of the file, unless they are a
/// consequence of those.
pub fn read<T: DeserializeOwned + JsonSchema>(
    text: &str,
    file: &Path,
    check: impl FnOnce(&T) -> Vec<(String, String)>,
) -> Result<T, Error> {
    let invalid = |mistakes| error::invalid(text, file, mistakes);
    let (document, value, mut mistakes) = mended::<T>(text).map_err(|mistake| invalid(vec![mistake]))?;
    for (path, what) in check(&value) {
        mistakes.at_offset(place(&document, &path), what);
    }
    mistakes.into_result(value).map_err(invalid)
}

/// Reads `text` as a `T`, and says what is wrong with its structure. A text that is no TOML is all wrong.
pub(crate) fn read_all<T: DeserializeOwned + JsonSchema>(text: &str) -> Result<(T, Mistakes), Mistake> {
    mended(text).map(|(_, value, mistakes)| (value, mistakes))
}

/// As [`read_all`], with the document that the result was made from. What was wrong in it stands
/// [nowhere](crate::mistakes::NOWHERE).
fn mended<T: DeserializeOwned + JsonSchema>(
    text: &str,
) -> Result<(Spanned<DeTable<'_>>, T, Mistakes), Mistake> {
    let mut document = DeTable::parse(text).map_err(|error| no_toml(&error))?;
    let mut mistakes = Mistakes::of(text);
    if let Ok(value) = T::deserialize(Deserializer::from(document.clone())) {
        return Ok((document, value, mistakes));
    }
    structure::mend(&mut document, &schema_of::<T>(), &mut mistakes);
    let value = T::deserialize(Deserializer::from(document.clone())).map_err(|error| no_toml(&error))?;
    Ok((document, value, mistakes))
}

fn no_toml(error: &toml::de::Error) -> Mistake {
    Mistake {
        at: error.span().map_or(0, |span| span.start),
        what: error.message().trim_end().replace('\n', ", "),
    }
}

/// How many of the keys at the top of `text` a `T` has, by which files of different kinds are told apart.
pub fn resemblance<T: JsonSchema>(text: &str) -> usize {
    let (document, _) = DeTable::parse_recoverable(text);
    let schema = schema_of::<T>();
    document.get_ref().keys().filter(|key| schema["properties"].get(key.get_ref().as_ref()).is_some()).count()
}

/// The place of the value with this path, or of the innermost table on the way to it that there is.
fn place(document: &Spanned<DeTable<'_>>, path: &str) -> usize {
    let mut keys = path.split('.');
    let Some(mut value) = keys.next().and_then(|key| document.get_ref().get(key)) else { return 0 };
    for key in keys {
        let inner = match value.get_ref() {
            DeValue::Table(table) => table.get(key),
            DeValue::Array(items) => key.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        };
        let Some(inner) = inner else { break };
        value = inner;
    }
    value.span().start
}
