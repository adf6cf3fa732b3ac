//! Takes the parts of a message from its front.

use crate::Reject;

/// The rest of a text in TLS's presentation language (RFC 8446 section 3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Reject> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Reject::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of so many bytes.
    pub(crate) fn number(&mut self, len: usize) -> Result<usize, Reject> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// A vector whose length stands before it in so many bytes.
    pub(crate) fn vector(&mut self, len: usize) -> Result<&'a [u8], Reject> {
        let len = self.number(len)?;
        self.take(len)
    }

    /// Likewise, of which there has to be something.
    pub(crate) fn filled(&mut self, len: usize) -> Result<&'a [u8], Reject> {
        Some(self.vector(len)?).filter(|taken| !taken.is_empty()).ok_or(Reject::Malformed)
    }

    /// The vectors that the text consists of, none of them empty; at least one.
    pub(crate) fn each_filled(mut self, len: usize) -> Result<Vec<&'a [u8]>, Reject> {
        let mut all = Vec::new();
        loop {
            all.push(self.filled(len)?);
            if self.is_empty() {
                return Ok(all);
            }
        }
    }

    /// There must be nothing left.
    pub(crate) fn end(self) -> Result<(), Reject> {
        if self.is_empty() { Ok(()) } else { Err(Reject::Malformed) }
    }
}
