// SPDX-License-Identifier: Apache-2.0
//! The two clocks of a job: waits use the monotonic clock, instants in messages are real time.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// `CLOCK_MONOTONIC` in ns.
#[must_use]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time of this process since its start, in ns (`CLOCK_PROCESS_CPUTIME_ID`).
#[must_use]
pub fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// `CLOCK_REALTIME` in ns since 1970.
#[must_use]
pub fn real_time_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// Neither clock shows negative times.
fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Whether time passes only while everything sleeps: in User-Mode Linux with one of the `time-travel` modes
/// (`arch/um/kernel/time.c`). A program there is never late, and reading the clock is its most expensive operation.
#[must_use]
pub fn is_virtual() -> bool {
    std::fs::read_to_string("/proc/cmdline").is_ok_and(|line| {
        line.split_whitespace()
            .any(|word| word.split('=').next() == Some("time-travel"))
    })
}
