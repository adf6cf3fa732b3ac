//! Hosts with an optional port, in `Host` and in absolute targets.

use std::net::Ipv6Addr;

use crate::Reject;
use crate::table::{self, HOST};

/// The host in `authority`, without its port.
///
/// Accepted are names (`reg-name` of RFC 3986 section 3.2.2) with single dots between labels and optionally one at the
/// end, but without encoded octets, which some servers would decode; IPv4 addresses; and IPv6 addresses in brackets;
/// each with an optional colon, which may have a port from 1 to 65535.
pub(crate) fn without_port(authority: &[u8]) -> Result<&str, Reject> {
    let end = if authority.first() == Some(&b'[') {
        let end = authority.iter().position(|&c| c == b']').ok_or(Reject::InvalidHost)?;
        let address = std::str::from_utf8(&authority[1..end]).map_err(|_| Reject::InvalidHost)?;
        address.parse::<Ipv6Addr>().map_err(|_| Reject::InvalidHost)?;
        end + 1
    } else {
        let end = table::span(HOST, authority, 0);
        // A dot must not come first or after another one.
        let mut after_dot = true;
        for &c in &authority[..end] {
            if c == b'.' && after_dot {
                return Err(Reject::InvalidHost);
            }
            after_dot = c == b'.';
        }
        end
    };
    let (host, port) = authority.split_at(end);
    if host.is_empty() || !(port.is_empty() || is_port(port)) {
        return Err(Reject::InvalidHost);
    }
    std::str::from_utf8(host).map_err(|_| Reject::InvalidHost)
}

/// Whether `text` is a colon, optionally with a number from 1 to 65535 without leading zeros.
fn is_port(text: &[u8]) -> bool {
    let [b':', digits @ ..] = text else { return false };
    if digits.is_empty() {
        return true;
    }
    if digits.len() > 5 || digits[0] == b'0' || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    digits.iter().fold(0, |port, digit| port * 10 + u32::from(digit - b'0')) <= 65_535
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let accepted = [
            ("example.com", "example.com"),
            ("Example.COM.", "Example.COM."),
            ("my_host-1:8080", "my_host-1"),
            ("a:", "a"),
            ("[::1]:", "[::1]"),
            ("a!$&'()*+,;=~b:1", "a!$&'()*+,;=~b"),
            ("192.0.2.1:1", "192.0.2.1"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("[::ffff:192.0.2.1]:65535", "[::ffff:192.0.2.1]"),
        ];
        for (authority, host) in accepted {
            assert_eq!(without_port(authority.as_bytes()), Ok(host), "{authority}");
        }
        let refused = [
            "",
            ".",
            ".a",
            "a..b",
            ":80",
            "a:0",
            "a:080",
            "a:65536",
            "a:123456",
            "a:+1",
            "a:8 0",
            "a b",
            "a@b",
            "a/b",
            "a%41",
            "[::1",
            "[]",
            "[::g]",
            "[::1]a",
            "[v1.x]",
            "::1",
            "a[",
            "caf\u{e9}",
            "[caf\u{e9}]",
        ];
        for authority in refused {
            assert_eq!(without_port(authority.as_bytes()), Err(Reject::InvalidHost), "{authority}");
        }
    }
}
