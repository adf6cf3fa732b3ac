//! Numbers of the record layer (RFC 8446 section 5, RFC 5246 section 6.2).

/// Content types (RFC 8446 section 5.1).
pub(crate) mod content {
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    pub const ALERT: u8 = 21;
    pub const HANDSHAKE: u8 = 22;
    pub const DATA: u8 = 23;
}

/// Handshake message that announces new keys (RFC 8446 section 4.6.3).
pub(crate) const KEY_UPDATE: u8 = 24;
/// Length of a record's header.
pub(crate) const HEADER: usize = 5;
/// Most data of one record.
pub(crate) const DATA_MAX: usize = 1 << 14;

/// Version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2, RFC 5246, with AEADs only.
    Tls12 = 2,
    /// TLS 1.3, RFC 8446.
    Tls13 = 3,
}

impl Version {
    /// Name, as openssl writes it.
    pub fn name(self) -> &'static str {
        match self {
            Version::Tls12 => "TLSv1.2",
            Version::Tls13 => "TLSv1.3",
        }
    }
}
