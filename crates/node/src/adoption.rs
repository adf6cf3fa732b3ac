//! How listeners get the connections that this node adopts.

use std::borrow::Cow;

use switchback_config::Adoption;
use switchback_runtime::Facts;
use switchback_wire::sb_adoption;

use crate::listeners::Queue;

/// What the configuration wants, and what the kernel can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adopting {
    wanted: Adoption,
    /// Why the kernel does not adopt; None if it does.
    adopts_not: Option<&'static str>,
}

impl Adopting {
    /// On a machine of which nothing is known.
    pub(crate) fn new(wanted: Adoption) -> Adopting {
        Adopting { wanted, adopts_not: None }
    }

    /// On this machine.
    pub(crate) fn on(self, facts: &Facts) -> Adopting {
        Adopting { adopts_not: facts.adopts_not(), ..self }
    }

    /// Whether handshakes may be replayed.
    pub(crate) fn may_replay(self) -> bool {
        self.wanted.may_replay()
    }

    /// For the programs, which see each listener themselves.
    pub(crate) fn setting(self) -> sb_adoption {
        match self.wanted {
            Adoption::Kernel => sb_adoption::SB_ADOPTION_KERNEL,
            Adoption::Auto if self.adopts_not.is_none() => sb_adoption::SB_ADOPTION_AUTO,
            Adoption::Auto | Adoption::Replay => sb_adoption::SB_ADOPTION_REPLAY,
        }
    }

    /// Whether the listener gets no connection at all.
    pub(crate) fn excludes(self, queue: Queue) -> bool {
        !self.may_replay() && queue.mptcp
    }

    /// The way for a listener, and the reason for a replay that the configuration does not ask for.
    pub(crate) fn words(self, queue: Queue) -> Cow<'static, str> {
        match (self.wanted, self.adopts_not) {
            (Adoption::Kernel, _) => "kernel".into(),
            (Adoption::Replay, _) => "replay".into(),
            (Adoption::Auto, Some(reason)) => format!("replay ({reason})").into(),
            (Adoption::Auto, None) if queue.mptcp => "replay (the server listens with MPTCP)".into(),
            (Adoption::Auto, None) => "kernel".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_adopts_where_it_can() {
        let queue = |mptcp| Queue { len: 0, limit: 1, mptcp };
        let lacking = Some("it is old");
        let (plain, multipath) = (queue(false), queue(true));
        for (wanted, adopts_not, listener, words, setting, excluded) in [
            (Adoption::Auto, None, plain, "kernel", sb_adoption::SB_ADOPTION_AUTO, false),
            (
                Adoption::Auto,
                None,
                multipath,
                "replay (the server listens with MPTCP)",
                sb_adoption::SB_ADOPTION_AUTO,
                false,
            ),
            (Adoption::Auto, lacking, plain, "replay (it is old)", sb_adoption::SB_ADOPTION_REPLAY, false),
            (Adoption::Kernel, None, multipath, "kernel", sb_adoption::SB_ADOPTION_KERNEL, true),
            (Adoption::Kernel, None, plain, "kernel", sb_adoption::SB_ADOPTION_KERNEL, false),
            (Adoption::Replay, None, plain, "replay", sb_adoption::SB_ADOPTION_REPLAY, false),
        ] {
            let adopting = Adopting { wanted, adopts_not };
            let found = (adopting.words(listener), adopting.setting(), adopting.excludes(listener));
            assert_eq!(found, (words.into(), setting, excluded), "{adopting:?}, {listener:?}");
        }
    }
}
