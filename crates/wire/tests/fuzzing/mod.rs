//! What the fuzz tests of all crates have in common.
//!
//! They use bolero because one function is then a target for two engines. `cargo test` runs it with random
//! values on any stable compiler and shrinks what fails. `make fuzz-guided` runs the same function under
//! libFuzzer, which keeps what reaches new code; that too needs only the stable compiler. cargo-fuzz would
//! have the second engine only, in a crate of its own and with a nightly compiler.
//!
//! Values are examples of what each parser expects, with [`Edit`]s: random bytes alone get no further than a
//! parser's first test. `SWITCHBACK_FUZZ_SECONDS` says for how long each target runs; what fails prints a
//! `BOLERO_RANDOM_SEED` that repeats it. A failure that was found becomes a test with a name.

#![allow(dead_code)] // No crate uses all of it.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bolero::TypeGenerator;

/// How long one target runs.
pub fn time() -> Duration {
    let seconds = std::env::var("SWITCHBACK_FUZZ_SECONDS");
    Duration::from_secs(seconds.map_or(2, |text| text.parse().expect("SWITCHBACK_FUZZ_SECONDS is a number")))
}

/// A change of some bytes. Places are taken modulo the length.
#[derive(Clone, Debug, TypeGenerator)]
pub enum Edit {
    /// The byte at the place becomes this one.
    Set(u16, u8),
    /// One bit of it changes.
    Flip(u16, u8),
    /// So many bytes go.
    Remove(u16, u8),
    /// So many bytes are there twice.
    Repeat(u16, u8),
    /// The piece with this number is put in.
    Insert(u16, u8),
    /// All that follows goes.
    End(u16),
}

impl Edit {
    /// Makes the change; `pieces` are what can be put in.
    pub fn apply(&self, bytes: &mut Vec<u8>, pieces: &[&[u8]]) {
        let len = bytes.len();
        let place = |at: u16| usize::from(at) % (len + 1);
        let range = |at: u16, count: u8| place(at)..(place(at) + usize::from(count)).min(len);
        match *self {
            Edit::Set(at, byte) => bytes[range(at, 1)].fill(byte),
            Edit::Flip(at, bit) => bytes[range(at, 1)].iter_mut().for_each(|byte| *byte ^= 1 << (bit % 8)),
            Edit::Remove(at, count) => drop(bytes.drain(range(at, count))),
            Edit::Repeat(at, count) => {
                let again = bytes[range(at, count)].to_vec();
                drop(bytes.splice(place(at)..place(at), again));
            }
            Edit::Insert(at, piece) => {
                let piece = pieces.get(usize::from(piece) % pieces.len().max(1)).copied().unwrap_or_default();
                drop(bytes.splice(place(at)..place(at), piece.iter().copied()));
            }
            Edit::End(at) => bytes.truncate(place(at)),
        }
    }
}

/// An example with changes, or nothing but bytes.
#[derive(Clone, Debug, TypeGenerator)]
pub enum Input {
    /// The example with this number, modulo how many there are, and what is changed in it.
    Example(u16, #[generator(bolero::produce::<Vec<Edit>>().with().len(0usize..8))] Vec<Edit>),
    /// Bytes as they are.
    Bytes(Vec<u8>),
}

impl Input {
    /// The bytes that it stands for.
    pub fn bytes(&self, examples: &[Vec<u8>], pieces: &[&[u8]]) -> Vec<u8> {
        match self {
            Input::Bytes(bytes) => bytes.clone(),
            Input::Example(number, edits) => {
                let mut bytes = examples[usize::from(*number) % examples.len()].clone();
                edits.iter().for_each(|edit| edit.apply(&mut bytes, pieces));
                bytes
            }
        }
    }
}

/// Ends the process when a case takes longer than any can: a panic is no way out of a loop.
pub struct Watchdog;

static CASES: AtomicU64 = AtomicU64::new(0);

impl Watchdog {
    /// Begins to watch.
    pub fn new() -> Self {
        std::thread::spawn(|| {
            let mut seen = 0;
            loop {
                std::thread::sleep(Duration::from_secs(20));
                let cases = CASES.load(Ordering::Relaxed);
                if cases == seen && cases % 2 == 1 {
                    // Not eprintln!(), which the test harness would keep to itself.
                    let _ = std::io::stderr().write_all(b"a case does not end\n");
                    std::process::abort();
                }
                seen = cases;
            }
        });
        Watchdog
    }

    /// Runs a case.
    pub fn watch<T>(&self, case: impl FnOnce() -> T) -> T {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                CASES.fetch_add(1, Ordering::Relaxed);
            }
        }
        CASES.fetch_add(1, Ordering::Relaxed);
        let _leave = Leave;
        case()
    }
}
