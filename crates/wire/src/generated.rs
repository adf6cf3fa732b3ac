// Made from the headers in bpf/ by crates/wire/generate; edit those.
use switchback_http::framing::Framing as sb_framing;
use crate::payload::Payload as sb_payload;

pub const SB_GENEVE_PORT: u32 = 6081;
pub const SB_OPTION_CLASS: u32 = 65371;
pub const SB_OPTION_TYPE: u32 = 129;
pub const SB_TTL: u32 = 64;
pub const SB_VERSION: u8 = 2;
pub const SB_VERSION_USUAL: u8 = 1;
pub const SB_VERSION_GROWN: u8 = 2;
pub const SB_CLOCK_SHIFT: u32 = 20;
pub const SB_EPOCH_SHIFT: u32 = 12;
pub const SB_NUMBER_MIN: u32 = 256;
pub const SB_QUEUE_WHOLE: u32 = 100;
pub const SB_WINDOW: u32 = 64240;
pub const SB_SYN_WSCALE: u32 = 1;
pub const SB_SYN_SACK: u32 = 2;
pub const SB_SYN_TSTAMP: u32 = 4;
pub const SB_SYN_ECN: u32 = 8;
pub const SB_SYN_ALL: u32 = 15;
pub const SB_ROUND_TRIP_SHIFT: u32 = 4;
pub const SB_HANDOVER_REQUEST: u32 = 1;
pub const SB_HANDOVER_READ: u32 = 2;
pub const SB_HANDOVER_LAST: u32 = 4;
pub const SB_HANDOVER_AGAIN: u32 = 8;
pub const SB_HANDOVER_AHEAD: u32 = 16;
pub const SB_HANDOVER_RESUME: u32 = 32;
pub const SB_RELEASE_ABORT: u32 = 1;
pub const SB_HELLO_FACTS: u32 = 1;
pub const SB_HELLO_DRAIN: u32 = 2;
pub const SB_RESUME_GONE: u32 = 1;
pub const SB_PROBE_KEPT: u32 = 1;
pub const SB_FLOWS_LAST: u32 = 1;
pub const SB_DIRECT_ASK: u32 = 1;
pub const SB_GENEVE_OAM: u32 = 128;
pub const SB_GENEVE_CRITICAL: u32 = 64;
pub const SB_MARK_TUNNEL: u16 = 16384;
pub const SB_MARK_UPGRADING: u16 = 8192;
pub const SB_MARK_RESUMED: u16 = 4096;
pub const SB_GENERATION_SWITCH_BITS: u32 = 6;
pub const SB_GENERATION_ATTEMPT_BITS: u32 = 8;
pub const SB_PAYLOAD_LEN: u32 = 40;
pub const SB_SECOND_TYPE: u32 = 2;
pub const SB_SECOND_USED: u32 = 3;
pub const SB_TAGGED_LEN: u32 = 44;
pub const SB_TCPOPT_EXPERIMENT: u32 = 253;
pub const SB_INTRODUCTION_ID: u32 = 23489;
pub const SB_FINGERPRINT_PORT: u32 = 6082;
pub const SB_FINGERPRINT_MAGIC: u32 = 1531314177;
pub const SB_FINGERPRINT_TAG: u64 = 8386097640611604850;
pub const SB_NAME_MAX: u32 = 32;
pub const SB_INSTANCES: u32 = 1024;
pub const SB_COOKIE_SWITCHES: u32 = 16;
pub const SB_OF_CONNECTIONS: u32 = 0;
pub const SB_OF_REQUESTS: u32 = 1;
pub const SB_EACH_CLIENT: u32 = 0;
pub const SB_ALL_CLIENTS: u32 = 1;
pub const SB_GUARDS: u32 = 512;
pub const SB_LISTED: u32 = 2097152;
pub const SB_CELL_V4: u32 = 24;
pub const SB_CELL_V6: u32 = 40;
pub const SB_MARKS_BITS: u32 = 22;
pub const SB_OTHERS_UNKNOWN: u32 = 0;
pub const SB_OTHERS_ADMITTED: u32 = 1;
pub const SB_OTHERS_REFUSED: u32 = 2;
pub const SB_CELL_IS_V4: u64 = 1099511627776;
pub const SB_CELL_LISTED: u32 = 41;
pub const SB_CELL_FACTOR: u64 = 6364136223846793005;
pub const SB_WISHES: u32 = 4;
pub const SB_STEP_MAX: u32 = 536870912;
pub const SB_STEP_NEAR: u32 = 268435456;
pub const SB_STEP_LATE: u32 = 67108864;
pub const SB_SENDS_TX: u32 = 1;
pub const SB_SENDS_REDIRECT: u32 = 2;
pub const SB_NODES: u32 = 8192;
pub const SB_EXPRESS_HEAD_MAX: u32 = 600;
pub const SB_EXPRESS_STATES: u32 = 4096;
pub const SB_EXPRESS_COLUMNS: u32 = 128;
pub const SB_EXPRESS_VERDICTS: u32 = 65536;
pub const SB_EXPRESS_POOLS: u32 = 512;
pub const SB_EXPRESS_SERVICES: u32 = 256;
pub const SB_EXPRESS_STATE: u32 = 4095;
pub const SB_EXPRESS_EVENT: u32 = 61440;
pub const SB_EXPRESS_END_OF_TARGET: u32 = 4096;
pub const SB_EXPRESS_END_OF_HOST: u32 = 8192;
pub const SB_EXPRESS_KEEP_ALIVE: u32 = 12288;
pub const SB_EXPRESS_ACCEPT: u32 = 16384;
pub const SB_EXPRESS_LAST: u32 = 32768;
pub const SB_EXPRESS_NO_POOL: u32 = 65535;
pub const SB_L7_THREADS: u32 = 64;
pub const SB_CHOICES: u32 = 128;
pub const SB_CHOICE_QUEUES: u32 = 512;
pub const SB_CHOICE_PLACES: u32 = 32768;
pub const SB_NO_CHOICES: u32 = 65535;
pub const SB_LISTENERS: u32 = 256;
pub const SB_OBSERVE_NOTHING: u32 = 0;
pub const SB_OBSERVE_REQUESTS: u32 = 1;
pub const SB_RECORD_SMALL: u32 = 448;
pub const SB_RECORD_LARGE: u32 = 1984;
pub const SB_NODES_HERE: u32 = 256;
pub const SB_VIP_HELD: u32 = 1;
pub const SB_VIP_SWITCHED: u32 = 2;
pub const SB_SKB_MARK_SWITCH: u32 = 1526726672;
pub const SB_ADOPTING_SLOTS: u32 = 256;
pub const SB_KEYWORD: &[u8; 3] = b"SB\0";
pub const SB_CODE_LEN: u32 = 8;
pub const SB_SET_COOKIE_MAX: u32 = 256;
pub const SB_CHANGED_MAX: u32 = 4;
pub const SB_HEADS: u32 = 256;
pub const SB_AWAY_CLIENT_FIN: u32 = 1;
pub const SB_AWAY_SERVER_FIN: u32 = 2;
pub const SB_AWAY_RESET: u32 = 4;
pub const SB_INSURE_REPORTED: u32 = 2147483648;
pub const SB_INSURE_RESUMED: u32 = 1073741824;
pub const SB_INSURE_FINGERPRINTED: u32 = 536870912;
pub const SB_INSURE_NEVER: u32 = 536870911;
pub const SB_INSURE_AGAIN: u32 = 262144;
pub const SB_INSURED_REQUEST: u32 = 4096;
pub const SB_INSURED_RESPONSE: u32 = 2048;
pub const SB_INSURED_UNKNOWN: u64 = 4611686018427387904;
pub const SB_HEIRS: u32 = 2;
pub type __u8 = ::std::os::raw::c_uchar;
pub type __s16 = ::std::os::raw::c_short;
pub type __u16 = ::std::os::raw::c_ushort;
pub type __u32 = ::std::os::raw::c_uint;
pub type __s64 = ::std::os::raw::c_longlong;
pub type __u64 = ::std::os::raw::c_ulonglong;
pub type __be16 = __u16;
pub type __be32 = __u32;
pub type __be64 = __u64;
#[repr(C)]
#[repr(align(4))]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_flow {
    pub client: [__u8; 16usize],
    pub vip: [__u8; 16usize],
    pub client_port: __be16,
    pub vip_port: __be16,
}
#[repr(C)]
#[repr(align(4))]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_endpoint {
    pub address: [__u8; 16usize],
    pub port: __be16,
    pub reserved: __u16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_network {
    pub prefix_len: __u32,
    pub address: [__u8; 16usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_key {
    pub k0: __u64,
    pub k1: __u64,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_op {
    SB_OP_ADOPT = 1,
    SB_OP_FORWARD = 2,
    SB_OP_RELEASE = 3,
    SB_OP_PROBE = 4,
    SB_OP_ICMP = 5,
    SB_OP_CONFIRM = 6,
    SB_OP_HELLO = 7,
    SB_OP_SYNC = 9,
    SB_OP_KEEP = 10,
    SB_OP_RESTORE = 11,
    SB_OP_DEAD = 12,
    SB_OP_DIRECT = 8,
    SB_OP_ADOPTED = 16,
    SB_OP_REFUSED = 17,
    SB_OP_RELEASED = 18,
    SB_OP_BUSY = 19,
    SB_OP_CLOSED = 20,
    SB_OP_OWNED = 21,
    SB_OP_CONFIRMED = 22,
    SB_OP_REPORT = 23,
    SB_OP_SIZED = 24,
    SB_OP_FACTS = 28,
    SB_OP_FLOWS = 33,
    SB_OP_SWITCHES = 34,
    SB_OP_UNOWNED = 30,
    SB_OP_UNREAD = 32,
    SB_OP_SYNCED = 31,
    SB_OP_KEPT = 35,
    SB_OP_RESTORED = 36,
    SB_OP_MOVE = 29,
    SB_OP_RESUME = 37,
    SB_OP_HEARD = 25,
    SB_OP_GONE = 26,
    SB_OP_TUNNELED = 27,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_reason {
    SB_REASON_NONE = 0,
    SB_REASON_QUEUE_FULL = 1,
    SB_REASON_NO_LISTENER = 2,
    SB_REASON_DRAINING = 3,
    SB_REASON_NO_SOCKET = 4,
    SB_REASON_FAILED = 5,
    SB_REASON_CLOSING = 6,
    SB_REASON_DUPLICATE = 7,
    SB_REASON_RESPONDING = 8,
    SB_REASON_UNHEALTHY = 9,
    SB_REASON_PASSED_ON = 10,
    SB_REASON_FROZEN = 11,
    SB_REASON_SERVED = 12,
    SB_REASON_OUTDATED = 13,
    SB_REASON_RELEASED = 14,
    SB_REASON_UNACKNOWLEDGED = 15,
    SB_REASON_BEQUEATHED = 16,
    SB_REASON_FAILING = 17,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_session {
    pub pool: [__u8; 3usize],
    pub node: [__u8; 3usize],
    pub path: __be16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_geneve {
    pub ver_opt_len: __u8,
    pub flags: __u8,
    pub protocol: __be16,
    pub vni: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_flow_state {
    pub origin: __be32,
    pub next: __be32,
    pub left: __be32,
    pub heads: __be32,
    pub requests: __be16,
    pub framing: __be16,
    pub mss: __be16,
    pub options: __u8,
    pub wscale: __u8,
    pub session: sb_session,
    pub generation: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_handover {
    pub flow: sb_flow_state,
    pub boundary: __be16,
    pub queue_share: __u8,
    pub reserved: __u8,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_accept_queue {
    pub len: __be16,
    pub limit: __be16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_outcome {
    pub flow: sb_flow_state,
    pub queue: sb_accept_queue,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_confirmed {
    pub flow: sb_flow_state,
    pub arrived: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_question {
    pub flow: sb_flow_state,
    pub next_generation: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_move {
    pub flow: sb_flow_state,
    pub target: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_death {
    pub node: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_kept {
    pub flow: sb_flow_state,
    pub end: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_numbered {
    pub epoch: __be32,
    pub number: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_switch_self {
    pub number: __u8,
    pub program: [__u8; 3usize],
    pub config: __be32,
    pub taken_over: __be32,
    pub state: __u8,
    pub reserved: [__u8; 3usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_hello {
    pub taken: sb_numbered,
    pub newest: __u8,
    pub reserved: [__u8; 3usize],
    pub listed: sb_numbered,
    pub order: __be32,
    pub own: sb_switch_self,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_sync {
    pub nonce: [__u8; 8usize],
    pub clock: [__be32; 2usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_report {
    pub pool: __be32,
    pub number: __be16,
    pub cpu: __be16,
    pub queue: sb_accept_queue,
    pub in_flight: __be32,
    pub first_byte_us: __be32,
    pub flows: __be32,
    pub newest: __u8,
    pub program: [__u8; 3usize],
    pub config: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_size {
    pub bytes: __be32,
    pub path: __be16,
    pub reserved: [__u8; 2usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_direct {
    pub client: __be32,
    pub client_port: __be16,
    pub reserved: [__u8; 2usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_option {
    pub opt_class: __be16,
    pub type_: __u8,
    pub length: __u8,
    pub version: __u8,
    pub op: __u8,
    pub flags: __u8,
    pub reason: __u8,
    pub payload: sb_payload,
    pub tag: [__u8; 8usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_second {
    pub opt_class: __be16,
    pub type_: __u8,
    pub length: __u8,
    pub node: [__u8; 16usize],
    pub tag: [__u8; 8usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_records {
    pub tag: [__u8; 8usize],
    pub epoch: __be32,
    pub number: __be32,
    pub lost: __be32,
    pub reserved: __be32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_listed {
    pub flow: sb_flow,
    pub state: sb_flow_state,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_switch_state {
    SB_SWITCH_SERVING = 1,
    SB_SWITCH_LEARNING = 2,
    SB_SWITCH_WITHDRAWN = 3,
    SB_SWITCH_LEAVING = 4,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_switch_heard {
    pub said: sb_switch_self,
    pub age_ms: __be32,
    pub addresses: __u8,
    pub reserved: [__u8; 3usize],
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_end {
    SB_END_COMPLETE = 1,
    SB_END_CLIENT = 2,
    SB_END_SERVER = 3,
    SB_END_UNKNOWN = 4,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_fact {
    pub client: [__u8; 16usize],
    pub vip: [__u8; 16usize],
    pub client_port: __be16,
    pub vip_port: __be16,
    pub origin: __be32,
    pub request: __be16,
    pub status: __be16,
    pub end: __u8,
    pub reserved: [__u8; 3usize],
    pub head_bytes: __be32,
    pub first_byte_us: __be32,
    pub duration_us: __be64,
    pub bytes: __be64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct sb_tag_input {
    pub node: [__u8; 16usize],
    pub switch_address: [__u8; 16usize],
    pub epoch: __be64,
    pub flow: sb_flow,
    pub seq: __be32,
    pub ack: __be32,
    pub option: [__u8; 44usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_shim {
    pub source: __be16,
    pub dest: __be16,
    pub len: __be16,
    pub check: __be16,
    pub geneve: sb_geneve,
    pub option: sb_option,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_client_key_input {
    pub client: [__u8; 16usize],
    pub half: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_introduction {
    pub kind: __u8,
    pub length: __u8,
    pub id: __be16,
    pub node: [__u8; 16usize],
    pub next: __be32,
    pub tag: [__u8; 8usize],
    pub client: __be32,
    pub client_port: __be16,
    pub wscale: __u8,
    pub reserved: __u8,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_introduction_input {
    pub node: [__u8; 16usize],
    pub flow: sb_flow,
    pub seq: __be32,
    pub ack: __be32,
    pub next: __be32,
    pub wscale: __u8,
    pub reserved: [__u8; 3usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_told_fingerprint {
    pub magic: __be32,
    pub origin: __be32,
    pub offload: __be16,
    pub reserved: __be16,
    pub flow: sb_flow,
    pub len: __be64,
    pub value: __be64,
    pub tag: [__u8; 8usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_cookie_input {
    pub flow: sb_flow,
    pub client_isn: __be32,
    pub settled: __u32,
    pub with_timestamps: __u32,
    pub switch_number: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_vip {
    pub mss: __u32,
    pub verdicts: __u32,
    pub start: __u16,
    pub hosts: __u16,
    pub bank: __u16,
    pub service: __u16,
    pub places: __u32,
    pub listener: __u16,
    pub guard: __u16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_rate {
    pub interval: __u64,
    pub tolerance: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_bucket {
    pub network: [__u8; 16usize],
    pub service: __u32,
    pub of: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_guard {
    pub rates: [[sb_rate; 2usize]; 2usize],
    pub masks: [[__u8; 16usize]; 2usize],
    pub service: __u32,
    pub list: __u16,
    pub listed: __u16,
    pub concurrent: [__u32; 2usize],
    pub others_v4: __u16,
    pub others_v6: __u16,
    pub reserved: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_client_network {
    pub prefix_len: __u32,
    pub service: __u32,
    pub address: [__u8; 16usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_wish {
    pub bucket: sb_bucket,
    pub rate: sb_rate,
    pub patience: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_taking {
    pub wishes: [sb_wish; 4usize],
    pub count: __u32,
    pub taken: __u32,
    pub wait: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_switch_settings {
    pub cookie_keys: [sb_key; 2usize],
    pub sign: sb_key,
    pub accept: sb_key,
    pub period: __u64,
    pub cookie_slot: __u32,
    pub is_node: __u32,
    pub questions: __u32,
    pub instance: __u32,
    pub shared_slots: __u32,
    pub switch_number: __u32,
    pub generation: __u32,
    pub reserved: __u32,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_mode {
    SB_MODE_HELD = 0,
    SB_MODE_REQUESTS = 1,
    SB_MODE_TUNNEL = 2,
    SB_MODE_ANSWERED = 3,
    SB_MODE_UPGRADING = 4,
    SB_MODE_SOUGHT = 5,
    SB_MODE_RESUMED = 6,
    SB_MODE_RESUMING = 7,
    SB_MODE_ADOPTING = 8,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_flow_entry {
    pub node: __u32,
    pub origin: __u32,
    pub next: __u32,
    pub mss: __u16,
    pub options: __u8,
    pub wscale: __u8,
    pub mode: __u8,
    pub locked: __u8,
    pub requests: __u16,
    pub heads: __u32,
    pub framing: sb_framing,
    pub session: sb_session,
    pub begins: __u32,
    pub tries: __u8,
    pub ahead: __u8,
    pub contested: __u8,
    pub turn: __u8,
    pub generation: __u32,
    pub reserved: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_node_address {
    pub machine: [__u8; 16usize],
    pub number: __u16,
    pub reserved: __u16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_node {
    pub address: sb_node_address,
    pub source: [__u8; 16usize],
    pub ifindex: __u32,
    pub next_hop: [__u8; 6usize],
    pub our_mac: [__u8; 6usize],
    pub dead: __u16,
    pub here: __u16,
    pub ways: __u16,
    pub reserved: [__u16; 3usize],
    pub clock: __u64,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_record_kind {
    SB_RECORD_REQUEST = 1,
    SB_RECORD_HANDOFF = 2,
    SB_RECORD_FORWARD = 3,
    SB_RECORD_UNKNOWN = 4,
    SB_RECORD_ICMP = 5,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_choices {
    pub counts: __u64,
    pub until: __u64,
    pub low: __u16,
    pub share: __u16,
    pub reserved: __u32,
    pub nodes: [__u16; 128usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_express_request {
    pub flow: sb_flow,
    pub origin: __u32,
    pub begins: __u32,
    pub node: __u32,
    pub number: __u16,
    pub len: __u16,
    pub first: __u32,
    pub at_ns: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_record {
    pub kind: __u32,
    pub flow: sb_flow,
    pub entry: sb_flow_entry,
    pub option: sb_option,
    pub node: sb_node_address,
    pub len: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct bpf_spin_lock {
    pub val: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_node_settings {
    pub address: [__u8; 16usize],
    pub sign: sb_key,
    pub accept: sb_key,
    pub netns_cookie: __u64,
    pub clock: __u64,
    pub arp_sender: __be32,
    pub is_switch: __u32,
    pub ifindex: __u32,
    pub hidden: __u32,
    pub reserved: __u32,
    pub resume_port: __be16,
    pub repeats: __u8,
    pub adoption: __u8,
    pub resume_after: __u64,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_adoption {
    SB_ADOPTION_AUTO = 0,
    SB_ADOPTION_KERNEL = 1,
    SB_ADOPTION_REPLAY = 2,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_node_here {
    pub draining: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_listener {
    pub vip: sb_endpoint,
    pub node: __u16,
    pub reserved: __u16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_server {
    pub at: sb_endpoint,
    pub ifindex: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_judged {
    pub fails: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_judgment {
    pub listener: sb_listener,
    pub status: __u16,
    pub reserved: __u16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_load {
    pub requests: __u64,
    pub responses: __u64,
    pub abandoned: __u64,
    pub flows: __u64,
    pub ended: __u64,
    pub first_bytes: __u64,
    pub waited_us: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_asking {
    pub switch_address: [__u8; 16usize],
    pub node: __u32,
    pub reserved: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_listening_switch {
    pub heard_ns: __u64,
    pub epoch: __u32,
    pub number: __u32,
    pub facts: __u32,
    pub newest: __u32,
    pub list: __u32,
    pub listed: __u32,
    pub order: __u32,
    pub drain: __u32,
    pub own: sb_switch_self,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_stalled {
    pub flow: sb_flow,
    pub seq: __u32,
    pub ack: __u32,
    pub tsval: __u32,
    pub tsecr: __u32,
    pub window: __u16,
    pub has_timestamps: __u16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_adopting {
    pub last_ns: __u64,
    pub count: __s64,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_session_mode {
    SB_SESSION_REWRITE = 1,
    SB_SESSION_INSERT = 2,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_pool_here {
    pub code: [__u8; 4usize],
    pub node: __u16,
    pub reserved: __u16,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_persistence {
    pub mode: __u8,
    pub name_len: __u8,
    pub line_len: __u16,
    pub code: [__u8; 8usize],
    pub name: [__u8; 32usize],
    pub line: [__u8; 256usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_changed {
    pub at: [__u32; 4usize],
    pub undecided: __u32,
    pub count: __u8,
    pub tries: __u8,
    pub reserved: [__u8; 2usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_cookies {
    pub session: sb_session,
    pub heard: __u32,
    pub reserved: [__u8; 4usize],
    pub request: sb_framing,
    pub restored: sb_changed,
    pub rewritten: sb_changed,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_ownership {
    SB_OWN_ADOPTING = 0,
    SB_OWN_OPEN = 1,
    SB_OWN_RELEASED = 2,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_ended {
    pub bytes: __u64,
    pub duration_us: __u64,
    pub end: __u32,
    pub head_bytes: __u32,
    pub first_byte_us: __u32,
    pub number: __u16,
    pub status: __u16,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_replay {
    SB_REPLAY_NONE = 0,
    SB_REPLAY_SYN = 1,
    SB_REPLAY_ANSWERED = 2,
    SB_REPLAY_UNFIT = 3,
    SB_REPLAY_AGAIN = 4,
    SB_REPLAY_READY = 5,
    SB_REPLAY_DONE = 6,
    SB_REPLAY_FAILED = 7,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_masquerade {
    pub seq: __u32,
    pub tsval: __u32,
    pub stage: __u8,
    pub theirs: __u8,
    pub ours: __u8,
    pub reserved: __u8,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_away {
    pub server: sb_endpoint,
    pub ifindex: __u32,
    pub rcv_nxt: __u32,
    pub snd_nxt: __u32,
    pub snd_una: __u32,
    pub clock: __u32,
    pub client_end: __u32,
    pub ended: __u8,
    pub reserved: [__u8; 3usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_owned {
    pub switch_address: [__u8; 16usize],
    pub origin: __u32,
    pub next: __u32,
    pub answered: __u32,
    pub tsval: __u32,
    pub followed: __u32,
    pub requests: __u16,
    pub responses: __u16,
    pub framing: sb_framing,
    pub heads: [__u64; 4usize],
    pub mss: __u16,
    pub queue_len: __u16,
    pub queue_limit: __u16,
    pub options: __u8,
    pub wscale: __u8,
    pub state: __u8,
    pub hooked: __u8,
    pub reason: __u8,
    pub slot: __u8,
    pub asked_us: __u32,
    pub asked: __u32,
    pub again: __u8,
    pub keeps: __u8,
    pub mark_framing: __be16,
    pub mark_left: __be32,
    pub read: __u32,
    pub passed: __u32,
    pub read_us: __u32,
    pub latest: __u32,
    pub generation: __u32,
    pub path: __be16,
    pub path_request: __u16,
    pub began: __u32,
    pub sent: __u64,
    pub turn_us: __u64,
    pub first_byte_us: __u32,
    pub head_bytes: __u32,
    pub via: __u32,
    pub insure: __u32,
    pub node: __u16,
    pub grown: __s16,
    pub masquerade: sb_masquerade,
    pub away: sb_away,
    pub ended: sb_ended,
    pub cookies: sb_cookies,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_heads {
    pub request_seq: __u32,
    pub request_len: __u16,
    pub response_len: __u16,
    pub request: [__u8; 4096usize],
    pub response: [__u8; 2048usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct sb_insurable {
    pub flow: sb_flow,
    pub seq: __u32,
    pub sent: __u64,
    pub owned: sb_owned,
    pub heads: sb_heads,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_insurable_end {
    pub flow: sb_flow,
    pub origin: __u32,
    pub bequeathed: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_insured {
    pub origin: __u32,
    pub next: __u32,
    pub seq: __u32,
    pub head_bytes: __u32,
    pub sent: __u64,
    pub bytes: __u64,
    pub generation: __u32,
    pub status: __u16,
    pub keeps: __u8,
    pub served: __u8,
    pub fingerprinted: __u8,
    pub over_tls: __u8,
    pub reserved: [__u8; 6usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_heirs {
    pub origin: __u32,
    pub count: __u8,
    pub over_tls: __u8,
    pub reserved: [__u8; 2usize],
    pub addresses: [[__u8; 16usize]; 2usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_fingerprint {
    pub v: [__u64; 4usize],
    pub tail: __u64,
    pub len: __u64,
    pub check: __u64,
    pub key: sb_key,
    pub origin: __u32,
    pub end: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_heard_fingerprint {
    pub lock: bpf_spin_lock,
    pub origin: __u32,
    pub key: sb_key,
    pub len: __u64,
    pub value: __u64,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_sized {
    pub by: sb_asking,
    pub bytes: __u32,
    pub path: __be16,
    pub reserved: [__u8; 2usize],
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_hook {
    SB_HOOK_NONE = 0,
    SB_HOOK_WANTED = 1,
    SB_HOOK_SET = 2,
    SB_HOOK_DONE = 3,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_node_clients {
    pub sign: sb_key,
    pub accept: sb_key,
    pub tunnel: __u32,
    pub reserved: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_seen {
    pub by: sb_asking,
    pub fact: sb_fact,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct sb_closed {
    pub flow: sb_flow,
    pub end: __u8,
    pub reserved: [__u8; 3usize],
    pub at_us: __u64,
    pub owned: sb_owned,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_client_settings {
    pub thin_acks: __u32,
    pub firewall: __u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_client_keys {
    pub sign: sb_key,
    pub accept: sb_key,
}
#[repr(u32)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub enum sb_direct_state {
    SB_DIRECT_ON = 0,
    SB_DIRECT_OFF = 1,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_direct_flow {
    pub asked_ns: __u64,
    pub last_ns: __u64,
    pub node: [__u8; 16usize],
    pub client: [__u8; 16usize],
    pub client_port: __be16,
    pub state: __u8,
    pub asks: __u8,
    pub next: __u32,
    pub sent: __u32,
    pub acked: __u32,
    pub left_out: __u32,
    pub in_order: __u32,
    pub highest: __u32,
    pub thinned: __u32,
    pub edge: __u32,
    pub watched: __u8,
    pub wscale: __u8,
    pub reserved: [__u8; 2usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, Hash, PartialEq, Eq)]
pub struct sb_direct_node {
    pub introductions: __u64,
    pub packets: __u64,
    pub fallbacks: __u64,
    pub avoid_ns: __u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SwitchCounter {
    #[doc = "SYNs answered with a cookie"]
    SynAnswered,
    #[doc = "ARP requests and neighbour solicitations for a VIP answered"]
    ArpAnswered,
    #[doc = "ICMP echo requests to a VIP answered"]
    PingAnswered,
    #[doc = "keep-alive probes answered on connections without a request"]
    ProbeAnswered,
    #[doc = "packets that may begin a request, given to the L7 thread"]
    Request,
    #[doc = "requests forwarded by the automaton, without the L7 thread"]
    Express,
    #[doc = "first requests given to a node without the L7 thread"]
    Placed,
    #[doc = "of these, those whose adoption the node has confirmed"]
    Confirmed,
    #[doc = "packets with the size of a chunk, forwarded without the L7 thread"]
    Chunks,
    #[doc = "packets whose urgent data became ordinary data"]
    Urgent,
    #[doc = "path MTU messages sent to the node of their flow"]
    IcmpForwarded,
    #[doc = "packets sent to the node of their flow"]
    Forwarded,
    #[doc = "packets left to the L7 thread to forward: the next hop is not resolved"]
    ForwardedSlowly,
    #[doc = "verified packets from nodes"]
    HandoffReceived,
    #[doc = "flow entries removed because the node reported the end"]
    Closed,
    #[doc = "ACKs that completed a handshake; nothing is stored for them"]
    HandshakeAck,
    #[doc = "flow entries removed because their client has begun another connection"]
    Succeeded,
    #[doc = "RSTs sent to clients that closed before any request"]
    ResetSent,
    #[doc = "RSTs sent for TCP to a port of a VIP that has no service"]
    NoService,
    #[doc = "dropped: no flow entry, and no valid cookie of a connection that is not over"]
    DropCookie,
    #[doc = "dropped: connections of clients that the service does not let in"]
    DropClient,
    #[doc = "dropped: connections beyond the rate of the client or the service"]
    DropRate,
    #[doc = "dropped: connections beyond those that the client or the service may have"]
    DropConcurrent,
    #[doc = "dropped: perhaps begun by another process, and nodes are asked too much"]
    DropUnasked,
    #[doc = "dropped: handoff packet with a wrong tag"]
    DropTag,
    #[doc = "dropped: handoff packet of another time, such as a recorded one"]
    DropEpoch,
    #[doc = "dropped: handoff packet of a later version of the format"]
    DropVersion,
    #[doc = "dropped: truncated or inconsistent headers"]
    DropMalformed,
    #[doc = "dropped: IP fragments, IP options and extension headers"]
    DropFragment,
    #[doc = "dropped: wrong checksum where a request is read"]
    DropChecksum,
    #[doc = "dropped: ICMP of no use to a node; about an unknown flow, nodes are asked first"]
    DropIcmp,
    #[doc = "dropped: TCP flags that begin nothing"]
    DropFlags,
    #[doc = "dropped: first requests of which another CPU has a copy at the same time"]
    DropTwice,
    #[doc = "dropped: packets without data of a flow that has no node yet"]
    DropHeld,
    #[doc = "dropped: the flow's node is not in the configuration"]
    DropNoNode,
    #[doc = "dropped: longer than the L7 thread accepts"]
    DropTooLong,
    #[doc = "dropped: an L7 thread does not keep up"]
    DropRingFull,
    #[doc = "dropped: the driver leaves too little room in front of the packet"]
    DropHeadroom,
    #[doc = "requests forwarded by the automaton that the access log does not know"]
    Unobserved,
}

impl SwitchCounter {
    pub const ALL: [SwitchCounter; 39] = [
        SwitchCounter::SynAnswered,
        SwitchCounter::ArpAnswered,
        SwitchCounter::PingAnswered,
        SwitchCounter::ProbeAnswered,
        SwitchCounter::Request,
        SwitchCounter::Express,
        SwitchCounter::Placed,
        SwitchCounter::Confirmed,
        SwitchCounter::Chunks,
        SwitchCounter::Urgent,
        SwitchCounter::IcmpForwarded,
        SwitchCounter::Forwarded,
        SwitchCounter::ForwardedSlowly,
        SwitchCounter::HandoffReceived,
        SwitchCounter::Closed,
        SwitchCounter::HandshakeAck,
        SwitchCounter::Succeeded,
        SwitchCounter::ResetSent,
        SwitchCounter::NoService,
        SwitchCounter::DropCookie,
        SwitchCounter::DropClient,
        SwitchCounter::DropRate,
        SwitchCounter::DropConcurrent,
        SwitchCounter::DropUnasked,
        SwitchCounter::DropTag,
        SwitchCounter::DropEpoch,
        SwitchCounter::DropVersion,
        SwitchCounter::DropMalformed,
        SwitchCounter::DropFragment,
        SwitchCounter::DropChecksum,
        SwitchCounter::DropIcmp,
        SwitchCounter::DropFlags,
        SwitchCounter::DropTwice,
        SwitchCounter::DropHeld,
        SwitchCounter::DropNoNode,
        SwitchCounter::DropTooLong,
        SwitchCounter::DropRingFull,
        SwitchCounter::DropHeadroom,
        SwitchCounter::Unobserved,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SwitchCounter::SynAnswered => "syn_answered",
            SwitchCounter::ArpAnswered => "arp_answered",
            SwitchCounter::PingAnswered => "ping_answered",
            SwitchCounter::ProbeAnswered => "probe_answered",
            SwitchCounter::Request => "request",
            SwitchCounter::Express => "express",
            SwitchCounter::Placed => "placed",
            SwitchCounter::Confirmed => "confirmed",
            SwitchCounter::Chunks => "chunks",
            SwitchCounter::Urgent => "urgent",
            SwitchCounter::IcmpForwarded => "icmp_forwarded",
            SwitchCounter::Forwarded => "forwarded",
            SwitchCounter::ForwardedSlowly => "forwarded_slowly",
            SwitchCounter::HandoffReceived => "handoff_received",
            SwitchCounter::Closed => "closed",
            SwitchCounter::HandshakeAck => "handshake_ack",
            SwitchCounter::Succeeded => "succeeded",
            SwitchCounter::ResetSent => "reset_sent",
            SwitchCounter::NoService => "no_service",
            SwitchCounter::DropCookie => "drop_cookie",
            SwitchCounter::DropClient => "drop_client",
            SwitchCounter::DropRate => "drop_rate",
            SwitchCounter::DropConcurrent => "drop_concurrent",
            SwitchCounter::DropUnasked => "drop_unasked",
            SwitchCounter::DropTag => "drop_tag",
            SwitchCounter::DropEpoch => "drop_epoch",
            SwitchCounter::DropVersion => "drop_version",
            SwitchCounter::DropMalformed => "drop_malformed",
            SwitchCounter::DropFragment => "drop_fragment",
            SwitchCounter::DropChecksum => "drop_checksum",
            SwitchCounter::DropIcmp => "drop_icmp",
            SwitchCounter::DropFlags => "drop_flags",
            SwitchCounter::DropTwice => "drop_twice",
            SwitchCounter::DropHeld => "drop_held",
            SwitchCounter::DropNoNode => "drop_no_node",
            SwitchCounter::DropTooLong => "drop_too_long",
            SwitchCounter::DropRingFull => "drop_ring_full",
            SwitchCounter::DropHeadroom => "drop_headroom",
            SwitchCounter::Unobserved => "unobserved",
        }
    }

    pub fn help(self) -> &'static str {
        match self {
            SwitchCounter::SynAnswered => "SYNs answered with a cookie",
            SwitchCounter::ArpAnswered => "ARP requests and neighbour solicitations for a VIP answered",
            SwitchCounter::PingAnswered => "ICMP echo requests to a VIP answered",
            SwitchCounter::ProbeAnswered => "keep-alive probes answered on connections without a request",
            SwitchCounter::Request => "packets that may begin a request, given to the L7 thread",
            SwitchCounter::Express => "requests forwarded by the automaton, without the L7 thread",
            SwitchCounter::Placed => "first requests given to a node without the L7 thread",
            SwitchCounter::Confirmed => "of these, those whose adoption the node has confirmed",
            SwitchCounter::Chunks => "packets with the size of a chunk, forwarded without the L7 thread",
            SwitchCounter::Urgent => "packets whose urgent data became ordinary data",
            SwitchCounter::IcmpForwarded => "path MTU messages sent to the node of their flow",
            SwitchCounter::Forwarded => "packets sent to the node of their flow",
            SwitchCounter::ForwardedSlowly => "packets left to the L7 thread to forward: the next hop is not resolved",
            SwitchCounter::HandoffReceived => "verified packets from nodes",
            SwitchCounter::Closed => "flow entries removed because the node reported the end",
            SwitchCounter::HandshakeAck => "ACKs that completed a handshake; nothing is stored for them",
            SwitchCounter::Succeeded => "flow entries removed because their client has begun another connection",
            SwitchCounter::ResetSent => "RSTs sent to clients that closed before any request",
            SwitchCounter::NoService => "RSTs sent for TCP to a port of a VIP that has no service",
            SwitchCounter::DropCookie => "dropped: no flow entry, and no valid cookie of a connection that is not over",
            SwitchCounter::DropClient => "dropped: connections of clients that the service does not let in",
            SwitchCounter::DropRate => "dropped: connections beyond the rate of the client or the service",
            SwitchCounter::DropConcurrent => "dropped: connections beyond those that the client or the service may have",
            SwitchCounter::DropUnasked => "dropped: perhaps begun by another process, and nodes are asked too much",
            SwitchCounter::DropTag => "dropped: handoff packet with a wrong tag",
            SwitchCounter::DropEpoch => "dropped: handoff packet of another time, such as a recorded one",
            SwitchCounter::DropVersion => "dropped: handoff packet of a later version of the format",
            SwitchCounter::DropMalformed => "dropped: truncated or inconsistent headers",
            SwitchCounter::DropFragment => "dropped: IP fragments, IP options and extension headers",
            SwitchCounter::DropChecksum => "dropped: wrong checksum where a request is read",
            SwitchCounter::DropIcmp => "dropped: ICMP of no use to a node; about an unknown flow, nodes are asked first",
            SwitchCounter::DropFlags => "dropped: TCP flags that begin nothing",
            SwitchCounter::DropTwice => "dropped: first requests of which another CPU has a copy at the same time",
            SwitchCounter::DropHeld => "dropped: packets without data of a flow that has no node yet",
            SwitchCounter::DropNoNode => "dropped: the flow's node is not in the configuration",
            SwitchCounter::DropTooLong => "dropped: longer than the L7 thread accepts",
            SwitchCounter::DropRingFull => "dropped: an L7 thread does not keep up",
            SwitchCounter::DropHeadroom => "dropped: the driver leaves too little room in front of the packet",
            SwitchCounter::Unobserved => "requests forwarded by the automaton that the access log does not know",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NodeCounter {
    #[doc = "flows adopted"]
    Adopted,
    #[doc = "of these, those by a replayed handshake"]
    Replayed,
    #[doc = "adoptions of connections that are over, not made again"]
    Repeated,
    #[doc = "packets handed to the socket of their flow"]
    Forwarded,
    #[doc = "flows released"]
    Released,
    #[doc = "releases refused because a response was not complete and acknowledged"]
    Busy,
    #[doc = "probes answered"]
    Owned,
    #[doc = "switches told that data has arrived"]
    Confirmed,
    #[doc = "packets of clients kept, because a switch acknowledges them before a server has them"]
    Kept,
    #[doc = "kept packets given to a switch"]
    Restored,
    #[doc = "stale sockets removed before an adoption"]
    Cured,
    #[doc = "adoptions refused: accept queue full"]
    RefusedQueueFull,
    #[doc = "adoptions refused: the node is draining"]
    RefusedDraining,
    #[doc = "adoptions passed on to their second candidate"]
    PassedOn,
    #[doc = "switches that asked for reports"]
    Hello,
    #[doc = "switches told the time"]
    Synced,
    #[doc = "adoptions refused: nobody listens"]
    RefusedNoListener,
    #[doc = "adoptions refused: for a node that this machine does not know"]
    RefusedNoNode,
    #[doc = "requests refused: the flow has no socket here"]
    RefusedNoSocket,
    #[doc = "adoptions refused: the kernel would not"]
    RefusedFailed,
    #[doc = "acknowledgments of requests without a response, and early FINs, kept back"]
    Withheld,
    #[doc = "flows that came by another switch before"]
    TakenOver,
    #[doc = "flows whose client was asked for an acknowledgment when a switch took flows over"]
    Stalled,
    #[doc = "flows that go on without the server that ended them"]
    Outlived,
    #[doc = "packets of released flows kept back"]
    Muted,
    #[doc = "flows known again by a request, after their entry had given way to others"]
    Remembered,
    #[doc = "flows ended because their entry had given way to others"]
    Forgotten,
    #[doc = "packets refused because their data has to be read first"]
    Unread,
    #[doc = "flows ended because their socket did not take what had been read"]
    NotTaken,
    #[doc = "flows released before their request was complete"]
    Aborted,
    #[doc = "responses followed to their end"]
    Responses,
    #[doc = "packets of clients that acknowledge more of a response"]
    Acknowledged,
    #[doc = "responses whose end cannot be told"]
    LostTrack,
    #[doc = "facts of responses that a switch wants to know"]
    Fact,
    #[doc = "facts for which there was no room"]
    FactLost,
    #[doc = "failed responses, and the first successes behind them, told to the agent"]
    Judgment,
    #[doc = "of these, those for which there was no room"]
    JudgmentLost,
    #[doc = "responses that another node could go on with, reported to the agent"]
    Insurable,
    #[doc = "of these, those for which there was no room"]
    InsurableLost,
    #[doc = "responses whose server has gone, left to another node"]
    Bequeathed,
    #[doc = "switches that told of a dead node"]
    Death,
    #[doc = "flows adopted in the middle of another node's response"]
    Resumed,
    #[doc = "fingerprints told to nodes that could repeat a response"]
    Fingerprint,
    #[doc = "fingerprints heard of responses that this node could repeat"]
    FingerprintHeard,
    #[doc = "fingerprints of responses that this node does not know, or not yet"]
    FingerprintUnknown,
    #[doc = "adoptions refused: the response under way is unknown, or over"]
    RefusedNotInsured,
    #[doc = "path MTU messages given to the kernel"]
    Icmp,
    #[doc = "ARP requests for a VIP left to the switch"]
    ArpIgnored,
    #[doc = "ARP packets of ours kept from announcing a VIP"]
    ArpAnnounce,
    #[doc = "dropped: handoff packet with a wrong tag"]
    DropTag,
    #[doc = "dropped: handoff packet of another time, such as a recorded one"]
    DropEpoch,
    #[doc = "dropped: handoff packet of a later version of the format"]
    DropVersion,
    #[doc = "dropped: truncated or inconsistent headers"]
    DropMalformed,
    #[doc = "dropped: packet to a VIP that did not come through a switch"]
    DropPlain,
    #[doc = "dropped: packet of a server behind an interface, of a connection that is over"]
    DropAway,
    #[doc = "dropped: no socket for a forwarded packet"]
    DropNoSocket,
    #[doc = "dropped: question for a packet that is not kept, or not any more"]
    DropNotKept,
    #[doc = "dropped: a delayed adoption, or a stale socket that would not go"]
    DropStale,
    #[doc = "answered with what is true: packets of switches that did not know a flow's adoption"]
    Outdated,
    #[doc = "dropped, and the switch told: data of a flow whose adoption was not carried out here"]
    Lacked,
    #[doc = "dropped: packets to a hidden node that are from no switch"]
    Hidden,
    #[doc = "packets to the switch of this machine"]
    ToldHere,
    #[doc = "dropped: the switch of this machine does not keep up"]
    DropRingFull,
    #[doc = "dropped: data that was handed to the socket a moment ago, sent again"]
    DropRepeated,
    #[doc = "dropped: part of a request with cookies, behind a gap"]
    DropBehindGap,
    #[doc = "dropped: part of a response that has overtaken an earlier one"]
    DropOvertaking,
    #[doc = "cookies given back the name that their server knows"]
    CookieRestored,
    #[doc = "session cookies whose names were rewritten"]
    CookieRewritten,
    #[doc = "session cookies inserted"]
    CookieInserted,
    #[doc = "packets sent again because a cookie's name was not all in them"]
    CookieWaited,
    #[doc = "session cookies left as the server set them, or not inserted"]
    CookieMissed,
    #[doc = "introductions sent to clients"]
    Introduced,
    #[doc = "packets that came from clients directly"]
    Direct,
    #[doc = "clients told that what they sent directly has arrived"]
    Heard,
    #[doc = "clients told that a flow is not here"]
    Gone,
    #[doc = "packets sent to clients in a tunnel"]
    Tunneled,
    #[doc = "dropped: direct packet of another client's flow"]
    DropClient,
    #[doc = "dropped: direct packet with data of a request that the switch has not read"]
    DropBeyond,
}

impl NodeCounter {
    pub const ALL: [NodeCounter; 78] = [
        NodeCounter::Adopted,
        NodeCounter::Replayed,
        NodeCounter::Repeated,
        NodeCounter::Forwarded,
        NodeCounter::Released,
        NodeCounter::Busy,
        NodeCounter::Owned,
        NodeCounter::Confirmed,
        NodeCounter::Kept,
        NodeCounter::Restored,
        NodeCounter::Cured,
        NodeCounter::RefusedQueueFull,
        NodeCounter::RefusedDraining,
        NodeCounter::PassedOn,
        NodeCounter::Hello,
        NodeCounter::Synced,
        NodeCounter::RefusedNoListener,
        NodeCounter::RefusedNoNode,
        NodeCounter::RefusedNoSocket,
        NodeCounter::RefusedFailed,
        NodeCounter::Withheld,
        NodeCounter::TakenOver,
        NodeCounter::Stalled,
        NodeCounter::Outlived,
        NodeCounter::Muted,
        NodeCounter::Remembered,
        NodeCounter::Forgotten,
        NodeCounter::Unread,
        NodeCounter::NotTaken,
        NodeCounter::Aborted,
        NodeCounter::Responses,
        NodeCounter::Acknowledged,
        NodeCounter::LostTrack,
        NodeCounter::Fact,
        NodeCounter::FactLost,
        NodeCounter::Judgment,
        NodeCounter::JudgmentLost,
        NodeCounter::Insurable,
        NodeCounter::InsurableLost,
        NodeCounter::Bequeathed,
        NodeCounter::Death,
        NodeCounter::Resumed,
        NodeCounter::Fingerprint,
        NodeCounter::FingerprintHeard,
        NodeCounter::FingerprintUnknown,
        NodeCounter::RefusedNotInsured,
        NodeCounter::Icmp,
        NodeCounter::ArpIgnored,
        NodeCounter::ArpAnnounce,
        NodeCounter::DropTag,
        NodeCounter::DropEpoch,
        NodeCounter::DropVersion,
        NodeCounter::DropMalformed,
        NodeCounter::DropPlain,
        NodeCounter::DropAway,
        NodeCounter::DropNoSocket,
        NodeCounter::DropNotKept,
        NodeCounter::DropStale,
        NodeCounter::Outdated,
        NodeCounter::Lacked,
        NodeCounter::Hidden,
        NodeCounter::ToldHere,
        NodeCounter::DropRingFull,
        NodeCounter::DropRepeated,
        NodeCounter::DropBehindGap,
        NodeCounter::DropOvertaking,
        NodeCounter::CookieRestored,
        NodeCounter::CookieRewritten,
        NodeCounter::CookieInserted,
        NodeCounter::CookieWaited,
        NodeCounter::CookieMissed,
        NodeCounter::Introduced,
        NodeCounter::Direct,
        NodeCounter::Heard,
        NodeCounter::Gone,
        NodeCounter::Tunneled,
        NodeCounter::DropClient,
        NodeCounter::DropBeyond,
    ];

    pub fn name(self) -> &'static str {
        match self {
            NodeCounter::Adopted => "adopted",
            NodeCounter::Replayed => "replayed",
            NodeCounter::Repeated => "repeated",
            NodeCounter::Forwarded => "forwarded",
            NodeCounter::Released => "released",
            NodeCounter::Busy => "busy",
            NodeCounter::Owned => "owned",
            NodeCounter::Confirmed => "confirmed",
            NodeCounter::Kept => "kept",
            NodeCounter::Restored => "restored",
            NodeCounter::Cured => "cured",
            NodeCounter::RefusedQueueFull => "refused_queue_full",
            NodeCounter::RefusedDraining => "refused_draining",
            NodeCounter::PassedOn => "passed_on",
            NodeCounter::Hello => "hello",
            NodeCounter::Synced => "synced",
            NodeCounter::RefusedNoListener => "refused_no_listener",
            NodeCounter::RefusedNoNode => "refused_no_node",
            NodeCounter::RefusedNoSocket => "refused_no_socket",
            NodeCounter::RefusedFailed => "refused_failed",
            NodeCounter::Withheld => "withheld",
            NodeCounter::TakenOver => "taken_over",
            NodeCounter::Stalled => "stalled",
            NodeCounter::Outlived => "outlived",
            NodeCounter::Muted => "muted",
            NodeCounter::Remembered => "remembered",
            NodeCounter::Forgotten => "forgotten",
            NodeCounter::Unread => "unread",
            NodeCounter::NotTaken => "not_taken",
            NodeCounter::Aborted => "aborted",
            NodeCounter::Responses => "responses",
            NodeCounter::Acknowledged => "acknowledged",
            NodeCounter::LostTrack => "lost_track",
            NodeCounter::Fact => "fact",
            NodeCounter::FactLost => "fact_lost",
            NodeCounter::Judgment => "judgment",
            NodeCounter::JudgmentLost => "judgment_lost",
            NodeCounter::Insurable => "insurable",
            NodeCounter::InsurableLost => "insurable_lost",
            NodeCounter::Bequeathed => "bequeathed",
            NodeCounter::Death => "death",
            NodeCounter::Resumed => "resumed",
            NodeCounter::Fingerprint => "fingerprint",
            NodeCounter::FingerprintHeard => "fingerprint_heard",
            NodeCounter::FingerprintUnknown => "fingerprint_unknown",
            NodeCounter::RefusedNotInsured => "refused_not_insured",
            NodeCounter::Icmp => "icmp",
            NodeCounter::ArpIgnored => "arp_ignored",
            NodeCounter::ArpAnnounce => "arp_announce",
            NodeCounter::DropTag => "drop_tag",
            NodeCounter::DropEpoch => "drop_epoch",
            NodeCounter::DropVersion => "drop_version",
            NodeCounter::DropMalformed => "drop_malformed",
            NodeCounter::DropPlain => "drop_plain",
            NodeCounter::DropAway => "drop_away",
            NodeCounter::DropNoSocket => "drop_no_socket",
            NodeCounter::DropNotKept => "drop_not_kept",
            NodeCounter::DropStale => "drop_stale",
            NodeCounter::Outdated => "outdated",
            NodeCounter::Lacked => "lacked",
            NodeCounter::Hidden => "hidden",
            NodeCounter::ToldHere => "told_here",
            NodeCounter::DropRingFull => "drop_ring_full",
            NodeCounter::DropRepeated => "drop_repeated",
            NodeCounter::DropBehindGap => "drop_behind_gap",
            NodeCounter::DropOvertaking => "drop_overtaking",
            NodeCounter::CookieRestored => "cookie_restored",
            NodeCounter::CookieRewritten => "cookie_rewritten",
            NodeCounter::CookieInserted => "cookie_inserted",
            NodeCounter::CookieWaited => "cookie_waited",
            NodeCounter::CookieMissed => "cookie_missed",
            NodeCounter::Introduced => "introduced",
            NodeCounter::Direct => "direct",
            NodeCounter::Heard => "heard",
            NodeCounter::Gone => "gone",
            NodeCounter::Tunneled => "tunneled",
            NodeCounter::DropClient => "drop_client",
            NodeCounter::DropBeyond => "drop_beyond",
        }
    }

    pub fn help(self) -> &'static str {
        match self {
            NodeCounter::Adopted => "flows adopted",
            NodeCounter::Replayed => "of these, those by a replayed handshake",
            NodeCounter::Repeated => "adoptions of connections that are over, not made again",
            NodeCounter::Forwarded => "packets handed to the socket of their flow",
            NodeCounter::Released => "flows released",
            NodeCounter::Busy => "releases refused because a response was not complete and acknowledged",
            NodeCounter::Owned => "probes answered",
            NodeCounter::Confirmed => "switches told that data has arrived",
            NodeCounter::Kept => "packets of clients kept, because a switch acknowledges them before a server has them",
            NodeCounter::Restored => "kept packets given to a switch",
            NodeCounter::Cured => "stale sockets removed before an adoption",
            NodeCounter::RefusedQueueFull => "adoptions refused: accept queue full",
            NodeCounter::RefusedDraining => "adoptions refused: the node is draining",
            NodeCounter::PassedOn => "adoptions passed on to their second candidate",
            NodeCounter::Hello => "switches that asked for reports",
            NodeCounter::Synced => "switches told the time",
            NodeCounter::RefusedNoListener => "adoptions refused: nobody listens",
            NodeCounter::RefusedNoNode => "adoptions refused: for a node that this machine does not know",
            NodeCounter::RefusedNoSocket => "requests refused: the flow has no socket here",
            NodeCounter::RefusedFailed => "adoptions refused: the kernel would not",
            NodeCounter::Withheld => "acknowledgments of requests without a response, and early FINs, kept back",
            NodeCounter::TakenOver => "flows that came by another switch before",
            NodeCounter::Stalled => "flows whose client was asked for an acknowledgment when a switch took flows over",
            NodeCounter::Outlived => "flows that go on without the server that ended them",
            NodeCounter::Muted => "packets of released flows kept back",
            NodeCounter::Remembered => "flows known again by a request, after their entry had given way to others",
            NodeCounter::Forgotten => "flows ended because their entry had given way to others",
            NodeCounter::Unread => "packets refused because their data has to be read first",
            NodeCounter::NotTaken => "flows ended because their socket did not take what had been read",
            NodeCounter::Aborted => "flows released before their request was complete",
            NodeCounter::Responses => "responses followed to their end",
            NodeCounter::Acknowledged => "packets of clients that acknowledge more of a response",
            NodeCounter::LostTrack => "responses whose end cannot be told",
            NodeCounter::Fact => "facts of responses that a switch wants to know",
            NodeCounter::FactLost => "facts for which there was no room",
            NodeCounter::Judgment => "failed responses, and the first successes behind them, told to the agent",
            NodeCounter::JudgmentLost => "of these, those for which there was no room",
            NodeCounter::Insurable => "responses that another node could go on with, reported to the agent",
            NodeCounter::InsurableLost => "of these, those for which there was no room",
            NodeCounter::Bequeathed => "responses whose server has gone, left to another node",
            NodeCounter::Death => "switches that told of a dead node",
            NodeCounter::Resumed => "flows adopted in the middle of another node's response",
            NodeCounter::Fingerprint => "fingerprints told to nodes that could repeat a response",
            NodeCounter::FingerprintHeard => "fingerprints heard of responses that this node could repeat",
            NodeCounter::FingerprintUnknown => "fingerprints of responses that this node does not know, or not yet",
            NodeCounter::RefusedNotInsured => "adoptions refused: the response under way is unknown, or over",
            NodeCounter::Icmp => "path MTU messages given to the kernel",
            NodeCounter::ArpIgnored => "ARP requests for a VIP left to the switch",
            NodeCounter::ArpAnnounce => "ARP packets of ours kept from announcing a VIP",
            NodeCounter::DropTag => "dropped: handoff packet with a wrong tag",
            NodeCounter::DropEpoch => "dropped: handoff packet of another time, such as a recorded one",
            NodeCounter::DropVersion => "dropped: handoff packet of a later version of the format",
            NodeCounter::DropMalformed => "dropped: truncated or inconsistent headers",
            NodeCounter::DropPlain => "dropped: packet to a VIP that did not come through a switch",
            NodeCounter::DropAway => "dropped: packet of a server behind an interface, of a connection that is over",
            NodeCounter::DropNoSocket => "dropped: no socket for a forwarded packet",
            NodeCounter::DropNotKept => "dropped: question for a packet that is not kept, or not any more",
            NodeCounter::DropStale => "dropped: a delayed adoption, or a stale socket that would not go",
            NodeCounter::Outdated => "answered with what is true: packets of switches that did not know a flow's adoption",
            NodeCounter::Lacked => "dropped, and the switch told: data of a flow whose adoption was not carried out here",
            NodeCounter::Hidden => "dropped: packets to a hidden node that are from no switch",
            NodeCounter::ToldHere => "packets to the switch of this machine",
            NodeCounter::DropRingFull => "dropped: the switch of this machine does not keep up",
            NodeCounter::DropRepeated => "dropped: data that was handed to the socket a moment ago, sent again",
            NodeCounter::DropBehindGap => "dropped: part of a request with cookies, behind a gap",
            NodeCounter::DropOvertaking => "dropped: part of a response that has overtaken an earlier one",
            NodeCounter::CookieRestored => "cookies given back the name that their server knows",
            NodeCounter::CookieRewritten => "session cookies whose names were rewritten",
            NodeCounter::CookieInserted => "session cookies inserted",
            NodeCounter::CookieWaited => "packets sent again because a cookie's name was not all in them",
            NodeCounter::CookieMissed => "session cookies left as the server set them, or not inserted",
            NodeCounter::Introduced => "introductions sent to clients",
            NodeCounter::Direct => "packets that came from clients directly",
            NodeCounter::Heard => "clients told that what they sent directly has arrived",
            NodeCounter::Gone => "clients told that a flow is not here",
            NodeCounter::Tunneled => "packets sent to clients in a tunnel",
            NodeCounter::DropClient => "dropped: direct packet of another client's flow",
            NodeCounter::DropBeyond => "dropped: direct packet with data of a request that the switch has not read",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ClientCounter {
    #[doc = "introductions of nodes"]
    Introduced,
    #[doc = "introductions for a request that is over"]
    IntroducedLate,
    #[doc = "introductions of nodes that have not answered lately"]
    Avoided,
    #[doc = "packets sent to a node directly"]
    Direct,
    #[doc = "of these, packets that asked the node for an answer"]
    Asked,
    #[doc = "answers of nodes"]
    Heard,
    #[doc = "data that is sent again, left to the switch"]
    Again,
    #[doc = "packets left to the switch so that what is on the way there sees them"]
    Shown,
    #[doc = "flows left to the switch because their next request begins"]
    Beyond,
    #[doc = "flows left to the switch because their node does not answer"]
    Fallback,
    #[doc = "flows left to the switch because their node does not have them any more"]
    Gone,
    #[doc = "packets of servers taken out of their tunnel"]
    Tunneled,
    #[doc = "acknowledgments left out"]
    Thinned,
    #[doc = "dropped: introduction or packet of a node with a wrong tag"]
    DropTag,
    #[doc = "dropped: packet of a node in a later version of the format"]
    DropVersion,
    #[doc = "dropped: packet of a node that makes no sense"]
    DropMalformed,
    #[doc = "dropped: packet in a tunnel that is not from a service"]
    DropForeign,
    #[doc = "dropped: the kernel would not make room for the headers"]
    DropRoom,
}

impl ClientCounter {
    pub const ALL: [ClientCounter; 18] = [
        ClientCounter::Introduced,
        ClientCounter::IntroducedLate,
        ClientCounter::Avoided,
        ClientCounter::Direct,
        ClientCounter::Asked,
        ClientCounter::Heard,
        ClientCounter::Again,
        ClientCounter::Shown,
        ClientCounter::Beyond,
        ClientCounter::Fallback,
        ClientCounter::Gone,
        ClientCounter::Tunneled,
        ClientCounter::Thinned,
        ClientCounter::DropTag,
        ClientCounter::DropVersion,
        ClientCounter::DropMalformed,
        ClientCounter::DropForeign,
        ClientCounter::DropRoom,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ClientCounter::Introduced => "introduced",
            ClientCounter::IntroducedLate => "introduced_late",
            ClientCounter::Avoided => "avoided",
            ClientCounter::Direct => "direct",
            ClientCounter::Asked => "asked",
            ClientCounter::Heard => "heard",
            ClientCounter::Again => "again",
            ClientCounter::Shown => "shown",
            ClientCounter::Beyond => "beyond",
            ClientCounter::Fallback => "fallback",
            ClientCounter::Gone => "gone",
            ClientCounter::Tunneled => "tunneled",
            ClientCounter::Thinned => "thinned",
            ClientCounter::DropTag => "drop_tag",
            ClientCounter::DropVersion => "drop_version",
            ClientCounter::DropMalformed => "drop_malformed",
            ClientCounter::DropForeign => "drop_foreign",
            ClientCounter::DropRoom => "drop_room",
        }
    }

    pub fn help(self) -> &'static str {
        match self {
            ClientCounter::Introduced => "introductions of nodes",
            ClientCounter::IntroducedLate => "introductions for a request that is over",
            ClientCounter::Avoided => "introductions of nodes that have not answered lately",
            ClientCounter::Direct => "packets sent to a node directly",
            ClientCounter::Asked => "of these, packets that asked the node for an answer",
            ClientCounter::Heard => "answers of nodes",
            ClientCounter::Again => "data that is sent again, left to the switch",
            ClientCounter::Shown => "packets left to the switch so that what is on the way there sees them",
            ClientCounter::Beyond => "flows left to the switch because their next request begins",
            ClientCounter::Fallback => "flows left to the switch because their node does not answer",
            ClientCounter::Gone => "flows left to the switch because their node does not have them any more",
            ClientCounter::Tunneled => "packets of servers taken out of their tunnel",
            ClientCounter::Thinned => "acknowledgments left out",
            ClientCounter::DropTag => "dropped: introduction or packet of a node with a wrong tag",
            ClientCounter::DropVersion => "dropped: packet of a node in a later version of the format",
            ClientCounter::DropMalformed => "dropped: packet of a node that makes no sense",
            ClientCounter::DropForeign => "dropped: packet in a tunnel that is not from a service",
            ClientCounter::DropRoom => "dropped: the kernel would not make room for the headers",
        }
    }
}

/// Why a node did not do what it was asked for, or did it in a special way (`enum sb_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    #[doc = "REFUSED: the share of the accept queue that ADOPT allows is used up."]
    QueueFull = 1,
    #[doc = "REFUSED, REPORT: nobody listens; in REPORT also: the listener speaks MPTCP, for which the kernel takes no adopted flows."]
    NoListener = 2,
    #[doc = "REFUSED, REPORT: the node adopts no flow that it does not have already."]
    Draining = 3,
    #[doc = "REFUSED, RELEASED: the flow has no server here (any more), and its client does not know. UNOWNED: the node has not carried out the adoption of a packet with data."]
    NoSocket = 4,
    #[doc = "REFUSED: the kernel has made no socket."]
    Failed = 5,
    #[doc = "BUSY: the server is closing the connection, or the flow is not the node's."]
    Closing = 6,
    #[doc = "BUSY: the node has this request already."]
    Duplicate = 7,
    #[doc = "RELEASED: ABORT came after the beginning of a response; or the server has gone away with a request before this one."]
    Responding = 8,
    #[doc = "REPORT: the server fails the pool's health check."]
    Unhealthy = 9,
    #[doc = "RELEASED: the second candidate has got the adoption. To a switch the same as NONE."]
    PassedOn = 10,
    #[doc = "RELEASED: the agent has another node take the flow, or goes on with it itself. To a switch the same as NONE."]
    Frozen = 11,
    #[doc = "UNOWNED: the request at the PROBE's sequence number has been answered here, on the connection of its `origin`. REFUSED: the client has the whole response that was to be resumed."]
    Served = 12,
    #[doc = "REFUSED: the node has released the flow for another adoption, or promised or declined one."]
    Outdated = 13,
    #[doc = "UNOWNED: the node has released the flow, in the state given. Whoever finds no owner can go on with it."]
    Released = 14,
    #[doc = "REPORT: nobody acknowledges the responses of the node, which gets requests if no other can."]
    Unacknowledged = 15,
    #[doc = "BUSY: the server has gone in the middle of a response with which another node is to go on."]
    Bequeathed = 16,
    #[doc = "REPORT: the server fails the pool's requests. The switch decides whether it can do without the node."]
    Failing = 17,
}

impl Reason {
    pub const ALL: [Reason; 17] = [
        Reason::QueueFull,
        Reason::NoListener,
        Reason::Draining,
        Reason::NoSocket,
        Reason::Failed,
        Reason::Closing,
        Reason::Duplicate,
        Reason::Responding,
        Reason::Unhealthy,
        Reason::PassedOn,
        Reason::Frozen,
        Reason::Served,
        Reason::Outdated,
        Reason::Released,
        Reason::Unacknowledged,
        Reason::Bequeathed,
        Reason::Failing,
    ];
}

impl sb_op {
    pub const ALL: [sb_op; 34] = [
        sb_op::SB_OP_ADOPT,
        sb_op::SB_OP_FORWARD,
        sb_op::SB_OP_RELEASE,
        sb_op::SB_OP_PROBE,
        sb_op::SB_OP_ICMP,
        sb_op::SB_OP_CONFIRM,
        sb_op::SB_OP_HELLO,
        sb_op::SB_OP_SYNC,
        sb_op::SB_OP_KEEP,
        sb_op::SB_OP_RESTORE,
        sb_op::SB_OP_DEAD,
        sb_op::SB_OP_DIRECT,
        sb_op::SB_OP_ADOPTED,
        sb_op::SB_OP_REFUSED,
        sb_op::SB_OP_RELEASED,
        sb_op::SB_OP_BUSY,
        sb_op::SB_OP_CLOSED,
        sb_op::SB_OP_OWNED,
        sb_op::SB_OP_CONFIRMED,
        sb_op::SB_OP_REPORT,
        sb_op::SB_OP_SIZED,
        sb_op::SB_OP_FACTS,
        sb_op::SB_OP_FLOWS,
        sb_op::SB_OP_SWITCHES,
        sb_op::SB_OP_UNOWNED,
        sb_op::SB_OP_UNREAD,
        sb_op::SB_OP_SYNCED,
        sb_op::SB_OP_KEPT,
        sb_op::SB_OP_RESTORED,
        sb_op::SB_OP_MOVE,
        sb_op::SB_OP_RESUME,
        sb_op::SB_OP_HEARD,
        sb_op::SB_OP_GONE,
        sb_op::SB_OP_TUNNELED,
    ];
}
