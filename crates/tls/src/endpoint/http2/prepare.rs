//! A stream's request as its server gets it, and whose server that is.

use std::borrow::Cow;

use http::header::{COOKIE, HOST, HeaderName, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use log::debug;
use switchback_config::{Mirror, Protocol, Scheme, ServerProtocol};
use switchback_http::{Limits, Progress, Reject, parse_head};
use switchback_routes::{copy, location, rewritten};

use super::super::call::uri_at;
use super::super::head::Requester;
use super::super::local::{LocalNode, Member};
use super::super::log::Entry;
use super::super::peers::Peer;
use super::super::pools::{Elsewhere, Here};
use super::super::rates::Denied;
use super::super::services::{Service, Way};
use super::super::shared::Shared;
use crate::Outcome;

/// The server that answers a request.
pub(super) enum Target<'a> {
    /// The server of a node of this machine.
    Own(&'a Here, &'a Member),
    /// A server of a pool that no node of this machine is in.
    Pool(&'a Elsewhere),
    /// The server of another machine's node, which can do better.
    Peer(Peer, &'a Here),
}

impl Target<'_> {
    /// Notes how the request has ended, if the server is one of this machine.
    pub(super) fn note(&self, outcome: Outcome) {
        if let Target::Own(_, member) = self {
            member.note(outcome);
        }
    }

    pub(super) fn protocol(&self) -> ServerProtocol {
        match self {
            Target::Own(here, _) | Target::Peer(_, here) => here.protocol,
            Target::Pool(others) => others.protocol,
        }
    }
}

/// A response of our own instead of the server's.
pub(super) enum Instead {
    Error(StatusCode),
    /// Status and location.
    Redirect(u16, String),
    /// What a CA gets as proof of a domain.
    Proof(String),
    Denied(Denied),
}

impl From<StatusCode> for Instead {
    fn from(status: StatusCode) -> Self {
        Instead::Error(status)
    }
}

impl From<http::Error> for Instead {
    fn from(_: http::Error) -> Self {
        Instead::Error(StatusCode::BAD_REQUEST)
    }
}

impl From<Denied> for Instead {
    fn from(denied: Denied) -> Self {
        Instead::Denied(denied)
    }
}

/// Fields of a request, in the place of those that the client may not send.
type Fields = Vec<(&'static str, String)>;

/// A request with the fields that its server gets.
pub(super) struct Prepared<'a> {
    pub(super) parts: Parts,
    /// Whose server gets the request.
    pub(super) target: Target<'a>,
    /// The pool that gets copies of such requests.
    pub(super) mirror: Option<Mirror>,
}

/// The request as its server gets it, when limits allow it.
pub(super) async fn prepare<'a>(
    mut parts: Parts,
    (service, node): (&'a Service, &LocalNode),
    shared: &Shared,
    client: Requester<'_>,
    entry: &mut Entry,
) -> Result<Prepared<'a>, Instead> {
    // Extended CONNECT (RFC 8441) is not offered.
    if parts.method == Method::CONNECT {
        entry.has_head(format!("CONNECT {} HTTP/1.1\r\n", parts.uri).as_bytes());
        return Err(StatusCode::NOT_IMPLEMENTED.into());
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let authority = parts.uri.authority().map(|authority| authority.as_str().to_owned());
    if let Some(authority) = &authority {
        let value = HeaderValue::from_str(authority).map_err(|_| Instead::Error(StatusCode::BAD_REQUEST))?;
        if parts.headers.insert(HOST, value.clone()).is_some_and(|host| host != value) {
            entry.has_head(&as_text(&parts, &path));
            return Err(StatusCode::BAD_REQUEST.into());
        }
    }
    let text = as_text(&parts, &path);
    entry.has_head(&text);
    let Routed { fields, target, text, mirror } = route(&text, (service, node), shared, client).await?;
    if let Some(text) = text {
        take_text(&mut parts, &text, service)?;
    }
    service.told.remove_from(&mut parts.headers);
    for (name, value) in fields {
        let value = HeaderValue::from_str(&value).map_err(|_| Instead::Error(StatusCode::BAD_REQUEST))?;
        let name = HeaderName::from_bytes(name.as_bytes()).expect("names of ours are names");
        parts.headers.insert(name, value);
    }
    Ok(Prepared { parts, target, mirror })
}

/// The copy of a request without a body.
pub(super) fn copy_of(parts: &Parts) -> Vec<u8> {
    let mut headers = parts.headers.clone();
    join_cookies(&mut headers);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    copy(&text_of(&parts.method, path, &headers), &[], &[])
}

/// The request for a server that speaks HTTP/1.1.
pub(super) fn for_http1(mut parts: Parts) -> Result<Request<()>, Instead> {
    // The connector goes to one place whatever the authority is, but connections are kept by it.
    parts.uri = uri_at(Some("server"), &parts)?;
    parts.version = Version::HTTP_11;
    join_cookies(&mut parts.headers);
    Ok(Request::from_parts(parts, ()))
}

/// The request for a server that speaks HTTP/2. It has the authority in place of `Host`, and no scheme but that of its connection
/// (RFC 9113 sections 8.3.1 and 8.2.2).
pub(super) fn for_http2(mut parts: Parts) -> Result<Request<()>, Instead> {
    let host = parts.headers.remove(HOST);
    let host = host.as_ref().and_then(|host| host.to_str().ok());
    parts.uri = uri_at(host, &parts)?;
    parts.version = if host.is_some() { Version::HTTP_2 } else { Version::HTTP_11 };
    if parts.headers.get(TE).is_some_and(|te| te != "trailers") {
        parts.headers.remove(TE);
    }
    Ok(Request::from_parts(parts, ()))
}

/// A request whose route has been found.
struct Routed<'a> {
    /// Fields that say who the client is.
    fields: Fields,
    /// Whose server gets the request.
    target: Target<'a>,
    /// The head as the route has changed it; None if it has not.
    text: Option<Vec<u8>>,
    mirror: Option<Mirror>,
}

/// Finds the route of a request, when limits allow the request. It is read as strictly as any other one, and goes by the same
/// routes. Streams share the numbers of their connection's records, so a request for another pool, or for a node that has less
/// to do, goes there, and the connection stays.
async fn route<'a>(
    text: &[u8],
    (service, node): (&'a Service, &LocalNode),
    shared: &Shared,
    client: Requester<'_>,
) -> Result<Routed<'a>, Instead> {
    let head = match parse_head(text, &service.limits.http) {
        Ok(Progress::Complete(head)) => head,
        Ok(Progress::Partial) => return Err(StatusCode::BAD_REQUEST.into()),
        Err(reject) => return Err(refused(reject)),
    };
    if let Some(proof) = shared.issued.answer(head.path()) {
        return Err(Instead::Proof(proof));
    }
    shared.rates.admit(service, &head, client.flow.0.ip(), Protocol::Http2).await?;
    let (target, route) = match service.way(node, &head, client.flow.0.ip(), Protocol::Http2) {
        Way::Here(here, route) => {
            let better = here.better(&shared.loads, service.busy).into_iter().next();
            let own = || Target::Own(here, here.member(node));
            (better.map_or_else(own, |peer| Target::Peer(peer, here)), route)
        }
        Way::Elsewhere(others, route) => (Target::Pool(others), route),
        Way::Redirect(redirect) => {
            let location = location(redirect, Scheme::Https, &head, client.flow.1);
            return Err(Instead::Redirect(redirect.status, location));
        }
        Way::Respond(status) => {
            return Err(StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN).into());
        }
        Way::Nowhere => return Err(StatusCode::NOT_FOUND.into()),
        Way::Refused(reject) => return Err(refused(reject)),
    };
    let text = match rewritten(text, &head, &route.rewrite).map_err(refused)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(text),
    };
    if !matches!(target, Target::Own(..)) {
        debug!("service {}: a request of {} is forwarded", service.name, client.flow.0);
        service.counters.forwarded.add(1);
    }
    let fields = service.told.fields(client, head.host.unwrap_or_default());
    Ok(Routed { fields, target, text, mirror: route.mirror })
}

/// Replaces the request's target and fields by those of a head.
fn take_text(parts: &mut Parts, text: &[u8], service: &Service) -> Result<(), Instead> {
    let limits = Limits { head_len: usize::MAX, fields: usize::MAX, ..service.limits.http };
    let Ok(Progress::Complete(head)) = parse_head(text, &limits) else {
        return Err(StatusCode::BAD_REQUEST.into());
    };
    let mut headers = HeaderMap::new();
    for (name, value) in head.headers() {
        let field = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok());
        let (name, value) = field.ok_or(Instead::Error(StatusCode::BAD_REQUEST))?;
        headers.append(name, value);
    }
    parts.headers = headers;
    parts.uri = head.target.raw.parse().map_err(|_| Instead::Error(StatusCode::BAD_REQUEST))?;
    Ok(())
}

fn refused(reject: Reject) -> Instead {
    StatusCode::from_u16(reject.status()).unwrap_or(StatusCode::BAD_REQUEST).into()
}

/// The head as HTTP/1.1 has it. What is said of the body is the server's to see: streams say themselves where
/// they end.
fn as_text(parts: &Parts, path: &str) -> Vec<u8> {
    text_of(&parts.method, path, &parts.headers)
}

fn text_of(method: &Method, path: &str, headers: &HeaderMap) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    for (name, value) in headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// A client may send its cookies in several fields, which HTTP/1.1 does not allow (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}
