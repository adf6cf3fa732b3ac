//! Packets through the real programs by `BPF_PROG_TEST_RUN`. The tests need the capabilities to load a program and to
//! create a network namespace.

mod adopt;
mod bench;
mod clients;
mod cookies;
mod counters;
mod crowd;
mod filters;
mod follow;
mod frames;
mod fuzz;
mod generations;
mod here;
mod hidden;
mod intake;
mod invariants;
mod judge;
mod load;
mod malformed;
mod moved;
mod new_heads;
mod numbered;
mod outlive;
mod over;
mod owned;
mod queue;
mod replay;
mod resume;
mod second;
mod stalled;
mod verifier;
mod versions;
mod wire;
