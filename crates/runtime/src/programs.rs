//! Programs and maps that outlive the process that loaded them, as node and client shim have them: objects
//! that an earlier process has pinned are taken over where they fit.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapHandle, MapMut, OpenMapMut, Program};

use crate::error::{Doing, Result};

/// Makes the map the one that is pinned at `path`. A pinned map of another layout is not used.
pub fn reuse(map: &mut OpenMapMut<'_>, path: &Path) -> Result<()> {
    let Ok(pinned) = MapHandle::from_pinned_path(path) else { return Ok(()) };
    let fits = pinned.map_type() == map.map_type()
        && pinned.key_size() == map.key_size()
        && pinned.value_size() == map.value_size()
        && pinned.max_entries() == map.max_entries();
    let doing = || format!("take over {}", path.display());
    if fits {
        return map.reuse_fd(pinned.as_fd()).doing(doing);
    }
    fs::remove_file(path).doing(doing)
}

/// Pins the map, if nothing is pinned at `path` yet.
pub fn pin(map: &mut MapMut<'_>, path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    map.pin(path).doing(|| format!("pin {}", path.display()))
}

/// Pins the map in place of whatever is pinned at `path`.
pub fn replace_pin(map: &mut MapMut<'_>, path: &Path) -> Result<()> {
    // Mostly there is none.
    let _ = fs::remove_file(path);
    pin(map, path)
}

/// Pins a new link in place of an old one, which is detached by it.
pub fn pin_link(mut link: Link, path: &Path) -> libbpf_rs::Result<Link> {
    // Mostly there is none.
    let _ = fs::remove_file(path);
    link.pin(path)?;
    Ok(link)
}

/// Where a TC program stands among those of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the others.
    First,
    /// Behind the others.
    Last,
}

/// Attaches a TC program to the interface with this index by a link that is pinned at `path`, in place of the
/// program that the link of an earlier process has there.
pub fn attach_or_replace(
    program: &Program<'_>,
    path: &Path,
    index: u32,
    place: Place,
) -> libbpf_rs::Result<Link> {
    match attached(path, index) {
        Some(mut link) => link.update_prog(program).map(|()| link),
        None => attach_tcx(program, index, place).and_then(|link| pin_link(link, path)),
    }
}

/// The pinned link, if it still is attached to this interface.
fn attached(path: &Path, index: u32) -> Option<Link> {
    // libbpf would complain on stderr.
    if !path.exists() {
        return None;
    }
    let link = Link::open(path).ok()?;
    match link.info().ok()?.info {
        LinkTypeInfo::Tcx(tcx) if tcx.ifindex == index => Some(link),
        _ => None,
    }
}

/// Attaches a TC program to the interface with this index. libbpf-rs has no tcx yet.
pub fn attach_tcx(program: &Program<'_>, index: u32, place: Place) -> libbpf_rs::Result<Link> {
    let options = libbpf_sys::bpf_tcx_opts {
        sz: size_of::<libbpf_sys::bpf_tcx_opts>() as u64,
        flags: if place == Place::First { libbpf_sys::BPF_F_BEFORE } else { 0 },
        ..Default::default()
    };
    // SAFETY: the program is loaded, and `options` says its own size and outlives the call.
    let link = unsafe {
        libbpf_sys::bpf_program__attach_tcx(
            program.as_libbpf_object().as_ptr(),
            index.cast_signed(),
            &raw const options,
        )
    };
    match NonNull::new(link) {
        // SAFETY: libbpf has just made this link, and nobody else has it.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(std::io::Error::last_os_error().into()),
    }
}
