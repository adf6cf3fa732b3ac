//! The body of a response, as another server sends it.

use std::io;

use switchback_http::framing::{self, Followed, Framing};
use switchback_http::{Body, Limits};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

use crate::insurable::Insurable;
use crate::repeatable::{Difference, Repeatable};
use crate::rest::{Failure, STALLED, ask};

/// Bytes that are read at once.
const AT_ONCE: usize = 256 << 10;
/// No body is longer.
const ANY: Limits = Limits { head_len: usize::MAX, fields: usize::MAX, body_len: u64::MAX };

/// What a server sends of a body.
#[derive(Debug)]
pub struct Source<S> {
    server: S,
    framing: Framing,
    /// What has come and is not taken yet.
    come: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Source<S> {
    /// The body behind its first `offset` bytes, once the server's answer has proven to be that; None if there is no more.
    /// `connect` connects to the server.
    pub async fn rest(
        connect: impl Future<Output = io::Result<S>>,
        insurable: &Insurable,
        request: &[u8],
        offset: u64,
    ) -> Result<Option<Self>, Failure> {
        let Some(request) = insurable.ask(request, offset) else { return Ok(None) };
        let accept = |answer: &[u8]| insurable.accept(answer, offset).map_err(Failure::Mismatch);
        let (server, come) = ask(connect, &request, accept).await?;
        let framing = Body::Length(insurable.body_len() - offset).framing(&ANY);
        Ok(Some(Source { server, framing, come }))
    }

    /// The body from its beginning, made once more.
    pub async fn again(
        connect: impl Future<Output = io::Result<S>>,
        repeatable: &Repeatable,
        request: &[u8],
    ) -> Result<Self, Failure> {
        let request = repeatable.ask(request).ok_or(Failure::Unproven)?;
        let accept = |answer: &[u8]| repeatable.accept(answer).map_err(Failure::Difference);
        let (server, come) = ask(connect, &request, accept).await?;
        Ok(Source { server, framing: repeatable.framing(), come })
    }

    /// Whether the body is over.
    pub fn is_over(&self) -> bool {
        self.framing.is_between_messages()
    }

    /// The next bytes of the body, at most `limit` of them, and at least one.
    pub async fn next(&mut self, limit: u64) -> Result<Vec<u8>, Failure> {
        if self.is_over() {
            // The first response was longer.
            return Err(Failure::Difference(Difference::Content));
        }
        if self.come.is_empty() {
            self.come.reserve(AT_ONCE);
            let read = timeout(STALLED, self.server.read_buf(&mut self.come)).await;
            if read.map_err(|_| Failure::Stalled)?.map_err(Failure::Server)? == 0 {
                return Err(Failure::Server(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let len = self.come.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        let rest = self.come.split_off(len);
        let mut piece = std::mem::replace(&mut self.come, rest);
        match framing::responses().follow(&mut self.framing, &piece, false) {
            Followed::More => {}
            Followed::Ends(len) => piece.truncate(len),
            Followed::Rejected(..) | Followed::Lost => return Err(Failure::Difference(Difference::NotHttp)),
        }
        Ok(piece)
    }

    /// The next `len` bytes of the body.
    pub async fn exactly(&mut self, len: usize) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::with_capacity(len);
        while all.len() < len {
            all.extend_from_slice(&self.next((len - all.len()) as u64).await?);
        }
        Ok(all)
    }
}
