//! What happens to switches and nodes, one after the other.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use switchback_lab::{Host, Lab, Result};

use super::super::open_loop::uniform;
use super::super::waiting::wait;

/// What one of the machines suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its processes are killed, and started again later.
    Kill,
    /// Its link is cut, and mended later.
    CutOff,
    /// Its process is restarted after it has been withdrawn.
    Restart,
    /// It is withdrawn for a second.
    Flap,
    /// A node is drained for a while, free or not.
    Drain,
    /// A node's agent is restarted after the node has been drained.
    RestartAgent,
}

impl Fault {
    /// Those of the machines between clients and nodes, in the order in which each happens once.
    pub(super) const BETWEEN: [Fault; 4] = [Fault::Kill, Fault::CutOff, Fault::Restart, Fault::Flap];
    /// All faults, in the order in which each happens once.
    pub(super) const ALL: [Fault; 6] =
        [Fault::Kill, Fault::CutOff, Fault::Restart, Fault::Flap, Fault::Drain, Fault::RestartAgent];
}

/// How long a machine is withdrawn by [`Fault::Flap`].
pub(super) const FLAP: Duration = Duration::from_secs(1);

/// What has happened last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet.
    Nothing,
    Killed,
    AddedBack,
    CutOff,
    Mended,
    Restarted,
    Withdrawn,
    BackAtOnce,
    Drained,
    AgentRestarted,
    Undrained,
}

impl Event {
    /// All events, in the order of the tables.
    pub const ALL: [Event; 11] = [
        Event::Nothing,
        Event::Killed,
        Event::AddedBack,
        Event::CutOff,
        Event::Mended,
        Event::Restarted,
        Event::Withdrawn,
        Event::BackAtOnce,
        Event::Drained,
        Event::AgentRestarted,
        Event::Undrained,
    ];
    /// How many of [`ALL`](Self::ALL) happen without [`Fault::Drain`] and [`Fault::RestartAgent`].
    pub const BETWEEN: usize = 8;

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Event::Nothing => "none",
            Event::Killed => "killed",
            Event::AddedBack => "added back",
            Event::CutOff => "cut off",
            Event::Mended => "link mended",
            Event::Restarted => "restarted in order",
            Event::Withdrawn => "withdrawn",
            Event::BackAtOnce => "back after 1 s",
            Event::Drained => "node drained",
            Event::AgentRestarted => "agent restarted",
            Event::Undrained => "node undrained",
        })
    }
}

/// The machines of a system.
pub(super) trait Machines {
    /// The machines that a fault may hit.
    fn within(&self, fault: Fault) -> Range<usize>;

    /// The machine that a fault of the first part hits, which is the one at this place of its list.
    fn target(&self, fault: Fault, place: usize) -> Result<usize>;

    /// Makes a machine suffer, for as long as `away` where that is free, and waits until everything is as before. Tells
    /// `note` what happens just before it does.
    fn strike(
        &mut self,
        fault: Fault,
        machine: usize,
        away: Duration,
        note: &mut dyn FnMut(Event),
    ) -> Result<()>;
}

/// [`Fault::CutOff`], which is the same for every machine.
pub(super) fn cut_off(lab: &Lab, host: &Host, away: Duration, note: &mut dyn FnMut(Event)) -> Result<()> {
    note(Event::CutOff);
    host.cut_link()?;
    wait(lab, away)?;
    note(Event::Mended);
    host.mend_link()
}

/// The history of a run: events with their times since its start.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Vec<(Duration, Event)>);

impl History {
    pub(super) fn note(&mut self, at: Duration, event: Event) {
        self.0.push((at, event));
    }

    /// The last event until then, and the time since it.
    fn before(&self, at: Duration) -> (Event, Duration) {
        let last = self.0.partition_point(|(time, _)| *time <= at).checked_sub(1);
        last.map_or((Event::Nothing, at), |last| (self.0[last].1, at - self.0[last].0))
    }

    /// The event that made a client wait for this long until then, and the time since it.
    pub(super) fn cause(&self, at: Duration, waited: Duration) -> (Event, Duration) {
        self.before(at - waited + LATE.min(waited))
    }

    pub(super) fn count(&self, event: Event) -> u32 {
        self.0.iter().filter(|(_, other)| *other == event).count() as u32
    }

    /// The time of the first event.
    pub(super) fn first(&self) -> Option<Duration> {
        self.0.first().map(|(at, _)| *at)
    }
}

/// Each fault once.
pub(super) fn strike_each(
    lab: &Lab,
    machines: &mut dyn Machines,
    faults: &[Fault],
    note: &mut dyn FnMut(Event),
) -> Result<()> {
    for (place, fault) in faults.iter().enumerate() {
        let machine = machines.target(*fault, place)?;
        machines.strike(*fault, machine, AWAY, note)?;
        wait(lab, SETTLE)?;
    }
    Ok(())
}

/// Faults in random order for this long, and at least one.
pub(super) fn strike_at_random(
    lab: &Lab,
    machines: &mut dyn Machines,
    faults: &[Fault],
    seed: u64,
    random_for: Duration,
    note: &mut dyn FnMut(Event),
) -> Result<()> {
    let mut state = seed;
    let mut random = |below: f64| uniform(&mut state) * below;
    let begun = Instant::now();
    loop {
        let fault = faults[random(faults.len() as f64) as usize];
        let within = machines.within(fault);
        let machine = within.start + random(within.len() as f64) as usize;
        let [away, settle] = [(); 2].map(|()| SHORTEST + AWAY.mul_f64(random(1.0)));
        machines.strike(fault, machine, away, note)?;
        if begun.elapsed() >= random_for {
            // Whoever waits for a byte that is lost has time to notice.
            return wait(lab, SETTLE);
        }
        wait(lab, settle)?;
    }
}

/// How long a machine is away in the first part, and at most in the second.
const AWAY: Duration = Duration::from_secs(3);
/// From one fault of the first part to the next.
const SETTLE: Duration = Duration::from_secs(3);
/// Least time away, and between faults, in the second part.
const SHORTEST: Duration = Duration::from_millis(200);
/// A wait begins with the last byte, and the fault that lets no more come may be somewhat later.
const LATE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_is_due_to_the_last_event() {
        let seconds = Duration::from_secs;
        let mut history = History::default();
        history.note(seconds(10), Event::Killed);
        history.note(seconds(14), Event::AddedBack);
        assert_eq!(history.before(seconds(9)), (Event::Nothing, seconds(9)));
        assert_eq!(history.before(seconds(10)), (Event::Killed, seconds(0)));
        assert_eq!(history.before(seconds(20)), (Event::AddedBack, seconds(6)));
        assert_eq!(history.cause(seconds(16), seconds(3)), (Event::Killed, Duration::from_millis(3_500)));
        assert_eq!((history.count(Event::Killed), history.count(Event::CutOff)), (1, 0));
        assert!(Event::ALL.iter().enumerate().all(|(index, event)| event.index() == index));
    }
}
