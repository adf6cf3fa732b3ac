//! `redirect` of a route: its parts, and whether it leads anywhere.

use crate::mistakes::Mistakes;
use crate::raw::Spanned;
use crate::redirect::{DEFAULT_STATUS, PORTS};
use crate::{Conditions, HostMatch, PathMatch, Redirect, Route, Scheme, Service, raw, syntax};

impl Mistakes {
    pub(super) fn redirect(&mut self, place: &Spanned<raw::Redirect>) -> Redirect {
        let file = place.get_ref();
        if file.scheme.is_none() && file.host.is_none() && file.port.is_none() && file.path.is_none() {
            self.at(place, "this redirect has no target, at least one of scheme, host, port, path is needed");
        }
        let scheme = file.scheme.as_ref();
        let scheme = scheme.and_then(|scheme| self.one_of("scheme", scheme, Scheme::ALL, Scheme::name));
        let host = file.host.as_ref();
        let host = host.and_then(|host| self.take(host, syntax::redirect_host(host.get_ref())));
        let port = file.port.as_ref().and_then(|port| self.number("port", port, PORTS));
        let path = file.path.as_ref();
        let path = path.and_then(|path| self.take(path, syntax::redirect_path(path.get_ref())));
        let status = file.status.as_ref();
        let status = status.and_then(|status| self.take(status, syntax::redirect_status(*status.get_ref())));
        Redirect { scheme, host, port, path, status: status.unwrap_or(DEFAULT_STATUS) }
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
        && redirect.path.as_deref().is_none_or(|target| path == Some(target))
        && redirect.status != 303
}
