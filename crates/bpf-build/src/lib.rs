//! Compiles a BPF program and makes its skeleton, for the build scripts of switch, node and client.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// Directories of the headers that programs share.
const SHARED: [&str; 2] = [switchback_http::BPF_INCLUDE, switchback_wire::BPF_INCLUDE];

/// Compiles `bpf/NAME.bpf.c` of the calling package to `NAME.skel.rs` in its `OUT_DIR`.
///
/// # Panics
///
/// If the program does not compile; the message has what clang says.
pub fn build(name: &str) {
    let source = format!("bpf/{name}.bpf.c");
    let skeleton =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join(format!("{name}.skel.rs"));
    let mut args = ["-mcpu=v3", "-Wall", "-Werror", "-fno-strict-aliasing"].map(String::from).to_vec();
    args.extend(multiarch_include().map(|directory| format!("-I{}", directory.display())));
    args.extend(SHARED.map(|headers| format!("-I{headers}")));
    SkeletonBuilder::new().source(&source).clang_args(args).build_and_generate(&skeleton).unwrap_or_else(
        |error| {
            panic!(
                "cannot compile {source} (it takes the Debian packages clang and linux-libc-dev): {error:#}"
            )
        },
    );
    for headers in ["bpf"].iter().chain(&SHARED) {
        println!("cargo:rerun-if-changed={headers}");
    }
}

/// The directory of `asm/types.h`, which Debian keeps apart for each architecture. clang looks there only for programs
/// of this machine, not for BPF. None where it is part of `/usr/include`.
fn multiarch_include() -> Option<PathBuf> {
    let tuples =
        [tuple_of("cc"), tuple_of("clang"), env::var("CARGO_CFG_TARGET_ARCH").ok().map(debian_tuple)];
    let mut directories = tuples.into_iter().flatten().map(|tuple| Path::new("/usr/include").join(tuple));
    directories.find(|directory| directory.join("asm").is_dir())
}

/// What a compiler names its multiarch directory, such as `x86_64-linux-gnu`; None if it knows of none.
fn tuple_of(compiler: &str) -> Option<String> {
    let output = Command::new(compiler).arg("-print-multiarch").output().ok()?;
    let tuple = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !tuple.is_empty()).then_some(tuple)
}

/// The tuple of an architecture if no compiler knows.
fn debian_tuple(arch: String) -> String {
    format!("{arch}-linux-gnu")
}
