//! The dispatcher against a model of everything around it: the XDP program's flow map, nodes that adopt and release,
//! and a client that sends again what is not acknowledged.

mod answers;
mod bodies;
mod cases;
mod dead;
mod deaths;
mod fuzz;
mod hellos;
mod listed;
mod model;
mod moves;
mod new_heads;
mod nodes;
mod observed;
mod outliers;
mod path_mtu;
mod placed;
mod random;
mod resumed;
mod sessions;
mod sought;
mod split;
mod strangers;
mod taken;
mod threads;
mod throttled;
mod upgrades;
