//! Compiles `bpf/client.bpf.c` and makes its skeleton.

fn main() {
    switchback_bpf_build::build("client");
}
