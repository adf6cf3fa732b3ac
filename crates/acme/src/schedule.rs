//! When a certificate is ordered.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::time::{Duration, SystemTime};

use switchback_tls::{Description, Validity};

/// The part of its time that a certificate has left when it is renewed.
const LEFT: u32 = 3;
/// Clusters whose certificates begin at the same time renew them within this part of that time.
const SPREAD: f64 = 0.05;
/// Time until an order that has failed once is tried again: switches and nodes may just have been started.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The same after the second failure. Let's Encrypt allows five failed validations an hour.
const SECOND_PAUSE: Duration = Duration::from_secs(5 * 60);
/// The longest time until an order is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(6 * 3600);
/// The part by which a pause is longer or shorter than its mean.
const JITTER: f64 = 0.2;

/// What is wanted of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its domains; it is known by the first.
    pub(crate) domains: Vec<String>,
    /// URL of the CA's directory.
    pub(crate) directory: String,
}

/// When the certificate is to be ordered: None for now, because there is none, or another one is wanted.
pub(crate) fn renewal(wanted: &Wanted, known: Option<&Description>) -> Option<SystemTime> {
    let Description { directory, names, validity } = known?;
    let is_right =
        *directory == wanted.directory && wanted.domains.iter().all(|domain| names.contains(domain));
    is_right.then(|| renewal_of(validity, &wanted.domains))
}

fn renewal_of(validity: &Validity, domains: &[String]) -> SystemTime {
    let whole = validity.whole();
    // The same after a restart.
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((domains, validity.begin));
    let early = whole.mul_f64(SPREAD * (hash as f64 / u64::MAX as f64));
    validity.end - whole / LEFT - early
}

/// The shortest time from one certificate to the next one for the same domains, whatever the clock says.
pub(crate) fn rest(validity: &Validity) -> Duration {
    validity.whole() / 2
}

/// Time until an order that has failed so many times is tried again. `chance` is from 0 to 1.
pub(crate) fn pause(failures: u32, chance: f64) -> Duration {
    let mean = match failures {
        0 | 1 => FIRST_PAUSE,
        more => (SECOND_PAUSE * (1 << (more - 2).min(16))).min(LONGEST_PAUSE),
    };
    mean.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance)
}

/// A random number from 0 to 1.
pub(crate) fn chance() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn wanted(domains: &[&str]) -> Wanted {
        let domains = domains.iter().map(|domain| (*domain).to_owned()).collect();
        Wanted { domains, directory: "https://ca.example/directory".to_owned() }
    }

    fn known(days: u32) -> Description {
        let begin = SystemTime::UNIX_EPOCH + DAY * 20_000;
        Description {
            directory: "https://ca.example/directory".to_owned(),
            names: vec!["a.example".to_owned(), "b.example".to_owned()],
            validity: Validity { begin, end: begin + DAY * days },
        }
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_is_left() {
        let known = known(90);
        let at = renewal(&wanted(&["a.example", "b.example"]), Some(&known)).unwrap();
        let passed = at.duration_since(known.validity.begin).unwrap();
        assert!((DAY.mul_f64(55.5)..=DAY * 60).contains(&passed), "{passed:?}");
        assert_eq!(renewal(&wanted(&["a.example", "b.example"]), Some(&known)), Some(at), "it changes");
        assert_ne!(renewal(&wanted(&["b.example"]), Some(&known)), Some(at), "all at the same time");
    }

    #[test]
    fn another_certificate_is_ordered_at_once() {
        assert_eq!(renewal(&wanted(&["a.example"]), None), None);
        assert_eq!(renewal(&wanted(&["a.example", "c.example"]), Some(&known(90))), None, "a domain more");
        assert!(renewal(&wanted(&["a.example"]), Some(&known(90))).is_some(), "a domain less");
        let elsewhere = Wanted { directory: "https://other.example/".to_owned(), ..wanted(&["a.example"]) };
        assert_eq!(renewal(&elsewhere, Some(&known(90))), None, "another CA");
    }

    #[test]
    fn pauses_double_up_to_six_hours() {
        let minutes: Vec<u64> = (1..=9).map(|failures| pause(failures, 0.5).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 5, 10, 20, 40, 80, 160, 320, 360]);
        assert_eq!(pause(u32::MAX, 0.5), LONGEST_PAUSE);
        assert_eq!([0.0, 1.0].map(|chance| pause(2, chance).as_secs()), [240, 360]);
        // Tries in the first hour, with the shortest pauses.
        let mut at = Duration::ZERO;
        let tries = (1..).take_while(|failures| {
            at += pause(*failures, 0.0);
            at < Duration::from_secs(3600)
        });
        assert_eq!(1 + tries.count(), 5, "Let's Encrypt allows no more");
    }

    #[test]
    fn chances_differ() {
        let chances: Vec<f64> = (0..100).map(|_| chance()).collect();
        assert!(chances.iter().all(|chance| (0.0..=1.0).contains(chance)));
        assert!(chances.iter().any(|chance| *chance < 0.5) && chances.iter().any(|chance| *chance > 0.5));
    }
}
