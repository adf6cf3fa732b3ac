//! The verifier's work at each start of a switch.

use libbpf_rs::query::ProgInfoIter;

use super::bench::Bench;

/// The verifier refuses a program after a million instructions, and takes some two seconds for them. Values that a loop
/// keeps on the stack multiply them: the verifier follows each value there, but none in an entry of a map.
#[test]
fn the_program_is_verified_in_a_quarter_of_the_allowed_instructions() {
    let last = ProgInfoIter::default().map(|program| program.id).max();
    let _bench = Bench::new();
    let loaded = ProgInfoIter::default().filter(|program| Some(program.id) > last);
    let verified: Vec<u32> =
        loaded.filter(|program| program.name == "switchback").map(|program| program.verified_insns).collect();
    assert!(!verified.is_empty() && verified.iter().all(|&count| count < 250_000), "{verified:?}");
}
