//! The time in which a certificate is valid, and how near its end is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustls::pki_types::CertificateDer;
use x509_cert::der::Decode;
use x509_cert::time::Time;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The end of a certificate is not near before the last quarter of its time: some are made for a week.
const QUARTERS: u32 = 4;

/// The time in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub begin: SystemTime,
    /// The last moment.
    pub end: SystemTime,
}

/// How near the end of a certificate is. The stages between the first and the last are within the last quarter of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It is not near.
    Later,
    /// At most 30 days are left.
    Month,
    /// At most seven days are left.
    Week,
    /// At most a day is left.
    Day,
    /// It has passed.
    Ended,
}

impl Validity {
    /// Reads a certificate; None if it cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
        let validity = x509_cert::Certificate::from_der(certificate).ok()?.tbs_certificate.validity;
        let time = |time: Time| UNIX_EPOCH.checked_add(time.to_unix_duration());
        Some(Validity { begin: time(validity.not_before)?, end: time(validity.not_after)? })
    }

    /// The time from the first to the last moment.
    pub fn whole(&self) -> Duration {
        self.end.duration_since(self.begin).unwrap_or_default()
    }

    /// The day of the last moment, in UTC.
    pub fn last_day(&self) -> Option<String> {
        day(self.end)
    }

    /// How near the end is.
    pub fn stage(&self, now: SystemTime) -> Stage {
        let Ok(left) = self.end.duration_since(now) else { return Stage::Ended };
        let quarter = self.whole() / QUARTERS;
        let stages = [(Stage::Day, 1), (Stage::Week, 7), (Stage::Month, 30)];
        let passed = stages.into_iter().find(|(_, days)| left <= quarter.min(DAY * *days));
        passed.map_or(Stage::Later, |(stage, _)| stage)
    }

    /// What clients have to expect, if not all is well.
    pub fn warning(&self, now: SystemTime) -> Option<String> {
        if now < self.begin {
            return Some(format!("begins on {}, clients refuse it until then", day(self.begin)?));
        }
        match self.stage(now) {
            Stage::Later => None,
            Stage::Ended => Some(format!("ended on {}, clients refuse it", day(self.end)?)),
            Stage::Month | Stage::Week | Stage::Day => {
                let left = self.end.duration_since(now).unwrap_or_default();
                let days = left.as_secs() / DAY.as_secs();
                let days = if days == 1 { "1 day".to_owned() } else { format!("{days} days") };
                Some(format!("ends on {}, in {days}", day(self.end)?))
            }
        }
    }
}

/// The date, in UTC.
pub(crate) fn day(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).map(|time| time.to_zoned(TimeZone::UTC).date().to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that lives so many days.
    fn living(days: u32) -> Validity {
        Validity { begin: UNIX_EPOCH, end: UNIX_EPOCH + DAY * days }
    }

    #[test]
    fn stages_of_certificates_with_long_and_short_lives() {
        use Stage::{Day, Ended, Later, Month, Week};
        // Hours before the end at which each begins.
        let rows = [
            (365, &[(Month, 720), (Week, 168), (Day, 24)][..]),
            // The last quarter of 90 days is 22.5 days.
            (90, &[(Month, 540), (Week, 168), (Day, 24)]),
            (6, &[(Week, 36), (Day, 24)]),
            (1, &[(Day, 6)]),
        ];
        for (days, stages) in rows {
            let validity = living(days);
            let mut before = Later;
            for &(stage, hours) in stages {
                let begins = validity.end - Duration::from_secs(hours * 3600);
                let found = [begins - Duration::from_nanos(1), begins].map(|now| validity.stage(now));
                assert_eq!(found, [before, stage], "{days} days, {hours} hours before the end");
                before = stage;
            }
            assert_eq!(validity.stage(validity.end), Day);
            assert_eq!(validity.stage(validity.end + Duration::from_nanos(1)), Ended);
        }
    }
}
