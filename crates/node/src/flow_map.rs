//! Walks over the map of flows. With a million of them each takes tenths of a second, so threads of their own walk while the
//! agent goes on.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

use libbpf_rs::{MapHandle, MapMut};
use switchback_runtime::{Doing, Result, maps};
use switchback_wire::{read_from, sb_flow, sb_load, sb_owned, sb_ownership, sb_reason};

use crate::programs::read_loads;
use crate::released::Released;

/// The flows that nodes of this machine have or have had.
pub(crate) struct FlowMap {
    owned: MapHandle,
    load: MapHandle,
}

/// Counts of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowCounts {
    /// Flows with a socket, as the programs count them.
    pub(crate) flows: i64,
    /// Requests without a whole response, on flows whose responses can be followed.
    pub(crate) in_flight: i64,
    /// Flows including those being adopted.
    pub(crate) owned: usize,
}

/// Counts by the node's number, with the programs' sums right before and after the walk.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) before: HashMap<u16, sb_load>,
    pub(crate) found: HashMap<u16, FlowCounts>,
    pub(crate) after: HashMap<u16, sb_load>,
}

impl FlowMap {
    pub(crate) fn new(owned: &MapMut<'_>, load: &MapMut<'_>) -> Result<FlowMap> {
        let owned = MapHandle::try_from(owned).doing(|| "open the map owned")?;
        let load = MapHandle::try_from(load).doing(|| "open the map load")?;
        Ok(FlowMap { owned, load })
    }

    fn for_each(&self, mut each: impl FnMut(sb_flow, sb_owned)) -> Result<()> {
        let read = |flow: &[u8], owned: &[u8]| {
            if let Some((flow, owned)) = read_from(flow).zip(read_from(owned)) {
                each(flow, owned);
            }
        };
        maps::for_each(&self.owned, read).doing(|| "read the map owned")
    }

    pub(crate) fn compare(&self) -> Result<Comparison> {
        Ok(Comparison {
            before: read_loads(&self.load)?,
            found: self.count()?,
            after: read_loads(&self.load)?,
        })
    }

    /// Counts flows and requests without a whole response, by the node's number, by visiting each flow: slow, but independent
    /// of the sums.
    pub(crate) fn count(&self) -> Result<HashMap<u16, FlowCounts>> {
        let mut found = HashMap::<u16, FlowCounts>::new();
        self.for_each(|_, owned| {
            let counts = found.entry(owned.node).or_default();
            counts.flows += i64::from(owned.state == sb_ownership::SB_OWN_OPEN as u8);
            if is_ours(&owned) {
                counts.owned += 1;
                if !owned.framing.is_lost() {
                    counts.in_flight += i64::from(owned.requests.wrapping_sub(owned.responses));
                }
            }
        })?;
        Ok(found)
    }

    /// Number of flows that nodes of this machine have, including those being adopted, by VIP.
    pub(crate) fn count_by_vip(&self) -> Result<HashMap<SocketAddr, usize>> {
        let mut counts = HashMap::new();
        self.for_each(|flow, owned| {
            if is_ours(&owned) {
                *counts.entry(flow.vip()).or_default() += 1;
            }
        })?;
        Ok(counts)
    }

    /// The keys of all flows, by the node's number.
    pub(crate) fn flows(&self) -> Result<HashMap<u16, Vec<sb_flow>>> {
        let mut flows = HashMap::<u16, Vec<sb_flow>>::new();
        self.for_each(|flow, owned| flows.entry(owned.node).or_default().push(flow))?;
        Ok(flows)
    }

    /// The flows that nodes of this machine have released and others can go on with.
    pub(crate) fn released(&self) -> Result<Vec<Released>> {
        let goes_on = [sb_reason::SB_REASON_NONE, sb_reason::SB_REASON_NO_SOCKET].map(|reason| reason as u8);
        let mut released = Vec::new();
        self.for_each(|flow, owned| {
            if !is_ours(&owned) && goes_on.contains(&owned.reason) {
                released.push((flow, owned));
            }
        })?;
        Ok(released)
    }
}

fn is_ours(owned: &sb_owned) -> bool {
    owned.state != sb_ownership::SB_OWN_RELEASED as u8
}

/// A walk in a thread.
#[derive(Debug)]
pub(crate) struct Walk<T>(JoinHandle<Result<T>>);

impl<T: Send + 'static> Walk<T> {
    pub(crate) fn begin(walk: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Walk<T>> {
        let thread = thread::Builder::new().name("walk".to_owned()).spawn(walk);
        Ok(Walk(thread.doing(|| "start a thread that reads the flows")?))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// The result, for which it waits.
    pub(crate) fn result(self) -> Result<T> {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
