//! Connections to the agents' port that have not authenticated yet.
//!
//! Anyone who reaches the port can connect, so there is a bound, of all and of each source. A newcomer always
//! has a slot: the oldest of the source that has most gives way to it, so a flood displaces itself, and a
//! node, which proves what it is within milliseconds, is let in beside it.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Most of all connections.
const ALL: usize = 256;
/// Most connections of one source.
const EACH: usize = 64;

/// An IPv4 address, or an IPv6 network of 64 bits.
type Source = [u8; 16];

fn source(address: IpAddr) -> Source {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => {
            let mut source = address.octets();
            source[8..].fill(0);
            source
        }
    }
}

/// All such connections.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// By their numbers. Dropping the sender ends the connection.
    slots: HashMap<u64, oneshot::Sender<()>>,
    by_source: HashMap<Source, BTreeSet<u64>>,
}

/// The slot of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    strangers: Arc<Strangers>,
    source: Source,
    number: u64,
    gone: oneshot::Receiver<()>,
}

impl Strangers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a connection from this address.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Slot {
        let source = source(address);
        let mut state = self.state();
        let of_source = state.by_source.get(&source).map_or(0, BTreeSet::len);
        if of_source >= EACH {
            state.remove_oldest(source);
        } else if state.slots.len() >= ALL {
            let most =
                state.by_source.iter().max_by_key(|(_, all)| (all.len(), std::cmp::Reverse(all.first())));
            let most = most.map(|(source, _)| *source);
            most.into_iter().for_each(|source| state.remove_oldest(source));
        }
        state.last += 1;
        let (number, (sender, gone)) = (state.last, oneshot::channel());
        state.slots.insert(number, sender);
        state.by_source.entry(source).or_default().insert(number);
        Slot { strangers: Arc::clone(self), source, number, gone }
    }
}

impl State {
    fn remove_oldest(&mut self, source: Source) {
        let oldest = self.by_source.get(&source).and_then(|all| all.first().copied());
        oldest.into_iter().for_each(|number| self.remove(source, number));
    }

    fn remove(&mut self, source: Source, number: u64) {
        self.slots.remove(&number);
        if let Some(all) = self.by_source.get_mut(&source) {
            all.remove(&number);
            if all.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }
}

impl Slot {
    /// Returns when another connection has been given the slot.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.gone).await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.strangers.state().remove(self.source, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(slot: &mut Slot) -> bool {
        slot.gone.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    fn address(number: usize) -> IpAddr {
        IpAddr::from([192, 0, (number >> 8) as u8, number as u8])
    }

    #[test]
    fn the_oldest_of_a_source_gives_way() {
        let strangers = Arc::new(Strangers::default());
        let mut node = strangers.admit(address(1));
        let mut flood: Vec<Slot> = (0..1000).map(|_| strangers.admit(address(2))).collect();
        assert!(!is_lost(&mut node));
        let lost = flood.iter_mut().map(is_lost).collect::<Vec<_>>();
        assert_eq!(lost, (0..1000).map(|number| number < 1000 - EACH).collect::<Vec<_>>());
        drop((node, flood));
        assert!(strangers.state().slots.is_empty() && strangers.state().by_source.is_empty());
    }

    #[test]
    fn many_sources_displace_the_one_that_has_most() {
        let strangers = Arc::new(Strangers::default());
        let mut slots: Vec<Slot> = (0..ALL).map(|number| strangers.admit(address(number / 2))).collect();
        let mut another = strangers.admit(address(ALL));
        assert_eq!(slots.iter_mut().map(is_lost).filter(|lost| *lost).count(), 1);
        assert!(is_lost(&mut slots[0]) && !is_lost(&mut another));
        assert_eq!(strangers.state().slots.len(), ALL);
    }

    #[test]
    fn a_network_of_one_customer_is_one_source() {
        let strangers = Arc::new(Strangers::default());
        let near = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        let mut customer: Vec<Slot> = (0..=EACH as u16).map(|last| strangers.admit(near(last))).collect();
        assert!(is_lost(&mut customer[0]) && !is_lost(&mut customer[1]));
    }
}
