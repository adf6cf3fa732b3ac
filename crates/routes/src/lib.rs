//! A service's routes, in a form in which the one that takes a request is found without a look at each.
//!
//! Routes are kept by what they say of the host, and for each host by a prefix of the path, which for regular
//! expressions is the text that all matching paths begin with. All prefixes that a path begins with are prefixes of each
//! other. So they are a chain, and its longest link is found by bisection: it is the last prefix in order that is not
//! behind the path, or one that this one begins with. The regular expressions of a prefix are searched for together.
//! All other conditions are then compared route by route.
//!
//! Paths are compared in [normal form](switchback_http::path). Where servers read a path in different ways,
//! all readings have to lead to the same action and the same changes; otherwise the request is refused.

mod copy;
mod hello;
mod location;
mod request;
mod rewrite;
mod split;

use std::collections::{BTreeMap, HashMap};

use regex::bytes::{RegexSet, RegexSetBuilder};
use switchback_config::{Action, Conditions, HostMatch, Mirror, PathMatch, Protocol, Rewrite, Route};
use switchback_http::{Reject, path};

pub use copy::{copy, whole_body};
pub use hello::{ACME_TLS, failed_hello, takes_all};
pub use location::location;
pub use request::{Condition, Request, failed, failed_over, why_not};
pub use rewrite::rewritten;
pub use split::{mirror_point, share};

use request::{speaks, takes_besides};

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
    /// Indices of the routes that take paths with this prefix, or this path only, in order.
    routes: Vec<usize>,
    patterns: Option<Patterns>,
}

/// Routes with regular expressions for the path.
#[derive(Debug)]
struct Patterns {
    set: RegexSet,
    /// The indices of the routes, in the order of the set and of the configuration.
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
            if route.conditions.hosts.is_empty() {
                any.push(index);
            }
            for host in &route.conditions.hosts {
                let indices = match host {
                    HostMatch::Exact(name) => exact.entry(name.as_str().into()).or_default(),
                    HostMatch::Suffix(end) => suffixes.entry(end.as_str().into()).or_default(),
                };
                indices.push(index);
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
    pub fn find(&self, request: &Request<'_>) -> Result<Option<&Route>, Reject> {
        Ok(self.place(request)?.map(|index| &self.routes[index]))
    }

    /// The first route that takes a request for which client and node have agreed on a protocol.
    pub fn find_over(&self, request: &Request<'_>, spoken: Protocol) -> Result<Option<&Route>, Reject> {
        Ok(self.place_over(request, spoken)?.map(|index| &self.routes[index]))
    }

    /// Index of the route of [`find_over`](Self::find_over).
    pub fn place_over(&self, request: &Request<'_>, spoken: Protocol) -> Result<Option<usize>, Reject> {
        if self.routes.iter().all(|route| speaks(route, spoken)) {
            return self.place(request);
        }
        let takes = |route: &Route, path: &str| failed_over(route, request, path, spoken).is_none();
        self.agreed(request, |path| self.routes.iter().position(|route| takes(route, path)))
    }

    /// Action of the route with this index.
    pub fn action(&self, index: usize) -> &Action {
        &self.routes[index].action
    }

    /// The pool that gets copies of the requests of the route with this index.
    pub fn mirror(&self, index: usize) -> Option<Mirror> {
        self.routes[index].mirror
    }

    /// What the route with this index changes of a request.
    pub fn changes(&self, index: usize) -> &Rewrite {
        &self.routes[index].rewrite
    }

    /// Index of the route of [`find`](Self::find).
    pub fn place(&self, request: &Request<'_>) -> Result<Option<usize>, Reject> {
        self.agreed(request, |path| self.place_of(request, path))
    }

    /// The result of `place` for the path of the request, if all readings of the path lead to the same
    /// action and the same changes.
    fn agreed(
        &self,
        request: &Request<'_>,
        place: impl Fn(&str) -> Option<usize>,
    ) -> Result<Option<usize>, Reject> {
        let sent = request.head.path();
        if path::is_plain(sent) {
            return Ok(place(sent));
        }
        let places: Vec<_> = path::readings(sent).iter().map(|path| place(path)).collect();
        let result = |place: &Option<usize>| {
            place.map(|index| {
                let Route { action, rewrite, limit, .. } = &self.routes[index];
                // The same limit of another route has buckets of its own.
                (action, rewrite, (!limit.is_none()).then_some(index))
            })
        };
        match places.iter().all(|place| result(place) == result(&places[0])) {
            true => Ok(places[0]),
            false => Err(Reject::AmbiguousPath),
        }
    }

    /// Index of the first route that takes the request, with this reading of its path.
    fn place_of(&self, request: &Request<'_>, path: &str) -> Option<usize> {
        let mut first = self.any.first(&self.routes, request, path, None);
        if let Some(host) = request.head.host
            && !(self.exact.is_empty() && self.suffixes.is_empty())
        {
            let host = host.strip_suffix('.').unwrap_or(host);
            let mut lower = [0; HOST_MAX];
            let Some(lower) = lower.get_mut(..host.len()) else { return self.place_slowly(request, path) };
            lower.copy_from_slice(host.as_bytes());
            lower.make_ascii_lowercase();
            // Only ASCII has been changed.
            let Ok(host) = std::str::from_utf8(lower) else { return self.place_slowly(request, path) };
            let ends = host.char_indices().skip(1).filter(|(_, c)| *c == '.').map(|(at, _)| &host[at..]);
            let ends = ends.filter_map(|end| self.suffixes.get(end));
            for prefixes in self.exact.get(host).into_iter().chain(ends) {
                first = prefixes.first(&self.routes, request, path, first);
            }
        }
        first
    }

    fn place_slowly(&self, request: &Request<'_>, path: &str) -> Option<usize> {
        self.routes.iter().position(|route| failed(route, request, path).is_none())
    }
}

impl Prefixes {
    fn new(routes: &[Route], indices: &[usize]) -> Self {
        let mut by_text: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &index in indices {
            let prefix = routes[index].conditions.path.as_ref().map_or("", PathMatch::prefix);
            by_text.entry(prefix).or_default().push(index);
        }
        let mut sorted: Vec<Prefix> = Vec::with_capacity(by_text.len());
        for (text, indices) in by_text {
            // Where the text before is no beginning of this one, one of its own beginnings may be.
            let mut parent = sorted.len().checked_sub(1);
            while let Some(index) = parent
                && !text.starts_with(&*sorted[index].text)
            {
                parent = sorted[index].parent;
            }
            let has_pattern =
                |index: &usize| matches!(routes[*index].conditions.path, Some(PathMatch::Regex(_)));
            let (patterns, plain) = indices.into_iter().partition::<Vec<_>, _>(has_pattern);
            let patterns = Patterns::new(routes, patterns);
            sorted.push(Prefix { text: text.into(), parent, routes: plain, patterns });
        }
        Prefixes { sorted }
    }

    /// The first of these routes that takes the request, whose host is right; or `other`, if that comes
    /// before it.
    fn first(
        &self,
        routes: &[Route],
        request: &Request<'_>,
        path: &str,
        other: Option<usize>,
    ) -> Option<usize> {
        let mut first = other;
        let mut at = self.sorted.partition_point(|prefix| *prefix.text <= *path).checked_sub(1);
        while let Some(prefix) = at.map(|index| &self.sorted[index]) {
            if path.starts_with(&*prefix.text) {
                let takes = |index: &usize| takes_besides(&routes[*index], request, path);
                let is_whole = |index: &usize| match &routes[*index].conditions.path {
                    Some(PathMatch::Exact(_)) => path.len() == prefix.text.len(),
                    _ => true,
                };
                let plain = prefix
                    .routes
                    .iter()
                    .copied()
                    .take_while(|index| first.is_none_or(|first| *index < first));
                first = plain.filter(is_whole).find(takes).or(first);
                if let Some(patterns) = &prefix.patterns {
                    first = patterns.matching(path, first).find(takes).or(first);
                }
            }
            at = prefix.parent;
        }
        first
    }
}

impl Patterns {
    /// None without routes.
    fn new(routes: &[Route], indices: Vec<usize>) -> Option<Patterns> {
        let pattern = |index: &usize| match &routes[*index].conditions {
            Conditions { path: Some(PathMatch::Regex(pattern)), .. } => Some(pattern.anchored()),
            _ => None,
        };
        // The size of each is limited already.
        let set = RegexSetBuilder::new(indices.iter().filter_map(pattern)).size_limit(usize::MAX).build();
        let set = set.expect("each is a valid expression");
        (!indices.is_empty()).then_some(Patterns { set, routes: indices })
    }

    /// The routes whose expressions match, of those before `end`, in order.
    fn matching(&self, path: &str, end: Option<usize>) -> impl Iterator<Item = usize> {
        let is_before = move |index: &usize| end.is_none_or(|end| *index < end);
        let matching = is_before(&self.routes[0]).then(|| self.set.matches(path.as_bytes()));
        let routes = matching.into_iter().flatten().map(|number| self.routes[number]);
        routes.take_while(is_before)
    }
}

#[cfg(test)]
mod tests;
