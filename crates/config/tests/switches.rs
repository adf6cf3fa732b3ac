//! `[[switch]]`, and what a machine that is switch and node at once keeps for its own node: what the keys
//! mean, what is wrong with them, and how a change of them is told.

#[allow(dead_code)] // Another test uses the rest.
mod common;

use std::net::SocketAddr;

use common::{GOOD, changed, good, lines, pooled, read};
use switchback_config::{Cluster, Delegate, MAX_SWITCHES, Switch};

/// A second service; its name stands at line 34 of the good file with it.
const API: &str = "\n[[service]]\nname = \"api\"\nlisten = [\"192.0.2.101:80\"]\n\n[[service.route]]\n\
                   pool = \"web\"\n";

/// The good file with two services, `shop` and `api`, and `lines`, which begin at line 40.
fn switched(lines: &str) -> String {
    format!("{GOOD}{API}\n{lines}\n")
}

/// The good file with node n1 as a switch and `delegate = value` at line 16, in a pool of n1 and n2.
fn delegating(value: &str) -> String {
    pooled(&format!("delegate = {value}\npolicy = \"random\"")) + "\n[[switch]]\nname = \"n1\"\n"
}

fn switches(cluster: &Cluster) -> Vec<(&str, &[usize])> {
    cluster.switches.iter().map(|switch| (switch.name.as_str(), &switch.services[..])).collect()
}

/// What is wrong with `text`, without the file.
fn mistakes(text: &str) -> Vec<String> {
    let lines = lines(read(text));
    lines.iter().map(|line| line.strip_prefix("etc/cluster.toml:").unwrap().to_owned()).collect()
}

#[test]
fn switches_and_their_services() {
    assert_eq!(good(&switched("")).switches, []);
    assert_eq!(good(&switched("")).summary(), "2 nodes, 1 pool, 2 services, 3 routes");
    let one = good(&switched("[[switch]]\nname = \"s1\""));
    assert_eq!(one.switches, [Switch { name: "s1".into(), services: vec![0, 1] }]);
    assert_eq!(one.summary(), "2 nodes, 1 pool, 2 services, 3 routes, 1 switch");

    // A name may be that of a node, and of a pool or a service, too; the order in a list means nothing.
    let more = good(&switched(
        "[[switch]]\nname = \"n1\"\nservices = [\"api\", \"shop\"]\n[[switch]]\nname = \"shop\"\n\
         services = [\"api\"]\n[[switch]]\nname = \"s3\"",
    ));
    assert_eq!(switches(&more), [("n1", &[0, 1][..]), ("shop", &[1]), ("s3", &[0, 1])]);
    assert_eq!(more.summary(), "2 nodes, 1 pool, 2 services, 3 routes, 3 switches");

    let each = "[[switch]]\nname = \"a\"\nservices = [\"api\"]\n[[switch]]\nname = \"b\"\n\
                services = [\"shop\"]";
    assert_eq!(switches(&good(&switched(each))), [("a", &[1][..]), ("b", &[0])]);
}

#[test]
fn what_a_pool_delegates() {
    let rows = [
        ("\"all\"", Delegate::All, "all"),
        ("\"none\"", Delegate::None, "none"),
        ("\"1%\"", Delegate::Share(1), "1%"),
        ("\"99%\"", Delegate::Share(99), "99%"),
        ("{ above = \"1B\" }", Delegate::Above(1), "{ above = \"1B\" }"),
        ("{ above = \"32 KiB\" }", Delegate::Above(32 << 10), "{ above = \"32KiB\" }"),
        ("{ above = \"1.5MB\" }", Delegate::Above(1_500_000), "{ above = \"1500000B\" }"),
        ("{ above = \"1GiB\" }", Delegate::Above(1 << 30), "{ above = \"1GiB\" }"),
    ];
    for (text, delegate, shown) in rows {
        assert_eq!(good(&delegating(text)).pools[0].delegate, Some(delegate));
        assert_eq!(delegate.to_string(), shown);
    }
    let below =
        pooled("policy = \"random\"\n[pool.delegate]\nabove = \"2KiB\"") + "[[switch]]\nname = \"n2\"\n";
    assert_eq!(good(&below).pools[0].delegate, Some(Delegate::Above(2048)));
    let without = delegating("\"all\"").replace("delegate = \"all\"\n", "");
    assert_eq!(good(&without).pools[0].delegate, None);
    // Where there is no other node, nothing can be given to one; that may be said.
    for kept in ["\"none\"", "{ above = \"1KiB\" }"] {
        good(&delegating(kept).replace("[\"n1\", \"n2\"]", "[\"n1\"]"));
    }
}

#[test]
fn hidden_nodes() {
    let node = |lines: &str| good(&changed("weight = 3", lines)).nodes[1].hidden;
    assert!(node("hidden = true") && !node("hidden = false") && !node(""));
}

#[test]
fn servers_of_nodes() {
    let node = |server: &str| good(&changed("weight = 3", server)).nodes.remove(1);
    let vips: [SocketAddr; 2] = ["192.0.2.100:80", "[2001:db8::100]:80"].map(|vip| vip.parse().unwrap());
    let servers = |server: &str| vips.map(|vip| node(server).server_of(vip).to_string());
    assert_eq!(servers(""), ["192.0.2.100:80", "[2001:db8::100]:80"]);
    assert_eq!(servers("server = \"127.0.0.1:8080\""), ["127.0.0.1:8080", "[2001:db8::100]:80"]);
    assert_eq!(servers("server = [\"[::1]:8080\", \"10.0.0.1:81\"]"), ["10.0.0.1:81", "[::1]:8080"]);
    let moved = good(&changed("weight = 3", "weight = 3\nserver = [\"[::1]:8080\", \"10.0.0.1:81\"]"));
    assert_eq!(good(GOOD).diff(&moved), ["node n2: server (the VIPs) -> [::1]:8080, 10.0.0.1:81"]);
}

#[test]
fn mistakes_in_servers_of_nodes() {
    let mistake = |server: &str| mistakes(&changed("weight = 3", &format!("server = {server}"))).join("; ");
    for (server, what) in [
        ("\"8080\"", "11:10: bad server \"8080\", allowed is an address with a port"),
        ("\"127.0.0.1:0\"", "11:10: server 127.0.0.1:0 is without a port"),
        ("\"0.0.0.0:80\"", "11:10: server 0.0.0.0:80 is unspecified"),
        ("[\"127.0.0.1:81\", \"[ff02::1]:80\"]", "11:27: server [ff02::1]:80 is multicast"),
        ("\"[fe80::1]:80\"", "11:10: server [fe80::1]:80 is link-local"),
        ("[]", "11:10: no server, leave the line out if it is at the VIPs"),
        ("[\"127.0.0.1:81\", \"127.0.0.1:82\"]", "11:10: several servers of one IP version"),
        ("7", "11:10:"),
    ] {
        let found = mistake(server);
        assert!(found.starts_with(what), "{server}: {found}");
    }
}

#[test]
fn mistakes_in_switches() {
    let rows: &[(&str, &[&str])] = &[
        ("[[switch]]\nservices = [\"api\"]", &["40:1: key \"name\" is missing, a text in quotes is needed"]),
        (
            "[[switch]]\nname = \"s1\"\nservice = \"api\"",
            &[
                "19:8: no switch serves service \"shop\", at least one has to: s1",
                "42:1: unknown key \"service\", did you mean \"services\"?",
                "42:11: services is a text, allowed is a list",
            ],
        ),
        (
            "[[switch]]\nname = \"s1\"\nservices = \"api\"",
            &[
                "19:8: no switch serves service \"shop\", at least one has to: s1",
                "42:12: services is a text, allowed is a list",
            ],
        ),
        (
            "[[switch]]\nname = \"S 1\"\n[[switch]]\nname = \"s2\"\n[[switch]]\nname = \"s2\"",
            &[
                "41:8: bad switch name \"S 1\", allowed are 1 to 63 of a-z, 0-9 and '-'",
                "45:8: switch name \"s2\" is taken already, allowed is each name once",
            ],
        ),
        (
            "[[switch]]\nname = \"s1\"\nservices = []",
            &["42:12: switch \"s1\" serves nothing, leave the line out for all services"],
        ),
        (
            "[[switch]]\nname = \"s1\"\nservices = [\"api\", \"shop\", \"api\"]",
            &["42:28: switch \"s1\" has service \"api\" already, allowed is each service once"],
        ),
        // The service that is not listed, because of a slip, is not one without a switch.
        (
            "[[switch]]\nname = \"s1\"\nservices = [\"shop\", \"apt\"]",
            &["42:21: unknown service \"apt\", did you mean \"api\"?"],
        ),
        (
            "[[switch]]\nname = \"s1\"\nservices = [\"web\", \"n1\"]",
            &[
                "42:13: unknown service \"web\", defined: api, shop",
                "42:20: unknown service \"n1\", defined: api, shop",
            ],
        ),
        (
            "[[switch]]\nname = \"s2\"\nservices = [\"shop\"]\n[[switch]]\nname = \"s1\"\n\
             services = [\"shop\"]",
            &["34:8: no switch serves service \"api\", at least one has to: s2, s1"],
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(mistakes(&switched(text)), *expected, "{text}");
    }
}

#[test]
fn each_service_without_a_switch_is_told_once() {
    let third = API.replace("api", "web").replace("101", "102");
    let text = format!("{GOOD}{API}{third}[[switch]]\nname = \"n1\"\nservices = [\"api\"]\n");
    assert_eq!(
        mistakes(&text),
        [
            "19:8: no switch serves service \"shop\", at least one has to: n1",
            "41:8: no switch serves service \"web\", at least one has to: n1",
        ]
    );
    // No list can mean the second one with a name.
    let twice =
        format!("{GOOD}{}[[switch]]\nname = \"n1\"\nservices = [\"shop\"]\n", API.replace("api", "shop"));
    assert_eq!(mistakes(&twice), ["34:8: service name \"shop\" is taken already, allowed is each name once"]);

    let many: String =
        (1..=9).map(|i| format!("[[switch]]\nname = \"s{i}\"\nservices = [\"shop\"]\n")).collect();
    assert_eq!(
        mistakes(&switched(&many)),
        ["34:8: no switch serves service \"api\", at least one has to: s1, s2, s3, s4, s5, s6, s7, s8, ..."]
    );
}

#[test]
fn the_most_switches() {
    let text = |count: usize| -> String {
        let switches = (0..count).map(|i| format!("[[switch]]\nname = \"s{i}\"\n"));
        GOOD.to_owned() + &switches.collect::<String>()
    };
    assert_eq!(good(&text(MAX_SWITCHES)).switches.len(), 64);
    assert_eq!(mistakes(&text(65)), ["161:8: 65 switches, allowed are at most 64"]);
}

#[test]
fn texts_that_are_no_delegate() {
    for bad in ["", "All", "some", "%", "0%", "100%", "-1%", "+5%", "1.5%", "50", "50 %", "32KiB"] {
        let what = format!(
            "bad delegate {bad:?}, allowed are \"all\", \"none\", \"1%\" to \"99%\" and \
             {{ above = \"32KiB\" }}"
        );
        assert_eq!(mistakes(&delegating(&format!("{bad:?}"))), [format!("16:12: {what}")]);
    }
    for bad in ["", "0B", "1025MiB", "1073741825B", "32", "-1B", "all"] {
        let what = format!("bad above {bad:?}, allowed is a size from 1B to 1GiB such as \"16KiB\"");
        assert_eq!(mistakes(&delegating(&format!("{{ above = {bad:?} }}"))), [format!("16:22: {what}")]);
    }
    let missing = "16:12: key \"above\" is missing, a text in quotes is needed";
    let rows: [(&str, &[&str]); 6] = [
        ("7", &["16:12: delegate is a number, allowed is a text in quotes or a table"]),
        ("[\"all\"]", &["16:12: delegate is a list, allowed is a text in quotes or a table"]),
        ("{}", &[missing]),
        ("{ below = \"1KiB\" }", &[missing, "16:14: unknown key \"below\", allowed: above"]),
        ("{ above = \"1KiB\", share = \"1%\" }", &["16:30: unknown key \"share\", allowed: above"]),
        ("{ above = 1024 }", &["16:22: above is a number, allowed is a text in quotes"]),
    ];
    for (value, expected) in rows {
        assert_eq!(mistakes(&delegating(value)), expected);
    }
}

#[test]
fn only_a_switch_that_is_a_node_of_the_pool_delegates() {
    let no_switch = "16:12: delegate in pool \"web\", but no node of the pool is a switch, allowed is it \
                     only if a [[switch]] has the name of one";
    for value in ["\"all\"", "\"none\"", "\"50%\"", "{ above = \"1KiB\" }"] {
        let text = delegating(value);
        let elsewhere = text.replace("[[switch]]\nname = \"n1\"", "[[switch]]\nname = \"s1\"");
        assert_eq!(mistakes(&elsewhere), [no_switch]);
        assert_eq!(mistakes(&text[..text.find("\n[[switch]]").unwrap()]), [no_switch]);
        good(&text.replace("[[switch]]\nname = \"n1\"", "[[switch]]\nname = \"n2\""));
    }
    // The node that is not there may be the one that is meant.
    let slip = delegating("\"all\"").replace("[\"n1\", ", "[\"n11\", ");
    assert_eq!(mistakes(&slip), ["15:10: unknown node \"n11\", did you mean \"n1\"?"]);
    let empty = delegating("\"none\"").replace("[\"n1\", \"n2\"]", "[]");
    assert_eq!(
        mistakes(&empty),
        [
            "15:9: pool \"web\" is empty, at least one node is needed; leave the line out if nodes name the pool"
        ]
    );
}

#[test]
fn nothing_is_delegated_where_there_is_no_other_node() {
    for value in ["all", "1%", "99%"] {
        let text = delegating(&format!("{value:?}")).replace("[\"n1\", \"n2\"]", "[\"n1\"]");
        let what = format!(
            "16:12: delegate {value:?} in pool \"web\", which has no other node, at least two nodes are \
             needed"
        );
        assert_eq!(mistakes(&text), [what.as_str()]);
        // It hides no other mistake, and none hides it.
        let text =
            text.replace("random", "").replace("[[switch]]\nname = \"n1\"", "[[switch]]\nname = \"n2\"");
        let lines = mistakes(&text);
        assert!(lines.len() == 3 && lines[0].contains("no node of the pool is a switch"), "{lines:?}");
        assert!(lines[1] == what && lines[2].starts_with("17:10: unknown policy"), "{lines:?}");
    }
}

#[test]
fn changes_in_words() {
    let list = |services: &str| good(&switched(&format!("[[switch]]\nname = \"n1\"\n{services}")));
    let all = list("");
    let none = good(&switched(""));
    assert_eq!(none.diff(&all), ["switch n1 added"]);
    assert_eq!(all.diff(&none), ["switch n1 removed"]);
    assert_eq!(all.diff(&list("services = [\"api\", \"shop\"]")), [""; 0]);

    let rest = "\n[[switch]]\nname = \"n2\"\n";
    let [all, shop, api] = ["", "services = [\"shop\"]", "services = [\"api\"]"]
        .map(|services| list(&format!("{services}{rest}")));
    assert_eq!(all.diff(&shop), ["switch n1: services (all) -> shop"]);
    assert_eq!(shop.diff(&api), ["switch n1: services shop -> api"]);
    assert_eq!(api.diff(&all), ["switch n1: services api -> (all)"]);

    // A service more is no change of a switch of all; the order of services in the file means nothing.
    let third = API.replace("api", "web").replace("101", "102");
    let [two, three, other_order] =
        [API.to_owned(), format!("{API}{third}"), format!("{third}{API}")].map(|services| {
            let switches = "[[switch]]\nname = \"n1\"\n[[switch]]\nname = \"n2\"\n\
                            services = [\"shop\", \"api\"]\n";
            good(&format!("{GOOD}{services}{switches}"))
        });
    assert_eq!(two.diff(&three), ["service web added", "switch n2: services (all) -> api, shop"]);
    assert_eq!(three.diff(&other_order), [""; 0]);
    assert_ne!(three.switches, other_order.switches);
}

#[test]
fn changes_of_nodes_and_pools_in_words() {
    let [none, all, share, above] =
        ["\"none\"", "\"all\"", "\"50%\"", "{ above = \"32KiB\" }"].map(|value| good(&delegating(value)));
    let without = good(&delegating("\"all\"").replace("delegate = \"all\"\n", ""));
    assert_eq!(without.diff(&none), ["pool web: delegate (none) -> none"]);
    assert_eq!(none.diff(&all), ["pool web: delegate none -> all"]);
    assert_eq!(all.diff(&share), ["pool web: delegate all -> 50%"]);
    assert_eq!(share.diff(&above), ["pool web: delegate 50% -> { above = \"32KiB\" }"]);
    let hidden = good(&changed("weight = 3", "weight = 3\nhidden = true"));
    assert_eq!(good(GOOD).diff(&hidden), ["node n2: hidden false -> true"]);
}

#[test]
fn a_session_stays_with_its_node_or_the_pool_delegates() {
    let with = |mode: &str| delegating(&format!("\"25%\"\npersistence = {{ {mode} }}"));
    let what = "16:12: delegate in pool \"web\", whose sessions stay with their nodes by cookies, allowed is one of \
                the two";
    assert_eq!(mistakes(&with("mode = \"insert\"")), [what]);
    good(&with("mode = \"hash\", hash = \"client\""));
}

#[test]
fn a_switch_has_the_services_that_it_serves() {
    let text = switched("[[switch]]\nname = \"n1\"\nservices = [\"api\"]\n[[switch]]\nname = \"s2\"");
    let served = |name: Option<&str>| {
        let served = good(&text).served_by(name);
        served.map(|cluster| cluster.services.iter().map(|service| service.name.clone()).collect::<Vec<_>>())
    };
    assert_eq!(served(Some("n1")).unwrap(), ["api"]);
    assert_eq!(served(Some("s2")).unwrap(), ["shop", "api"]);
    let [first, second] = ["n1", "s2"].map(|name| good(&text).served_by(Some(name)).unwrap());
    assert_eq!(switches(&first), [("n1", &[0][..]), ("s2", &[0][..])]);
    assert_eq!(switches(&second), [("n1", &[1][..]), ("s2", &[0, 1][..])]);
    assert_eq!(served(Some("n2")).unwrap_err(), "the configuration has no switch n2, it has n1, s2");
    let unnamed = "the configuration names its switches, this one has to be one of n1, s2";
    assert_eq!(served(None).unwrap_err(), unnamed);
    assert_eq!(good(GOOD).served_by(None).unwrap().services.len(), 1);
    assert_eq!(
        good(GOOD).served_by(Some("n1")).unwrap_err(),
        "the configuration has no switch n1, it has none"
    );
}
