//! The time of one choice among 100 members, for every policy: `cargo bench -p switchback-policy`.
//!
//! It is spent for each request, in the one thread that serves all pools, so it has to stay below a
//! microsecond.

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use switchback_policy::{Ask, Availability, Balancer, Load, Member, PolicyKind, Queue};

const MEMBERS: usize = 100;

/// A pool at work: weights 1 to 3, two zones, nodes that differ in load, one down, one in its slow start.
fn pool() -> (Vec<Member>, Vec<Load>) {
    let member =
        |index| Member { name: format!("node-{index}"), weight: index as u32 % 3 + 1, near: index % 2 == 0 };
    let load = |index: usize| Load {
        availability: if index == 7 { Availability::Down } else { Availability::Up },
        up_since: Duration::from_secs(if index == 8 { 55 } else { 0 }),
        queue: Queue { len: index as u32 * 7 % 13, limit: 128 },
        in_flight: index as u32 * 11 % 17,
        flows: index as u32 * 5 % 23,
        latency: (index != 9).then(|| Duration::from_micros(index as u64 * 37 % 1000)),
    };
    ((0..MEMBERS).map(member).collect(), (0..MEMBERS).map(load).collect())
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let (members, loads) = pool();
    let one_zone: Vec<_> = members.iter().map(|member| Member { near: true, ..member.clone() }).collect();
    let equal: Vec<_> = one_zone.iter().map(|member| Member { weight: 1, ..member.clone() }).collect();
    let pools = [
        ("two zones", &members, &loads),
        ("one zone", &one_zone, &loads),
        // The most work where equals are counted.
        ("all equal", &equal, &vec![loads[0]; MEMBERS]),
    ];
    for (name, members, loads) in pools {
        let mut group = criterion.benchmark_group(name);
        for kind in PolicyKind::ALL {
            let mut balancer = Balancer::new(kind, members.clone(), Duration::from_secs(10));
            let mut state = 1u64;
            let mut key = 0;
            group.bench_function(kind.name(), |bencher| {
                bencher.iter(|| {
                    key += 1;
                    let ask = Ask { key: Some(key), now: Duration::from_secs(60) };
                    let mut random = || {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        state
                    };
                    balancer.pick(black_box(&ask), |index| loads[index], &[], &mut random)
                });
            });
        }
    }
    criterion.final_summary();
}
