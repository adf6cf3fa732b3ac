//! The document and its versions, for the commands that write them.
//!
//! Beside the document is a record of each of its versions. Both are written in one transaction, which has no effect if the
//! document is another one than its author has seen. A document that somebody writes by other means has no record.

use std::time::{Duration, Instant};

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, SortOrder, SortTarget, Txn, TxnOp};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use switchback_config::Document;
use switchback_runtime::without_sigpipe;

use crate::address::Address;
use crate::contents::Contents;
use crate::error::Error;
use crate::joined::Composed;
use crate::member::Member;

/// Records that are kept.
const KEPT: u64 = 100;
/// Time for which members are asked, at least once each.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after all members have failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The configuration in etcd, for one command.
pub struct Store {
    address: Address,
    runtime: tokio::runtime::Runtime,
}

/// A document in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The document. Its version counts the changes of its key.
    pub document: Document,
    /// The revision of etcd in which it was written.
    revision: i64,
}

impl Stored {
    fn is(&self, version: u64, text: &str) -> bool {
        self.document.version == Some(version) && self.document.text == text
    }
}

/// The record of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When it was written, by the clock of the author's machine.
    pub time: Timestamp,
    /// Who has written it, from where.
    pub author: String,
    /// The author's message; may be empty.
    pub message: String,
    /// The text.
    pub text: String,
}

impl Store {
    /// The store at an address; nothing is asked yet.
    pub fn new(address: Address) -> std::io::Result<Store> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Store { address, runtime })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The document alone; None if there is none yet.
    pub fn current(&self) -> Result<Option<Stored>, Error> {
        self.with_member(async |member| {
            let answer = member.answer(member.client.clone().get(self.address.document_key(), None)).await?;
            let Some(found) = answer.kvs().first() else { return Ok(None) };
            let document = document(&self.address, found.value(), found.version())?;
            Ok(Some(Stored { document, revision: found.mod_revision() }))
        })
    }

    /// The document with the nodes that have joined, as daemons have it.
    pub fn followed(&self) -> Result<Composed, Error> {
        self.with_member(async |member| {
            Contents::read(member, &self.address).await?.0.document(&self.address)
        })
    }

    /// Writes a text over the document that its author has seen, and its record. Returns the new version.
    pub fn write(&self, over: Option<&Stored>, record: &Record) -> Result<u64, Error> {
        let key = self.address.document_key();
        let revision = over.map_or(0, |stored| stored.revision);
        let version = over.and_then(|stored| stored.document.version).unwrap_or(0) + 1;
        // A document that was deleted begins with version 1 again. No key may be both deleted and written in a transaction.
        let (first, behind) = match version {
            1 => (self.address.version_key(2), self.address.behind_versions()),
            _ => (self.address.versions(), self.address.version_key((version + 1).saturating_sub(KEPT))),
        };
        let obsolete = DeleteOptions::new().with_range(behind);
        let value = serde_json::to_string(record).expect("strings and a time");
        let operations = [
            TxnOp::put(key.clone(), record.text.clone(), None),
            TxnOp::delete(first, Some(obsolete)),
            TxnOp::put(self.address.version_key(version), value, None),
        ];
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, revision);
        let transaction = Txn::new().when([unchanged]).and_then(operations);
        let is_written = self.with_member(async |member| {
            let answer = member.answer(member.client.clone().txn(transaction.clone())).await?;
            Ok(answer.succeeded())
        })?;
        // A member that has not answered in time may have written it before another one was asked.
        if is_written || self.current()?.is_some_and(|stored| stored.is(version, &record.text)) {
            Ok(version)
        } else {
            Err(Error::Changed)
        }
    }

    /// The records that are kept, with their versions, the newest first. Each is asked for by itself: all of them can be
    /// longer than a message of gRPC may be.
    pub fn history(&self) -> Result<Vec<(u64, Record)>, Error> {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let options = options.with_sort(SortTarget::Key, SortOrder::Descend);
        self.with_member(async |member| {
            let mut client = member.client.clone();
            let answer = member.answer(client.get(self.address.versions(), Some(options.clone()))).await?;
            let mut records = Vec::new();
            for found in answer.kvs() {
                let key = String::from_utf8_lossy(found.key()).into_owned();
                let failed = |what: String| Error::Record { key: key.clone(), what };
                let version = key.rsplit('/').next().and_then(|digits| digits.parse().ok());
                let version = version.ok_or_else(|| failed("no version in its key".to_owned()))?;
                let answer = member.answer(client.get(key.clone(), None)).await?;
                // One that is gone meanwhile has become too old.
                for found in answer.kvs() {
                    let record = serde_json::from_slice(found.value());
                    records.push((version, record.map_err(|error| failed(error.to_string()))?));
                }
            }
            Ok(records)
        })
    }

    /// Asks the members one after the other until one answers, for some seconds: after its leader has died, etcd answers
    /// nothing until the others have chosen another one.
    ///
    /// Asks [without SIGPIPE](without_sigpipe).
    fn with_member<T: Send>(
        &self,
        request: impl AsyncFn(&Member) -> Result<T, Error> + Sync,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + PATIENCE;
        let attempts = async || {
            for (turn, host) in self.address.hosts.iter().cycle().enumerate() {
                let asked = async {
                    let member = Member::connect(&self.address, host).await?;
                    request(&member).await
                };
                let error = match asked.await {
                    Err(error @ Error::Etcd { .. }) => error,
                    settled => return settled,
                };
                if (turn + 1) % self.address.hosts.len() == 0 {
                    if Instant::now() > deadline {
                        return Err(error);
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
            unreachable!("an address has a host, and a cycle has no end");
        };
        without_sigpipe(|| self.runtime.block_on(attempts()))
    }
}

/// The document of a value in etcd.
pub(crate) fn document(address: &Address, value: &[u8], version: i64) -> Result<Document, Error> {
    let version = version.unsigned_abs();
    let text = String::from_utf8(value.to_vec()).map_err(|error| Error::Record {
        key: address.document_key(),
        what: format!("version {version} is not UTF-8: {}", error.utf8_error()),
    })?;
    Ok(address.document(text, version))
}
