// SPDX-License-Identifier: Apache-2.0
//! How late departures are: the maximum, the distribution, and the stalls that late ones make up.

use atoll_measures::{Histogram, Marked, Peak, sums};
use serde::Serialize;

/// Lateness from which a departure is a stall unless the job's configuration says otherwise: what TCP and pings do not
/// notice, 1 % of the shortest RTT of a GEO link and 4 % of that of a MEO link.
const STALL_FROM_NS: u64 = 5_000_000;
/// Arrivals may be out of order by so much without a cause: each end of the difference comes from stamps that are
/// moved to the engine's clock with an uncertainty of 5 us (`clock`).
const CLAMP_FROM_NS: u64 = 10_000;

sums! {
    /// When packets came and left: sums, and maxima of an interval.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub struct Timing {
        /// Taken to have arrived later than their stamps say.
        pub clamped_packets: u64,
        /// Stretches of time in which nothing left that was due.
        pub stall_count: u64,
        /// Their length in all.
        pub stall_ns: u64,
    } and others {
        /// The latest departure.
        pub lateness_max_ns: u64,
        /// By how much at most.
        pub clamped_max_ns: u64,
    }
}

/// Lateness of all departures between two marks, its maximum excepted.
#[derive(Debug, Serialize)]
pub struct Lateness {
    lateness_p99_ns: u64,
    lateness_histogram: Histogram,
}

sums! {
    /// Frames that the receive ring did not deliver as it should: sums.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub struct Doubtful {
        /// The ring was full.
        pub unread_packets: u64,
        /// Their stamps fit no clock.
        pub unstamped_packets: u64,
        /// Their senders left the checksum to hardware.
        pub no_checksum_packets: u64,
    }
}

/// Counts the departures of one direction or class.
#[derive(Debug)]
pub struct Punctuality {
    stalls: Stalls,
    clamped_packets: u64,
    clamped_ns: Peak,
    /// Since the last counters.
    lateness_max_ns: u64,
    /// Since the last mark.
    lateness: Histogram,
    marked: Marked<Timing>,
}

impl Punctuality {
    /// `stall_from_ns`: the lateness from which a departure is a stall; `None`: 5 ms.
    #[must_use]
    pub fn new(stall_from_ns: Option<u64>) -> Self {
        Self {
            stalls: Stalls::new(stall_from_ns.unwrap_or(STALL_FROM_NS)),
            clamped_packets: 0,
            clamped_ns: Peak::default(),
            lateness_max_ns: 0,
            lateness: Histogram::default(),
            marked: Marked::default(),
        }
    }

    /// Departures that are later than this are stalls from now on.
    pub fn set_stall_from(&mut self, stall_from_ns: u64) {
        self.stalls.from_ns = stall_from_ns;
    }

    /// A packet arrived at `now` that can only be taken for one of `earliest_ns`. By how much that is later.
    #[inline]
    pub fn arrived(&mut self, now: u64, earliest_ns: u64) -> u64 {
        let clamped_ns = earliest_ns.saturating_sub(now);
        if clamped_ns > CLAMP_FROM_NS {
            self.clamped_packets += 1;
            self.clamped_ns.record(clamped_ns);
        }
        clamped_ns
    }

    /// A packet that was due at `due_ns` left at `now`.
    #[inline]
    pub fn departed(&mut self, due_ns: u64, now: u64) {
        let lateness_ns = now.saturating_sub(due_ns);
        self.lateness_max_ns = self.lateness_max_ns.max(lateness_ns);
        self.lateness.record(lateness_ns);
        self.stalls.departed(due_ns, now);
    }

    /// Sums since the start, maxima since the last call.
    pub fn timing(&mut self) -> Timing {
        Timing {
            lateness_max_ns: std::mem::take(&mut self.lateness_max_ns),
            clamped_max_ns: self.clamped_ns.take_interval(),
            ..self.sums()
        }
    }

    /// The figures since the last call.
    pub fn measurement(&mut self) -> (Timing, Lateness) {
        let lateness = std::mem::take(&mut self.lateness);
        let timing = Timing {
            lateness_max_ns: lateness.max_ns(),
            clamped_max_ns: self.clamped_ns.take_measurement(),
            ..self.marked.measure(self.sums())
        };
        let lateness = Lateness {
            lateness_p99_ns: lateness.quantile_ns(990),
            lateness_histogram: lateness,
        };
        (timing, lateness)
    }

    fn sums(&self) -> Timing {
        Timing {
            clamped_packets: self.clamped_packets,
            stall_count: self.stalls.count,
            stall_ns: self.stalls.total_ns,
            ..Timing::default()
        }
    }
}

/// Stretches of time in which nothing left that was due.
///
/// A late departure shows that nothing left from the instant at which it was due to its actual one. Departures whose
/// stretches overlap show one stall, from the first scheduled to the last actual departure: what waited through it leaves soon after.
#[derive(Debug, Default)]
struct Stalls {
    from_ns: u64,
    count: u64,
    /// Of all of them, each from when its first packet was due to its latest departure.
    total_ns: u64,
    /// Of the last one.
    begin_ns: u64,
    end_ns: u64,
}

impl Stalls {
    fn new(from_ns: u64) -> Self {
        Self {
            from_ns,
            ..Self::default()
        }
    }

    fn departed(&mut self, due_ns: u64, now: u64) {
        if now.saturating_sub(due_ns) <= self.from_ns {
            return;
        }
        if due_ns >= self.end_ns {
            self.count += 1;
            self.begin_ns = due_ns;
            self.end_ns = due_ns;
        }
        self.total_ns += self.begin_ns.saturating_sub(due_ns) + now.saturating_sub(self.end_ns);
        self.begin_ns = self.begin_ns.min(due_ns);
        self.end_ns = self.end_ns.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn stalls(departures_ms: &[(u64, u64)]) -> (u64, u64) {
        let mut stalls = Stalls::new(STALL_FROM_NS);
        for &(due_ms, now_ms) in departures_ms {
            stalls.departed(due_ms * MS, now_ms * MS);
        }
        (stalls.count, stalls.total_ns / MS)
    }

    #[test]
    fn a_departure_up_to_5_ms_late_is_no_stall() {
        assert_eq!(stalls(&[(0, 0), (10, 15), (20, 24)]), (0, 0));
        assert_eq!(stalls(&[(0, 0), (10, 16), (20, 20)]), (1, 6));
    }

    #[test]
    fn all_that_waited_through_a_stall_is_one_stall() {
        // The engine was off the processor from 10 to 60 ms, and had caught up at 61 ms.
        assert_eq!(stalls(&[(10, 60), (20, 60), (50, 61), (57, 61)]), (1, 51));
        // With reordering a later departure can have been due before the first.
        assert_eq!(stalls(&[(20, 60), (10, 61)]), (1, 51));
    }

    #[test]
    fn a_backlog_that_stays_is_a_stall_as_long_as_it_stays() {
        let late: Vec<(u64, u64)> = (0..500).map(|ms| (ms, ms + 6)).collect();
        assert_eq!(stalls(&late), (1, 505));
    }

    #[test]
    fn stalls_that_do_not_overlap_add_up() {
        assert_eq!(stalls(&[(10, 30), (30, 42), (100, 107)]), (3, 20 + 12 + 7));
    }

    #[test]
    fn a_clamped_arrival_is_counted_if_it_is_more_than_the_clocks_uncertainty_and_always_moves_the_packet()
     {
        let mut punctuality = Punctuality::new(None);
        assert_eq!(punctuality.arrived(2 * MS, MS), 0);
        assert_eq!(punctuality.arrived(2 * MS, 2 * MS + 10_000), 10_000);
        assert_eq!(punctuality.timing().clamped_packets, 0);
        assert_eq!(punctuality.arrived(2 * MS, 9 * MS), 7 * MS);
        // Its departure was exact by the instant to which its arrival was moved.
        punctuality.departed(20 * MS - 7 * MS, 20 * MS);
        let timing = punctuality.timing();
        assert_eq!((timing.clamped_packets, timing.clamped_max_ns), (1, 7 * MS));
        assert_eq!(
            (timing.lateness_max_ns, timing.stall_count, timing.stall_ns),
            (7 * MS, 1, 7 * MS)
        );
        assert_eq!(punctuality.timing().clamped_max_ns, 0, "of the interval");
        let (measured, _) = punctuality.measurement();
        assert_eq!(
            (measured.clamped_packets, measured.clamped_max_ns),
            (1, 7 * MS)
        );
        assert_eq!(
            (measured.lateness_max_ns, measured.stall_ns),
            (7 * MS, 7 * MS)
        );
        let (nothing, _) = punctuality.measurement();
        assert_eq!(nothing, Timing::default(), "since the mark before");
    }

    #[test]
    fn the_limit_of_stalls_is_a_setting() {
        let mut punctuality = Punctuality::new(Some(MS));
        punctuality.departed(0, 2 * MS);
        assert_eq!(punctuality.timing().stall_count, 1);
    }
}
