// Made from the headers in bpf/ by crates/wire/generate; edit those.
pub const SB_FRAMING_NONE: u16 = 0;
pub const SB_FRAMING_HEAD: u16 = 1;
pub const SB_FRAMING_CHUNK: u16 = 2;
pub const SB_FRAMING_TRAILER: u16 = 3;
pub const SB_FRAMING_BODY: u16 = 4;
pub const SB_FRAMING_LOST: u16 = 5;
pub const SB_FRAMING_TEXT: u16 = 6;
pub const SB_FRAMING_NAME: u16 = 7;
pub const SB_FRAMING_OTHER: u16 = 8;
pub const SB_FRAMING_SKIP: u16 = 32768;
pub const SB_FRAMING_STATES: u16 = 128;
pub const SB_FRAMING_TRAILER_MAX: u16 = 4096;
pub const SB_FRAMING_EXTENSION_MAX: u16 = 4096;
pub const SB_FRAMING_HAS_LENGTH: u8 = 1;
pub const SB_FRAMING_HAS_CHUNKED: u8 = 2;
pub const SB_FRAMING_HAS_CLOSE: u8 = 4;
pub type __u8 = ::std::os::raw::c_uchar;
pub type __u16 = ::std::os::raw::c_ushort;
pub type __u64 = ::std::os::raw::c_ulonglong;
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_framing_action {
    SB_FRAMING_GO = 0,
    SB_FRAMING_REJECT = 1,
    SB_FRAMING_HEX = 2,
    SB_FRAMING_DECIMAL = 3,
    SB_FRAMING_STATUS = 4,
    SB_FRAMING_LENGTH = 5,
    SB_FRAMING_CHUNKED = 6,
    SB_FRAMING_CHUNK_BEGINS = 7,
    SB_FRAMING_COUNT = 8,
    SB_FRAMING_HEAD_ENDS = 9,
    SB_FRAMING_ENDS = 10,
    SB_FRAMING_CLOSE = 11,
    SB_FRAMING_EXTEND = 12,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_framing {
    pub left: __u64,
    pub allowed: __u64,
    pub state: __u16,
    pub status: __u16,
    pub flags: __u8,
    pub matched: __u8,
    pub reserved: [__u8; 2usize],
}
