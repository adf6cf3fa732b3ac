//! Floods over one connection with TLS; `crates/cli/tests/tls/floods.rs` has what becomes of it.

use std::process::Stdio;

use crate::common::{Result, text};
use crate::victims::Scene;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
const COUNT: &str = "20000";

#[test]
fn frames_and_key_updates_without_end() -> Result {
    const FLOODS: [(&str, &str); 4] = [
        ("floods.py", "rapid_reset"),
        ("floods.py", "made_you_reset"),
        ("floods.py", "empty_data"),
        ("key_updates.py", "key_update"),
    ];
    let mut scene = Scene::start()?;
    let (vip, authority) =
        (scene.cluster.lab.vip4().to_string(), scene.cluster.lab.directory().join("shop.pem"));
    let begin = |(script, flood): &(&str, &str)| {
        let mut command = scene.cluster.lab.client(1).command("/usr/bin/python3");
        command.args([&format!("{PROGRAMS}/{script}"), &vip, text(&authority), flood, COUNT]);
        command.stdout(Stdio::piped()).spawn()
    };
    let running: Vec<_> = FLOODS.iter().map(begin).collect::<std::io::Result<_>>()?;
    scene.go_on()?;
    for ((_, flood), running) in FLOODS.iter().zip(running) {
        let output = running.wait_with_output()?;
        let said = String::from_utf8(output.stdout)?;
        println!("{flood}: {}", said.trim());
        assert!(output.status.success() && said.contains(' '), "{flood}: {said:?}");
    }
    scene.down()
}
