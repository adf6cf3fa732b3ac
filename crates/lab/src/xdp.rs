//! XDP programs of the lab's own.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_sys::{BPF_ALU64, BPF_EXIT, BPF_JMP, BPF_K, BPF_MOV, XDP_PASS, bpf_insn};
use nix::net::if_::if_nametoindex;

use crate::error::{Doing, Result};
use crate::netns::NetNs;

const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// The smallest program, which passes every packet.
pub(crate) fn pass() -> [bpf_insn; 2] {
    [
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, (0, 0), 0, XDP_PASS as i32),
        instruction(BPF_JMP | BPF_EXIT, (0, 0), 0, 0),
    ]
}

/// Attaches a program to a device of the namespace, or with None detaches the one that it has.
pub(crate) fn set(namespace: &NetNs, device: &str, program: Option<&[bpf_insn]>) -> Result<()> {
    let done = namespace.enter(|| attach(device, program))?;
    done.doing(|| format!("set the XDP program of {device} in {}", namespace.name()))
}

fn attach(device: &str, program: Option<&[bpf_insn]>) -> io::Result<()> {
    let index = if_nametoindex(device)? as i32;
    let program = program.map(load).transpose()?;
    let fd = program.as_ref().map_or(-1, |program| program.as_raw_fd());
    // SAFETY: plain numbers; the kernel holds its own reference to the program.
    check(unsafe { libbpf_sys::bpf_xdp_attach(index, fd, XDP_FLAGS_DRV_MODE, std::ptr::null()) }).map(drop)
}

fn load(program: &[bpf_insn]) -> io::Result<OwnedFd> {
    // SAFETY: the program's length is given, the license is a C string, and no options are passed.
    let fd = check(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"lab".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    })?;
    // SAFETY: the kernel has just created this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An instruction of a BPF program, with the numbers of the registers that it writes and reads.
pub fn instruction(code: u32, (to, from): (u8, u8), off: i16, imm: i32) -> bpf_insn {
    let mut instruction = bpf_insn { code: code as u8, off, imm, ..bpf_insn::default() };
    instruction.set_dst_reg(to);
    instruction.set_src_reg(from);
    instruction
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}
