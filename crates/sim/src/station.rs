//! A station: processors or a link, shared by the jobs in service, and a queue.
//!
//! Jobs in service share the station evenly, and none gets more than one processor, as processes share an operating
//! system's processors and TCP connections a link. With as many slots as processors it is a queue with that number of
//! servers, first come, first served.
//!
//! The share changes with each job that arrives or leaves. Instead of each job's remaining work, one number is kept:
//! the service that each has received since the start ("virtual time", as in fair queueing). A new job adds its work to
//! that number, and is done when the number reaches the sum; so each change takes time logarithmic in the number of
//! jobs.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::events::{Time, after};

/// Index of a job.
pub(crate) type Job = u32;

#[derive(Debug)]
pub(crate) struct Station {
    /// Jobs that can be served at full speed at once.
    servers: f64,
    /// Jobs that can be served at once.
    slots: usize,
    /// Jobs that may wait.
    room: usize,
    /// Service that each job in service has received since the start, as of `at`.
    served: f64,
    at: Time,
    active: BinaryHeap<Active>,
    waiting: VecDeque<(Job, f64)>,
    started: u64,
    /// Used server time, in nanoseconds.
    used: f64,
    /// Number of changes; announcements of earlier epochs are invalid.
    epoch: u32,
    announced: Option<Time>,
}

#[derive(Debug)]
struct Active {
    done: f64,
    number: u64,
    job: Job,
}

/// The result of offering a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// The job is in service or waits.
    Taken,
    /// The station has no room.
    Full,
}

impl Station {
    /// A station with `servers` at full speed, `slots` in all, and room for waiting jobs.
    pub(crate) fn new(servers: f64, slots: usize, room: usize) -> Self {
        Station {
            servers,
            slots,
            room,
            served: 0.0,
            at: 0,
            active: BinaryHeap::new(),
            waiting: VecDeque::new(),
            started: 0,
            used: 0.0,
            epoch: 0,
            announced: None,
        }
    }

    /// A link or a processor that any number of jobs share.
    pub(crate) fn shared() -> Self {
        Station::new(1.0, usize::MAX, 0)
    }

    /// Jobs that wait for a slot.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether another job would be accepted.
    pub(crate) fn has_room(&self) -> bool {
        self.active.len() < self.slots || self.waiting.len() < self.room
    }

    /// Server time used so far, in nanoseconds.
    pub(crate) fn used(&mut self, now: Time) -> f64 {
        self.advance(now);
        self.used
    }

    /// Offers a job that takes `work` nanoseconds of one server.
    pub(crate) fn offer(&mut self, now: Time, job: Job, work: f64) -> Offered {
        self.advance(now);
        if self.active.len() < self.slots {
            self.start(job, work);
            Offered::Taken
        } else if self.waiting.len() < self.room {
            self.waiting.push_back((job, work));
            Offered::Taken
        } else {
            Offered::Full
        }
    }

    /// The time at which the next job is done, with the epoch of this announcement. None if it is unchanged since the
    /// last call, or there is no job.
    pub(crate) fn announce(&mut self, now: Time) -> Option<(Time, u32)> {
        let next = self.active.peek().map(|first| {
            let left = (first.done - self.served).max(0.0);
            after(now, left / self.rate())
        });
        // Rounding may shift an unchanged time by one.
        let is_same = match (next, self.announced) {
            (Some(next), Some(announced)) => next.abs_diff(announced) <= 1,
            (next, announced) => next == announced,
        };
        if is_same {
            return None;
        }
        self.announced = next;
        self.epoch = self.epoch.wrapping_add(1);
        next.map(|at| (at, self.epoch))
    }

    /// Takes a job that is done, if `epoch` is valid. Further ones may be done.
    pub(crate) fn finish(&mut self, now: Time, epoch: u32) -> Option<Job> {
        if epoch != self.epoch {
            return None;
        }
        self.advance(now);
        let first = self.active.pop()?;
        // The announced time was rounded, so the sum does not match exactly.
        self.served = self.served.max(first.done);
        self.announced = None;
        if let Some((job, work)) = self.waiting.pop_front() {
            self.start(job, work);
        }
        Some(first.job)
    }

    /// Removes all jobs.
    pub(crate) fn clear(&mut self, now: Time) -> Vec<Job> {
        self.advance(now);
        self.announced = None;
        self.epoch = self.epoch.wrapping_add(1);
        let mut active: Vec<_> = self.active.drain().map(|active| (active.number, active.job)).collect();
        active.sort_unstable();
        let waiting = self.waiting.drain(..).map(|(job, _)| job);
        active.into_iter().map(|(_, job)| job).chain(waiting).collect()
    }

    fn start(&mut self, job: Job, work: f64) {
        self.active.push(Active { done: self.served + work, number: self.started, job });
        self.started += 1;
    }

    /// Rate at which each job is served.
    fn rate(&self) -> f64 {
        let active = self.active.len() as f64;
        if active <= self.servers { 1.0 } else { self.servers / active }
    }

    fn advance(&mut self, now: Time) {
        if now > self.at {
            let active = self.active.len();
            if active > 0 {
                let share = (now - self.at) as f64 * self.rate();
                self.served += share;
                self.used += share * active as f64;
            }
            self.at = now;
        }
    }
}

/// The job that is done first is the greatest, as [`BinaryHeap`] requires.
impl Ord for Active {
    fn cmp(&self, other: &Self) -> Ordering {
        other.done.total_cmp(&self.done).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Active {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Active {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Active {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time at which each job is done, for these arrivals and amounts of work.
    fn run(mut station: Station, jobs: &[(Time, f64)]) -> Vec<(Job, Time)> {
        let mut done = Vec::new();
        let mut next: Option<(Time, u32)> = None;
        let mut coming = jobs.iter().enumerate().peekable();
        loop {
            match (coming.peek(), next) {
                (Some((_, (at, _))), due) if due.is_none_or(|(due, _)| *at <= due) => {
                    let (index, (at, work)) = coming.next().unwrap();
                    assert_eq!(station.offer(*at, index as Job, *work), Offered::Taken);
                    next = station.announce(*at).or(next);
                }
                (_, Some((due, epoch))) => {
                    let job = station.finish(due, epoch).unwrap();
                    done.push((job, due));
                    next = station.announce(due);
                }
                (_, None) => return done,
            }
        }
    }

    #[test]
    fn one_server_takes_one_after_the_other() {
        let station = || Station::new(1.0, 1, usize::MAX);
        assert_eq!(run(station(), &[(0, 10.0), (1, 5.0), (20, 3.0)]), [(0, 10), (1, 15), (2, 23)]);
    }

    #[test]
    fn two_servers_take_two_at_once() {
        let station = Station::new(2.0, 2, usize::MAX);
        assert_eq!(run(station, &[(0, 10.0), (0, 4.0), (0, 4.0)]), [(1, 4), (2, 8), (0, 10)]);
    }

    #[test]
    fn who_shares_gets_less() {
        // The first job has 4 alone, then each gets half: the second is done with 6 at 16, the first with 10 at 18.
        assert_eq!(run(Station::shared(), &[(0, 12.0), (4, 6.0)]), [(1, 16), (0, 18)]);
        // Two processors for three.
        let station = Station::new(2.0, usize::MAX, 0);
        assert_eq!(run(station, &[(0, 6.0), (0, 6.0), (0, 6.0)]), [(0, 9), (1, 9), (2, 9)]);
    }

    #[test]
    fn there_is_only_so_much_room() {
        let mut station = Station::new(1.0, 1, 1);
        assert_eq!(
            [1, 2, 3].map(|job| station.offer(0, job, 5.0)),
            [Offered::Taken, Offered::Taken, Offered::Full]
        );
        assert_eq!((station.waiting(), station.has_room()), (1, false));
        let (at, epoch) = station.announce(0).unwrap();
        assert_eq!(station.finish(at, epoch), Some(1));
        assert!(station.has_room());
        assert_eq!(station.finish(at, epoch.wrapping_sub(1)), None, "an announcement of before");
        assert_eq!(station.clear(6), [2]);
        assert_eq!(station.used(10), 6.0);
    }
}
