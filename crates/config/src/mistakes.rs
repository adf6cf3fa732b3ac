//! The mistakes in a file, collected instead of stopping at the first. Each check returns the meaning of a value, or
//! reports it.

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use crate::error::Mistake;
use crate::limits::time;
use crate::raw::{Spanned, Texts};
use crate::syntax;

/// An optional text in the file.
pub(crate) type Text = Option<Spanned<String>>;
/// A key, the time that counts for it, and its text if it is in the file.
pub(crate) type Timed<'a> = (&'a str, Duration, &'a Text);
/// Names and the index of the first thing that has each.
pub(crate) type Names<'a> = HashMap<&'a str, usize>;

/// The place of values that are not in the file. What is wrong with them is a consequence of a mistake that has been
/// reported.
pub(crate) const NOWHERE: Range<usize> = usize::MAX..usize::MAX;

/// What was found in a file so far.
pub(crate) struct Mistakes {
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
    /// Offsets of the ends of lines.
    newlines: Vec<usize>,
}

impl Mistakes {
    /// None yet, in this text.
    pub(crate) fn of(text: &str) -> Mistakes {
        let newlines = text.match_indices('\n').map(|(at, _)| at).collect();
        Mistakes { mistakes: Vec::new(), warnings: Vec::new(), newlines }
    }

    pub(crate) fn at<T>(&mut self, value: &Spanned<T>, what: impl Into<String>) {
        self.at_offset(value.span().start, what);
    }

    pub(crate) fn at_offset(&mut self, at: usize, what: impl Into<String>) {
        if at != NOWHERE.start {
            self.mistakes.push(Mistake { at, what: what.into() });
        }
    }

    /// Adds something that is allowed, and yet cannot be meant.
    pub(crate) fn warn<T>(&mut self, value: &Spanned<T>, what: impl Into<String>) {
        self.warnings.push(Mistake { at: value.span().start, what: what.into() });
    }

    /// Adds a warning about the file as a whole.
    pub(crate) fn warn_of_file(&mut self, what: &str) {
        self.warnings.push(Mistake { at: 0, what: what.to_owned() });
    }

    /// The line in which a value begins, counted from 1.
    pub(crate) fn line<T>(&self, value: &Spanned<T>) -> usize {
        self.newlines.partition_point(|newline| *newline < value.span().start) + 1
    }

    /// Number of mistakes found so far.
    pub(crate) fn count(&self) -> usize {
        self.mistakes.len()
    }

    /// The result, if the file has no mistakes.
    pub(crate) fn into_result<T>(self, made: T) -> Result<T, Vec<Mistake>> {
        self.into_warned(made).map(|(made, _)| made)
    }

    /// The result and the warnings, if the file has no mistakes.
    pub(crate) fn into_warned<T>(self, made: T) -> Result<(T, Vec<Mistake>), Vec<Mistake>> {
        if self.mistakes.is_empty() { Ok((made, self.warnings)) } else { Err(self.mistakes) }
    }

    /// A path must not be empty.
    pub(crate) fn path(&mut self, key: &str, path: &Spanned<String>, example: &str) {
        if path.get_ref().is_empty() {
            self.at(path, format!("empty {key}, allowed is a path such as {example:?}"));
        }
    }

    /// Adds a mistake of the file as a whole.
    pub(crate) fn in_file(&mut self, what: &str) {
        self.at_offset(0, what);
    }

    /// The meaning of `value`; reports a mistake in it.
    pub(crate) fn take<T, S>(&mut self, value: &Spanned<S>, meaning: Result<T, String>) -> Option<T> {
        meaning.map_err(|what| self.at(value, what)).ok()
    }

    /// The item of `all` that `text` names.
    pub(crate) fn one_of<T: Copy, const N: usize>(
        &mut self,
        key: &str,
        text: &Spanned<String>,
        all: [T; N],
        name: fn(T) -> &'static str,
    ) -> Option<T> {
        self.take(text, syntax::one_of(key, text.get_ref(), all, name))
    }

    pub(crate) fn number<T: TryFrom<i64> + PartialOrd + Display>(
        &mut self,
        key: &str,
        value: &Spanned<i64>,
        allowed: RangeInclusive<T>,
    ) -> Option<T> {
        self.take(value, syntax::number(key, *value.get_ref(), allowed))
    }

    /// As [`number`](Self::number), and `default` for what is absent or wrong.
    pub(crate) fn number_or<T: TryFrom<i64> + PartialOrd + Display>(
        &mut self,
        key: &str,
        value: &Option<Spanned<i64>>,
        allowed: RangeInclusive<T>,
        default: T,
    ) -> T {
        value.as_ref().and_then(|value| self.number(key, value, allowed)).unwrap_or(default)
    }

    /// A time, and `default` for what is absent or wrong.
    pub(crate) fn time(
        &mut self,
        key: &str,
        text: &Text,
        allowed: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        let time = text.as_ref().and_then(|text| self.take(text, syntax::time(key, text.get_ref(), allowed)));
        time.unwrap_or(default)
    }

    /// Reports a time that is more than the one that bounds it, at its place, or at the other's if it is not in the file.
    /// Defaults are in order, so one of the two is.
    pub(crate) fn times_in_order(&mut self, low: Timed<'_>, high: Timed<'_>) {
        let shown = |(key, value, text): Timed<'_>| {
            let default = if text.is_none() { " (the default)" } else { "" };
            format!("{key} {}{default}", time(value))
        };
        if low.1 > high.1
            && let Some(place) = low.2.as_ref().or(high.2.as_ref())
        {
            let allowed = format!("{} <= {}", low.0, high.0);
            self.at(place, format!("{} is more than {}, allowed is {allowed}", shown(low), shown(high)));
        }
    }

    /// The meaning of each of `texts`, without those that are wrong. `none` is what is wrong with an empty
    /// list.
    pub(crate) fn each<T>(
        &mut self,
        texts: &Spanned<Texts>,
        none: &str,
        mut meaning: impl FnMut(&str) -> Result<T, String>,
    ) -> Vec<T> {
        match texts.get_ref() {
            Texts::One(text) => self.take(texts, meaning(text)).into_iter().collect(),
            Texts::List(list) => {
                if list.is_empty() {
                    self.at(texts, none);
                }
                list.iter().filter_map(|text| self.take(text, meaning(text.get_ref()))).collect()
            }
        }
    }

    /// The indices of names; reports a name that is malformed or taken.
    pub(crate) fn names<'a>(
        &mut self,
        kind: &str,
        names: impl Iterator<Item = &'a Spanned<String>>,
    ) -> Names<'a> {
        let mut seen = Names::new();
        for (index, name) in names.enumerate() {
            self.take(name, syntax::name(kind, name.get_ref()));
            if seen.contains_key(name.get_ref().as_str()) {
                let what =
                    format!("{kind} name {:?} is taken already, allowed is each name once", name.get_ref());
                self.at(name, what);
            } else {
                seen.insert(name.get_ref(), index);
            }
        }
        seen
    }

    /// The index of a thing with this name; reports an unknown name, unless a thing whose name is wrong may be meant.
    pub(crate) fn resolve(&mut self, kind: &str, name: &Spanned<String>, known: &Names<'_>) -> Option<usize> {
        let index = known.get(name.get_ref().as_str()).copied();
        if index.is_none() && known.contains_key("") {
            return None;
        }
        self.take(name, index.ok_or_else(|| syntax::unknown(kind, name.get_ref(), known.keys().copied())))
    }
}
