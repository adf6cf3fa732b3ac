//! A client of WebSockets (RFC 6455), and the server's side of it: text messages that come back as they are.

use super::kind::{Kind, Numbers};
use super::talk::{Bad, Head, Talk, append, head, short_body};

/// The key of the RFC's example, section 1.3, and the answer to it. All clients may use the same: it shows that the
/// server speaks the protocol, no more.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// The first byte of a whole text message (section 5.2): FIN, opcode 1.
const TEXT: u8 = 0x81;
/// The bit that says that a mask follows; without, the second byte is the length, if that is below 126.
const MASKED: u8 = 0x80;
/// Any mask is allowed.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
/// Longest payload of a short frame.
const SHORT: usize = 125;

/// What the server says to accept a client.
pub(in super::super) fn accepted() -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
    )
}

/// A whole frame at the beginning of `bytes`: its payload, without a mask, and its length. None if it is not complete or
/// not a short text message.
pub(in super::super) fn frame(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let [TEXT, second, rest @ ..] = bytes else { return None };
    let len = usize::from(second & !MASKED);
    if len > SHORT {
        return None;
    }
    let mask_len = if second & MASKED == 0 { 0 } else { MASK.len() };
    let (mask, payload) = (rest.get(..mask_len)?, rest.get(mask_len..mask_len + len)?);
    let at = |index: usize| mask.get(index % MASK.len()).copied().unwrap_or(0);
    let payload = payload.iter().enumerate().map(|(index, byte)| byte ^ at(index));
    Some((payload.collect(), 2 + mask_len + len))
}

/// Appends a message from server to client.
pub(in super::super) fn append_frame(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend([TEXT, payload.len() as u8]);
    out.extend_from_slice(payload);
}

fn append_masked(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend([TEXT, MASKED | payload.len() as u8]);
    out.extend(MASK);
    out.extend(payload.iter().enumerate().map(|(index, byte)| byte ^ MASK[index % MASK.len()]));
}

pub(super) struct WebSocket {
    host: String,
    is_open: bool,
    asked: Option<u64>,
}

impl WebSocket {
    pub(super) fn new(host: String) -> WebSocket {
        WebSocket { host, is_open: false, asked: None }
    }
}

impl Talk for WebSocket {
    /// The handshake, later a message.
    fn ask(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        let number = numbers.take(Kind::WebSocket);
        self.asked = Some(number);
        if self.is_open {
            append_masked(out, short_body(number).as_bytes());
            return;
        }
        append(
            out,
            format_args!(
                "GET /socket?n={number} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n",
                self.host
            ),
        );
    }

    fn hear(
        &mut self,
        incoming: &mut Vec<u8>,
        _out: &mut Vec<u8>,
        answered: &mut Vec<u64>,
    ) -> Result<(), Bad> {
        if !self.is_open {
            let Some(Head { len, .. }) = head(incoming, 101)? else { return Ok(()) };
            incoming.drain(..len);
            self.is_open = true;
            answered.extend(self.asked.take());
        }
        match (incoming.first(), self.asked) {
            (None, _) => return Ok(()),
            (Some(&TEXT), Some(_)) => {}
            // Close, section 5.5.1.
            (Some(0x88), _) => return Err(Bad::Closed),
            _ => return Err(Bad::Bytes),
        }
        let Some((payload, len)) = frame(incoming) else { return Ok(()) };
        if self.asked.is_none_or(|number| payload != short_body(number).as_bytes()) {
            return Err(Bad::Bytes);
        }
        incoming.drain(..len);
        answered.extend(self.asked.take());
        if incoming.is_empty() { Ok(()) } else { Err(Bad::Bytes) }
    }

    fn is_answered(&self) -> bool {
        self.asked.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let mut numbers = Numbers::of_client(0, 1);
        let mut talk = WebSocket::new("a".to_owned());
        let (mut out, mut answered) = (Vec::new(), Vec::new());
        talk.ask(&mut numbers, &mut out);
        let mut incoming = accepted().into_bytes();
        assert_eq!(talk.hear(&mut incoming, &mut out, &mut answered), Ok(()));
        out.clear();
        talk.ask(&mut numbers, &mut out);
        let (payload, len) = frame(&out).expect("a frame");
        assert_eq!((payload.as_slice(), len), (short_body(17).as_bytes(), out.len()));
        append_frame(&mut incoming, &payload);
        let last = incoming.pop().expect("a frame");
        assert_eq!(talk.hear(&mut incoming, &mut out, &mut answered), Ok(()));
        assert!(!talk.is_answered());
        incoming.push(last);
        assert_eq!(talk.hear(&mut incoming, &mut out, &mut answered), Ok(()));
        assert_eq!(answered, [10, 17]);
        append_frame(&mut incoming, &payload);
        assert_eq!(talk.hear(&mut incoming, &mut out, &mut answered), Err(Bad::Bytes), "a second time");
    }
}
