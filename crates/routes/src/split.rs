//! Pools that share requests, and those that get copies of a share.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use switchback_config::Split;
use switchback_wire::sb_key;

/// The pool that gets a request: the same for all with the same value of what the split goes by, or else for this
/// request. All machines of the cluster choose alike, and clients, without the secret, cannot tell which pool is theirs.
pub fn share(split: &Split, secret: &sb_key, common: Option<&[u8]>, request: &[&[u8]]) -> usize {
    let mut hasher = SipHasher13::new_with_keys(secret.k0, secret.k1);
    // Not the hash by which the policy of a pool chooses the node.
    hasher.write(b"split");
    match &common {
        Some(common) => hasher.write(common),
        None => request.iter().for_each(|part| hasher.write(part)),
    }
    split.pool_at(hasher.finish())
}

/// Where a request is among all, for the share of them that is [mirrored](switchback_config::Mirror::takes).
pub fn mirror_point(secret: &sb_key, request: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(secret.k0, secret.k1);
    hasher.write(b"mirror");
    request.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use switchback_config::HashKey;

    use super::*;

    const SECRET: sb_key = sb_key { k0: 7, k1: 9 };

    fn split(weights: &[u32], by: Option<HashKey>) -> Split {
        Split { shares: weights.iter().enumerate().map(|(pool, weight)| (pool, *weight)).collect(), by }
    }

    #[test]
    fn the_sum_of_weights_is_cut_where_they_end() {
        let split = split(&[0, 1, 0, 3], None);
        for (point, pool) in [(0, 1), (u64::MAX / 4, 1), (u64::MAX / 4 + 1, 3), (u64::MAX, 3)] {
            assert_eq!(split.pool_at(point), pool, "{point}");
        }
    }

    #[test]
    fn of_100_000_requests_a_canary_of_one_percent_gets_its_share_within_a_tenth_of_a_point() {
        let split = split(&[99, 1], None);
        let request = |number: u32| {
            // Two hundred connections, requests of some hundred bytes.
            let (port, begins) = ((number % 200).to_be_bytes(), (number / 200 * 157).to_be_bytes());
            share(&split, &SECRET, None, &[&port, &begins])
        };
        let canary = (0..100_000).map(request).filter(|pool| *pool == 1).count();
        assert!((900..=1100).contains(&canary), "{canary}");
    }

    #[test]
    fn what_requests_have_in_common_decides_and_nothing_else() {
        let split = split(&[1, 1], Some(HashKey::Client));
        let pool = |client: u8, request: u8| share(&split, &SECRET, Some(&[client]), &[&[request]]);
        assert!((0..=255).all(|client| pool(client, 0) == pool(client, 1)));
        let first = (0..=255).filter(|client| pool(*client, 0) == 0).count();
        assert!((90..=166).contains(&first), "{first} of 256");
    }
}
