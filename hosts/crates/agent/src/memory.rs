// SPDX-License-Identifier: Apache-2.0
//! The memory of the machine.

use std::fs;

/// All memory.
pub fn total_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let bytes = u128::from(info.mem_unit) * u128::from(info.totalram); // of 32 bits on some machines
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Memory that is available to programs without swapping.
pub fn available_bytes() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    kilobytes(&memory, "MemAvailable:").unwrap_or(0)
}

/// A line of /proc/meminfo, in bytes.
pub fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let count: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(count * 1024)
}
