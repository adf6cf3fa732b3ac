//! Programs and maps that outlive the process that loaded them, as node and client shim have them: objects
//! that an earlier process has pinned are taken over where they fit.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{
    AsRawLibbpf, ErrorKind, Link, MapCore, MapHandle, MapMut, OpenMapMut, Program, ProgramAttachType,
    TC_EGRESS, TC_INGRESS, TcHook,
};

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

impl Place {
    /// Priority of a filter. The kernel gives those without one a priority between the two.
    fn priority(self) -> u32 {
        match self {
            Place::First => 1,
            Place::Last => u16::MAX.into(),
        }
    }
}

/// Handle of our filters, which tells them from others of the same priority.
const FILTER_HANDLE: u32 = 0x5b;

/// An attached program, which stays so when the process ends.
#[derive(Debug)]
pub enum Attachment {
    /// By a pinned link: TC programs by tcx, Linux 6.6.
    Link(Link),
    /// As a filter of the `clsact` qdisc, which stays when the filter goes: others may use it.
    Filter(TcHook),
}

impl Attachment {
    /// Detaches the program at once, also if its link is pinned.
    pub fn detach(&self) -> libbpf_rs::Result<()> {
        match self {
            Attachment::Link(link) => link.detach(),
            Attachment::Filter(filter) => { *filter }.detach(),
        }
    }
}

/// Attaches a TC program to the interface with this index, in place of the one that an earlier process has attached. Its
/// link is pinned at `path`; without tcx nothing is.
pub fn attach_or_replace(
    program: &Program<'_>,
    path: &Path,
    index: u32,
    place: Place,
) -> libbpf_rs::Result<Attachment> {
    if let Some(mut link) = attached(path, index) {
        return link.update_prog(program).map(|()| Attachment::Link(link));
    }
    match attach_tcx(program, index, place) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => attach_filter(program, index, place),
        link => link.and_then(|link| pin_link(link, path)).map(Attachment::Link),
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
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if the kernel has no tcx.
pub fn attach_tcx(program: &Program<'_>, index: u32, place: Place) -> libbpf_rs::Result<Link> {
    let options = libbpf_sys::bpf_tcx_opts {
        sz: size_of::<libbpf_sys::bpf_tcx_opts>() as u64,
        flags: if place == Place::First { libbpf_sys::BPF_F_BEFORE } else { 0 },
        ..Default::default()
    };
    // SAFETY: the program is loaded, and `options` says its own size and outlives the call. libbpf complains on stderr, and
    // a kernel without tcx is nothing to complain of.
    let link = unsafe {
        let print = libbpf_sys::libbpf_set_print(None);
        let link = libbpf_sys::bpf_program__attach_tcx(
            program.as_libbpf_object().as_ptr(),
            index.cast_signed(),
            &raw const options,
        );
        let error = std::io::Error::last_os_error();
        libbpf_sys::libbpf_set_print(print);
        NonNull::new(link).ok_or(error)
    };
    // SAFETY: libbpf has just made this link, and nobody else has it.
    Ok(unsafe { Link::from_ptr(link?) })
}

/// Attaches a TC program as a filter of the interface's `clsact` qdisc, which is made if it is missing.
pub fn attach_filter(program: &Program<'_>, index: u32, place: Place) -> libbpf_rs::Result<Attachment> {
    let direction = match program.attach_type() {
        ProgramAttachType::TcxEgress => TC_EGRESS,
        _ => TC_INGRESS,
    };
    let mut filter = TcHook::new(program.as_fd());
    filter.ifindex(index.cast_signed()).attach_point(direction);
    filter.create()?;
    filter.handle(FILTER_HANDLE).priority(place.priority()).replace(true).attach().map(Attachment::Filter)
}
