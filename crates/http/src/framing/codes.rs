//! Short names of the states, flags and actions of a table.

use super::generated::sb_framing_action::*;
pub(super) use super::generated::{
    SB_FRAMING_BODY as BODY, SB_FRAMING_CHUNK as CHUNK, SB_FRAMING_HAS_CHUNKED as HAS_CHUNKED,
    SB_FRAMING_HAS_CLOSE as HAS_CLOSE, SB_FRAMING_HAS_LENGTH as HAS_LENGTH, SB_FRAMING_HEAD as HEAD,
    SB_FRAMING_LOST as LOST, SB_FRAMING_NAME as NAME, SB_FRAMING_NONE as NONE, SB_FRAMING_OTHER as OTHER,
    SB_FRAMING_SKIP as SKIP, SB_FRAMING_TEXT as TEXT, SB_FRAMING_TRAILER as TRAILER,
};

pub(super) const GO: u16 = SB_FRAMING_GO as u16;
pub(super) const REJECT: u16 = SB_FRAMING_REJECT as u16;
pub(super) const HEX: u16 = SB_FRAMING_HEX as u16;
pub(super) const DECIMAL: u16 = SB_FRAMING_DECIMAL as u16;
pub(super) const STATUS: u16 = SB_FRAMING_STATUS as u16;
pub(super) const LENGTH: u16 = SB_FRAMING_LENGTH as u16;
pub(super) const CHUNKED: u16 = SB_FRAMING_CHUNKED as u16;
pub(super) const CHUNK_BEGINS: u16 = SB_FRAMING_CHUNK_BEGINS as u16;
pub(super) const COUNT: u16 = SB_FRAMING_COUNT as u16;
pub(super) const HEAD_ENDS: u16 = SB_FRAMING_HEAD_ENDS as u16;
pub(super) const ENDS: u16 = SB_FRAMING_ENDS as u16;
pub(super) const CLOSE: u16 = SB_FRAMING_CLOSE as u16;
pub(super) const EXTEND: u16 = SB_FRAMING_EXTEND as u16;
