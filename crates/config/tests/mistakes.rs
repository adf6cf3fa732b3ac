//! Files with mistakes in them, and the exact lines that `switchback check` prints for them.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use std::path::Path;
use std::time::Duration;

use common::{GOOD, changed, good, lines, loops, read};

use switchback_config::{Document, PolicyKind, Reports};

/// The beginning of the line for a policy that is an empty text; the list of all policies follows.
const UNKNOWN_POLICY: &str = "16:10: unknown policy \"\", allowed: ";

/// Changes to the good file, and what is wrong then: what comes after `etc/cluster.toml:`.
const BAD: &[(&str, &str, &[&str])] = &[
    // What toml finds.
    ("[cluster]", "[cluster", &["1:9: unclosed table, expected `]`"]),
    (
        "weight = 3",
        "wait = 3",
        &[
            "11:1: unknown key \"wait\", allowed: address, adoption, drain, hidden, name, plain_tcp, pools, server, tunnel, weight, zone",
        ],
    ),
    ("weight = 3", "weight = \"3\"", &["11:10: weight is a text, allowed is a whole number without quotes"]),
    ("[[pool]]", "[[pol]]", &["13:3: unknown key \"pol\", did you mean \"pool\"?"]),
    ("key_file = \"cluster.key\"", "", &["1:1: key \"key_file\" is missing, a text in quotes is needed"]),
    ("[\"GET\", \"HEAD\"]", "7", &["25:10: method is a number, allowed is a text in quotes or a list"]),
    ("value = \"1\"", "valeu = \"1\"", &["26:29: unknown key \"valeu\", did you mean \"value\"?"]),
    // Cluster.
    ("\"cluster.key\"", "\"\"", &["2:12: empty key_file, allowed is a path such as \"cluster.key\""]),
    // Access log.
    (
        "[[node]]",
        "[access_log]\npath = \"access.log\"\nformat = \"clf\"\nlines_per_second = 0\n[[node]]",
        &[
            "5:8: path \"access.log\", allowed is an absolute path of a file such as \
             \"/var/log/switchback/access.log\", or \"-\" for standard output",
            "6:10: unknown format \"clf\", allowed: \"json\", \"combined\"",
            "7:20: lines_per_second 0, allowed are 1 to 10000000",
        ],
    ),
    ("[[node]]", "[access_log]\n[[node]]", &["4:1: key \"path\" is missing, a text in quotes is needed"]),
    // Reports.
    (
        "[[node]]",
        "[reports]\ninterval = \"1001ms\"\nsuspect_after = 0\n[[node]]",
        &[
            "5:12: bad interval \"1001ms\", allowed is a time from 10ms to 1s such as \"1s\"",
            "6:17: suspect_after 0, allowed are 1 to 100",
        ],
    ),
    (
        "[[node]]",
        "[reports]\nsuspect_after = 5\ndead_after = 4\n[[node]]",
        &["6:14: dead_after 4 is less than suspect_after 5, allowed is suspect_after <= dead_after"],
    ),
    (
        "[[node]]",
        "[reports]\nperiod = \"50ms\"\n[[node]]",
        &["5:1: unknown key \"period\", allowed: dead_after, interval, suspect_after"],
    ),
    // Admin.
    ("[[node]]", "[admin]\nport = 9180\n[[node]]", &["5:1: unknown key \"port\", allowed: hosts, listen"]),
    (
        "[[node]]",
        "[admin]\nhosts = [\"a.example\", \"b.example:80\"]\n[[node]]",
        &["5:23: bad host \"b.example:80\", allowed is a name or address without port"],
    ),
    (
        "[[node]]",
        "[admin]\nlisten = \"localhost:9180\"\n[[node]]",
        &[
            "5:10: bad listen address \"localhost:9180\", allowed is an address of every machine with a port such as \
 127.0.0.1:9180, [::1]:9180 or, for all who can reach the machine, 0.0.0.0:9180",
        ],
    ),
    (
        "[[node]]",
        "[admin]\nlisten = \"[2001:db8::100]:9180\"\n[[node]]",
        &["5:10: 2001:db8::100 is that of service \"shop\", allowed is one that no service has"],
    ),
    (
        "[[node]]",
        "[admin]\nlisten = \"0.0.0.0:80\"\n[[node]]",
        &["5:10: port 80 is that of service \"shop\", allowed is one that no service has"],
    ),
    // Limits.
    (
        "[[node]]",
        "[limits]\nheads = \"16KiB\"\n[[node]]",
        &["5:1: unknown key \"heads\", did you mean \"head\"?"],
    ),
    ("[[node]]", "[limits]\nhead = 16384\n[[node]]", &["5:8: head is a number, allowed is a text in quotes"]),
    (
        "[[node]]",
        "[limits]\nhead = \"16384\"\nfields = 0\nbody = \"1e30GiB\"\nhead_timeout = \"10\"\n\
         wait_timeout = \"-1s\"\nwaiting = 1000001\nheld_per_flow = \"64KIB!\"\nheld_per_source = \"\"\n\
         held = \"2TiB\"\n[[node]]",
        &[
            "5:8: bad head \"16384\", allowed is a size from 1KiB to 64KiB such as \"16KiB\"",
            "6:10: fields 0, allowed are 1 to 1000",
            "7:8: bad body \"1e30GiB\", allowed is a size from 0B to 1EiB such as \"16KiB\"",
            "8:16: bad head_timeout \"10\", allowed is a time from 100ms to 10m such as \"10s\"",
            "9:16: bad wait_timeout \"-1s\", allowed is a time from 0s to 10m such as \"10s\"",
            "10:11: waiting 1000001, allowed are 0 to 1000000",
            "11:17: bad held_per_flow \"64KIB!\", allowed is a size from 1KiB to 1TiB such as \"16KiB\"",
            "12:19: bad held_per_source \"\", allowed is a size from 1KiB to 1TiB such as \"16KiB\"",
            "13:8: bad held \"2TiB\", allowed is a size from 1KiB to 1TiB such as \"16KiB\"",
        ],
    ),
    // With a wrong value among them, the others are not compared.
    (
        "[[node]]",
        "[limits]\nhead = \"1MiB\"\nheld_per_flow = \"2KiB\"\n[[node]]",
        &["5:8: bad head \"1MiB\", allowed is a size from 1KiB to 64KiB such as \"16KiB\""],
    ),
    (
        "[[node]]",
        "[limits]\nhead = \"32KiB\"\nheld_per_flow = \"31KiB\"\n[[node]]",
        &["6:17: held_per_flow 31KiB is less than head 32KiB, \
             allowed is head <= held_per_flow <= held_per_source <= held"],
    ),
    (
        "[[node]]",
        "[limits]\nheld_per_flow = \"2MiB\"\nheld = \"1048575B\"\n[[node]]",
        &[
            "5:17: held_per_source 1MiB (the default) is less than held_per_flow 2MiB, \
             allowed is head <= held_per_flow <= held_per_source <= held",
            "6:8: held 1048575B is less than held_per_source 1MiB (the default), \
             allowed is head <= held_per_flow <= held_per_source <= held",
        ],
    ),
    // Nodes.
    (
        "\"n2\"",
        "\"n1\"",
        &[
            "9:8: node name \"n1\" is taken already, allowed is each name once",
            "15:16: unknown node \"n2\", did you mean \"n1\"?",
        ],
    ),
    (
        "\"n1\"",
        "\"N1\"",
        &[
            "5:8: bad node name \"N1\", allowed are 1 to 63 of a-z, 0-9 and '-'",
            "15:10: unknown node \"n1\", did you mean \"N1\"?",
        ],
    ),
    (
        "2001:db8::22",
        "192.0.2.21",
        &[
            "10:11: nodes \"n1\" and \"n2\" with the same address 192.0.2.21 both have their servers at the VIPs, allowed is \
             one of them: give the other one a server",
        ],
    ),
    (
        "192.0.2.21",
        "n1.example.com",
        &["6:11: bad node address \"n1.example.com\", allowed is an IP address such as \
             192.0.2.21 or 2001:db8::21"],
    ),
    ("weight = 3", "weight = -1", &["11:10: weight -1, allowed are 0 to 1000"]),
    ("weight = 3", "weight = 1001", &["11:10: weight 1001, allowed are 0 to 1000"]),
    ("weight = 3", "weight = -4294967295", &["11:10: weight -4294967295, allowed are 0 to 1000"]),
    (
        "weight = 3",
        "zone = \"Rack 1\"",
        &["11:8: bad zone name \"Rack 1\", allowed are 1 to 63 of a-z, 0-9 and '-'"],
    ),
    ("weight = 3", "zone = \"\"", &["11:8: bad zone name \"\", allowed are 1 to 63 of a-z, 0-9 and '-'"]),
    ("weight = 3", "drain = \"yes\"", &["11:9: drain is a text, allowed is true or false without quotes"]),
    // A node with a wrong weight has an address nevertheless.
    (
        "192.0.2.21\"",
        "192.0.2.100\"\nweight = 1001",
        &[
            "7:10: weight 1001, allowed are 0 to 1000",
            "21:11: 192.0.2.100 is the address of node \"n1\", a VIP must be no node's address",
        ],
    ),
    // Pools.
    (
        "[\"n1\", \"n2\"]",
        "[]",
        &[
            "15:9: pool \"web\" is empty, at least one node is needed; leave the line out if nodes name the pool",
        ],
    ),
    ("[\"n1\", \"n2\"]", "[\"n1\", \"n22\"]", &["15:16: unknown node \"n22\", did you mean \"n2\"?"]),
    ("[\"n1\", \"n2\"]", "[\"n1\", \"lagoon\"]", &["15:16: unknown node \"lagoon\", defined: n1, n2"]),
    (
        "[\"n1\", \"n2\"]",
        "[\"n1\", \"n1\"]",
        &["15:16: node \"n1\" is in the pool already, allowed is each node once"],
    ),
    (
        "policy = \"round-robin\"",
        "policy = \"hash\"\nbalance = \"flow\"\nhash = \"Client\"\nslow_start = \"61min\"\n\
         queue_limit = \"0%\"",
        &[
            "17:11: unknown balance \"flow\", allowed: connection, request",
            "18:8: bad hash \"Client\", allowed: client, path, header NAME, cookie NAME",
            "19:14: bad slow_start \"61min\", allowed is a time from 0s to 1h such as \"10s\"",
            "20:15: bad queue_limit \"0%\", allowed are \"1%\" to \"100%\" and \"off\"",
        ],
    ),
    // An unknown policy hides no other mistake, except whether other keys go with it.
    (
        "policy = \"round-robin\"",
        "policy = \"\"\nbalance = \"\"\nhash = \"path\"\nqueue_limit = \"off\"\nhealth = { rise = 0 }",
        &[
            UNKNOWN_POLICY,
            "17:11: unknown balance \"\", allowed: connection, request",
            "20:19: rise 0, allowed are 1 to 100",
        ],
    ),
    (
        "policy = \"round-robin\"",
        "policy = \"round-robin\"\nhash = \"client\"",
        &["17:8: hash with policy \"round-robin\", allowed is it only with policy \"hash\""],
    ),
    (
        "policy = \"round-robin\"",
        "policy = \"fill\"\nqueue_limit = \"off\"",
        &["17:15: queue_limit \"off\" with policy \"fill\", which looks at the queue, \
             allowed are \"1%\" to \"100%\""],
    ),
    (
        "policy = \"round-robin\"",
        "policy = \"accept-queue\"\nqueue_limit = \"off\"",
        &["17:15: queue_limit \"off\" with policy \"accept-queue\", which looks at the queue, \
             allowed are \"1%\" to \"100%\""],
    ),
    // Two names with the same FNV-1a hash.
    (
        "[[service]]",
        "[[pool]]\nname = \"costarring\"\nnodes = [\"n1\"]\npolicy = \"round-robin\"\n\
         [[pool]]\nname = \"liquid\"\nnodes = [\"n1\"]\npolicy = \"round-robin\"\n[[service]]",
        &["23:8: pool name \"liquid\" has the same id in reports as \"costarring\", \
             allowed is each id once"],
    ),
    // Health checks.
    (
        "[[service]]",
        "[pool.health]\npath = \"healthz\"\nhost = \"a:80\"\nstatus = [\"204\", \"99\", \"304-300\"]\n\
         interval = \"49ms\"\ntimeout = \"61s\"\nrise = 0\nfall = 101\n[[service]]",
        &[
            "19:8: bad path \"healthz\", allowed is '/' and then letters, digits and -._~!$&'()*+,;=:@%/?",
            "20:8: bad host \"a:80\", allowed is a name or address without port",
            "21:18: bad status \"99\", allowed is a status from 200 to 599 or a range such as \"200-299\"",
            "21:24: bad status \"304-300\", allowed is a status from 200 to 599 or a range such as \
             \"200-299\"",
            "22:12: bad interval \"49ms\", allowed is a time from 50ms to 10m such as \"10s\"",
            "23:11: bad timeout \"61s\", allowed is a time from 10ms to 1m such as \"10s\"",
            "24:8: rise 0, allowed are 1 to 100",
            "25:8: fall 101, allowed are 1 to 100",
        ],
    ),
    (
        "[[service]]",
        "[pool.health]\nstatus = []\nhost = \"\"\n[[service]]",
        &[
            "19:10: status without path, allowed is it only with path",
            "19:10: no status, leave the line out to allow 200-399",
            "20:8: host without path, allowed is it only with path",
            "20:8: bad host \"\", allowed is a name or address without port",
        ],
    ),
    (
        "[[service]]",
        "[pool.health]\ninterval = \"2s\"\ntimeout = \"2001ms\"\n[[service]]",
        &["20:11: timeout 2s 1ms is more than interval 2s, allowed is timeout <= interval"],
    ),
    (
        "[[service]]",
        "[pool.health]\ntimeout = \"1m\"\n[[service]]",
        &["19:11: timeout 1m is more than interval 2s (the default), allowed is timeout <= interval"],
    ),
    (
        "[[service]]",
        "[pool.health]\ninterval = \"500ms\"\n[[service]]",
        &["19:12: timeout 1s (the default) is more than interval 500ms, allowed is timeout <= interval"],
    ),
    (
        "[[service]]",
        "[pool.health]\nport = 80\n[[service]]",
        &["19:1: unknown key \"port\", allowed: fall, grpc, host, interval, path, rise, status, timeout"],
    ),
    (
        "[[service]]",
        "[pool.outliers]\nfailures = 0\ntime = \"99ms\"\nmax_time = \"25h\"\nmax_share = \"0%\"\n[[service]]",
        &[
            "19:12: failures 0, allowed are 1 to 1000",
            "20:8: bad time \"99ms\", allowed is a time from 100ms to 24h such as \"10s\"",
            "21:12: bad max_time \"25h\", allowed is a time from 100ms to 24h such as \"10s\"",
            "22:13: bad max_share \"0%\", allowed are \"1%\" to \"100%\"",
        ],
    ),
    (
        "[[service]]",
        "[pool.outliers]\ntime = \"10m\"\n[[service]]",
        &["19:8: time 10m is more than max_time 5m (the default), allowed is time <= max_time"],
    ),
    (
        "[[service]]",
        "[pool.outliers]\nmax_time = \"10s\"\n[[service]]",
        &["19:12: time 30s (the default) is more than max_time 10s, allowed is time <= max_time"],
    ),
    (
        "nodes = [\"n1\", \"n2\"]",
        "outliers = {}\nnodes = [\"n1\"]",
        &["15:12: outliers in pool \"web\", which has no other node, at least two nodes are needed"],
    ),
    // Services.
    (
        "[\"192.0.2.100:80\", \"[2001:db8::100]:80\"]",
        "[]",
        &["20:10: service \"shop\" listens nowhere, at least one address is needed"],
    ),
    (
        "192.0.2.100:80",
        "192.0.2.100",
        &["20:11: bad listen address \"192.0.2.100\", allowed is an address with a port such as \
             192.0.2.100:80 or [2001:db8::100]:80"],
    ),
    (
        "192.0.2.100:80",
        "192.0.2.100:0",
        &["20:11: listen address 192.0.2.100:0 has port 0, allowed are 1 to 65535"],
    ),
    (
        "[2001:db8::100]:80",
        "192.0.2.100:80",
        &["20:29: service \"shop\" listens at 192.0.2.100:80 already, allowed is each address once"],
    ),
    (
        "192.0.2.100:80",
        "192.0.2.21:80",
        &["20:11: 192.0.2.21 is the address of node \"n1\", a VIP must be no node's address"],
    ),
    (
        "[2001:db8::100]:80",
        "[2001:db8::100%2]:80",
        &["20:29: listen address [2001:db8::100%2]:80 has a zone, allowed is an address without one"],
    ),
    // Routes.
    (
        "Static.example.com",
        "static.example.com:80",
        &["23:8: bad host \"static.example.com:80\", allowed is a name or address without port, or \
             \"*.\" and the end of a name"],
    ),
    (
        "\"/img/\"",
        "\"img/\"",
        &["24:8: bad path \"img/\", allowed is '/' and then visible ASCII without \" # < > ? \\"],
    ),
    (
        "\"/img/\"",
        "\"//img/%61/../\"",
        &[
            "24:8: path \"//img/%61/../\" is not in normal form, which is what requests are compared in: \"/img/\"",
        ],
    ),
    (
        "\"/img/\"",
        "\"/img%2f\"",
        &[
            "24:8: path \"/img%2f\" is not in normal form, which is what requests are compared in: \"/img%2F\"",
        ],
    ),
    (
        "\"/img/\"",
        "\"/../img/\"",
        &["24:8: bad path \"/../img/\", a request for it would be refused: path_above_root"],
    ),
    ("\"HEAD\"", "\"HE AD\"", &["25:18: bad method \"HE AD\", allowed is a name such as GET"]),
    (
        "\"HEAD\"",
        "\"get\"",
        &["25:18: bad method \"get\", upper and lower case differ, did you mean \"GET\"?"],
    ),
    ("[\"GET\", \"HEAD\"]", "[]", &["25:10: no method, leave the line out to allow any"]),
    ("[\"GET\", \"HEAD\"]", "\"\"", &["25:10: bad method \"\", allowed is a name such as GET"]),
    (
        "X-Beta",
        "X:Beta",
        &["26:19: bad header name \"X:Beta\", allowed are letters, digits and !#$%&'*+-.^_`|~"],
    ),
    (
        "value = \"1\"",
        "value = \"1 \"",
        &["26:37: bad header value \"1 \", allowed is text without control characters or blanks around it"],
    ),
    ("value = \"1\"", "regex = \"(1\"", &["26:37: bad regular expression \"(1\": unclosed group"]),
    (
        "value = \"1\"",
        "value = \"1\", regex = \"1\"",
        &["26:50: the field is described twice, allowed is one of value, regex and absent"],
    ),
    (
        "value = \"1\" }",
        "absent = true, value = \"1\" }\npath_regex = \"/a\"",
        &[
            "26:38: the field is described twice, allowed is one of value, regex and absent",
            "27:14: the path is given twice, allowed is one of path, path_exact and path_regex",
        ],
    ),
    (
        "[\"GET\", \"HEAD\"]",
        "\"GET\"\nnot = [{ method = \"GET\" }, {}]\nquery = { name = \"\" }\nclient = \"10.0.0.1/8\"",
        &[
            "26:7: a table of not has no conditions, so the route takes nothing: at least one is needed",
            "27:18: empty name of a parameter, allowed is any other text",
            "28:10: 10.0.0.1/8 has bits behind its prefix, did you mean \"10.0.0.0/8\"?",
        ],
    ),
    (
        "pool = \"web\"\n\n",
        "split = [{ pool = \"web\", weight = 1 }, { pool = \"web\", weight = -1 }]\nsplit_by = \"user\"\n\n",
        &[
            "27:49: pool \"web\" is in this split already, allowed is each pool once",
            "27:65: weight -1, allowed are 0 to 1000000",
            "28:12: bad hash \"user\", allowed: client, path, header NAME, cookie NAME",
        ],
    ),
    (
        "path = \"/\"\npool = \"web\"",
        "path_exact = \"/a\"\nredirect = { path = \"/b\", prefix = \"/c\" }",
        &[
            "31:36: the path is given twice, allowed is one of path and prefix",
            "31:36: prefix takes the place of the route's path, but the route has path_exact or path_regex",
        ],
    ),
    (
        "pool = \"web\"\n\n",
        "pool = \"web\"\nsplit = [{ pool = \"web\", weight = 0 }]\n\n",
        &[
            "28:9: this route leads elsewhere already, allowed is one of pool, split, redirect and respond",
            "28:9: a split has at least two pools; for one there is pool",
        ],
    ),
    (
        "pool = \"web\"\n\n",
        "pool = \"web\"\nrespond = 200\n\n",
        &[
            "28:11: this route leads elsewhere already, allowed is one of pool, split, redirect and respond",
            "28:11: respond 200, allowed: 403, 404, 410, 451, 500, 503",
        ],
    ),
    (
        "pool = \"web\"\n\n",
        "pool = \"web\"\nsplit_by = \"client\"\n\n",
        &["28:12: split_by without split, leave the line out"],
    ),
    (
        "pool = \"web\"\n\n",
        "pool = \"web\"\nmirror = \"web\"\nmirror_share = \"0.001%\"\n\n",
        &[
            "28:10: pool \"web\" gets the requests of this route already, allowed is another pool",
            "29:16: bad mirror_share \"0.001%\", allowed are \"0.01%\" to \"100%\" with two digits behind the point at most",
        ],
    ),
    (
        "pool = \"web\"\n\n",
        "respond = 404\nmirror = \"web\"\n\n",
        &["28:10: mirror copies what servers get, but the route leads to none"],
    ),
    (
        "pool = \"web\"\n\n",
        "pool = \"web\"\nmirror_share = \"5%\"\n\n",
        &["28:16: mirror_share without mirror, leave the line out"],
    ),
    ("pool = \"web\"", "pool = \"wbe\"", &["27:8: unknown pool \"wbe\", did you mean \"web\"?"]),
    (
        "path = \"/\"\npool = \"web\"",
        "pool = \"web\"\n[[service.route]]\nhost = \"a\"\npool = \"web\"\n[[service.route]]\npool = \"web\"",
        &[
            "31:1: this route can never match, a route without conditions stands before it",
            "34:1: this route can never match, a route without conditions stands before it",
        ],
    ),
    // Redirects.
    (
        "path = \"/\"\npool = \"web\"",
        "path = \"/\"",
        &["29:1: this route leads nowhere, allowed is one of pool, split, redirect and respond"],
    ),
    (
        "path = \"/\"\n",
        "path = \"/\"\nredirect = { scheme = \"https\" }\n",
        &["31:12: this route leads elsewhere already, allowed is one of pool, split, redirect and respond"],
    ),
    (
        "path = \"/\"\npool = \"web\"",
        "redirect = { schema = \"https\" }",
        &["30:14: unknown key \"schema\", did you mean \"scheme\"?"],
    ),
    (
        "path = \"/\"\npool = \"web\"",
        "redirect = {}",
        &[
            "30:12: this redirect is empty, at least one of scheme, host, port, path, prefix, status is needed",
        ],
    ),
    (
        "path = \"/\"\npool = \"web\"",
        "redirect = { scheme = \"HTTPS\", host = \"*.example.com\", port = 0, path = \"new\", status = 304 }",
        &[
            "30:23: unknown scheme \"HTTPS\", allowed: http, https",
            "30:39: bad host \"*.example.com\", allowed is a name or address, and port = for the port",
            "30:63: port 0, allowed are 1 to 65535",
            "30:73: bad path \"new\", allowed is '/' and then letters, digits and -._~!$&'()*+,;=:@%/",
            "30:89: status 304, allowed: 301, 302, 303, 307, 308",
        ],
    ),
    // Everything at once, in the order of the file, and columns are characters.
    (
        "n1\"\naddress = \"192.0.2.21\"",
        "n1\" # \u{e9}\u{e8}\naddress = \"x\"\nweight = 5000",
        &[
            "6:11: bad node address \"x\", allowed is an IP address such as 192.0.2.21 or 2001:db8::21",
            "7:10: weight 5000, allowed are 0 to 1000",
        ],
    ),
    (
        "[\"n1\", \"n2\"]",
        "[ \"n\u{e9}\", 'n2' , \"x\"]",
        &[
            "15:11: unknown node \"n\u{e9}\", did you mean \"n1\"?",
            "15:24: unknown node \"x\", defined: n1, n2",
        ],
    ),
];

#[test]
fn bad_files() {
    for (old, new, expected) in BAD {
        let policies = PolicyKind::ALL.map(PolicyKind::name).join(", ");
        let expected = expected.iter().map(|&line| match line {
            UNKNOWN_POLICY => format!("etc/cluster.toml:{line}{policies}"),
            _ => format!("etc/cluster.toml:{line}"),
        });
        let expected: Vec<_> = expected.collect();
        assert_eq!(lines(read(&changed(old, new))), expected, "{new}");
    }
}

/// The good file with `conditions` and `redirect` for its last route.
fn redirect(conditions: &str, redirect: &str) -> String {
    changed("path = \"/\"\npool = \"web\"", &format!("{conditions}\nredirect = {{ {redirect} }}"))
}

#[test]
fn no_redirect_puts_more_into_a_location_than_a_url() {
    for bad in
        ["\\r\\nX: y", "a b", "\\t", "\\u0000", "\u{e9}", "a\\\"b", "a?b", "a#b", "<a>", "a\\\\b", "a^b"]
    {
        for key in ["host = \"", "path = \"/"] {
            let lines = lines(read(&redirect("", &format!("{key}{bad}\""))));
            assert!(lines[0].contains(": bad ") && lines.len() == 1, "{lines:?}");
        }
    }
    for host in ["", "www.example.com:80", "user@example.com", "a..b", "::1", "[::1", "[a]", "*.[::1]"] {
        assert!(
            lines(read(&redirect("", &format!("host = \"{host}\""))))[0].contains(": bad host"),
            "{host}"
        );
    }
}

#[test]
fn a_redirect_has_to_lead_elsewhere() {
    let host = "host = \"Example.com\"";
    let both = "host = \"example.com\"\npath = \"/a\"";
    let rows = [
        ("", "scheme = \"http\"", true),
        ("", "scheme = \"https\"", false),
        ("", "port = 80", true),
        ("", "port = 8080", false),
        ("", "scheme = \"https\", port = 80", false),
        ("", "path = \"/\"", true),
        ("path = \"/\"", "path = \"/\"", true),
        ("", "path = \"/a\"", false),
        ("path = \"/a\"", "path = \"/a\"", true),
        ("path = \"/a\"", "path = \"/a\", status = 307", true),
        ("path = \"/a\"", "path = \"/a\", status = 303", false),
        ("", "status = 302", true),
        ("", "status = 303", false),
        ("path = \"/a\"", "path = \"/a/\"", false),
        ("", "prefix = \"/a\"", true),
        ("", "prefix = \"/a\", host = \"a.example\"", false),
        ("path = \"/a\"", "prefix = \"/b\"", false),
        ("path = \"/a\"", "prefix = \"/a/b\"", true),
        ("path = \"/a/b\"", "prefix = \"/a\"", false),
        ("", "host = \"example.com\"", false),
        (host, "host = \"EXAMPLE.com\"", true),
        (host, "host = \"www.example.com\"", false),
        ("host = \"*.example.com\"", "host = \"www.example.com\"", false),
        (both, "scheme = \"http\", host = \"example.com\", port = 80, path = \"/a\", status = 308", true),
        (both, "scheme = \"http\", host = \"example.com\", port = 80, path = \"/b\"", false),
    ];
    for (conditions, parts, back) in rows {
        let line = 30 + conditions.lines().count().max(1);
        let what =
            "this redirect sends a request back to where it came from, and clients ask again and again";
        let expected = back.then(|| format!("etc/cluster.toml:{line}:12: warning: {what}"));
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(loops(&redirect(conditions, parts)), expected, "{conditions} {parts}");
    }
    assert!(loops(&redirect("", "port = 80").replace(":80\"", ":8080\"")).is_empty());
    assert_eq!(loops(&redirect("", "port = 8080").replacen(":80\"", ":8080\"", 1)).len(), 1);
}

#[test]
fn addresses_that_packets_cannot_be_sent_to() {
    let rows = [
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("127.1.2.3", "loopback"),
        ("::1", "loopback"),
        ("fe80::1", "link-local"),
        ("255.255.255.255", "broadcast"),
        ("::ffff:192.0.2.1", "IPv4-mapped"),
    ];
    for (address, kind) in rows {
        assert_eq!(
            lines(read(&changed("192.0.2.21", address))),
            [format!(
                "etc/cluster.toml:6:11: node address {address} is {kind}, allowed is one that \
                 the switch can route to"
            )]
        );
        let listen = if address.contains(':') { format!("[{address}]:80") } else { format!("{address}:80") };
        assert_eq!(
            lines(read(&changed("192.0.2.100:80", &listen))),
            [format!(
                "etc/cluster.toml:20:11: listen address {listen} is {kind}, allowed is one that \
                 clients can route to"
            )]
        );
    }
    assert!(lines(read(&changed("192.0.2.21", "169.254.0.1")))[0].contains("is link-local"));
    good(&changed("192.0.2.100:80", "169.254.0.1:80"));
}

#[test]
fn a_file_with_nothing_in_it() {
    let empty = "[cluster]\nkey_file = \"k\"\n";
    let warned = Document::new(empty, Path::new("etc/cluster.toml")).check_text().unwrap().warnings;
    let warned: Vec<String> = warned.iter().map(|warning| warning.to_string()).collect();
    assert_eq!(
        warned,
        ["etc/cluster.toml:1:1: warning: no service, so nothing is served; [[service]] adds one"]
    );
    let pool = "[[pool]]\nname = \"web\"\nnodes = [\"n1\"]\npolicy = \"random\"\n";
    assert_eq!(
        lines(read(&format!("{empty}{pool}"))),
        [
            "etc/cluster.toml:1:1: no node, at least one [[node]] is needed",
            "etc/cluster.toml:5:10: unknown node \"n1\", no node is defined",
        ]
    );
    let no_route = &GOOD[..GOOD.find("[[service.route]]").unwrap()];
    assert_eq!(
        lines(read(no_route)),
        ["etc/cluster.toml:19:8: service \"shop\" has no route, at least one [[service.route]] is needed"]
    );
    let no_pool =
        changed("[[pool]]\nname = \"web\"\nnodes = [\"n1\", \"n2\"]\npolicy = \"round-robin\"\n", "");
    let unknown = "unknown pool \"web\", no pool is defined";
    assert_eq!(
        lines(read(&no_pool)),
        [format!("etc/cluster.toml:23:8: {unknown}"), format!("etc/cluster.toml:27:8: {unknown}")]
    );
}

#[test]
fn names_and_listen_addresses_are_unique_among_all_pools_and_services() {
    let pool = "[[pool]]\nname = \"web\"\nnodes = [\"n1\"]\npolicy = \"round-robin\"\n";
    let service = "[[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:80\"]\n\
                   [[service.route]]\npool = \"web\"\n";
    assert_eq!(
        lines(read(&format!("{GOOD}{pool}{service}"))),
        [
            "etc/cluster.toml:33:8: pool name \"web\" is taken already, allowed is each name once",
            "etc/cluster.toml:37:8: service name \"shop\" is taken already, allowed is each name once",
            "etc/cluster.toml:38:11: service \"shop\" listens at 192.0.2.100:80 already, allowed \
             is each address once",
        ]
    );
}

#[test]
fn limits_are_the_last_value_allowed() {
    let node = |i: usize| format!("[[node]]\nname = \"m{i}\"\naddress = \"10.0.{}.{}\"\n", i / 256, i % 256);
    let nodes = |count: usize| GOOD.to_owned() + &(2..count).map(node).collect::<String>();
    let most = good(&nodes(8192));
    assert_eq!(most.nodes.len(), 8192);
    let second = Duration::from_secs(1);
    assert_eq!(most.reports, Reports { interval: second, suspect_after: 3, dead_after: 3 });
    let too_many = lines(read(&nodes(8193)));
    assert_eq!(too_many, ["etc/cluster.toml:24603:8: 8193 nodes, allowed are at most 8192"]);

    let listen = |count: usize| {
        let more: String = (2..count).map(|port| format!(", \"192.0.2.100:{}\"", 1000 + port)).collect();
        changed("\"[2001:db8::100]:80\"", &format!("\"[2001:db8::100]:80\"{more}"))
    };
    assert_eq!(good(&listen(256)).services[0].listen.len(), 256);
    let too_many = lines(read(&listen(257)));
    assert!(too_many[0].ends_with("too many listen addresses, allowed are at most 256 in all services"));

    let name = |len: usize| changed("\"shop\"", &format!("\"{}\"", "x".repeat(len)));
    good(&name(63));
    assert!(read(&name(64)).is_err() && read(&name(0)).is_err());
}
