//! The types of an explanation.

use switchback_http::framing::{self, Followed, Framing};
use switchback_http::{Body, Head, Limits, Reject, parse_head};

/// Characters of a line shown on either side of a byte.
const AROUND: usize = 40;

/// Explanation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Offset of the request in the client's data.
    pub offset: u64,
    /// First line, without its end.
    pub line: Vec<u8>,
    /// Index in `Cluster::services`.
    pub service: usize,
    /// How servers read the path, if not as written; routes are shown for the first reading.
    pub read_as: Vec<String>,
    /// For each route up to the first match, why it does not match, or None.
    pub routes: Vec<Option<String>>,
    /// The request's session, if the pool has sessions that stay with their nodes.
    pub session: Option<SessionRead>,
    /// The head as the route changes it for the server; None if it does not.
    pub rewritten: Option<Vec<u8>>,
    /// What the switch does with the request.
    pub outcome: Outcome,
}

/// The session of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRead {
    /// Index in `Cluster::pools`.
    pub pool: usize,
    /// The node that the request names.
    pub names: Names,
    /// Number of cookies that look like session cookies and are forged or damaged.
    pub ignored: u16,
    /// The session depends on the client's address only.
    pub by_client: bool,
    /// The cluster key is known; cookies are unreadable without it.
    pub readable: bool,
}

/// The node that has a request's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The request has no session.
    Nothing,
    /// Index in `Cluster::nodes`.
    Node(usize),
    /// The node has left the pool.
    Gone,
}

/// What the switch does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A node gets the request.
    Forwarded(Forwarded),
    /// The switch answers and closes the connection.
    Answered {
        /// The status code.
        status: u16,
        /// Target of a redirect.
        location: Option<String>,
    },
    /// The switch refuses the request and closes the connection.
    Refused(Refusal),
    /// The switch waits for the rest of the head.
    Incomplete {
        /// Bytes received.
        received: usize,
        /// The client has closed, so no more data follows.
        closed: bool,
    },
}

/// A request that a node gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Index in `Cluster::pools`.
    pub pool: usize,
    /// Index in `Cluster::nodes`.
    pub node: usize,
    /// How the flow got to the node.
    pub flow: Flow,
    /// Whether the automaton in XDP would forward the request on a flow of a node of the pool.
    pub express: Result<(), Slow>,
    /// Whether the packet contains just the head; None if the data came without packets.
    pub alone: Option<bool>,
    /// Framing of the body.
    pub body: Body,
    /// Offset of the next request, once known.
    pub end: Option<u64>,
    /// Error in the body: the node gives up the request and the switch answers.
    pub refusal: Option<Refusal>,
    /// What may follow on the connection.
    pub then: Then,
}

/// Owner of the flow before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// None: the request is the connection's first.
    New,
    /// The same node.
    Stays,
    /// The same node, which releases the flow and adopts it again: with another pool, because it associates each flow with
    /// one pool for its cookies, or with a head that the route has changed.
    Anew,
    /// This other node, which releases the flow.
    Moves(usize),
}

/// Why the L7 thread decides instead of the automaton.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slow {
    /// The service's routes have no automaton.
    NoAutomaton,
    /// The head is longer than `SB_EXPRESS_HEAD_MAX` bytes.
    TooLong,
    /// The route has a condition on a header field, or changes or copies requests.
    Route,
    /// The node depends on data that the automaton does not read.
    Session,
    /// The head is not plain at this byte.
    Unknown(Place),
}

/// What may follow a request on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Another request, routed separately.
    Routed,
    /// Another protocol, which stays with the node.
    Upgrade,
    /// HTTP/2, which stays with the node.
    Http2,
    /// Nothing: the client asks to close the connection.
    Closes,
}

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reject: Reject,
    /// The byte that causes it.
    pub place: Place,
}

/// A byte with its context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset in the client's data.
    pub offset: u64,
    /// The byte's line, or the middle of a long one.
    pub line: Vec<u8>,
    /// Index of the byte in `line`.
    pub column: usize,
}

/// First line of a request, without its end; an empty line may precede it.
pub(super) fn first_line(data: &[u8]) -> &[u8] {
    let data = data.strip_prefix(b"\r\n").unwrap_or(data);
    let line = data.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl Place {
    /// Context of the byte `at` in `data`, which begins at `offset`.
    pub(super) fn new(data: &[u8], at: usize, offset: u64) -> Self {
        let at = at.min(data.len());
        let start = data[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let end = data[at..].iter().position(|&byte| byte == b'\n').map_or(data.len(), |len| at + len + 1);
        let start = start.max(at.saturating_sub(AROUND));
        let end = end.min(at + AROUND);
        Place { offset: offset + at as u64, line: data[start..end].to_vec(), column: at - start }
    }
}

impl Refusal {
    /// Refusal of the head at the start of `data`.
    pub(super) fn of_head(reject: Reject, data: &[u8], limits: &Limits, offset: u64) -> Self {
        let (mut fine, mut refused) = (0, data.len());
        while refused - fine > 1 {
            let middle = fine + (refused - fine) / 2;
            if parse_head(&data[..middle], limits).is_err() {
                refused = middle;
            } else {
                fine = middle;
            }
        }
        Refusal { reject, place: Place::new(data, fine, offset) }
    }

    /// Refusal of the path of the head at the start of `data`.
    pub(super) fn of_path(reject: Reject, data: &[u8], head: &Head<'_>, offset: u64) -> Self {
        let path = head.path().as_bytes();
        let at = first_line(data).windows(path.len()).rposition(|text| text == path).unwrap_or(0);
        let at = head.start + at;
        Refusal { reject, place: Place::new(data, at, offset) }
    }

    /// Refusal of the body that continues in `data`.
    pub(super) fn of_body(reject: Reject, mut framing: Framing, data: &[u8], offset: u64) -> Self {
        let at = match framing::requests().follow(&mut framing, data, false) {
            Followed::Rejected(_, at) => at,
            _ => 0,
        };
        Refusal { reject, place: Place::new(data, at, offset) }
    }
}
