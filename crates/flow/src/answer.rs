//! What the switch answers itself, when no node can or none is wanted: a small response, and a TCP that closes.

use std::net::SocketAddr;
use std::time::Duration;

use switchback_config::{Redirect, Scheme};
use switchback_http::{Head, Reject};
use switchback_wire::packet::{TcpView, flags, segment, timestamps};
use switchback_wire::{Seq, sb_flow};

/// First wait before what the client has not acknowledged is sent again (RFC 6298 section 2 has one second for a path
/// of which nothing is known; this response is one round trip old already). It doubles.
const FIRST_RESEND: Duration = Duration::from_millis(300);
/// How long the switch stays with a client that does not close.
const LINGER: Duration = Duration::from_secs(5);

/// What to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An error of this status.
    Status(u16),
    /// The request is over a rate limit (429, RFC 6585 section 4).
    TooMany {
        /// Time after which the limit allows a request, in seconds.
        retry_after: u64,
    },
    /// What is wrong with the request.
    Refused(Reject),
    /// What is wrong with a ClientHello, or with those who could answer it.
    Alert(switchback_hello::Reject),
    /// It is a request of HTTP where TLS is spoken.
    PlainHttp,
    /// The request is to be made elsewhere (RFC 9110 section 15.4).
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// An absolute URI.
        location: String,
    },
}

impl Reply {
    /// Where a request to this VIP is redirected.
    pub fn redirect(redirect: &Redirect, head: &Head<'_>, vip: SocketAddr) -> Self {
        let location = switchback_routes::location(redirect, Scheme::Http, head, vip);
        Reply::Redirect { status: redirect.status, location }
    }

    /// The status code.
    pub fn status(&self) -> u16 {
        match self {
            Reply::Refused(reject) => reject.status(),
            Reply::Alert(reject) => reject.status(),
            Reply::PlainHttp => 400,
            Reply::TooMany { .. } => 429,
            Reply::Status(status) | Reply::Redirect { status, .. } => *status,
        }
    }

    /// What a client understands that speaks TLS: it cannot be sent a response.
    pub fn over_tls(self) -> Self {
        match self {
            Reply::Alert(_) | Reply::PlainHttp => self,
            _ => Reply::Alert(switchback_hello::Reject::Unavailable),
        }
    }

    /// The whole response. One to HEAD has no content (RFC 9110 section 9.3.2).
    fn text(&self, head: bool) -> Vec<u8> {
        if let Reply::Alert(reject) = self {
            return reject.alert().to_vec();
        }
        let status = self.status();
        let (reason, help) = explain(status);
        let mut body = format!("{status} {reason}\n{help}");
        let mut extra = String::new();
        match self {
            Reply::Status(503) => extra.push_str("Retry-After: 1\r\n"),
            Reply::Status(_) | Reply::Alert(_) => {}
            Reply::TooMany { retry_after } => extra = format!("Retry-After: {retry_after}\r\n"),
            Reply::PlainHttp => body += " This port speaks HTTPS.",
            Reply::Refused(reject) => body += &format!(" Reason: {reject}."),
            Reply::Redirect { location, .. } => {
                body += location;
                extra = format!("Location: {location}\r\n");
            }
        }
        body.push('\n');
        let len = body.len();
        if head {
            body.clear();
        }
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len}\r\n{extra}Connection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// The server's side of a connection from the response to the end (RFC 9293 section 3.6): it is sent until it is
/// acknowledged, and what the client still sends is acknowledged and thrown away.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The response, until all of it is acknowledged, and its first byte's sequence number. FIN follows it.
    text: Vec<u8>,
    len: u32,
    start: Seq,
    /// The first sequence number that the client has not acknowledged.
    una: Seq,
    /// What we expect from the client.
    rcv_nxt: Seq,
    client_closed: bool,
    timestamps: Option<(u32, u32)>,
    mss: usize,
    resend_at: Duration,
    wait: Duration,
    give_up_at: Duration,
}

impl Answer {
    /// Answers the request whose first packet is given. `received` is the sequence number after all data that was
    /// received, and whether the client's FIN came there; `mss` is the client's. The response is still to be sent: see [`Self::unacknowledged`].
    pub fn new(
        reply: &Reply,
        head: bool,
        packet: &[u8],
        view: &TcpView,
        received: (Seq, bool),
        mss: u16,
        now: Duration,
    ) -> Self {
        let (end, closed) = received;
        let timestamps = timestamps(packet, view).map(|(value, echo)| (echo, value));
        let options = if timestamps.is_some() { 12 } else { 0 };
        let text = reply.text(head);
        Answer {
            len: text.len() as u32,
            text,
            start: view.ack,
            una: view.ack,
            rcv_nxt: end + usize::from(closed),
            client_closed: closed,
            timestamps,
            mss: usize::from(mss.max(536)) - options,
            resend_at: now + FIRST_RESEND,
            wait: FIRST_RESEND,
            give_up_at: now + LINGER,
        }
    }

    /// When [`Self::on_time`] wants to be called.
    pub fn due(&self) -> Duration {
        if self.is_acknowledged() { self.give_up_at } else { self.resend_at.min(self.give_up_at) }
    }

    /// Both sides have closed.
    pub fn is_over(&self) -> bool {
        self.client_closed && self.is_acknowledged()
    }

    /// What is to be sent now that [`Self::due`] has come; None when the client has had its time.
    pub fn on_time(&mut self, flow: &sb_flow, now: Duration) -> Option<Vec<Vec<u8>>> {
        if now >= self.give_up_at {
            return None;
        }
        self.wait *= 2;
        self.resend_at = now + self.wait;
        Some(self.unacknowledged(flow))
    }

    /// A packet of the client; what is to be said to it.
    pub fn on_packet(&mut self, flow: &sb_flow, packet: &[u8], view: &TcpView) -> Vec<Vec<u8>> {
        if let (Some((value, _)), Some((_, echo))) = (timestamps(packet, view), &mut self.timestamps) {
            *echo = value;
        }
        let acked = view.ack - self.una;
        if view.flags & flags::ACK != 0 && acked <= self.end() - self.una {
            self.una = view.ack;
        }
        if self.una - self.start >= self.len {
            self.text = Vec::new();
        }
        let fin = view.flags & flags::FIN != 0;
        let end = view.end_seq();
        let in_order = !view.seq.after(self.rcv_nxt);
        let news = end.offset_from(self.rcv_nxt);
        if in_order && !self.client_closed && news >= 0 {
            self.rcv_nxt = end + usize::from(fin);
            self.client_closed = fin;
        }
        if view.is_empty() && !fin {
            return Vec::new();
        }
        // The client sends again what it has sent before: it has not seen the response.
        if news <= 0 && !self.is_acknowledged() { self.unacknowledged(flow) } else { vec![self.ack(flow)] }
    }

    /// Memory that it takes beside itself, in bytes.
    pub fn held(&self) -> usize {
        self.text.capacity()
    }

    /// Bytes of the response, and how many of them come before its content.
    pub fn sizes(&self) -> (usize, usize) {
        let end = self.text.windows(4).position(|text| text == b"\r\n\r\n");
        (self.text.len(), end.map_or(self.text.len(), |end| end + 4))
    }

    /// What the client has not acknowledged yet, in packets that it can take.
    pub fn unacknowledged(&self, flow: &sb_flow) -> Vec<Vec<u8>> {
        let from = (self.una - self.start).min(self.len);
        let rest = self.text.get(from as usize..).unwrap_or_default();
        let parts = rest.chunks(self.mss).collect::<Vec<_>>();
        let parts = if parts.is_empty() { vec![&[][..]] } else { parts };
        let mut seq = self.start + from;
        let last = parts.len() - 1;
        let mut packets = Vec::with_capacity(parts.len());
        for (index, part) in parts.into_iter().enumerate() {
            let fin = if index == last { flags::FIN | flags::PSH } else { 0 };
            let numbers = (seq, self.rcv_nxt);
            packets.push(segment(flow, false, numbers, flags::ACK | fin, self.timestamps, part));
            seq += part.len();
        }
        packets
    }

    fn ack(&self, flow: &sb_flow) -> Vec<u8> {
        segment(flow, false, (self.end(), self.rcv_nxt), flags::ACK, self.timestamps, &[])
    }

    /// Sequence number after FIN.
    fn end(&self) -> Seq {
        self.start + (self.len + 1)
    }

    fn is_acknowledged(&self) -> bool {
        self.una == self.end()
    }
}

/// The reason phrase (RFC 9110 section 15, RFC 6585) and what the client can do.
fn explain(status: u16) -> (&'static str, &'static str) {
    match status {
        301 => ("Moved Permanently", ""),
        302 => ("Found", ""),
        303 => ("See Other", ""),
        307 => ("Temporary Redirect", ""),
        308 => ("Permanent Redirect", ""),
        403 => ("Forbidden", "This service does not take the request."),
        404 => ("Not Found", "No route of this service takes the request."),
        410 => ("Gone", "This service has it no longer."),
        451 => ("Unavailable For Legal Reasons", "This service must not answer."),
        408 => ("Request Timeout", "The request's head did not arrive in time."),
        413 => ("Content Too Large", "The request's body is longer than is accepted."),
        429 => ("Too Many Requests", "This service limits how often it is asked."),
        431 => ("Request Header Fields Too Large", "The request's head is longer than is accepted."),
        500 => ("Internal Server Error", "The route leads to no server."),
        501 => ("Not Implemented", "The request uses a method or transfer coding that is not supported."),
        502 => ("Bad Gateway", "The server that had the connection is gone."),
        503 => ("Service Unavailable", "No server can take the request now."),
        504 => ("Gateway Timeout", "No server can take the request."),
        505 => ("HTTP Version Not Supported", "Speak HTTP/1.1 or HTTP/1.0."),
        _ => ("Bad Request", "The request does not follow RFC 9112, or can be read in two ways."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::address_bytes;

    const MS: Duration = Duration::from_millis(1);

    fn flow() -> sb_flow {
        sb_flow {
            client: address_bytes("192.0.2.1".parse().unwrap()),
            vip: address_bytes("192.0.2.100".parse().unwrap()),
            client_port: 40000u16.to_be(),
            vip_port: 80u16.to_be(),
        }
    }

    fn client(seq: u32, ack: Seq, tcp_flags: u8, data: &[u8]) -> (Vec<u8>, TcpView) {
        let packet = segment(&flow(), true, (Seq(seq), ack), tcp_flags | flags::ACK, Some((50, 60)), data);
        let view = TcpView::parse(&packet).unwrap();
        (packet, view)
    }

    fn answer(reply: Reply, head: bool) -> Answer {
        let (packet, view) = client(100, Seq(u32::MAX), 0, b"GET");
        Answer::new(&reply, head, &packet, &view, (Seq(103), false), 1460, Duration::ZERO)
    }

    fn text(packets: &[Vec<u8>]) -> String {
        let parts = packets.iter().map(|packet| {
            let view = TcpView::parse(packet).unwrap();
            packet[view.data..view.end].to_vec()
        });
        String::from_utf8(parts.collect::<Vec<_>>().concat()).unwrap()
    }

    #[test]
    fn a_response_says_what_is_wrong_and_ends_the_connection() {
        let packets = answer(Reply::Status(503), false).unacknowledged(&flow());
        let [packet] = &packets[..] else { panic!("one packet") };
        let view = TcpView::parse(packet).unwrap();
        assert_eq!((view.seq, view.ack, view.flags & flags::FIN), (Seq(u32::MAX), Seq(103), flags::FIN));
        let text = text(&packets);
        assert!(text.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{text}");
        assert!(
            text.contains("\r\nRetry-After: 1\r\n") && text.contains("\r\nConnection: close\r\n"),
            "{text}"
        );
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{text}");
    }

    #[test]
    fn head_has_no_content() {
        let text = text(&answer(Reply::Status(404), true).unacknowledged(&flow()));
        assert!(text.ends_with("\r\n\r\n") && !text.contains("Content-Length: 0"), "{text}");
    }

    #[test]
    fn a_long_redirect_is_split_and_sent_until_acknowledged() {
        let location = format!("https://example.com/{}", "x".repeat(4000));
        let mut answer = answer(Reply::Redirect { status: 308, location: location.clone() }, false);
        let packets = answer.unacknowledged(&flow());
        assert!(packets.len() > 4 && packets.iter().all(|packet| packet.len() <= 1500));
        assert!(text(&packets).contains(&format!("\r\nLocation: {location}\r\n")));
        // The first two arrive.
        let second = TcpView::parse(&packets[2]).unwrap().seq;
        let (packet, view) = client(103, second, 0, b"");
        assert!(answer.on_packet(&flow(), &packet, &view).is_empty());
        assert_eq!(answer.due(), FIRST_RESEND);
        let again = answer.on_time(&flow(), answer.due()).unwrap();
        assert_eq!(TcpView::parse(&again[0]).unwrap().seq, second);
        assert_eq!(again.len(), packets.len() - 2);
        assert_eq!(answer.due(), FIRST_RESEND * 3);
    }

    #[test]
    fn the_request_again_gets_the_response_again() {
        let mut answer = answer(Reply::Status(400), false);
        let (packet, view) = client(100, Seq(u32::MAX), 0, b"GET");
        assert_eq!(answer.on_packet(&flow(), &packet, &view), answer.unacknowledged(&flow()));
    }

    #[test]
    fn both_sides_close_and_the_rest_of_the_body_is_acknowledged() {
        let mut answer = answer(Reply::Status(413), false);
        let end = answer.end();
        let (packet, view) = client(103, end, 0, b"body");
        let [ack] = &answer.on_packet(&flow(), &packet, &view)[..] else { panic!("an ACK") };
        let ack = TcpView::parse(ack).unwrap();
        assert_eq!((ack.seq, ack.ack, ack.is_empty()), (end, Seq(107), true));
        assert!(!answer.is_over());
        // A gap: what is behind it is not acknowledged.
        let (packet, view) = client(200, end, flags::FIN, b"");
        let acks = answer.on_packet(&flow(), &packet, &view);
        assert_eq!((TcpView::parse(&acks[0]).unwrap().ack, answer.is_over()), (Seq(107), false));
        let (packet, view) = client(107, end, flags::FIN, b"");
        let acks = answer.on_packet(&flow(), &packet, &view);
        assert_eq!((TcpView::parse(&acks[0]).unwrap().ack, answer.is_over()), (Seq(108), true));
    }

    #[test]
    fn a_client_that_never_closes_is_given_up() {
        let mut answer = answer(Reply::Status(400), false);
        let mut sent = 0;
        while answer.on_time(&flow(), answer.due()).is_some() {
            sent += 1;
            assert!(sent < 10);
        }
        assert_eq!((sent, answer.due() >= LINGER), (4, true));
        assert!(answer.on_time(&flow(), LINGER + MS).is_none());
    }
}
