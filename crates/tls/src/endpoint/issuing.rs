//! Agents tell each other of the certificates that a CA has issued, and of the proofs that it wants ([`Opening::Issued`]).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::messages::{ANSWER, Opening};
use super::peers::Peers;
use super::sharing::{Sharing, ask};
use crate::Issued;

/// Tells the other nodes at once what the one that orders has.
#[derive(Clone)]
pub struct Teller {
    pub(super) sharing: Arc<Sharing>,
    pub(super) peers: Arc<Peers>,
    pub(super) issued: Arc<Issued>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}

impl Teller {
    /// Returns when all other nodes know what this one does, and it what they do, but for those that do not answer.
    pub async fn tell_all(&self) {
        let mut exchanges = JoinSet::new();
        for node in self.sharing.nodes() {
            let (peers, issued) = (Arc::clone(&self.peers), Arc::clone(&self.issued));
            exchanges.spawn(async move {
                // The node asks others when it is back.
                let _ = timeout(ANSWER, exchange(node, &peers, &issued)).await;
            });
        }
        exchanges.join_all().await;
    }
}

pub(super) async fn exchange(node: SocketAddr, peers: &Peers, issued: &Issued) -> io::Result<()> {
    issued.hear(ask(node, peers, Opening::Issued(issued.tell())).await?);
    Ok(())
}
