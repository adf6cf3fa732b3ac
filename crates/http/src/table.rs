//! Character classes, as one table with a bit per class, and scans over it.

/// Characters of a token, such as methods and field names (RFC 9110 section 5.6.2).
pub(crate) const TOKEN: u8 = 1;
/// Characters of a target's path.
pub(crate) const PATH: u8 = 1 << 1;
/// Characters of a target's query. Besides those of RFC 3986 these are characters that browsers send unencoded, as long
/// as no parser gives them a meaning. [`PATH`] has them, too, except the backslash, which some parsers read as a slash.
pub(crate) const QUERY: u8 = 1 << 2;
/// Characters of a field value (RFC 9110 section 5.5): all but control characters; HTAB is allowed.
pub(crate) const VALUE: u8 = 1 << 3;
/// Characters of a name in an authority: unreserved or sub-delims (RFC 3986 section 3.2.2).
pub(crate) const HOST: u8 = 1 << 4;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut i = 0;
    while i < 256 {
        let c = i as u8;
        let mut class = 0;
        let alphanumeric = c.is_ascii_alphanumeric();
        if alphanumeric || contains(b"!#$%&'*+-.^_`|~", c) {
            class |= TOKEN;
        }
        if c.is_ascii_graphic() && !contains(b"\"#<>", c) {
            class |= QUERY;
            if c != b'?' && c != b'\\' {
                class |= PATH;
            }
        }
        if c == b'\t' || c >= b' ' && c != 0x7f {
            class |= VALUE;
        }
        if alphanumeric || contains(b"-._~!$&'()*+,;=", c) {
            class |= HOST;
        }
        classes[i] = class;
        i += 1;
    }
    classes
}

const fn contains(set: &[u8], c: u8) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == c {
            return true;
        }
        i += 1;
    }
    false
}

/// Whether `c` belongs to `class`.
#[inline]
pub(crate) fn is(class: u8, c: u8) -> bool {
    CLASSES[usize::from(c)] & class != 0
}

/// Index of the first byte from `start` on that is not in `class`, or the length of `bytes`.
#[inline]
pub(crate) fn span(class: u8, bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|&c| !is(class, c)).map_or(bytes.len(), |len| start + len)
}

/// Like [`span`] with [`VALUE`], eight bytes at a time, because values are most of a head.
#[inline]
pub(crate) fn span_value(bytes: &[u8], start: usize) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut at = start;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        // The top bit marks bytes below 0x20 and bytes equal to 0x7f. Borrows and carries can mark a byte above a
        // marked one by mistake, so only the lowest mark is used; HTAB is looked up below.
        let below_space = word.wrapping_sub(LOW * 0x20) & !word & HIGH;
        let delete = word ^ (LOW * 0x7f);
        let is_delete = delete.wrapping_sub(LOW) & !delete & HIGH;
        let marks = below_space | is_delete;
        if marks == 0 {
            at += 8;
            continue;
        }
        at += marks.trailing_zeros() as usize / 8;
        if bytes[at] != b'\t' {
            return at;
        }
        at += 1;
    }
    span(VALUE, bytes, at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_classes_have_the_sizes_that_the_grammar_gives_them() {
        let size = |class| (0..=255).filter(|&c| is(class, c)).count();
        assert_eq!(size(TOKEN), 62 + 15);
        assert_eq!(size(QUERY), 94 - 4);
        assert_eq!(size(PATH), 94 - 6);
        assert_eq!(size(VALUE), 256 - 32 - 1 + 1);
        assert_eq!(size(HOST), 62 + 4 + 11);
    }

    proptest! {
        #[test]
        fn span_value_agrees_with_span(
            bytes in prop::collection::vec(
                prop_oneof![8 => 0x1eu8..=0x80, 1 => any::<u8>(), 1 => Just(9)],
                0..60,
            ),
        ) {
            for start in 0..=bytes.len() {
                prop_assert_eq!(span_value(&bytes, start), span(VALUE, &bytes, start));
            }
        }
    }
}
