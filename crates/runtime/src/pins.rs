//! Pinned BPF objects: programs and maps must outlive the process that loaded them. A killed node agent would
//! otherwise leave VIPs on a machine that answers ARP for them, and draw the service's traffic away from the
//! switch.
//!
//! Each instance has a directory of its own, `<role>-<interface>-<netns inode>`. When its network namespace
//! is deleted nobody is left to clean up, and the inode may be given to another namespace: so directories
//! whose links have lost their interface are removed whenever one is opened.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use libbpf_rs::query::LinkTypeInfo;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::error::{Doing, Result};
use crate::netns_inode;

/// Mount point of the BPF file system.
pub const BPFFS: &str = "/sys/fs/bpf";
const ROOT: &str = "/sys/fs/bpf/switchback";
/// Suffix of pinned links: a pin's type cannot be seen before it is opened.
const LINK_SUFFIX: &str = "_link";
/// Attempts to use the root, which another instance may remove between our creating and using it.
const ATTEMPTS: usize = 8;

/// The pins of one instance.
#[derive(Debug)]
pub struct PinDir {
    path: PathBuf,
}

impl PinDir {
    /// Creates the directory and mounts the BPF file system if they are missing, and sweeps.
    pub fn open(role: &str, interface: &str) -> Result<PinDir> {
        ensure_bpffs()?;
        sweep()?;
        // The kernel reserves names with dots on this file system; those of VLAN interfaces have them.
        let name = format!("{role}-{}-{}", interface.replace('.', "%2e"), netns_inode()?);
        let path = Path::new(ROOT).join(name);
        let mut made = fs::create_dir_all(&path);
        for _ in 1..ATTEMPTS {
            if made.is_ok() {
                break;
            }
            made = fs::create_dir_all(&path);
        }
        made.doing(|| format!("create {}", path.display()))?;
        Ok(PinDir { path })
    }

    /// Path of the pinned map or program of this name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Path of the pinned link of this name.
    pub fn link_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{LINK_SUFFIX}"))
    }

    /// Removes all pins: links that no process holds are detached by it.
    pub fn remove_all(self) -> Result<()> {
        remove(&self.path)
    }
}

/// Removes the directories of instances whose interface is gone; returns their paths.
pub fn sweep() -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(ROOT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.doing(|| format!("read {ROOT}"))?,
    };
    let mut removed = Vec::new();
    for entry in entries.flatten() {
        if is_orphan(&entry.path()) {
            remove(&entry.path())?;
            removed.push(entry.path());
        }
    }
    Ok(removed)
}

/// Whether a link in the directory was attached to an interface that no longer exists.
fn is_orphan(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(LINK_SUFFIX))
        .any(|path| {
            let info = libbpf_rs::Link::open(path).and_then(|link| link.info());
            match info.map(|info| info.info) {
                Ok(LinkTypeInfo::Tcx(tcx)) => tcx.ifindex == 0,
                Ok(LinkTypeInfo::Xdp(xdp)) => xdp.ifindex == 0,
                _ => false,
            }
        })
}

fn remove(directory: &Path) -> Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    let doing = || format!("remove {}", directory.display());
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => {
            for entry in entries.doing(doing)?.flatten() {
                gone(fs::remove_file(entry.path())).doing(doing)?;
            }
        }
    }
    gone(fs::remove_dir(directory)).doing(doing)?;
    // Fails while other instances run.
    let _ = fs::remove_dir(ROOT);
    Ok(())
}

/// Mounts the BPF file system at [`BPFFS`] if it is not there.
pub fn ensure_bpffs() -> Result<()> {
    if is_bpffs(Path::new(BPFFS)) {
        return Ok(());
    }
    mount(Some("bpf"), BPFFS, Some("bpf"), MsFlags::empty(), Some("mode=700"))
        .doing(|| format!("mount the BPF file system at {BPFFS}"))
        .map_err(|error| error.remedy(format!("as root: mount -t bpf bpf {BPFFS}")))
}

/// Whether the path is on a BPF file system.
pub(crate) fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| stat.filesystem_type() == BPF_FS_MAGIC)
}
