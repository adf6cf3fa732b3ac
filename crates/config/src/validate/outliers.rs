//! `[pool.outliers]`: whether the pool has a node to spare, and whether the times fit together.

use crate::mistakes::Mistakes;
use crate::outliers::{FAILURES, SHARE, TIME};
use crate::raw::Spanned;
use crate::{Outliers, Terms, raw, syntax};

impl Mistakes {
    pub(super) fn outliers(&mut self, file: &Spanned<raw::Outliers>, pool: &raw::Pool) -> Outliers {
        if pool.has_one_node() {
            let what = format!(
                "outliers in pool {:?}, which has no other node, at least two nodes are needed",
                pool.name.get_ref()
            );
            self.at(file, what);
        }
        let (file, default) = (file.get_ref(), Outliers::default());
        let mistakes_before = self.count();
        let failures = self.number_or("failures", &file.failures, FAILURES, default.terms.failures);
        let first = self.time("time", &file.time, TIME, default.terms.time);
        let longest = self.time("max_time", &file.max_time, TIME, default.terms.max_time);
        if self.count() == mistakes_before {
            self.times_in_order(("time", first, &file.time), ("max_time", longest, &file.max_time));
        }
        let share = file.max_share.as_ref();
        let share = share.and_then(|text| self.take(text, syntax::share("max_share", text.get_ref(), SHARE)));
        Outliers {
            terms: Terms { failures, time: first, max_time: longest },
            max_share: share.unwrap_or(default.max_share),
        }
    }
}
