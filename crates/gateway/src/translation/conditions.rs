//! Conditions of statuses.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition says: its type, whether it holds, the reason and a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub kind: &'static str,
    pub holds: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Said {
    /// A condition that holds; the reason is usually its type.
    pub fn yes(kind: &'static str, reason: &'static str) -> Said {
        Said { kind, holds: true, reason, message: String::new() }
    }

    /// A condition that does not hold.
    pub fn no(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Said {
        Said { kind, holds: false, reason, message: message.into() }
    }
}

/// Makes the conditions of one object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    /// Generation of the object.
    pub generation: Option<i64>,
    /// The time of changes.
    pub now: Timestamp,
}

impl Conditions {
    /// The conditions, which keep the time of their last change from those that the object has.
    pub fn of(self, said: Vec<Said>, before: &[Condition]) -> Vec<Condition> {
        let condition = |Said { kind, holds, reason, message }| {
            let status = if holds { "True" } else { "False" };
            let same = before.iter().find(|condition| condition.type_ == kind && condition.status == status);
            Condition {
                last_transition_time: same
                    .map_or(Time(self.now), |condition| condition.last_transition_time.clone()),
                message,
                observed_generation: self.generation,
                reason: reason.to_owned(),
                status: status.to_owned(),
                type_: kind.to_owned(),
            }
        };
        said.into_iter().map(condition).collect()
    }
}
