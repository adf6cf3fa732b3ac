//! What a public tool says of the endpoint.

use crate::common::Result;
use crate::{NAME, TIMEOUT, start};

#[test]
fn sslscan_finds_nothing_old() -> Result {
    let cluster = start(2, "")?;
    let (name, vip) = (format!("--sni-name={NAME}"), format!("{}:443", cluster.lab.vip4()));
    let said = cluster.client().run_within(TIMEOUT, ["sslscan", "--no-colour", &name, &vip])?.success()?;
    println!("{said}");
    let words: Vec<String> =
        said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "SSLv2 disabled",
        "SSLv3 disabled",
        "TLSv1.0 disabled",
        "TLSv1.1 disabled",
        "TLSv1.2 enabled",
        "TLSv1.3 enabled",
        "Session renegotiation not supported",
        "TLSv1.3 not vulnerable to heartbleed",
        "TLSv1.2 not vulnerable to heartbleed",
    ] {
        assert!(words.iter().any(|words| words == line), "no {line:?}");
    }
    assert!(!said.contains("Compression enabled"));
    let suites: Vec<&String> =
        words.iter().filter(|line| line.starts_with("Accepted") || line.starts_with("Preferred")).collect();
    assert!(suites.len() >= 6, "{suites:?}");
    for suite in suites {
        let is_strong = ["GCM", "CHACHA20"].iter().any(|cipher| suite.contains(cipher));
        let is_ephemeral = suite.contains("ECDHE") || suite.contains("TLSv1.3");
        assert!(is_strong && is_ephemeral, "{suite}");
    }
    cluster.down()
}
