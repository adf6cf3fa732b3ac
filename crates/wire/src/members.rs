//! Payloads of options: what an option says besides operation, flags and reason. C reads and writes them as members of
//! `union sb_payload` in `bpf/handoff.h`, which says which operation has which structure. Rust keeps the bytes, and
//! [`message`](crate::message) reads and writes them as one of these structures.

use crate::generated::*;
use crate::payload::Payload;
use crate::plain::plain;
use crate::{Plain, bytes_of, read_from};

const LEN: usize = SB_PAYLOAD_LEN as usize;

const _: () = assert!(size_of::<Payload>() == LEN);

/// Members of `union sb_payload`.
pub trait Member: Plain {}

macro_rules! members {
    ($($name:ty),+) => {
        plain!($($name),+);
        $(
            impl Member for $name {}
            const _: () = assert!(size_of::<$name>() <= LEN);
        )+
    };
}

members!(
    sb_flow_state,
    sb_handover,
    sb_outcome,
    sb_confirmed,
    sb_question,
    sb_move,
    sb_death,
    sb_kept,
    sb_numbered,
    sb_hello,
    sb_sync,
    sb_report,
    sb_size,
    sb_direct
);

impl sb_option {
    /// The payload as one of the structures.
    pub fn said<T: Member>(&self) -> T {
        read_from(&self.payload.0).expect("no structure is longer than the payload")
    }

    /// The state of the flow, with which most payloads begin.
    pub fn flow_state(&self) -> sb_flow_state {
        self.said()
    }

    /// The option with this payload. Bytes behind the structure are 0.
    pub fn saying<T: Member>(self, said: &T) -> Self {
        sb_option { payload: Payload::default(), ..self }.with(|now: &mut T| *now = *said)
    }

    /// The option with a change of its payload. Bytes behind the structure stay.
    pub fn with<T: Member>(mut self, change: impl FnOnce(&mut T)) -> Self {
        let mut said = self.said();
        change(&mut said);
        self.payload.0[..size_of::<T>()].copy_from_slice(bytes_of(&said));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_structure_begins_with_the_state_of_its_flow() {
        let state = sb_flow_state { origin: 1, next: 2, wscale: 3, ..Default::default() };
        let option =
            sb_option::default().saying(&sb_handover { flow: state, boundary: 4, ..Default::default() });
        assert_eq!(option.flow_state(), state);
        let changed = option.with(|flow: &mut sb_flow_state| flow.next = 5).said::<sb_handover>();
        assert_eq!((changed.flow.next, changed.boundary), (5, 4));
        assert_eq!(option.saying(&state).said::<sb_handover>().boundary, 0);
    }
}
