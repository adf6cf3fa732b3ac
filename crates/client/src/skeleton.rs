//! Generated from `bpf/client.bpf.c` by the build script.

include!(concat!(env!("OUT_DIR"), "/client.skel.rs"));
