//! Reads the fields of a message in order.

use crate::Reject;

/// Remaining bytes of a structure in TLS's presentation language (RFC 8446 section 3).
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

    /// Takes a number of `len` bytes.
    pub(crate) fn number(&mut self, len: usize) -> Result<usize, Reject> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Takes a vector with a length prefix of `len` bytes.
    pub(crate) fn vector(&mut self, len: usize) -> Result<&'a [u8], Reject> {
        let len = self.number(len)?;
        self.take(len)
    }

    /// Takes a non-empty vector with a length prefix of `len` bytes.
    pub(crate) fn filled(&mut self, len: usize) -> Result<&'a [u8], Reject> {
        Some(self.vector(len)?).filter(|taken| !taken.is_empty()).ok_or(Reject::Malformed)
    }

    /// Splits the rest into non-empty vectors, at least one.
    pub(crate) fn each_filled(mut self, len: usize) -> Result<Vec<&'a [u8]>, Reject> {
        let mut all = Vec::new();
        loop {
            all.push(self.filled(len)?);
            if self.is_empty() {
                return Ok(all);
            }
        }
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<(), Reject> {
        if self.is_empty() { Ok(()) } else { Err(Reject::Malformed) }
    }
}
