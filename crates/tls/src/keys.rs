//! Keys of one direction of a connection, in a form with which another machine can go on.

use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use rustls::ConnectionTrafficSecrets;
use zeroize::Zeroizing;

use crate::Error;
use crate::record_layer::Version;

/// Of every AEAD in TLS.
pub(crate) const IV: usize = 12;
pub(crate) const TAG: usize = 16;

/// linux/tls.h
pub(crate) const TLS_1_2_VERSION: u16 = 0x0303;
pub(crate) const TLS_1_3_VERSION: u16 = 0x0304;
pub(crate) const TLS_CIPHER_AES_GCM_128: u16 = 51;
pub(crate) const TLS_CIPHER_AES_GCM_256: u16 = 52;
pub(crate) const TLS_CIPHER_CHACHA20_POLY1305: u16 = 54;

/// The AEADs that TLS 1.3 has, and those of TLS 1.2 that are still safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// Keys of 16 bytes; HKDF with SHA-256.
    Aes128Gcm = 1,
    /// Keys of 32 bytes; HKDF with SHA-384.
    Aes256Gcm = 2,
    /// Keys of 32 bytes; HKDF with SHA-256.
    Chacha20Poly1305 = 3,
}

impl Cipher {
    pub(crate) const ALL: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305];

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::Chacha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    pub(crate) fn key_len(self) -> usize {
        self.algorithm().key_len()
    }

    /// In TLS 1.2, GCM writes part of the nonce into each record (RFC 5288 section 3); ChaCha20 does not (RFC
    /// 7905).
    pub(crate) fn explicit_nonce_len(self) -> usize {
        if self == Cipher::Chacha20Poly1305 { 0 } else { 8 }
    }

    /// Number of records after which a key is updated: RFC 8446 section 5.5 has 2^24.5 for GCM.
    pub(crate) fn records_max(self) -> u64 {
        if self == Cipher::Chacha20Poly1305 { 1 << 48 } else { 1 << 24 }
    }
}

/// Keys of one direction, and the number of records that they have encrypted.
pub(crate) struct Half {
    pub(crate) cipher: Cipher,
    key: Zeroizing<Vec<u8>>,
    iv: Zeroizing<[u8; IV]>,
    /// Of TLS 1.3: the traffic secret that the next one is made of (RFC 8446 section 7.2). Empty in TLS 1.2.
    secret: Zeroizing<Vec<u8>>,
    /// Records so far.
    pub(crate) sequence: u64,
    aead: LessSafeKey,
}

/// Without keys.
impl fmt::Debug for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Half").field("cipher", &self.cipher).field("sequence", &self.sequence).finish()
    }
}

impl Half {
    pub(crate) fn new(
        cipher: Cipher,
        key: &[u8],
        iv: &[u8],
        secret: &[u8],
        sequence: u64,
    ) -> Result<Self, Error> {
        let unbound = UnboundKey::new(cipher.algorithm(), key).map_err(|_| Error::Internal)?;
        Ok(Half {
            cipher,
            key: Zeroizing::new(key.to_vec()),
            iv: Zeroizing::new(iv.try_into().map_err(|_| Error::Internal)?),
            secret: Zeroizing::new(secret.to_vec()),
            sequence,
            aead: LessSafeKey::new(unbound),
        })
    }

    /// Keys from the secrets that rustls extracts at the end of a handshake, and for TLS 1.3 the traffic
    /// secret.
    pub(crate) fn of_handshake(
        (sequence, secrets): &(u64, ConnectionTrafficSecrets),
        secret: &[u8],
    ) -> Result<Self, Error> {
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Cipher::Chacha20Poly1305, key, iv),
            _ => return Err(Error::Internal),
        };
        Half::new(cipher, key.as_ref(), iv.as_ref(), secret, *sequence)
    }

    pub(crate) fn parts(&self) -> (&[u8], &[u8], &[u8]) {
        (&self.key, &self.iv[..], &self.secret)
    }

    /// The keys in the form for the kernel: one of the `struct tls12_crypto_info_*` of linux/tls.h, which
    /// are for TLS 1.3, too.
    pub(crate) fn crypto_info(&self, version: Version) -> Zeroizing<Vec<u8>> {
        let number = match version {
            Version::Tls12 => TLS_1_2_VERSION,
            Version::Tls13 => TLS_1_3_VERSION,
        };
        let kind = match self.cipher {
            Cipher::Aes128Gcm => TLS_CIPHER_AES_GCM_128,
            Cipher::Aes256Gcm => TLS_CIPHER_AES_GCM_256,
            Cipher::Chacha20Poly1305 => TLS_CIPHER_CHACHA20_POLY1305,
        };
        let salt_len = if self.cipher == Cipher::Chacha20Poly1305 { 0 } else { IV - 8 };
        let (salt, iv) = self.iv.split_at(salt_len);
        let mut iv: Zeroizing<Vec<u8>> = Zeroizing::new(iv.to_vec());
        if version == Version::Tls12 && salt_len > 0 {
            // The kernel counts on from these, where nonces here are numbers over the IV. What differs in the
            // first bit is no nonce of ours, and the number of the record has not been there before.
            let first = !iv[0] & 0x80;
            iv.copy_from_slice(&self.sequence.to_be_bytes());
            iv[0] = iv[0] & 0x7f | first;
        }
        let mut info = Zeroizing::new(Vec::with_capacity(4 + IV + self.key.len() + 8));
        info.extend_from_slice(&number.to_ne_bytes());
        info.extend_from_slice(&kind.to_ne_bytes());
        for part in [&iv[..], &self.key, salt, &self.sequence.to_be_bytes()] {
            info.extend_from_slice(part);
        }
        info
    }

    /// The nonce of the next record: the number of the record over the IV (RFC 8446 section 5.3, and as
    /// rustls does it in TLS 1.2).
    pub(crate) fn nonce(&self) -> [u8; IV] {
        let mut nonce = *self.iv;
        for (byte, number) in nonce[IV - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        nonce
    }

    /// In TLS 1.2 with GCM: what the keys have of the nonce, and behind it what the record has.
    pub(crate) fn nonce_with(&self, explicit: &[u8]) -> [u8; IV] {
        let mut nonce = *self.iv;
        nonce[IV - explicit.len()..].copy_from_slice(explicit);
        nonce
    }

    /// Encrypts the text in place, and appends the tag.
    pub(crate) fn seal(&mut self, nonce: [u8; IV], aad: &[u8], text: &mut [u8]) -> Result<[u8; TAG], Error> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.aead.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
        self.sequence = self.sequence.checked_add(1).ok_or(Error::Internal)?;
        tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).ok_or(Error::Internal)
    }

    /// Decrypts in place, and returns the length of the text.
    pub(crate) fn open(&mut self, nonce: [u8; IV], aad: &[u8], sealed: &mut [u8]) -> Result<usize, Error> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let text = self.aead.open_in_place(nonce, Aad::from(aad), sealed).map_err(|_| Error::BadRecord)?;
        self.sequence = self.sequence.checked_add(1).ok_or(Error::Internal)?;
        Ok(text.len())
    }

    /// The keys after these (RFC 8446 section 7.2). TLS 1.2 has none.
    pub(crate) fn update(&mut self) -> Result<(), Error> {
        let length = if self.cipher == Cipher::Aes256Gcm { 48 } else { 32 };
        if self.secret.len() != length {
            return Err(Error::Internal);
        }
        let next = self.expand(&self.secret, b"traffic upd", length)?;
        let key = self.expand(&next, b"key", self.cipher.key_len())?;
        let iv = self.expand(&next, b"iv", IV)?;
        *self = Half::new(self.cipher, &key, &iv, &next, 0)?;
        Ok(())
    }

    /// HKDF-Expand-Label without a context (RFC 8446 section 7.1).
    fn expand(&self, secret: &[u8], label: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, Error> {
        struct Length(usize);
        impl KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        const PREFIX: &[u8] = b"tls13 ";
        let algorithm = if self.cipher == Cipher::Aes256Gcm { HKDF_SHA384 } else { HKDF_SHA256 };
        let parts: [&[u8]; 5] =
            [&(length as u16).to_be_bytes(), &[(PREFIX.len() + label.len()) as u8], PREFIX, label, &[0]];
        let mut out = Zeroizing::new(vec![0; length]);
        let expanded = Prk::new_less_safe(algorithm, secret);
        let expanded = expanded.expand(&parts, Length(length)).and_then(|okm| okm.fill(&mut out));
        expanded.map_err(|_| Error::Internal)?;
        Ok(out)
    }
}
