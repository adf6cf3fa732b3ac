//! The client of a request, as an exchange with a server sees it.

use std::fmt;
use std::io;
use std::task::{Context, Poll};

use switchback_resume::Pipe;

use super::head::ResponseHead;
use crate::Error;

/// Encrypted bytes above which no more are encrypted until the client has taken some.
pub(super) const UNSENT_MAX: usize = 64 << 10;

/// Why a connection ends before its time.
#[derive(Debug)]
pub enum StreamError {
    /// An error of TLS.
    Tls(Error),
    /// An error of the socket.
    Io(io::Error),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Tls(error) => error.fmt(f),
            StreamError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        StreamError::Io(error)
    }
}

impl From<Error> for StreamError {
    fn from(error: Error) -> Self {
        StreamError::Tls(error)
    }
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Io(error) => error,
            StreamError::Tls(error) => io::Error::new(io::ErrorKind::InvalidData, error),
        }
    }
}

/// The client of a request: one of this node, or of another one.
pub(super) trait Client {
    /// Data that has come and has not been taken.
    fn data(&self) -> &[u8];
    /// Takes bytes of it.
    fn consume(&mut self, len: usize) -> Result<(), StreamError>;
    /// Whether there is room for more.
    fn wants_more(&self) -> bool;
    /// Waits for more; false if the client has ended.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, StreamError>>;
    /// Sends data, as soon as there is room.
    fn send(&mut self, data: &[u8]) -> Result<(), StreamError>;
    /// Announces a response with this head, which is sent next.
    fn begins(&mut self, _head: &ResponseHead, _text: &[u8]) {}
    /// Bytes that have not been sent for want of room.
    fn unsent(&mut self) -> usize;
    /// Whether so much has not been sent that there should be no more.
    fn is_full(&mut self) -> bool {
        self.unsent() >= UNSENT_MAX
    }
    /// Waits until all bytes have been sent.
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Waits until the last bytes of a connection have been sent, or may be left to its end.
    fn poll_last(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_out(cx)
    }

    /// Whether the kernel encrypts, so that data can be [spliced](Self::poll_splice).
    fn can_splice(&self) -> bool {
        false
    }
    /// Waits until there is room for some of the data in a pipe, and sends it. Nothing else is unsent.
    fn poll_splice(&mut self, _cx: &mut Context<'_>, _pipe: &mut Pipe) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Reads data, if there is room; true if some came. `ended` is set at the end.
    fn fill(&mut self, cx: &mut Context<'_>, ended: &mut bool) -> Result<bool, StreamError> {
        if *ended || !self.wants_more() {
            return Ok(false);
        }
        match self.poll_fill(cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(filled) => {
                *ended = !filled?;
                Ok(true)
            }
        }
    }

    /// Sends as much as there is room for; true if some was sent.
    fn write_out(&mut self, cx: &mut Context<'_>) -> Result<bool, StreamError> {
        let unsent = self.unsent();
        if unsent == 0 {
            return Ok(false);
        }
        let _ = self.poll_write_out(cx)?;
        Ok(self.unsent() < unsent)
    }
}
