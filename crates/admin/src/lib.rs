//! What an operator sees of a running daemon: metrics for Prometheus, health and readiness, and a page that shows the
//! cluster.
//!
//! There is one source: what a daemon says of itself over its control socket ([`Status`]), as `switchback status` shows
//! it. The [`Server`] is a thread in the daemon's process, and asks it over that socket as anybody else would: at each
//! scrape, and once a second while somebody looks at the page. So the daemon's own thread, which has packets to serve,
//! knows nothing of HTTP, and is asked at most ten times a second, however many want to know ([`asker`]).
//!
//! [`View`] is what the page and `switchback top` have in common: rates and quantiles, made of what the daemon says at
//! two moments.

pub mod asker;
mod health;
mod hosts;
pub mod metric;
pub mod metrics;
mod server;
mod status;
pub mod view;

pub use server::Server;
pub use status::Status;
pub use view::{History, View};
