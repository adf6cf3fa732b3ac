//! Rate limits of requests. Each limit is a token bucket for each client, or for all of them: a request takes a token of
//! every bucket that counts it, or is over the limit and takes none.
//!
//! A bucket is kept as the time at which it will be full, which is GCRA (ITU-T I.371 annex A): no timer fills it, and one
//! that is full need not be kept. [`Table`] holds buckets in user space; the switch has the same law in its XDP program
//! (`crates/switch/bpf/guard.h`), so that all its CPUs and threads share one bucket.

mod limits;
mod table;

pub use limits::{Bucket, OF_REQUESTS, RequestLimits, Wish};
pub use table::{Table, Taken, retry_after};
