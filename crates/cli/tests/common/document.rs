//! Documents with a known content.

/// A mebibyte that is like no other with a different seed (xorshift64).
pub fn block(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).take((1 << 20) / 8).flatten().collect()
}
