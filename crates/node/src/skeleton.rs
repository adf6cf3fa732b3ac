//! Generated from `bpf/node.bpf.c` by the build script.

include!(concat!(env!("OUT_DIR"), "/node.skel.rs"));
