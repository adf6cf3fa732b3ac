//! What is known of names, and when each is asked for again. Does no I/O and is told the time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use switchback_config::Addresses;

use crate::ask::Answer;

/// Bounds of the time from one answer to the next question, whatever the answer says.
const TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// Time from a failure to the next question: after the first one, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The names that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<String, Known>,
    /// How long an address counts that answers have no longer.
    hold: Duration,
}

#[derive(Debug)]
struct Known {
    /// The addresses that count, each with the time of the last answer that had it; None: an earlier process has kept it.
    addresses: BTreeMap<IpAddr, Option<Instant>>,
    last: Last,
    /// When the name is asked for; None while it is.
    due: Option<Instant>,
}

/// What the last question has brought.
#[derive(Debug)]
enum Last {
    /// There was none.
    Nothing,
    Answer,
    Failure {
        what: String,
        pause: Duration,
    },
}

/// What is new after a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// Whether other addresses count.
    pub(crate) addresses: bool,
    /// Whether it is the first failure, or the first answer after one.
    pub(crate) turn: bool,
}

impl Names {
    /// Wants these names and no others. The first addresses of a new one are those in `kept`.
    pub(crate) fn want(&mut self, names: &BTreeSet<String>, hold: Duration, kept: &Addresses, now: Instant) {
        self.hold = hold;
        self.known.retain(|name, _| names.contains(name));
        for name in names {
            self.known.entry(name.clone()).or_insert_with(|| {
                let addresses = kept.get(name).into_iter().flatten().map(|address| (*address, None));
                Known { addresses: addresses.collect(), last: Last::Nothing, due: Some(now) }
            });
        }
    }

    /// The names that are to be asked for now; they count as being asked for.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<String> {
        let due = self.known.iter_mut().filter_map(|(name, known)| {
            known.due.take_if(|due| *due <= now)?;
            Some(name.clone())
        });
        due.collect()
    }

    /// When the next name is to be asked for.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.known.values().filter_map(|known| known.due).min()
    }

    /// Takes an answer.
    pub(crate) fn answered(&mut self, name: &str, Answer { addresses, ttl }: Answer, now: Instant) -> News {
        let hold = self.hold;
        let Some(known) = self.known.get_mut(name) else { return News { addresses: false, turn: false } };
        let before: Vec<IpAddr> = known.addresses.keys().copied().collect();
        known.addresses.retain(|_, seen| seen.is_some_and(|seen| now.duration_since(seen) < hold));
        known.addresses.extend(addresses.into_iter().map(|address| (address, Some(now))));
        known.due = Some(now + ttl.clamp(TTL.0, TTL.1));
        let had_failed = matches!(known.last, Last::Failure { .. });
        known.last = Last::Answer;
        News { addresses: !known.addresses.keys().eq(&before), turn: had_failed }
    }

    /// Takes a failure: the addresses stay.
    pub(crate) fn failed(&mut self, name: &str, what: String, now: Instant) -> News {
        let Some(known) = self.known.get_mut(name) else { return News { addresses: false, turn: false } };
        let (pause, turn) = match known.last {
            Last::Failure { pause, .. } => ((pause * 2).min(PAUSE.1), false),
            Last::Nothing | Last::Answer => (PAUSE.0, true),
        };
        known.last = Last::Failure { what, pause };
        known.due = Some(now + pause);
        News { addresses: false, turn }
    }

    /// Whether a question for the name has brought something.
    pub(crate) fn is_settled(&self, name: &str) -> bool {
        self.known.get(name).is_none_or(|known| !matches!(known.last, Last::Nothing))
    }

    /// Why a name has no address; None if it has one.
    pub(crate) fn lacks(&self, name: &str) -> Option<&str> {
        let known = self.known.get(name).filter(|known| known.addresses.is_empty())?;
        Some(match &known.last {
            Last::Failure { what, .. } => what,
            Last::Nothing | Last::Answer => "no name server has answered yet",
        })
    }

    /// The addresses that count for these names.
    pub(crate) fn addresses(&self, names: &BTreeSet<String>) -> Addresses {
        let of = |name: &String| {
            let addresses =
                self.known.get(name).into_iter().flat_map(|known| known.addresses.keys().copied());
            (name.clone(), addresses.collect())
        };
        names.iter().map(of).collect()
    }

    /// The addresses of all names that have some.
    pub(crate) fn all(&self) -> Addresses {
        let mut all = self.addresses(&self.known.keys().cloned().collect());
        all.retain(|_, addresses| !addresses.is_empty());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One name, and the seconds since it is wanted.
    struct World {
        names: Names,
        start: Instant,
    }

    impl World {
        fn new(hold: u64, kept: &[&str]) -> World {
            let (mut names, start) = (Names::default(), Instant::now());
            let kept = Addresses::from([("app".to_owned(), set(kept))]);
            names.want(&wanted(), Duration::from_secs(hold), &kept, start);
            World { names, start }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        /// Answers the question of this second, and returns whether addresses are others, and when the next question is due.
        fn answer(&mut self, second: u64, addresses: &[&str], ttl: u64) -> (bool, u64) {
            assert_eq!(self.names.due(self.at(second)), ["app"], "at {second} s");
            let answer = Answer { addresses: set(addresses), ttl: Duration::from_secs(ttl) };
            let news = self.names.answered("app", answer, self.at(second));
            (news.addresses, self.next())
        }

        fn fail(&mut self, second: u64) -> (News, u64) {
            assert_eq!(self.names.due(self.at(second)), ["app"], "at {second} s");
            let news = self.names.failed("app", "why".to_owned(), self.at(second));
            (news, self.next())
        }

        fn next(&self) -> u64 {
            self.names.next().unwrap().duration_since(self.start).as_secs()
        }

        fn has(&self, addresses: &[&str]) -> bool {
            self.names.addresses(&wanted())["app"] == set(addresses)
        }
    }

    fn wanted() -> BTreeSet<String> {
        BTreeSet::from(["app".to_owned()])
    }

    fn set(addresses: &[&str]) -> BTreeSet<IpAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    const ONE: &str = "192.0.2.1";
    const TWO: &str = "192.0.2.2";

    #[test]
    fn a_name_is_asked_for_when_its_time_is_over() {
        let mut world = World::new(0, &[]);
        assert!(!world.names.is_settled("app"));
        assert_eq!(world.names.lacks("app"), Some("no name server has answered yet"));
        assert_eq!(world.answer(0, &[ONE], 30), (true, 30));
        assert!(world.names.is_settled("app") && world.names.lacks("app").is_none());
        assert!(world.names.due(world.at(29)).is_empty());
        assert_eq!(world.answer(30, &[ONE], 0), (false, 31), "no more often than each second");
        assert_eq!(world.answer(31, &[TWO], 86400), (true, 331), "five minutes at most");
        assert!(world.has(&[TWO]), "what is gone is gone at once");
        assert_eq!(world.names.due(world.at(400)), ["app"]);
        assert!(world.names.due(world.at(401)).is_empty(), "it is being asked for");
        assert_eq!(world.names.next(), None);
    }

    #[test]
    fn failures_take_nothing_away() {
        let mut world = World::new(0, &[]);
        assert_eq!(world.fail(0), (News { addresses: false, turn: true }, 1));
        assert_eq!(world.names.lacks("app"), Some("why"));
        assert_eq!(world.answer(1, &[ONE], 5), (true, 6));
        let mut second = 6;
        for (number, pause) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
            let turn = number == 0;
            assert_eq!(world.fail(second), (News { addresses: false, turn }, second + pause));
            assert!(world.has(&[ONE]));
            second += pause;
        }
        let answer = Answer { addresses: set(&[ONE]), ttl: Duration::from_secs(5) };
        world.names.due(world.at(second));
        let news = world.names.answered("app", answer, world.at(second));
        assert_eq!(news, News { addresses: false, turn: true });
        assert_eq!(world.fail(second + 5).1, second + 6, "the pauses begin anew");
    }

    #[test]
    fn addresses_are_held_since_they_were_seen() {
        let mut world = World::new(10, &[]);
        assert_eq!(world.answer(0, &[ONE], 4), (true, 4));
        assert_eq!(world.answer(4, &[TWO], 4), (true, 8));
        assert!(world.has(&[ONE, TWO]));
        assert_eq!(world.answer(8, &[TWO], 4), (false, 12));
        assert_eq!(world.answer(12, &[TWO], 4), (true, 16));
        assert!(world.has(&[TWO]));
        // A server that gives one of two in turn.
        for turn in 4..20 {
            world.answer(turn * 4, &[[ONE, TWO][turn as usize % 2]], 4);
            assert!(turn == 4 || world.has(&[ONE, TWO]));
        }
    }

    #[test]
    fn kept_addresses_count_until_an_answer_comes() {
        let mut world = World::new(3600, &[ONE]);
        assert!(world.has(&[ONE]) && !world.names.is_settled("app"));
        world.fail(0);
        assert!(world.has(&[ONE]));
        assert_eq!(world.answer(1, &[TWO], 5), (true, 6));
        assert!(world.has(&[TWO]), "nobody knows when they were seen");
        assert_eq!(world.names.all(), Addresses::from([("app".to_owned(), set(&[TWO]))]));
    }

    #[test]
    fn names_that_are_not_wanted_are_forgotten() {
        let mut world = World::new(0, &[]);
        world.answer(0, &[ONE], 5);
        let other = BTreeSet::from(["other".to_owned()]);
        world.names.want(&other, Duration::ZERO, &Addresses::new(), world.at(1));
        let answer = Answer { addresses: set(&[ONE]), ttl: Duration::ZERO };
        assert!(!world.names.answered("app", answer, world.at(2)).addresses, "too late");
        assert!(world.names.all().is_empty());
        assert_eq!(world.names.due(world.at(2)), ["other"]);
    }
}
