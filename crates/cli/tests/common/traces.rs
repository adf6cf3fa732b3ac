//! What our processes could leave behind on a host.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;
use switchback_lab::Host;

use super::Result;

/// Everything of ours that is on a host; empty where none of our processes ran, or all ended as they should.
pub fn of(host: &Host) -> Result<Vec<String>> {
    let mut traces = Vec::new();
    let links = host.run(["ip", "-j", "link", "show"])?.success()?;
    let links: Vec<Value> = serde_json::from_str(&links)?;
    for link in &links {
        let name = link["ifname"].as_str().ok_or("a link without a name")?;
        if !link["xdp"].is_null() {
            traces.push(format!("XDP on {name}: {}", link["xdp"]));
        }
        if let Some(programs @ 1..) = host.enter(|| tcx_programs(name))? {
            traces.push(format!("{programs} tcx programs on {name}"));
        }
        for direction in ["ingress", "egress"] {
            let filters = host.run(["tc", "filter", "show", "dev", name, direction])?.success()?;
            let ours = filters.lines().filter(|line| line.contains("switchback"));
            traces.extend(ours.map(|line| format!("filter of {name}, {direction}: {line}")));
        }
    }
    let addresses = host.run(["ip", "-o", "addr", "show"])?.success()?;
    let ours =
        |line: &&str| line.contains("proto 0x5b") || line.contains("192.0.2.100/") || line.contains("::100/");
    traces.extend(addresses.lines().filter(ours).map(str::to_owned));
    let inode = fs::metadata(format!("/run/netns/{}", host.namespace_name()))?.ino().to_string();
    for directory in ["/sys/fs/bpf/switchback", "/run/switchback"] {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path().display().to_string());
        traces.extend(paths.filter(|path| path.trim_end_matches(".sock").ends_with(&format!("-{inode}"))));
    }
    Ok(traces)
}

/// How many programs are attached to an interface of the calling thread's namespace. None if the kernel has no tcx.
fn tcx_programs(interface: &str) -> Option<u32> {
    let index = nix::net::if_::if_nametoindex(interface).expect("it has just been listed");
    [libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_TCX_EGRESS]
        .into_iter()
        .map(|direction| {
            let mut query = libbpf_sys::bpf_prog_query_opts {
                sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
                ..Default::default()
            };
            // SAFETY: the options say their own size and outlive the call.
            let result =
                unsafe { libbpf_sys::bpf_prog_query_opts(index.cast_signed(), direction, &raw mut query) };
            if result == -nix::libc::EINVAL {
                return None;
            }
            assert_eq!(result, 0, "asking for the tcx programs of {interface}");
            // SAFETY: the kernel has filled this member of the union.
            Some(unsafe { query.__bindgen_anon_1.count })
        })
        .sum()
}
