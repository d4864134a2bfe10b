// SPDX-License-Identifier: Apache-2.0
//! A maximum that is reported often, and also once for the whole of a measurement.

/// The largest value since the last report and since the last mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peak {
    interval: u64,
    measurement: u64,
}

impl Peak {
    /// The value is now this.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.interval = self.interval.max(value);
        self.measurement = self.measurement.max(value);
    }

    /// The largest value since the last call; 0 if there was none.
    pub fn take_interval(&mut self) -> u64 {
        std::mem::take(&mut self.interval)
    }

    /// The largest value since the last call; 0 if there was none. The interval goes on.
    pub fn take_measurement(&mut self) -> u64 {
        std::mem::take(&mut self.measurement)
    }

    /// The largest value since the last report.
    #[must_use]
    pub fn interval(&self) -> u64 {
        self.interval
    }
}
