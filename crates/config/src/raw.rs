//! The shape of `cluster.toml` as serde sees it. Every value that can be wrong in itself keeps its place in
//! the text, and is taken in a type wide enough that a wrong value reaches `validate` and is reported
//! together with the others.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use crate::error::Mistake;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub cluster: ClusterTable,
    #[serde(default)]
    pub reports: Reports,
    #[serde(default)]
    pub limits: Limits,
    pub access_log: Option<AccessLog>,
    pub admin: Option<Admin>,
    #[serde(default)]
    pub node: Vec<Node>,
    #[serde(default)]
    pub pool: Vec<Pool>,
    #[serde(default)]
    pub service: Vec<Service>,
    #[serde(default)]
    pub switch: Vec<Switch>,
    #[serde(default)]
    pub client: Vec<Client>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterTable {
    pub key_file: Spanned<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reports {
    pub interval: Option<Spanned<String>>,
    pub suspect_after: Option<Spanned<i64>>,
    pub dead_after: Option<Spanned<i64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub head: Option<Spanned<String>>,
    pub fields: Option<Spanned<i64>>,
    pub body: Option<Spanned<String>>,
    pub head_timeout: Option<Spanned<String>>,
    pub wait_timeout: Option<Spanned<String>>,
    pub waiting: Option<Spanned<i64>>,
    pub held_per_flow: Option<Spanned<String>>,
    pub held_per_source: Option<Spanned<String>>,
    pub held: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessLog {
    pub path: Spanned<String>,
    pub format: Option<Spanned<String>>,
    pub lines_per_second: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admin {
    pub listen: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    pub name: Spanned<String>,
    pub address: Spanned<String>,
    pub weight: Option<Spanned<i64>>,
    pub zone: Option<Spanned<String>>,
    #[serde(default)]
    pub drain: bool,
    #[serde(default)]
    pub hidden: bool,
    pub tunnel: Option<Spanned<bool>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    pub name: Spanned<String>,
    pub nodes: Spanned<Vec<Spanned<String>>>,
    pub policy: Spanned<String>,
    pub balance: Option<Spanned<String>>,
    pub hash: Option<Spanned<String>>,
    pub slow_start: Option<Spanned<String>>,
    pub queue_limit: Option<Spanned<String>>,
    #[serde(default)]
    pub second_candidate: bool,
    pub delegate: Option<Spanned<Delegate>>,
    pub health: Option<Health>,
    pub persistence: Option<Persistence>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Health {
    pub path: Option<Spanned<String>>,
    pub host: Option<Spanned<String>>,
    pub status: Option<Spanned<Texts>>,
    pub interval: Option<Spanned<String>>,
    pub timeout: Option<Spanned<String>>,
    pub rise: Option<Spanned<i64>>,
    pub fall: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Persistence {
    pub mode: Spanned<String>,
    pub cookie: Option<Spanned<String>>,
    pub hash: Option<Spanned<String>>,
    pub sticky: Option<Spanned<String>>,
    pub path: Option<Spanned<String>>,
    pub domain: Option<Spanned<String>>,
    pub secure: Option<Spanned<bool>>,
    pub http_only: Option<Spanned<bool>>,
    pub same_site: Option<Spanned<String>>,
    pub max_age: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Service {
    pub name: Spanned<String>,
    pub listen: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub route: Vec<Spanned<Route>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    pub host: Option<Spanned<String>>,
    pub path: Option<Spanned<String>>,
    pub method: Option<Spanned<Texts>>,
    pub header: Option<Header>,
    pub pool: Option<Spanned<String>>,
    pub redirect: Option<Spanned<Redirect>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redirect {
    pub scheme: Option<Spanned<String>>,
    pub host: Option<Spanned<String>>,
    pub port: Option<Spanned<i64>>,
    pub path: Option<Spanned<String>>,
    pub status: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub name: Spanned<String>,
    pub value: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Switch {
    pub name: Spanned<String>,
    pub services: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client {
    pub network: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Above {
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

/// Reads `text`. A text that is no TOML, a key that is unknown or missing and a value of the wrong type end
/// the reading, because what follows cannot be trusted to mean what it seems to; the words for these are
/// toml's own.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    toml::from_str(text).map_err(|error| Mistake {
        at: error.span().map_or(0, |span| span.start),
        what: error.message().trim_end().replace('\n', ", "),
    })
}
