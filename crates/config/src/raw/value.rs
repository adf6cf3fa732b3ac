//! Values that are not simply texts, numbers or tables.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::{pool, shape};

/// A value with its place in the text.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Spanned<T>(toml::Spanned<T>);

impl<T> Spanned<T> {
    pub(crate) fn new(value: T, span: Range<usize>) -> Spanned<T> {
        Spanned(toml::Spanned::new(span, value))
    }

    pub(crate) fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// From its first byte to behind its last one.
    pub(crate) fn span(&self) -> Range<usize> {
        self.0.span()
    }
}

/// In the schema it is the value.
impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Above {
    /// Of a response.
    #[schemars(transform = shape::size(pool::ABOVE))]
    pub above: Spanned<String>,
}

/// A text, or a table. Written by hand for the same reason as [`Texts`].
pub(crate) enum Delegate {
    Text(String),
    Table(Above),
}

impl<'de> Deserialize<'de> for Delegate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = Delegate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a table")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Delegate, E> {
                Ok(Delegate::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Delegate, A::Error> {
                Above::deserialize(MapAccessDeserializer::new(table)).map(Delegate::Table)
            }
        }

        deserializer.deserialize_any(TextOrTable)
    }
}

impl JsonSchema for Delegate {
    fn schema_name() -> Cow<'static, str> {
        "Delegate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut text = String::json_schema(generator);
        shape::percent(pool::SHARE, pool::DELEGATE.map(|(name, _)| name))(&mut text);
        json_schema!({ "anyOf": [text, Above::json_schema(generator)] })
    }
}

/// One table, or a list of them. Written by hand for the same reason as [`Texts`].
pub(crate) struct OneOrMany<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableOrList<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TableOrList<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table or a list of tables")
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<OneOrMany<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(table)).map(|one| OneOrMany(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<OneOrMany<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMany)
            }
        }

        deserializer.deserialize_any(TableOrList(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [T::json_schema(generator), Vec::<T>::json_schema(generator)] })
    }
}

/// One text, or a list of them. Written by hand because serde's untagged enums lose the place of what is in
/// them.
pub(crate) enum Texts {
    One(String),
    List(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrList;

        impl<'de> Visitor<'de> for OneOrList {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts::List(texts))
            }
        }

        deserializer.deserialize_any(OneOrList)
    }
}

impl JsonSchema for Texts {
    fn schema_name() -> Cow<'static, str> {
        "Texts".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [String::json_schema(generator), Vec::<String>::json_schema(generator)] })
    }
}
