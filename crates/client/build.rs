//! Compiles `bpf/client.bpf.c` and makes its skeleton.

use std::{env, path::PathBuf};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("client.skel.rs");
    libbpf_cargo::SkeletonBuilder::new()
        .source("bpf/client.bpf.c")
        .clang_args([
            "-mcpu=v3",
            "-Wall",
            "-Werror",
            "-fno-strict-aliasing",
            "-I/usr/include/x86_64-linux-gnu",
            "-I",
            switchback_wire::BPF_INCLUDE,
        ])
        .build_and_generate(&out)
        .expect("clang compiles bpf/client.bpf.c (Debian package clang)");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed={}", switchback_wire::BPF_INCLUDE);
}
