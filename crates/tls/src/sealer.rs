//! The writing half of a connection, apart from the connection itself, so that another node can have it for a
//! while.

use crate::Error;
use crate::keys::{Half, TAG};
use crate::record_layer::{DATA_MAX, HEADER, KEY_UPDATE, Version, content};

/// The content type of keys that the kernel gets, among records that it encrypts. TLS has none of that
/// number.
pub(crate) const KEYS: u8 = 0;

/// Encrypts data for the client, or leaves that to the kernel.
#[derive(Debug)]
pub struct Sealer {
    pub(crate) version: Version,
    pub(crate) half: Half,
    /// The kernel encrypts: records are made here as they are before that, and among them are keys
    /// ([`Half::crypto_info`]) from which it goes on. It may cut records in another way, so they are counted
    /// roughly.
    pub(crate) by_kernel: bool,
}

impl Sealer {
    pub(crate) fn new(version: Version, half: Half) -> Self {
        Sealer { version, half, by_kernel: false }
    }

    /// Bytes of a record besides its plaintext.
    pub(crate) fn overhead(&self) -> usize {
        HEADER
            + TAG
            + match self.version {
                Version::Tls13 => 1,
                Version::Tls12 => self.half.cipher.explicit_nonce_len(),
            }
    }

    /// Puts data behind `out`, in as many records as it takes.
    pub fn data(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        for piece in data.chunks(DATA_MAX) {
            if self.half.sequence >= self.half.cipher.records_max() {
                match self.version {
                    Version::Tls13 => self.update_keys(false, out)?,
                    Version::Tls12 => return Err(Error::Internal),
                }
            }
            self.record(content::DATA, piece, out)?;
        }
        Ok(())
    }

    /// Goes on with new keys; with `both`, asks the client for the same. Only in TLS 1.3.
    pub fn update_keys(&mut self, both: bool, out: &mut Vec<u8>) -> Result<(), Error> {
        self.record(content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, both.into()], out)?;
        self.half.update()?;
        if self.by_kernel {
            plain(KEYS, &self.half.crypto_info(self.version), out)?;
        }
        Ok(())
    }

    /// Puts one record behind `out`.
    pub(crate) fn record(&mut self, kind: u8, data: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if self.by_kernel {
            self.half.sequence += 1;
            return plain(kind, data, out);
        }
        let nonce = self.half.nonce();
        let start = out.len();
        let (explicit, inner) = match self.version {
            Version::Tls13 => (0, data.len() + 1),
            Version::Tls12 => (self.half.cipher.explicit_nonce_len(), data.len()),
        };
        let len = u16::try_from(explicit + inner + TAG).map_err(|_| Error::Internal)?.to_be_bytes();
        let outer = if self.version == Version::Tls13 { content::DATA } else { kind };
        let header = [outer, 3, 3, len[0], len[1]];
        out.reserve(HEADER + explicit + inner + TAG);
        out.extend_from_slice(&header);
        out.extend_from_slice(&nonce[nonce.len() - explicit..]);
        let text = out.len();
        out.extend_from_slice(data);
        let tag = match self.version {
            Version::Tls13 => {
                out.push(kind);
                self.half.seal(nonce, &header, &mut out[text..])
            }
            Version::Tls12 => {
                let aad = aad_12(self.half.sequence, kind, [3, 3], data.len());
                self.half.seal(nonce, &aad, &mut out[text..])
            }
        };
        match tag {
            Ok(tag) => out.extend_from_slice(&tag),
            Err(_) => out.truncate(start),
        }
        tag.map(|_| ())
    }
}

/// TLSPlaintext (RFC 8446 section 5.1).
fn plain(kind: u8, data: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let [high, low] = u16::try_from(data.len()).map_err(|_| Error::Internal)?.to_be_bytes();
    out.reserve(HEADER + data.len());
    out.extend_from_slice(&[kind, 3, 3, high, low]);
    out.extend_from_slice(data);
    Ok(())
}

/// RFC 5246 section 6.2.3.3.
pub(crate) fn aad_12(sequence: u64, kind: u8, version: [u8; 2], len: usize) -> [u8; 13] {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&sequence.to_be_bytes());
    aad[8] = kind;
    aad[9..11].copy_from_slice(&version);
    aad[11..].copy_from_slice(&(len as u16).to_be_bytes());
    aad
}
