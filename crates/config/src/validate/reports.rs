//! `[reports]`: when a node counts as suspect, and when as dead.

use crate::mistakes::Mistakes;
use crate::{Reports, raw, reports};

impl Mistakes {
    pub(super) fn reports(&mut self, file: &raw::Reports, nodes: usize) -> Reports {
        let default = match file.interval {
            Some(_) => Reports::default(),
            None => Reports::with_nodes(nodes),
        };
        let interval = self.time("interval", &file.interval, reports::INTERVAL, default.interval);
        let suspect_after = self.number_or(
            "suspect_after",
            &file.suspect_after,
            reports::SUSPECT_AFTER,
            default.suspect_after,
        );
        let at_most = default.dead_after.max(suspect_after);
        let dead_after = self.number_or("dead_after", &file.dead_after, reports::DEAD_AFTER, at_most);
        if let Some(place) = file.dead_after.as_ref().filter(|_| dead_after < suspect_after) {
            let what = format!(
                "dead_after {dead_after} is less than suspect_after {suspect_after}, allowed is \
                 suspect_after <= dead_after"
            );
            self.at(place, what);
        }
        Reports { interval, suspect_after, dead_after }
    }
}
