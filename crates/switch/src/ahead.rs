//! Nodes that the policies choose ahead, for first requests that the XDP program gives to them itself
//! (docs/decisions/0056).
//!
//! For each pool at each VIP there is a queue in memory that is shared with the program. It is filled with a part of what a
//! period needs: an idle pool has no choices, and this thread comes some ten times in a period to a busy one. At the end of
//! a period, and when a node's state changes, what is left is withdrawn: no choice is older than a period, and the policy
//! forgets those that were not used.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::Wrapping;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use switchback_wire::{
    SB_CHOICE_PLACES, SB_CHOICE_QUEUES, SB_CHOICES, SB_LISTENERS, SB_NO_CHOICES, SB_NODES, sb_choices,
};

use crate::plan::NodeId;

/// Queues of a bank.
const BANK_QUEUES: usize = SB_CHOICE_QUEUES as usize / 2;
/// Places of a bank.
const BANK_PLACES: usize = SB_CHOICE_PLACES as usize / 2;
/// Fewest choices that a queue in use is filled with.
const FEWEST: u32 = 4;
/// A queue is filled with the choices of this part of a period.
const PART: u32 = 4;

/// The program's queues, which it reads and changes at any time.
pub struct Shared<'a> {
    /// Queues of both banks.
    pub queues: &'a mut [sb_choices],
    /// Indices of queues, by VIP and pool.
    pub places: &'a mut [u16],
    /// Accept queues, by VIP and node.
    pub listeners: &'a [u32],
}

/// Choices of a queue so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Those that the program has taken, or that were withdrawn.
    taken: Wrapping<u32>,
    made: Wrapping<u32>,
}

impl Counts {
    fn from_number(number: u64) -> Self {
        Counts { taken: Wrapping(number as u32), made: Wrapping((number >> 32) as u32) }
    }

    fn number(self) -> u64 {
        u64::from(self.made.0) << 32 | u64::from(self.taken.0)
    }

    fn left(self) -> u32 {
        (self.made - self.taken).0
    }
}

impl Shared<'_> {
    fn number(&mut self, queue: usize) -> &AtomicU64 {
        // SAFETY: the program changes the number with atomic operations only.
        unsafe { AtomicU64::from_ptr(&raw mut self.queues[queue].counts) }
    }

    fn counts(&mut self, queue: usize) -> Counts {
        Counts::from_number(self.number(queue).load(Ordering::Acquire))
    }

    /// Adds choices behind those that are left; the counts before that.
    fn add(&mut self, queue: usize, nodes: &[NodeId], low: u16) -> Counts {
        let before = self.counts(queue);
        let place = &mut self.queues[queue];
        place.low = low;
        for (number, node) in std::iter::zip(before.made.0.., nodes) {
            place.nodes[number as usize % place.nodes.len()] = node.0 as u16;
        }
        let more = u64::from(nodes.len() as u32) << 32;
        Counts::from_number(self.number(queue).fetch_add(more, Ordering::AcqRel))
    }

    /// Withdraws the choices that are left; the counts before that.
    fn withdraw(&mut self, queue: usize) -> Counts {
        let empty = |number| {
            let made = Counts::from_number(number).made;
            Some(Counts { taken: made, made }.number())
        };
        let before = self.number(queue).fetch_update(Ordering::AcqRel, Ordering::Acquire, empty);
        Counts::from_number(before.unwrap_or_else(|number| number))
    }
}

/// The policies and their nodes, as [`Ahead`] needs them.
pub trait Choosers {
    /// The policy's choices for `count` first requests to come.
    fn choose_ahead(&mut self, group: usize, count: usize, now: Duration) -> Vec<NodeId>;
    /// The first choices of these have been used.
    fn choices_used(&mut self, group: usize, count: u32);
    /// The others will not be used.
    fn withdraw_choices(&mut self, group: usize);
    /// Requests wait for room at the group's nodes, which the choices made ahead may have.
    fn has_waiting(&self, group: usize) -> bool;
    /// Number of adoptions in the group so far, modulo 2^32.
    fn adoptions(&self, group: usize) -> Wrapping<u32>;
    /// Takes the accept queues as the program has noted them.
    fn note_queues(&mut self, group: usize, noted: &dyn Fn(NodeId) -> u32, now: Duration);
}

/// A pool at a VIP whose policy can choose ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupAhead {
    /// Index of the group in the plan.
    pub group: usize,
    /// Index of the pool in the configuration.
    pub pool: usize,
    /// The VIP.
    pub vip: SocketAddr,
    /// Share of the accept queue that the pool may fill, as in ADOPT.
    pub share: u8,
    /// Most choices.
    pub most: u32,
}

#[derive(Debug)]
struct Queue {
    group: usize,
    /// Row of the VIP in `listener_queues`.
    listener: usize,
    most: u32,
    /// The counts at the last look.
    seen: Counts,
    /// Adoptions in the group at the beginning of the period, and during the one before.
    adoptions: (Wrapping<u32>, u32),
}

/// The queues of the configuration in use.
#[derive(Debug)]
pub struct Ahead {
    bank: usize,
    queues: Vec<Queue>,
    period: Duration,
    /// End of the period.
    over: Duration,
}

/// Where a VIP's choices are: the fields of `sb_vip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VipPlaces {
    /// See `sb_vip.places`.
    pub places: u32,
    /// See `sb_vip.listener`.
    pub listener: u16,
}

impl Default for VipPlaces {
    /// A VIP without choices.
    fn default() -> Self {
        VipPlaces { places: SB_CHOICE_PLACES, listener: 0 }
    }
}

impl Ahead {
    /// No queues. Choices will be used within a period.
    pub fn new(period: Duration) -> Self {
        Ahead { bank: 0, queues: Vec::new(), period, over: Duration::ZERO }
    }

    /// Sets up the queues of these groups in a bank that is not in use. The result has the places of each VIP that has any.
    pub fn set_up(
        &mut self,
        (bank, period): (usize, Duration),
        (pools, groups): (usize, &[GroupAhead]),
        choosers: &dyn Choosers,
        shared: &mut Shared<'_>,
    ) -> HashMap<SocketAddr, VipPlaces> {
        *self = Ahead { bank, period, ..Ahead::new(period) };
        let first = bank * BANK_PLACES;
        shared.places[first..][..BANK_PLACES].fill(SB_NO_CHOICES as u16);
        let mut vips: HashMap<SocketAddr, VipPlaces> = HashMap::new();
        for GroupAhead { group, pool, vip, share, most } in groups.iter().copied() {
            let listener = vips.get(&vip).map_or(vips.len(), |vip| vip.listener.into());
            let start = listener * pools;
            let fits = listener < SB_LISTENERS as usize && start + pools <= BANK_PLACES;
            if self.queues.len() == BANK_QUEUES || !fits {
                break;
            }
            vips.insert(vip, VipPlaces { places: (first + start) as u32, listener: listener as u16 });
            let queue = bank * BANK_QUEUES + self.queues.len();
            shared.places[first + start + pool] = queue as u16;
            shared.queues[queue].share = share.into();
            let seen = shared.counts(queue);
            let adoptions = (choosers.adoptions(group), 0);
            self.queues.push(Queue { group, listener, most: most.min(SB_CHOICES), seen, adoptions });
        }
        vips
    }

    /// Whether the period is over.
    pub fn is_over(&self, now: Duration) -> bool {
        now >= self.over
    }

    /// Begins a period if the last one is over: withdraws its choices, so that requests which are chosen for beside the
    /// queues come next in turn. `ends` is the end of the period by the clock of the program, in nanoseconds.
    pub fn begin_period(
        &mut self,
        now: Duration,
        ends: u64,
        choosers: &mut dyn Choosers,
        shared: &mut Shared<'_>,
    ) {
        if !self.is_over(now) {
            return;
        }
        self.withdraw(choosers, shared);
        self.over = now + self.period;
        for (number, queue) in self.queues.iter_mut().enumerate() {
            let adoptions = choosers.adoptions(queue.group);
            queue.adoptions = (adoptions, (adoptions - queue.adoptions.0).0);
            shared.queues[self.bank * BANK_QUEUES + number].until = ends;
        }
    }

    /// Takes note of the choices that were used, and fills the queues.
    pub fn fill(&mut self, now: Duration, choosers: &mut dyn Choosers, shared: &mut Shared<'_>) {
        for (number, queue) in self.queues.iter_mut().enumerate() {
            let index = self.bank * BANK_QUEUES + number;
            if choosers.has_waiting(queue.group) {
                queue.withdraw(index, choosers, shared);
            }
            queue.fill(index, now, choosers, shared);
        }
    }

    /// Withdraws all choices that have not been used.
    pub fn withdraw(&mut self, choosers: &mut dyn Choosers, shared: &mut Shared<'_>) {
        for (number, queue) in self.queues.iter_mut().enumerate() {
            queue.withdraw(self.bank * BANK_QUEUES + number, choosers, shared);
        }
    }
}

impl Queue {
    fn withdraw(&mut self, index: usize, choosers: &mut dyn Choosers, shared: &mut Shared<'_>) {
        if self.seen.left() == 0 {
            return;
        }
        let counts = shared.withdraw(index);
        self.note_used(counts, choosers);
        self.seen.taken = counts.made;
        choosers.withdraw_choices(self.group);
    }

    fn fill(&mut self, index: usize, now: Duration, choosers: &mut dyn Choosers, shared: &mut Shared<'_>) {
        let counts = shared.counts(index);
        self.note_used(counts, choosers);
        let (begun, before) = self.adoptions;
        let demand = before.max((choosers.adoptions(self.group) - begun).0);
        if demand == 0 {
            return;
        }
        let wanted = (demand / PART).clamp(FEWEST, self.most.max(FEWEST));
        if counts.left() > wanted / 2 {
            return;
        }
        let row = &shared.listeners[self.listener * SB_NODES as usize..][..SB_NODES as usize];
        let noted = |node: NodeId| {
            row.get(node.index()).map_or(0, |word| {
                // SAFETY: the reference is valid, and the program writes the word at any time.
                unsafe { std::ptr::read_volatile(word) }
            })
        };
        choosers.note_queues(self.group, &noted, now);
        let more = choosers.choose_ahead(self.group, (wanted - counts.left()) as usize, now);
        let before = shared.add(index, &more, (wanted / 2) as u16);
        self.note_used(before, choosers);
        self.seen.made = before.made + Wrapping(more.len() as u32);
    }

    fn note_used(&mut self, counts: Counts, choosers: &mut dyn Choosers) {
        let used = (counts.taken - self.seen.taken).0;
        if used > 0 {
            choosers.choices_used(self.group, used);
        }
        self.seen.taken = counts.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(50);
    const EMPTY: sb_choices =
        sb_choices { counts: 0, until: 0, low: 0, share: 0, reserved: 0, nodes: [0; SB_CHOICES as usize] };
    const LISTENERS: usize = (SB_LISTENERS * SB_NODES) as usize;

    /// Pools that choose the nodes 1, 2, 3 and so on, from each of which so many adoptions were counted.
    #[derive(Default)]
    struct Counting {
        chosen: u32,
        ahead: Vec<u32>,
        used: Vec<u32>,
        noted: Vec<u32>,
        adoptions: Wrapping<u32>,
        refuses: bool,
        waiting: bool,
    }

    impl Choosers for Counting {
        fn choose_ahead(&mut self, _: usize, count: usize, _: Duration) -> Vec<NodeId> {
            let count = if self.refuses { 0 } else { count as u32 };
            let more = (self.chosen + 1..).take(count as usize);
            self.ahead.extend(more.clone());
            self.chosen += count;
            more.map(NodeId).collect()
        }

        fn choices_used(&mut self, _: usize, count: u32) {
            self.used.extend(self.ahead.drain(..count as usize));
            self.adoptions += count;
        }

        fn withdraw_choices(&mut self, _: usize) {
            self.chosen -= self.ahead.len() as u32;
            self.ahead.clear();
        }

        fn has_waiting(&self, _: usize) -> bool {
            self.waiting
        }

        fn adoptions(&self, _: usize) -> Wrapping<u32> {
            self.adoptions
        }

        fn note_queues(&mut self, _: usize, noted: &dyn Fn(NodeId) -> u32, _: Duration) {
            self.noted.push(noted(NodeId(7)));
        }
    }

    struct Memory {
        queues: Vec<sb_choices>,
        places: Vec<u16>,
        listeners: Vec<u32>,
    }

    impl Memory {
        fn new() -> Self {
            Memory {
                queues: vec![EMPTY; SB_CHOICE_QUEUES as usize],
                places: vec![0; SB_CHOICE_PLACES as usize],
                listeners: (0..LISTENERS as u32).collect(),
            }
        }

        fn shared(&mut self) -> Shared<'_> {
            Shared { queues: &mut self.queues, places: &mut self.places, listeners: &self.listeners }
        }

        /// Takes a choice as the program does.
        fn take(&mut self, queue: usize) -> Option<u32> {
            let counts = Counts::from_number(self.queues[queue].counts);
            let taken = counts.taken.0;
            self.queues[queue].counts = Counts { taken: counts.taken + Wrapping(1), ..counts }.number();
            if counts.left() == 0 {
                self.queues[queue].counts = counts.number();
                return None;
            }
            Some(self.queues[queue].nodes[(taken % SB_CHOICES) as usize].into())
        }
    }

    fn vip(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 80).into()
    }

    fn group(group: usize, pool: usize, last: u8) -> GroupAhead {
        GroupAhead { group, pool, vip: vip(last), share: 90, most: 128 }
    }

    fn tend(ahead: &mut Ahead, now: Duration, pools: &mut Counting, memory: &mut Memory) {
        ahead.begin_period(now, 7, pools, &mut memory.shared());
        ahead.fill(now, pools, &mut memory.shared());
    }

    /// One group in bank 1, in use at the time 0.
    fn in_use(pools: &mut Counting, memory: &mut Memory) -> (Ahead, usize) {
        let mut ahead = Ahead::new(PERIOD);
        ahead.set_up((1, PERIOD), (1, &[group(0, 0, 100)]), pools, &mut memory.shared());
        pools.adoptions += 1;
        tend(&mut ahead, Duration::ZERO, pools, memory);
        (ahead, BANK_QUEUES)
    }

    #[test]
    fn each_vip_has_places_for_all_pools() {
        let mut memory = Memory::new();
        let groups = [group(0, 1, 100), group(1, 0, 101), group(2, 2, 100)];
        let vips =
            Ahead::new(PERIOD).set_up((1, PERIOD), (3, &groups), &Counting::default(), &mut memory.shared());
        let start = BANK_PLACES as u32;
        assert_eq!(vips[&vip(100)], VipPlaces { places: start, listener: 0 });
        assert_eq!(vips[&vip(101)], VipPlaces { places: start + 3, listener: 1 });
        let (none, first) = (SB_NO_CHOICES as u16, BANK_QUEUES as u16);
        let places = &memory.places[BANK_PLACES..][..7];
        assert_eq!(places, [none, first, first + 2, first + 1, none, none, none]);
        assert_eq!(memory.queues[BANK_QUEUES].share, 90);
    }

    #[test]
    fn the_bank_in_use_is_left_alone() {
        let (mut pools, mut memory) = (Counting::default(), Memory::new());
        let (mut ahead, queue) = in_use(&mut pools, &mut memory);
        let before = (memory.queues[queue], memory.places[BANK_PLACES]);
        ahead.set_up((0, PERIOD), (1, &[group(0, 0, 100)]), &pools, &mut memory.shared());
        assert_eq!((memory.queues[queue], memory.places[BANK_PLACES]), before);
    }

    #[test]
    fn what_does_not_fit_is_left_to_the_l7_thread() {
        let mut memory = Memory::new();
        let groups: Vec<GroupAhead> = (0..BANK_QUEUES + 1).map(|index| group(index, index, 100)).collect();
        let mut ahead = Ahead::new(PERIOD);
        let pools = Counting::default();
        ahead.set_up((0, PERIOD), (groups.len(), &groups), &pools, &mut memory.shared());
        assert_eq!(ahead.queues.len(), BANK_QUEUES);
        assert_eq!(memory.places[BANK_QUEUES], SB_NO_CHOICES as u16);
        let vips = ahead.set_up(
            (0, PERIOD),
            (BANK_PLACES, &[group(0, 0, 1), group(1, 0, 2)]),
            &pools,
            &mut memory.shared(),
        );
        assert_eq!(vips.len(), 1);
    }

    #[test]
    fn an_idle_queue_is_empty_and_a_busy_one_holds_what_is_needed() {
        let (mut pools, mut memory) = (Counting::default(), Memory::new());
        let (mut ahead, queue) = in_use(&mut pools, &mut memory);
        assert_eq!(memory.queues[queue].until, 7);
        assert_eq!(pools.ahead.len(), FEWEST as usize, "after one adoption");
        for round in 1..=4u32 {
            (0..1000).for_each(|_| {
                if memory.take(queue).is_none() {
                    pools.adoptions += 1;
                }
            });
            tend(&mut ahead, PERIOD * round, &mut pools, &mut memory);
            assert_eq!(pools.ahead.len(), SB_CHOICES as usize, "round {round}");
        }
        for round in 5..=6 {
            tend(&mut ahead, PERIOD * round, &mut pools, &mut memory);
        }
        assert_eq!((pools.ahead.len(), memory.take(queue)), (0, None), "nothing in a period");
    }

    #[test]
    fn choices_are_used_in_order_and_refilled_at_half() {
        let (mut pools, mut memory) = (Counting::default(), Memory::new());
        let (mut ahead, queue) = in_use(&mut pools, &mut memory);
        assert_eq!(memory.queues[queue].low, 2);
        let taken = std::iter::repeat_with(|| {
            let taken = memory.take(queue);
            tend(&mut ahead, Duration::ZERO, &mut pools, &mut memory);
            taken.expect("it is filled in time")
        });
        let taken: Vec<u32> = taken.take(1000).collect();
        assert_eq!(taken, (1..=1000).collect::<Vec<_>>());
        assert_eq!(pools.used.len(), 1000);
    }

    #[test]
    fn requests_at_the_end_of_a_period_come_next_in_turn() {
        let (mut pools, mut memory) = (Counting::default(), Memory::new());
        let (mut ahead, queue) = in_use(&mut pools, &mut memory);
        assert_eq!(memory.take(queue), Some(1));
        ahead.begin_period(PERIOD, 8, &mut pools, &mut memory.shared());
        assert_eq!((memory.take(queue), memory.queues[queue].until), (None, 8));
        assert_eq!(pools.choose_ahead(0, 1, PERIOD), [NodeId(2)]);
    }

    #[test]
    fn withdrawn_choices_are_not_used_and_their_numbers_never_return() {
        let (mut pools, mut memory) = (Counting::default(), Memory::new());
        let (mut ahead, queue) = in_use(&mut pools, &mut memory);
        assert_eq!((memory.take(queue), memory.take(queue)), (Some(1), Some(2)));
        let before = Counts::from_number(memory.queues[queue].counts);
        ahead.withdraw(&mut pools, &mut memory.shared());
        assert_eq!((&pools.used[..], pools.ahead.len()), (&[1, 2][..], 0));
        assert_eq!(memory.take(queue), None);
        tend(&mut ahead, Duration::ZERO, &mut pools, &mut memory);
        let after = Counts::from_number(memory.queues[queue].counts);
        assert_eq!(after.taken, before.made, "a program that has read the old counts finds others");
        assert_eq!(memory.take(queue), Some(3));
    }

    #[test]
    fn without_a_choice_the_queue_stays_empty() {
        let (mut pools, mut memory) = (Counting { refuses: true, ..Default::default() }, Memory::new());
        let (_, queue) = in_use(&mut pools, &mut memory);
        assert_eq!(memory.take(queue), None);
    }

    #[test]
    fn requests_that_wait_get_the_room_that_choices_have() {
        let (mut pools, mut memory) = (Counting::default(), Memory::new());
        let (mut ahead, queue) = in_use(&mut pools, &mut memory);
        assert_eq!(memory.take(queue), Some(1));
        (pools.waiting, pools.refuses) = (true, true);
        tend(&mut ahead, Duration::ZERO, &mut pools, &mut memory);
        assert_eq!((&pools.used[..], pools.ahead.len(), memory.take(queue)), (&[1][..], 0, None));
    }

    #[test]
    fn a_policy_sets_how_many_it_chooses() {
        let (mut pools, mut memory) = (Counting::default(), Memory::new());
        let mut ahead = Ahead::new(PERIOD);
        let few = GroupAhead { most: 16, ..group(0, 0, 100) };
        ahead.set_up((0, PERIOD), (1, &[few]), &pools, &mut memory.shared());
        pools.adoptions += 1000;
        tend(&mut ahead, Duration::ZERO, &mut pools, &mut memory);
        assert_eq!(pools.ahead.len(), 16);
    }

    #[test]
    fn policies_see_the_accept_queues_of_their_listener() {
        let (mut pools, mut memory) = (Counting::default(), Memory::new());
        let mut ahead = Ahead::new(PERIOD);
        let groups = [group(0, 0, 100), group(1, 0, 101)];
        ahead.set_up((0, PERIOD), (1, &groups), &pools, &mut memory.shared());
        pools.adoptions += 1;
        tend(&mut ahead, Duration::ZERO, &mut pools, &mut memory);
        assert_eq!(pools.noted, [7, SB_NODES + 7]);
    }
}
