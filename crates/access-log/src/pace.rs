//! When the thread of the log gets a CPU: when nobody else wants one, until it falls behind.
//!
//! What it does takes a few per cent of a CPU, but in one piece after each pause, and the threads that forward packets or
//! answer requests wait as long if they share that CPU. With the policy SCHED_IDLE (sched(7)) they do not: whoever wakes up
//! takes the CPU from it. On a machine that is busy for long it would get none, and lose lines; so the thread that tells
//! it things looks at the clock, and puts it back among the others for a while.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use nix::libc;

/// After so long without a turn it is behind. The rings of the XDP program have room for twice as long.
const LATE: Duration = Duration::from_millis(100);
/// So long it stays among the others.
const HURRY: Duration = Duration::from_secs(10);

/// Shared by the thread and those that tell it things. Times are since the start of the process, and kept in milliseconds. There is no lock: who waits for a thread that gets no CPU gets none either.
#[derive(Debug, Default)]
pub struct Pace {
    /// The thread; 0 if nobody may change how it is scheduled.
    thread: AtomicI32,
    /// When its last turn began.
    turn: AtomicU64,
    /// Until when it is among the others; 0 if it is not.
    hurries: AtomicU64,
}

impl Pace {
    /// The thread that calls steps back, if it can be put back among the others.
    pub fn begin(&self) {
        let returns = std::thread::spawn(|| schedule(0, libc::SCHED_IDLE) && schedule(0, libc::SCHED_OTHER));
        if returns.join().is_ok_and(|returns| returns) && schedule(0, libc::SCHED_IDLE) {
            // SAFETY: it has no arguments, and cannot fail.
            self.thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        }
    }

    /// A turn of the thread begins. It steps back again when it has hurried for long enough.
    pub fn turn(&self, now: Duration) {
        self.turn.store(millis(now), Ordering::Relaxed);
        let until = self.hurries.load(Ordering::Relaxed);
        if until != 0 && millis(now) >= until {
            self.hurries.store(0, Ordering::Relaxed);
            schedule(0, libc::SCHED_IDLE);
        }
    }

    /// Another thread looks whether it is behind.
    pub fn hurry_if_late(&self, now: Duration) {
        let (thread, turn) = (self.thread.load(Ordering::Relaxed), self.turn.load(Ordering::Relaxed));
        if thread != 0 && millis(now) >= turn + millis(LATE) && schedule(thread, libc::SCHED_OTHER) {
            self.hurries.store(millis(now + HURRY), Ordering::Relaxed);
        }
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// Has a thread scheduled by this policy; 0 is the one that calls.
fn schedule(thread: libc::pid_t, policy: libc::c_int) -> bool {
    // SAFETY: all fields of the structure are numbers; the only one that is read has to be 0 for these policies.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is read during the call only.
    unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: it takes a number.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn it_hurries_while_it_is_behind() {
        let pace = Pace::default();
        pace.hurry_if_late(Duration::from_secs(1));
        assert_eq!(policy(), libc::SCHED_OTHER, "nothing has begun");
        pace.begin();
        let second = Duration::from_secs(1);
        pace.turn(second);
        pace.hurry_if_late(second + LATE / 2);
        assert_eq!(policy(), libc::SCHED_IDLE);
        pace.hurry_if_late(second + LATE);
        assert_eq!(policy(), libc::SCHED_OTHER);
        pace.turn(second + HURRY);
        assert_eq!(policy(), libc::SCHED_OTHER, "for ten seconds from when it was late");
        pace.turn(second + LATE + HURRY);
        assert_eq!(policy(), libc::SCHED_IDLE);
    }
}
