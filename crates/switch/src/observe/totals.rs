//! Adds responses up, for the metrics.

use foldhash::HashMap;
use switchback_access_log::Ended;
use switchback_status::totals::{ResponseTotals, Timings, Totals};

use super::Finished;
use crate::plan::NodeId;

/// Service and pool of a response, by their indices in the configuration, and its node.
pub(super) type Owner = (Option<usize>, Option<usize>, Option<NodeId>);

/// [`Totals`], and where each sum is in them.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) totals: Totals,
    /// Indices in `totals.responses` and `totals.timings`, as long as the configuration is the same.
    indices: HashMap<Owner, (usize, usize)>,
}

impl Sums {
    /// Forgets the indices of the old configuration.
    pub(super) fn forget_indices(&mut self) {
        self.indices.clear();
    }

    /// Counts a response; `names` returns those of `owner`, empty where it is None.
    pub(super) fn add<'a>(
        &mut self,
        finished: &Finished,
        owner: Owner,
        names: impl FnOnce() -> [&'a str; 3],
    ) {
        let (responses, timings) = self.indices_of(owner, names);
        let responses = &mut self.totals.responses[responses];
        let class = finished.status.map_or(0, |status| usize::from(status / 100));
        responses.statuses[if class < 6 { class } else { 0 }] += 1;
        responses.bytes += finished.bytes;
        match finished.end {
            Ended::ByClient => responses.aborted_by_client += 1,
            Ended::ByServer | Ended::BySwitch => responses.aborted_by_server += 1,
            Ended::Complete | Ended::Unknown => {}
        }
        if owner.2.is_none() {
            return;
        }
        let timings = &mut self.totals.timings[timings];
        if let Some(asked) = &finished.asked {
            timings.queued.add(asked.queued);
        }
        finished.first_byte.into_iter().for_each(|time| timings.first_byte.add(time));
        if finished.end == Ended::Complete {
            finished.duration.into_iter().for_each(|time| timings.duration.add(time));
        }
    }

    fn indices_of<'a>(&mut self, owner: Owner, names: impl FnOnce() -> [&'a str; 3]) -> (usize, usize) {
        if let Some(indices) = self.indices.get(&owner) {
            return *indices;
        }
        let [service, pool, node] = names();
        let Totals { responses, timings, .. } = &mut self.totals;
        let is_same =
            |item: &ResponseTotals| item.service == service && item.pool == pool && item.node == node;
        let response = responses.iter().position(is_same).unwrap_or_else(|| {
            let [service, pool, node] = [service, pool, node].map(str::to_owned);
            responses.push(ResponseTotals { service, pool, node, ..Default::default() });
            responses.len() - 1
        });
        let is_same = |item: &Timings| item.service == service && item.pool == pool;
        let time = timings.iter().position(is_same).unwrap_or_else(|| {
            let [service, pool] = [service, pool].map(str::to_owned);
            timings.push(Timings { service, pool, ..Default::default() });
            timings.len() - 1
        });
        self.indices.insert(owner, (response, time));
        (response, time)
    }
}
