//! A pool that gets copies of a route's requests.

use std::fmt;
use std::ops::RangeInclusive;

/// Allowed shares, in hundredths of a percent.
const SHARE: RangeInclusive<u16> = 1..=WHOLE;
/// All requests.
const WHOLE: u16 = 10_000;

/// `mirror` and `mirror_share` of a route. Answers to the copies are thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// An index into [`Cluster::pools`](crate::Cluster::pools), of a pool that is not one of the route's own.
    pub pool: usize,
    /// The part of the requests that is copied, in hundredths of a percent.
    pub share: u16,
}

impl Mirror {
    /// A copy of every request.
    pub(crate) fn all(pool: usize) -> Self {
        Mirror { pool, share: WHOLE }
    }

    /// Whether a request at a point of the range of u64 is copied, if requests are spread over all of it.
    pub fn takes(&self, point: u64) -> bool {
        (u128::from(point) * u128::from(WHOLE)) >> 64 < u128::from(self.share)
    }
}

/// Reads a share in percent with at most two digits behind the point.
pub(crate) fn share(text: &str) -> Option<u16> {
    let number = text.strip_suffix('%')?;
    let (whole, rest) = number.split_once('.').map_or((number, "0"), |(whole, rest)| (whole, rest));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(rest) || whole.len() > 3 || rest.len() > 2 {
        return None;
    }
    let hundredths: u16 = format!("{rest:0<2}").parse().ok()?;
    let share = whole.parse::<u16>().ok()? * 100 + hundredths;
    SHARE.contains(&share).then_some(share)
}

/// Its share: `5%`, `0.25%`.
impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:02}", self.share / 100, self.share % 100);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_two_digits_behind_the_point() {
        let rows = [
            ("1%", Some(100), "1%"),
            ("0.5%", Some(50), "0.5%"),
            ("0.01%", Some(1), "0.01%"),
            ("12.30%", Some(1230), "12.3%"),
            ("100%", Some(10_000), "100%"),
        ];
        for (text, share_of, words) in rows {
            assert_eq!(share(text), share_of, "{text}");
            assert_eq!(Mirror { pool: 0, share: share_of.unwrap() }.to_string(), words);
        }
        for text in
            ["0%", "0.00%", "100.01%", "101%", "5", "%", ".5%", "5.%", "0.001%", "-1%", "1e1%", "9999%"]
        {
            assert_eq!(share(text), None, "{text}");
        }
    }

    #[test]
    fn the_share_of_all_points_is_taken() {
        let half = Mirror { pool: 0, share: 5000 };
        for (point, takes) in [(0, true), (u64::MAX / 2, true), (u64::MAX / 2 + 1, false), (u64::MAX, false)]
        {
            assert_eq!(half.takes(point), takes, "{point}");
            assert!(Mirror::all(0).takes(point));
        }
        let least = Mirror { pool: 0, share: 1 };
        assert!(least.takes(u64::MAX / 10_000 - 1) && !least.takes(u64::MAX / 10_000 + 1));
    }
}
