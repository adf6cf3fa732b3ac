//! Where redirects lead.

use std::borrow::Cow;
use std::net::SocketAddr;

use switchback_config::{Redirect, Scheme};
use switchback_http::Head;

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
    let sent = if head.path() == "*" { "/" } else { head.path() };
    let path = redirect.path.as_ref().map_or(Cow::Borrowed(sent), |path| path.of(sent).into());
    let query = head.target.raw.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
    format!("{}://{host}{port}{path}{query}", scheme.name())
}
