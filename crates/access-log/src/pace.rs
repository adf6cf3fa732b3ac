//! Scheduling of the thread of the log: it runs when the CPU is idle, until it falls behind.
//!
//! The thread takes a few per cent of a CPU, but in one piece after each pause, and a thread that forwards
//! packets or answers requests on the same CPU waits for it. With the policy SCHED_IDLE (sched(7)) it does
//! not: any thread that wakes up preempts this one. On a machine that is busy for long the thread would get
//! no CPU, and lose lines; so the threads that send it messages check when it ran last, and give it the
//! policy SCHED_OTHER for a while.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use nix::libc;

/// Time without a turn after which the thread is behind. The rings of the XDP program hold twice as much.
const LATE: Duration = Duration::from_millis(100);
/// Time for which a thread that is behind has the policy SCHED_OTHER.
const HURRY: Duration = Duration::from_secs(10);

/// Scheduling state, shared by the thread and those that send it messages. Times are in milliseconds since
/// the start of the process. There is no lock: a thread that waits for one without a CPU would get none
/// either.
#[derive(Debug, Default)]
pub struct Pace {
    /// Id of the thread; 0 if its policy cannot be changed.
    thread: AtomicI32,
    /// Start of its last turn.
    turn: AtomicU64,
    /// End of its time with SCHED_OTHER; 0 if it has SCHED_IDLE.
    hurries: AtomicU64,
}

impl Pace {
    /// Gives the calling thread SCHED_IDLE, if this process may give it SCHED_OTHER again.
    pub fn begin(&self) {
        let returns = std::thread::spawn(|| schedule(0, libc::SCHED_IDLE) && schedule(0, libc::SCHED_OTHER));
        if returns.join().is_ok_and(|returns| returns) && schedule(0, libc::SCHED_IDLE) {
            // SAFETY: it has no arguments, and cannot fail.
            self.thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        }
    }

    /// Begins a turn of the thread, with SCHED_IDLE again once `HURRY` is over.
    pub fn turn(&self, now: Duration) {
        self.turn.store(millis(now), Ordering::Relaxed);
        let until = self.hurries.load(Ordering::Relaxed);
        if until != 0 && millis(now) >= until {
            self.hurries.store(0, Ordering::Relaxed);
            schedule(0, libc::SCHED_IDLE);
        }
    }

    /// Gives the thread SCHED_OTHER if it is behind; called by other threads.
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

/// Sets the policy of a thread; 0 is the calling one.
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
