//! Compiles `bpf/switch.bpf.c` and makes its skeleton.

fn main() {
    switchback_bpf_build::build("switch");
}
