//! Writes the automaton's tables to the program's memory.
//!
//! There are two banks. A new configuration goes to the unused one; the VIP entries, replaced afterwards, name the
//! bank.

use switchback_config::{Cluster, Scheme, Service};
use switchback_wire::{SB_EXPRESS_POOLS, SB_EXPRESS_STATES, SB_EXPRESS_VERDICTS, SB_NODES, sb_vip};

use crate::automaton::{Automaton, COLUMNS, DEAD, STATE};
use crate::plan::NodeId;

const BANK_STATES: usize = SB_EXPRESS_STATES as usize / 2;
const BANK_VERDICTS: usize = SB_EXPRESS_VERDICTS as usize / 2;
const BANK_POOLS: usize = SB_EXPRESS_POOLS as usize / 2;
const NODE_WORDS: usize = SB_NODES as usize / 64;

/// The automaton of each service that fits into a bank; None for the others, and for all if there are too many pools.
pub fn automata(cluster: &Cluster) -> Vec<Option<Automaton>> {
    // State 0 of each bank is reserved.
    let (mut states, mut verdicts) = (BANK_STATES - 1, BANK_VERDICTS);
    let fit = |service: &Service| {
        // Encrypted requests cannot be read.
        if service.scheme() == Scheme::Https {
            return None;
        }
        let automaton = Automaton::compile(&service.routes, states)
            .filter(|automaton| automaton.verdicts.len() <= verdicts && cluster.pools.len() <= BANK_POOLS)?;
        states -= automaton.transitions.len() - 1;
        verdicts -= automaton.verdicts.len();
        Some(automaton)
    };
    cluster.services.iter().map(fit).collect()
}

/// The program's tables.
pub struct Tables<'a> {
    /// Next state and event, by state and byte.
    pub transitions: &'a mut [u16],
    /// Classes, by state.
    pub classes: &'a mut [u16],
    /// Pools, by service and classes.
    pub verdicts: &'a mut [u16],
    /// Node bitmaps, by pool.
    pub members: &'a mut [u64],
}

impl Tables<'_> {
    /// Writes a configuration to a bank. The result has the VIP entry of each service; a service without an automaton
    /// is left to the L7 thread.
    pub fn write(
        &mut self,
        bank: usize,
        cluster: &Cluster,
        members: impl Fn(usize) -> Vec<NodeId>,
    ) -> Vec<sb_vip> {
        self.write_members(bank, cluster.pools.len(), members);
        // State 0 is the dead state of both banks.
        let (mut next_state, mut next_verdict) = (bank * BANK_STATES + 1, bank * BANK_VERDICTS);
        let mut vips = Vec::new();
        for (index, automaton) in automata(cluster).into_iter().enumerate() {
            let service = index as u16;
            let Some(automaton) = automaton else {
                vips.push(sb_vip { service, ..Default::default() });
                continue;
            };
            vips.push(sb_vip {
                start: self.write_states(&automaton, next_state),
                hosts: automaton.hosts,
                verdicts: next_verdict as u32,
                bank: bank as u16,
                service,
                ..Default::default()
            });
            self.verdicts[next_verdict..][..automaton.verdicts.len()].copy_from_slice(&automaton.verdicts);
            next_state += automaton.transitions.len() - 1;
            next_verdict += automaton.verdicts.len();
        }
        vips
    }

    /// Writes all states but the dead one at `base`; the result is the index of the start state.
    fn write_states(&mut self, automaton: &Automaton, base: usize) -> u16 {
        let place = |state: u16| if state == DEAD { DEAD } else { (base + usize::from(state) - 1) as u16 };
        for (state, row) in automaton.transitions.iter().enumerate().skip(1) {
            let at = base + state - 1;
            for (cell, next) in std::iter::zip(&mut self.transitions[at * COLUMNS..][..COLUMNS], row) {
                *cell = place(next & STATE) | (next & !STATE);
            }
            self.classes[at] = automaton.classes[state];
        }
        place(automaton.start)
    }

    /// Writes the nodes on whose flows the program may forward requests for each pool. The bank may be in use, because
    /// each word changes atomically.
    pub fn write_members(&mut self, bank: usize, pools: usize, members: impl Fn(usize) -> Vec<NodeId>) {
        let words = &mut self.members[bank * BANK_POOLS * NODE_WORDS..][..BANK_POOLS * NODE_WORDS];
        // With more pools there is no automaton.
        for (pool, words) in words.chunks_exact_mut(NODE_WORDS).take(pools).enumerate() {
            let mut bits = [0u64; NODE_WORDS];
            members(pool).into_iter().map(NodeId::index).for_each(|node| bits[node / 64] |= 1 << (node % 64));
            words.copy_from_slice(&bits);
        }
    }
}
