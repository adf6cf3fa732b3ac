//! Lines about responses that have been sent, until the client has acknowledged them (decision 0046).
//!
//! Such a line waits at its connection, whose task looks after [`LOOK`] how far the client's acknowledgments have come, and
//! less and less often after that. When the socket is closed, it looks for the last time.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use switchback_access_log::Ended;
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::kernel;
use super::log::Sent;

/// Time from the end of a response to the first look.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Bytes that the lines of a connection may take. Of those that have waited longest nothing is known then.
const BYTES_MAX: usize = 256 << 10;

/// The lines of a connection.
#[derive(Default)]
pub(super) struct Unacknowledged(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order in which the responses ended.
    lines: Vec<Line>,
    /// The connection's task, which waits for its client.
    task: Option<Waker>,
    /// The socket is closed.
    is_over: bool,
}

struct Line {
    sent: Sent,
    /// The task has been at it before, so HTTP/2 has written the response's last frames.
    is_seen: bool,
    /// Position of the response's end in what TCP has been given, once it has been given.
    end: Option<u64>,
}

impl Unacknowledged {
    /// Keeps the line of a response that has been sent.
    pub(super) fn add(&self, sent: Sent) {
        let mut state = self.state();
        if state.is_over {
            drop(state);
            return sent.tell(Ended::ByClient);
        }
        state.lines.push(Line { sent, is_seen: false, end: None });
        let surplus = surplus(state.lines.iter().map(|line| line.sent.bytes()), BYTES_MAX);
        let given_up: Vec<Line> = state.lines.drain(..surplus).collect();
        if let Some(task) = state.task.take() {
            task.wake();
        }
        drop(state);
        for line in given_up {
            line.sent.tell(Ended::Unknown);
        }
    }

    /// Tells of all responses that the client has acknowledged. `is_through`: TCP has been given the response, or will be with
    /// the next `unsent` bytes.
    fn look(
        &self,
        socket: BorrowedFd<'_>,
        unsent: usize,
        is_through: impl Fn(&Line) -> bool,
    ) -> io::Result<()> {
        if self.state().lines.is_empty() {
            return Ok(());
        }
        let end = kernel::written(socket)? + unsent as u64;
        let acknowledged = kernel::acknowledged(socket)?;
        let mut state = self.state();
        for line in state.lines.iter_mut().filter(|line| is_through(line)) {
            line.end.get_or_insert(end);
        }
        let is_heard = |line: &mut Line| line.end.is_some_and(|end| end <= acknowledged);
        let heard: Vec<Line> = state.lines.extract_if(.., is_heard).collect();
        drop(state);
        for line in heard {
            line.sent.tell(Ended::Complete);
        }
        Ok(())
    }

    fn close(&self, socket: BorrowedFd<'_>) {
        // What the socket does not tell has not arrived.
        let _ = self.look(socket, 0, |_| true);
        let mut state = self.state();
        state.is_over = true;
        let lines = std::mem::take(&mut state.lines);
        drop(state);
        for line in lines {
            line.sent.tell(Ended::ByClient);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many of the first have to go, so that the others take no more than `most` bytes.
fn surplus(bytes: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator, most: usize) -> usize {
    let all = bytes.len();
    let sums = bytes.rev().scan(0, |sum, bytes| {
        *sum += bytes;
        Some(*sum)
    });
    all - sums.take_while(|sum| *sum <= most).count()
}

/// A client's socket.
pub(super) struct Socket {
    stream: TcpStream,
    lines: Arc<Unacknowledged>,
    /// Timer of the next look, and its period.
    next: Option<(Pin<Box<Sleep>>, Duration)>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Socket { stream, lines: Arc::default(), next: None }
    }

    /// Where the lines of its responses wait.
    pub(super) fn lines(&self) -> &Arc<Unacknowledged> {
        &self.lines
    }

    /// Looks, if it is time, how far the client's acknowledgments have come. `is_through` says whether TCP has been given
    /// all that there is for the client.
    pub(super) fn poll_lines(
        &mut self,
        cx: &mut Context<'_>,
        is_through: impl Fn(BorrowedFd<'_>) -> io::Result<bool>,
    ) {
        loop {
            let mut state = self.lines.state();
            if state.lines.is_empty() {
                state.task = Some(cx.waker().clone());
                self.next = None;
                return;
            }
            let is_due = state.lines.iter().any(|line| line.is_seen && line.end.is_none());
            state.lines.iter_mut().for_each(|line| line.is_seen = true);
            drop(state);
            let (timer, period) = self.next.get_or_insert_with(|| (Box::pin(sleep(LOOK)), LOOK));
            let is_time = timer.as_mut().poll(cx).is_ready();
            if is_time {
                let longer = LOOK_MAX.min(*period * 2);
                self.next = Some((Box::pin(sleep(longer)), longer));
            }
            let socket = self.stream.as_fd();
            let is_through = is_due && is_through(socket).unwrap_or(false);
            if is_time || is_through {
                // What the socket does not tell now it may tell when it is closed.
                let _ = self.lines.look(socket, 0, |line| is_through && line.is_seen);
            }
            if !is_time {
                return;
            }
        }
    }

    /// Looks before something that is no response is written behind `unsent` bytes that are.
    pub(super) fn look(&self, unsent: usize) {
        let _ = self.lines.look(self.stream.as_fd(), unsent, |_| true);
    }
}

impl Deref for Socket {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl DerefMut for Socket {
    fn deref_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stream.fmt(f)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.lines.close(self.stream.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_lines_stay() {
        let surplus = |bytes: &[usize]| surplus(bytes.iter().copied(), 10);
        assert_eq!([surplus(&[]), surplus(&[10]), surplus(&[11])], [0, 0, 1]);
        assert_eq!(
            [surplus(&[9, 1]), surplus(&[10, 1]), surplus(&[1, 1, 10]), surplus(&[1, 11, 1])],
            [0, 1, 2, 2]
        );
    }
}
