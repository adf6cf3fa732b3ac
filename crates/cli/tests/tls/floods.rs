//! Floods of HTTP/2's own frames, and of TLS's own messages, each with a limit in count and time, and a polite client beside each.

use std::process::Stdio;

use crate::common::{PATIENCE, Result, load, wait_until};
use crate::memory::resident;
use crate::{PYTHON, authority, curl, program, start, tls_status, url};

/// Name of each in `floods.py` or `key_updates.py`, and whether the node ends the connection. Where it does not, a frame costs it no more than the
/// answer that it is due, or whether it does depends on how fast it sees requests come and go.
const FLOODS: [(&str, Option<bool>); 10] = [
    ("rapid_reset", None),
    ("made_you_reset", Some(true)),
    ("continuation", Some(true)),
    ("empty_continuation", Some(true)),
    ("empty_data", None),
    ("ping", None),
    ("setting", None),
    ("window", None),
    ("priority", None),
    ("key_update", Some(true)),
];

#[test]
fn floods_of_frames_end_or_cost_nothing() -> Result {
    let count = load(20_000, 1_000_000);
    let cluster = start(1, "")?;
    let fetch = || curl(&cluster, &["--http2", "-o", "/dev/null", "-w", "%{response_code}", &url("/1m")]);
    assert_eq!(fetch()?, "200");
    let before = resident(&cluster)?;
    let vip = cluster.lab.vip4().to_string();
    for (flood, is_ended) in FLOODS {
        let mut command = cluster.client().command(PYTHON);
        let script = if flood == "key_update" { "key_updates.py" } else { "floods.py" };
        command.args([&program(script), &vip, &authority(&cluster), flood, &count.to_string()]);
        let running = command.stdout(Stdio::piped()).spawn()?;
        assert_eq!(fetch()?, "200", "beside {flood}");
        let output = running.wait_with_output()?;
        let said = String::from_utf8(output.stdout)?;
        let now = resident(&cluster)?;
        println!("{flood}: {}, {now} MiB", said.trim());
        let ended = said.starts_with("ended");
        assert!(output.status.success() && (ended || said.starts_with("open")), "{flood}: {said:?}");
        assert!(is_ended.is_none_or(|expected| ended == expected), "{flood}: {said}");
        assert!(now < before + 64, "{flood}: {before} MiB before it, {now} behind");
        assert_eq!(fetch()?, "200", "behind {flood}");
    }
    let gone = || Ok(tls_status(&cluster, 0)?["connections"].as_u64().unwrap_or_default());
    wait_until("the end of the connections", PATIENCE, gone, |left| *left == 0)?;
    cluster.down()
}
