//! Keys of the policy `hash`: a number derived from a part of the request with SipHash. All switches of a cluster share
//! the secret and get the same number; clients, without the secret, cannot aim at a node.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use switchback_config::{Cluster, HashKey, Split};
use switchback_http::Head;
use switchback_wire::keys::handoff_key;
use switchback_wire::{Seq, sb_flow, sb_key};

/// The secret of a cluster; without a key, one that anybody knows.
pub fn secret_of(cluster: &Cluster) -> sb_key {
    cluster.keys.first().map_or_else(sb_key::default, |key| handoff_key(key.as_bytes()))
}

/// Hash key of a request; the client's address stands in for a part that the request does not have.
pub fn key_of(secret: &sb_key, by: &HashKey, flow: &sb_flow, head: &Head<'_>) -> u64 {
    hash_of(secret, &[part_of(by, flow, head).unwrap_or(&flow.client)])
}

/// The part of the request to hash; None if the request does not have it.
pub fn part_of<'a>(by: &HashKey, flow: &'a sb_flow, head: &Head<'a>) -> Option<&'a [u8]> {
    match by {
        HashKey::Client => Some(&flow.client),
        HashKey::Path => Some(head.path().as_bytes()),
        HashKey::Header(name) => head.header(name),
        HashKey::Cookie(name) => cookie(head, name),
    }
}

/// The pool that gets a request which begins at this number, or with None for `head` a connection over TLS.
pub fn share_of(
    split: &Split,
    secret: &sb_key,
    flow: &sb_flow,
    head: Option<&Head<'_>>,
    begins: Seq,
) -> usize {
    let common = split.by.as_ref().and_then(|by| match head {
        Some(head) => part_of(by, flow, head),
        None => (*by == HashKey::Client).then_some(&flow.client[..]),
    });
    of_request(flow, begins, |request| switchback_routes::share(split, secret, common, request))
}

/// Where a request that begins at this number is among all, for the share of them that is mirrored.
pub fn mirror_point(secret: &sb_key, flow: &sb_flow, begins: Seq) -> u64 {
    of_request(flow, begins, |request| switchback_routes::mirror_point(secret, request))
}

/// The result of `hash` for the parts that tell a request from all others.
fn of_request<T>(flow: &sb_flow, begins: Seq, hash: impl FnOnce(&[&[u8]]) -> T) -> T {
    let ports = [flow.client_port.to_ne_bytes(), flow.vip_port.to_ne_bytes()];
    hash(&[&flow.client[..], &flow.vip, ports.as_flattened(), &begins.0.to_be_bytes()])
}

/// Keyed hash of the concatenated parts.
pub fn hash_of(secret: &sb_key, parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(secret.k0, secret.k1);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// Value of the first cookie with a name (RFC 6265 section 4.2.1).
fn cookie<'a>(head: &Head<'a>, name: &str) -> Option<&'a [u8]> {
    cookie_pairs(head).find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// All `name=value` pairs of the `Cookie` fields.
pub fn cookie_pairs<'a>(head: &Head<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let fields = head.headers().filter(|(field, _)| field.eq_ignore_ascii_case("cookie"));
    fields.flat_map(|(_, value)| value.split(|&byte| byte == b';')).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use switchback_http::{Limits, Progress, parse_head};
    use switchback_wire::address_bytes;

    use super::*;

    fn key(by: &HashKey, client: &str, request: &str) -> u64 {
        let client: SocketAddr = client.parse().unwrap();
        let flow = sb_flow {
            client: address_bytes(client.ip()),
            client_port: client.port().to_be(),
            ..Default::default()
        };
        let text = format!("{request}\r\nHost: a\r\n\r\n").replace('|', "\r\n");
        let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &Limits::default()) else {
            panic!("{request} is a head")
        };
        key_of(&sb_key::default(), by, &flow, &head)
    }

    #[test]
    fn a_key_depends_on_its_part_only() {
        let cookie = HashKey::Cookie("sid".to_owned());
        let header = HashKey::Header("x-user".to_owned());
        let same = [
            (&HashKey::Client, ("192.0.2.1:1", "GET /a HTTP/1.1"), ("192.0.2.1:2", "GET /b HTTP/1.1")),
            (&HashKey::Path, ("192.0.2.1:1", "GET /a?x HTTP/1.1"), ("192.0.2.2:1", "GET /a?y HTTP/1.1")),
            (
                &header,
                ("192.0.2.1:1", "GET /a HTTP/1.1|X-User: 7"),
                ("192.0.2.2:1", "GET /b HTTP/1.1|x-user:7"),
            ),
            (
                &cookie,
                ("192.0.2.1:1", "GET /a HTTP/1.1|Cookie: a=b; sid=7"),
                ("192.0.2.2:1", "GET /b HTTP/1.1|Cookie: a=c|Cookie: sid=7;z"),
            ),
            (&cookie, ("192.0.2.1:1", "GET /a HTTP/1.1|Cookie: sidd=7"), ("192.0.2.1:2", "GET /b HTTP/1.1")),
        ];
        for (by, (client, one), (other_client, other)) in same {
            assert_eq!(key(by, client, one), key(by, other_client, other), "{by:?}: {one} and {other}");
        }
        let different = [
            (&HashKey::Client, ("192.0.2.1:1", "GET /a HTTP/1.1"), ("192.0.2.2:1", "GET /a HTTP/1.1")),
            (&HashKey::Path, ("192.0.2.1:1", "GET /a HTTP/1.1"), ("192.0.2.1:1", "GET /b HTTP/1.1")),
            (
                &cookie,
                ("192.0.2.1:1", "GET /a HTTP/1.1|Cookie: sid=7"),
                ("192.0.2.1:1", "GET /a HTTP/1.1|Cookie: sid=8"),
            ),
        ];
        for (by, (client, one), (other_client, other)) in different {
            assert_ne!(key(by, client, one), key(by, other_client, other), "{by:?}: {one} and {other}");
        }
    }
}
