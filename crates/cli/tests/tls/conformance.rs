//! Public suites that `make deps` cannot install: see docs/tls-conformance.md, which says how to get and run them.

use std::env;
use std::process::Command;
use std::time::Duration;

use crate::common::{Cluster, Result};
use crate::{NAME, change_config, plan, start};

const HOURS: Duration = Duration::from_secs(4 * 3600);

/// `SWITCHBACK_TLSFUZZER` is a checkout of tlsfuzzer, `SWITCHBACK_TLSFUZZER_PYTHON` an interpreter that has tlslite-ng, and
/// `SWITCHBACK_TLSFUZZER_OUTPUT` the file for what comes of it.
#[test]
#[ignore = "needs tlsfuzzer"]
fn tlsfuzzer() -> Result {
    let mut cluster = Cluster::prepare(plan(1, ""))?;
    // Most scripts know no other kind of certificate, and expect an answer in one record: the node's own.
    let directory = cluster.lab.directory();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=shop.example.com"])
        .args(["-keyout", "shop.key", "-out", "shop.pem"])
        .current_dir(directory)
        .output()?;
    assert!(made.status.success(), "{made:?}");
    change_config(&cluster, "[[service.route]]\npool", "[[service.route]]\npath = \"/none/\"\npool")?;
    cluster.start_daemons()?;
    let setting = |name: &str| env::var(format!("SWITCHBACK_TLSFUZZER{name}"));
    let (checkout, python, output) = (setting("")?, setting("_PYTHON")?, setting("_OUTPUT")?);
    let (program, vip) = (crate::program("tlsfuzzer.py"), cluster.lab.vip4().to_string());
    let words = [&python, &program, &checkout, &vip, "443", &output];
    print!("{}", cluster.client().run_within(HOURS, words)?.success()?);
    cluster.down()
}

/// testssl.sh (Debian package `testssl.sh`) says what it finds.
#[test]
#[ignore = "needs testssl.sh, and takes minutes"]
fn testssl() -> Result {
    let cluster = start(1, "")?;
    let (authority, address) = (crate::authority(&cluster), format!("--ip={}", cluster.lab.vip4()));
    let words = ["testssl", "--color", "0", "--warnings", "batch", "--add-ca", &authority, &address, NAME];
    print!("{}", cluster.client().run_within(HOURS, words)?.stdout);
    cluster.down()
}
