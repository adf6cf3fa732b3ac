//! The process of the switch ends and comes back.

use std::thread::sleep;
use std::time::Duration;

use crate::common::{Cluster, Result, load};
use crate::victims::Scene;

/// Longer than agents wait for an answer of another one.
const OUTAGE: Duration = Duration::from_secs(6);

#[test]
fn an_orderly_restart_ends_no_connection() -> Result {
    restart_after(Cluster::stop_switch)
}

#[test]
fn a_killed_switch_ends_no_connection() -> Result {
    restart_after(Cluster::kill_switch)
}

/// Nor do connections that were moving between nodes when it died.
#[test]
fn a_long_outage_of_the_switch_ends_no_connection() -> Result {
    let mut scene = Scene::start()?;
    scene.cluster.kill_switch()?;
    sleep(OUTAGE);
    scene.cluster.start_switch()?;
    scene.go_on()?;
    scene.down()
}

/// Clients that wait long before they send again are rare: the long load meets them.
fn restart_after(end: fn(&mut Cluster) -> Result) -> Result {
    let mut scene = Scene::start()?;
    for _ in 0..load(3, 40) {
        end(&mut scene.cluster)?;
        scene.cluster.start_switch()?;
        if let Err(error) = scene.go_on() {
            return Err(format!("{error}; {:#}", scene.cluster.switch_status()?).into());
        }
    }
    scene.down()
}
