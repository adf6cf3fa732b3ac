//! What a process takes over from the one before it.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use switchback_runtime::pins::PinDir;

use super::super::{FEWEST, Program};

fn pins() -> PinDir {
    PinDir::open("pins", "test").unwrap()
}

fn load() -> Program {
    Program::load(pins(), FEWEST, 1).unwrap()
}

fn has_flow(program: &Program) -> bool {
    program.skel.maps.flows.keys().next().is_some()
}

/// Flows name their nodes by the index in another map, so they go with it.
#[test]
fn flows_stay_with_the_map_of_their_nodes() {
    let program = load();
    let flows = &program.skel.maps.flows;
    let (key, value) = (vec![1; flows.key_size() as usize], vec![0; flows.value_size() as usize]);
    flows.update(&key, &value, MapFlags::ANY).unwrap();
    drop(program);
    let program = load();
    assert!(has_flow(&program), "the same maps");
    let nodes = &program.skel.maps.nodes;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let [key, value, len] = [nodes.key_size(), nodes.value_size(), nodes.max_entries() / 8];
    let mut older = MapHandle::create(nodes.map_type(), Some("nodes"), key, value, len, &options).unwrap();
    drop(program);
    std::fs::remove_file(pins().path("nodes")).unwrap();
    older.pin(pins().path("nodes")).unwrap();
    let program = load();
    assert!(!has_flow(&program), "those of an older version");
    drop(program);
    pins().remove_all().unwrap();
}
