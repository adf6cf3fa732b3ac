//! Subkeys of the cluster key, so that handoff tags and SYN cookies never share one.
//!
//! HKDF-SHA256 (RFC 5869) with the purpose as `info`. Cookie keys also depend on the epoch, which every switch of
//! the cluster takes from the clock: cookies of one switch are valid at another, and old ones expire.

use std::time::Duration;

use hkdf::Hkdf;
use sha2::Sha256;
use siphasher::sip::SipHasher24;

use crate::bytes_of;
use crate::generated::{sb_client_key_input, sb_key};

/// Time for which one key makes SYN cookies. A cookie is valid in its own epoch and the next: between 128 and 256 s.
pub const COOKIE_EPOCH: Duration = Duration::from_secs(128);

/// The epoch of a time since 1970.
pub fn cookie_epoch(since_1970: Duration) -> u64 {
    since_1970.as_secs() / COOKIE_EPOCH.as_secs()
}

/// The key of the tags of handoff packets.
pub fn handoff_key(cluster_key: &[u8; 32]) -> sb_key {
    derive(cluster_key, b"switchback handoff v1", 0)
}

/// The key of SYN cookies made in `epoch`.
pub fn cookie_key(cluster_key: &[u8; 32], epoch: u64) -> sb_key {
    derive(cluster_key, b"switchback cookie v1", epoch)
}

/// The key of the codes and tags in session cookies.
pub fn session_key(cluster_key: &[u8; 32]) -> sb_key {
    derive(cluster_key, b"switchback session v1", 0)
}

/// The key of the key names of session tickets, which are sent in the clear.
pub fn ticket_name_key(cluster_key: &[u8; 32]) -> sb_key {
    derive(cluster_key, b"switchback ticket name v1", 0)
}

/// The key of questions between machines (`switchback test`).
pub fn survey_key(cluster_key: &[u8; 32]) -> sb_key {
    derive(cluster_key, b"switchback survey v1", 0)
}

/// The key from which the keys of clients are derived.
pub fn client_master_key(cluster_key: &[u8; 32]) -> sb_key {
    derive(cluster_key, b"switchback client v1", 0)
}

/// The key of the client with this address in its 16-byte form: one SipHash for each half, since a node derives it for
/// each packet. `sb_client_key()` in `bpf/direct.h` is the same.
pub fn client_key(master: &sb_key, address: [u8; 16]) -> sb_key {
    let half = |half: u64| {
        let input = sb_client_key_input { client: address, half: half.to_le() };
        SipHasher24::new_with_keys(master.k0, master.k1).hash(bytes_of(&input))
    };
    sb_key { k0: half(0), k1: half(1) }
}

fn derive(cluster_key: &[u8; 32], purpose: &[u8], epoch: u64) -> sb_key {
    let mut out = [0; 16];
    Hkdf::<Sha256>::new(None, cluster_key)
        .expand_multi_info(&[purpose, &epoch.to_be_bytes()], &mut out)
        .expect("16 bytes are less than HKDF's limit of 255 hashes");
    let (k0, k1) = out.split_at(8);
    sb_key {
        k0: u64::from_le_bytes(k0.try_into().expect("8 of 16 bytes")),
        k1: u64::from_le_bytes(k1.try_into().expect("8 of 16 bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_epochs_and_cluster_keys_give_different_subkeys() {
        let (a, b) = ([1; 32], [2; 32]);
        let keys =
            [handoff_key(&a), handoff_key(&b), cookie_key(&a, 0), cookie_key(&a, 1), cookie_key(&b, 0)];
        for (i, x) in keys.iter().enumerate() {
            for y in &keys[i + 1..] {
                assert_ne!((x.k0, x.k1), (y.k0, y.k1));
            }
        }
    }

    #[test]
    fn each_client_has_a_key_of_its_own_in_each_cluster() {
        let (a, b) = (client_master_key(&[1; 32]), client_master_key(&[2; 32]));
        assert_ne!(a, handoff_key(&[1; 32]));
        let keys = [client_key(&a, [1; 16]), client_key(&a, [2; 16]), client_key(&b, [1; 16])];
        for (i, x) in keys.iter().enumerate() {
            assert_ne!(x.k0, x.k1);
            assert!(keys[i + 1..].iter().all(|y| x.k0 != y.k0 && x.k1 != y.k1));
        }
    }

    #[test]
    fn an_epoch_ends_on_the_second() {
        assert_eq!(cookie_epoch(Duration::from_millis(127_999)), 0);
        assert_eq!(cookie_epoch(Duration::from_secs(128)), 1);
    }
}
