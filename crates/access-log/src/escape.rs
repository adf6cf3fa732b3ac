//! Escapes text from outside that may come to a terminal: requests in the access log, the status of daemons.
//!
//! Besides the control characters of ASCII a terminal obeys those of C1 (U+0080 to U+009F), and the
//! bidirectional ones reorder what is read. So nothing is written as it is that Unicode calls a control, a
//! format or a separator, or has not assigned.

use std::borrow::Cow;

/// Whether a terminal shows the character, and shows it in its place.
pub fn is_printable(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1
}

/// The text with all characters that are not printable, but for ends of lines, escaped as in Rust:
/// `\u{202e}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c == '\n' || is_printable(c);
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_plain(c) { shown.push(c) } else { shown.extend(c.escape_unicode()) }
    }
    shown.into()
}

/// The JSON document with such characters in its strings escaped as in JSON: its value is the same.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if json.chars().all(is_printable) {
        return json.into();
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_printable(c) { shown.push(c) } else { push_json_escape(&mut shown, c) }
    }
    shown.into()
}

/// Escapes as RFC 8259 section 7 says: two units of UTF-16 for a character beyond the basic plane.
pub(crate) fn push_json_escape(out: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        *out += &format!("\\u{unit:04x}");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Controls of C0 and C1, bidirectional ones, other formats, separators of lines, a tag.
    pub(crate) const HOSTILE: &str = "\u{1b}[2J\u{7f}\u{80}\u{9b}31m\u{9f}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\
        \u{2066}\u{2069}\u{feff}\u{e0041}";

    #[test]
    fn controls_formats_and_separators_are_escaped() {
        for c in HOSTILE.chars().filter(|c| !c.is_ascii_graphic()) {
            assert!(!is_printable(c), "{c:?}");
        }
        let ranges = [0..=0x1f, 0x7f..=0x9f, 0x200b..=0x200f, 0x2028..=0x202e, 0x2060..=0x206f];
        assert!(ranges.into_iter().flatten().filter_map(char::from_u32).all(|c| !is_printable(c)));
        assert!(printable(HOSTILE).chars().all(is_printable));
        assert_eq!(printable("a\u{202e}b\u{9b}\n"), "a\\u{202e}b\\u{9b}\n");
    }

    #[test]
    fn what_people_write_stays_as_it_is() {
        for text in [
            "",
            "plain \"text\" it's \\",
            "caf\u{e9} \u{4f60}\u{597d} \u{645}\u{631}\u{62d}\u{628}\u{627} \u{1f642}",
            "two\nlines",
        ] {
            assert_eq!(printable(text), text);
        }
    }

    #[test]
    fn json_means_the_same() {
        let value = serde_json::json!({ "text": format!("\"{HOSTILE}\u{e9}") });
        let shown = printable_json(&value.to_string()).into_owned();
        assert!(shown.chars().all(is_printable), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
