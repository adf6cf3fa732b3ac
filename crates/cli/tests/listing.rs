//! A switch that starts beside others lists the flows of all nodes. The nodes' agents and programs are real; their flows are
//! entries of the map `owned`, because a million sockets do not fit on a machine of the tests.

mod common;

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use common::{PATIENCE, Result, alone, load, start_daemon, status, stop, wait_until};
use switchback_lab::{Host, Lab, Topology};
use switchback_wire::generation::Generation;
use switchback_wire::*;

const NODES: usize = 2;
/// Entries per system call.
const BATCH: usize = 4096;

/// Flows of all nodes.
fn count() -> usize {
    load(100_000, 1_000_000)
}

/// The map of the node's flows.
fn owned(host: &Host) -> Result<OwnedFd> {
    let inode = fs::metadata(format!("/run/netns/{}", host.namespace_name()))?.ino();
    let path = CString::new(format!("/sys/fs/bpf/switchback/node-eth0-{inode}/owned"))?;
    // SAFETY: the path is a string that outlives the call.
    let fd = unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) };
    if fd < 0 {
        return Err(format!("open {path:?}: {}", std::io::Error::last_os_error()).into());
    }
    // SAFETY: the descriptor is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Flow number `index` of the VIP, whose client has sent one request.
fn flow(lab: &Lab, index: usize) -> (sb_flow, sb_owned) {
    let client = [198, 18, (index >> 24) as u8, (index >> 16) as u8];
    let flow = sb_flow {
        client: address_bytes(client.into()),
        vip: address_bytes(lab.vip4().into()),
        client_port: (index as u16).to_be(),
        vip_port: 80u16.to_be(),
    };
    let owned = sb_owned {
        origin: 1000,
        next: 1100,
        requests: 1,
        responses: 1,
        mss: 1460,
        state: sb_ownership::SB_OWN_OPEN as u8,
        generation: Generation::first(0).number(),
        ..Default::default()
    };
    (flow, owned)
}

fn fill(lab: &Lab, map: &OwnedFd, indices: std::ops::Range<usize>) -> Result {
    let indices: Vec<usize> = indices.collect();
    for batch in indices.chunks(BATCH) {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for index in batch {
            let (key, value) = flow(lab, *index);
            keys.extend_from_slice(bytes_of(&key));
            values.extend_from_slice(bytes_of(&value));
        }
        let mut len = batch.len() as u32;
        // SAFETY: both arrays have as many entries, of the map's sizes.
        let result = unsafe {
            libbpf_sys::bpf_map_update_batch(
                map.as_raw_fd(),
                keys.as_ptr().cast(),
                values.as_ptr().cast(),
                &raw mut len,
                std::ptr::null(),
            )
        };
        if result != 0 {
            return Err(format!("fill the map: {}", std::io::Error::last_os_error()).into());
        }
    }
    Ok(())
}

#[test]
fn a_switch_that_starts_knows_all_flows() -> Result {
    let _alone = alone();
    let lab = Lab::builder().topology(Topology::Routed).switches(2).nodes(NODES).up()?;
    let plan = common::Plan {
        servers: vec![switchback_lab::ServerKind::Nginx; NODES],
        pools: vec![("web", vec![0, 1])],
        ..Default::default()
    };
    // Maps of this kind give entries up before they are full.
    let limits = format!("[limits]\nflows = {0}\nnode_flows = {0}\n", count() * 2);
    let config = plan.config(&lab).replace("[limits]\n", &limits) + "\n{switches}\n";
    let config = lab.write_config_text(&config)?;
    let mut agents = Vec::new();
    for (place, node) in lab.nodes().enumerate() {
        node.nginx(&Default::default())?;
        agents.push(start_daemon(node, "node", &config)?);
        let share = count() / NODES;
        fill(&lab, &owned(node)?, place * share..(place + 1) * share)?;
    }
    let first = lab.switches().next().ok_or("no switch")?;
    let start = Instant::now();
    let switch = start_daemon(first, "switch", &config)?;
    let began = start.elapsed();
    // A status counts the flows after it has noted how many were listed.
    let known = || {
        let status = status(first)?;
        Ok((status["flows"].as_u64().unwrap_or(0), status["dispatch"]["listed"].as_u64().unwrap_or(0)))
    };
    let all = count() as u64;
    let known = wait_until("all flows", PATIENCE, known, |(_, listed)| *listed >= all)?;
    println!("{all} flows: known {:?} after the start, ready after {began:?}", start.elapsed());
    assert_eq!(known, (all, all));
    wait_until("the end of the lists", PATIENCE, || status(first), |status| status["learning"] == false)?;
    let asked = status(first)?["dispatch"]["probed"].as_u64();
    assert_eq!(asked, Some(0), "flows that a list tells of were asked about");

    // The lists end, and the agents have nothing left to send.
    stop(&switch)?;
    agents.iter().try_for_each(stop)?;
    lab.down()?;
    Ok(())
}
