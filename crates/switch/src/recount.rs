//! Counts the connections of clients anew, for limits of connections at a time.
//!
//! The program counts connections as they begin and end. It does not see entries of the flow maps that are evicted, and those
//! that are older than the limit. So a thread counts all entries from time to time. What begins or ends while it counts looks
//! like a mistake of the program; a mistake that two counts in a row find is corrected.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use switchback_config::{Cluster, Limit, ServiceLimits};
use switchback_runtime::{Doing, Result, maps};
use switchback_wire::report::pool_id;
use switchback_wire::{SB_OF_CONNECTIONS, address_bytes, bytes_of, read_from, sb_bucket, sb_flow};

/// Time between two counts.
const INTERVAL: Duration = Duration::from_secs(5);

/// The maps with the entries of flows, and the one with the program's counts.
pub struct Counted {
    /// `flows` and `waiting`.
    pub flows: [MapHandle; 2],
    /// `connections`.
    pub connections: MapHandle,
}

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Recounter(Sender<Services>);

impl Recounter {
    /// Starts the thread.
    pub fn start(maps: Counted) -> Result<Recounter> {
        let (sender, receiver) = channel();
        std::thread::Builder::new()
            .name("recounter".to_owned())
            .spawn(move || run(&maps, &receiver))
            .doing(|| "start the thread that counts connections")?;
        Ok(Recounter(sender))
    }

    /// Counts for the limits of this configuration from now on, and at once.
    pub fn set(&self, cluster: &Cluster) {
        // The thread ends after this only.
        let _ = self.0.send(Services::of(cluster));
    }
}

fn run(maps: &Counted, services: &Receiver<Services>) {
    let (mut of, mut last) = (Services::default(), None);
    loop {
        let wait = if of.0.is_empty() { Duration::MAX } else { INTERVAL };
        match services.recv_timeout(wait) {
            Ok(services) => (of, last) = (services, None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        match of.correct(maps, last.as_ref()) {
            Ok(errors) => last = Some(errors),
            Err(error) => log::warn!("{error}"),
        }
    }
}

/// Services with a limit of connections at a time, by where they listen.
#[derive(Debug, Default)]
struct Services(HashMap<SocketAddr, (u32, ServiceLimits)>);

/// By how much the program's counts are too low.
type Errors = HashMap<sb_bucket, i64>;

impl Services {
    fn of(cluster: &Cluster) -> Services {
        let limited = cluster.services.iter().filter(|service| !service.limits.concurrent.is_none());
        let entry = |listen: &SocketAddr, name: &str, limits| (*listen, (pool_id(name), limits));
        Services(
            limited
                .flat_map(|service| {
                    service.listen.iter().map(move |listen| entry(listen, &service.name, service.limits))
                })
                .collect(),
        )
    }

    /// The counts in which a flow takes part.
    fn buckets(&self, flow: &sb_flow) -> impl Iterator<Item = sb_bucket> {
        let of = self.0.get(&flow.vip()).map(|(service, limits)| {
            let Limit { client, all } = limits.concurrent;
            let bucket = |network| sb_bucket { network, service: *service, of: SB_OF_CONNECTIONS };
            let client = client.map(|_| bucket(address_bytes(limits.network(flow.client().ip()))));
            client.into_iter().chain(all.map(|_| bucket([0; 16])))
        });
        of.into_iter().flatten()
    }

    /// Counts, and corrects errors that the last count has found, too; without a last count, all.
    fn correct(&self, maps: &Counted, last: Option<&Errors>) -> Result<Errors> {
        let mut errors = Errors::new();
        for map in &maps.flows {
            maps::for_each(map, |flow, _| {
                let flow: Option<sb_flow> = read_from(flow);
                for bucket in flow.iter().flat_map(|flow| self.buckets(flow)) {
                    *errors.entry(bucket).or_default() += 1;
                }
            })
            .doing(|| "read the flow map")?;
        }
        let mut counts = HashMap::new();
        maps::for_each(&maps.connections, |bucket, count| {
            if let (Some(bucket), Ok(count)) = (read_from::<sb_bucket>(bucket), count.try_into()) {
                counts.insert(bucket, u32::from_ne_bytes(count));
            }
        })
        .doing(|| "read the map connections")?;
        for (bucket, count) in &counts {
            *errors.entry(*bucket).or_default() -= i64::from(*count);
        }
        errors.retain(|_, error| *error != 0);
        for (bucket, error) in &mut errors {
            let sure = last.map_or(*error, |last| common(*error, last.get(bucket).copied().unwrap_or(0)));
            if sure == 0 {
                continue;
            }
            *error -= sure;
            let count = i64::from(counts.get(bucket).copied().unwrap_or(0)) + sure;
            let count = u32::try_from(count).unwrap_or(0);
            maps.connections
                .update(bytes_of(bucket), &count.to_ne_bytes(), MapFlags::ANY)
                .doing(|| "correct the map connections")?;
        }
        Ok(errors)
    }
}

/// What two errors have in common: the smaller one, if both have the same sign.
fn common(a: i64, b: i64) -> i64 {
    match (a.signum(), b.signum()) {
        (1, 1) => a.min(b),
        (-1, -1) => a.max(b),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sure_as_far_as_two_counts_have_them() {
        for (a, b, sure) in [(3, 2, 2), (-3, -5, -3), (3, -1, 0), (0, 4, 0), (-1, 0, 0)] {
            assert_eq!(common(a, b), sure, "{a} {b}");
        }
    }
}
