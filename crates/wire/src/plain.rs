//! Conversion of map formats to bytes and back.

use crate::generated::*;

/// Types without padding, pointers or invalid bit patterns: any bytes of the right length are a value.
///
/// # Safety
///
/// The implementor must be `repr(C)`, have no padding, and accept every bit pattern.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ty),+) => {
        $(
            // SAFETY: made by bindgen as repr(C) of integers, arrays of them, and `Framing` and `Payload`, which are
            // such structures; the header pads by named fields, and the test `formats_have_no_padding` adds the fields
            // up.
            unsafe impl $crate::Plain for $name {}
        )+
    };
}
pub(crate) use plain;

plain!(
    sb_shim,
    sb_option,
    sb_flow,
    sb_tag_input,
    sb_endpoint,
    sb_server,
    sb_masquerade,
    sb_away,
    sb_vip,
    sb_guard,
    sb_client_network,
    sb_bucket,
    sb_taking,
    sb_switch_settings,
    sb_flow_entry,
    sb_node,
    sb_record,
    sb_node_settings,
    sb_ended,
    sb_owned,
    sb_persistence,
    sb_closed,
    sb_heads,
    sb_insurable,
    sb_insurable_end,
    sb_insured,
    sb_heirs,
    sb_fingerprint,
    sb_heard_fingerprint,
    sb_told_fingerprint,
    sb_sized,
    sb_records,
    sb_fact,
    sb_listed,
    sb_switch_heard,
    sb_seen,
    sb_judged,
    sb_judgment,
    sb_asking,
    sb_listener,
    sb_node_address,
    sb_node_here,
    sb_pool_here,
    sb_express_request,
    sb_second,
    sb_load,
    sb_listening_switch,
    sb_stalled,
    sb_adopting,
    sb_client_key_input,
    sb_introduction,
    sb_introduction_input,
    sb_node_clients,
    sb_network,
    sb_client_settings,
    sb_client_keys,
    sb_direct_flow,
    sb_direct_node
);

/// The value's memory.
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` has no padding, so every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// A value from the start of `bytes`; None when they are too few.
pub fn read_from<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: enough bytes, any pattern is a value, and the read does not assume alignment.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
