//! Files whose structure is wrong: keys that do not exist or are missing, and values of another type. All of it is
//! reported at once, together with what is wrong with the rest.

#[allow(dead_code)] // Another test uses all of it.
mod common;
mod plain;

use common::{GOOD, changed, lines, read};

/// Changes to the good file.
type Changes = &'static [(&'static str, &'static str)];

/// Changes, and what is wrong then: what comes after `etc/cluster.toml:`.
const BAD: &[(Changes, &[&str])] = &[
    // Several mistakes of each kind, in the order of the file.
    (
        &[
            ("key_file", "keyfile"),
            ("weight = 3", "weight = \"3\"\ndrains = true"),
            ("policy = \"round-robin\"", "policy = \"best\"\nmode = \"hash\""),
            ("host = \"Static", "hosts = \"Static"),
            ("name = \"shop\"", ""),
            ("path = \"/\"\n", "path = [\"/\"]\n"),
        ],
        &[
            "2:1: unknown key \"keyfile\", did you mean \"key_file\"?",
            "11:10: weight is a text, allowed is a whole number without quotes",
            "12:1: unknown key \"drains\", did you mean \"drain\"?",
            UNKNOWN_POLICY,
            "18:1: unknown key \"mode\", allowed: balance, delegate, empty_status, hash, health, name, nodes, nodes_from, \
             outliers, persistence, policy, protocol, queue_limit, resume, second_candidate, slow_start",
            "20:1: key \"name\" is missing, a text in quotes is needed",
            "25:1: unknown key \"hosts\", did you mean \"host\"?",
            "32:8: path is a list, allowed is a text in quotes",
        ],
    ),
    // A key with a slip is read as the one that was meant: its value is checked, and nothing is missing.
    (
        &[("name = \"n1\"", "nam = \"N1\"")],
        &[
            "5:1: unknown key \"nam\", did you mean \"name\"?",
            "5:7: bad node name \"N1\", allowed are 1 to 63 of a-z, 0-9 and '-'",
            "15:10: unknown node \"n1\", did you mean \"N1\"?",
        ],
    ),
    // Beside the right key, it is only unknown.
    (
        &[("name = \"n1\"", "name = \"n1\"\nnam = \"N1\"")],
        &["6:1: unknown key \"nam\", did you mean \"name\"?"],
    ),
    // A wrong value has no consequences: the pool may mean this node, and all pools have one.
    (&[("name = \"n1\"", "name = 1")], &["5:8: name is a number, allowed is a text in quotes"]),
    (&[("[\"n1\", \"n2\"]", "7")], &["15:9: nodes is a number, allowed is a list"]),
    (
        &[("[\"n1\", \"n2\"]", "[\"n1\", 2]")],
        &["15:16: an item of nodes is a number, allowed is a text in quotes"],
    ),
    // One instead of a list of one.
    (
        &[("[\"n1\", \"n2\"]", "\"n3\"")],
        &["15:9: nodes is a text, allowed is a list", "15:9: unknown node \"n3\", did you mean \"n1\"?"],
    ),
    (&[("[[pool]]", "[pool]")], &["13:1: pool is a table, allowed is a list of tables: [[pool]]"]),
    (
        &[("[[service.route]]\npath", "[service.route]\npath"), ("[[service.route]]\nhost", "[x]\nhost")],
        &[
            "22:2: unknown key \"x\", allowed: access_log, acme, admin, client, cluster, dns, limits, networks, node, pool, reports, service, \
             switch",
            "29:1: route is a table, allowed is a list of tables: [[service.route]]",
        ],
    ),
    (&[("[cluster]", "[[cluster]]")], &["1:1: cluster is a list, allowed is a table"]),
    // Numbers and dates.
    (
        &[("weight = 3", "weight = 99999999999999999999")],
        &["11:10: weight 99999999999999999999, allowed are -9223372036854775808 to 9223372036854775807"],
    ),
    (
        &[("weight = 3", "weight = 3.0\nzone = 1979-05-27")],
        &[
            "11:10: weight is a number with a decimal point, allowed is a whole number without quotes",
            "12:8: zone is a date or time without quotes, allowed is a text in quotes",
        ],
    ),
    // Tables in tables.
    (
        &[("header = { name = \"X-Beta\", value = \"1\" }", "header = { nam = \"X-Beta\", value = true }")],
        &[
            "26:12: unknown key \"nam\", did you mean \"name\"?",
            "26:36: value is true or false, allowed is a text in quotes",
        ],
    ),
    (
        &[("path = \"/\"\npool = \"web\"", "redirect = \"https\"")],
        &["30:12: redirect is a text, allowed is a table"],
    ),
    // No TOML at all ends the reading.
    (
        &[("weight = 3", "weight 3"), ("policy = \"round-robin\"", "policy = round-robin")],
        &["11:8: key with no value, expected `=`"],
    ),
];

/// The beginning of the line for an unknown policy; the list of all policies follows.
const UNKNOWN_POLICY: &str = "17:10: unknown policy \"best\", allowed: ";

#[test]
fn bad_files() {
    for (changes, expected) in BAD {
        let text = changes.iter().fold(GOOD.to_owned(), |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replacen(old, new, 1)
        });
        let found = lines(read(&text));
        let found =
            found.iter().map(|line| line.strip_prefix("etc/cluster.toml:").expect("the name of the file"));
        let found: Vec<&str> = found.collect();
        assert_eq!(found.len(), expected.len(), "{text}\n{found:#?}");
        for (found, expected) in found.iter().zip(*expected) {
            plain::check(found);
            assert!(
                found == expected || *expected == UNKNOWN_POLICY && found.starts_with(expected),
                "{text}\n{found}"
            );
        }
    }
}

#[test]
fn a_file_of_another_kind() {
    let found = lines(read("key_file = \"client.key\"\nservices = [\"192.0.2.100:80\"]\n"));
    let expected = [
        "1:1: unknown key \"key_file\", allowed: access_log, acme, admin, client, cluster, dns, limits, networks, node, pool, \
         reports, service, switch",
        "1:1: key \"cluster\" is missing, a table is needed",
        "2:1: unknown key \"services\", did you mean \"service\"?",
        "2:13: an item of service is a text, allowed is a table",
    ];
    assert_eq!(found, expected.map(|line| format!("etc/cluster.toml:{line}")));
    let found = lines(read(&changed("[cluster]\nkey_file = \"cluster.key\"", "")));
    assert_eq!(found, ["etc/cluster.toml:1:1: key \"cluster\" is missing, a table is needed"]);
}
