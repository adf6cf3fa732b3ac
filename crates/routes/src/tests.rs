use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use proptest::prelude::*;
use switchback_config::{
    Action, ClusterKey, Conditions, Limit, PathChange, PathMatch, Redirect, Rewrite, Scheme,
};
use switchback_http::{Head, Limits, Progress, parse_head};

use super::*;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

fn to(pool: usize, conditions: Conditions) -> Route {
    let action = Action::Pool(pool);
    Route {
        conditions,
        except: Vec::new(),
        alpn: Vec::new(),
        h2c: false,
        limit: Limit::default(),
        action,
        rewrite: Rewrite::default(),
        mirror: None,
    }
}

fn prefix(text: &str) -> Option<PathMatch> {
    Some(PathMatch::Prefix(text.to_owned()))
}

/// Conditions as they stand in a file, which is read once.
fn conditions(lines: &str) -> Conditions {
    static READ: LazyLock<Mutex<HashMap<String, Conditions>>> = LazyLock::new(Mutex::default);
    let mut known = READ.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(lines.to_owned()).or_insert_with(|| read(lines)).clone()
}

fn read(lines: &str) -> Conditions {
    let text = format!(
        "[cluster]\nkey_file = \"k\"\n[[node]]\nname = \"n\"\naddress = \"192.0.2.1\"\n[[pool]]\nname = \"p\"\n\
         nodes = [\"n\"]\npolicy = \"random\"\n[[service]]\nname = \"s\"\nlisten = [\"192.0.2.9:80\"]\n\
         [[service.route]]\npool = \"p\"\n{lines}"
    );
    let keys = |_: &Path| Ok(vec![ClusterKey::from_bytes([7; 32])]);
    let cluster = switchback_config::parse(&text, Path::new("cluster.toml"), keys);
    cluster.unwrap_or_else(|error| panic!("{error}")).services.remove(0).routes.remove(0).conditions
}

fn some_conditions() -> impl Strategy<Value = Conditions> {
    let host = prop_oneof![
        "(a|b|a\\.b|b\\.a\\.b)".prop_map(HostMatch::Exact),
        "(\\.b|\\.a\\.b)".prop_map(HostMatch::Suffix),
    ];
    let path = prop_oneof![
        3 => Just(String::new()),
        3 => "/([ab]{1,2}(/[ab]{0,2})?)?".prop_map(|path| format!("path = \"{path}\"\n")),
        1 => "/[ab]{0,2}".prop_map(|path| format!("path_exact = \"{path}\"\n")),
        1 => "(/[ab]{1,2}|/|)(\\[ab\\]\\*|\\.\\*|/\\.\\+|\\(a\\|/b\\))".prop_map(|path| format!("path_regex = \"{path}\"\n")),
    ];
    let value =
        || proptest::sample::select(vec!["", ", value = \"1\"", ", regex = \"[12]\"", ", absent = true"]);
    let header = proptest::option::weighted(0.2, value());
    let query = proptest::option::weighted(0.2, value());
    let method = proptest::collection::vec("(GET|PUT)", 0..2);
    let client =
        proptest::option::weighted(0.2, proptest::sample::select(vec!["198.51.100.0/29", "203.0.113.0/24"]));
    (proptest::collection::vec(host, 0..3), path, method, header, query, client).prop_map(
        |(hosts, path, methods, header, query, client)| {
            let header =
                header.map_or(String::new(), |value| format!("header = {{ name = \"x\"{value} }}\n"));
            let query = query.map_or(String::new(), |value| format!("query = {{ name = \"q\"{value} }}\n"));
            let client = client.map_or(String::new(), |network| format!("client = \"{network}\"\n"));
            let [path, header, query, client] = [path, header, query, client].map(|line| conditions(&line));
            Conditions {
                hosts,
                path: path.path,
                methods,
                headers: header.headers,
                query: query.query,
                clients: client.clients,
            }
        },
    )
}

fn route() -> impl Strategy<Value = Route> {
    let except = proptest::collection::vec(some_conditions(), 0..2)
        .prop_filter("takes something", |except| !except.iter().any(Conditions::is_empty));
    (some_conditions(), except, 0..3usize)
        .prop_map(|(conditions, except, pool)| Route { except, ..to(pool, conditions) })
}

fn request() -> impl Strategy<Value = String> {
    let method = "(GET|PUT)";
    let host = "([ab]|[aA]\\.b\\.?|x\\.[aA]\\.B|b\\.a\\.b|c)";
    let field = prop_oneof![Just(String::new()), "X: [123]\r\n"];
    let query = prop_oneof![3 => Just(""), 1 => Just("?q=1"), 1 => Just("?x&q"), 1 => Just("?%71=%32&q=1")];
    (method, "/[ab]{0,3}(/{1,2}[ab]{0,3}|/x/\\.\\./[ab]|%2f[ab]|%61|;[ab])?", query, host, field).prop_map(
        |(method, path, query, host, field)| {
            format!("{method} {path}{query} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n")
        },
    )
}

fn parsed(text: &str) -> Head<'_> {
    match parse_head(text.as_bytes(), &Limits::default()) {
        Ok(Progress::Complete(head)) => head,
        other => panic!("{text}: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn the_first_route_is_found(routes in proptest::collection::vec(route(), 0..12), text in request()) {
        let head = parsed(&text);
        let request = Request { head: &head, client: CLIENT };
        let of = |path: &str| routes.iter().find(|route| failed(route, &request, path).is_none()).cloned();
        let expected: Vec<_> = path::readings(head.path()).iter().map(|path| of(path)).collect();
        let action = |route: &Option<Route>| route.clone().map(|route| route.action);
        let agree = expected.iter().all(|route| action(route) == action(&expected[0]));
        let expected = agree.then(|| expected[0].clone()).ok_or(Reject::AmbiguousPath);
        let found = Routes::new(routes.clone());
        prop_assert_eq!(found.find(&request).map(Option::<&Route>::cloned), expected.clone());
        let over = found.find_over(&request, Protocol::Http11).map(Option::<&Route>::cloned);
        prop_assert_eq!(over, expected);
    }

    /// What is never reached according to the texts of the routes is never reached.
    #[test]
    fn a_route_that_takes_all_of_another_takes_each_request(one in route(), other in route(), text in request()) {
        let head = parsed(&text);
        let request = Request { head: &head, client: CLIENT };
        let takes = |route: &Route| failed(route, &request, &path::normal(head.path())).is_none();
        prop_assert!(!one.takes_all_of(&other) || !takes(&other) || takes(&one));
        prop_assert!(one.takes_all_of(&one));
        let taken = |route: &Route| failed_hello(route, head.host, &[], CLIENT).is_none();
        prop_assert!(!takes(&one) || taken(&one), "a hello may lead to it");
        prop_assert!(!(taken(&one) && takes_all(&one, head.host, CLIENT)) || takes(&one));
    }
}

#[test]
fn conditions_say_what_they_take() {
    let rows = [
        ("path_exact = \"/login\"", "/login", "/login/x"),
        ("path_exact = \"/login\"", "/x/../login?next=/", "/"),
        ("path_regex = \"/v[0-9]+/users\"", "/v12/users", "/v12/users/7"),
        ("path_regex = \"/v[0-9]+/users\"", "/v1/%75sers", "/x/v1/users"),
        ("query = { name = \"debug\" }", "/?a&debug", "/?nodebug&a=debug"),
        ("query = { name = \"a b\", value = \"1+1\" }", "/?a+b=1%2B1", "/?a+b=1+1"),
        ("query = { name = \"v\", value = \"1\" }", "/?v=1&v=2", "/?v=2&v=1"),
        ("query = { name = \"v\", regex = \"[0-9]+\" }", "/?v=12", "/?v=12a"),
        ("query = { name = \"v\", absent = true }", "/?w=1", "/?v"),
        ("header = { name = \"X-Beta\", regex = \"on|1\" }", "/?#x-beta: 1", "/?#x-beta: 11"),
        ("header = [{ name = \"x\" }, { name = \"y\", absent = true }]", "/?#x: 1", "/?#x: 1\r\ny: 2"),
        ("header = { name = \"x\", value = \"1\" }", "/?#x: 1\r\nx: 2", "/?#x: 2\r\nx: 1"),
        ("client = [\"2001:db8::/32\", \"198.51.100.0/24\"]\nmethod = \"GET\"", "/", "/?#other"),
        ("host = [\"a.example\", \"*.b.example\"]", "/?#Host: x.b.example", "/"),
    ];
    for (lines, taken, other) in rows {
        let route = to(0, conditions(lines));
        let takes = |target: &str| {
            let (target, fields) = target.split_once("?#").unwrap_or((target, ""));
            let (method, fields) = if fields == "other" { ("PUT", "") } else { ("GET", fields) };
            let host = if fields.starts_with("Host") { "" } else { "Host: a\r\n" };
            let fields = if fields.is_empty() { String::new() } else { format!("{fields}\r\n") };
            let text = format!("{method} {target} HTTP/1.1\r\n{host}{fields}\r\n");
            let head = parsed(&text);
            let request = Request { head: &head, client: CLIENT };
            let failed = failed(&route, &request, &path::normal(head.path()));
            assert_ne!(failed.map(|condition| why_not(&route, &request, condition)), Some(String::new()));
            let found = Routes::new(vec![route.clone()]).find(&request).expect("no ambiguous path").is_some();
            assert_eq!(found, failed.is_none(), "{lines}: {target}");
            found
        };
        assert!(takes(taken), "{lines}: {taken}");
        assert!(!takes(other), "{lines}: {other}");
    }
}

#[test]
fn a_client_begins_where_it_is_taken_whatever_it_asks_for() {
    let any = to(0, Conditions::default());
    let shop = || conditions("host = \"shop.example\"");
    let not = |lines, route| Route { except: vec![conditions(lines)], ..route };
    let routes = Routes::new(vec![
        not("client = \"198.51.100.0/24\"", to(6, shop())),
        to(7, conditions("host = \"shop.example\"\nclient = \"203.0.113.0/24\"")),
        to(1, Conditions { path: prefix("/img/"), ..Conditions::default() }),
        Route { alpn: vec![Protocol::Http2], ..to(2, shop()) },
        not("path = \"/x\"", to(8, shop())),
        not("client = \"203.0.113.0/24\"", to(3, shop())),
        to(4, conditions("host = \"*.example\"\nmethod = \"GET\"")),
    ]);
    let find = |host, protocols: &[&str]| {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        routes.find_hello(host, &protocols, CLIENT)
    };
    assert_eq!(find(Some("shop.example"), &["http/1.1", "h2"]), Some(3));
    assert_eq!(find(Some("shop.example"), &["http/1.1"]), Some(5));
    assert_eq!(find(Some("shop.example"), &[]), Some(5), "it speaks HTTP/1.1");
    // No route takes these whatever they ask for.
    assert_eq!(find(Some("a.example"), &["h2"]), Some(2));
    assert_eq!(find(None, &[]), Some(2));
    let gone =
        Conditions { hosts: vec![HostMatch::Exact("gone.example".to_owned())], ..Conditions::default() };
    let answered = Routes::new(vec![Route { action: Action::Respond(410), ..to(0, gone) }, to(0, shop())]);
    assert_eq!(answered.find_hello(Some("gone.example"), &[], CLIENT), Some(1));
    assert_eq!(answered.find_hello(Some("other.example"), &[], CLIENT), None);
    let redirect: Redirect = Redirect { scheme: None, host: None, port: None, path: None, status: 301 };
    let elsewhere = Routes::new(vec![
        Route { action: Action::Redirect(redirect), ..any.clone() },
        to(5, Conditions::default()),
    ]);
    assert_eq!(elsewhere.find_hello(None, &[], CLIENT), Some(1));
    let only = Routes::new(vec![to(0, shop())]);
    assert_eq!(only.find_hello(Some("other.example"), &[], CLIENT), None);
}

/// The forms of issue reports: each was routed by `/`, and nginx served `/b`.
#[test]
fn other_spellings_of_a_path_go_by_its_route_or_nowhere() {
    let of = |path, pool| to(pool, Conditions { path, ..Conditions::default() });
    let routes = Routes::new(vec![of(prefix("/b"), 1), of(prefix("/c%2F"), 1), of(None, 0)]);
    let pool = |target: &str| {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = parsed(&text);
        routes.find(&Request { head: &head, client: CLIENT }).map(|route| route.unwrap().action.clone())
    };
    let rows: [(Result<usize, Reject>, &[&str]); 3] = [
        (
            Ok(1),
            &[
                "/b",
                "//b",
                "/x/../b",
                "/%62",
                "/./b",
                "/a/%2e%2e/b",
                "/a/..//b",
                "http://a//b",
                "/%62?/../a",
                "/b%2fx",
                "/b;x/y",
                "/b/x%5c..%2fbc",
            ],
        ),
        (Ok(0), &["/", "/a", "/b/../a", "/a/b", "/b/..", "/a?/../b", "/a%2fb", "/a%252f..%252fb", "/a;b"]),
        (
            Err(Reject::AmbiguousPath),
            &[
                "/%2fb",
                "/x%2f..%2fb",
                "/x/..%2fb",
                "/b%2f..%2fa",
                "/x/..;/b",
                "/%5cb",
                "/a//../b",
                "/c%2fx",
                "/;/b",
            ],
        ),
    ];
    for (expected, targets) in rows {
        for target in targets {
            assert_eq!(pool(target), expected.map(Action::Pool), "{target}");
        }
    }
}

#[test]
fn a_redirect_replaces_the_beginning_of_a_path_and_keeps_its_tail() {
    let rows = [
        ("/old/", "/new/", "/old/a/b?c=d", "/new/a/b?c=d"),
        ("/old", "/new", "/oldest", "/newest"),
        ("/old/", "/", "/x/../old/%61", "/a"),
        ("/old/", "/new/", "/old/%2561;x", "/new/%2561;x"),
        ("/old/", "/new/", "/old//evil.example", "/new//evil.example"),
        ("", "/app", "/", "/app/"),
    ];
    for (from, to, target, expected) in rows {
        let path = Some(PathChange::Prefix { from: from.to_owned(), to: to.to_owned() });
        let redirect = Redirect { scheme: None, host: None, port: None, path, status: 308 };
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let found = location(&redirect, Scheme::Http, &parsed(&text), "192.0.2.1:80".parse().unwrap());
        assert_eq!(found, format!("http://a{expected}"), "{target}");
    }
}

#[test]
fn a_redirect_stays_with_its_host() {
    let redirect = Redirect { scheme: Some(Scheme::Https), host: None, port: None, path: None, status: 301 };
    for (target, expected) in [
        ("//evil.example/%2e%2e", "https://a//evil.example/%2e%2e"),
        ("http://a//evil.example?b", "https://a//evil.example?b"),
        ("/@evil.example", "https://a/@evil.example"),
        ("*", "https://a/"),
    ] {
        let text = format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let found = location(&redirect, Scheme::Http, &parsed(&text), "192.0.2.1:80".parse().unwrap());
        assert_eq!(found, expected);
    }
}

#[test]
fn a_host_too_long_for_a_name_is_found_all_the_same() {
    let name = "a".repeat(HOST_MAX + 1);
    let hosts = vec![HostMatch::Exact(name.clone())];
    let exact = to(3, Conditions { hosts, ..Conditions::default() });
    let text = format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n");
    let head = parsed(&text);
    let request = Request { head: &head, client: CLIENT };
    assert!(Routes::new(vec![exact]).find(&request).unwrap().is_some());
}

#[test]
fn many_large_expressions_are_one_search() {
    let routes =
        (0..500).map(|route| to(route, conditions(&format!("path_regex = \"/[ab]{{600}}/{route}\""))));
    let routes = Routes::new(routes.collect());
    let text = format!("GET /{}/499 HTTP/1.1\r\nHost: a\r\n\r\n", "ab".repeat(300));
    let head = parsed(&text);
    assert_eq!(routes.place(&Request { head: &head, client: CLIENT }), Ok(Some(499)));
}
