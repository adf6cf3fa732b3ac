//! The end of a chunked body (RFC 9112 section 7.1).

use crate::fields::{self, Framing};
use crate::table::{self, TOKEN, VALUE};
use crate::{Limits, Reject};

/// The longest name among the fields that a trailer must not have: `transfer-encoding`.
const NAME_KEPT: usize = 17;

/// Follows a chunked body to its end. It keeps no data, only where in the grammar it is.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    state: State,
    /// What is left of [`Limits::trailer_len`].
    trailer_left: usize,
    /// What is left of [`Limits::fields`].
    fields_left: usize,
    /// The beginning of the name of the trailer field that is being read, and the length of the whole name.
    name: [u8; NAME_KEPT],
    name_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the size of a chunk, after so many digits.
    Size {
        digits: u8,
        size: u64,
    },
    /// Before the LF after the size.
    SizeLf {
        size: u64,
    },
    /// In the data of a chunk.
    Data {
        left: u64,
    },
    /// Before the CR and the LF after the data.
    DataCr,
    DataLf,
    /// At the start of a line of the trailer section, in a field's name, in its value, and before the LF
    /// after it.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// Before the LF of the empty line at the end.
    EndLf,
    End,
}

const SIZE: State = State::Size { digits: 0, size: 0 };

impl ChunkedDecoder {
    /// Stands at the start of a body.
    pub fn new(limits: &Limits) -> Self {
        ChunkedDecoder {
            state: SIZE,
            trailer_left: limits.trailer_len,
            fields_left: limits.fields,
            name: [0; NAME_KEPT],
            name_len: 0,
        }
    }

    /// Reads on in `bytes`, which follow those of the last call.
    ///
    /// Returns how many of them belong to the body if it ends in them, and `None` if all of them do and it
    /// goes on. After its end none do. After an error the decoder is of no further use.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, Reject> {
        let mut at = 0;
        while self.state != State::End {
            let Some(&c) = bytes.get(at) else { return Ok(None) };
            if let State::Data { left } = self.state {
                let here = bytes.len() - at;
                let taken = usize::try_from(left).map_or(here, |left| left.min(here));
                let left = left - taken as u64;
                self.state = if left == 0 { State::DataCr } else { State::Data { left } };
                at += taken;
            } else {
                self.state = self.step(c)?;
                at += 1;
            }
        }
        Ok(Some(at))
    }

    /// The state after `c`, which is none of a chunk's data.
    fn step(&mut self, c: u8) -> Result<State, Reject> {
        match self.state {
            State::Size { digits, size } => match (c, char::from(c).to_digit(16)) {
                (_, Some(digit)) => {
                    // The 16th digit is the last for which there is room, and the top bit has to stay free.
                    let size = size << 4 | u64::from(digit);
                    if digits == 16 || size > i64::MAX as u64 {
                        return Err(Reject::InvalidChunkSize);
                    }
                    Ok(State::Size { digits: digits + 1, size })
                }
                (b'\r', _) if digits > 0 => Ok(State::SizeLf { size }),
                (b';', _) if digits > 0 => Err(Reject::ChunkExtension),
                (b'\n', _) if digits > 0 => Err(Reject::BareLf),
                _ => Err(Reject::InvalidChunkSize),
            },
            State::SizeLf { size } => {
                expect(c, b'\n', Reject::BareCr)?;
                Ok(if size == 0 { State::TrailerStart } else { State::Data { left: size } })
            }
            State::DataCr => {
                expect(c, b'\r', Reject::InvalidChunkEnd)?;
                Ok(State::DataLf)
            }
            State::DataLf => {
                expect(c, b'\n', Reject::InvalidChunkEnd)?;
                Ok(SIZE)
            }
            _ => {
                self.trailer_left = self.trailer_left.checked_sub(1).ok_or(Reject::TrailerTooLong)?;
                self.trailer_step(c)
            }
        }
    }

    fn trailer_step(&mut self, c: u8) -> Result<State, Reject> {
        match self.state {
            State::TrailerStart if c == b'\r' => Ok(State::EndLf),
            State::TrailerStart => {
                if !table::is(TOKEN, c) {
                    return Err(fields::not_a_name(c, true));
                }
                self.fields_left = self.fields_left.checked_sub(1).ok_or(Reject::TooManyFields)?;
                self.name[0] = c;
                self.name_len = 1;
                Ok(State::TrailerName)
            }
            State::TrailerName if c == b':' => {
                let name = self.name.get(..self.name_len).unwrap_or_default();
                match fields::framing(name)? {
                    None => Ok(State::TrailerValue),
                    Some(Framing::Host | Framing::ContentLength | Framing::TransferEncoding) => {
                        Err(Reject::ForbiddenTrailer)
                    }
                }
            }
            State::TrailerName => {
                if !table::is(TOKEN, c) {
                    return Err(fields::not_a_name(c, false));
                }
                if let Some(place) = self.name.get_mut(self.name_len) {
                    *place = c;
                }
                self.name_len += 1;
                Ok(State::TrailerName)
            }
            State::TrailerValue => match c {
                b'\r' => Ok(State::TrailerLf),
                b'\n' => Err(Reject::BareLf),
                _ if table::is(VALUE, c) => Ok(State::TrailerValue),
                _ => Err(Reject::InvalidFieldValue),
            },
            State::TrailerLf => {
                expect(c, b'\n', Reject::BareCr)?;
                Ok(State::TrailerStart)
            }
            _ => {
                expect(c, b'\n', Reject::BareCr)?;
                Ok(State::End)
            }
        }
    }
}

fn expect(c: u8, expected: u8, otherwise: Reject) -> Result<(), Reject> {
    if c == expected { Ok(()) } else { Err(otherwise) }
}
