//! Data from one socket to another without copying it (splice(2)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::pipe2;

/// A pipe between two sockets, for one task: no call waits.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    holds: usize,
}

impl Pipe {
    /// A pipe of the usual size, which is 64 KiB at least.
    pub fn new() -> io::Result<Pipe> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Pipe { read, write, holds: 0 })
    }

    /// Makes room for so many bytes, if the kernel allows it.
    pub fn widen(&self, bytes: u32) {
        let _ = fcntl(&self.write, FcntlArg::F_SETPIPE_SZ(bytes as i32));
    }

    /// Bytes that have been taken and not given.
    pub fn holds(&self) -> usize {
        self.holds
    }

    /// Takes at most `len` bytes from a socket and returns how many; 0 at the end of the stream. The pipe is to be empty: a full one
    /// looks like a socket without data.
    pub fn take(&mut self, from: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
        self.holds += splice(from, None, self.write.as_fd(), None, len, FLAGS)?;
        Ok(self.holds)
    }

    /// Gives a socket some of what the pipe holds and returns how many bytes. The pipe is not to be empty.
    pub fn give(&mut self, to: BorrowedFd<'_>) -> io::Result<usize> {
        let given = splice(self.read.as_fd(), None, to, None, self.holds, FLAGS)?;
        self.holds -= given;
        Ok(given)
    }
}

const FLAGS: SpliceFFlags = SpliceFFlags::SPLICE_F_NONBLOCK.union(SpliceFFlags::SPLICE_F_MOVE);
