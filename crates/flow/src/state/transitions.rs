//! Which state can follow which, by event. `docs/dispatch.md` has it as a table.

use super::{Event, State};
use switchback_wire::message::FromNode;

impl State {
    /// Its name in the table.
    pub(super) fn name(&self) -> &'static str {
        match self {
            State::Assembling(_) => "Assembling",
            State::Seeking(_) => "Seeking",
            State::Releasing(_) => "Releasing",
            State::Adopting(_) => "Adopting",
            State::Delivering(_) => "Delivering",
            State::Asking(_) => "Asking",
            State::Crowded(_) => "Crowded",
            State::Throttled(_) => "Throttled",
            State::Resuming(_) => "Resuming",
            State::Over => "Over",
        }
    }
}

impl Event<'_> {
    /// Its name in the table.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Event::Data => "data",
            Event::Deadline => "deadline",
            Event::Unread(_) => "UNREAD",
            Event::Owned { .. } => "OWNED",
            Event::Unowned { .. } => "UNOWNED",
            Event::Restored { .. } => "RESTORED",
            Event::Heard(_) => "acknowledgment",
            Event::Reply(FromNode::Adopted { .. }) => "ADOPTED",
            Event::Reply(FromNode::Refused { .. }) => "REFUSED",
            Event::Reply(FromNode::Released { .. }) => "RELEASED",
            Event::Reply(FromNode::Busy(_)) => "BUSY",
            Event::Reply(FromNode::Confirmed { .. }) => "CONFIRMED",
            Event::Reply(_) => "another answer",
        }
    }
}

/// What is held is read, of a flow with a node or without one.
const READ: &[&str] =
    &["Assembling", "Releasing", "Adopting", "Delivering", "Asking", "Crowded", "Throttled", "Over"];
/// What is held of a flow with a node is read.
const READ_ON: &[&str] = &["Assembling", "Releasing", "Delivering", "Asking", "Throttled", "Over"];
/// What is held of a flow without a node is read.
const BEGIN: &[&str] = &["Assembling", "Seeking", "Adopting", "Crowded", "Throttled", "Over"];
/// A request goes to another node.
const CHOOSE: &[&str] = &["Seeking", "Adopting", "Crowded", "Over"];

/// Every state.
const ANY: &[&str] = &[
    "Assembling",
    "Seeking",
    "Releasing",
    "Adopting",
    "Delivering",
    "Asking",
    "Crowded",
    "Throttled",
    "Over",
];

/// State, event, and the states that can follow. An event without a row leaves the state as it is, and so can any other.
pub(super) const TRANSITIONS: [(&str, &str, &[&str]); 36] = [
    ("Assembling", "data", READ),
    ("Assembling", "deadline", &["Seeking", "Releasing", "Over"]),
    ("Assembling", "CONFIRMED", READ_ON),
    ("Assembling", "UNREAD", READ_ON),
    ("Assembling", "OWNED", READ),
    ("Assembling", "UNOWNED", ANY),
    ("Seeking", "deadline", BEGIN),
    ("Seeking", "UNOWNED", BEGIN),
    ("Seeking", "OWNED", BEGIN),
    ("Seeking", "RESTORED", BEGIN),
    ("Releasing", "deadline", BEGIN),
    ("Releasing", "RELEASED", BEGIN),
    ("Releasing", "BUSY", READ_ON),
    ("Releasing", "UNREAD", READ_ON),
    ("Releasing", "OWNED", READ),
    ("Adopting", "deadline", CHOOSE),
    ("Adopting", "ADOPTED", READ_ON),
    ("Adopting", "REFUSED", CHOOSE),
    ("Adopting", "OWNED", READ),
    ("Delivering", "deadline", &["Over"]),
    ("Delivering", "CONFIRMED", READ_ON),
    ("Delivering", "REFUSED", CHOOSE),
    ("Delivering", "UNREAD", READ_ON),
    ("Delivering", "UNOWNED", &["Seeking", "Over"]),
    ("Delivering", "OWNED", READ),
    ("Asking", "deadline", &["Over"]),
    ("Asking", "OWNED", READ_ON),
    ("Asking", "UNREAD", READ_ON),
    ("Crowded", "deadline", CHOOSE),
    ("Crowded", "OWNED", READ),
    ("Throttled", "deadline", READ),
    ("Throttled", "OWNED", READ),
    ("Resuming", "deadline", &["Over"]),
    ("Resuming", "ADOPTED", READ_ON),
    ("Resuming", "REFUSED", READ_ON),
    ("Resuming", "OWNED", READ),
];

/// Whether the table has the transition.
pub(super) fn is_listed(from: &str, event: &str, to: &str) -> bool {
    let row = TRANSITIONS.iter().find(|(state, what, _)| (*state, *what) == (from, event));
    from == to || row.is_some_and(|(.., next)| next.contains(&to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/dispatch.md");

    #[test]
    fn the_page_has_the_table() {
        let mut table = String::from("| state | event | next state |\n|---|---|---|\n");
        for (state, event, next) in TRANSITIONS {
            table += &format!("| {state} | {event} | {} |\n", next.join(", "));
        }
        assert!(PAGE.contains(&table), "docs/dispatch.md is to have this table:\n{table}");
    }

    #[test]
    fn what_is_not_listed_is_refused() {
        assert!(is_listed("Crowded", "deadline", "Adopting"));
        assert!(is_listed("Asking", "data", "Asking"));
        assert!(!is_listed("Asking", "deadline", "Adopting"));
        assert!(!is_listed("Releasing", "CONFIRMED", "Over"));
    }
}
