//! Session tickets that name their node.
//!
//! A node encrypts the session under a key that only nodes have. It adds the node's code before, and after both a tag
//! under a key that the switches also have:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | code of the node: keyed hash of its name |
//! | any | encrypted session |
//! | 8 | SipHash-2-4 of all bytes before |
//!
//! So the switch finds the node without reading the session, and a client cannot choose a node.

use std::collections::HashMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use switchback_wire::sb_key;

const CODE: usize = 8;
const TAG: usize = 8;

/// Makes and reads the tickets of a cluster.
#[derive(Clone, Debug)]
pub struct Tickets {
    /// Keys with the codes of the nodes. The first key signs, all are accepted.
    keys: Vec<(sb_key, HashMap<[u8; CODE], usize>)>,
}

/// Content of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedTicket<'a> {
    /// Index in the names given to [`Tickets::new`]; None if the node has left the cluster.
    pub node: Option<usize>,
    /// The encrypted session, which only nodes can open.
    pub sealed: &'a [u8],
}

impl Tickets {
    /// `keys` are [`switchback_wire::keys::ticket_name_key`] of each cluster key, `nodes` the names of the cluster's
    /// nodes.
    pub fn new<'a>(keys: &[sb_key], nodes: impl IntoIterator<Item = &'a str> + Clone) -> Self {
        let codes = |key: &sb_key| {
            let named = nodes.clone().into_iter().enumerate();
            (*key, named.map(|(node, name)| (code(key, name), node)).collect())
        };
        Tickets { keys: keys.iter().map(codes).collect() }
    }

    /// The ticket for a session of the node with this name.
    pub fn name(&self, node: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (key, _) = self.keys.first()?;
        let mut ticket = Vec::with_capacity(CODE + sealed.len() + TAG);
        ticket.extend_from_slice(&code(key, node));
        ticket.extend_from_slice(sealed);
        ticket.extend_from_slice(&tag(key, &ticket));
        Some(ticket)
    }

    /// Reads a ticket; None if it is not of this cluster.
    pub fn read<'a>(&self, ticket: &'a [u8]) -> Option<NamedTicket<'a>> {
        let (signed, theirs) = ticket.split_at_checked(ticket.len().checked_sub(TAG)?)?;
        let (code, sealed) = signed.split_first_chunk::<CODE>()?;
        let (_, nodes) = self.keys.iter().find(|(key, _)| tag(key, signed) == theirs)?;
        Some(NamedTicket { node: nodes.get(code).copied(), sealed })
    }
}

fn code(key: &sb_key, name: &str) -> [u8; CODE] {
    hash(key, b"node", name.as_bytes())
}

fn tag(key: &sb_key, signed: &[u8]) -> [u8; TAG] {
    hash(key, b"ticket", signed)
}

fn hash(key: &sb_key, purpose: &[u8], text: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_keys(key.k0, key.k1);
    hasher.write(&(purpose.len() as u64).to_le_bytes());
    hasher.write(purpose);
    hasher.write(text);
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: sb_key = sb_key { k0: 1, k1: 2 };
    const NEW: sb_key = sb_key { k0: 3, k1: 4 };
    const NODES: [&str; 3] = ["a", "b", "c"];

    #[test]
    fn a_ticket_names_its_node_while_its_key_is_valid() {
        let (old, both, new) =
            (Tickets::new(&[OLD], NODES), Tickets::new(&[NEW, OLD], NODES), Tickets::new(&[NEW], NODES));
        for (node, name) in NODES.into_iter().enumerate() {
            let found = Some(NamedTicket { node: Some(node), sealed: b"session" });
            let ticket = old.name(name, b"session").unwrap();
            assert_eq!([old.read(&ticket), both.read(&ticket), new.read(&ticket)], [found, found, None]);
            let ticket = both.name(name, b"session").unwrap();
            assert_eq!([old.read(&ticket), both.read(&ticket), new.read(&ticket)], [None, found, found]);
        }
    }

    #[test]
    fn a_ticket_of_a_removed_node_has_no_node() {
        let ticket = Tickets::new(&[OLD], NODES).name("b", b"session").unwrap();
        let fewer = Tickets::new(&[OLD], ["c", "a"]);
        assert_eq!(fewer.read(&ticket), Some(NamedTicket { node: None, sealed: b"session" }));
    }

    #[test]
    fn nobody_changes_a_ticket() {
        let tickets = Tickets::new(&[OLD], NODES);
        let ticket = tickets.name("a", b"session").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.read(&changed), None, "byte {at}");
            assert_eq!(tickets.read(&ticket[..at]), None);
        }
        assert_eq!(tickets.read(b""), None);
    }
}
