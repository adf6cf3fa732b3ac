//! The papers' experiments and further questions, each a series of scenarios.

mod plan;
mod policies;
mod report;
mod split;
mod tls;

pub use plan::{Needs, Plan, plan};
pub use policies::{Mix, Policies, policies};
pub use report::{Curve, Curves, Point, Progress, Report, Step, digits};
pub use split::{Split, split};
pub use tls::{Models, tls};
