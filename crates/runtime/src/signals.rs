//! Signals as a descriptor to wait for. Each of several daemons in one process gets all of them.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use switchback_config::{Document, Source};

use crate::error::{Doing, Result};

const ENDING: [Signal; 2] = [Signal::SIGTERM, Signal::SIGINT];
const OTHERS: [Signal; 2] = [Signal::SIGHUP, Signal::SIGUSR1];

/// SIGTERM, SIGINT, SIGHUP and SIGUSR1, which end the process no longer by themselves.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    told: Arc<Told>,
}

/// What this process tells one of its daemons.
struct Told {
    to_end: AtomicBool,
    has_changed: AtomicBool,
    wake: UnixStream,
}

impl Told {
    fn tell(&self, what: &AtomicBool) {
        what.store(true, Ordering::Relaxed);
        // If that fails, the daemon is awake already, or has ended.
        let _ = (&self.wake).write(&[0]);
    }
}

/// Ends a daemon whose [`Signals`] do not include SIGTERM and SIGINT.
pub struct Ender(Arc<Told>);

impl Signals {
    /// Takes the signals over from their default actions.
    pub fn take() -> Result<Signals> {
        Ok(Signals::of(&[ENDING, OTHERS].concat())?.0)
    }

    /// Signals of a daemon that another one of this process ends, instead of SIGTERM and SIGINT.
    pub fn take_all_but_ends() -> Result<(Signals, Ender)> {
        Signals::of(&OTHERS)
    }

    fn of(signals: &[Signal]) -> Result<(Signals, Ender)> {
        let doing = || "wait for signals";
        let (read, write) = UnixStream::pair().doing(doing)?;
        read.set_nonblocking(true).doing(doing)?;
        let wake = write.try_clone().doing(doing)?;
        let numbers = signals.iter().map(|signal| *signal as i32);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers).doing(doing)?;
        let told = Arc::new(Told { to_end: AtomicBool::default(), has_changed: AtomicBool::default(), wake });
        Ok((Signals { delivery, told: Arc::clone(&told) }, Ender(told)))
    }

    /// A function that tells this daemon alone that its source has another document.
    pub fn follower(&self) -> Box<dyn Fn() + Send + Sync> {
        let told = Arc::clone(&self.told);
        Box::new(move || told.tell(&told.has_changed))
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
        // After the pipe was emptied: what is told later wakes again.
        wishes.end |= self.told.to_end.swap(false, Ordering::Relaxed);
        wishes.follow = self.told.has_changed.swap(false, Ordering::Relaxed);
        wishes
    }
}

impl Ender {
    /// Has the effect of SIGTERM on the daemon.
    pub fn end(&self) {
        self.0.tell(&self.0.to_end);
    }
}

/// Actions that signals ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// SIGHUP: read the configuration again.
    pub reload: bool,
    /// The function of [`Signals::follower`]: take the document that the source has without being asked.
    pub follow: bool,
    /// SIGUSR1: open log files again, because they have been renamed.
    pub reopen: bool,
    /// SIGTERM, SIGINT, or [`Ender::end`]: end.
    pub end: bool,
}

impl Wishes {
    /// The document to take, or why there is none; None if none is asked for.
    pub fn document(
        &self,
        source: &dyn Source,
    ) -> Option<std::result::Result<Document, switchback_config::Error>> {
        let followed = self.follow.then(|| source.followed()).flatten();
        if self.reload { Some(source.newest()) } else { followed }
    }
}

/// Readable when signals have arrived.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// Does work with sockets in a thread that blocks SIGPIPE, and waits for it: commands end by that signal when nobody reads their output,
/// and not because a server has closed a connection.
pub fn without_sigpipe<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        SigSet::from(Signal::SIGPIPE).thread_block().expect("a valid set of signals");
        work()
    };
    let done = thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn a_daemon_is_ended_by_another() {
        let (mut signals, ender) = Signals::take_all_but_ends().unwrap();
        ender.end();
        let mut waiting = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut waiting, PollTimeout::from(5000u16)), Ok(1));
        assert_eq!(signals.arrived(), Wishes { end: true, ..Wishes::default() });
        assert_eq!(signals.arrived(), Wishes::default(), "once");
    }

    #[test]
    fn one_daemon_is_told_of_another_document() {
        let mut all = [Signals::take().unwrap(), Signals::take().unwrap()];
        all[0].follower()();
        let mut waiting = [PollFd::new(all[0].as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut waiting, PollTimeout::from(5000u16)), Ok(1));
        let arrived = all.each_mut().map(|signals| signals.arrived());
        assert_eq!(arrived, [Wishes { follow: true, ..Wishes::default() }, Wishes::default()]);
    }

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
