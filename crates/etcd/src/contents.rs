//! The keys that make up the configuration: the document's, and those of nodes that have joined.

use std::collections::BTreeMap;

use etcd_client::{GetOptions, KeyValue};

use crate::address::Address;
use crate::error::Error;
use crate::joined::{Composed, compose};
use crate::member::Member;
use crate::store;

/// What a member has in these keys.
#[derive(Default)]
pub(crate) struct Contents {
    /// The text, and the version of its key.
    document: Option<(Vec<u8>, i64)>,
    /// Nodes that have joined.
    nodes: BTreeMap<String, Vec<u8>>,
}

impl Contents {
    /// Asks a member for all of them, and for its revision.
    pub(crate) async fn read(member: &Member, address: &Address) -> Result<(Contents, i64), Error> {
        let range = GetOptions::new().with_range(address.behind_followed());
        let answer = member.answer(member.client.clone().get(address.document_key(), Some(range))).await?;
        let mut contents = Contents::default();
        answer.kvs().iter().for_each(|found| contents.set(address, found, true));
        Ok((contents, answer.header().map_or(0, |header| header.revision())))
    }

    /// Takes a key as it is now, with a value or without.
    pub(crate) fn set(&mut self, address: &Address, found: &KeyValue, is_there: bool) {
        let key = String::from_utf8_lossy(found.key());
        if *key == address.document_key() {
            self.document = is_there.then(|| (found.value().to_vec(), found.version()));
        } else if let Some(name) = key.strip_prefix(&address.nodes()) {
            match is_there {
                true => self.nodes.insert(name.to_owned(), found.value().to_vec()),
                false => self.nodes.remove(name),
            };
        }
    }

    /// Whether a node has joined.
    pub(crate) fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// The document with the nodes.
    pub(crate) fn document(&self, address: &Address) -> Result<Composed, Error> {
        let absent = || Error::Absent { key: address.document_key() };
        let (text, version) = self.document.as_ref().ok_or_else(absent)?;
        Ok(compose(store::document(address, text, *version)?, &self.nodes))
    }
}
