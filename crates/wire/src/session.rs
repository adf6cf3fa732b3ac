//! Codes of pools and nodes in session cookies.
//!
//! A code is a keyed hash of a name: it hides a node's name and address, is the same on every machine of the cluster,
//! and is hard to guess, since of 2^18 codes a pool has as many as it has nodes. A rewritten name is no more than two
//! codes, because it must not be longer than what it replaces. An inserted cookie also has room for a tag.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::names::distinct;
use crate::{SB_CODE_LEN, sb_key, sb_session};

/// Three characters that are allowed in a cookie's name.
pub type Code = [u8; 3];

/// The start of every rewritten name.
pub const KEYWORD: &[u8; 2] = b"SB";

/// Length of [`inserted_value`].
pub const INSERTED_LEN: usize = 14;

/// base64url (RFC 4648 section 5), all allowed in names and values of cookies (RFC 6265 section 4.1.1).
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn hash(key: &sb_key, purpose: &str, parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key.k0, key.k1);
    hasher.write(purpose.as_bytes());
    for part in parts {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish()
}

/// The lowest bits of a number, six in each character.
fn characters<const N: usize>(number: u64) -> [u8; N] {
    std::array::from_fn(|at| ALPHABET[(number.checked_shr(6 * at as u32).unwrap_or(0) & 63) as usize])
}

/// Distinct codes of the names. A new name can change another's code, with a probability of about 2^-18.
fn codes(key: &sb_key, purpose: &str, of: &str, names: &[&str]) -> Vec<Code> {
    distinct(names, |name, attempt| {
        characters(hash(key, purpose, &[of.as_bytes(), name.as_bytes(), &attempt.to_le_bytes()]))
    })
}

/// The codes of pools, from their names.
pub fn pool_codes(key: &sb_key, pools: &[&str]) -> Vec<Code> {
    codes(key, "pool", "", pools)
}

/// The codes of a pool's nodes, from their names.
pub fn node_codes(key: &sb_key, pool: &str, nodes: &[&str]) -> Vec<Code> {
    codes(key, "node", pool, nodes)
}

/// The replacement for the first characters of a session cookie's name.
pub fn rewritten(pool: Code, node: Code) -> [u8; SB_CODE_LEN as usize] {
    let mut name = [0; SB_CODE_LEN as usize];
    name[..2].copy_from_slice(KEYWORD);
    name[2..5].copy_from_slice(&pool);
    name[5..].copy_from_slice(&node);
    name
}

/// The value of an inserted cookie: the node's code, and a tag of 64 bits that binds it to the pool.
pub fn inserted_value(key: &sb_key, pool: &str, node: Code) -> [u8; INSERTED_LEN] {
    let mut value = [0; INSERTED_LEN];
    value[..3].copy_from_slice(&node);
    value[3..].copy_from_slice(&characters::<11>(hash(key, "inserted", &[pool.as_bytes(), &node])));
    value
}

impl sb_session {
    /// The session of a request for a pool with sessions; `node` if its cookie names one.
    pub fn new(pool: Code, node: Option<Code>) -> Self {
        sb_session { pool, node: node.unwrap_or_default(), path: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const KEY: sb_key = sb_key { k0: 1, k1: 2 };

    #[test]
    fn a_code_depends_on_key_pool_and_name_and_not_on_its_place() {
        let codes = node_codes(&KEY, "web", &["a", "b"]);
        assert_eq!(node_codes(&KEY, "web", &["b", "a"]), [codes[1], codes[0]]);
        assert_ne!(codes[0], codes[1]);
        assert_ne!(node_codes(&KEY, "img", &["a", "b"]), codes);
        assert_ne!(node_codes(&sb_key { k0: 3, ..KEY }, "web", &["a", "b"]), codes);
        assert_ne!(pool_codes(&KEY, &["a", "b"]), codes);
    }

    #[test]
    fn codes_of_many_names_differ() {
        let names: Vec<String> = (0..4096).map(|number| format!("n{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let alone: HashSet<Code> = names.iter().map(|name| pool_codes(&KEY, &[name])[0]).collect();
        // 4096^2 / 2 / 2^18 = 32 pairs have equal hashes by chance.
        assert!(alone.len() < names.len(), "some have to give way");
        let together: HashSet<Code> = pool_codes(&KEY, &names).into_iter().collect();
        assert_eq!(together.len(), names.len());
    }

    #[test]
    fn names_and_values_are_made_of_codes() {
        let (pool, node) = (*b"abc", *b"xyz");
        assert_eq!(&rewritten(pool, node), b"SBabcxyz");
        let value = inserted_value(&KEY, "web", node);
        assert_eq!(&value[..3], b"xyz");
        assert!(value.iter().all(|byte| ALPHABET.contains(byte)));
        assert_ne!(value, inserted_value(&KEY, "img", node));
        assert_ne!(value[3..], inserted_value(&KEY, "web", *b"xyy")[3..]);
    }
}
