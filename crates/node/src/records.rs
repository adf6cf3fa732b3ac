//! Records of the programs in ring buffers: ended flows, lengths of responses, facts.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use switchback_runtime::{Doing, Result};
use switchback_wire::{address_from, read_from, sb_closed, sb_seen, sb_sized};

use crate::closed::Ends;
use crate::facts::Outboxes;
use crate::programs::Programs;
use crate::signer::Signer;
use crate::sized;

/// Records that no packet has been made of.
pub(crate) struct Records {
    ended: RefCell<Vec<sb_closed>>,
    ends: RefCell<Ends>,
    long: RefCell<Vec<sb_sized>>,
    pub(crate) outboxes: RefCell<Outboxes>,
}

impl Records {
    /// No records, and an epoch for facts.
    pub(crate) fn new(epoch: u32) -> Self {
        Records {
            ended: RefCell::default(),
            ends: RefCell::default(),
            long: RefCell::default(),
            outboxes: Outboxes::new(epoch).into(),
        }
    }

    /// The rings from which the records come when they are consumed.
    pub(crate) fn rings(&self, programs: &Programs<'_>) -> Result<RingBuffer<'_>> {
        let (closed, sized, facts) = (programs.closed()?, programs.sized()?, programs.facts()?);
        let mut builder = RingBufferBuilder::new();
        let collect = |record: &[u8]| {
            self.ended.borrow_mut().extend(read_from::<sb_closed>(record));
            0
        };
        builder.add(&closed, collect).doing(|| "read the map closed")?;
        let collect = |record: &[u8]| {
            self.long.borrow_mut().extend(read_from::<sb_sized>(record));
            0
        };
        builder.add(&sized, collect).doing(|| "read the map sized")?;
        let collect = |record: &[u8]| {
            if let Some(seen) = read_from::<sb_seen>(record) {
                self.outboxes.borrow_mut().add(address_from(seen.switch_address), seen.fact);
            }
            0
        };
        builder.add(&facts, collect).doing(|| "read the map facts")?;
        builder.build().doing(|| "read the maps closed, sized and facts")
    }

    /// Packets about ended flows and lengths of responses, with the switches that get them. `listening`: switches with the
    /// time of their last HELLO. Facts about ended flows go to the outboxes.
    pub(crate) fn packets(
        &self,
        signer: &Signer,
        listening: &[(IpAddr, Duration)],
    ) -> Vec<(IpAddr, Vec<u8>)> {
        let (ended, long) = (self.ended.take(), self.long.take());
        ended.iter().for_each(|flow| self.outboxes.borrow_mut().add_ended(flow));
        let mut packets = self.ends.borrow_mut().packets(signer, &ended, listening);
        packets.extend(long.iter().filter_map(|response| sized::packet(signer, response)));
        packets
    }
}
