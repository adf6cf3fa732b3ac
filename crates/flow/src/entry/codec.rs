//! Entries in the switch's maps (`struct sb_flow_entry` in `bpf/switch_maps.h`).

use std::num::Wrapping;

use switchback_wire::flow_state::{Handshake, Stream};
use switchback_wire::generation::Generation;
use switchback_wire::sb_mode::*;
use switchback_wire::{Seq, sb_flow_entry, sb_mode};

use super::{Entry, Mode};
use crate::NodeId;
use crate::change::Change;
use crate::mark::Mark;

impl Mode {
    const ALL: [(Mode, sb_mode); 9] = [
        (Mode::Held, SB_MODE_HELD),
        (Mode::Sought, SB_MODE_SOUGHT),
        (Mode::AtNode(Stream::Requests), SB_MODE_REQUESTS),
        (Mode::AtNode(Stream::Upgrading), SB_MODE_UPGRADING),
        (Mode::AtNode(Stream::Tunnel), SB_MODE_TUNNEL),
        (Mode::AtNode(Stream::Resumed), SB_MODE_RESUMED),
        (Mode::Resuming, SB_MODE_RESUMING),
        (Mode::Adopting, SB_MODE_ADOPTING),
        (Mode::Answered, SB_MODE_ANSWERED),
    ];

    fn number(self) -> u8 {
        let entry = Mode::ALL.into_iter().find(|(mode, _)| *mode == self);
        entry.map_or(SB_MODE_HELD, |(_, number)| number) as u8
    }
}

impl Entry {
    /// The entry in a map or a record; None if its mode is unknown, because another version has written it.
    pub fn decode(entry: &sb_flow_entry) -> Option<Entry> {
        let (mode, _) = Mode::ALL.into_iter().find(|(_, number)| *number as u8 == entry.mode)?;
        Some(Entry {
            node: NodeId(entry.node),
            origin: Seq(entry.origin),
            handshake: Handshake { mss: entry.mss, options: entry.options, wscale: entry.wscale },
            mode,
            mark: Mark {
                next: Seq(entry.next),
                framing: entry.framing,
                begins: Seq(entry.begins),
                tries: entry.tries,
                requests: Wrapping(entry.requests),
                heads: entry.heads,
                session: entry.session,
                turn: Wrapping(entry.turn),
            },
            generation: Generation::from_number(entry.generation),
            ahead: entry.ahead != 0,
            contested: entry.contested != 0,
        })
    }

    /// The entry for a map. The program may move its mark.
    pub fn encode(&self) -> sb_flow_entry {
        sb_flow_entry {
            node: self.node.0,
            origin: self.origin.0,
            next: self.mark.next.0,
            mss: self.handshake.mss,
            options: self.handshake.options,
            wscale: self.handshake.wscale,
            mode: self.mode.number(),
            locked: 0,
            requests: self.mark.requests.0,
            heads: self.mark.heads,
            framing: self.mark.framing,
            session: self.mark.session,
            begins: self.mark.begins.0,
            tries: self.mark.tries,
            ahead: self.ahead.into(),
            contested: self.contested.into(),
            turn: self.mark.turn.0,
            generation: self.generation.number(),
            reserved: 0,
        }
    }
}

impl Change {
    /// The entry that the program gets with the change: where no value comes with it, one with its origin.
    pub fn encode(&self) -> sb_flow_entry {
        match *self {
            Change::Replace(entry) | Change::Create(entry) => entry.encode(),
            Change::Lock(entry) => sb_flow_entry { locked: 1, ..entry.encode() },
            Change::Remove { origin }
            | Change::Forget { origin }
            | Change::Abandon { origin }
            | Change::Ahead { origin } => sb_flow_entry { origin: origin.0, ..Default::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use switchback_wire::read_from;

    proptest! {
        #[test]
        fn an_entry_of_a_map_reads_back(
            bytes in prop::collection::vec(any::<u8>(), size_of::<sb_flow_entry>()),
            mode in 0u8..9,
        ) {
            let random: sb_flow_entry = read_from(&bytes).unwrap();
            let (ahead, contested) = (random.ahead & 1, random.contested & 1);
            let mapped = sb_flow_entry { mode, locked: 1, ahead, contested, reserved: 0, ..random };
            let entry = Entry::decode(&mapped).unwrap();
            prop_assert_eq!(Change::Lock(entry).encode(), mapped);
            prop_assert_eq!(entry.encode(), sb_flow_entry { locked: 0, ..mapped });
            prop_assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        }
    }

    #[test]
    fn every_mode_has_a_number_of_its_own_and_no_other_is_read() {
        for mode in 0..=u8::MAX {
            let entry = Entry::decode(&sb_flow_entry { mode, ..Default::default() });
            assert_eq!(entry.map(|entry| entry.mode.number()), (mode < 9).then_some(mode));
        }
    }
}
