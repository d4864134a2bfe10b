// SPDX-License-Identifier: Apache-2.0
//! The two clocks: instants in messages are real time, waiting is done on the monotonic clock.

use rustix::time::{ClockId, clock_gettime};

/// One second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Now, nanoseconds since 1970 (`CLOCK_REALTIME`).
#[must_use]
pub fn realtime_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Now, nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
#[expect(clippy::cast_sign_loss, reason = "the monotonic clock starts at zero")]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * SECOND_NS + now.tv_nsec as u64
}

/// The monotonic time at which the real-time clock will show `instant_ns`; now, if that is past.
#[must_use]
pub fn monotonic_at(instant_ns: i64) -> u64 {
    monotonic_ns() + u64::try_from(instant_ns - realtime_ns()).unwrap_or(0)
}
