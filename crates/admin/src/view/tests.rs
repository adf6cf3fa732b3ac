use switchback_status::switch::{DispatchCounts, DispatchStatus, LoadStatus};
use switchback_status::totals::Totals;

use super::*;

fn node(name: &str, requests: u64, refused: u64) -> NodeView {
    NodeView {
        name: name.to_owned(),
        requests,
        refused,
        load: Some(LoadStatus { flows: 3, in_flight: 2, first_byte_us: Some(700), cpu_permille: 250 }),
        ..NodeView::default()
    }
}

fn counted(node: &str, statuses: [u64; 6], bytes: u64) -> ResponseTotals {
    ResponseTotals { node: node.to_owned(), statuses, bytes, ..ResponseTotals::default() }
}

/// After `uptime_s`, with so many requests to two nodes.
fn status(uptime_s: u64, requests: [u64; 2]) -> SwitchStatus {
    SwitchStatus {
        uptime_s,
        nodes: vec![node("n1", requests[0], 0), node("n2", requests[1], uptime_s)],
        ..SwitchStatus::default()
    }
}

fn view(moments: &[(u64, &SwitchStatus)]) -> View {
    let (start, mut history) = (Instant::now(), History::default());
    for (ms, status) in moments {
        history.push(start + Duration::from_millis(*ms), (*status).clone());
    }
    history.view().unwrap()
}

#[test]
fn rates_are_between_the_last_two_moments() {
    assert_eq!(History::default().view(), None);
    let first = view(&[(0, &status(1, [10, 10]))]);
    assert_eq!((first.requests_per_s, first.nodes[0].requests_per_s), (None, None));
    let (a, b, c) = (status(1, [0, 0]), status(2, [10, 10]), status(4, [310, 110]));
    let view = view(&[(0, &a), (1000, &b), (3000, &c)]);
    assert_eq!(view.requests_per_s, Some(200.0));
    assert_eq!((view.nodes[0].requests_per_s, view.nodes[0].share), (Some(150.0), Some(0.75)));
    assert_eq!((view.nodes[1].refused_per_s, view.nodes[1].cpu), (Some(1.0), Some(0.25)));
    assert_eq!(
        (view.nodes[0].requests, view.nodes[0].in_flight, view.nodes[0].flows),
        (310, Some(2), Some(3))
    );
    assert_eq!((view.responses, view.nodes[0].responses, view.latencies), (None, None, None), "not known");
}

#[test]
fn another_process_begins_anew() {
    let view = view(&[(0, &status(100, [900, 900])), (1000, &status(0, [3, 3]))]);
    assert_eq!((view.requests_per_s, view.nodes[0].requests), (None, 3));
}

#[test]
fn responses_by_node_and_those_of_the_switch_apart() {
    let with = |uptime_s, responses| SwitchStatus {
        responses: Some(Totals { responses, ..Totals::default() }),
        ..status(uptime_s, [0, 0])
    };
    let before = with(1, vec![counted("n1", [0, 0, 5, 0, 0, 0], 1000)]);
    let mut now = vec![counted("n1", [0, 0, 25, 0, 0, 2], 5000), counted("", [0, 0, 0, 7, 3, 0], 90)];
    now[0].aborted_by_server = 4;
    let view = view(&[(0, &before), (2000, &with(3, now))]);
    assert_eq!(view.responses, Some(Rate { per_s: 11.0, bytes_per_s: 2000.0 }));
    assert_eq!(view.nodes[0].responses, view.responses);
    assert_eq!(view.nodes[0].failures_per_s, Some(3.0));
    assert_eq!(view.nodes[1].responses, Some(Rate::default()));
    let errors: Vec<_> = view.errors.iter().map(|row| (&row.what[..], row.total, row.per_s)).collect();
    assert_eq!(errors, [("cut off by the server of n1", 4, Some(2.0)), ("answered 5xx by n1", 2, Some(1.0))]);
}

#[test]
fn what_goes_wrong_now_comes_first() {
    let with = |uptime_s, old: u64, new: u64| SwitchStatus {
        dispatch: DispatchStatus {
            counts: DispatchCounts {
                answered: [(302, 9), (404, old)].into(),
                refused_requests: [("bad method".into(), new)].into(),
                ..DispatchCounts::default()
            },
            ..DispatchStatus::default()
        },
        counters: [("drop_tag".into(), 1), ("syn_answered".into(), 77)].into(),
        ..status(uptime_s, [0, 0])
    };
    let view = view(&[(0, &with(1, 50, 0)), (1000, &with(2, 50, 2))]);
    let errors: Vec<_> = view.errors.iter().map(|row| (&row.what[..], row.total)).collect();
    let tag = SwitchCounter::DropTag.help();
    assert_eq!(errors, [("request refused: bad method", 2), ("answered 404 by the switch", 50), (tag, 1)]);
    assert_eq!(view.answered_per_s, Some(0.0));
}

#[test]
fn quantiles_of_the_last_seconds() {
    // Bounds: 100, 250, 500, 1000 µs ...
    let mut counts = vec![0; BOUNDS_US.len() + 1];
    let none = quantiles(&Histogram::default(), None);
    assert_eq!((none.count, none.p50_us), (0, None));
    counts[3] = 100;
    let now = Histogram { counts: counts.clone(), sum_us: 0 };
    let all = quantiles(&now, None);
    assert_eq!((all.count, all.p50_us, all.p90_us, all.p99_us), (100, Some(750.0), Some(950.0), Some(995.0)));
    // Of these, ninety were before.
    let before = Histogram { counts: counts.iter().map(|count| count * 9 / 10).collect(), sum_us: 0 };
    assert_eq!(quantiles(&now, Some(&before)).count, 10);
    // Longer than all bounds.
    *counts.last_mut().unwrap() = 900;
    let long = quantiles(&Histogram { counts, sum_us: 0 }, None);
    assert_eq!((long.p50_us, long.p99_us), (Some(30_000_000.0), Some(30_000_000.0)));
}

#[test]
fn the_window_slides() {
    let timed = |uptime_s: u64, count| {
        let mut counts = vec![0; BOUNDS_US.len() + 1];
        counts[0] = count;
        let timings = Timings {
            pool: "web".to_owned(),
            first_byte: Histogram { counts, sum_us: 0 },
            ..Timings::default()
        };
        // Those without a pool are not shown.
        let responses = Some(Totals { timings: vec![Timings::default(), timings], ..Totals::default() });
        SwitchStatus { responses, ..status(uptime_s, [0, 0]) }
    };
    let moments: Vec<_> = (0..=30).map(|second| (second * 1000, timed(second, second * 5))).collect();
    let moments: Vec<_> = moments.iter().map(|(ms, status)| (*ms, status)).collect();
    let latency = view(&moments).latencies.unwrap().remove(0);
    assert_eq!(latency.first_byte.count, 5 * WINDOW.as_secs());
}
