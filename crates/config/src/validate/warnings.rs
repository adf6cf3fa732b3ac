//! What is valid and yet cannot be meant: routes that take no request, pools that get none or answer none.

use std::collections::HashSet;

use crate::mistakes::Mistakes;
use crate::{Cluster, Service, raw};

impl Mistakes {
    /// `cluster` is valid, and was made from `file`.
    pub(super) fn warnings(&mut self, file: &raw::File, cluster: &Cluster) {
        if file.service.is_empty() {
            self.warn_of_file("no service, so nothing is served; [[service]] adds one");
        }
        for (file, service) in file.service.iter().zip(&cluster.services) {
            self.unreachable_routes(file, service);
        }
        self.issued_in_vain(file, cluster);
        let routes = cluster.services.iter().flat_map(|service| &service.routes);
        let reached: HashSet<usize> = routes.flat_map(|route| route.pools()).collect();
        for (index, (file, pool)) in file.pool.iter().zip(&cluster.pools).enumerate() {
            if !reached.contains(&index) {
                self.warn(&file.name, format!("pool {:?} is in no route", pool.name));
            }
            let mut nodes = pool.nodes.iter().map(|&node| &cluster.nodes[node]);
            let is_expected = pool.nodes.is_empty() && file.empty_status.is_some();
            if !is_expected && nodes.all(|node| node.weight == 0 || node.drain) {
                if pool.nodes.is_empty() && pool.nodes_from.is_some() {
                    // Addresses of its name, if they are known, have been told of.
                    continue;
                }
                let what = match pool.nodes.is_empty() {
                    true => format!(
                        "pool {:?} has no node, so its requests are answered {}",
                        pool.name, pool.empty_status
                    ),
                    false => format!(
                        "every node of pool {:?} has weight 0 or drains, so its requests are answered 503",
                        pool.name
                    ),
                };
                match &file.nodes {
                    Some(nodes) => self.warn(nodes, what),
                    None => self.warn(&file.name, what),
                }
            }
        }
    }

    fn unreachable_routes(&mut self, file: &raw::Service, service: &Service) {
        for (index, route) in service.routes.iter().enumerate() {
            let mut earlier = service.routes[..index].iter();
            let Some(first) = earlier.position(|earlier| earlier.takes_all_of(route)) else { continue };
            let line = self.line(&file.route[first]);
            let what = match route.takes_all_of(&service.routes[first]) {
                true => {
                    format!("this route is never reached: the one in line {line} has the same conditions")
                }
                false => format!(
                    "this route is never reached: the one in line {line} takes all its requests; put this one before it"
                ),
            };
            self.warn(&file.route[index], what);
        }
    }
}
