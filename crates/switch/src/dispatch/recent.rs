//! Recent knowledge of flows that are not pending.

use std::collections::HashMap;
use std::time::Duration;

use switchback_wire::sb_flow;

/// A map whose values live for one to two periods. Expiry costs nothing per value.
#[derive(Debug)]
pub struct Recent<T> {
    period: Duration,
    turned: Duration,
    young: HashMap<sb_flow, T>,
    old: HashMap<sb_flow, T>,
}

impl<T> Recent<T> {
    /// An empty map.
    pub fn new(period: Duration) -> Self {
        Recent { period, turned: Duration::ZERO, young: HashMap::new(), old: HashMap::new() }
    }

    /// Drops expired values.
    pub fn turn(&mut self, now: Duration) {
        let age = now.saturating_sub(self.turned);
        if age >= self.period {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
            if age >= self.period * 2 {
                self.old.clear();
            }
            self.turned = now;
        }
    }

    /// The flow's value.
    pub fn get(&self, flow: &sb_flow) -> Option<&T> {
        self.young.get(flow).or_else(|| self.old.get(flow))
    }

    /// Sets the flow's value.
    pub fn insert(&mut self, flow: sb_flow, value: T) {
        self.young.insert(flow, value);
    }

    /// Removes the flow's value, and returns it.
    pub fn remove(&mut self, flow: &sb_flow) -> Option<T> {
        let old = self.old.remove(flow);
        self.young.remove(flow).or(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lives_for_one_to_two_periods() {
        let at = Duration::from_millis;
        let mut recent = Recent::new(at(100));
        recent.insert(sb_flow::default(), 1);
        recent.turn(at(100));
        assert_eq!(recent.get(&sb_flow::default()), Some(&1));
        recent.turn(at(200));
        assert_eq!(recent.get(&sb_flow::default()), None);
        recent.insert(sb_flow::default(), 2);
        recent.turn(at(500));
        assert_eq!(recent.get(&sb_flow::default()), None);
    }
}
