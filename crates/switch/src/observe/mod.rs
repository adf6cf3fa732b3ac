//! What is seen of responses, although none passes the switch: nodes tell of each.

pub mod totals;
