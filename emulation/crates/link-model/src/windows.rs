// SPDX-License-Identifier: Apache-2.0
//! A link's own proof that it keeps its rate: bytes scheduled to leave in every window of 100 ms.

use crate::{LinkSettings, Nanoseconds};

/// Length of a window; the resolution of throughput plots.
const WINDOW_NS: Nanoseconds = 100_000_000;

/// Counts windows of 100 ms in which more bytes left than the rate allows.
///
/// The allowance is one packet, which may have been serialised almost wholly before the window,
/// and, with jitter, what the rate carries in the longest time by which jitter can bring packets
/// together (2 x jitter).
#[derive(Debug, Clone)]
pub struct RateWindows {
    allowed_bytes: u64,
    window: u64,
    bytes: u64,
    largest_packet_bytes: u64,
    over_rate: u64,
}

impl RateWindows {
    /// No window yet.
    #[must_use]
    pub fn new(settings: &LinkSettings) -> Self {
        let span_ns = u128::from(WINDOW_NS + 2 * settings.jitter_ns);
        let bits = u128::from(settings.rate_bit_s) * span_ns;
        Self {
            allowed_bytes: bits.div_ceil(8_000_000_000) as u64,
            window: 0,
            bytes: 0,
            largest_packet_bytes: 0,
            over_rate: 0,
        }
    }

    /// Count a packet due at `scheduled_ns`; packets come in order.
    pub fn record(&mut self, scheduled_ns: Nanoseconds, bytes: u32) {
        let window = scheduled_ns / WINDOW_NS;
        if window != self.window {
            self.over_rate += u64::from(self.is_over());
            self.window = window;
            self.bytes = 0;
            self.largest_packet_bytes = 0;
        }
        self.bytes += u64::from(bytes);
        self.largest_packet_bytes = self.largest_packet_bytes.max(u64::from(bytes));
    }

    /// Windows above the rate so far, the present one included.
    #[must_use]
    pub fn over_rate(&self) -> u64 {
        self.over_rate + u64::from(self.is_over())
    }

    fn is_over(&self) -> bool {
        self.bytes > self.allowed_bytes + self.largest_packet_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows() -> RateWindows {
        RateWindows::new(&LinkSettings {
            rate_bit_s: 8_000_000,
            delay_ns: 0,
            jitter_ns: 0,
            queue_bytes: 0,
        })
    }

    #[test]
    fn rate_and_one_packet_are_allowed_and_a_byte_more_is_not() {
        let mut windows = windows();
        for at in 0..101 {
            windows.record(at * 900_000, 1000);
        }
        assert_eq!(windows.over_rate(), 0);
        windows.record(99_999_999, 1);
        assert_eq!(windows.over_rate(), 1);
        windows.record(100_000_000, 1000);
        assert_eq!(windows.over_rate(), 1, "a window is counted once");
    }
}
