//! The part of a pool's choice that does not depend on its policy.
//!
//! Health, zones, failed attempts and slow start limit the candidates of every policy. They are handled here once, so
//! that a policy sees only candidates with weights.
//!
//! In this order:
//!
//! 1. Members that are up are offered. If none is, those that are suspect are: a node that was silent for a
//!    moment is better than no answer. Members of weight 0 do not count.
//! 2. Those that were tried for this request are left out. If nothing remains, nothing is chosen, and the
//!    caller lets the request wait: a node that refused it will take it sooner than a suspect one answers.
//! 3. If a near one remains whose accept queue is not known to be full, only near ones are offered.
//! 4. The weight of a member in its slow start is reduced.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::build::build;
use crate::{Ask, Candidate, Member, Policy, PolicyKind, Queue};

/// A configured weight of 1, as policies see it. The factor leaves room for the fractions of slow start.
pub const WEIGHT_SCALE: u32 = 256;

/// Most choices of one pool made ahead that are neither used nor given back.
pub const MOST_AHEAD: usize = 128;

/// Availability of a member for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It can be given requests.
    Up,
    /// Silent, but not for long. It is given requests only if no member is up.
    Suspect,
    /// Unhealthy, draining or gone. It is given no requests.
    Down,
}

/// State of one member at the moment of one choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Availability for requests.
    pub availability: Availability,
    /// When it came up, on the clock of [`Ask::now`]. Zero: before this process started, so that it has its full
    /// weight.
    pub up_since: Duration,
    /// The accept queue of its listener.
    pub queue: Queue,
    /// Requests given to it whose responses are not complete.
    pub in_flight: u32,
    /// Open connections.
    pub flows: u32,
    /// Its recent time to the first byte of a response; `None` if there is no recent one.
    pub latency: Option<Duration>,
}

impl Load {
    /// Of a member that is up and has nothing to do.
    pub const IDLE: Load = Load {
        availability: Availability::Up,
        up_since: Duration::ZERO,
        queue: Queue { len: 0, limit: 0 },
        in_flight: 0,
        flows: 0,
        latency: None,
    };

    /// With so many choices made ahead, each of which counts as what it will become.
    #[must_use]
    pub fn with_ahead(self, choices: u32) -> Load {
        Load {
            queue: Queue { len: self.queue.len + choices, ..self.queue },
            in_flight: self.in_flight + choices,
            flows: self.flows + choices,
            ..self
        }
    }
}

/// A pool: its members, its policy and the policy's state.
pub struct Balancer {
    kind: PolicyKind,
    policy: Box<dyn Policy>,
    members: Vec<Member>,
    slow_start: Duration,
    /// Whether some members are near and others are not.
    has_zones: bool,
    /// Last state noted of each member.
    loads: Vec<Load>,
    /// Last candidate that the policy was given for each member.
    candidates: Vec<Candidate>,
    /// Members that are up and have a weight.
    up: usize,
    /// Members in their slow start.
    rising: BTreeSet<usize>,
    /// Weight of each member at the last choice.
    weights: Vec<u32>,
    /// Availability of the members that the policy may choose.
    offered: Availability,
    /// Whether the policy may choose near members only.
    only_near: bool,
}

impl Balancer {
    /// A pool of `members`, whose weights grow to their whole over `slow_start` after they came up; zero: at
    /// once. All are down until their state is noted.
    pub fn new(kind: PolicyKind, members: Vec<Member>, slow_start: Duration) -> Self {
        let load = Load { availability: Availability::Down, ..Load::IDLE };
        let is_near = |member: &Member| member.near;
        Balancer {
            kind,
            policy: build(kind, &members),
            slow_start,
            has_zones: members.iter().any(is_near) && !members.iter().all(is_near),
            loads: vec![load; members.len()],
            candidates: vec![Candidate::default(); members.len()],
            up: 0,
            rising: BTreeSet::new(),
            weights: members.iter().map(|member| whole_weight(member.weight)).collect(),
            members,
            offered: Availability::Up,
            only_near: false,
        }
    }

    /// Chooses the member for one request and returns its index, or `None` if there is none now.
    ///
    /// `load` returns the state of a member, by index; it is called once for each. `tried` are the members
    /// that could not take this request. `random` gives 64 independent uniform bits at each call.
    pub fn pick(
        &mut self,
        ask: &Ask,
        load: impl Fn(usize) -> Load,
        tried: &[usize],
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        for index in 0..self.members.len() {
            self.note(index, load(index));
        }
        self.pick_noted(ask, tried, random)
    }

    /// Notes the state of a member.
    // Of most members nothing has changed when all of them are noted. What finds that out is compiled where
    // it is called, in another crate; without the hint it remains a call for each member.
    #[inline]
    pub fn note(&mut self, index: usize, load: Load) {
        if self.loads[index] != load {
            self.change(index, load);
        }
    }

    fn change(&mut self, index: usize, load: Load) {
        let before = std::mem::replace(&mut self.loads[index], load);
        if self.members[index].weight > 0 {
            self.up += usize::from(load.availability == Availability::Up);
            self.up -= usize::from(before.availability == Availability::Up);
        }
        if load.up_since != before.up_since {
            self.rising.insert(index);
        }
        self.tell(index, true);
    }

    /// The policy.
    pub fn kind(&self) -> PolicyKind {
        self.kind
    }

    /// As [`pick`](Self::pick), for callers that have noted each change: the time of a choice hardly grows
    /// with the number of members.
    pub fn pick_noted(
        &mut self,
        ask: &Ask,
        tried: &[usize],
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        self.prepare(ask.now, tried);
        let choice = self.policy.pick(&self.candidates, ask, random);
        tried.iter().for_each(|&index| self.tell(index, true));
        choice
    }

    /// As [`pick_noted`](Self::pick_noted), for a choice made ahead of its request, which is either used or
    /// [given back](Self::give_back). Until then the caller counts it as load of its member: a connection, a request in
    /// flight, a place in the accept queue. At most [`MOST_AHEAD`] choices are neither used nor given back, and they are
    /// used in order. A choice that depends on the request, by [`Ask::key`] or by what was tried, cannot be made ahead.
    pub fn pick_ahead(&mut self, now: Duration, random: &mut dyn FnMut() -> u64) -> Option<usize> {
        let ask = Ask { key: None, now };
        self.prepare(now, &[]);
        self.policy.pick_ahead(&self.candidates, &ask, random)
    }

    /// Undoes the choice of the member at `index`, the last one made ahead that is neither used nor given back: the policy
    /// is then as if it had not been made. Choices that were not made ahead may lie in between; they stay used.
    ///
    /// All choices are to be given back before [`inherit`](Self::inherit).
    pub fn give_back(&mut self, index: usize) {
        self.policy.give_back(index);
    }

    /// Takes over the policy's state of an earlier balancer (whose turn it is, which queue it was filling),
    /// if the policy, the members' names, their order and their weights are the same.
    pub fn inherit(&mut self, old: Balancer) {
        let same = |(new, old): (&Member, &Member)| new.name == old.name && new.weight == old.weight;
        if self.kind == old.kind
            && self.members.len() == old.members.len()
            && self.members.iter().zip(&old.members).all(same)
        {
            self.policy = old.policy;
            for (index, candidate) in self.candidates.iter().enumerate() {
                self.policy.changed(index, candidate);
            }
        }
    }

    /// Gives the policy the candidates of a choice at this time, without those that were tried.
    fn prepare(&mut self, now: Duration, tried: &[usize]) {
        self.raise(now);
        let offered = if self.up > 0 { Availability::Up } else { Availability::Suspect };
        if offered != self.offered {
            self.offered = offered;
            self.tell_all();
        }
        tried.iter().for_each(|&index| self.tell(index, false));
        self.prefer_near(tried);
    }

    /// Updates the weights of members in their slow start.
    fn raise(&mut self, now: Duration) {
        let mut rising = std::mem::take(&mut self.rising);
        rising.retain(|&index| {
            let (weight, up_since) = (self.members[index].weight, self.loads[index].up_since);
            self.weights[index] = effective_weight(weight, up_since, now, self.slow_start);
            self.tell(index, true);
            self.weights[index] < whole_weight(weight)
        });
        self.rising = rising;
    }

    /// Offers near members only as long as one of them has room.
    fn prefer_near(&mut self, tried: &[usize]) {
        if !self.has_zones {
            return;
        }
        let takes = |(member, candidate): (&Member, &Candidate)| {
            member.near && candidate.available && !candidate.queue.is_full()
        };
        let only_near = self.members.iter().zip(&self.candidates).any(takes);
        if only_near != self.only_near {
            self.only_near = only_near;
            self.tell_all();
            tried.iter().for_each(|&index| self.tell(index, false));
        }
    }

    fn tell_all(&mut self) {
        (0..self.members.len()).for_each(|index| self.tell(index, true));
    }

    /// Gives the policy the changed candidate of a member, unavailable unless it `may` be chosen.
    fn tell(&mut self, index: usize, may: bool) {
        let (member, load) = (&self.members[index], &self.loads[index]);
        let candidate = Candidate {
            weight: self.weights[index],
            available: may
                && load.availability == self.offered
                && member.weight > 0
                && (member.near || !self.only_near),
            queue: load.queue,
            in_flight: load.in_flight,
            flows: load.flows,
            latency: load.latency,
        };
        if candidate != self.candidates[index] {
            self.candidates[index] = candidate;
            self.policy.changed(index, &candidate);
        }
    }
}

/// The configured weight in units of 1 / [`WEIGHT_SCALE`].
fn whole_weight(weight: u32) -> u32 {
    weight.saturating_mul(WEIGHT_SCALE)
}

/// The configured weight in units of 1 / [`WEIGHT_SCALE`], reduced by slow start: from a tenth when the member came up
/// it grows linearly to the whole. Only a weight of 0 becomes 0.
fn effective_weight(weight: u32, up_since: Duration, now: Duration, slow_start: Duration) -> u32 {
    let whole = whole_weight(weight);
    if up_since.is_zero() {
        return whole;
    }
    let up_for = now.saturating_sub(up_since);
    if up_for >= slow_start {
        return whole;
    }
    // Not a division by zero: `slow_start` is above `up_for`.
    let share = 0.1 + 0.9 * up_for.as_secs_f64() / slow_start.as_secs_f64();
    // Below `whole`, and 25 at the least for a weight of 1.
    (f64::from(whole) * share) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_shares, seeded};

    const SECOND: Duration = Duration::from_secs(1);
    const UP: Load = Load::IDLE;
    const SUSPECT: Load = Load { availability: Availability::Suspect, ..UP };
    const DOWN: Load = Load { availability: Availability::Down, ..UP };
    const FULL: Load = Load { queue: Queue { len: 8, limit: 8 }, ..UP };

    /// `near` has one entry for each member.
    fn balancer(kind: PolicyKind, near: &[bool]) -> Balancer {
        let member = |(index, &near)| Member { name: format!("n{index}"), weight: 1, near };
        Balancer::new(kind, near.iter().enumerate().map(member).collect(), Duration::ZERO)
    }

    /// Members that are chosen at least once in 100 requests.
    fn chosen(kind: PolicyKind, near: &[bool], loads: &[Load], tried: &[usize]) -> Vec<usize> {
        let mut balancer = balancer(kind, near);
        let mut random = seeded(1);
        let mut those: Vec<_> = (0..100)
            .filter_map(|key| {
                let ask = Ask { key: Some(key), now: Duration::ZERO };
                balancer.pick(&ask, |index| loads[index], tried, &mut random)
            })
            .collect();
        those.sort_unstable();
        those.dedup();
        those
    }

    #[test]
    fn suspects_only_when_none_is_up() {
        let chosen = |loads: &[Load], tried: &[usize]| chosen(PolicyKind::Random, &[true; 3], loads, tried);
        assert_eq!(chosen(&[UP, SUSPECT, DOWN], &[]), [0]);
        assert_eq!(chosen(&[SUSPECT, SUSPECT, DOWN], &[]), [0, 1]);
        assert_eq!(chosen(&[SUSPECT, SUSPECT, DOWN], &[1]), [0]);
        assert_eq!(chosen(&[DOWN, DOWN, DOWN], &[]), []);
    }

    #[test]
    fn a_request_that_all_refused_waits_rather_than_go_to_a_suspect() {
        assert_eq!(chosen(PolicyKind::Random, &[true; 3], &[UP, SUSPECT, UP], &[0, 2]), []);
    }

    #[test]
    fn near_ones_first_as_long_as_one_has_room() {
        let near = [true, true, false, false];
        for kind in [PolicyKind::Random, PolicyKind::Hash, PolicyKind::RoundRobin] {
            assert_eq!(chosen(kind, &near, &[UP, UP, UP, UP], &[]), [0, 1]);
            assert_eq!(chosen(kind, &near, &[DOWN, UP, UP, UP], &[]), [1]);
            assert_eq!(chosen(kind, &near, &[UP, UP, UP, UP], &[0, 1]), [2, 3]);
            assert_eq!(chosen(kind, &near, &[FULL, FULL, UP, UP], &[]), [0, 1, 2, 3]);
            assert_eq!(chosen(kind, &near, &[SUSPECT, DOWN, UP, UP], &[]), [2, 3]);
            assert_eq!(chosen(kind, &near, &[SUSPECT, DOWN, SUSPECT, DOWN], &[]), [0]);
        }
        for kind in [PolicyKind::Fill, PolicyKind::AcceptQueue] {
            assert_eq!(chosen(kind, &near, &[FULL, UP, UP, UP], &[]), [1]);
            assert_eq!(chosen(kind, &near, &[FULL, FULL, FULL, UP], &[]), [3]);
        }
    }

    #[test]
    fn weight_grows_from_a_tenth_to_the_whole() {
        let at = |weight, seconds| effective_weight(weight, 5 * SECOND, seconds * SECOND, 10 * SECOND);
        assert_eq!(at(10, 5), 256);
        assert_eq!(at(10, 10), 1408);
        assert_eq!(at(10, 15), 2560);
        assert_eq!(at(10, 1000), 2560);
        assert_eq!(at(10, 0), 256, "a clock that is behind");
        assert_eq!(at(1, 5), 25);
        assert_eq!(at(0, 5), 0);
        assert_eq!(effective_weight(10, Duration::ZERO, SECOND, 10 * SECOND), 2560, "up all along");
        assert_eq!(effective_weight(10, SECOND, SECOND, Duration::ZERO), 2560, "no slow start");
        assert_eq!(effective_weight(u32::MAX, SECOND, SECOND, Duration::ZERO), u32::MAX);
    }

    #[test]
    fn slow_start_is_seen_in_the_shares() {
        let members =
            ["old", "new"].map(|name| Member { name: name.to_owned(), weight: 1, near: true }).to_vec();
        let mut balancer = Balancer::new(PolicyKind::RoundRobin, members, 10 * SECOND);
        let new = Load { up_since: 100 * SECOND, ..UP };
        for (now, weights) in [(100, [10, 1]), (105, [20, 11]), (110, [1, 1])] {
            let ask = Ask { key: None, now: now * SECOND };
            let mut counts = [0; 2];
            for _ in 0..11_000 {
                let load = |index| if index == 1 { new } else { UP };
                counts[balancer.pick(&ask, load, &[], &mut || 0).unwrap()] += 1;
            }
            assert_shares(&counts, &weights, 0.03, 0);
        }
    }

    #[test]
    fn a_successor_with_the_same_members_goes_on_where_the_old_one_was() {
        let pick = |balancer: &mut Balancer| balancer.pick(&Ask::default(), |_| UP, &[], &mut || 0);
        let used = || {
            let mut old = balancer(PolicyKind::RoundRobin, &[true; 3]);
            assert_eq!(pick(&mut old), Some(0));
            old
        };
        let mut same = balancer(PolicyKind::RoundRobin, &[false; 3]);
        same.inherit(used());
        assert_eq!(pick(&mut same), Some(1));

        let mut larger = balancer(PolicyKind::RoundRobin, &[true; 4]);
        larger.inherit(used());
        assert_eq!(pick(&mut larger), Some(0));

        let mut reweighted = balancer(PolicyKind::RoundRobin, &[true; 3]);
        reweighted.members[0].weight = 2;
        reweighted.inherit(used());
        assert_eq!(pick(&mut reweighted), Some(0));

        let mut of_another_kind = balancer(PolicyKind::Fill, &[true; 3]);
        of_another_kind.inherit(used());
        assert_eq!(pick(&mut of_another_kind), Some(0));
        assert_eq!(pick(&mut of_another_kind), Some(0));
    }
}
