//! Load of the node, from the sums of the programs: requests in flight, flows, and mean time to first byte.

use std::time::Duration;

use switchback_wire::sb_load;

use crate::flow_map::FlowCounts;

/// Load computed from the sums. The sums miss flows from before the programs' start and entries that the map `owned`
/// has lost; a walk over that map finds the difference.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    sums: sb_load,
    /// Difference between the last walk and the sums.
    missing: FlowCounts,
    first_byte: Option<Duration>,
}

/// A count; two sums read at different times may give a negative one.
fn non_negative(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

fn in_flight(sums: &sb_load) -> i64 {
    let over = sums.responses.wrapping_add(sums.abandoned);
    sums.requests.wrapping_sub(over).cast_signed()
}

fn flows(sums: &sb_load) -> i64 {
    sums.flows.wrapping_sub(sums.ended).cast_signed()
}

impl Load {
    /// Ends a period with these sums.
    pub(crate) fn end_period(&mut self, sums: sb_load) {
        let begun = sums.first_bytes.wrapping_sub(self.sums.first_bytes);
        let waited = sums.waited_us.wrapping_sub(self.sums.waited_us);
        self.first_byte = waited.checked_div(begun).map(Duration::from_micros);
        self.sums = sums;
    }

    /// Applies the result of a walk, given the sums right before and after it. A difference within the range of the two
    /// is no error, because requests come and go during the walk.
    pub(crate) fn correct(&mut self, before: &sb_load, walked: FlowCounts, after: &sb_load) {
        let error = |found: i64, counted: [i64; 2], missing: i64| {
            let [low, high] = [counted[0].min(counted[1]) + missing, counted[0].max(counted[1]) + missing];
            found - found.clamp(low, high)
        };
        self.missing.in_flight +=
            error(walked.in_flight, [in_flight(before), in_flight(after)], self.missing.in_flight);
        self.missing.flows += error(walked.flows, [flows(before), flows(after)], self.missing.flows);
    }

    /// Requests without a whole response.
    pub(crate) fn in_flight(&self) -> u32 {
        non_negative(in_flight(&self.sums) + self.missing.in_flight)
    }

    /// Number of flows.
    pub(crate) fn flows(&self) -> u32 {
        non_negative(flows(&self.sums) + self.missing.flows)
    }

    /// Mean time to first byte of the last period.
    pub(crate) fn first_byte(&self) -> Option<Duration> {
        self.first_byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(requests: u64, responses: u64, flows: u64, ended: u64) -> sb_load {
        sb_load { requests, responses, flows, ended, abandoned: 1, ..Default::default() }
    }

    fn walked(in_flight: i64, flows: i64) -> FlowCounts {
        FlowCounts { in_flight, flows, ..Default::default() }
    }

    #[test]
    fn the_mean_is_that_of_the_last_period() {
        let mut load = Load::default();
        let sums = |first_bytes, waited_us| sb_load { first_bytes, waited_us, ..Default::default() };
        load.end_period(sums(2, 600));
        assert_eq!(load.first_byte(), Some(Duration::from_micros(300)));
        load.end_period(sums(3, 610));
        assert_eq!(load.first_byte(), Some(Duration::from_micros(10)));
        load.end_period(sums(3, 610));
        assert_eq!(load.first_byte(), None);
    }

    #[test]
    fn a_walk_corrects_what_the_sums_have_lost() {
        let mut load = Load::default();
        load.end_period(sums(10, 4, 7, 2));
        assert_eq!((load.in_flight(), load.flows()), (5, 5));
        // Two flows with a request each were lost unnoticed.
        load.correct(&sums(10, 4, 7, 2), walked(3, 3), &sums(10, 4, 7, 2));
        assert_eq!((load.in_flight(), load.flows()), (3, 3));
        load.end_period(sums(12, 5, 8, 2));
        assert_eq!((load.in_flight(), load.flows()), (4, 4));
        // Within the range of the sums during the walk.
        load.correct(&sums(12, 5, 8, 2), walked(6, 5), &sums(15, 5, 9, 2));
        assert_eq!((load.in_flight(), load.flows()), (4, 4));
        load.correct(&sums(12, 5, 8, 2), walked(9, 1), &sums(15, 5, 9, 2));
        assert_eq!((load.in_flight(), load.flows()), (6, 1));
    }

    #[test]
    fn flows_of_an_earlier_agent_are_found() {
        let mut load = Load::default();
        load.correct(&sb_load::default(), walked(2, 9), &sb_load::default());
        // Their ends are counted, their beginnings are not.
        load.end_period(sb_load { responses: 2, ended: 8, ..Default::default() });
        assert_eq!((load.in_flight(), load.flows()), (0, 1));
        load.end_period(sb_load { responses: 2, ended: 10, ..Default::default() });
        assert_eq!((load.in_flight(), load.flows()), (0, 0));
    }
}
