//! What the daemons, the switch, the node agent and the client shim, need from the machine they run on: [`checks`] before
//! anything is attached, [`pins`] so that programs and state outlive a crash, a [`control`] socket,
//! the log of [`events`], [`netlink`] for the few requests that no other interface of the kernel answers, and [`mod@interface`] for
//! facts about network interfaces.
//!
//! Everything here belongs to the network namespace of the calling thread: several instances may run on one
//! machine in several namespaces, and each finds its own. That rules `/sys/class/net` and `/proc/net` out as
//! sources: the first shows the namespace in which sysfs was mounted, the second that of the process's first
//! thread.

pub mod checks;
pub mod control;
mod copies;
mod error;
pub mod events;
pub mod facts;
mod follower;
pub mod interface;
pub mod links;
pub mod listeners;
pub mod maps;
pub mod marks;
pub mod netlink;
mod newest;
pub mod pins;
pub mod privileges;
pub mod programs;
mod signals;
mod sockmap;
mod source;

pub use checks::{Check, Finding, check_node, check_switch};
pub use copies::Copies;
pub use error::{Doing, Error, Result};
pub use facts::Facts;
pub use follower::Follower;
pub use newest::{Known, Newest};
pub use signals::{Ender, Signals, Wishes, without_sigpipe};
pub use sockmap::hides_unread;
pub use source::first_document;

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::time::{ClockId, clock_gettime};

/// Tells the service manager that has started this process, if one has, that it does its work from now on (sd_notify(3)).
pub fn tell_ready() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        log::warn!("cannot tell the service manager at NOTIFY_SOCKET that all is ready: {error}");
    }
}

/// Directory of state that outlives the machine's boot: where systemd says (systemd.exec(5), `StateDirectory=`), or where that
/// is without it.
pub fn state_directory() -> PathBuf {
    let said = std::env::var_os("STATE_DIRECTORY").filter(|said| !said.is_empty());
    said.map_or("/var/lib/switchback".into(), PathBuf::from)
}

/// The clock of `bpf_ktime_get_ns()`.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    Duration::from(now).as_nanos() as u64
}

/// The time since 1970, by the machine's clock.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// A number that is random for each boot, and the same until the next one (random(4)).
pub fn boot_number() -> Result<u64> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(PATH).doing(|| format!("read {PATH}"))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    // The two halves of the UUID, of which 6 bits say what kind it is.
    let halves = (digits.get(..16), digits.get(16..));
    let number = |half: Option<&str>| u64::from_str_radix(half.unwrap_or_default(), 16);
    let both = number(halves.0).and_then(|first| Ok(first ^ number(halves.1)?.rotate_left(32)));
    both.doing(|| format!("read {PATH}"))
}

/// The inode of the calling thread's network namespace: what tells instances on one machine apart.
pub fn netns_inode() -> Result<u64> {
    const PATH: &str = "/proc/thread-self/ns/net";
    Ok(std::fs::metadata(PATH).doing(|| format!("read {PATH}"))?.ino())
}

/// The cookie of the calling thread's network namespace: unlike its inode, a number that BPF programs see and
/// that no other namespace gets until the machine is booted again. Linux 5.14.
pub fn netns_cookie() -> Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let doing = || "read the cookie of the network namespace";
    let socket =
        socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).doing(doing)?;
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `cookie`, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    Errno::result(result).doing(doing)?;
    Ok(cookie)
}
