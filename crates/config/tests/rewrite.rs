//! What routes change about requests, and what they may not.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use common::{GOOD, SECRET, changed, good, lines, read};
use switchback_config::{NewField, PathChange, Rewrite};

/// The good file and [`SECRET`] with these lines in its route, which begins in the 44th line.
fn secret(route: &str) -> String {
    format!("{GOOD}{SECRET}{route}")
}

fn rewrite(route: &str) -> Rewrite {
    good(&secret(route)).services[1].routes[0].rewrite.clone()
}

#[test]
fn what_a_route_changes() {
    assert!(rewrite("").is_empty());
    let field = |name: &str, value: &str| NewField { name: name.into(), value: value.into() };
    assert_eq!(
        rewrite(
            "path = \"/api/\"\nrewrite = { host = \"Internal.example.com\", prefix = \"/v2/\" }\n\
             request_header = { set = { name = \"X-Tenant\", value = \"7, 8\" }, add = [{ name = \"Via\", value = \"1.1 a\" }, \
             { name = \"via\", value = \"\" }], remove = [\"X-Debug\", \"cookie\"] }"
        ),
        Rewrite {
            host: Some("internal.example.com".into()),
            path: Some(PathChange::Prefix { from: "/api/".into(), to: "/v2/".into() }),
            set: vec![field("X-Tenant", "7, 8")],
            add: vec![field("Via", "1.1 a"), field("via", "")],
            remove: vec!["x-debug".into(), "cookie".into()],
        }
    );
    let whole = PathChange::Whole("/a%20b".into());
    assert_eq!(rewrite("rewrite.path = \"/a%20b\"").path, Some(whole));
    assert_eq!(rewrite("request_header.remove = \"X-Debug\"").remove, ["x-debug"]);
}

/// Lines of the route, and what is wrong then: what comes after `etc/cluster.toml:`.
const BAD: &[(&str, &[&str])] = &[
    ("rewrite = {}", &["46:11: this rewrite changes nothing, at least one of host, path, prefix is needed"]),
    (
        "request_header = {}",
        &["46:18: this request_header changes nothing, at least one of set, add, remove is needed"],
    ),
    (
        "rewrite = { host = \"a.example:80\", path = \"/a?b\" }",
        &[
            "46:20: bad host \"a.example:80\", allowed is a name or address without port",
            "46:43: bad path \"/a?b\", allowed is '/' and then letters, digits and -._~!$&'()*+,;=:@%/",
        ],
    ),
    (
        "rewrite = { path = \"/a/../b\", prefix = \"/c//d\" }",
        &[
            "46:20: path \"/a/../b\" is not in normal form, did you mean \"/b\"?",
            "46:40: path \"/c//d\" is not in normal form, did you mean \"/c/d\"?",
            "46:40: the path is given twice, allowed is one of path and prefix",
        ],
    ),
    ("rewrite.path = \"/a%2fb\"", &["46:16: bad path \"/a%2fb\", which servers read in different ways"]),
    (
        "rewrite.path = \"/../a\"",
        &["46:16: bad path \"/../a\", a request for it would be refused: path_above_root"],
    ),
    (
        "path_exact = \"/a\"\nrewrite.prefix = \"/b\"",
        &["47:18: prefix takes the place of the route's path, but the route has path_exact or path_regex"],
    ),
    (
        "request_header.set = [{ name = \"Host\", value = \"a\" }, { name = \"Content_Length\", value = \"0\" }]",
        &[
            "46:32: Host says where a request goes, allowed is it as host of rewrite",
            "46:64: Content_Length is about the connection or where the message ends, which no route changes",
        ],
    ),
    (
        "request_header.add = [{ name = \"A b\", value = \"a\\r\\nB: c\" }, { name = \"C\", value = \" a\" }, \
         { name = \"D\", value = \"\u{e9}\" }]",
        &[
            "46:32: bad header name \"A b\", allowed are letters, digits and !#$%&'*+-.^_`|~",
            "46:47: bad header value \"a\\r\\nB: c\", allowed are visible ASCII and blanks",
            "46:84: bad header value \" a\", allowed is text without control characters or blanks around it",
            "46:114: bad header value \"\u{e9}\", allowed are visible ASCII and blanks",
        ],
    ),
    (
        "request_header.remove = [\"transfer-encoding\", \"TE\", \"upgrade\", \"X-Client-Cert-Subject\"]",
        &[
            "46:26: transfer-encoding is about the connection or where the message ends, which no route changes",
            "46:47: TE is about the connection or where the message ends, which no route changes",
            "46:53: upgrade is about the connection or where the message ends, which no route changes",
            "46:64: X-Client-Cert-Subject is what nodes say of clients' certificates, which no route changes",
        ],
    ),
    (
        "request_header.set = { name = \"x_real_ip\", value = \"192.0.2.1\" }",
        &[
            "46:31: x_real_ip is what nodes say of clients, allowed is it with client_address = \"proxy\" or \"none\"",
        ],
    ),
    (
        "request_header = { set = [], add = { name = \"Cookie\", value = \"a=b\" }, remove = [] }",
        &[
            "46:26: an empty list, leave the line out",
            "46:45: a request has one Cookie field only (RFC 6265 section 5.4), allowed is it in set",
            "46:81: no field, leave the line out",
        ],
    ),
    (
        "request_header = { set = [{ name = \"A-b\", value = \"\" }, { name = \"a_b\", value = \"\" }], \
         add = { name = \"A-B\", value = \"1\" }, remove = [\"c\", \"C\"] }",
        &[
            "46:66: a_b is named already, allowed is each field once, or several times in add",
            "46:103: A-B is named already, allowed is each field once, or several times in add",
            "46:140: C is named already, allowed is each field once, or several times in add",
        ],
    ),
];

#[test]
fn bad_changes() {
    for (route, expected) in BAD {
        let expected: Vec<_> = expected.iter().map(|line| format!("etc/cluster.toml:{line}")).collect();
        assert_eq!(lines(read(&secret(route))), expected, "{route}");
    }
}

#[test]
fn only_what_has_been_read_is_changed() {
    let said = |text: &str| lines(read(text)).join("\n");
    let plain = |lines: &str| said(&changed("path = \"/\"\n", lines));
    assert_eq!(
        plain("h2c = true\nrequest_header.remove = \"a\"\n"),
        "etc/cluster.toml:31:1: request_header with h2c, of which the switch reads nothing"
    );
    let passed =
        "[service.tls]\npassthrough = true\n[[service.route]]\nrewrite.path = \"/a\"\npool = \"web\"";
    let passed = SECRET[..SECRET.find("[service.tls]").unwrap()].to_owned() + passed;
    assert_eq!(
        said(&format!("{GOOD}{passed}")),
        "etc/cluster.toml:40:1: rewrite in a service with passthrough, where nobody reads requests, allowed are pool and split"
    );
    for action in ["respond = 403", "redirect.path = \"/b\""] {
        let text = SECRET.replace("pool = \"web\"", &format!("{action}\nrewrite.path = \"/a\""));
        assert_eq!(
            said(&format!("{GOOD}{text}")),
            "etc/cluster.toml:46:1: rewrite is about what servers get, but the route leads to none",
            "{action}"
        );
    }
}

#[test]
fn changes_in_words() {
    let [before, after] = [
        "rewrite.path = \"/a\"",
        "rewrite = { host = \"a.example\", prefix = \"/v2/\" }\n\
         request_header = { set = { name = \"A\", value = \"1, b\" }, remove = \"C\" }",
    ]
    .map(|lines| good(&secret(lines)));
    assert_eq!(
        before.diff(&after),
        [
            "service secret: route removed: every request -> web, path /a",
            "service secret: route added: every request -> web, host a.example, path /v2/{tail}, set A: \"1, b\", remove c",
        ]
    );
}
