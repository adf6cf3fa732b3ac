//! The process of the switch ends and comes back.

use crate::common::Result;
use crate::victims::Scene;

#[test]
fn an_orderly_restart_ends_no_connection() -> Result {
    let mut scene = Scene::start()?;
    for _ in 0..3 {
        scene.cluster.stop_switch()?;
        scene.cluster.start_switch()?;
        scene.go_on()?;
    }
    scene.down()
}

#[test]
fn a_killed_switch_ends_no_connection() -> Result {
    let mut scene = Scene::start()?;
    for _ in 0..3 {
        scene.cluster.kill_switch()?;
        scene.cluster.start_switch()?;
        scene.go_on()?;
    }
    scene.down()
}
