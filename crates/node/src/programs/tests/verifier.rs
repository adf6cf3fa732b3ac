//! The verifier's work at each start of an agent.

use libbpf_rs::query::ProgInfoIter;

use super::bench::{Bench, alone};

/// The verifier refuses a program after a million instructions, and takes some two seconds for them.
#[test]
fn programs_are_verified_in_a_quarter_of_the_allowed_instructions() {
    alone(|| {
        let last = ProgInfoIter::default().map(|program| program.id).max();
        let _bench = Bench::new();
        let loaded = ProgInfoIter::default().filter(|program| Some(program.id) > last);
        let verified: Vec<_> = loaded
            .filter(|program| program.name.to_string_lossy().starts_with("switchback_"))
            .map(|program| (program.name, program.verified_insns))
            .collect();
        assert!(verified.len() >= 3 && verified.iter().all(|(_, count)| *count < 250_000), "{verified:?}");
    });
}
