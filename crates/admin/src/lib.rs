//! What an operator sees of a running daemon: metrics for Prometheus, health and readiness, and a page that shows the
//! cluster.
//!
//! There is one source: the [`Status`](switchback_status::Status) that a daemon answers over its control socket, as
//! `switchback status` shows it. The [`Server`] is a thread in the daemon's process, and asks over that socket like any
//! other client: at each scrape, and once a second while somebody looks at the page. So the daemon's own thread, which
//! serves packets, has nothing to do with HTTP, and is asked at most ten times a second, however many clients there are
//! ([`asker`]).
//!
//! [`View`] is what the page and `switchback top` have in common: rates and quantiles, computed from the status at two
//! moments.

pub mod asker;
mod health;
mod hosts;
mod keeper;
pub mod metric;
pub mod metrics;
mod server;
pub mod view;

pub use keeper::Keeper;
pub use server::Server;
pub use view::{History, View};
