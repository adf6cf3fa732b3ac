//! Records after the handshake (RFC 8446 section 5, RFC 5246 section 6.2).
//!
//! rustls does the handshake and gives its secrets out; from there on records are read and written here,
//! because what goes on at another node has to be whole in our hands: keys, numbers, what has been read and
//! not used. It is little: one content type that matters, alerts, and updates of keys.

use std::ops::Range;

use crate::Error;
use crate::keys::{Half, TAG};
use crate::record_layer::{DATA_MAX, HEADER, KEY_UPDATE, Version, content};
use crate::sealer::{Sealer, aad_12};

/// Alerts (RFC 8446 section 6) and the handshake message that begins a renegotiation.
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
const NO_RENEGOTIATION: u8 = 100;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const CLIENT_HELLO: u8 = 1;

/// Most bytes of a protected record (RFC 8446 section 5.2, RFC 5246 section 6.2.3).
const SEALED_MAX: usize = DATA_MAX + 256;
const SEALED_MAX_12: usize = DATA_MAX + 2048;
/// The longest handshake message that is waited for: the only one that has a place has 5 bytes.
const MESSAGE_MAX: usize = 1 << 14;
/// Most empty records in a row.
const EMPTY_MAX: u32 = 32;

/// A connection whose handshake is over.
#[derive(Debug)]
pub struct Records {
    pub(crate) version: Version,
    pub(crate) read: Half,
    /// None while another node writes.
    pub(crate) write: Option<Sealer>,
    /// Whether the client has asked that node for a key update.
    pub(crate) owes_update: bool,
    /// The client says nothing more, and we do not.
    pub(crate) read_closed: bool,
    pub(crate) write_closed: bool,
    /// A handshake message that has not ended with its record.
    pub(crate) message: Vec<u8>,
    /// Empty records in a row.
    empty: u32,
    /// Whether a new handshake has been declined.
    declined: bool,
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Data, at this place of the bytes that were read.
    Data(Range<usize>),
    /// A message of TLS itself.
    Nothing,
    /// close_notify.
    Closed,
}

impl Records {
    pub(crate) fn new(version: Version, read: Half, write: Half) -> Self {
        Records {
            version,
            read,
            write: Some(Sealer::new(version, write)),
            owes_update: false,
            read_closed: false,
            write_closed: false,
            message: Vec::new(),
            empty: 0,
            declined: false,
        }
    }

    /// Version of TLS.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the client has sent close_notify.
    pub fn is_read_closed(&self) -> bool {
        self.read_closed
    }

    /// Whether nothing more can be sent.
    pub fn is_write_closed(&self) -> bool {
        self.write_closed
    }

    /// Opens the first record of `incoming` in place, and returns its length; None if it is incomplete.
    /// Answers are appended to `out`.
    pub fn open(&mut self, incoming: &mut [u8], out: &mut Vec<u8>) -> Result<Option<(usize, Opened)>, Error> {
        if self.read_closed {
            // RFC 8446 section 6.1: whatever comes after that is ignored.
            return Ok((!incoming.is_empty()).then_some((incoming.len(), Opened::Nothing)));
        }
        let Some((header, rest)) = incoming.split_first_chunk_mut::<HEADER>() else { return Ok(None) };
        let header = *header;
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        let longest = if self.version == Version::Tls13 { SEALED_MAX } else { SEALED_MAX_12 };
        if header[1] != 3 {
            return Err(Error::Decode);
        }
        if len > longest {
            return Err(Error::Overflow);
        }
        let Some(sealed) = rest.get_mut(..len) else { return Ok(None) };
        let taken = HEADER + len;
        let (kind, text) = match self.version {
            Version::Tls13 => self.open_13(&header, sealed)?,
            Version::Tls12 => self.open_12(&header, sealed)?,
        };
        let text = HEADER + text.start..HEADER + text.end;
        if kind != content::HANDSHAKE && !self.message.is_empty() {
            return Err(Error::Unexpected);
        }
        let opened = match kind {
            content::DATA if text.is_empty() => self.nothing()?,
            content::DATA => {
                self.empty = 0;
                Opened::Data(text)
            }
            content::ALERT => self.on_alert(&incoming[text])?,
            content::HANDSHAKE => self.on_handshake(&incoming[text], out)?,
            _ => return Err(Error::Unexpected),
        };
        Ok(Some((taken, opened)))
    }

    /// Content type of the record, and the place of its content.
    fn open_13(&mut self, header: &[u8; HEADER], sealed: &mut [u8]) -> Result<(u8, Range<usize>), Error> {
        if header[0] != content::DATA {
            return Err(Error::Unexpected);
        }
        let nonce = self.read.nonce();
        let len = self.read.open(nonce, header, sealed)?;
        let end = sealed[..len].iter().rposition(|byte| *byte != 0).ok_or(Error::Unexpected)?;
        if len > DATA_MAX + 1 {
            return Err(Error::Overflow);
        }
        Ok((sealed[end], 0..end))
    }

    fn open_12(&mut self, header: &[u8; HEADER], sealed: &mut [u8]) -> Result<(u8, Range<usize>), Error> {
        if header[0] == content::CHANGE_CIPHER_SPEC {
            return Err(Error::Unexpected);
        }
        let explicit = self.read.cipher.explicit_nonce_len();
        if sealed.len() < explicit + TAG {
            return Err(Error::BadRecord);
        }
        let (explicit_nonce, sealed) = sealed.split_at_mut(explicit);
        let nonce = if explicit == 0 { self.read.nonce() } else { self.read.nonce_with(explicit_nonce) };
        let len = sealed.len() - TAG;
        if len > DATA_MAX {
            return Err(Error::Overflow);
        }
        let aad = aad_12(self.read.sequence, header[0], [header[1], header[2]], len);
        self.read.open(nonce, &aad, sealed)?;
        Ok((header[0], explicit..explicit + len))
    }

    fn nothing(&mut self) -> Result<Opened, Error> {
        self.empty += 1;
        if self.empty > EMPTY_MAX { Err(Error::Flood) } else { Ok(Opened::Nothing) }
    }

    fn on_alert(&mut self, alert: &[u8]) -> Result<Opened, Error> {
        let (level, number) = match *alert {
            [level, number] => (level, number),
            // RFC 8446 section 5.4.
            [] => return Err(Error::Unexpected),
            _ => return Err(Error::Decode),
        };
        match number {
            CLOSE_NOTIFY => {
                self.read_closed = true;
                Ok(Opened::Closed)
            }
            // It announces a close_notify (RFC 8446 section 6.1).
            USER_CANCELED => self.nothing(),
            // In TLS 1.3 all others are fatal, whatever their level says.
            _ if level == WARNING && self.version == Version::Tls12 => self.nothing(),
            _ => Err(Error::Alert(number)),
        }
    }

    fn on_handshake(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<Opened, Error> {
        if data.is_empty() {
            return Err(Error::Unexpected);
        }
        self.message.extend_from_slice(data);
        let allowed = if self.version == Version::Tls13 { KEY_UPDATE } else { CLIENT_HELLO };
        if self.message[0] != allowed {
            return Err(Error::Unexpected);
        }
        let Some(header) = self.message.first_chunk::<4>() else { return self.nothing() };
        let whole = 4 + (u32::from_be_bytes(*header) & 0xff_ffff) as usize;
        if whole > MESSAGE_MAX {
            return Err(Error::Decode);
        }
        if self.message.len() < whole {
            return self.nothing();
        }
        let message = std::mem::take(&mut self.message);
        if self.version == Version::Tls12 {
            // Once is answered with a warning, as RFC 5246 section 7.2.2 has it.
            if std::mem::replace(&mut self.declined, true) {
                return Err(Error::Unexpected);
            }
            // While another node writes, it is declined by silence, which that section allows as well.
            if let Some(sealer) = &mut self.write {
                sealer.record(content::ALERT, &[WARNING, NO_RENEGOTIATION], out)?;
            }
            return self.nothing();
        }
        // Keys change behind it, so nothing may follow in its record (RFC 8446 section 5.1).
        let [_, 0, 0, 1, wanted] = message[..] else { return Err(Error::Decode) };
        if message.len() != whole {
            return Err(Error::Unexpected);
        }
        match wanted {
            0 => {}
            1 => match &mut self.write {
                Some(sealer) => sealer.update_keys(false, out)?,
                None => self.owes_update = true,
            },
            _ => return Err(Error::Decode),
        }
        self.read.update()?;
        self.nothing()
    }

    /// The writing half; an error while another node has it.
    pub(crate) fn sealer(&mut self) -> Result<&mut Sealer, Error> {
        self.write.as_mut().ok_or(Error::Internal)
    }

    /// Appends close_notify.
    pub fn close(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        if std::mem::replace(&mut self.write_closed, true) {
            return Ok(());
        }
        self.sealer()?.record(content::ALERT, &[WARNING, CLOSE_NOTIFY], out)
    }

    /// Appends the alert for an error.
    pub fn alert(&mut self, error: &Error, out: &mut Vec<u8>) {
        let Some(number) = error.alert().filter(|_| !self.write_closed) else { return };
        self.write_closed = true;
        // Without keys there is nobody to tell.
        let _ = self.sealer().and_then(|sealer| sealer.record(content::ALERT, &[FATAL, number], out));
    }
}
