//! A client of HTTP/2 (RFC 9113) with one request at a time, no more than that needs: it compares bodies, and reads of
//! heads whether the status is 200, which the static table of HPACK has (RFC 7541 appendix A).

use super::kind::{Kind, Numbers};
use super::talk::{Bad, Talk, short_body};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame's header.
const HEADER: usize = 9;
/// Types of frames (section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
/// The code of GOAWAY when all is well (section 7).
const NO_ERROR: [u8; 4] = [0; 4];
/// Flags of frames.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// Adds to the connection's window, 65,535 bytes, all that may be added, which is more than a run needs.
const WINDOW: u32 = 0x7fff_ffff - 65_535;
/// HPACK: indexed fields, and literals with an indexed name.
const METHOD_GET: u8 = 0x82;
const SCHEME_HTTPS: u8 = 0x87;
const STATUS_200: u8 = 0x88;
const AUTHORITY: u8 = 0x01;
const PATH: u8 = 0x04;

pub(super) struct Http2 {
    host: String,
    /// The last stream; 0 before the first.
    stream: u32,
    asked: Option<u64>,
    body: Vec<u8>,
    /// Whether the server takes no further streams.
    is_last: bool,
}

impl Http2 {
    pub(super) fn new(host: String) -> Http2 {
        Http2 { host, stream: 0, asked: None, body: Vec::new(), is_last: false }
    }

    /// Takes the payload of GOAWAY (section 6.8); an error if the server does not answer the current request.
    fn leave(&mut self, payload: &[u8]) -> Result<(), Bad> {
        let (last, rest) = payload.split_first_chunk().ok_or(Bad::Bytes)?;
        let is_served = self.asked.is_none() || u32::from_be_bytes(*last) & 0x7fff_ffff >= self.stream;
        self.is_last = true;
        if rest.starts_with(&NO_ERROR) && is_served { Ok(()) } else { Err(Bad::Closed) }
    }
}

fn append_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A literal field that is not indexed. Lengths below 127 take one byte.
fn append_literal(out: &mut Vec<u8>, name: u8, value: &str) {
    out.extend([name, value.len() as u8]);
    out.extend_from_slice(value.as_bytes());
}

/// The payload without padding and priority.
fn content(flags: u8, payload: &[u8]) -> Option<&[u8]> {
    let (padding, payload) = match payload {
        [padding, rest @ ..] if flags & PADDED != 0 => (usize::from(*padding), rest),
        _ => (0, payload),
    };
    payload.get(..payload.len().checked_sub(padding)?)
}

/// Whether the first field of a head is `:status: 200`, after changes of the table's size.
fn is_good(block: &[u8]) -> bool {
    let first = block.iter().find(|byte| **byte & 0xe0 != 0x20);
    first == Some(&STATUS_200)
}

impl Talk for Http2 {
    fn ask(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        if self.stream == 0 {
            out.extend_from_slice(PREFACE);
            append_frame(out, SETTINGS, 0, 0, &[]);
            append_frame(out, WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
        }
        self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
        let number = numbers.take(Kind::TlsHttp2);
        let mut block = vec![METHOD_GET, SCHEME_HTTPS];
        append_literal(&mut block, PATH, &format!("/short?n={number}"));
        append_literal(&mut block, AUTHORITY, &self.host);
        append_frame(out, HEADERS, END_HEADERS | END_STREAM, self.stream, &block);
        self.asked = Some(number);
        self.body.clear();
    }

    fn hear(
        &mut self,
        incoming: &mut Vec<u8>,
        out: &mut Vec<u8>,
        answered: &mut Vec<u64>,
    ) -> Result<(), Bad> {
        loop {
            let Some(&[a, b, c, kind, flags, ref stream @ ..]) = incoming.first_chunk::<HEADER>() else {
                return Ok(());
            };
            let stream = u32::from_be_bytes(*stream) & 0x7fff_ffff;
            let end = HEADER + u32::from_be_bytes([0, a, b, c]) as usize;
            let Some(payload) = incoming.get(HEADER..end) else { return Ok(()) };
            let is_current = stream == self.stream && self.asked.is_some();
            match kind {
                SETTINGS if flags & ACK == 0 => append_frame(out, SETTINGS, ACK, 0, &[]),
                PING if flags & ACK == 0 => append_frame(out, PING, ACK, 0, payload),
                GOAWAY => self.leave(payload)?,
                RST_STREAM if is_current => return Err(Bad::Closed),
                HEADERS if is_current => {
                    let block = content(flags, payload).ok_or(Bad::Bytes)?;
                    let block =
                        if flags & PRIORITY == 0 { block } else { block.get(5..).ok_or(Bad::Bytes)? };
                    if !is_good(block) {
                        return Err(Bad::Status(0));
                    }
                }
                DATA if is_current => {
                    self.body.extend_from_slice(content(flags, payload).ok_or(Bad::Bytes)?);
                }
                DATA | HEADERS => return Err(Bad::Bytes),
                _ => {}
            }
            if is_current && matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                let number = self.asked.take().ok_or(Bad::Bytes)?;
                if self.body != short_body(number).as_bytes() {
                    return Err(Bad::Bytes);
                }
                answered.push(number);
            }
            incoming.drain(..end);
        }
    }

    fn is_answered(&self) -> bool {
        self.asked.is_none()
    }

    fn is_last(&self) -> bool {
        self.is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_put_together_and_settings_are_acknowledged() {
        let mut talk = Http2::new("a".to_owned());
        let (mut out, mut answered) = (Vec::new(), Vec::new());
        talk.ask(&mut Numbers::of_client(0, 1), &mut out);
        assert!(out.starts_with(PREFACE) && out.ends_with(b"\x04\x0b/short?n=12\x01\x01a"), "{out:?}");
        out.clear();
        let body = short_body(12);
        let mut incoming = Vec::new();
        append_frame(&mut incoming, SETTINGS, 0, 0, &[]);
        append_frame(&mut incoming, HEADERS, END_HEADERS, 1, &[0x20, STATUS_200]);
        append_frame(&mut incoming, DATA, PADDED, 1, &[&[2], &body.as_bytes()[..5], &[0, 0]].concat());
        append_frame(&mut incoming, DATA, END_STREAM, 1, &body.as_bytes()[5..]);
        let last = incoming.split_off(incoming.len() - 3);
        assert_eq!(talk.hear(&mut incoming, &mut out, &mut answered), Ok(()));
        assert!(!talk.is_answered());
        incoming.extend(last);
        assert_eq!(talk.hear(&mut incoming, &mut out, &mut answered), Ok(()));
        assert_eq!((out.as_slice(), answered), (&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0][..], vec![12]));
    }

    #[test]
    fn other_answers_are_none() {
        let heard = |kind, flags, payload: &[u8]| {
            let mut talk = Http2::new("a".to_owned());
            talk.ask(&mut Numbers::of_client(0, 1), &mut Vec::new());
            let mut incoming = Vec::new();
            append_frame(&mut incoming, kind, flags, 1, payload);
            talk.hear(&mut incoming, &mut Vec::new(), &mut Vec::new())
        };
        assert_eq!(heard(HEADERS, END_HEADERS, &[0x8d]), Err(Bad::Status(0)));
        assert_eq!(heard(DATA, END_STREAM, short_body(19).as_bytes()), Err(Bad::Bytes));
        assert_eq!(heard(RST_STREAM, 0, &[0; 4]), Err(Bad::Closed));
        assert_eq!(heard(GOAWAY, 0, &[0; 8]), Err(Bad::Closed));
        assert_eq!(heard(GOAWAY, 0, &[0, 0, 0, 1, 0, 0, 0, 2]), Err(Bad::Closed));
    }

    #[test]
    fn a_server_that_leaves_still_answers() {
        let mut talk = Http2::new("a".to_owned());
        talk.ask(&mut Numbers::of_client(0, 1), &mut Vec::new());
        let (mut out, mut answered, mut incoming) = (Vec::new(), Vec::new(), Vec::new());
        append_frame(&mut incoming, GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        append_frame(&mut incoming, GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
        append_frame(&mut incoming, HEADERS, END_HEADERS, 1, &[STATUS_200]);
        append_frame(&mut incoming, DATA, END_STREAM, 1, short_body(12).as_bytes());
        assert_eq!(talk.hear(&mut incoming, &mut out, &mut answered), Ok(()));
        assert!(talk.is_last() && talk.is_answered());
        assert_eq!(answered, [12]);
    }
}
