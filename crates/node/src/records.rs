//! Records of the programs in ring buffers: ended flows, lengths of responses, facts, judgments.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use switchback_runtime::{Doing, Result};
use switchback_wire::{
    SB_INSURE_REPORTED, read_from, sb_closed, sb_insurable, sb_insurable_end, sb_judgment, sb_seen, sb_sized,
};

use crate::closed::Ends;
use crate::facts::{Outboxes, asker_of};
use crate::programs::Programs;
use crate::signer::Signer;
use crate::sized;

/// Records that no packet has been made of.
pub(crate) struct Records {
    ended: RefCell<Vec<sb_closed>>,
    ends: RefCell<Ends>,
    long: RefCell<Vec<sb_sized>>,
    insurable: RefCell<(Vec<sb_insurable>, Vec<sb_insurable_end>)>,
    judgments: RefCell<Vec<sb_judgment>>,
    pub(crate) outboxes: RefCell<Outboxes>,
}

impl Records {
    /// No records, and an epoch for facts.
    pub(crate) fn new(epoch: u32) -> Self {
        Records {
            ended: RefCell::default(),
            ends: RefCell::default(),
            long: RefCell::default(),
            insurable: RefCell::default(),
            judgments: RefCell::default(),
            outboxes: Outboxes::new(epoch).into(),
        }
    }

    /// The rings from which the records come when they are consumed.
    pub(crate) fn rings(&self, programs: &Programs<'_>) -> Result<RingBuffer<'_>> {
        let (closed, sized, facts) = (programs.closed()?, programs.sized()?, programs.facts()?);
        let (insurable, judgments) = (programs.insurable()?, programs.judgments()?);
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
                self.outboxes.borrow_mut().add(asker_of(seen.by), seen.fact);
            }
            0
        };
        builder.add(&facts, collect).doing(|| "read the map facts")?;
        let collect = |record: &[u8]| {
            let (reports, ends) = &mut *self.insurable.borrow_mut();
            match record.len() == size_of::<sb_insurable_end>() {
                true => ends.extend(read_from::<sb_insurable_end>(record)),
                false => reports.extend(read_from::<sb_insurable>(record)),
            }
            0
        };
        builder.add(&insurable, collect).doing(|| "read the map insurable")?;
        let collect = |record: &[u8]| {
            self.judgments.borrow_mut().extend(read_from::<sb_judgment>(record));
            0
        };
        builder.add(&judgments, collect).doing(|| "read the map judgments")?;
        builder.build().doing(|| "read the rings of the programs")
    }

    /// Failed responses, and the first successes behind them.
    pub(crate) fn judgments(&self) -> Vec<sb_judgment> {
        self.judgments.take()
    }

    /// Reports of long responses, and of their ends: by themselves, or with their flow.
    pub(crate) fn insurable(&self) -> (Vec<sb_insurable>, Vec<sb_insurable_end>) {
        let (reports, mut ends) = self.insurable.take();
        let is_insured = |ended: &&sb_closed| ended.owned.insure & SB_INSURE_REPORTED != 0;
        let ended = self.ended.borrow();
        ends.extend(ended.iter().filter(is_insured).map(|ended| sb_insurable_end {
            flow: ended.flow,
            origin: ended.owned.origin,
            bequeathed: 0,
        }));
        (reports, ends)
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
