//! `switchback-announce` with a `birdc` that only notes what it is told.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{PATIENCE, Result, wait_until, write_script};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Notes its words when it begins, and works until the file `busy` is gone.
const BIRDC: &str =
    "#!/bin/sh\ncd \"${0%/*}\"\necho \"$@\" >> said\nwhile [ -e busy ]; do sleep 0.01; done\n";

/// SIGTERM comes while BIRD is being told to announce the VIPs.
#[test]
fn the_last_word_withdraws() -> Result {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("announce-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let path = |name: &str| directory.join(name);
    write_script(&path("birdc"), BIRDC)?;
    write_script(&path("switchback"), "#!/bin/sh\necho ready\n")?;
    fs::write(path("busy"), "")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/bird/switchback-announce");
    let programs = format!("{}:{}", directory.display(), std::env::var("PATH")?);
    let mut announce = Command::new("sh").arg(script).args(["-s", "ctl"]).env("PATH", programs).spawn()?;
    let said = || Ok(fs::read_to_string(path("said")).unwrap_or_default());
    wait_until("BIRD is told", PATIENCE, said, |said: &String| said.lines().count() == 1)?;
    kill(Pid::from_raw(announce.id().cast_signed()), Signal::SIGTERM)?;
    fs::remove_file(path("busy"))?;
    assert!(announce.wait()?.success());
    assert_eq!(said()?, "-s ctl enable \"vips*\"\n-s ctl disable \"vips*\"\n");
    Ok(fs::remove_dir_all(&directory)?)
}
