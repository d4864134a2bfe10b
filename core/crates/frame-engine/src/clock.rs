// SPDX-License-Identifier: Apache-2.0
//! The kernel's receive stamps on the engine's clock.
//!
//! Links run on `CLOCK_MONOTONIC`. The kernel stamps packets with `CLOCK_REALTIME`, which can be
//! stepped while a run is under way; the difference is measured at each wake-up.

use atoll_job::clock::{monotonic_ns, real_time_ns};

/// A difference that changes by more at once is a step, not an adjustment (at most 500 ppm).
const STEP_NS: u64 = 1_000_000;
/// A measurement in which more passed between the clock readings was interrupted.
const UNCERTAINTY_MAX_NS: u64 = 5_000;
/// How long a stamped packet may take to appear in the ring.
const DELIVERY_MAX_NS: u64 = 10_000_000;

/// Real time less monotonic time, now and before the last step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RealTimeOffset {
    current_ns: i64,
    before_step_ns: i64,
}

impl RealTimeOffset {
    /// Measure it for the first time.
    pub(crate) fn measure() -> Self {
        let mut offset = Self {
            current_ns: 0,
            before_step_ns: 0,
        };
        offset.update();
        offset.before_step_ns = offset.current_ns;
        offset
    }

    /// Measure it again.
    pub(crate) fn update(&mut self) {
        let before_ns = monotonic_ns();
        let real_ns = real_time_ns();
        let after_ns = monotonic_ns();
        self.observe(before_ns, real_ns, after_ns);
    }

    fn observe(&mut self, before_ns: u64, real_ns: u64, after_ns: u64) {
        let uncertainty_ns = after_ns - before_ns;
        let measured_ns = signed_ns(real_ns) - signed_ns(before_ns + uncertainty_ns / 2);
        if measured_ns.abs_diff(self.current_ns) > STEP_NS + uncertainty_ns {
            self.before_step_ns = self.current_ns;
            self.current_ns = measured_ns;
        } else if uncertainty_ns <= UNCERTAINTY_MAX_NS {
            self.current_ns = measured_ns;
        }
    }

    /// The instant on the engine's clock at which a packet stamped `real_ns` arrived, which was not after
    /// `now` and hardly before `empty_ns`, when there was none to be read. Stamps from before a step
    /// fit the difference of that time. None: the stamp fits neither.
    #[inline]
    pub(crate) fn arrival_ns(&self, real_ns: u64, empty_ns: u64, now: u64) -> Option<u64> {
        let possible = empty_ns.saturating_sub(DELIVERY_MAX_NS)..=now + UNCERTAINTY_MAX_NS;
        [self.current_ns, self.before_step_ns]
            .into_iter()
            .filter_map(|offset_ns| real_ns.checked_add_signed(-offset_ns))
            .find(|instant| possible.contains(instant))
            .map(|instant| instant.min(now))
    }
}

/// Instants of either clock fit `i64` until the year 2262.
fn signed_ns(instant_ns: u64) -> i64 {
    i64::try_from(instant_ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR_2026: u64 = 1_767_225_600_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn offset(real_ns: u64, monotonic_ns: u64) -> RealTimeOffset {
        let mut offset = RealTimeOffset {
            current_ns: 0,
            before_step_ns: 0,
        };
        offset.observe(monotonic_ns, real_ns, monotonic_ns);
        offset
    }

    #[test]
    fn a_stamp_is_moved_to_the_engines_clock() {
        let offset = offset(YEAR_2026, SECOND);
        assert_eq!(
            offset.arrival_ns(YEAR_2026 - 300, SECOND - 1000, SECOND),
            Some(SECOND - 300)
        );
    }

    #[test]
    fn stamps_from_both_sides_of_a_step_are_understood() {
        for step in [-3_600_000_000_000_i64, 5_000_000_000] {
            let mut offset = offset(YEAR_2026, SECOND);
            let now = SECOND + 1_000_000;
            let real_now = (YEAR_2026 + 1_000_000).checked_add_signed(step).unwrap();
            offset.observe(now, real_now, now);
            assert_eq!(
                offset.arrival_ns(YEAR_2026 + 400_000, SECOND, now),
                Some(SECOND + 400_000)
            );
            assert_eq!(
                offset.arrival_ns(real_now - 100_000, SECOND, now),
                Some(now - 100_000)
            );
        }
    }

    #[test]
    fn an_impossible_stamp_is_no_instant() {
        let offset = offset(YEAR_2026, SECOND);
        assert_eq!(offset.arrival_ns(YEAR_2026 + SECOND, SECOND, SECOND), None);
        assert_eq!(offset.arrival_ns(0, SECOND, SECOND), None);
    }

    #[test]
    fn an_interrupted_measurement_changes_nothing() {
        let mut offset = offset(YEAR_2026, SECOND);
        offset.observe(SECOND, YEAR_2026, SECOND + 800_000);
        assert_eq!(
            offset.arrival_ns(YEAR_2026 - 300, SECOND - 1000, SECOND),
            Some(SECOND - 300)
        );
    }

    #[test]
    fn the_real_clocks_agree_with_themselves() {
        let offset = RealTimeOffset::measure();
        let (before_ns, real_ns) = (monotonic_ns(), real_time_ns());
        let now = monotonic_ns();
        let arrival_ns = offset.arrival_ns(real_ns, before_ns, now).unwrap();
        assert!(arrival_ns <= now && arrival_ns + UNCERTAINTY_MAX_NS >= before_ns);
    }
}
