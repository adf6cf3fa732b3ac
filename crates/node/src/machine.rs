//! CPU usage of the machine.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Least time over which the CPU share is measured. The kernel counts in steps of 10 ms or less.
const WINDOW: Duration = Duration::from_millis(500);

/// CPU time of the machine since boot, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    idle: u64,
}

/// Measures the share of the machine's CPU time in use.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    samples: VecDeque<(Instant, Ticks)>,
}

impl Cpu {
    /// The share over the last half second in thousandths; 0 in the first half second.
    pub(crate) fn share(&mut self, now: Instant) -> u16 {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        self.add(now, &stat)
    }

    fn add(&mut self, now: Instant, stat: &str) -> u16 {
        let Some(ticks) = ticks(stat) else { return 0 };
        while self.samples.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= WINDOW) {
            self.samples.pop_front();
        }
        self.samples.push_back((now, ticks));
        let Some((_, first)) = self.samples.front() else { return 0 };
        // Idle time may decrease a little (proc_stat(5)).
        let all = ticks.all.saturating_sub(first.all);
        let busy = all.saturating_sub(ticks.idle.saturating_sub(first.idle));
        (busy * 1000).checked_div(all).unwrap_or(0) as u16
    }
}

/// The line of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal, and two that are part of the first.
fn ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = line.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
    let idle = times.get(3)? + times.get(4)?;
    Some(Ticks { all: times.iter().sum(), idle })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_last_half_second() {
        let mut cpu = Cpu::default();
        let start = Instant::now();
        let stat = |busy: u64, idle: u64| format!("cpu  {busy} 0 0 {idle} 0 0 0 0 7 7\ncpu0 1 1 1 1\n");
        assert_eq!(cpu.add(start, &stat(100, 100)), 0);
        assert_eq!(cpu.add(start + WINDOW, &stat(150, 150)), 500);
        assert_eq!(cpu.add(start + WINDOW * 2, &stat(250, 150)), 1000);
        assert_eq!(cpu.add(start + WINDOW * 2 + WINDOW / 2, &stat(250, 250)), 500, "more than the window");
        assert_eq!(cpu.add(start + WINDOW * 4, &stat(250, 249)), 0, "idle time went back");
        assert_eq!(cpu.add(start + WINDOW * 5, "nonsense"), 0);
    }

    #[test]
    fn this_machine_has_busy_and_idle_time() {
        assert!(ticks(&std::fs::read_to_string("/proc/stat").unwrap()).unwrap().all > 0);
    }
}
