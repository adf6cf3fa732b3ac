//! Heads of requests as the server gets them, and heads of responses.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::HeaderName;
use switchback_config::{CERTIFICATE_FIELDS, CLIENT_FIELDS, ClientAddress, is_same_variable};
use switchback_http::{Head, Version};

use super::flow::Addresses;
use crate::ClientCertificate;

/// What the server is told of clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) address: ClientAddress,
    /// Whether clients are asked for certificates.
    pub(super) certificates: bool,
}

/// The client of a request.
#[derive(Clone, Copy)]
pub(super) struct Requester<'a> {
    /// Addresses of the client and the VIP.
    pub(super) flow: Addresses,
    pub(super) certificate: Option<&'a ClientCertificate>,
}

impl Told {
    /// What connections to the server begin with, if that names the client.
    pub(super) fn greeting(self, (client, vip): Addresses) -> Option<Vec<u8>> {
        (self.address == ClientAddress::Proxy).then(|| proxy_header(client, vip))
    }

    /// Whether a field of a client with this name is left out: the server believes it.
    pub(super) fn replaces(self, name: &str) -> bool {
        let addresses = match self.address {
            ClientAddress::XForwarded | ClientAddress::Forwarded => &CLIENT_FIELDS[..],
            ClientAddress::Proxy | ClientAddress::Nothing => &[],
        };
        let certificates = if self.certificates { &CERTIFICATE_FIELDS[..] } else { &[] };
        addresses.iter().chain(certificates).any(|said| is_same_variable(name, said))
    }

    /// As [`replaces`](Self::replaces), with the field's line.
    pub(super) fn replaces_line(self, line: &[u8]) -> bool {
        let name = line.split(|byte| *byte == b':').next().and_then(|name| std::str::from_utf8(name).ok());
        name.is_some_and(|name| self.replaces(name))
    }

    /// Removes the fields of a client that are left out.
    pub(super) fn remove_from(self, fields: &mut HeaderMap) {
        let replaced: Vec<HeaderName> =
            fields.keys().filter(|name| self.replaces(name.as_str())).cloned().collect();
        replaced.iter().for_each(|name| drop(fields.remove(name)));
    }

    /// The fields that replace them, in a request for this host.
    pub(super) fn fields(self, client: Requester<'_>, host: &str) -> Vec<(&'static str, String)> {
        let (address, vip) = client.flow;
        let mut fields = match self.address {
            ClientAddress::XForwarded => vec![
                ("X-Forwarded-For", address.ip().to_string()),
                ("X-Forwarded-Host", host.to_owned()),
                ("X-Forwarded-Port", vip.port().to_string()),
                ("X-Forwarded-Proto", "https".to_owned()),
            ],
            ClientAddress::Forwarded => {
                // RFC 7239 sections 4 and 6: what is no token is quoted.
                let node = match address.ip() {
                    IpAddr::V4(address) => format!("{address}"),
                    IpAddr::V6(address) => format!("\"[{address}]\""),
                };
                vec![("Forwarded", format!("for={node};host=\"{host}\";proto=https"))]
            }
            ClientAddress::Proxy | ClientAddress::Nothing => Vec::new(),
        };
        let certificate = client.certificate.filter(|_| self.certificates);
        let told = certificate.into_iter().flat_map(ClientCertificate::fields);
        fields.extend(told.map(|(name, value)| (name, value.to_owned())));
        fields
    }
}

/// The head as the server gets it: as its route has left it (`text`), but for the fields about the client. `head` is what the
/// client has sent.
pub(super) fn forwarded(text: &[u8], head: &Head<'_>, told: Told, client: Requester<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 160);
    let is_plain = head.version == Version::Http11 && !head.tunnel;
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    out.extend_from_slice(lines.next().unwrap_or_default());
    for line in lines {
        if line.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            break;
        }
        let is_left_out = told.replaces_line(line) || is_plain && ends_connection(line);
        if !is_left_out {
            out.extend_from_slice(line);
        }
    }
    for (name, value) in told.fields(client, head.host.unwrap_or_default()) {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Whether the line is a field `Connection` that says no more than how long the client's connection lasts. That is not about
/// the connection to the server (RFC 9110 section 7.6.1), which is kept.
fn ends_connection(line: &[u8]) -> bool {
    let says = |name: &str, text: &[u8]| text.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    let Some((name, value)) = line.iter().position(|byte| *byte == b':').map(|at| line.split_at(at)) else {
        return false;
    };
    let mut options = value[1..].split(|byte| *byte == b',');
    name.eq_ignore_ascii_case(b"connection")
        && options.all(|option| says("close", option) || says("keep-alive", option))
}

/// The header of the PROXY protocol, version 2, with both addresses (section 2.2 of its specification).
fn proxy_header(client: SocketAddr, vip: SocketAddr) -> Vec<u8> {
    let mut out = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
    let mut addresses = Vec::new();
    let family = match (client.ip(), vip.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            addresses.extend(from.octets().into_iter().chain(to.octets()));
            0x11
        }
        (from, to) => {
            let v6 = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            addresses.extend(v6(from).into_iter().chain(v6(to)));
            0x21
        }
    };
    addresses.extend([client.port().to_be_bytes(), vip.port().to_be_bytes()].concat());
    out.push(family);
    out.extend_from_slice(&(addresses.len() as u16).to_be_bytes());
    out.extend(addresses);
    out
}

/// A complete error response of this endpoint; the connection ends behind it.
pub(super) fn error_response(status: u16, is_head: bool) -> Vec<u8> {
    error_response_with(status, "", is_head)
}

/// As [`error_response`], with more header fields, each with the end of its line.
pub(super) fn error_response_with(status: u16, fields: &str, is_head: bool) -> Vec<u8> {
    let reason = reason(status);
    let body = format!("{status} {reason}\n");
    let mut text = String::new();
    let _ = write!(
        text,
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{fields}Connection: close\r\n\r\n",
        body.len()
    );
    if !is_head {
        text.push_str(&body);
    }
    text.into_bytes()
}

/// The complete answer to a CA that wants proof of a domain; the connection ends behind it.
pub(super) fn proof_response(proof: &str, is_head: bool) -> Vec<u8> {
    let body = if is_head { "" } else { proof };
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        proof.len()
    )
    .into_bytes()
}

/// A complete redirect of this endpoint; the connection ends behind it.
pub(super) fn redirection(status: u16, location: &str) -> Vec<u8> {
    let reason = reason(status);
    format!(
        "HTTP/1.1 {status} {reason}\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

fn reason(status: u16) -> &'static str {
    let known = http::StatusCode::from_u16(status).ok();
    known.and_then(|status| status.canonical_reason()).unwrap_or("Error")
}

/// What follows the head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseBody {
    /// An interim response: another head.
    Interim,
    /// A number of bytes.
    Length(u64),
    /// Chunks (RFC 9112 section 7.1).
    Chunked,
    /// All up to the end of the connection.
    UntilEnd,
    /// Another protocol.
    Tunnel,
}

/// The parts of a response's head that are needed (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseHead {
    /// Its length in bytes.
    pub(super) len: usize,
    pub(super) status: u16,
    pub(super) body: ResponseBody,
    /// The server takes another request on the connection.
    pub(super) keep_alive: bool,
}

/// Most header fields of a response.
const FIELDS_MAX: usize = 256;

/// Reads the head of a response to a request; None if it has not come whole. What cannot be read is an error
/// of the server.
pub(super) fn response_head(
    bytes: &[u8],
    to: (bool, Version),
) -> Result<Option<ResponseHead>, httparse::Error> {
    let (to_head, version) = to;
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let len = match response.parse(bytes)? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(len) => len,
    };
    let status = response.code.ok_or(httparse::Error::Status)?;
    let values = |name: &str| {
        let found = response.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        found
            .flat_map(|field| field.value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .collect::<Vec<_>>()
    };
    let says = |name: &str, word: &[u8]| values(name).iter().any(|value| value.eq_ignore_ascii_case(word));
    let lengths = values("content-length");
    let is_chunked =
        values("transfer-encoding").last().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
    let length = match lengths.first() {
        None => None,
        Some(first) if lengths.iter().all(|other| other == first) && !is_chunked => {
            let number =
                std::str::from_utf8(first).ok().filter(|text| text.bytes().all(|c| c.is_ascii_digit()));
            Some(number.and_then(|number| number.parse().ok()).ok_or(httparse::Error::HeaderValue)?)
        }
        Some(_) => return Err(httparse::Error::HeaderValue),
    };
    let body = match status {
        101 => ResponseBody::Tunnel,
        100..=199 => ResponseBody::Interim,
        _ if to_head || matches!(status, 204 | 304) => ResponseBody::Length(0),
        _ if is_chunked => ResponseBody::Chunked,
        _ => length.map_or(ResponseBody::UntilEnd, ResponseBody::Length),
    };
    let stays = match response.version {
        Some(1) => !says("connection", b"close"),
        _ => says("connection", b"keep-alive"),
    };
    // A server may end the connection after a request of HTTP/1.0 without a word.
    let keep_alive = stays && version == Version::Http11 && body != ResponseBody::UntilEnd;
    Ok(Some(ResponseHead { len, status, body, keep_alive }))
}

#[cfg(test)]
mod tests {
    use switchback_http::{Limits, Progress, parse_head};

    use super::*;

    const CLIENT: &str = "198.51.100.7:4711";
    const CLIENT6: &str = "[2001:db8::7]:4711";
    const VIP: &str = "192.0.2.100:443";

    fn forwarded_as(said: ClientAddress, client: &str, text: &str) -> String {
        let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &Limits::default()) else { panic!() };
        let client = Requester { flow: (client.parse().unwrap(), VIP.parse().unwrap()), certificate: None };
        let told = Told { address: said, certificates: false };
        String::from_utf8(forwarded(&text.as_bytes()[..head.len], &head, told, client)).unwrap()
    }

    #[test]
    fn the_server_learns_who_the_client_is() {
        let text = "GET /a HTTP/1.1\r\nHost: shop.example:443\r\nX-Forwarded-For: 1.2.3.4\r\nforwarded: for=me\r\nA: b\r\n\r\nbody";
        assert_eq!(
            forwarded_as(ClientAddress::XForwarded, CLIENT, text),
            "GET /a HTTP/1.1\r\nHost: shop.example:443\r\nA: b\r\nX-Forwarded-For: 198.51.100.7\r\n\
             X-Forwarded-Host: shop.example\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Proto: https\r\n\r\n"
        );
        assert_eq!(
            forwarded_as(ClientAddress::Forwarded, CLIENT6, text),
            "GET /a HTTP/1.1\r\nHost: shop.example:443\r\nA: b\r\n\
             Forwarded: for=\"[2001:db8::7]\";host=\"shop.example\";proto=https\r\n\r\n"
        );
        let unchanged = text.strip_suffix("body").unwrap();
        for said in [ClientAddress::Proxy, ClientAddress::Nothing] {
            assert_eq!(forwarded_as(said, CLIENT, text), unchanged);
        }
    }

    #[test]
    fn how_long_the_clients_connection_lasts_is_not_told() {
        let sent = |line: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{line}B: c\r\n\r\n");
            forwarded_as(ClientAddress::Nothing, CLIENT, &text) == text
        };
        for line in
            ["Connection: close\r\n", "connection:Keep-Alive\r\n", "Connection: close , keep-alive\r\n"]
        {
            assert!(!sent(line), "{line}");
        }
        for line in [
            "Connection: close, x\r\nX: 1\r\n",
            "Connect: close\r\n",
            "Connection: upgrade\r\nUpgrade: x\r\n",
        ] {
            assert!(sent(line), "{line}");
        }
        let old = "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
        assert_eq!(forwarded_as(ClientAddress::Nothing, CLIENT, old), old);
    }

    #[test]
    fn no_spelling_of_a_field_stands_beside_ours() {
        let said = ["X_Forwarded_For", "x-forwarded_for", "X_FORWARDED-PROTO", "x_real_ip", "X-Real_IP"];
        for name in said {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{name}: 1.2.3.4\r\nX_Other: b\r\n\r\n");
            let forwarded = forwarded_as(ClientAddress::XForwarded, CLIENT, &text);
            assert!(!forwarded.contains("1.2.3.4") && forwarded.contains("X_Other: b\r\n"), "{forwarded}");
            assert_eq!(forwarded_as(ClientAddress::Nothing, CLIENT, &text), text, "nothing is set there");
        }
    }

    #[test]
    fn the_server_learns_of_the_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        let der = rcgen::CertificateParams::default().self_signed(&key).unwrap().der().to_vec();
        let certificate = ClientCertificate::new(&der).unwrap();
        let plain = "GET / HTTP/1.1\r\nHost: a\r\nX_Other: b\r\n";
        let lies: String = [
            "Client-Cert: :AA==:",
            "client_cert: :AA==:",
            "Client-Cert-Chain: :AA==:",
            "X-Client-Cert-Subject: CN=eve",
            "X_CLIENT_CERT_SUBJECT: CN=eve",
            "x-client_cert-Fingerprint: 00",
        ]
        .map(|line| format!("{line}\r\n"))
        .concat();
        let text = format!("{plain}{lies}\r\n");
        let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &Limits::default()) else { panic!() };
        let flow = (CLIENT.parse().unwrap(), VIP.parse().unwrap());
        let forwarded = |certificates, certificate| {
            let told = Told { address: ClientAddress::Nothing, certificates };
            String::from_utf8(forwarded(
                &text.as_bytes()[..head.len],
                &head,
                told,
                Requester { flow, certificate },
            ))
            .unwrap()
        };
        let fields: String =
            certificate.fields().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        assert_eq!(fields.lines().count(), 3);
        assert_eq!(forwarded(true, Some(&certificate)), format!("{plain}{fields}\r\n"));
        assert_eq!(forwarded(true, None), format!("{plain}\r\n"), "the client has shown none");
        assert_eq!(forwarded(false, None), text, "nothing is set there");
    }

    #[test]
    fn a_proxy_header_has_both_addresses() {
        let header = proxy_header(CLIENT.parse().unwrap(), VIP.parse().unwrap());
        assert_eq!(&header[..16], b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
        assert_eq!(&header[16..], [198, 51, 100, 7, 192, 0, 2, 100, 0x12, 0x67, 1, 0xbb]);
        let header = proxy_header(CLIENT6.parse().unwrap(), "[2001:db8::100]:443".parse().unwrap());
        assert_eq!((header[13], header.len()), (0x21, 16 + 36));
    }

    #[test]
    fn where_a_response_ends() {
        use ResponseBody::{Chunked, Interim, Length, Tunnel, UntilEnd};
        let rows = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, Some((200, Length(5), true))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, Some((200, Length(0), true))),
            ("HTTP/1.1 304 N\r\nContent-Length: 5\r\n\r\n", false, Some((304, Length(0), true))),
            ("HTTP/1.1 100 C\r\n\r\n", false, Some((100, Interim, true))),
            ("HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\n", false, Some((101, Tunnel, true))),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", false, Some((200, Chunked, true))),
            ("HTTP/1.1 200 OK\r\n\r\n", false, Some((200, UntilEnd, false))),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", false, Some((200, Length(5), false))),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, Close\r\n\r\n",
                false,
                Some((200, Length(5), false)),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", false, Some((200, Length(5), true))),
            ("HTTP/1.1 200 OK\r\nContent-Le", false, None),
        ];
        for (text, to_head, expected) in rows {
            let read = response_head(text.as_bytes(), (to_head, Version::Http11)).unwrap();
            let read = read.map(|head| (head.status, head.body, head.keep_alive));
            assert_eq!(read, expected, "{text}");
        }
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            assert!(response_head(text.as_bytes(), (false, Version::Http11)).is_err(), "{text}");
        }
    }
}
