//! Packets through the real programs by `BPF_PROG_TEST_RUN`. They need the rights to load a program and to make a
//! network namespace.

mod bench;
mod counters;
mod flows;
mod fuzz;
mod nat;
mod said;
mod thin;
