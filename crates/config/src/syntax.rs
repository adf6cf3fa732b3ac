//! Syntax of single values in `cluster.toml`. Each function takes the text and returns its meaning, or the mistake in
//! it and the allowed values.

use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::SignedDuration;

use crate::persistence::{self, Mode};
use crate::{
    Delegate, HashKey, HostMatch, Network, NodesFrom, dns, health, is_same_variable, limits, mirror, pool,
    rewrite,
};

/// Characters of a token besides letters and digits (RFC 9110 section 5.6.2).
const TOKEN_MARKS: &str = "!#$%&'*+-.^_`|~";
/// Characters of a URL's path besides letters and digits (RFC 3986 section 3.3).
const PATH_MARKS: &str = "-._~!$&'()*+,;=:@%/";
/// Greatest length of a name, and of a label of a host name.
pub const MAX_NAME: usize = 63;
/// Greatest length of a host name (RFC 1035 section 2.3.4, without the root's dot and the lengths).
const MAX_HOST: usize = 253;
/// Prefixes of cookie names that browsers check (RFC 6265bis section 4.1.3).
pub(crate) const COOKIE_PREFIXES: [&str; 2] = [HOST_PREFIX, "__Secure-"];
/// The stricter one of [`COOKIE_PREFIXES`].
pub(crate) const HOST_PREFIX: &str = "__Host-";
/// Port of name servers (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;
/// Most known names that a message lists.
const MAX_LISTED: usize = 8;
/// Longest name of a gRPC service in a health check.
const GRPC_SERVICE_MAX: usize = 255;
/// Most edits between an unknown name and a suggested one.
const MAX_SLIPS: usize = 2;

/// Methods that are always in upper case, from RFC 9110 and RFC 5789.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"];
/// Statuses of routes that ask no server.
pub(crate) const RESPOND_STATUSES: [u16; 6] = [403, 404, 410, 451, 500, 503];
/// Statuses that redirect a client to the URL in `Location`, from RFC 9110 section 15.4.
pub(crate) const REDIRECT_STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

pub(crate) fn name(kind: &str, text: &str) -> Result<(), String> {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(());
    }
    Err(format!("bad {kind} name {text:?}, allowed are 1 to {MAX_NAME} of a-z, 0-9 and '-'"))
}

pub(crate) fn number<T: TryFrom<i64> + PartialOrd + Display>(
    key: &str,
    value: i64,
    allowed: RangeInclusive<T>,
) -> Result<T, String> {
    let in_range = T::try_from(value).ok().filter(|value| allowed.contains(value));
    in_range.ok_or_else(|| format!("{key} {value}, allowed are {} to {}", allowed.start(), allowed.end()))
}

/// A size in bytes, with its unit.
pub(crate) fn size(key: &str, text: &str, allowed: RangeInclusive<u64>) -> Result<u64, String> {
    let config = parse_size::Config::new().with_byte_suffix(parse_size::ByteSuffix::Require);
    config.parse_size(text).ok().filter(|bytes| allowed.contains(bytes)).ok_or_else(|| {
        let [low, high] = [allowed.start(), allowed.end()].map(|&bytes| limits::size(bytes));
        format!("bad {key} {text:?}, allowed is a size from {low} to {high} such as \"16KiB\"")
    })
}

/// A duration, with its unit.
pub(crate) fn time(key: &str, text: &str, allowed: RangeInclusive<Duration>) -> Result<Duration, String> {
    let time = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    time.filter(|time| allowed.contains(time)).ok_or_else(|| {
        let (low, high) = (*allowed.start(), *allowed.end());
        let example = Duration::from_secs(10).clamp(low, high);
        let [low, high, example] = [low, high, example].map(limits::time);
        format!("bad {key} {text:?}, allowed is a time from {low} to {high} such as {example:?}")
    })
}

/// The item of `all` with this name.
pub(crate) fn one_of<T: Copy, const N: usize>(
    key: &str,
    text: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T, String> {
    all.into_iter().find(|one| name(*one) == text).ok_or_else(|| unknown_word(key, text, &all.map(name)))
}

/// The mistake in a text that is none of these words.
pub(crate) fn unknown_word(key: &str, text: &str, words: &[&str]) -> String {
    match closest(text, words) {
        Some(meant) => format!("unknown {key} {text:?}, did you mean {meant:?}?"),
        None => format!("unknown {key} {text:?}, allowed: {}", words.join(", ")),
    }
}

pub(crate) fn hash_key(text: &str) -> Result<HashKey, String> {
    match text.split_once(' ') {
        None if text == "client" => Ok(HashKey::Client),
        None if text == "path" => Ok(HashKey::Path),
        Some(("header", name)) => header_name(name).map(HashKey::Header),
        Some(("cookie", name)) => cookie_name(name).map(HashKey::Cookie),
        _ => Err(format!("bad hash {text:?}, allowed: client, path, header NAME, cookie NAME")),
    }
}

/// A share in percent; 0 stands for `off`.
pub(crate) fn queue_limit(text: &str) -> Result<u8, String> {
    if text == pool::QUEUE_LIMIT_OFF {
        return Ok(0);
    }
    percent(text, pool::QUEUE_LIMIT).ok_or_else(|| {
        let (low, high) = (pool::QUEUE_LIMIT.start(), pool::QUEUE_LIMIT.end());
        let off = pool::QUEUE_LIMIT_OFF;
        format!("bad queue_limit {text:?}, allowed are \"{low}%\" to \"{high}%\" and {off:?}")
    })
}

/// The requests that a switch gives to the other nodes, in the form of a text.
pub(crate) fn delegate(text: &str) -> Result<Delegate, String> {
    let named = pool::DELEGATE.into_iter().find(|(name, _)| *name == text).map(|(_, delegate)| delegate);
    named.or_else(|| percent(text, pool::SHARE).map(Delegate::Share)).ok_or_else(|| {
        let ([(all, _), (none, _)], low, high) = (pool::DELEGATE, pool::SHARE.start(), pool::SHARE.end());
        let table = Delegate::Above(32 << 10);
        format!("bad delegate {text:?}, allowed are {all:?}, {none:?}, \"{low}%\" to \"{high}%\" and {table}")
    })
}

/// The share of requests that a mirror gets, in hundredths of a percent.
pub(crate) fn mirror_share(text: &str) -> Result<u16, String> {
    mirror::share(text).ok_or_else(|| {
        format!("bad mirror_share {text:?}, allowed are \"0.01%\" to \"100%\" with two digits behind the point at most")
    })
}

/// A share in percent.
pub(crate) fn share(key: &str, text: &str, allowed: RangeInclusive<u8>) -> Result<u8, String> {
    let (low, high) = (*allowed.start(), *allowed.end());
    percent(text, allowed).ok_or_else(|| format!("bad {key} {text:?}, allowed are \"{low}%\" to \"{high}%\""))
}

fn percent(text: &str, allowed: RangeInclusive<u8>) -> Option<u8> {
    let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|c| c.is_ascii_digit()));
    let percent = digits.and_then(|digits| digits.parse().ok());
    percent.filter(|percent| allowed.contains(percent))
}

/// One status, or the first and the last of several.
pub(crate) fn statuses(text: &str) -> Result<RangeInclusive<u16>, String> {
    let number = |text: &str| -> Option<u16> {
        let digits = text.bytes().all(|c| c.is_ascii_digit());
        text.parse().ok().filter(|status| digits && health::STATUSES.contains(status))
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => {
            let (low, high) = (health::STATUSES.start(), health::STATUSES.end());
            Err(format!(
                "bad status {text:?}, allowed is a status from {low} to {high} or a range such as \"200-299\""
            ))
        }
    }
}

pub(crate) fn node_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| {
        format!("bad node address {text:?}, allowed is an IP address such as 192.0.2.21 or 2001:db8::21")
    })?;
    let link_local_v4 = matches!(address, IpAddr::V4(v4) if v4.is_link_local());
    match unfit(address).or(link_local_v4.then_some("link-local")) {
        None => Ok(address),
        Some(kind) => {
            Err(format!("node address {text} is {kind}, allowed is one that the switch can route to"))
        }
    }
}

/// Where a server of a node listens.
pub(crate) fn node_server(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| {
        format!(
            "bad server {text:?}, allowed is an address with a port such as \"127.0.0.1:8080\" or \"[::1]:8080\""
        )
    })?;
    let ip = address.ip();
    let kind = match address {
        _ if ip.is_unspecified() => "unspecified",
        _ if ip.is_multicast() => "multicast",
        SocketAddr::V6(v6) if has_zone(&address) || v6.ip().is_unicast_link_local() => "link-local",
        _ if address.port() == 0 => "without a port",
        _ => return Ok(address),
    };
    Err(format!(
        "server {text} is {kind}, allowed is an address of the node, or of a container on it, with a port, such as \
         127.0.0.1:8080"
    ))
}

/// A name whose addresses are nodes, and the port of the servers there.
pub(crate) fn nodes_from(text: &str) -> Result<NodesFrom, String> {
    let read = || {
        let rest = text.strip_prefix(dns::SCHEME)?;
        let (host, port) = match rest.split_once(':') {
            None => (rest, None),
            Some((host, port)) => (host, Some(port.parse().ok().filter(|port| *port > 0)?)),
        };
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        is_dns_name(&host).then_some(NodesFrom { host, port })
    };
    read().ok_or_else(|| {
        format!(
            "bad nodes_from {text:?}, allowed is a host name such as \"dns:app.example.com\", or with the port of the \
             servers \"dns:app.example.com:8080\""
        )
    })
}

/// The address of a name server; without a port, the usual one.
pub(crate) fn name_server(text: &str) -> Result<SocketAddr, String> {
    let port = |address| SocketAddr::new(address, DNS_PORT);
    let server = text.parse().or_else(|_| text.parse().map(port)).ok();
    let fits = |server: &SocketAddr| {
        !server.ip().is_unspecified() && !server.ip().is_multicast() && server.port() > 0 && !has_zone(server)
    };
    server.filter(fits).ok_or_else(|| {
        format!(
            "bad name server {text:?}, allowed is an address such as \"192.0.2.53\", with a port if that is not \
             {DNS_PORT}: \"192.0.2.53:5353\""
        )
    })
}

/// A network without bits behind its prefix.
pub(crate) fn network(text: &str) -> Result<Network, String> {
    let parts = text.split_once('/').and_then(|(address, prefix)| {
        let digits = prefix.bytes().all(|digit| digit.is_ascii_digit());
        Some((address.parse::<IpAddr>().ok()?, prefix.parse().ok().filter(|_| digits)?))
    });
    let network = parts.and_then(|(address, prefix)| Some((address, Network::around(address, prefix)?)));
    let Some((address, network)) = network else {
        return Err(format!(
            "bad network {text:?}, allowed is an address with the length of a prefix such as \
             \"198.51.100.0/24\" or \"2001:db8:1::/64\""
        ));
    };
    if network.address != address {
        return Err(format!("{text} has bits behind its prefix, did you mean \"{network}\"?"));
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(format!("{text} is IPv4-mapped, allowed is IPv4 as \"198.51.100.0/24\""));
    }
    Ok(network)
}

/// A network, or the network of one address.
pub(crate) fn network_or_address(text: &str) -> Result<Network, String> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("{text} is IPv4-mapped, allowed is IPv4 as \"198.51.100.7\""))
        }
        Ok(address) => Ok(Network::of(address)),
        Err(_) => network(text),
    }
}

/// A network or an address of clients, which is not one of these names of lists.
pub(crate) fn client<'a>(text: &str, lists: impl Iterator<Item = &'a str>) -> Result<Network, String> {
    match text.contains(['.', ':', '/']) {
        true => network_or_address(text),
        false => Err(unknown("networks", text, lists)),
    }
}

pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| {
        format!(
            "bad listen address {text:?}, allowed is an address with a port such as 192.0.2.100:80 or \
             [2001:db8::100]:80"
        )
    })?;
    if let Some(kind) = unfit(address.ip()) {
        return Err(format!("listen address {text} is {kind}, allowed is one that clients can route to"));
    }
    if has_zone(&address) {
        return Err(format!("listen address {text} has a zone, allowed is an address without one"));
    }
    if address.port() == 0 {
        return Err(format!("listen address {text} has port 0, allowed are 1 to 65535"));
    }
    Ok(address)
}

/// The address of a daemon's admin server: unspecified and loopback addresses are allowed, too.
pub(crate) fn admin_address(text: &str) -> Result<SocketAddr, String> {
    let fits = |address: &SocketAddr| {
        let one =
            address.ip().is_unspecified() || address.ip().is_loopback() || unfit(address.ip()).is_none();
        one && address.port() != 0 && !has_zone(address)
    };
    text.parse().ok().filter(fits).ok_or_else(|| {
        format!(
            "bad listen address {text:?}, allowed is an address of every machine with a port such as \
             127.0.0.1:9180, [::1]:9180 or, for all who can reach the machine, 0.0.0.0:9180"
        )
    })
}

/// A zone would make two texts for one address.
pub(crate) fn has_zone(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0)
}

/// Why `address` can be neither a node's nor a VIP. IPv4 link-local addresses can be VIPs: within one link
/// they need nothing that others do not, while IPv6 ones need a zone.
fn unfit(address: IpAddr) -> Option<&'static str> {
    let (link_local, mapped, broadcast) = match address {
        IpAddr::V4(v4) => (false, false, v4.is_broadcast()),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.to_ipv4_mapped().is_some(), false),
    };
    [
        (address.is_unspecified(), "unspecified"),
        (address.is_multicast(), "multicast"),
        (address.is_loopback(), "loopback"),
        (link_local, "link-local"),
        (mapped, "IPv4-mapped"),
        (broadcast, "broadcast"),
    ]
    .into_iter()
    .find_map(|(is, kind)| is.then_some(kind))
}

pub(crate) fn host(text: &str) -> Result<HostMatch, String> {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("*.") {
        Some(suffix) if is_host_name(suffix) => Ok(HostMatch::Suffix(format!(".{suffix}"))),
        None if is_host_name(&lower) || is_ipv6_literal(&lower) => Ok(HostMatch::Exact(lower)),
        _ => Err(format!(
            "bad host {text:?}, allowed is a name or address without port, or \"*.\" and the end of a name"
        )),
    }
}

/// A name in DNS, in lower case.
fn is_dns_name(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or_default();
    is_host_name(text) && !last.starts_with(|c: char| c.is_ascii_digit())
}

/// A name or an IPv4 address.
fn is_host_name(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    let label = |label: &str| (1..=MAX_NAME).contains(&label.len()) && label.bytes().all(allowed);
    text.len() <= MAX_HOST && text.split('.').all(label)
}

fn is_ipv6_literal(text: &str) -> bool {
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

pub(crate) fn path(text: &str) -> Result<String, String> {
    // What cannot be in the path of a request that the switch accepts would make a route that never matches.
    let allowed = |c: u8| c.is_ascii_graphic() && !b"\"#<>?\\".contains(&c);
    if !text.starts_with('/') || !text.bytes().all(allowed) {
        return Err(format!(
            "bad path {text:?}, allowed is '/' and then visible ASCII without \" # < > ? \\"
        ));
    }
    // A dot at its end may be the beginning of a longer segment.
    let longer = format!("{text}x");
    match switchback_http::path::checked(&longer) {
        Ok(normal) if normal == longer => Ok(text.to_owned()),
        Ok(normal) => {
            let normal = &normal[..normal.len() - 1];
            Err(format!(
                "path {text:?} is not in normal form, which is what requests are compared in: {normal:?}"
            ))
        }
        Err(reject) => Err(format!("bad path {text:?}, a request for it would be refused: {reject}")),
    }
}

pub(crate) fn method(text: &str) -> Result<String, String> {
    if !is_token(text) {
        return Err(format!("bad method {text:?}, allowed is a name such as GET"));
    }
    let upper = text.to_ascii_uppercase();
    if text != upper && METHODS.contains(&upper.as_str()) {
        return Err(format!("bad method {text:?}, upper and lower case differ, did you mean {upper:?}?"));
    }
    Ok(text.to_owned())
}

pub(crate) fn header_name(text: &str) -> Result<String, String> {
    if is_token(text) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(format!("bad header name {text:?}, allowed are letters, digits and {TOKEN_MARKS}"))
}

/// A cookie's name (RFC 6265 section 4.1.1); upper and lower case differ.
fn cookie_name(text: &str) -> Result<String, String> {
    if is_token(text) {
        return Ok(text.to_owned());
    }
    Err(format!("bad cookie name {text:?}, allowed are letters, digits and {TOKEN_MARKS}"))
}

/// The cookie of mode rewrite, which has to have room for what is written into its name.
pub(crate) fn rewritten_cookie(text: &str) -> Result<String, String> {
    let (insert, mark, carried) = (Mode::Insert.name(), persistence::MARK, persistence::CARRIED);
    if is_token(text) && text.len() < carried {
        return Err(format!(
            "cookie name {text:?} is too short, its first {carried} characters carry where the session is: \
             give the server's session cookie a longer name (for PHP session.name), or use mode {insert:?}"
        ));
    }
    let name = cookie_name_of(text, persistence::REWRITTEN_NAME)?;
    if let Some(prefix) = COOKIE_PREFIXES.into_iter().find(|prefix| has_cookie_prefix(&name, prefix)) {
        return Err(format!(
            "cookie name {text:?} begins with {prefix:?}, rewriting would take away what browsers guarantee \
             for it, allowed is it only with mode {insert:?}"
        ));
    }
    if name.starts_with(mark) {
        return Err(format!(
            "cookie name {text:?} begins with {mark:?}, which marks names that are rewritten, allowed is \
             another beginning"
        ));
    }
    Ok(name)
}

/// The cookie of mode insert.
pub(crate) fn inserted_cookie(text: &str) -> Result<String, String> {
    cookie_name_of(text, persistence::INSERTED_NAME)
}

fn cookie_name_of(text: &str, len: RangeInclusive<usize>) -> Result<String, String> {
    if is_token(text) && len.contains(&text.len()) {
        return Ok(text.to_owned());
    }
    let (low, high) = (len.start(), len.end());
    Err(format!("bad cookie name {text:?}, allowed are {low} to {high} letters, digits and {TOKEN_MARKS}"))
}

/// Whether browsers treat `name` as one with `prefix`: they take upper and lower case for the same there (RFC
/// 6265bis section 5.4), because some servers do.
pub(crate) fn has_cookie_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(prefix))
}

/// The value of `Path=`. A browser compares it with the path of a URL, which has no blank.
pub(crate) fn cookie_path(text: &str) -> Result<String, String> {
    let allowed = |c: u8| c.is_ascii_graphic() && c != b';';
    if text.starts_with('/') && text.len() <= persistence::MAX_PATH && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    let more = persistence::MAX_PATH - 1;
    Err(format!("bad path {text:?}, allowed is '/' and then at most {more} visible ASCII without ;"))
}

/// What stands behind `Domain=`, in lower case. No top-level domain begins with a digit, and an IPv4 address
/// does in its last part however it is written.
pub(crate) fn cookie_domain(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let last = lower.rsplit('.').next().unwrap_or_default();
    if is_host_name(&lower) && !last.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(lower);
    }
    Err(format!("bad domain {text:?}, allowed is a host name without a dot before it, and no address"))
}

/// The value of `Max-Age=`.
pub(crate) fn max_age(text: &str) -> Result<Duration, String> {
    let age = time("max_age", text, persistence::MAX_AGE)?;
    if age.subsec_nanos() != 0 {
        return Err(format!("bad max_age {text:?}, allowed are whole seconds"));
    }
    Ok(age)
}

/// Whether the value is `strict`.
pub(crate) fn sticky(text: &str) -> Result<bool, String> {
    let known = persistence::STICKY.into_iter().find(|(name, _)| *name == text);
    known.map(|(_, strict)| strict).ok_or_else(|| {
        let allowed = persistence::sticky_names().join(", ");
        format!("unknown sticky {text:?}, allowed: {allowed}")
    })
}

pub(crate) fn header_value(text: &str) -> Result<String, String> {
    let blank = |c: char| c == ' ' || c == '\t';
    let control = |c: u8| c.is_ascii_control() && c != b'\t';
    if text.starts_with(blank) || text.ends_with(blank) || text.bytes().any(control) {
        return Err(format!(
            "bad header value {text:?}, allowed is text without control characters or blanks around it"
        ));
    }
    Ok(text.to_owned())
}

/// The value of a field that is sent, which is more than what a value may be compared with.
pub(crate) fn sent_value(text: &str) -> Result<String, String> {
    let is_sent = |c: u8| matches!(c, b' '..=b'~' | b'\t');
    if text.bytes().all(is_sent) {
        header_value(text)
    } else {
        Err(format!("bad header value {text:?}, allowed are visible ASCII and blanks"))
    }
}

/// The name of a field that a route may change, as it is written.
pub(crate) fn changed_field(text: &str) -> Result<String, String> {
    header_name(text)?;
    let is = |names: &[&str]| names.iter().any(|name| is_same_variable(name, text));
    if is(&["host"]) {
        return Err("Host says where a request goes, allowed is it as host of rewrite".to_owned());
    }
    if is(&rewrite::FRAMING_FIELDS) {
        return Err(format!(
            "{text} is about the connection or where the message ends, which no route changes"
        ));
    }
    if is(&rewrite::CERTIFICATE_FIELDS) {
        return Err(format!("{text} is what nodes say of clients' certificates, which no route changes"));
    }
    Ok(text.to_owned())
}

pub(crate) fn parameter_name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("empty name of a parameter, allowed is any other text".to_owned());
    }
    Ok(text.to_owned())
}

pub(crate) fn redirect_host(text: &str) -> Result<String, String> {
    let host = one_host(text);
    host.ok_or_else(|| format!("bad host {text:?}, allowed is a name or address, and port = for the port"))
}

pub(crate) fn host_without_port(text: &str) -> Result<String, String> {
    let host = one_host(text);
    host.ok_or_else(|| format!("bad host {text:?}, allowed is a name or address without port"))
}

/// A host name for which a CA issues a certificate, in lower case.
pub(crate) fn domain(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("*.") {
        return Err(format!(
            "domain {text:?} has a wildcard, whose proof takes DNS-01, which is not offered; allowed are whole names"
        ));
    }
    if is_dns_name(&lower) && !lower.contains('_') {
        return Ok(lower);
    }
    Err(format!("bad domain {text:?}, allowed is a host name such as \"shop.example.com\", and no address"))
}

pub(crate) fn https_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").filter(|rest| !rest.starts_with(['/', ':']));
    match rest.filter(|rest| !rest.is_empty() && rest.bytes().all(|c| c.is_ascii_graphic())) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("bad directory {text:?}, allowed is a URL that begins with https://")),
    }
}

pub(crate) fn email(text: &str) -> Result<String, String> {
    let parts = text.split_once('@').filter(|(local, host)| {
        !local.is_empty()
            && local.bytes().all(|c| c.is_ascii_graphic() && !b",?@:<>".contains(&c))
            && is_host_name(host)
    });
    match parts {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("bad email {text:?}, allowed is an address such as \"ops@example.com\"")),
    }
}

pub(crate) fn profile(text: &str) -> Result<(), String> {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    match !text.is_empty() && text.bytes().all(allowed) {
        true => Ok(()),
        false => Err(format!("bad profile {text:?}, allowed are letters, digits, '-', '_' and '.'")),
    }
}

/// A name or an address, in lower case.
fn one_host(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    (is_host_name(&lower) || is_ipv6_literal(&lower)).then_some(lower)
}

/// What is sent must be a URL, so this is stricter than [`path`].
pub(crate) fn redirect_path(text: &str) -> Result<String, String> {
    sent_path(text, PATH_MARKS)
}

/// A path that a server gets, which it can read in one way only.
pub(crate) fn rewritten_path(text: &str) -> Result<String, String> {
    let sent = sent_path(text, PATH_MARKS)?;
    let refused = |reject| format!("bad path {text:?}, a request for it would be refused: {reject}");
    let normal = switchback_http::path::checked(&sent).map_err(refused)?;
    match &*switchback_http::path::readings(&sent) {
        [reading] if *reading == sent => Ok(sent),
        [_] => Err(format!("path {text:?} is not in normal form, did you mean {normal:?}?")),
        _ => Err(format!("bad path {text:?}, which servers read in different ways")),
    }
}

/// The path of a health check, which may have a query.
pub(crate) fn check_path(text: &str) -> Result<String, String> {
    sent_path(text, &format!("{PATH_MARKS}?"))
}

/// The name of a gRPC service, or nothing for the server as a whole.
pub(crate) fn grpc_service(text: &str) -> Result<String, String> {
    if text.len() <= GRPC_SERVICE_MAX && text.bytes().all(|c| c.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "bad grpc {text:?}, allowed is the name of a service, at most {GRPC_SERVICE_MAX} visible ASCII characters, or \"\" \
         for the server as a whole"
    ))
}

fn sent_path(text: &str, marks: &str) -> Result<String, String> {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || marks.as_bytes().contains(&c);
    if text.starts_with('/') && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    Err(format!("bad path {text:?}, allowed is '/' and then letters, digits and {marks}"))
}

pub(crate) fn redirect_status(status: i64) -> Result<u16, String> {
    one_status("status", status, REDIRECT_STATUSES)
}

pub(crate) fn respond_status(status: i64) -> Result<u16, String> {
    one_status("respond", status, RESPOND_STATUSES)
}

pub(crate) fn empty_status(status: i64) -> Result<u16, String> {
    one_status("empty_status", status, pool::EMPTY_STATUSES)
}

fn one_status<const N: usize>(key: &str, status: i64, all: [u16; N]) -> Result<u16, String> {
    let known = all.into_iter().find(|&known| i64::from(known) == status);
    known.ok_or_else(|| {
        let allowed = all.map(|status| status.to_string()).join(", ");
        format!("{key} {status}, allowed: {allowed}")
    })
}

/// Whether the text is a token (RFC 9110 section 5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || TOKEN_MARKS.as_bytes().contains(&c))
}

/// The message for a name that nothing has: the name that was probably meant, or those that there are.
pub(crate) fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    match closest(name, &known) {
        _ if known.is_empty() => format!("unknown {kind} {name:?}, no {kind} is defined"),
        Some(meant) => format!("unknown {kind} {name:?}, did you mean {meant:?}?"),
        None => format!("unknown {kind} {name:?}, defined: {}", listed(&known)),
    }
}

/// The message for a key that a table does not have.
pub(crate) fn unknown_key(name: &str, known: &[&str]) -> String {
    match closest_key(name, known) {
        Some(meant) => format!("unknown key {name:?}, did you mean {meant:?}?"),
        None => format!("unknown key {name:?}, allowed: {}", known.join(", ")),
    }
}

/// The key that `name` was probably meant to be. Keys are words, so most of the letters have to be right.
pub(crate) fn closest_key<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    closest(name, known).filter(|meant| 2 * distance(name, meant) < name.len())
}

/// The one of `known` that `name` was probably meant to be.
pub(crate) fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let (errors, closest) = known.iter().map(|other| (distance(name, other), *other)).min()?;
    (errors <= MAX_SLIPS && errors < name.len()).then_some(closest)
}

/// Names for a message, the first few of them.
pub(crate) fn listed(names: &[&str]) -> String {
    let more = if names.len() > MAX_LISTED { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(MAX_LISTED)].join(", "))
}

/// How many letters have to be put in, taken out or replaced to make `a` into `b` (Levenshtein). Names that
/// are far longer than allowed are not compared, so that no file makes this slow.
fn distance(a: &str, b: &str) -> usize {
    if a.len().max(b.len()) > 2 * MAX_NAME {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
