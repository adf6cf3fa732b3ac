//! Lines of the access log.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use switchback_config::LogFormat;
use switchback_http::{Head, Version};

use crate::json::{Value, Word, object};

/// One line: a request and its response. A field is None if it is unknown, or does not exist.
#[derive(Debug)]
pub struct Line<'a> {
    /// Arrival of the request.
    pub time: Timestamp,
    /// Address of the client.
    pub client: SocketAddr,
    /// The VIP.
    pub vip: SocketAddr,
    /// Name of the service.
    pub service: Option<&'a str>,
    /// The request, if it can be read.
    pub head: Option<&'a Head<'a>>,
    /// Its first line as it was sent, or the part that came.
    pub first_line: Option<Cow<'a, str>>,
    /// Parameters of its TLS connection.
    pub tls: Option<Tls<'a>>,
    /// Number of the route, counted from 1 in the order of the file.
    pub route: Option<usize>,
    /// Name and policy of the pool.
    pub pool: Option<(&'a str, &'a str)>,
    /// Node whose server has answered.
    pub node: Option<&'a str>,
    /// Reason for the choice of the node.
    pub chosen_by: Option<&'a str>,
    /// Nodes that had the request, or refused it, before.
    pub tries: u32,
    /// Time from its first byte until the server that has answered had it.
    pub queued: Option<Duration>,
    /// From then on to the response's first byte.
    pub first_byte: Option<Duration>,
    /// From then on to the response's last byte.
    pub duration: Option<Duration>,
    /// Status of the response.
    pub status: Option<u16>,
    /// Bytes of the response that were sent, head included.
    pub bytes: u64,
    /// Bytes of the response that came before the body.
    pub head_bytes: u32,
    /// How the request ended.
    pub end: Ended,
    /// Error of a connection that ended before a request.
    pub error: Option<&'a str>,
}

/// Parameters of a TLS connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tls<'a> {
    /// Version, as openssl writes it.
    pub version: Option<&'a str>,
    /// The server name that the client sent (SNI).
    pub server_name: Option<&'a str>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The response was sent whole.
    Complete,
    /// The client closed the connection, or was gone.
    ByClient,
    /// The server broke the response off.
    ByServer,
    /// The switch has reset the connection.
    BySwitch,
    /// Unknown.
    Unknown,
}

impl Ended {
    fn word(self) -> &'static str {
        match self {
            Ended::Complete => "complete",
            Ended::ByClient => "client",
            Ended::ByServer => "server",
            Ended::BySwitch => "switch",
            Ended::Unknown => "unknown",
        }
    }
}

impl Line<'_> {
    /// Appends the line with its end; `lost` is how many lines are missing before it.
    pub(crate) fn write(&self, out: &mut Vec<u8>, format: LogFormat, lost: u64) {
        match format {
            LogFormat::Json => self.json(out, lost),
            LogFormat::Combined => self.combined(out),
        }
        out.push(b'\n');
    }

    /// The fields `Referer` and `User-Agent`.
    fn origins(&self) -> [Option<Cow<'_, str>>; 2] {
        let values = self.head.map_or([None; 2], |head| head.first_of(["referer", "user-agent"]));
        values.map(|value| value.map(String::from_utf8_lossy))
    }

    fn body_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.head_bytes.into())
    }

    fn json(&self, out: &mut Vec<u8>, lost: u64) {
        let server_name = self.tls.and_then(|tls| tls.server_name);
        let [referer, user_agent] = self.origins();
        object!(out,
            "time": self.time,
            "client": self.client,
            "vip": self.vip,
            "service": self.service,
            "method": self.head.map(|head| head.method),
            "target": self.head.map(|head| head.target.raw),
            "version": self.head.map(|head| Word(version(head.version))),
            "host": self.head.and_then(|head| head.host).or(server_name),
            "request": self.first_line.as_deref().filter(|_| self.head.is_none()),
            "route": self.route.map(|route| route as u64),
            "pool": self.pool.map(|(name, _)| name),
            "node": self.node,
            "chosen_by": self.chosen_by,
            "policy": self.pool.map(|(_, policy)| policy),
            "tries": u64::from(self.tries),
            "queued_us": self.queued,
            "first_byte_us": self.first_byte,
            "duration_us": self.duration,
            "status": self.status.map(u64::from),
            "bytes": self.bytes,
            "body_bytes": self.body_bytes(),
            "end": Word(self.end.word()),
            "referer": referer,
            "user_agent": user_agent,
        );
        if let Some(Tls { version, server_name }) = self.tls {
            out.extend_from_slice(b",\"tls_version\":");
            version.write(out);
            out.extend_from_slice(b",\"server_name\":");
            server_name.write(out);
        }
        if let Some(error) = self.error {
            out.extend_from_slice(b",\"error\":");
            error.write(out);
        }
        if lost > 0 {
            out.extend_from_slice(b",\"lost\":");
            lost.write(out);
        }
        out.push(b'}');
    }

    /// The combined format of Apache and nginx: host, identity, user, time, request, status, body bytes,
    /// referer, agent.
    fn combined(&self, out: &mut Vec<u8>) {
        let body = self.body_bytes();
        let [referer, user_agent] = self.origins();
        let status = self.status.map_or("-".to_owned(), |status| status.to_string());
        let bytes = if body == 0 { "-".to_owned() } else { body.to_string() };
        let time = self.time.strftime("%d/%b/%Y:%H:%M:%S +0000");
        out.extend_from_slice(format!("{} - - [{time}] \"", self.client.ip()).as_bytes());
        escape(out, self.first_line.as_deref().unwrap_or("-"));
        out.extend_from_slice(format!("\" {status} {bytes} \"").as_bytes());
        escape(out, &referer.unwrap_or("-".into()));
        out.extend_from_slice(b"\" \"");
        escape(out, &user_agent.unwrap_or("-".into()));
        out.push(b'"');
    }
}

/// Escapes as Apache does: characters that would end the string or the line get a backslash.
fn escape(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2.0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape::{is_printable, tests::HOSTILE};

    #[test]
    fn nothing_that_a_terminal_obeys_is_in_a_line() {
        let line = Line {
            time: Timestamp::UNIX_EPOCH,
            client: ([192, 0, 2, 1], 1).into(),
            vip: ([192, 0, 2, 100], 80).into(),
            service: None,
            head: None,
            first_line: Some(HOSTILE.into()),
            tls: Some(Tls { version: None, server_name: Some(HOSTILE) }),
            route: None,
            pool: None,
            node: None,
            chosen_by: None,
            tries: 0,
            queued: None,
            first_byte: None,
            duration: None,
            status: Some(400),
            bytes: 0,
            head_bytes: 0,
            end: Ended::Complete,
            error: Some(HOSTILE),
        };
        for format in [LogFormat::Json, LogFormat::Combined] {
            let mut out = Vec::new();
            line.write(&mut out, format, 0);
            let text = String::from_utf8(out).unwrap();
            let text = text.strip_suffix('\n').unwrap();
            assert!(text.chars().all(is_printable), "{text:?}");
        }
    }
}
