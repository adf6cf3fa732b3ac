//! `redirect` of a route: its parts, and whether it leads anywhere.

use crate::mistakes::{Mistakes, Text};
use crate::raw::Spanned;
use crate::redirect::{DEFAULT_STATUS, PORTS};
use crate::{Conditions, HostMatch, PathChange, PathMatch, Redirect, Route, Scheme, Service, raw, syntax};

impl Mistakes {
    pub(super) fn redirect(&mut self, place: &Spanned<raw::Redirect>, conditions: &Conditions) -> Redirect {
        let file = place.get_ref();
        let raw::Redirect { scheme, host, port, path, prefix, status } = file;
        let has_place = host.is_some() || port.is_some() || path.is_some() || prefix.is_some();
        if scheme.is_none() && !has_place && status.is_none() {
            let what =
                "this redirect is empty, at least one of scheme, host, port, path, prefix, status is needed";
            self.at(place, what);
        }
        let scheme = file.scheme.as_ref();
        let scheme = scheme.and_then(|scheme| self.one_of("scheme", scheme, Scheme::ALL, Scheme::name));
        let host = file.host.as_ref();
        let host = host.and_then(|host| self.take(host, syntax::redirect_host(host.get_ref())));
        let port = file.port.as_ref().and_then(|port| self.number("port", port, PORTS));
        let path = self.path_change((&file.path, &file.prefix), conditions, syntax::redirect_path);
        let status = file.status.as_ref();
        let status = status.and_then(|status| self.take(status, syntax::redirect_status(*status.get_ref())));
        Redirect { scheme, host, port, path, status: status.unwrap_or(DEFAULT_STATUS) }
    }

    /// The meaning of the keys `path` and `prefix` of a route with these conditions.
    pub(super) fn path_change(
        &mut self,
        (path, prefix): (&Text, &Text),
        conditions: &Conditions,
        meaning: impl Fn(&str) -> Result<String, String>,
    ) -> Option<PathChange> {
        let mut taken = |path: &Spanned<String>| self.take(path, meaning(path.get_ref()));
        let whole = path.as_ref().and_then(&mut taken);
        let to = prefix.as_ref().and_then(&mut taken);
        let Some(prefix) = prefix else { return whole.map(PathChange::Whole) };
        if path.is_some() {
            self.at(prefix, "the path is given twice, allowed is one of path and prefix");
        }
        let from = match &conditions.path {
            None => String::new(),
            Some(PathMatch::Prefix(from)) => from.clone(),
            Some(PathMatch::Exact(_) | PathMatch::Regex(_)) => {
                self.at(
                    prefix,
                    "prefix takes the place of the route's path, but the route has path_exact or path_regex",
                );
                return None;
            }
        };
        to.map(|to| PathChange::Prefix { from, to })
    }
}

/// Whether `redirect` sends a request that `route` of `service` takes to the URL that it came from.
///
/// Only what is plain from the route itself counts: a route for `*.example.com` may well redirect to one of
/// these names, because a route before it can take that one. 303 turns other methods into GET, which routes
/// can tell apart, so it is a change by itself.
pub(super) fn changes_nothing(route: &Route, redirect: &Redirect, service: &Service) -> bool {
    let own = service.scheme();
    let same_port = match (redirect.port, redirect.scheme) {
        (None, None) => true,
        (port, _) => {
            let port = port.unwrap_or(own.default_port());
            service.listen.iter().any(|address| address.port() == port)
        }
    };
    let Conditions { hosts, path, .. } = &route.conditions;
    let host = |host: &String| hosts.iter().any(|one| matches!(one, HostMatch::Exact(name) if name == host));
    let path = match path {
        None => Some("/"),
        Some(PathMatch::Prefix(path) | PathMatch::Exact(path)) => Some(path.as_str()),
        Some(PathMatch::Regex(_)) => None,
    };
    redirect.scheme.is_none_or(|scheme| scheme == own)
        && redirect.host.as_ref().is_none_or(host)
        && same_port
        && match &redirect.path {
            None => true,
            Some(PathChange::Whole(target)) => path == Some(target),
            // The route takes the result, too.
            Some(PathChange::Prefix { from, to }) => to.starts_with(from),
        }
        && redirect.status != 303
}
