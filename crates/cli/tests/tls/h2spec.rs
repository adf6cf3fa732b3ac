//! What h2spec says of the endpoint: each requirement of RFC 9113 and RFC 7541 that a client can see.

use std::path::Path;

use crate::common::{Result, load, text};
use crate::{TIMEOUT, start};

/// `make test` builds it.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/h2spec");

#[test]
fn h2spec_finds_nothing() -> Result {
    let program = Path::new(PROGRAM)
        .canonicalize()
        .map_err(|error| format!("{PROGRAM}: {error}: make target/tools/h2spec"))?;
    let cluster = start(1, "")?;
    let vip = cluster.lab.vip4().to_string();
    for round in 1..=load(1, 10) {
        let words = [text(&program), "-h", &vip, "-p", "443", "-P", "/1m", "-t", "-k", "-o", "5"];
        let said = cluster.client().run_within(TIMEOUT, words)?;
        assert!(said.stdout.contains(" passed, 0 skipped, 0 failed"), "{round}: {}", said.stdout);
    }
    cluster.down()
}
