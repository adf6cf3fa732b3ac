//! The trailer sections of clients' requests, without the fields that only this endpoint may set (RFC 9112 section 7.1.2).

use switchback_http::framing::{self, Followed};

use super::exchange::RequestBody;
use super::head::Told;

/// A request's body on its way to the server.
#[derive(Default)]
pub(super) struct Trailers {
    /// The line under way in the trailer section; None before that.
    line: Option<Vec<u8>>,
}

impl Trailers {
    /// Appends the part of `data` that belongs to the body to `out`, and returns its length; an error if the body is malformed.
    pub(super) fn pass(
        &mut self,
        body: &mut RequestBody,
        data: &[u8],
        told: Told,
        out: &mut Vec<u8>,
    ) -> Result<usize, ()> {
        let Some(framing) = &mut body.0 else {
            out.extend_from_slice(data);
            return Ok(data.len());
        };
        let mut at = 0;
        while at < data.len() && !framing.is_between_messages() {
            let skipped = framing.skip((data.len() - at) as u64) as usize;
            if skipped > 0 {
                out.extend_from_slice(&data[at..at + skipped]);
                at += skipped;
                continue;
            }
            let byte = &data[at..=at];
            if let Followed::Rejected(..) | Followed::Lost = framing::requests().follow(framing, byte, false)
            {
                return Err(());
            }
            at += 1;
            self.line.as_mut().unwrap_or(out).extend_from_slice(byte);
            if framing.is_at_trailer() || framing.is_between_messages() {
                let line = self.line.replace(Vec::new()).unwrap_or_default();
                if !told.replaces_line(&line) {
                    out.extend_from_slice(&line);
                }
            }
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use switchback_config::ClientAddress;
    use switchback_http::{Body, Limits};

    use super::*;

    /// What the server gets if `data` comes in pieces of so many bytes.
    fn passed(body: Body, data: &str, piece: usize, certificates: bool) -> Result<(String, usize), ()> {
        let told = Told { address: ClientAddress::Nothing, certificates };
        let mut body = RequestBody(Some(body.framing(&Limits::default())));
        let (mut trailers, mut out, mut len) = (Trailers::default(), Vec::new(), 0);
        for piece in data.as_bytes().chunks(piece) {
            len += trailers.pass(&mut body, piece, told, &mut out)?;
            if body.is_whole() {
                break;
            }
        }
        Ok((String::from_utf8(out).unwrap(), len))
    }

    #[test]
    fn no_field_of_ours_is_in_a_trailer_section() {
        let chunks = "5\r\nhello\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n";
        let sent =
            format!("{chunks}A: b\r\nClient-Cert: :AA==:\r\nX_CLIENT_cert-Subject: CN=eve\r\nC: d\r\n\r\n");
        let expected = format!("{chunks}A: b\r\nC: d\r\n\r\n");
        for piece in 1..sent.len() + 7 {
            let next = format!("{sent}GET / ");
            assert_eq!(passed(Body::Chunked, &next, piece, true), Ok((expected.clone(), sent.len())));
            assert_eq!(passed(Body::Chunked, &next, piece, false), Ok((sent.clone(), sent.len())));
            assert_eq!(passed(Body::Length(9), &next, piece, true), Ok((sent[..9].to_owned(), 9)));
        }
        assert_eq!(passed(Body::Chunked, "0\r\nHost: a\r\n\r\n", 20, true), Err(()));
    }
}
