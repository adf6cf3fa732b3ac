//! Packets through the real programs by `BPF_PROG_TEST_RUN`. The tests need the capabilities to load a program and to
//! create a network namespace.

mod bench;
mod counters;
mod flows;
mod fuzz;
mod messages;
mod nat;
mod thin;
