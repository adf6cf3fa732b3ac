//! Hostnames of listeners and routes: exact ones, and `*.example.com`.

use std::cmp::Reverse;
use std::collections::HashSet;

/// The hosts for which a listener's hostname and one of a route's both hold; None if there are none. Without a hostname each of
/// them takes all hosts, which is None inside.
pub(super) fn intersection(listener: Option<&str>, route: Option<&str>) -> Option<Option<String>> {
    match (listener, route) {
        (None, host) | (host, None) => Some(host.map(str::to_ascii_lowercase)),
        (Some(one), Some(other)) => {
            let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
            if covers(&one, &other) { Some(Some(other)) } else { covers(&other, &one).then_some(Some(one)) }
        }
    }
}

/// Whether each host of the second hostname is one of the first.
fn covers(one: &str, other: &str) -> bool {
    match (one.strip_prefix('*'), other.strip_prefix('*')) {
        (None, _) => one == other,
        (Some(suffix), Some(other)) => other.ends_with(suffix),
        (Some(suffix), None) => other.len() > suffix.len() && other.ends_with(suffix),
    }
}

/// A set of hosts.
#[derive(Debug, Default)]
pub(super) struct HostSet {
    exact: HashSet<String>,
    wildcards: Vec<String>,
    all: bool,
}

impl HostSet {
    /// Adds the hosts of a hostname; None stands for all.
    pub fn insert(&mut self, host: Option<String>) {
        match host {
            None => self.all = true,
            Some(host) if host.starts_with('*') => self.wildcards.push(host),
            Some(host) => {
                self.exact.insert(host);
            }
        }
    }

    /// Whether it has all hosts of a hostname.
    pub fn covers(&self, host: Option<&str>) -> bool {
        let has =
            |host| self.exact.contains(host) || self.wildcards.iter().any(|wildcard| covers(wildcard, host));
        self.all || host.is_some_and(has)
    }
}

/// The order of hostnames: exact ones, the longest wildcards, no hostname.
pub(super) fn specificity(host: Option<&str>) -> (u8, Reverse<usize>) {
    let kind = match host {
        Some(host) if host.starts_with('*') => 1,
        Some(_) => 0,
        None => 2,
    };
    (kind, Reverse(host.map_or(0, str::len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_hostnames_have_in_common() {
        let rows = [
            (None, None, Some(None)),
            (Some("A.example"), None, Some(Some("a.example"))),
            (None, Some("*.example"), Some(Some("*.example"))),
            (Some("a.example"), Some("a.example"), Some(Some("a.example"))),
            (Some("a.example"), Some("b.example"), None),
            (Some("*.example"), Some("a.b.example"), Some(Some("a.b.example"))),
            (Some("*.example"), Some("example"), None),
            (Some("*.example"), Some(".example"), None),
            (Some("*.example"), Some("badexample"), None),
            (Some("a.example"), Some("*.example"), Some(Some("a.example"))),
            (Some("*.b.example"), Some("*.example"), Some(Some("*.b.example"))),
            (Some("*.example"), Some("*.example"), Some(Some("*.example"))),
            (Some("*.b.example"), Some("*.c.example"), None),
        ];
        for (listener, route, common) in rows {
            let found = intersection(listener, route);
            assert_eq!(found.as_ref().map(Option::as_deref), common, "{listener:?} {route:?}");
        }
    }

    #[test]
    fn the_most_specific_comes_first() {
        let mut hosts = [None, Some("*.example"), Some("a.example"), Some("*.b.example")];
        hosts.sort_by_key(|host| specificity(*host));
        assert_eq!(hosts, [Some("a.example"), Some("*.b.example"), Some("*.example"), None]);
    }
}
