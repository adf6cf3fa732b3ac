//! Signals as a descriptor to wait for. Each of several daemons in one process gets all of them.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::error::{Doing, Result};

const OURS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1];

/// SIGTERM, SIGINT, SIGHUP and SIGUSR1, which end the process no longer by themselves.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Takes the signals over from their default actions.
    pub fn take() -> Result<Signals> {
        let doing = || "wait for signals";
        let (read, write) = UnixStream::pair().doing(doing)?;
        read.set_nonblocking(true).doing(doing)?;
        let numbers = OURS.map(|signal| signal as i32);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers).doing(doing)?;
        Ok(Signals { delivery })
    }

    /// The signals that have arrived since the last call.
    pub fn arrived(&mut self) -> Wishes {
        let mut wishes = Wishes::default();
        for signal in self.delivery.pending().filter_map(|number| Signal::try_from(number).ok()) {
            match signal {
                Signal::SIGHUP => wishes.reload = true,
                Signal::SIGUSR1 => wishes.reopen = true,
                _ => wishes.end = true,
            }
        }
        wishes
    }
}

/// Actions that signals ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// SIGHUP: read the configuration again.
    pub reload: bool,
    /// SIGUSR1: open log files again, because they have been renamed.
    pub reopen: bool,
    /// SIGTERM, SIGINT: end.
    pub end: bool,
}

/// Readable when signals have arrived.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn everybody_hears_a_signal() {
        let mut all = [Signals::take().unwrap(), Signals::take().unwrap()];
        nix::sys::signal::raise(Signal::SIGHUP).unwrap();
        for signals in &mut all {
            let mut waiting = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut waiting, PollTimeout::from(5000u16)), Ok(1));
            assert_eq!(signals.arrived(), Wishes { reload: true, ..Wishes::default() });
            let mut waiting = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut waiting, PollTimeout::ZERO), Ok(0), "nothing is left of it");
        }
    }
}
