//! Guards on the machine's other interfaces, which drop packets to VIPs.
//!
//! Ports of a bridge or bond need no guard: their packets also arrive on the bridge or bond, or are for another
//! machine.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use switchback_runtime::Result;
use switchback_runtime::links::Watch;
use switchback_runtime::pins::PinDir;
use switchback_runtime::programs::Attachment;

use crate::programs::Programs;

/// Keeps a guard on each other interface.
pub(crate) struct Guards {
    watch: Watch,
    /// Index of the interface for handoff packets.
    handoffs: u32,
    /// By interface index.
    guards: HashMap<u32, Attachment>,
}

impl Guards {
    /// No guards yet, except those of an agent that was killed.
    pub(crate) fn new(handoffs: u32) -> Result<Guards> {
        Ok(Guards { watch: Watch::open()?, handoffs, guards: HashMap::new() })
    }

    /// Whether interfaces have changed.
    pub(crate) fn are_due(&self) -> Result<bool> {
        self.watch.has_news()
    }

    /// Attaches a guard to each interface without one.
    pub(crate) fn keep(&mut self, programs: &Programs<'_>, pins: &PinDir) -> Result<()> {
        let all = self.watch.interfaces()?;
        let guarded = |index: &u32| {
            let here = all.iter().find(|interface| interface.index == *index);
            here.is_some_and(|here| !here.is_loopback && !here.is_part && *index != self.handoffs)
        };
        for (index, guard) in self.guards.extract_if(|index, _| !guarded(index)) {
            // Mostly the interface has gone, and the guard with it.
            let _ = guard.detach();
            Programs::unguard(pins, index);
        }
        for index in all.iter().map(|interface| interface.index).filter(guarded) {
            if !self.guards.contains_key(&index)
                && let Some(guard) = programs.guard(pins, index)?
            {
                self.guards.insert(index, guard);
            }
        }
        Ok(())
    }

    /// Detaches all guards.
    pub(crate) fn end(self) {
        // At once, where the kernel can; the pins go with their directory.
        self.guards.values().for_each(|guard| drop(guard.detach()));
    }
}

impl AsFd for Guards {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
