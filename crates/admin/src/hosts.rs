//! The hosts that a request may name.
//!
//! A web page can have its own name resolve to the admin server's address (DNS rebinding); its scripts may
//! then read the server's responses, which to the browser are of the same origin. Such a request names the
//! page's host. Addresses and `localhost` cannot be rebound; every other name has to be configured.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::Request;
use hyper::http::uri::Authority;

/// Names that are allowed besides addresses and `localhost`, in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(names: &[String]) -> Self {
        Hosts(names.to_vec())
    }

    /// Whether every host that the request names is allowed. A request of HTTP/1.0 without a host comes from
    /// no browser.
    pub(crate) fn allow<B>(&self, request: &Request<B>) -> bool {
        let fields = request.headers().get_all(hyper::header::HOST).iter();
        let mut fields = fields.map(|field| field.to_str().ok().and_then(|text| text.parse().ok()));
        fields.all(|host| host.is_some_and(|host: Authority| self.allows(&host)))
            && request.uri().authority().is_none_or(|host| self.allows(host))
    }

    fn allows(&self, authority: &Authority) -> bool {
        let host = authority.host();
        let name = host.strip_suffix('.').unwrap_or(host);
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        !authority.as_str().contains('@')
            && (host.parse::<Ipv4Addr>().is_ok()
                || literal.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok())
                || name.eq_ignore_ascii_case("localhost")
                || self.0.iter().any(|allowed| name.eq_ignore_ascii_case(allowed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::get(uri);
        for host in hosts {
            request = request.header("Host", *host);
        }
        Hosts::new(&["lb.example.com".to_owned()]).allow(&request.body(()).unwrap())
    }

    #[test]
    fn addresses_localhost_and_configured_names_are_allowed() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9180",
            "192.0.2.9:80",
            "[::1]",
            "[2001:db8::1]:9180",
            "localhost",
            "LocalHost:9180",
            "localhost.",
            "lb.example.com",
            "LB.example.com.:9180",
        ] {
            assert!(allowed("/metrics", &[host]), "{host}");
        }
        assert!(allowed("/metrics", &[]));
        assert!(allowed("http://127.0.0.1:9180/metrics", &["127.0.0.1:9180"]));
    }

    #[test]
    fn other_names_are_not() {
        for host in [
            "",
            "a",
            "evil.example",
            "evil.example:9180",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "xlb.example.com",
            "localhost@evil.example",
            "evil.example@localhost",
            "2130706433",
            "0x7f.1",
            "[::1",
            "::1",
            "[v1.x]",
            "[fe80::1%25eth0]",
        ] {
            assert!(!allowed("/metrics", &[host]), "{host}");
        }
        assert!(!allowed("/metrics", &["localhost", "evil.example"]));
        assert!(!allowed("http://evil.example/metrics", &["localhost"]));
        assert!(!allowed("http://localhost/metrics", &["evil.example"]));
    }
}
