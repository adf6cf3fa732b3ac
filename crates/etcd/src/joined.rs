//! Nodes that have joined, and the document that has them.
//!
//! A node joins with a key of its own, `PREFIX/nodes/NAME`, which ends with the node's lease. Its value is TOML: the lines of a
//! `[[node]]` without the name. Only lines that a node may say of itself are taken, so whoever may write such keys can add
//! nodes and nothing else.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use switchback_config::{Document, all_or_fitting};

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// Where handoff packets go.
    pub address: IpAddr,
    /// The pools that it joins.
    pub pools: Vec<String>,
    /// Its weight, if that is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Where its servers listen, unless at the VIPs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<SocketAddr>,
}

/// A `[[node]]`.
#[derive(Serialize)]
struct Block<'a> {
    node: [Named<'a>; 1],
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    #[serde(flatten)]
    registration: &'a Registration,
}

impl Registration {
    /// The value of its key.
    pub(crate) fn value(&self) -> String {
        toml::to_string(self).expect("strings and numbers")
    }

    /// The `[[node]]` of a value.
    fn block(name: &str, value: &[u8]) -> Result<String, String> {
        let text = str::from_utf8(value).map_err(|error| error.to_string())?;
        let registration: Registration = toml::from_str(text).map_err(|error| error.to_string())?;
        let block = Block { node: [Named { name, registration: &registration }] };
        toml::to_string(&block).map_err(|error| error.to_string())
    }
}

/// A document with nodes that have joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    /// The document.
    pub document: Document,
    /// A line for each node without which the document holds and with which it does not.
    pub left_out: Vec<String>,
}

/// Adds nodes to a document, behind its text, so that its lines keep their numbers. A node with which it does not hold is left
/// out; a document that does not hold by itself is left as it is.
pub(crate) fn compose(document: Document, nodes: &BTreeMap<String, Vec<u8>>) -> Composed {
    let mut left_out = Vec::new();
    let mut blocks = Vec::new();
    for (name, value) in nodes {
        match Registration::block(name, value) {
            Ok(block) => blocks.push((name, block)),
            Err(what) => left_out.push(is_left_out(name, &what.trim_end().replace('\n', ", "))),
        }
    }
    if blocks.is_empty() {
        return Composed { document, left_out };
    }
    let Ok(fitting) = all_or_fitting(&blocks, |blocks| checked(with(&document, blocks))) else {
        return Composed { document, left_out };
    };
    left_out.extend(fitting.left_out.into_iter().map(|((name, _), what)| is_left_out(name, &what)));
    Composed { document: fitting.value, left_out }
}

fn is_left_out(name: &str, why: &str) -> String {
    format!("a node that has joined is left out, {name}: {why}")
}

/// A document with blocks behind its text.
fn with(document: &Document, blocks: &[(&String, String)]) -> Document {
    let mut text = document.text.clone();
    for (_, block) in blocks {
        text.truncate(text.trim_end().len());
        text.push_str("\n\n");
        text.push_str(block);
    }
    Document { text, ..document.clone() }
}

/// The document, or what is wrong with it apart from its keys.
fn checked(document: Document) -> Result<Document, String> {
    document.check_text().map_err(|error| error.to_string())?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const BASE: &str = "[cluster]\nkey_file = \"k\"\n[[pool]]\nname = \"web\"\npolicy = \"random\"\n\
        [[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:80\"]\n[[service.route]]\npool = \"web\"\n";

    fn registration(address: &str, pool: &str) -> Registration {
        Registration {
            address: address.parse().unwrap(),
            pools: vec![pool.to_owned()],
            weight: Some(3),
            zone: None,
            server: vec!["127.0.0.1:8080".parse().unwrap()],
        }
    }

    fn composed(base: &str, nodes: &[(&str, String)]) -> (Vec<String>, Vec<String>) {
        let nodes = nodes.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into_bytes()));
        let Composed { document, left_out } =
            compose(Document::new(base, Path::new("cluster.toml")), &nodes.collect());
        let cluster = document.parse(|_| Ok(Vec::new()));
        let names = cluster.map(|cluster| {
            let [pool] = &cluster.pools[..] else { panic!("one pool") };
            pool.nodes.iter().map(|node| cluster.nodes[*node].name.clone()).collect()
        });
        (names.unwrap_or_default(), left_out)
    }

    #[test]
    fn nodes_join_a_pool_and_mistaken_ones_do_not() {
        assert_eq!(composed(BASE, &[]), (vec![], vec![]), "a pool may wait for nodes");
        let right = registration("192.0.2.21", "web").value();
        assert!(right.contains("weight = 3\n"), "{right}");
        let one = |name, value: &str| composed(BASE, &[("n1", right.clone()), (name, value.to_owned())]);
        assert_eq!(one("n2", &registration("192.0.2.22", "web").value()).0, ["n1", "n2"]);
        for (name, value, why) in [
            ("n2", registration("192.0.2.22", "wob").value(), "unknown pool \"wob\""),
            ("n2", registration("192.0.2.100", "web").value(), "192.0.2.100"),
            ("n 2", registration("192.0.2.22", "web").value(), "n 2"),
            ("n2", right.clone() + "hidden = true\n", "unknown field `hidden`"),
            ("n2", right.clone() + "[[service]]\n", "unknown field `service`"),
            ("n2", "address = 7".to_owned(), "address"),
        ] {
            let (names, left_out) = one(name, &value);
            assert_eq!(names, ["n1"], "{value}");
            let [said] = &left_out[..] else { panic!("{left_out:?}") };
            assert!(said.contains(&format!("left out, {name}: ")) && said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_document_that_does_not_hold_stays_as_it_is() {
        let broken = BASE.replace("random", "rundom");
        let (names, left_out) = composed(&broken, &[("n1", registration("192.0.2.21", "web").value())]);
        assert_eq!((names, left_out), (vec![], vec![]));
    }
}
