//! `mirror` of a route: the pool that gets copies of its requests.

use crate::mistakes::{Mistakes, Names};
use crate::{Action, Cluster, Mirror, raw, syntax};

impl Mistakes {
    pub(super) fn mirror(
        &mut self,
        route: &raw::Route,
        action: &Action,
        pool_names: &Names<'_>,
    ) -> Option<Mirror> {
        let Some(name) = &route.mirror else {
            if let Some(share) = &route.mirror_share {
                self.at(share, "mirror_share without mirror, leave the line out");
            }
            return None;
        };
        let share = route.mirror_share.as_ref();
        let share = share.map(|share| self.take(share, syntax::mirror_share(share.get_ref())));
        if route.redirect.is_some() || route.respond.is_some() {
            self.at(name, "mirror copies what servers get, but the route leads to none");
        }
        let pool = self.resolve("pool", name, pool_names)?;
        if action.pools().any(|own| own == pool) {
            let what = format!(
                "pool {:?} gets the requests of this route already, allowed is another pool",
                name.get_ref()
            );
            self.at(name, what);
        }
        match share {
            None => Some(Mirror::all(pool)),
            Some(share) => share.map(|share| Mirror { pool, share }),
        }
    }

    /// Copies come over TCP, which hidden nodes do not answer. `cluster` was made from `file`.
    pub(super) fn mirrors_are_reached(&mut self, file: &raw::File, cluster: &Cluster) {
        for (file, service) in file.service.iter().zip(&cluster.services) {
            for (file, route) in file.route.iter().zip(&service.routes) {
                let (Some(name), Some(mirror)) = (&file.get_ref().mirror, route.mirror) else { continue };
                let mut nodes = cluster.pools[mirror.pool].nodes.iter().map(|node| &cluster.nodes[*node]);
                if let Some(hidden) = nodes.find(|node| node.hidden) {
                    let what = format!(
                        "mirror to pool {:?} with node {:?}, which is hidden, so that no copy reaches it",
                        name.get_ref(),
                        hidden.name
                    );
                    self.at(name, what);
                }
            }
        }
    }
}
