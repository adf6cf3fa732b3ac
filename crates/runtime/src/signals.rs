//! Signals as something to wait for. Each of several daemons in one process hears them all.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::error::{Doing, Result};

const OURS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// SIGTERM, SIGINT and SIGHUP, which end the process no longer by themselves.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// From here on they are heard.
    pub fn take() -> Result<Signals> {
        let doing = || "wait for signals";
        let (read, write) = UnixStream::pair().doing(doing)?;
        read.set_nonblocking(true).doing(doing)?;
        let numbers = OURS.map(|signal| signal as i32);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers).doing(doing)?;
        Ok(Signals { delivery })
    }

    /// Those that have arrived since the last call, each once.
    pub fn arrived(&mut self) -> Vec<Signal> {
        self.delivery.pending().filter_map(|number| Signal::try_from(number).ok()).collect()
    }
}

/// Readable when [`Signals::arrived`] has something to tell.
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
            assert_eq!(signals.arrived(), [Signal::SIGHUP]);
            let mut waiting = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut waiting, PollTimeout::ZERO), Ok(0), "nothing is left of it");
        }
    }
}
