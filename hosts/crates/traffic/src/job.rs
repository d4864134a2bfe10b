// SPDX-License-Identifier: Apache-2.0
//! A job's life ([`atoll_job`]): messages, refused configurations, and the clocks. Instants in messages are real time,
//! waiting is done on the monotonic clock.

use atoll_job::clock::real_time_ns;
use serde::Serialize;
use std::io::{self, Stdin};

pub use atoll_job::clock::monotonic_ns;
pub use atoll_job::{failed, log_line, wrong_setting};

/// One second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Standard input.
pub type Input = atoll_job::Input<Stdin>;

/// Print `message` as one line of JSON.
///
/// # Errors
/// If standard output is closed.
pub fn emit(message: &impl Serialize) -> io::Result<()> {
    atoll_job::print(message).map_err(failed("write to standard output"))
}

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
