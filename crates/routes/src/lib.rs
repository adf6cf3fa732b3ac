//! A service's routes, in a form in which the one that takes a request is found without a look at each.
//!
//! Routes are kept by what they say of the host, and for each host by the prefix of the path. All prefixes
//! that a path begins with are prefixes of each other. So they are a chain, and its longest link is found by
//! bisection: it is the last prefix in order that is not behind the path, or one that this one begins with.
//! Methods and header fields are then compared route by route.
//!
//! Paths are compared in [normal form](switchback_http::path). Where servers read a path in different ways,
//! all readings have to lead to the same action; otherwise the request is refused.

use std::collections::HashMap;
use std::net::SocketAddr;

use switchback_config::{Action, HeaderMatch, HostMatch, Protocol, Redirect, Route, Scheme};
use switchback_http::{Head, Reject, path};

/// Routes in the order of the configuration.
#[derive(Debug)]
pub struct Routes {
    routes: Vec<Route>,
    /// By the whole host, in lower case.
    exact: HashMap<Box<str>, Prefixes>,
    /// By the end of the host from a dot on, in lower case.
    suffixes: HashMap<Box<str>, Prefixes>,
    any: Prefixes,
}

/// Routes with one host, by prefix.
#[derive(Debug, Default)]
struct Prefixes {
    /// In order, none twice.
    sorted: Vec<Prefix>,
}

#[derive(Debug)]
struct Prefix {
    text: Box<str>,
    /// The longest other prefix that this one begins with.
    parent: Option<usize>,
    /// Indices of the routes, in order.
    routes: Vec<usize>,
}

/// Longest host name (RFC 1035 section 2.3.4). Longer hosts are compared as they are.
const HOST_MAX: usize = 255;

impl Routes {
    /// Routes in this order: the first that takes a request is its route.
    pub fn new(routes: Vec<Route>) -> Self {
        let mut exact: HashMap<Box<str>, Vec<usize>> = HashMap::new();
        let mut suffixes: HashMap<Box<str>, Vec<usize>> = HashMap::new();
        let mut any = Vec::new();
        for (index, route) in routes.iter().enumerate() {
            match &route.host {
                None => any.push(index),
                Some(HostMatch::Exact(name)) => exact.entry(name.as_str().into()).or_default().push(index),
                Some(HostMatch::Suffix(end)) => suffixes.entry(end.as_str().into()).or_default().push(index),
            }
        }
        let by_prefix = |(host, indices): (Box<str>, Vec<usize>)| (host, Prefixes::new(&routes, &indices));
        Routes {
            exact: exact.into_iter().map(by_prefix).collect(),
            suffixes: suffixes.into_iter().map(by_prefix).collect(),
            any: Prefixes::new(&routes, &any),
            routes,
        }
    }

    /// The first route that takes the request.
    pub fn find(&self, head: &Head<'_>) -> Result<Option<&Route>, Reject> {
        Ok(self.place(head)?.map(|index| &self.routes[index]))
    }

    /// The first route that takes a request for which client and node have agreed on a protocol.
    pub fn find_over(&self, head: &Head<'_>, spoken: Protocol) -> Result<Option<&Route>, Reject> {
        Ok(self.place_over(head, spoken)?.map(|index| &self.routes[index]))
    }

    /// Index of the route of [`find_over`](Self::find_over).
    pub fn place_over(&self, head: &Head<'_>, spoken: Protocol) -> Result<Option<usize>, Reject> {
        if self.routes.iter().all(|route| speaks(route, spoken)) {
            return self.place(head);
        }
        let takes = |route: &Route, path: &str| failed_over(route, head, path, spoken).is_none();
        self.agreed(head, |path| self.routes.iter().position(|route| takes(route, path)))
    }

    /// Action of the route with this index.
    pub fn action(&self, index: usize) -> &Action {
        &self.routes[index].action
    }

    /// Index of the route of [`find`](Self::find).
    pub fn place(&self, head: &Head<'_>) -> Result<Option<usize>, Reject> {
        self.agreed(head, |path| self.place_of(head, path))
    }

    /// The result of `place` for the path of the request, if all readings of the path lead to the same
    /// action.
    fn agreed(
        &self,
        head: &Head<'_>,
        place: impl Fn(&str) -> Option<usize>,
    ) -> Result<Option<usize>, Reject> {
        if path::is_plain(head.path()) {
            return Ok(place(head.path()));
        }
        let places: Vec<_> = path::readings(head.path()).iter().map(|path| place(path)).collect();
        let action = |place: &Option<usize>| place.map(|index| &self.routes[index].action);
        match places.iter().all(|place| action(place) == action(&places[0])) {
            true => Ok(places[0]),
            false => Err(Reject::AmbiguousPath),
        }
    }

    /// Index of the first route that takes the request, with this reading of its path.
    fn place_of(&self, head: &Head<'_>, path: &str) -> Option<usize> {
        let mut first = self.any.first(&self.routes, head, path, None);
        if let Some(host) = head.host
            && !(self.exact.is_empty() && self.suffixes.is_empty())
        {
            let host = host.strip_suffix('.').unwrap_or(host);
            let mut lower = [0; HOST_MAX];
            let Some(lower) = lower.get_mut(..host.len()) else { return self.place_slowly(head, path) };
            lower.copy_from_slice(host.as_bytes());
            lower.make_ascii_lowercase();
            // Only ASCII has been changed.
            let Ok(host) = std::str::from_utf8(lower) else { return self.place_slowly(head, path) };
            let ends = host.char_indices().skip(1).filter(|(_, c)| *c == '.').map(|(at, _)| &host[at..]);
            let ends = ends.filter_map(|end| self.suffixes.get(end));
            for prefixes in self.exact.get(host).into_iter().chain(ends) {
                first = prefixes.first(&self.routes, head, path, first);
            }
        }
        first
    }

    /// Route and pool with which a TLS client begins that wants this host, and offers these protocols: those
    /// of the first route which takes it whatever it will ask for, or else of the first that may take it.
    pub fn find_hello(&self, host: Option<&str>, protocols: &[Vec<u8>]) -> Option<(usize, usize)> {
        let may_take = |route: &Route| failed_hello(route, host, protocols).is_none();
        let pool = |route: &Route| match route.action {
            Action::Pool(pool) => Some(pool),
            Action::Redirect(_) => None,
        };
        let candidates = || self.routes.iter().enumerate().filter(|(_, route)| may_take(route));
        let found = |(index, route): (usize, &Route)| Some((index, pool(route)?));
        let whole = candidates().filter(|(_, route)| takes_all(route)).find_map(found);
        whole.or_else(|| candidates().find_map(found))
    }

    fn place_slowly(&self, head: &Head<'_>, path: &str) -> Option<usize> {
        self.routes.iter().position(|route| failed(route, head, path).is_none())
    }
}

impl Prefixes {
    fn new(routes: &[Route], indices: &[usize]) -> Self {
        let mut by_text: std::collections::BTreeMap<&str, Vec<usize>> = std::collections::BTreeMap::new();
        for &index in indices {
            by_text.entry(routes[index].path.as_deref().unwrap_or("")).or_default().push(index);
        }
        let mut sorted: Vec<Prefix> = Vec::with_capacity(by_text.len());
        for (text, routes) in by_text {
            // Where the text before is no beginning of this one, one of its own beginnings may be.
            let mut parent = sorted.len().checked_sub(1);
            while let Some(index) = parent
                && !text.starts_with(&*sorted[index].text)
            {
                parent = sorted[index].parent;
            }
            sorted.push(Prefix { text: text.into(), parent, routes });
        }
        Prefixes { sorted }
    }

    /// The first of these routes that takes the request, whose host is right; or `other`, if that comes
    /// before it.
    fn first(&self, routes: &[Route], head: &Head<'_>, path: &str, other: Option<usize>) -> Option<usize> {
        let mut first = other;
        let mut at = self.sorted.partition_point(|prefix| *prefix.text <= *path).checked_sub(1);
        while let Some(prefix) = at.map(|index| &self.sorted[index]) {
            if path.starts_with(&*prefix.text) {
                let earlier =
                    prefix.routes.iter().take_while(|index| first.is_none_or(|first| **index < first));
                first = earlier.copied().find(|index| takes_besides(&routes[*index], head)).or(first);
            }
            at = prefix.parent;
        }
        first
    }
}

/// Where a request to this VIP, which came by this scheme, is redirected: an absolute URI, whose path is the
/// request's as it was sent, if the redirect has none. The host stands before it, so a path such as
/// `//other.example/` leads to no other host.
pub fn location(redirect: &Redirect, came_by: Scheme, head: &Head<'_>, vip: SocketAddr) -> String {
    let scheme = redirect.scheme.unwrap_or(came_by);
    let address = if vip.is_ipv6() { format!("[{}]", vip.ip()) } else { vip.ip().to_string() };
    let host = redirect.host.as_deref().or(head.host).unwrap_or(&address);
    let port = redirect.port.or(redirect.scheme.is_none().then_some(vip.port()));
    let port =
        port.filter(|port| *port != scheme.default_port()).map_or(String::new(), |port| format!(":{port}"));
    let path = redirect.path.as_deref().unwrap_or(if head.path() == "*" { "/" } else { head.path() });
    let query = head.target.raw.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
    format!("{}://{host}{port}{path}{query}", scheme.name())
}

/// Conditions of a route, in the order in which they are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The host that the request names.
    Host,
    /// The beginning of its path.
    Path,
    /// Its method.
    Method,
    /// One of its header fields.
    Header,
    /// The protocol above TLS.
    Protocol,
}

/// The first of the route's conditions that does not hold, with this reading of the path.
pub fn failed(route: &Route, head: &Head<'_>, path: &str) -> Option<Condition> {
    let host = route.host.as_ref().is_none_or(|wanted| head.host.is_some_and(|host| wanted.matches(host)));
    let begins = route.path.as_ref().is_none_or(|prefix| path.starts_with(prefix));
    match () {
        () if !host => Some(Condition::Host),
        () if !begins => Some(Condition::Path),
        () if !takes_method(route, head) => Some(Condition::Method),
        () if !takes_header(route, head) => Some(Condition::Header),
        () => None,
    }
}

/// Why a condition of the route does not hold for the request, in words.
pub fn why_not(route: &Route, head: &Head<'_>, condition: Condition) -> String {
    match (condition, &route.host, &route.path, &route.header) {
        (Condition::Host, Some(wanted), ..) => match head.host {
            Some(host) => format!("host is {host}, not {wanted}"),
            None => format!("it names no host, and {wanted} is asked for"),
        },
        (Condition::Path, _, Some(prefix), _) => {
            format!("path is {}, which does not begin with {prefix}", path::normal(head.path()))
        }
        (Condition::Header, .., Some(HeaderMatch { name, value })) => match (head.header(name), value) {
            (Some(found), Some(wanted)) => format!("{name} is {}, not {wanted}", found.escape_ascii()),
            _ => format!("it has no header field {name}"),
        },
        _ => format!("method is {}, not {}", head.method, route.methods.join(" or ")),
    }
}

/// The first of the route's conditions that does not hold for a request over this protocol.
pub fn failed_over(route: &Route, head: &Head<'_>, path: &str, spoken: Protocol) -> Option<Condition> {
    if speaks(route, spoken) { failed(route, head, path) } else { Some(Condition::Protocol) }
}

fn speaks(route: &Route, spoken: Protocol) -> bool {
    route.alpn.is_empty() || route.alpn.contains(&spoken)
}

/// The first condition that keeps the route from every request of a TLS client that wants this host and
/// offers these protocols.
pub fn failed_hello(route: &Route, host: Option<&str>, protocols: &[Vec<u8>]) -> Option<Condition> {
    let offered = |protocol: &Protocol| match protocols {
        [] => *protocol == Protocol::Http11,
        some => some.iter().any(|one| one == protocol.name().as_bytes()),
    };
    let wanted = route.host.as_ref();
    match () {
        () if !wanted.is_none_or(|wanted| host.is_some_and(|host| wanted.matches(host))) => {
            Some(Condition::Host)
        }
        () if !route.alpn.is_empty() && !route.alpn.iter().any(offered) => Some(Condition::Protocol),
        () => None,
    }
}

/// Whether the route takes all requests of a client that it may take.
pub fn takes_all(route: &Route) -> bool {
    route.path.is_none() && route.methods.is_empty() && route.header.is_none()
}

/// Whether the conditions hold that are about neither host nor path.
fn takes_besides(route: &Route, head: &Head<'_>) -> bool {
    takes_method(route, head) && takes_header(route, head)
}

fn takes_method(route: &Route, head: &Head<'_>) -> bool {
    route.methods.is_empty() || route.methods.iter().any(|method| method == head.method)
}

fn takes_header(route: &Route, head: &Head<'_>) -> bool {
    route.header.as_ref().is_none_or(|wanted| {
        let value = head.header(&wanted.name);
        value.is_some_and(|value| wanted.value.as_ref().is_none_or(|text| text.as_bytes() == value))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use switchback_config::{Action, HeaderMatch};
    use switchback_http::{Limits, Progress, parse_head};

    use super::*;

    fn route() -> impl Strategy<Value = Route> {
        let host = prop_oneof![
            Just(None),
            "(a|b|a\\.b|b\\.a\\.b)".prop_map(|host| Some(HostMatch::Exact(host))),
            "(\\.b|\\.a\\.b)".prop_map(|end| Some(HostMatch::Suffix(end))),
        ];
        let path = proptest::option::of("/[ab]{0,2}(/[ab]{0,2})?");
        let method = proptest::collection::vec("(GET|PUT)", 0..2);
        let header = proptest::option::weighted(0.2, proptest::option::of("[12]"));
        let pool = 0..3usize;
        (host, path, method, header, pool).prop_map(|(host, path, methods, header, pool)| Route {
            host,
            path: path.filter(|path| path != "/"),
            methods,
            alpn: Vec::new(),
            header: header.map(|value| HeaderMatch { name: "x".to_owned(), value }),
            h2c: false,
            action: Action::Pool(pool),
        })
    }

    fn request() -> impl Strategy<Value = String> {
        let method = "(GET|PUT)";
        let host = "([ab]|[aA]\\.b\\.?|x\\.[aA]\\.B|b\\.a\\.b|c)";
        let field = prop_oneof![Just(String::new()), "X: [12]\r\n"];
        (method, "/[ab]{0,3}(/{1,2}[ab]{0,3}|/x/\\.\\./[ab]|%2f[ab]|%61|;[ab])?", host, field).prop_map(
            |(method, path, host, field)| format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n"),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn the_first_route_is_found(routes in proptest::collection::vec(route(), 0..12), text in request()) {
            let limits = Limits::default();
            let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &limits) else { panic!("{text}") };
            let of = |path: &str| routes.iter().find(|route| failed(route, &head, path).is_none()).cloned();
            let expected: Vec<_> = path::readings(head.path()).iter().map(|path| of(path)).collect();
            let action = |route: &Option<Route>| route.clone().map(|route| route.action);
            let agree = expected.iter().all(|route| action(route) == action(&expected[0]));
            let expected = agree.then(|| expected[0].clone()).ok_or(Reject::AmbiguousPath);
            let found = Routes::new(routes.clone());
            prop_assert_eq!(found.find(&head).map(Option::<&Route>::cloned), expected.clone());
            let over = found.find_over(&head, Protocol::Http11).map(Option::<&Route>::cloned);
            prop_assert_eq!(over, expected);
        }
    }

    #[test]
    fn a_client_begins_where_it_is_taken_whatever_it_asks_for() {
        let any = Route {
            host: None,
            path: None,
            methods: Vec::new(),
            alpn: Vec::new(),
            header: None,
            h2c: false,
            action: Action::Pool(0),
        };
        let to = |pool| Route { action: Action::Pool(pool), ..any.clone() };
        let shop = || Some(HostMatch::Exact("shop.example".to_owned()));
        let routes = Routes::new(vec![
            Route { path: Some("/img/".to_owned()), ..to(1) },
            Route { alpn: vec![Protocol::Http2], host: shop(), ..to(2) },
            Route { host: shop(), ..to(3) },
            Route {
                host: Some(HostMatch::Suffix(".example".to_owned())),
                methods: vec!["GET".to_owned()],
                ..to(4)
            },
        ]);
        let find = |host, protocols: &[&str]| {
            let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
            routes.find_hello(host, &protocols)
        };
        assert_eq!(find(Some("shop.example"), &["http/1.1", "h2"]), Some((1, 2)));
        assert_eq!(find(Some("shop.example"), &["http/1.1"]), Some((2, 3)));
        assert_eq!(find(Some("shop.example"), &[]), Some((2, 3)), "it speaks HTTP/1.1");
        // No route takes these whatever they ask for.
        assert_eq!(find(Some("a.example"), &["h2"]), Some((0, 1)));
        assert_eq!(find(None, &[]), Some((0, 1)));
        let redirect: Redirect = Redirect { scheme: None, host: None, port: None, path: None, status: 301 };
        let elsewhere = Routes::new(vec![Route { action: Action::Redirect(redirect), ..any.clone() }, to(5)]);
        assert_eq!(elsewhere.find_hello(None, &[]), Some((1, 5)));
        let only = Routes::new(vec![Route { host: shop(), ..any }]);
        assert_eq!(only.find_hello(Some("other.example"), &[]), None);
    }

    /// The forms of issue reports: each was routed by `/`, and nginx served `/b`.
    #[test]
    fn other_spellings_of_a_path_go_by_its_route_or_nowhere() {
        let to = |path: Option<&str>, pool| Route {
            host: None,
            path: path.map(str::to_owned),
            methods: Vec::new(),
            alpn: Vec::new(),
            header: None,
            h2c: false,
            action: Action::Pool(pool),
        };
        let routes = Routes::new(vec![to(Some("/b"), 1), to(Some("/c%2F"), 1), to(None, 0)]);
        let pool = |target: &str| {
            let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &Limits::default()) else {
                panic!("{target}")
            };
            routes.find(&head).map(|route| route.unwrap().action.clone())
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
            (
                Ok(0),
                &["/", "/a", "/b/../a", "/a/b", "/b/..", "/a?/../b", "/a%2fb", "/a%252f..%252fb", "/a;b"],
            ),
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
    fn a_redirect_stays_with_its_host() {
        let redirect =
            Redirect { scheme: Some(Scheme::Https), host: None, port: None, path: None, status: 301 };
        for (target, expected) in [
            ("//evil.example/%2e%2e", "https://a//evil.example/%2e%2e"),
            ("http://a//evil.example?b", "https://a//evil.example?b"),
            ("/@evil.example", "https://a/@evil.example"),
            ("*", "https://a/"),
        ] {
            let text = format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &Limits::default()) else {
                panic!("{target}")
            };
            let found = location(&redirect, Scheme::Http, &head, "192.0.2.1:80".parse().unwrap());
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_host_too_long_for_a_name_is_found_all_the_same() {
        let name = "a".repeat(HOST_MAX + 1);
        let exact = Route {
            host: Some(HostMatch::Exact(name.clone())),
            path: None,
            methods: Vec::new(),
            alpn: Vec::new(),
            header: None,
            h2c: false,
            action: Action::Pool(3),
        };
        let text = format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n");
        let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &Limits::default()) else { panic!() };
        assert!(Routes::new(vec![exact]).find(&head).unwrap().is_some());
    }
}
