//! What handoff packets know a node by: the address of its machine, and its number there.
//!
//! Switches and machines find the numbers on their own, from the names of the nodes, so that no order in a file and no
//! other node changes them.

use std::fmt;
use std::net::IpAddr;

use crate::generated::{SB_NUMBER_MIN, sb_node_address};
use crate::names::{distinct, fnv1a};
use crate::{address_bytes, address_from};

/// A node among those of all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress {
    /// Address of its machine.
    pub machine: IpAddr,
    /// Its number on that machine: 0 if its server listens at the VIPs, else at least [`SB_NUMBER_MIN`].
    pub number: u16,
}

impl NodeAddress {
    /// The address as maps and records hold it.
    pub fn to_wire(self) -> sb_node_address {
        sb_node_address { machine: address_bytes(self.machine), number: self.number, reserved: 0 }
    }

    /// The address in a map or a record.
    pub fn from_wire(address: sb_node_address) -> Self {
        NodeAddress { machine: address_from(address.machine), number: address.number }
    }
}

/// The node whose server listens at the VIPs of a machine.
impl From<IpAddr> for NodeAddress {
    fn from(machine: IpAddr) -> Self {
        NodeAddress { machine, number: 0 }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine.fmt(f)?;
        if self.number == 0 { Ok(()) } else { write!(f, "#{:04x}", self.number) }
    }
}

/// Distinct numbers of the nodes of a machine whose servers do not listen at the VIPs. A new name can change another's
/// number, with a probability of about 2^-16.
pub fn numbers(names: &[&str]) -> Vec<u16> {
    distinct(names, number)
}

/// FNV-1a of a name, folded into the range of numbers.
fn number(name: &str, attempt: u64) -> u16 {
    let hash = fnv1a(name.bytes().chain((attempt as u32).to_be_bytes()));
    (SB_NUMBER_MIN + hash % (0x1_0000 - SB_NUMBER_MIN)) as u16
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_depend_on_names_only() {
        let names = ["web-1", "web-2", "db"];
        let [first, second, third] = numbers(&names)[..] else { panic!("three numbers") };
        assert_eq!(numbers(&["db", "web-2", "web-1"]), [third, second, first]);
        assert_eq!(numbers(&["web-2"]), [second]);
        assert!([first, second, third].iter().all(|number| u32::from(*number) >= SB_NUMBER_MIN));
    }

    #[test]
    fn all_names_of_a_machine_have_different_numbers() {
        let names: Vec<String> = (0..2000).map(|number| format!("pod-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let numbers = numbers(&names);
        let alone = |index: &usize| numbers[*index] == number(names[*index], 0);
        assert!((0..names.len()).filter(alone).count() < names.len(), "some of them would have had the same");
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), names.len());
    }
}
