//! Content of an access log line for a finished request.

use std::borrow::Cow;

use jiff::Timestamp;
use switchback_access_log::{Ended, Line, Tls};
use switchback_config::TlsMode;
use switchback_hello::ClientHello;
use switchback_http::{Head, Progress, parse_head};

use super::names::RouteTaken;
use super::{Finished, Names, word};

/// A finished request with its route.
pub(super) struct LogEntry<'a> {
    pub(super) finished: &'a Finished,
    head: Option<Head<'a>>,
    /// ClientHello of a connection over TLS, whose requests the switch cannot read.
    hello: Option<ClientHello>,
    pub(super) service: Option<usize>,
    pub(super) taken: Option<RouteTaken>,
}

impl<'a> LogEntry<'a> {
    pub(super) fn new(finished: &'a Finished, names: &Names) -> Self {
        let service = names.service_at(finished.flow.vip());
        if let Some(service) = service.filter(|service| *names.tls(*service) != TlsMode::Off) {
            let text = finished.asked.as_ref().map_or(&[][..], |asked| &asked.head);
            let hello = match switchback_hello::read(text, names.limits().head_len) {
                Ok(switchback_hello::Progress::Complete(hello)) => hello,
                _ => ClientHello::default(),
            };
            let taken = names.route_of_hello(service, &hello, finished);
            return LogEntry { finished, head: None, hello: Some(hello), service: Some(service), taken };
        }
        let head = finished.asked.as_ref().and_then(|asked| match parse_head(&asked.head, names.limits()) {
            Ok(Progress::Complete(head)) => Some(head),
            _ => None,
        });
        let taken =
            service.zip(head.as_ref()).and_then(|(service, head)| names.route_of(service, head, finished));
        LogEntry { finished, head, hello: None, service, taken }
    }

    /// Whether the node writes the log lines, as it does for the requests of a connection whose TLS it ends. If the switch
    /// has reset the connection, the node may be lost with its lines.
    pub(super) fn is_logged_by_node(&self, names: &Names) -> bool {
        let reads = self.service.is_some_and(|service| names.tls(service).terminated().is_some());
        reads && self.finished.node.is_some() && self.finished.end != Ended::BySwitch
    }

    /// The log line; `time` is when the request arrived.
    pub(super) fn line(&'a self, names: &'a Names, time: Timestamp) -> Line<'a> {
        let LogEntry { finished, head, hello, service, taken } = self;
        let tls = |hello: &'a ClientHello| Tls { version: None, server_name: hello.server_name.as_deref() };
        Line {
            time,
            client: finished.flow.client(),
            vip: finished.flow.vip(),
            service: service.map(|service| names.service(service)),
            head: head.as_ref(),
            first_line: self.first_line(),
            tls: hello.as_ref().map(tls),
            route: taken.map(|taken| taken.route),
            pool: taken.and_then(|taken| taken.pool).map(|pool| names.pool(pool)),
            node: finished.node.map(|node| names.node(node)),
            chosen_by: finished.chosen.map(word),
            tries: finished.tries,
            queued: finished.asked.as_ref().map(|asked| asked.queued),
            first_byte: finished.first_byte,
            duration: finished.duration,
            status: finished.status,
            bytes: finished.bytes,
            head_bytes: finished.head_bytes,
            end: finished.end,
            error: None,
        }
    }

    /// First line of the request, if the switch knows the request.
    fn first_line(&self) -> Option<Cow<'a, str>> {
        if self.hello.is_some() {
            return None;
        }
        let text = &self.finished.asked.as_ref()?.head;
        let text = text.strip_prefix(b"\r\n").unwrap_or(text);
        let end = text.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(text.len());
        Some(String::from_utf8_lossy(&text[..end]))
    }
}
