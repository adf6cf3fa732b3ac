//! What has been read at a mark.

use crate::answer::Reply;
use crate::destination::Next;
use crate::new_head::NewHead;
use crate::request::Request;

/// What to do with the data at a mark.
#[derive(Debug)]
pub enum Verdict {
    /// A whole request.
    To {
        /// What has been read of it.
        request: Request,
        /// The head that its server gets instead of the client's.
        head: Option<NewHead>,
    },
    /// The switch answers.
    Answer {
        /// The answer.
        reply: Reply,
        /// The request is HEAD.
        head: bool,
    },
    /// A part of a request.
    Incomplete(Missing),
}

/// What has to come before an incomplete request is read again. Where a client sends byte by byte, it is not read from its
/// beginning for each.
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    /// So many bytes.
    pub len: usize,
    /// Or an end of a line, behind so many bytes.
    pub line: Option<usize>,
}

impl Missing {
    /// It has come.
    pub fn has_come(&self, data: &[u8]) -> bool {
        let line = self.line.and_then(|start| data.get(start..));
        data.len() >= self.len || line.is_some_and(|rest| rest.contains(&b'\n'))
    }
}

/// What has been read at a mark, and where it goes if that has been decided.
#[derive(Debug)]
pub struct Judged {
    /// What has been read.
    pub verdict: Verdict,
    /// Where it goes.
    pub next: Option<Next>,
}
