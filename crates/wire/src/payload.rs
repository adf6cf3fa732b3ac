//! The bytes of an option's payload.

/// Length of a payload in bytes, `SB_PAYLOAD_LEN`.
const LEN: usize = 40;

/// The bytes of a payload, in the layout of the operation's structure (see [`members`](crate::members)).
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Payload(pub(crate) [u8; LEN]);

impl Default for Payload {
    fn default() -> Self {
        Payload([0; LEN])
    }
}
