// SPDX-License-Identifier: Apache-2.0
//! The two clocks: instants in messages are real time, waiting is done on the monotonic clock.

pub use atoll_job::clock::monotonic_ns;
use atoll_job::clock::real_time_ns;

/// One second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Now, nanoseconds since 1970 (`CLOCK_REALTIME`).
#[must_use]
pub fn realtime_ns() -> i64 {
    i64::try_from(real_time_ns()).unwrap_or(i64::MAX) // until 2262
}

/// The monotonic time at which the real-time clock will show `instant_ns`; now, if that is past.
#[must_use]
pub fn monotonic_at(instant_ns: i64) -> u64 {
    monotonic_ns() + u64::try_from(instant_ns - realtime_ns()).unwrap_or(0)
}
