//! What holds for every policy, through the balancer: whom it may choose, and that it chooses somebody.

use std::time::Duration;

use proptest::prelude::*;
use switchback_policy::{Ask, Availability, Balancer, Load, Member, PolicyKind, Queue};

fn load() -> impl Strategy<Value = Load> {
    let availability = prop_oneof![
        2 => Just(Availability::Up),
        1 => Just(Availability::Suspect),
        1 => Just(Availability::Down),
    ];
    let latency = prop::option::of((0u64..1000).prop_map(Duration::from_millis));
    (availability, 0u64..20, (0u32..4, 0u32..4), any::<u32>(), any::<u32>(), latency).prop_map(
        |(availability, up_since, (len, limit), in_flight, flows, latency)| Load {
            availability,
            up_since: Duration::from_secs(up_since),
            queue: Queue { len, limit },
            in_flight,
            flows,
            latency,
        },
    )
}

fn member() -> impl Strategy<Value = (u32, bool)> {
    (prop_oneof![Just(0), 1u32..1000, any::<u32>()], any::<bool>())
}

fn members(pool: &[(u32, bool)]) -> Vec<Member> {
    let member = |(index, &(weight, near))| Member { name: format!("n{index}"), weight, near };
    pool.iter().enumerate().map(member).collect()
}

/// One request: what is known of each member, and whether it was tried.
type Round = Vec<(Load, bool)>;

fn pool_and_rounds() -> impl Strategy<Value = (Vec<(u32, bool)>, Vec<Round>)> {
    (0usize..8).prop_flat_map(|len| {
        let round = prop::collection::vec((load(), prop::bool::weighted(0.2)), len);
        (prop::collection::vec(member(), len), prop::collection::vec(round, 1..20))
    })
}

/// The members that may be chosen, by the description of `Balancer` and of the policy.
fn allowed(kind: PolicyKind, members: &[Member], round: &Round) -> Vec<usize> {
    let of = |availability| {
        let stands =
            move |&index: &usize| round[index].0.availability == availability && members[index].weight > 0;
        (0..members.len()).filter(stands).collect::<Vec<_>>()
    };
    let has_room = |index: usize| {
        let queue = round[index].0.queue;
        queue.limit == 0 || queue.len < queue.limit
    };
    let availability = if of(Availability::Up).is_empty() { Availability::Suspect } else { Availability::Up };
    let mut those = of(availability);
    those.retain(|&index| !round[index].1);
    if those.iter().any(|&index| members[index].near && has_room(index)) {
        those.retain(|&index| members[index].near);
    }
    if matches!(kind, PolicyKind::Fill | PolicyKind::AcceptQueue) {
        those.retain(|&index| has_room(index));
    }
    those
}

proptest! {
    #[test]
    fn each_choice_is_allowed_and_made_whenever_one_is(
        (pool, rounds) in pool_and_rounds(),
        kind in prop::sample::select(&PolicyKind::ALL),
        random: Vec<u64>,
        key: Option<u64>,
    ) {
        let members = members(&pool);
        let mut balancer = Balancer::new(kind, members.clone(), Duration::from_secs(10));
        // Any numbers, among them those that only a broken generator would give.
        let mut random = random.into_iter().chain([0, u64::MAX]).cycle();
        for (turn, round) in rounds.iter().enumerate() {
            let ask = Ask { key, now: Duration::from_secs(turn as u64) };
            let tried: Vec<_> = (0..members.len()).filter(|&index| round[index].1).collect();
            let picked =
                balancer.pick(&ask, |index| round[index].0, &tried, &mut || random.next().expect("a cycle"));
            let allowed = allowed(kind, &members, round);
            match picked {
                Some(index) => prop_assert!(allowed.contains(&index), "{kind}: {index}, not of {allowed:?}"),
                None => prop_assert!(allowed.is_empty(), "{kind}: none of {allowed:?}"),
            }
        }
    }

    /// A balancer that has been told of each change chooses as one that has just been told everything.
    /// Policies that remember whose turn it is are left out.
    #[test]
    fn what_was_noted_before_leaves_no_trace(
        (pool, rounds) in pool_and_rounds(),
        kind in prop::sample::select(&PolicyKind::ALL),
        random: [u64; 8],
        key: Option<u64>,
    ) {
        prop_assume!(!matches!(kind, PolicyKind::RoundRobin | PolicyKind::Fill));
        let members = members(&pool);
        let new = || Balancer::new(kind, members.clone(), Duration::from_secs(10));
        let mut old = new();
        for (turn, round) in rounds.iter().enumerate() {
            let ask = Ask { key, now: Duration::from_secs(turn as u64) };
            let tried: Vec<_> = (0..members.len()).filter(|&index| round[index].1).collect();
            // Nothing changes between these two, except what was tried.
            for tried in [&tried[..], &[]] {
                let pick = |balancer: &mut Balancer| {
                    let mut random = random.into_iter().cycle();
                    let mut random = || random.next().expect("a cycle");
                    balancer.pick(&ask, |index| round[index].0, tried, &mut random)
                };
                prop_assert_eq!(pick(&mut old), pick(&mut new()), "{}", kind);
            }
        }
    }
}
