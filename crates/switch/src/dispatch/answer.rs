//! What the switch answers itself, when no node can.

use switchback_wire::packet::{TcpView, flags, segment, timestamps};
use switchback_wire::sb_flow;

/// A response and the end of the connection in one packet. The client sends its request again until it has seen
/// this, and each time gets it again, so that its loss does no harm.
#[derive(Clone, Debug)]
pub struct Answer {
    seq: u32,
    ack: u32,
    timestamps: Option<(u32, u32)>,
    text: String,
}

impl Answer {
    /// Answers the request whose first packet is given; `ack` is the sequence number after all that was received.
    pub fn new(status: u16, packet: &[u8], view: &TcpView, ack: u32) -> Self {
        let (reason, help) = explain(status);
        let body = format!("{status} {reason}\n{help}\n");
        let retry = if status == 503 { "Retry-After: 1\r\n" } else { "" };
        let text = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{retry}Connection: close\r\n\r\n{body}",
            body.len()
        );
        let timestamps = timestamps(packet, view).map(|(value, echo)| (echo, value));
        Answer { seq: view.ack, ack, timestamps, text }
    }

    /// The response, with FIN.
    pub fn packet(&self, flow: &sb_flow) -> Vec<u8> {
        let flags = flags::ACK | flags::PSH | flags::FIN;
        segment(flow, false, (self.seq, self.ack), flags, self.timestamps, self.text.as_bytes())
    }

    /// Acknowledges the client's FIN, whose sequence number is given.
    pub fn last_ack(&self, flow: &sb_flow, fin: u32) -> Vec<u8> {
        let seq = self.seq.wrapping_add(self.text.len() as u32 + 1);
        segment(flow, false, (seq, fin.wrapping_add(1)), flags::ACK, self.timestamps, &[])
    }
}

/// The reason phrase (RFC 9110 section 15) and what the client can do.
fn explain(status: u16) -> (&'static str, &'static str) {
    match status {
        404 => ("Not Found", "No route of this service takes the request."),
        408 => ("Request Timeout", "The request's head did not arrive in time."),
        413 => ("Content Too Large", "The request's body is longer than is accepted."),
        431 => ("Request Header Fields Too Large", "The request's head is longer than is accepted."),
        501 => ("Not Implemented", "The request uses a method or transfer coding that is not supported."),
        503 => ("Service Unavailable", "No server can take the request now."),
        505 => ("HTTP Version Not Supported", "Speak HTTP/1.1 or HTTP/1.0."),
        _ => ("Bad Request", "The request does not follow RFC 9112, or can be read in two ways."),
    }
}
