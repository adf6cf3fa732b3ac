//! Lines of the access log.

use std::borrow::Cow;

use jiff::Timestamp;
use switchback_config::LogFormat;
use switchback_hello::ClientHello;
use switchback_http::{Head, Progress, Version, parse_head};

use super::json::{Value, object};
use super::names::Way;
use super::{Finished, Names};

/// What a finished request is called, and where it went.
pub(super) struct Described<'a> {
    pub(super) finished: &'a Finished,
    pub(super) head: Option<Head<'a>>,
    /// Of a connection over TLS, instead: of its requests nothing is known here.
    hello: Option<ClientHello>,
    pub(super) service: Option<usize>,
    pub(super) way: Option<Way>,
}

impl<'a> Described<'a> {
    pub(super) fn new(finished: &'a Finished, names: &Names) -> Self {
        let service = names.service_at(finished.vip);
        if let Some(service) = service.filter(|service| names.is_tls(*service)) {
            let text = finished.asked.as_ref().map_or(&[][..], |asked| &asked.head);
            let hello = match switchback_hello::read(text, names.limits().head_len) {
                Ok(switchback_hello::Progress::Complete(hello)) => hello,
                _ => ClientHello::default(),
            };
            let way = names.way_of_hello(service, &hello);
            return Described { finished, head: None, hello: Some(hello), service: Some(service), way };
        }
        let head = finished.asked.as_ref().and_then(|asked| match parse_head(&asked.head, names.limits()) {
            Ok(Progress::Complete(head)) => Some(head),
            _ => None,
        });
        let way = service.zip(head.as_ref()).and_then(|(service, head)| names.way(service, head));
        Described { finished, head, hello: None, service, way }
    }

    /// The request's first line as it was sent, or what there is of it. A node may have said something of a request that
    /// the switch does not know.
    fn first_line(&self) -> Option<Cow<'a, str>> {
        if self.hello.is_some() {
            return None;
        }
        let text = &self.finished.asked.as_ref()?.head;
        let end = text.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(text.len());
        Some(String::from_utf8_lossy(&text[..end]))
    }

    fn field(&self, name: &str) -> Option<Cow<'a, str>> {
        self.head.as_ref()?.header(name).map(String::from_utf8_lossy)
    }
}

/// Appends the line with its end. `time` is when the request came; `lost` is how many lines are missing before it.
pub(super) fn write(
    out: &mut Vec<u8>,
    format: LogFormat,
    described: &Described<'_>,
    names: &Names,
    time: Timestamp,
    lost: u64,
) {
    match format {
        LogFormat::Json => json(out, described, names, time, lost),
        LogFormat::Combined => combined(out, described, time),
    }
    out.push(b'\n');
}

fn json(out: &mut Vec<u8>, described: &Described<'_>, names: &Names, time: Timestamp, lost: u64) {
    let Described { finished, head, hello, service, way } = described;
    let server_name = hello.as_ref().and_then(|hello| hello.server_name.as_deref());
    let asked = finished.asked.as_ref();
    let pool = way.and_then(|way| way.pool).map(|pool| names.pool(pool));
    object!(out,
        "time": time,
        "client": finished.client,
        "vip": finished.vip,
        "service": service.map(|service| names.service(service)),
        "method": head.as_ref().map(|head| head.method),
        "target": head.as_ref().map(|head| head.target.raw),
        "version": head.as_ref().map(|head| version(head.version)),
        "host": head.as_ref().and_then(|head| head.host).or(server_name),
        "request": if head.is_none() { described.first_line() } else { None },
        "route": way.map(|way| way.route as u64),
        "pool": pool.map(|(name, _)| name),
        "node": finished.node.map(|node| names.node(node)),
        "chosen_by": finished.chosen.map(super::Chosen::word),
        "policy": pool.map(|(_, policy)| policy),
        "tries": u64::from(finished.tries),
        "queued_us": asked.map(|asked| asked.queued),
        "first_byte_us": finished.first_byte,
        "duration_us": finished.duration,
        "status": finished.status.map(u64::from),
        "bytes": finished.bytes,
        "body_bytes": finished.bytes.saturating_sub(finished.head_bytes.into()),
        "end": finished.end.word(),
        "referer": described.field("referer"),
        "user_agent": described.field("user-agent"),
    );
    if lost > 0 {
        out.extend_from_slice(b",\"lost\":");
        lost.write(out);
    }
    out.push(b'}');
}

/// The combined format of Apache and nginx: host, identity, user, time, request, status, body bytes, referer, agent.
fn combined(out: &mut Vec<u8>, described: &Described<'_>, time: Timestamp) {
    let finished = described.finished;
    let body = finished.bytes.saturating_sub(finished.head_bytes.into());
    let status = finished.status.map_or("-".to_owned(), |status| status.to_string());
    let bytes = if body == 0 { "-".to_owned() } else { body.to_string() };
    let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000");
    out.extend_from_slice(format!("{} - - [{time}] \"", finished.client.ip()).as_bytes());
    escape(out, &described.first_line().unwrap_or("-".into()));
    out.extend_from_slice(format!("\" {status} {bytes} \"").as_bytes());
    escape(out, &described.field("referer").unwrap_or("-".into()));
    out.extend_from_slice(b"\" \"");
    escape(out, &described.field("user-agent").unwrap_or("-".into()));
    out.push(b'"');
}

/// As Apache does: what would end the text, or the line, is written with a backslash.
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
