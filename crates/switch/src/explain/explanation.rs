//! What there is to say about a request.

use switchback_http::framing::{self, Followed};
use switchback_http::{Body, Head, Limits, Reject, parse_head};
use switchback_wire::sb_framing;

/// How much of a line is shown on either side of a byte.
const AROUND: usize = 40;

/// What becomes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Where it begins in what the client sends on the connection.
    pub offset: u64,
    /// Its first line, without what ends it.
    pub line: Vec<u8>,
    /// Index in `Cluster::services`.
    pub service: usize,
    /// What servers make of its path, if that is not what is written there; the first is what routes are shown for.
    pub read_as: Vec<String>,
    /// The service's routes in order, up to the one that takes the request: why it does not, or None.
    pub routes: Vec<Option<String>>,
    /// What it says of its session, if its pool has sessions that stay with their nodes.
    pub session: Option<SessionRead>,
    /// What the routes lead to.
    pub outcome: Outcome,
}

/// What a request says of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRead {
    /// Index in `Cluster::pools`.
    pub pool: usize,
    /// Which node has it.
    pub names: Names,
    /// How many of its cookies look as if they named a node and are forged or damaged.
    pub ignored: u16,
    /// The client's address is all that it depends on.
    pub by_client: bool,
    /// The cluster's key is known. Without it, no cookie says anything.
    pub readable: bool,
}

/// What a request says of the node that has its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// It belongs to no session.
    Nothing,
    /// It is this one, an index in `Cluster::nodes`.
    Node(usize),
    /// It is none of the pool's any more.
    Gone,
}

/// What the switch does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A node gets it.
    Forwarded(Forwarded),
    /// The switch answers it and ends the connection.
    Answered {
        /// The status code.
        status: u16,
        /// Where the client is sent, if it is.
        location: Option<String>,
    },
    /// The switch refuses it and ends the connection.
    Refused(Refusal),
    /// The switch waits for the rest of its head.
    Incomplete {
        /// How many bytes of it are there.
        received: usize,
        /// No more will come: the client has closed.
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
    /// How the flow came to the node.
    pub flow: Flow,
    /// Whether the automaton in XDP takes such a request on a flow of a node of the pool.
    pub express: Result<(), Slow>,
    /// Whether its head is all that is in its packet; unknown where the data came without packets.
    pub alone: Option<bool>,
    /// How the end of its body is found.
    pub body: Body,
    /// Where the next request begins, once that is known.
    pub end: Option<u64>,
    /// What is wrong with its body: the node gives the request up and the switch answers.
    pub refusal: Option<Refusal>,
    /// What comes next on the connection.
    pub then: Then,
}

/// Which node had the flow before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// None: it is the connection's first request.
    New,
    /// The same.
    Stays,
    /// The same, but for another pool: it gives the flow up and adopts it again, because a node that has to do with
    /// cookies knows one pool for each flow.
    Anew,
    /// This one, which is not to have the request.
    Moves(usize),
}

/// Why the L7 thread decides rather than the automaton.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slow {
    /// The service's routes have no automaton.
    NoAutomaton,
    /// The head is longer than `SB_EXPRESS_HEAD_MAX` bytes.
    TooLong,
    /// The route asks for a header field.
    Route,
    /// Which node gets it depends on what the automaton does not read.
    Session,
    /// The automaton does not know what stands here.
    Unknown(Place),
}

/// What may follow a request on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Another request, which is routed anew.
    Routed,
    /// Another protocol, which stays with the node.
    Upgrade,
    /// HTTP/2, which stays with the node.
    Http2,
    /// Nothing: the client asks for the end of the connection.
    Closes,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reject: Reject,
    /// The byte that shows it.
    pub place: Place,
}

/// A byte and what is around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it is in what the client sends on the connection.
    pub offset: u64,
    /// The line that it is in, or the middle of that.
    pub line: Vec<u8>,
    /// Its index in `line`.
    pub column: usize,
}

/// The line with which a request begins, without what ends it; an empty one may come before it.
pub(super) fn first_line(data: &[u8]) -> &[u8] {
    let data = data.strip_prefix(b"\r\n").unwrap_or(data);
    let line = data.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl Place {
    /// The byte `at` in `data`, which begins at `offset`.
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
    /// The head at the start of `data`, which is refused.
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

    /// The head at the start of `data`, whose path is refused.
    pub(super) fn of_path(reject: Reject, data: &[u8], head: &Head<'_>, offset: u64) -> Self {
        let path = head.path().as_bytes();
        let at = first_line(data).windows(path.len()).rposition(|text| text == path).unwrap_or(0);
        let at = head.start + at;
        Refusal { reject, place: Place::new(data, at, offset) }
    }

    /// The body that goes on in `data`, which is refused.
    pub(super) fn of_body(reject: Reject, mut framing: sb_framing, data: &[u8], offset: u64) -> Self {
        let at = match framing::requests().follow(&mut framing, data, false) {
            Followed::Rejected(_, at) => at,
            _ => 0,
        };
        Refusal { reject, place: Place::new(data, at, offset) }
    }
}
