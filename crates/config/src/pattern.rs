//! Regular expressions.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::hir::literal::Extractor;
use regex_syntax::hir::{Hir, Look};

/// The most bytes that a compiled expression may take.
const COMPILED: usize = 64 << 10;

/// A regular expression in the syntax of the crate `regex`, which is compared with a whole text in linear time.
#[derive(Clone)]
pub struct Pattern {
    text: Box<str>,
    prefix: Box<str>,
    whole: Regex,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Pattern, String> {
        let hir = regex_syntax::parse(text).map_err(|error| invalid(text, &said(&error)))?;
        let prefixes = Extractor::new().extract(&hir);
        let prefix = prefixes.longest_common_prefix().and_then(|bytes| std::str::from_utf8(bytes).ok());
        let prefix = prefix.unwrap_or_default().into();
        let whole = Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)]).to_string();
        let whole = RegexBuilder::new(&whole).size_limit(COMPILED).build();
        let too_large = || format!("allowed are {} KiB when it is compiled", COMPILED >> 10);
        let whole = whole.map_err(|_| invalid(text, &too_large()))?;
        Ok(Pattern { text: text.into(), prefix, whole })
    }

    /// An expression that is found in those texts only that match as a whole.
    pub fn anchored(&self) -> &str {
        self.whole.as_str()
    }

    /// All texts that match begin with this one.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.whole.is_match(text)
    }
}

/// By the text in the file.
impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// As in the file.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn invalid(text: &str, why: &str) -> String {
    format!("bad regular expression {text:?}: {why}")
}

/// What is wrong, without the picture of the expression.
fn said(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn whole_texts_match() {
        for (text, matching, others) in [
            ("a|ab", ["a", "ab"], ["abc", "xa"]),
            ("(?x) /v \\d # one digit", ["/v1", "/v9"], ["/v10", "/v1 "]),
            ("(?im)^/A$", ["/a", "/A"], ["/a\n/a", "/b"]),
            ("/v[0-9]+/.*", ["/v1/", "/v12/x"], ["/v/", "/w1/"]),
        ] {
            let pattern = pattern(text);
            assert!(matching.iter().all(|one| pattern.matches(one.as_bytes())), "{text}");
            assert!(!others.iter().any(|one| pattern.matches(one.as_bytes())), "{text}");
            assert!(matching.iter().all(|one| one.starts_with(pattern.prefix())), "{text}");
        }
        assert_eq!(pattern("/v[0-9]+/.*").prefix(), "/v");
        assert_eq!(pattern("/a|/b").prefix(), "/");
        assert_eq!(pattern("").prefix(), "");
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        for (text, why) in [
            ("a)|(b", "unopened group"),
            ("(?=a)", "look-around"),
            ("\\1", "backreferences"),
            ("[a", "unclosed character class"),
            ("a{1000}{1000}", "64 KiB"),
        ] {
            let error = Pattern::new(text).expect_err(text);
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
    }

    /// Engines that go back take 2^30 steps and more for these.
    #[test]
    fn expressions_that_blow_up_elsewhere_match_in_linear_time() {
        let text = "a".repeat(10_000) + "!";
        for expression in ["(a+)+", "(a|a)*", "(.*a){20}", "(a|aa)+", "(a*)*b"] {
            assert!(!pattern(expression).matches(text.as_bytes()), "{expression}");
        }
    }
}
