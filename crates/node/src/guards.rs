//! The other interfaces of the machine: what comes for a VIP by them is dropped.
//!
//! What comes by a part of a bridge or a bond comes by the whole as well, or is for another machine.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::Link;
use switchback_runtime::Result;
use switchback_runtime::links::Watch;
use switchback_runtime::pins::PinDir;

use crate::programs::Programs;

/// Keeps a guard at each of them.
pub(crate) struct Guards {
    watch: Watch,
    /// By which handoff packets come.
    handoffs: u32,
    /// By index.
    links: HashMap<u32, Link>,
}

impl Guards {
    /// None yet, except those of an agent that was killed.
    pub(crate) fn new(handoffs: u32) -> Result<Guards> {
        Ok(Guards { watch: Watch::open()?, handoffs, links: HashMap::new() })
    }

    /// Whether interfaces have changed.
    pub(crate) fn are_due(&self) -> Result<bool> {
        self.watch.has_news()
    }

    /// Puts a guard at each interface that has none.
    pub(crate) fn keep(&mut self, programs: &Programs<'_>, pins: &PinDir) -> Result<()> {
        let all = self.watch.interfaces()?;
        let guarded = |index: &u32| {
            let here = all.iter().find(|interface| interface.index == *index);
            here.is_some_and(|here| !here.is_loopback && !here.is_part && *index != self.handoffs)
        };
        let gone: Vec<u32> = self.links.keys().filter(|index| !guarded(index)).copied().collect();
        for index in gone {
            self.links.remove(&index);
            Programs::unguard(pins, index);
        }
        for index in all.iter().map(|interface| interface.index).filter(guarded) {
            if !self.links.contains_key(&index)
                && let Some(link) = programs.guard(pins, index)?
            {
                self.links.insert(index, link);
            }
        }
        Ok(())
    }

    /// Takes all away.
    pub(crate) fn end(self) {
        // At once, where the kernel can; their pins go with the directory.
        self.links.values().for_each(|link| drop(link.detach()));
    }
}

impl AsFd for Guards {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
