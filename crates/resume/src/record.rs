//! What a node tells its heirs of a response.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::fingerprint::{Fingerprint, Key};
use crate::insurable::{Insurable, Uninsured};
use crate::quorum::{Ballot, Beginning, Promise, Replica, Sealed, SetId};
use crate::repeatable::Repeatable;

/// A client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// The client.
    pub client: SocketAddr,
    /// The VIP.
    pub vip: SocketAddr,
}

/// A response under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The connection.
    pub flow: Flow,
    /// Sequence number of the client's first byte.
    pub origin: u32,
    /// Sequence number at which the client's next request begins.
    pub next: u32,
    /// The adoption by the node.
    pub generation: u32,
    /// Requests that the node has been given on the connection.
    pub requests: u16,
    /// MSS of the client.
    pub mss: u16,
    /// Options that the handshake has settled (`SB_SYN_*`), and the round trip.
    pub options: u8,
    /// Window scales.
    pub wscale: u8,
    /// Whether the connection stays open behind the response.
    pub keeps: bool,
    /// A sequence number of the response's body up to which the client has it.
    pub seq: u32,
    /// Bytes of the response before it.
    pub sent: u64,
    /// Head of the request.
    pub request: Vec<u8>,
    /// Head of the response.
    pub response: Vec<u8>,
    /// By what another server's response is known to be the same; without, the server is asked for the rest only.
    pub proof: Option<Proof>,
    /// Name of the node.
    pub owner: String,
    /// Names of the nodes that can go on, the first one first.
    pub heirs: Vec<String>,
    /// Names of the nodes that have had the response before.
    pub past: Vec<String>,
}

/// Fingerprints of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Their secret.
    pub key: Key,
    /// The one of the most bytes.
    pub last: Fingerprint,
}

/// How another server goes on with a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumable {
    /// It is asked for the rest.
    Rest(Insurable),
    /// It is asked for the same once more.
    Again(Repeatable, Proof),
}

impl Resumable {
    /// How another server goes on with the response with these heads.
    pub fn read(request: &[u8], response: &[u8], proof: Option<Proof>) -> Result<Self, Uninsured> {
        Ok(match proof {
            None => Resumable::Rest(Insurable::read(request, response)?),
            Some(proof) => Resumable::Again(Repeatable::read(request, response)?, proof),
        })
    }

    /// By what the response is known to be the same, if that is its content.
    pub fn proof(&self) -> Option<Proof> {
        match self {
            Resumable::Rest(_) => None,
            Resumable::Again(_, proof) => Some(*proof),
        }
    }

    /// Length of the response's head, in bytes.
    pub fn head_len(&self) -> usize {
        match self {
            Resumable::Rest(insurable) => insurable.head_len(),
            Resumable::Again(repeatable, _) => repeatable.head_len(),
        }
    }

    /// Status of the response.
    pub fn status(&self) -> u16 {
        match self {
            Resumable::Rest(insurable) => insurable.status(),
            Resumable::Again(repeatable, _) => repeatable.status(),
        }
    }

    /// Length of the whole response, in bytes; None if only its end says it.
    pub fn whole_len(&self) -> Option<u64> {
        let body = match self {
            Resumable::Rest(insurable) => Some(insurable.body_len()),
            Resumable::Again(repeatable, _) => repeatable.body_len(),
        };
        body.map(|body| body + self.head_len() as u64)
    }
}

impl Record {
    /// How another server goes on with the response, as its heads say.
    pub fn resumable(&self) -> Result<Resumable, Uninsured> {
        Resumable::read(&self.request, &self.response, self.proof)
    }

    /// Memory of the record, in bytes.
    pub fn cost(&self) -> usize {
        size_of::<Record>()
            + self.request.len()
            + self.response.len()
            + 32 * (1 + self.heirs.len() + self.past.len())
    }
}

/// What it takes to go on with a response over TLS. It is as secret as the connection, and is sent encrypted only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// Name of the service.
    pub service: String,
    /// The state of the connection, in the form in which connections move.
    pub state: Zeroizing<Vec<u8>>,
}

/// Without keys.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("service", &self.service).finish_non_exhaustive()
    }
}

/// A message about a response over TLS, to one of its heirs; each has an [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// The response is under way, and may have been sent up to these records.
    Begin {
        /// The set of heirs.
        begins: Beginning,
        /// What is not secret.
        record: Box<Record>,
        /// See [`Secret`].
        secret: Box<Secret>,
    },
    /// More records may go out.
    Add {
        /// The set of heirs.
        set: SetId,
        /// Nobody can take over by an earlier set any more.
        is_only: bool,
        /// Number before which the client has all records.
        has: u64,
        /// Number of the first one.
        first: u64,
        /// They themselves.
        sealed: Vec<Sealed>,
    },
    /// The set ends, as its owner says, or who has taken over by it.
    Leave(SetId, Ballot),
    /// One of the set is about to take over.
    Promise {
        /// The set.
        set: SetId,
        /// Sets in which heirs may be that have not heard of this one.
        before: Vec<SetId>,
        /// The number of the take-over.
        by: Ballot,
    },
}

/// The answer to an [`Ask`], and to [`Message::Insure`] about a response that is to be made once more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The heir knows all records of the set before a number.
    Known {
        /// The set.
        set: SetId,
        /// The number.
        end: u64,
        /// Earlier sets that the heir has left, if the set begins.
        left: Vec<SetId>,
    },
    /// The heir has left these sets.
    Left(Vec<SetId>),
    /// The heir hears of no earlier owner any more.
    Promised(SetId, Ballot, Promise),
    /// The heir is in a later set.
    Newer {
        /// The set that it was asked about.
        of: SetId,
        /// The response, as it knows it.
        record: Box<Record>,
        /// See [`Secret`].
        secret: Box<Secret>,
        /// The records that may have gone out.
        replica: Replica,
    },
    /// The heir does not know the set any more, or it hears of no earlier owner than this one.
    Refused(SetId, Ballot),
    /// The heir knows the response.
    Insured,
}

/// What an heir says to a node by the connection on which that tells it of its responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// About the response on the connection with this origin.
    Answer(Flow, u32, Box<Answer>),
    /// The heir lives.
    Lives,
}

/// A message of a node to one of its heirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The response is under way; replaces an earlier one of the connection.
    Insure(Record),
    /// So much of the response on the connection with this origin has been sent.
    Fingerprint(Flow, u32, Fingerprint),
    /// The response on the connection with this origin is over.
    Over(Flow, u32),
    /// The server of the response on the connection with this origin has gone: the heir is to go on.
    Bequeathed(Flow, u32),
    /// The response on the connection with this origin has gone on at the node that says so, by this adoption.
    Taken(Flow, u32, u32),
    /// About the response over TLS on the connection with this origin.
    Ask(Flow, u32, Ask),
    /// Nothing else was to be said. The answer is [`Reply::Lives`].
    Lives,
}
