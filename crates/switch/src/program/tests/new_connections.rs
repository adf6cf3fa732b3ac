//! What the packets of a new connection cost, beside a program that only sends them back: the least that any program costs
//! on this kernel.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_sys::{BPF_PROG_TYPE_XDP, bpf_insn};
use switchback_wire::packet::{TcpView, flags, timestamps};

use super::bench::*;
use super::forward::PLAIN;
use super::frames::*;
use super::handshake::{ISN, last};
use super::many_flows::numbered;

const CONNECTIONS: u32 = 20_000;
/// The share of accept queues in the choices.
const SHARE: u8 = 90;

/// An XDP program that swaps the hardware addresses of a frame and sends it back.
struct Bounce(OwnedFd);

impl Bounce {
    fn load() -> Bounce {
        use libbpf_sys::{
            BPF_ADD, BPF_ALU64, BPF_EXIT, BPF_H, BPF_JGT, BPF_JMP, BPF_K, BPF_LDX, BPF_MEM, BPF_MOV, BPF_STX,
            BPF_W, BPF_X, XDP_ABORTED, XDP_TX,
        };
        let load = |size, to, from, offset| instruction(BPF_LDX | BPF_MEM | size, to, from, offset, 0);
        let store = |size, to, from, offset| instruction(BPF_STX | BPF_MEM | size, to, from, offset, 0);
        let give = |value| instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, value);
        let program = [
            // R2: start of the frame, R3: its end, R4: end of the Ethernet header.
            load(BPF_W, 2, 1, 0),
            load(BPF_W, 3, 1, 4),
            instruction(BPF_ALU64 | BPF_MOV | BPF_X, 4, 2, 0, 0),
            instruction(BPF_ALU64 | BPF_ADD | BPF_K, 4, 0, 0, 14),
            give(XDP_ABORTED),
            // To the end if the header is not whole.
            instruction(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 9, 0),
            load(BPF_W, 4, 2, 0),
            load(BPF_H, 5, 2, 4),
            load(BPF_W, 6, 2, 6),
            load(BPF_H, 7, 2, 10),
            store(BPF_W, 2, 6, 0),
            store(BPF_H, 2, 7, 4),
            store(BPF_W, 2, 4, 6),
            store(BPF_H, 2, 5, 10),
            give(XDP_TX),
            instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ];
        let (kind, len) = (BPF_PROG_TYPE_XDP, program.len() as libbpf_sys::size_t);
        let (name, license) = (c"bounce".as_ptr(), c"MIT".as_ptr());
        // SAFETY: all pointers live until the end of the call.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(kind, name, license, program.as_ptr(), len, std::ptr::null_mut())
        };
        assert!(fd >= 0, "load the program: {}", io::Error::from_raw_os_error(-fd));
        // SAFETY: the kernel has just made this descriptor for us.
        Bounce(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Runs the program once on a frame; the kernel's measurement of its time.
    fn timed(&self, frame: &[u8]) -> Duration {
        let mut out = vec![0; 4096];
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: the descriptor is open, and the frames live until the end of the call.
        let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &raw mut options) };
        assert_eq!((result, options.retval), (0, libbpf_sys::XDP_TX));
        assert_eq!([&out[..6], &out[6..12]], [&frame[6..12], &frame[..6]], "the addresses are swapped");
        Duration::from_nanos(options.duration.into())
    }
}

fn instruction(code: u32, to: u8, from: u8, offset: i16, value: u32) -> bpf_insn {
    let mut instruction =
        bpf_insn { code: code as u8, off: offset, imm: value as i32, ..bpf_insn::default() };
    instruction.set_dst_reg(to);
    instruction.set_src_reg(from);
    instruction
}

/// The times of one packet of each connection.
#[derive(Default)]
struct Times {
    ours: Vec<Duration>,
    bounced: Vec<Duration>,
}

impl Times {
    /// Runs both programs on the frame, and returns what ours makes of it.
    fn take(&mut self, bench: &Bench, bounce: &Bounce, frame: &[u8]) -> (Verdict, Vec<u8>) {
        self.bounced.push(bounce.timed(frame));
        let (verdict, out, time) = bench.timed(frame);
        self.ours.push(time);
        (verdict, out)
    }
}

#[test]
#[ignore = "a measurement, for a quiet machine and an optimized build"]
fn a_new_connection_against_frames_that_are_sent_back() {
    let (bench, bounce) = (Bench::new(), Bounce::load());
    let [mut syns, mut acks, mut requests] = [(); 3].map(|()| Times::default());
    for flow in (0..CONNECTIONS).map(numbered) {
        let syn = Offer::USUAL.syn(&flow, ISN).frame();
        let (verdict, answer) = syns.take(&bench, &bounce, &syn);
        assert_eq!(verdict, Verdict::Tx);
        let view = TcpView::parse(&answer[14..]).expect("a SYN-ACK");
        let stamp = timestamps(&answer[14..], &view).map_or(0, |(value, _)| value);
        let next = |data| last(&flow, &Offer::USUAL, (view.seq.0, stamp), flags::ACK, data).frame();
        let (verdict, _) = acks.take(&bench, &bounce, &next(&[]));
        assert_eq!(verdict, Verdict::Drop, "its request comes with all that is needed");
        bench.choose_ahead(&[V4], SHARE);
        let (verdict, _) = requests.take(&bench, &bounce, &next(PLAIN.as_bytes()));
        assert_eq!((verdict, bench.choices_left()), (Verdict::Tx, 0), "a node gets it");
    }
    for (packet, mut times) in [("SYN", syns), ("ACK", acks), ("first request", requests)] {
        let medians = [&mut times.ours, &mut times.bounced].map(|times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        println!("{packet}: {:?}, sent back: {:?}", medians[0], medians[1]);
    }
}
