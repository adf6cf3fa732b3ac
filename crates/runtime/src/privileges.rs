//! Privileges that a daemon gives up once its programs are attached. Capabilities are those of a thread, and
//! pass on to the threads that it starts (capabilities(7)), so a daemon gives them up before it starts
//! threads that read data from the network.
//!
//! Maps, links and sockets are used by their descriptors, which takes no capability (Linux 5.19 and later,
//! whatever `kernel.unprivileged_bpf_disabled` says).

use std::io;
use std::thread;

pub use rustix::thread::CapabilitySet;
use rustix::thread::{CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use crate::{Doing, Result};

/// Capabilities that every daemon keeps: for files of other users that the configuration names, and to
/// schedule the thread of the access log.
const USUAL: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::SYS_NICE);

/// Gives up all capabilities of the calling thread except these and what all daemons keep, and that programs
/// which it executes could get others (`PR_SET_NO_NEW_PRIVS`).
pub fn keep_only(these: CapabilitySet) -> Result<()> {
    let had = capabilities(None).doing(|| "read the capabilities of this thread")?;
    let kept = had.permitted & (these | USUAL);
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).doing(|| "give up capabilities")?;
    set_no_new_privs(true).doing(|| "give up new privileges")
}

/// Starts a thread that ends with the process. It gives up what [`keep_only`] can take, so it may begin before its daemon gives its own
/// privileges up; if it cannot, it goes on.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = || {
        if let Err(error) = keep_only(CapabilitySet::empty()) {
            log::warn!("{error}");
        }
        work();
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_it_names_and_so_do_those_that_it_starts() {
        let kept = thread::spawn(|| {
            keep_only(CapabilitySet::NET_ADMIN).unwrap();
            thread::spawn(|| capabilities(None).unwrap()).join().unwrap()
        });
        let kept = kept.join().unwrap();
        let expected = CapabilitySet::NET_ADMIN | USUAL;
        assert_eq!((kept.permitted, kept.effective), (expected, expected));
        assert_ne!(
            capabilities(None).unwrap().permitted,
            expected,
            "the thread that started them is as before"
        );
    }
}
