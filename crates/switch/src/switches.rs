//! The switches of the cluster, as the nodes tell of them. What is shown of a switch is its last word to any node.

use std::collections::HashMap;
use std::time::Duration;

use switchback_config::Switch;
use switchback_status::switch::{SILENT, SwitchView, UNKNOWN};
use switchback_wire::switches::{SwitchHeard, SwitchSelf, SwitchState};

use crate::plan::NodeId;

/// Time without a HELLO after which a switch is silent for a node; a switch sends one each second.
const PATIENCE: Duration = Duration::from_secs(3);

/// What nodes have told.
#[derive(Debug, Default)]
pub struct Switches {
    /// By number of the switch and node.
    told: HashMap<(u8, NodeId), Told>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    /// When the node heard the switch.
    at: Duration,
    said: SwitchSelf,
    addresses: u8,
}

impl Switches {
    /// Forgets all, because the numbers have another meaning.
    pub fn clear(&mut self) {
        self.told.clear();
    }

    /// Takes what a node tells, whose packet's tag has been verified. The configuration has `count` switches.
    pub fn take(&mut self, node: NodeId, heard: &[SwitchHeard], count: usize, now: Duration) {
        for SwitchHeard { said, age, addresses } in heard.iter().copied() {
            if let Some(number) = said.number.filter(|number| usize::from(*number) < count) {
                let at = now.saturating_sub(age);
                self.told.insert((number, node), Told { at, said, addresses });
            }
        }
    }

    /// All switches, in the configuration's order; `own` is what this one says of itself.
    pub fn views(&self, switches: &[Switch], own: &SwitchSelf, now: Duration) -> Vec<SwitchView> {
        (0..).zip(switches).map(|(number, switch)| self.view(number, &switch.name, own, now)).collect()
    }

    fn view(&self, number: u8, name: &str, own: &SwitchSelf, now: Duration) -> SwitchView {
        let told = || self.told.iter().filter(|((of, _), _)| *of == number).map(|(_, told)| *told);
        let fresh = || told().filter(|told| now < told.at + PATIENCE);
        let here = own.number == Some(number);
        let last = told().max_by_key(|told| told.at);
        let said = if here { Some(*own) } else { last.map(|last| last.said) };
        let silent_for = last.filter(|_| !here && fresh().next().is_none()).map(|last| now - last.at);
        let state = match silent_for {
            Some(_) => SILENT,
            None => said.and_then(|said| said.state).map_or(UNKNOWN, SwitchState::name),
        };
        SwitchView {
            name: name.to_owned(),
            here,
            state: state.into(),
            silent_s: silent_for.map(|time| time.as_secs()),
            version: said.and_then(|said| said.software.version()),
            config: said.and_then(|said| said.software.config_digits()),
            taken_over: said.map(|said| said.taken_over.into()),
            heard_by: fresh().count() as u32,
            addresses: fresh().map(|told| told.addresses.into()).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::switches::Software;

    const NOW: Duration = Duration::from_secs(100);

    fn said(number: u8, taken_over: u32) -> SwitchSelf {
        SwitchSelf {
            number: Some(number),
            software: Software { program: [0, 2, 0], config: 0x1a2b_3c4d },
            taken_over,
            state: Some(SwitchState::Withdrawn),
        }
    }

    fn heard(number: u8, taken_over: u32, ms: u64) -> SwitchHeard {
        SwitchHeard { said: said(number, taken_over), age: Duration::from_millis(ms), addresses: 1 }
    }

    fn views(switches: &Switches, now: Duration) -> Vec<SwitchView> {
        let named = ["s0", "s1", "s2"].map(|name| Switch { name: name.to_owned(), services: vec![0] });
        let own = SwitchSelf { state: Some(SwitchState::Serving), ..said(0, 7) };
        switches.views(&named, &own, now)
    }

    #[test]
    fn the_last_word_to_any_node_counts() {
        let mut switches = Switches::default();
        switches.take(NodeId(1), &[heard(0, 5, 100), heard(1, 20, 900)], 3, NOW);
        switches.take(NodeId(2), &[heard(1, 30, 200)], 3, NOW);
        switches.take(NodeId(3), &[heard(1, 10, 2_999)], 3, NOW);
        let [own, other, never] = &views(&switches, NOW)[..] else { panic!() };
        assert_eq!((own.here, &own.state[..], own.taken_over, own.heard_by), (true, "serving", Some(7), 1));
        let view = SwitchView {
            name: "s1".to_owned(),
            here: false,
            state: "withdrawn".into(),
            silent_s: None,
            version: Some("0.2.0".to_owned()),
            config: Some("1a2b3c4d".to_owned()),
            taken_over: Some(30),
            heard_by: 3,
            addresses: 1,
        };
        assert_eq!(*other, view);
        let unknown = SwitchView { name: "s2".to_owned(), state: UNKNOWN.into(), ..SwitchView::default() };
        assert_eq!(*never, unknown);
    }

    #[test]
    fn a_switch_that_no_node_hears_is_silent() {
        let mut switches = Switches::default();
        switches.take(NodeId(1), &[heard(1, 4, 500)], 3, NOW);
        let later = |ms| views(&switches, NOW + Duration::from_millis(ms))[1].clone();
        assert_eq!((&later(2_499).state[..], later(2_499).heard_by), ("withdrawn", 1));
        assert_eq!(
            (&later(2_500).state[..], later(2_500).silent_s, later(2_500).heard_by),
            (SILENT, Some(3), 0)
        );
        assert_eq!((later(59_500).silent_s, later(59_500).taken_over), (Some(60), Some(4)), "its last word");
        assert_eq!(&views(&switches, NOW + PATIENCE * 9)[0].state[..], "serving", "the switch itself");
    }

    #[test]
    fn a_node_that_hears_a_switch_no_more_tells_nothing_of_it() {
        let mut switches = Switches::default();
        switches.take(NodeId(1), &[heard(1, 0, 0)], 3, NOW);
        switches.take(NodeId(2), &[heard(1, 0, 0)], 3, NOW);
        let later = NOW + PATIENCE;
        switches.take(NodeId(1), &[heard(1, 0, 0)], 3, later);
        switches.take(NodeId(2), &[], 3, later);
        let view = &views(&switches, later)[1];
        assert_eq!((&view.state[..], view.heard_by), ("withdrawn", 1));
    }

    #[test]
    fn two_machines_with_one_name_are_seen() {
        let mut switches = Switches::default();
        switches.take(NodeId(1), &[SwitchHeard { addresses: 2, ..heard(1, 0, 0) }], 3, NOW);
        switches.take(NodeId(2), &[heard(1, 0, 0)], 3, NOW);
        assert_eq!(views(&switches, NOW)[1].addresses, 2);
        assert_eq!(views(&switches, NOW + PATIENCE)[1].addresses, 0);
    }

    #[test]
    fn numbers_that_the_configuration_does_not_have_are_ignored() {
        let mut switches = Switches::default();
        let nobody = SwitchHeard { said: SwitchSelf::default(), ..heard(0, 0, 0) };
        switches.take(NodeId(1), &[heard(3, 0, 0), heard(254, 0, 0), nobody], 3, NOW);
        assert!(switches.told.is_empty());
    }
}
