//! Signals as something to wait for.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};

use switchback_runtime::{Doing, Result};

/// SIGTERM, SIGINT and SIGHUP, which the calling thread no longer takes in the usual way.
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    pub(crate) fn take() -> Result<Signals> {
        let ours: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        let doing = || "wait for signals";
        let before = ours.thread_swap_mask(SigmaskHow::SIG_BLOCK).doing(doing)?;
        let fd = SignalFd::with_flags(&ours, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).doing(doing)?;
        Ok(Signals { fd, before })
    }

    /// The next signal that has arrived.
    pub(crate) fn next(&self) -> Result<Option<Signal>> {
        let arrived = self.fd.read_signal().doing(|| "read a signal")?;
        Ok(arrived.and_then(|info| Signal::try_from(info.ssi_signo.cast_signed()).ok()))
    }
}

/// Readable when [`Signals::next`] has something to tell.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Fails for an invalid set only, and this one came from the kernel.
        let _ = self.before.thread_set_mask();
    }
}
