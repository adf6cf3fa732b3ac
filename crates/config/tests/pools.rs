//! What the keys of a pool mean, what is wrong with them, and how a change of them is told.

#[allow(dead_code)] // Another test uses the rest.
mod common;

use std::time::Duration;

use common::{GOOD, changed, good, lines, pooled, read};
use switchback_config::{
    Balance, Check, HashKey, Health, Outliers, PolicyKind, Pool, Resume, ServerProtocol, Terms,
};

/// What [`pooled`] makes of the pool.
fn pool(lines: &str) -> Pool {
    good(&pooled(lines)).pools[0].clone()
}

#[test]
fn pools_and_their_defaults() {
    for policy in PolicyKind::ALL {
        let pool = pool(&format!("policy = \"{policy}\""));
        assert_eq!(pool.policy, policy);
        assert_eq!((pool.balance, pool.hash), (Balance::Connection, HashKey::Client));
        assert_eq!((pool.slow_start, pool.queue_limit, pool.health), (Duration::ZERO, 100, None));
        assert_eq!(pool.persistence, None);
    }
    let all = pool(
        "policy = \"hash\"\nbalance = \"connection\"\nhash = \"cookie Sid\"\nslow_start = \"30s\"\n\
         queue_limit = \"80%\"\nsecond_candidate = true\nhealth = {}",
    );
    assert_eq!(
        all,
        Pool {
            name: "web".into(),
            nodes: vec![0, 1],
            nodes_from: None,
            policy: PolicyKind::Hash,
            balance: Balance::Connection,
            hash: HashKey::Cookie("Sid".into()),
            slow_start: Duration::from_secs(30),
            queue_limit: 80,
            second_candidate: true,
            delegate: None,
            health: Some(Health::default()),
            outliers: None,
            resume: Resume::Off,
            protocol: ServerProtocol::Http11,
            persistence: None,
            empty_status: 503,
        }
    );
    assert_eq!(pool("policy = \"random\"\nqueue_limit = \"off\"").queue_limit, 0);
    assert_eq!(pool("policy = \"fill\"\nqueue_limit = \"1%\"").queue_limit, 1);
    assert_eq!(pool("policy = \"fill\"\nqueue_limit = \"100%\"").queue_limit, 100);
    assert_eq!(pool("policy = \"fill\"\nslow_start = \"1h\"").slow_start, Duration::from_secs(3600));
    assert!(read(&pooled("policy = \"fill\"\nslow_start = \"1h 1ns\"")).is_err());
    assert!(read(&pooled("policy = \"fill\"\nslow_start = \"-1ns\"")).is_err());
}

#[test]
fn what_is_hashed_says_what_is_balanced() {
    let rows = [
        ("client", HashKey::Client, Balance::Connection),
        ("path", HashKey::Path, Balance::Request),
        ("header X-User", HashKey::Header("x-user".into()), Balance::Request),
        ("cookie Sid", HashKey::Cookie("Sid".into()), Balance::Request),
    ];
    for (text, hash, balance) in rows {
        let lines = format!("policy = \"hash\"\nhash = \"{text}\"");
        let usual = pool(&lines);
        assert_eq!((&usual.hash, usual.balance), (&hash, balance), "{text}");
        for balance in Balance::ALL {
            let chosen = pool(&format!("{lines}\nbalance = \"{balance}\""));
            assert_eq!((&chosen.hash, chosen.balance), (&hash, balance), "{text}");
        }
        assert_eq!(pool(&format!("policy = \"hash\"\nhash = \"{hash}\"")), usual);
    }
}

#[test]
fn health_checks_and_their_defaults() {
    let health = |lines: &str| {
        let text = changed("[[service]]", &format!("[pool.health]\n{lines}\n[[service]]"));
        good(&text).pools[0].health.clone().unwrap()
    };
    let tcp = Health {
        check: Check::Tcp,
        interval: Duration::from_secs(2),
        timeout: Duration::from_secs(1),
        rise: 2,
        fall: 3,
    };
    assert_eq!(health(""), tcp);
    let check = Check::Http { path: "/".into(), host: None, status: vec![200..=399] };
    assert_eq!(health("path = \"/\""), Health { check, ..tcp });
    assert_eq!(
        health(
            "path = \"/health?full=1\"\nhost = \"WWW.example.com\"\nstatus = [\"200-299\", \"304\"]\n\
             interval = \"10min\"\ntimeout = \"1min\"\nrise = 1\nfall = 100"
        ),
        Health {
            check: Check::Http {
                path: "/health?full=1".into(),
                host: Some("www.example.com".into()),
                status: vec![200..=299, 304..=304],
            },
            interval: Duration::from_secs(600),
            timeout: Duration::from_secs(60),
            rise: 1,
            fall: 100,
        }
    );
    let quick = health("interval = \"50ms\"\ntimeout = \"10ms\"");
    assert_eq!((quick.interval, quick.timeout), (Duration::from_millis(50), Duration::from_millis(10)));
    let equal = health("interval = \"1s\"");
    assert_eq!(equal.interval, equal.timeout);
    for (text, range) in [("200", 200..=200), ("599-599", 599..=599), ("200-599", 200..=599)] {
        let Check::Http { status, host, .. } =
            health(&format!("path = \"/\"\nstatus = \"{text}\"\nhost = \"[2001:DB8::1]\"")).check
        else {
            panic!("a check with a path")
        };
        assert_eq!((status, host.as_deref()), (vec![range], Some("[2001:db8::1]")));
    }
}

#[test]
fn hash_goes_with_the_policy_of_that_name_only() {
    for policy in PolicyKind::ALL {
        let text = pooled(&format!("policy = \"{policy}\"\nhash = \"path\""));
        match policy {
            PolicyKind::Hash => drop(good(&text)),
            _ => assert_eq!(
                lines(read(&text)),
                [format!(
                    "etc/cluster.toml:17:8: hash with policy \"{policy}\", allowed is it only with policy \
                     \"hash\""
                )]
            ),
        }
    }
}

#[test]
fn policies_about_the_queue_need_a_limit_of_it() {
    for policy in PolicyKind::ALL {
        let result = read(&pooled(&format!("policy = \"{policy}\"\nqueue_limit = \"off\"")));
        let about_the_queue = [PolicyKind::Fill, PolicyKind::AcceptQueue].contains(&policy);
        assert_eq!(result.is_err(), about_the_queue, "{policy}");
    }
}

#[test]
fn texts_that_are_no_hash() {
    let line = |hash: &str| lines(read(&pooled(&format!("policy = \"hash\"\nhash = {hash:?}"))));
    for bad in ["", "Path", "path ", "header", "cookie", "Header x", "client x", "query q", " client"] {
        let what = format!("bad hash {bad:?}, allowed: client, path, header NAME, cookie NAME");
        assert_eq!(line(bad), [format!("etc/cluster.toml:17:8: {what}")]);
    }
    for (bad, kind, name) in [
        ("header ", "header", ""),
        ("header  x", "header", " x"),
        ("header x:y", "header", "x:y"),
        ("header \u{e9}", "header", "\u{e9}"),
        ("cookie a=b", "cookie", "a=b"),
        ("cookie a b", "cookie", "a b"),
    ] {
        let what = format!("bad {kind} name {name:?}, allowed are letters, digits and !#$%&'*+-.^_`|~");
        assert_eq!(line(bad), [format!("etc/cluster.toml:17:8: {what}")]);
    }
}

#[test]
fn texts_that_are_no_queue_limit() {
    for bad in ["", "%", "80", "0%", "101%", "256%", "+80%", "-1%", "8 %", "1.5%", "80%%", "Off", "0"] {
        let what = format!("bad queue_limit {bad:?}, allowed are \"1%\" to \"100%\" and \"off\"");
        let text = pooled(&format!("policy = \"fill\"\nqueue_limit = {bad:?}"));
        assert_eq!(lines(read(&text)), [format!("etc/cluster.toml:17:15: {what}")]);
    }
}

#[test]
fn texts_that_are_no_status() {
    for bad in ["", "-", "200-", "-299", "200-299-300", "199", "600", "+200", "200 - 299", "2xx", "300-299"] {
        let what =
            format!("bad status {bad:?}, allowed is a status from 200 to 599 or a range such as \"200-299\"");
        let text = pooled(&format!("policy = \"random\"\nhealth = {{ path = \"/\", status = {bad:?} }}"));
        assert_eq!(lines(read(&text)), [format!("etc/cluster.toml:17:33: {what}")]);
    }
}

#[test]
fn no_health_check_puts_more_into_a_request_than_a_path_and_a_host() {
    for bad in ["\\r\\nX: y", "a b", "\\t", "\\u0000", "\u{e9}", "a\\\"b", "a#b", "<a>", "a\\\\b", "a^b"] {
        for health in [format!("path = \"/{bad}\""), format!("path = \"/\", host = \"{bad}\"")] {
            let lines = lines(read(&pooled(&format!("policy = \"random\"\nhealth = {{ {health} }}"))));
            assert!(lines[0].contains(": bad ") && lines.len() == 1, "{lines:?}");
        }
    }
}

#[test]
fn outliers_and_their_defaults() {
    let outliers =
        |lines: &str| pool(&format!("policy = \"random\"\noutliers = {{ {lines} }}")).outliers.unwrap();
    let usual = outliers("");
    let terms = |failures, time, max_time| Terms {
        failures,
        time: Duration::from_secs(time),
        max_time: Duration::from_secs(max_time),
    };
    assert_eq!(usual, Outliers { terms: terms(5, 30, 300), max_share: 30 });
    assert_eq!(
        outliers("failures = 1, time = \"1s\", max_time = \"1s\", max_share = \"100%\""),
        Outliers { terms: terms(1, 1, 1), max_share: 100 }
    );
    let [without, with] =
        ["", "\noutliers = {}"].map(|line| good(&pooled(&format!("policy = \"random\"{line}"))));
    assert_eq!(without.diff(&with), ["pool web: outliers (none) -> 5 failures, time 30s to 5m, share 30%"]);
}

#[test]
fn changed_reports_nodes_and_pools_in_words() {
    let old = good(GOOD);
    let lines = "policy = \"hash\"\nhash = \"header X-User\"\nslow_start = \"90s\"\nqueue_limit = \"80%\"\n\
                 health = { path = \"/healthz\", status = [\"200-299\", \"304\"] }";
    let new = good(&format!(
        "{}[reports]\ninterval = \"100ms\"\nsuspect_after = 5\ndead_after = 50\n",
        pooled(lines).replace("weight = 3", "weight = 0\nzone = \"none\"\ndrain = true")
    ));
    assert_eq!(
        old.diff(&new),
        [
            "reports: interval 50ms -> 100ms",
            "reports: suspect_after 3 -> 5",
            "reports: dead_after 20 -> 50",
            "node n2: weight 3 -> 0",
            "node n2: zone (none) -> none",
            "node n2: drain false -> true",
            "pool web: policy round-robin -> hash",
            "pool web: balance connection -> request",
            "pool web: hash client -> header x-user",
            "pool web: slow_start 0s -> 1m 30s",
            "pool web: queue_limit 100% -> 80%",
            "pool web: health (none) -> GET /healthz, status 200-299 or 304, interval 2s, timeout 1s, \
             rise 2, fall 3",
        ]
    );
    let [tcp, http] = [
        "timeout = \"50ms\", rise = 1, fall = 1",
        "path = \"/a,b\", host = \"a.example\", interval = \"1min\"",
    ]
    .map(|health| {
        good(&pooled(&format!("policy = \"random\"\nqueue_limit = \"off\"\nhealth = {{ {health} }}")))
    });
    assert_eq!(
        tcp.diff(&http),
        ["pool web: health TCP, interval 2s, timeout 50ms, rise 1, fall 1 -> GET /a,b, host a.example, \
             status 200-399, interval 1m, timeout 1s, rise 2, fall 3"]
    );
    assert!(old.diff(&tcp).contains(&"pool web: queue_limit 100% -> off".to_owned()));
}
