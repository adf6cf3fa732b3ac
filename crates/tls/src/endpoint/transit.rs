//! Connections on their way between two nodes: those that are expected here, and those that leave.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::flow::Addresses;
use crate::Session;

/// Time for which the other node waits for the connection: longer than a switch takes to be replaced, because only a
/// switch can bring it.
pub(super) const ARRIVAL: Duration = Duration::from_secs(60);

/// How the agent moves TCP connections.
pub trait Handoff: Send + Sync {
    /// Drops all packets from the client to the socket and back, from now on.
    fn freeze(&self, flow: Addresses) -> io::Result<Box<dyn Frozen>>;
    /// Number of the node of this machine that a switch has given the connection to, if one has.
    fn number(&self, flow: Addresses) -> Option<u16>;
}

/// A connection whose packets are dropped. When this is dropped it goes on, unless it has been given away.
pub trait Frozen: Send {
    /// Reads the connection's sequence numbers; false if data has arrived that has not been read.
    fn take(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool>;
    /// Tells the switch that this node has the connection from now on. May be repeated.
    fn give(&mut self, node: &str) -> io::Result<()>;
}

/// Connections that other nodes have promised, and the state kept for each of them.
pub(super) struct Expected<T = Promised>(Mutex<HashMap<Addresses, Arrival<T>>>);

/// State of a promised connection: its session, and the arrival of the request that it moves for.
pub(super) type Promised = (Session, Instant);

struct Arrival<T> {
    kept: T,
    arrived: oneshot::Sender<()>,
}

impl<T> Default for Expected<T> {
    fn default() -> Self {
        Expected(Mutex::default())
    }
}

impl<T> Expected<T> {
    pub(super) fn add(&self, flow: Addresses, kept: T) -> Awaited<'_, T> {
        let (sender, arrived) = oneshot::channel();
        self.lock().insert(flow, Arrival { kept, arrived: sender });
        Awaited { expected: self, flow, arrived }
    }

    /// The state of a connection that has just been accepted, if it was promised.
    pub(super) fn take(&self, flow: Addresses) -> Option<T> {
        let arrival = self.lock().remove(&flow)?;
        // Whoever has waited may have given up just now.
        arrival.arrived.send(()).ok().map(|()| arrival.kept)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Addresses, Arrival<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One arrival. When dropped it is not expected any more; a later one of the same flow still is.
pub(super) struct Awaited<'a, T> {
    expected: &'a Expected<T>,
    flow: Addresses,
    arrived: oneshot::Receiver<()>,
}

impl<T> Awaited<'_, T> {
    /// Whether the connection arrives in time.
    pub(super) async fn arrives(&mut self) -> bool {
        timeout(ARRIVAL, &mut self.arrived).await.is_ok_and(|arrived| arrived.is_ok())
    }
}

impl<T> Drop for Awaited<'_, T> {
    fn drop(&mut self) {
        self.arrived.close();
        let mut expected = self.expected.lock();
        if expected.get(&self.flow).is_some_and(|arrival| arrival.arrived.is_closed()) {
            expected.remove(&self.flow);
        }
    }
}

/// Connections that have been given to other nodes, which have not said that they have them.
#[derive(Default)]
pub(super) struct Leaving(Mutex<HashMap<Addresses, oneshot::Sender<Over>>>);

/// Dropped when nothing is left here of a connection that has been given away.
type Over = oneshot::Sender<()>;

impl Leaving {
    pub(super) fn begin(&self, flow: Addresses) -> Departure<'_> {
        let (sender, back) = oneshot::channel();
        self.lock().insert(flow, sender);
        Departure { leaving: self, flow, back, over: None }
    }

    /// The connection is offered to this node again, so the other one has had it: the switch is not told any
    /// more that it leaves, and its old socket goes, before it may come.
    pub(super) async fn is_back(&self, flow: Addresses) {
        let leaving = self.lock().remove(&flow);
        if let Some(leaving) = leaving {
            let (over, is_over) = oneshot::channel();
            // The other node's word may have come meanwhile.
            let _ = leaving.send(over);
            let _ = is_over.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Addresses, oneshot::Sender<Over>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection on its way. Dropped when nothing of it is left here.
pub(super) struct Departure<'a> {
    leaving: &'a Leaving,
    flow: Addresses,
    back: oneshot::Receiver<Over>,
    over: Option<Over>,
}

impl Departure<'_> {
    /// Waits until the connection is offered to this node again.
    pub(super) async fn is_back(&mut self) {
        match (&mut self.back).await {
            Ok(over) => self.over = Some(over),
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        self.back.close();
        let mut leaving = self.leaving.lock();
        if leaving.get(&self.flow).is_some_and(oneshot::Sender::is_closed) {
            leaving.remove(&self.flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: &str = "192.0.2.1:1000";

    fn flow() -> Addresses {
        (FLOW.parse().unwrap(), "192.0.2.100:443".parse().unwrap())
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
    }

    #[test]
    fn whoever_awaited_an_earlier_arrival_leaves_the_next_one_alone() {
        run(async {
            let expected = Expected::default();
            let mut first = expected.add(flow(), "first");
            assert_eq!(expected.take(flow()), Some("first"));
            // The connection has gone on to another node, and is offered again, before the first task runs.
            let mut second = expected.add(flow(), "second");
            assert!(first.arrives().await);
            drop(first);
            assert_eq!(expected.take(flow()), Some("second"));
            assert!(second.arrives().await);
        });
    }

    #[test]
    fn nobody_finds_what_nobody_awaits() {
        run(async {
            let expected = Expected::default();
            drop(expected.add(flow(), ()));
            assert!(expected.lock().is_empty());
            let mut replaced = expected.add(flow(), ());
            let _replacement = expected.add(flow(), ());
            assert!(!replaced.arrives().await);
        });
    }

    #[test]
    fn a_connection_comes_back_when_nothing_is_left_of_it() {
        run(async {
            let leaving = Leaving::default();
            let mut departure = leaving.begin(flow());
            let mut back = std::pin::pin!(leaving.is_back(flow()));
            tokio::select! {
                biased;
                () = &mut back => panic!("the old socket is still there"),
                () = departure.is_back() => {}
            }
            drop(departure);
            back.await;
            assert!(leaving.lock().is_empty());
            // That of one which has left is nobody's business.
            leaving.is_back(flow()).await;
            drop(leaving.begin(flow()));
            assert!(leaving.lock().is_empty());
        });
    }
}
