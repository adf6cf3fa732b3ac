//! Names of pools, nodes and services.

use std::collections::{BTreeMap, HashSet};

use sha2::{Digest, Sha256};
use switchback_config::MAX_NAME;
use switchback_wire::report::pool_id;

/// Digits of the hash that tells names apart.
const DIGITS: usize = 10;

/// Names of one kind. A key has the same name whatever other keys there are, unless two keys read alike.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: BTreeMap<String, String>,
    taken: HashSet<String>,
    /// Ids of the names in reports, of which none may be taken twice; only of pools.
    ids: Option<HashSet<u32>>,
}

impl Names {
    /// Names of pools.
    pub fn of_pools() -> Names {
        Names { ids: Some(HashSet::new()), ..Names::default() }
    }

    /// The name of a key, which is texts with a slash between them.
    pub fn name(&mut self, key: &[&str]) -> String {
        let key = key.join("/");
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let readable = readable(&key);
        let hashed = (0..).map(|attempt: u32| with_hash(&readable, &format!("{key} {attempt}")));
        let short = (readable.len() <= MAX_NAME).then(|| readable.clone());
        let name = short.into_iter().chain(hashed).find(|name| self.is_free(name)).expect("one is free");
        self.taken.insert(name.clone());
        if let Some(ids) = &mut self.ids {
            ids.insert(pool_id(&name));
        }
        self.names.insert(key, name.clone());
        name
    }

    fn is_free(&self, name: &str) -> bool {
        !self.taken.contains(name) && self.ids.as_ref().is_none_or(|ids| !ids.contains(&pool_id(name)))
    }
}

/// A text in the characters of names.
pub(crate) fn readable(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    lower.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }).collect()
}

/// The beginning of a name, and a hash.
pub(crate) fn with_hash(readable: &str, hashed: &str) -> String {
    let end = readable.len().min(MAX_NAME - DIGITS - 1);
    format!("{}-{}", &readable[..end], &hex(hashed.as_bytes())[..DIGITS])
}

/// The SHA-256 hash of something in hexadecimal digits.
pub(crate) fn hex(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_stable_and_told_apart() {
        let mut names = Names::default();
        assert_eq!(names.name(&["shop", "web", "80"]), "shop-web-80");
        assert_eq!(names.name(&["shop", "web", "80"]), "shop-web-80");
        let alike = names.name(&["shop-web", "80"]);
        assert!(alike.starts_with("shop-web-80-") && alike.len() == 22, "{alike}");
        let long = names.name(&["a.b", &"x".repeat(200)]);
        assert!(long.starts_with("a-b-xxx") && long.len() == MAX_NAME, "{long}");
        assert_eq!(Names::default().name(&["a.b", &"x".repeat(200)]), long);
    }

    #[test]
    fn pools_differ_in_their_ids() {
        // 32-bit FNV-1a of "costarring" and "liquid" is the same.
        let mut names = Names::of_pools();
        assert_eq!(pool_id("costarring"), pool_id("liquid"));
        assert_eq!(names.name(&["costarring"]), "costarring");
        assert_ne!(names.name(&["liquid"]), "liquid");
    }
}
