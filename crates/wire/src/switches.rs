//! What a switch says of itself in HELLO, and what nodes tell the switches of each other in SWITCHES. The layouts are in
//! `bpf/handoff.h`, at `struct sb_switch_self` and `struct sb_switch_heard`.

use std::time::Duration;

use crate::{sb_switch_heard, sb_switch_self, sb_switch_state};

/// Version of this program: major, minor, patch.
const PROGRAM: [u8; 3] = [
    number(env!("CARGO_PKG_VERSION_MAJOR")),
    number(env!("CARGO_PKG_VERSION_MINOR")),
    number(env!("CARGO_PKG_VERSION_PATCH")),
];

const fn number(text: &str) -> u8 {
    match u8::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("a part of the version is no number below 256"),
    }
}

/// The program and the configuration of a machine. Zeroes are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Software {
    /// Version of the program: major, minor, patch.
    pub program: [u8; 3],
    /// First four bytes of the SHA-256 of the configuration's file.
    pub config: u32,
}

impl Software {
    /// This program with a configuration.
    pub fn with(config: u32) -> Software {
        Software { program: PROGRAM, config }
    }

    /// The version as it is written; None if it is unknown.
    pub fn version(&self) -> Option<String> {
        let [major, minor, patch] = self.program;
        (self.program != [0; 3]).then(|| format!("{major}.{minor}.{patch}"))
    }

    /// The first eight digits that `sha256sum` prints for the configuration's file; None if they are unknown.
    pub fn config_digits(&self) -> Option<String> {
        (self.config != 0).then(|| format!("{:08x}", self.config))
    }
}

/// State of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchState {
    /// Serving.
    Serving,
    /// It has just started, beside others, and gets lists of flows from nodes.
    Learning,
    /// Withdrawn by `switchback drain --self`.
    Withdrawn,
    /// It is about to end.
    Leaving,
}

impl SwitchState {
    const ALL: [(SwitchState, sb_switch_state); 4] = [
        (SwitchState::Serving, sb_switch_state::SB_SWITCH_SERVING),
        (SwitchState::Learning, sb_switch_state::SB_SWITCH_LEARNING),
        (SwitchState::Withdrawn, sb_switch_state::SB_SWITCH_WITHDRAWN),
        (SwitchState::Leaving, sb_switch_state::SB_SWITCH_LEAVING),
    ];

    /// The state in a word.
    pub fn name(self) -> &'static str {
        match self {
            SwitchState::Serving => "serving",
            SwitchState::Learning => "learning",
            SwitchState::Withdrawn => "withdrawn",
            SwitchState::Leaving => "leaving",
        }
    }

    fn from_number(number: u8) -> Option<SwitchState> {
        let found = Self::ALL.into_iter().find(|(_, wire)| *wire as u8 == number);
        found.map(|(state, _)| state)
    }

    fn number(self) -> u8 {
        Self::ALL.into_iter().find(|(state, _)| *state == self).map_or(0, |(_, wire)| wire as u8)
    }
}

/// What a switch says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchSelf {
    /// Its number in the configuration, from 0 on; None if the configuration names no switches, or it is of a version
    /// that does not say it.
    pub number: Option<u8>,
    /// Its program and configuration.
    pub software: Software,
    /// Flows of other switches that it has found since its start, saturated.
    pub taken_over: u32,
    /// Its state; None if unknown.
    pub state: Option<SwitchState>,
}

impl SwitchSelf {
    /// In its wire format.
    pub fn to_wire(&self) -> sb_switch_self {
        sb_switch_self {
            number: self.number.map_or(0, |number| number + 1),
            program: self.software.program,
            config: self.software.config.to_be(),
            taken_over: self.taken_over.to_be(),
            state: self.state.map_or(0, SwitchState::number),
            reserved: [0; 3],
        }
    }

    /// From its wire format.
    pub fn from_wire(said: &sb_switch_self) -> SwitchSelf {
        SwitchSelf {
            number: said.number.checked_sub(1),
            software: Software { program: said.program, config: u32::from_be(said.config) },
            taken_over: u32::from_be(said.taken_over),
            state: SwitchState::from_number(said.state),
        }
    }
}

/// A switch that a node hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchHeard {
    /// What it has said last.
    pub said: SwitchSelf,
    /// Time since then, to the millisecond.
    pub age: Duration,
    /// Number of addresses that say that they are this switch.
    pub addresses: u8,
}

impl SwitchHeard {
    /// In its wire format.
    pub fn to_wire(&self) -> sb_switch_heard {
        sb_switch_heard {
            said: self.said.to_wire(),
            age_ms: u32::try_from(self.age.as_millis()).unwrap_or(u32::MAX).to_be(),
            addresses: self.addresses,
            reserved: [0; 3],
        }
    }

    /// From its wire format.
    pub fn from_wire(heard: &sb_switch_heard) -> SwitchHeard {
        SwitchHeard {
            said: SwitchSelf::from_wire(&heard.said),
            age: Duration::from_millis(u32::from_be(heard.age_ms).into()),
            addresses: heard.addresses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_switch_says_reads_back() {
        let states = SwitchState::ALL.map(|(state, _)| Some(state));
        for state in states.into_iter().chain([None]) {
            for number in [None, Some(0), Some(63)] {
                let software = Software { program: [1, 2, 3], config: 0x1a2b_3c4d };
                let said = SwitchSelf { number, software, taken_over: 70_000, state };
                assert_eq!(SwitchSelf::from_wire(&said.to_wire()), said);
                let heard = SwitchHeard { said, age: Duration::from_millis(2_999), addresses: 2 };
                assert_eq!(SwitchHeard::from_wire(&heard.to_wire()), heard);
            }
        }
    }

    #[test]
    fn zeroes_are_unknown_and_so_are_later_states() {
        let nothing = SwitchSelf::from_wire(&sb_switch_self::default());
        assert_eq!(nothing, SwitchSelf::default());
        assert_eq!((nothing.software.version(), nothing.software.config_digits()), (None, None));
        let later = SwitchSelf::from_wire(&sb_switch_self { state: 200, ..Default::default() });
        assert_eq!(later.state, None);
    }

    #[test]
    fn software_in_words() {
        let here = Software::with(0x00ab_cdef);
        assert_eq!(here.version().as_deref(), Some(env!("CARGO_PKG_VERSION")));
        assert_eq!(here.config_digits().as_deref(), Some("00abcdef"));
    }
}
