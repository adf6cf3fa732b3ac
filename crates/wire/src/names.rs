//! Short codes of names, which switches and nodes find on their own.

use std::collections::HashSet;
use std::hash::Hash;

/// The 32-bit FNV-1a hash.
pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let bytes = bytes.into_iter();
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Distinct codes of the names. Of two names whose first code is one, the later in the alphabet takes that of its next
/// attempt, so a new name can change another's code.
///
/// # Panics
///
/// If there are fewer codes than names.
pub(crate) fn distinct<C: Copy + Default + Eq + Hash>(
    names: &[&str],
    code: impl Fn(&str, u64) -> C,
) -> Vec<C> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|&index| names[index]);
    let mut taken = HashSet::new();
    let mut codes = vec![C::default(); names.len()];
    for index in order {
        let mut attempts = (0..).map(|attempt| code(names[index], attempt));
        codes[index] = attempts.find(|code| taken.insert(*code)).expect("there are more codes than names");
    }
    codes
}
