// SPDX-License-Identifier: Apache-2.0
//! Valid ranges of settings, and the errors for values outside.

use crate::Nanoseconds;

/// Highest rate the exact arithmetic of the transmitter holds: 1 Tbit/s.
const RATE_MAX_BIT_S: u64 = 1_000_000_000_000;
/// Longest propagation delay: one hour; more is a mistake of units.
const DELAY_MAX_NS: Nanoseconds = 3_600_000_000_000;
/// Longest interval of `CoDel`, a round-trip time: its arithmetic adds sixteen of them to an instant.
const INTERVAL_MAX_NS: Nanoseconds = DELAY_MAX_NS;

pub(crate) fn check_rate(rate_bit_s: u64) -> Result<(), ConfigError> {
    if (1..=RATE_MAX_BIT_S).contains(&rate_bit_s) {
        return Ok(());
    }
    Err(ConfigError::Rate(rate_bit_s))
}

pub(crate) fn check_delay(delay_ns: Nanoseconds) -> Result<(), ConfigError> {
    if delay_ns <= DELAY_MAX_NS {
        return Ok(());
    }
    Err(ConfigError::Delay(delay_ns))
}

pub(crate) fn check_interval(interval_ns: Nanoseconds) -> Result<(), ConfigError> {
    if interval_ns <= INTERVAL_MAX_NS {
        return Ok(());
    }
    Err(ConfigError::CoDelInterval(interval_ns))
}

pub(crate) fn probability(name: &'static str, probability: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&probability) {
        return Ok(());
    }
    Err(ConfigError::Probability { name, probability })
}

/// A setting outside its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Zero, or beyond the range of the arithmetic.
    #[error("rate_bit_s {0} is out of range: 1 to {RATE_MAX_BIT_S}")]
    Rate(u64),
    /// Longer than any link.
    #[error("delay_ns {0} is out of range: 0 to {DELAY_MAX_NS}")]
    Delay(Nanoseconds),
    /// Packets would arrive before they were sent.
    #[error(
        "jitter_ns {jitter_ns} is larger than delay_ns {delay_ns}: a packet would leave before it arrives"
    )]
    Jitter {
        /// The jitter.
        jitter_ns: Nanoseconds,
        /// Delay it exceeds.
        delay_ns: Nanoseconds,
    },
    /// The short form and the long one.
    #[error("both jitter_ns and jitter are given: leave out jitter_ns")]
    JitterTwice,
    /// Nothing could wait.
    #[error("queue_packets 0 is out of range: 1 or more, or null for no limit in packets")]
    QueuePackets,
    /// Below 0, above 1, or not a number.
    #[error("{name} {probability} is no probability: 0 to 1")]
    Probability {
        /// The setting's.
        name: &'static str,
        /// Its value.
        probability: f64,
    },
    /// Nothing to repeat.
    #[error("loss.lost is empty: give at least one packet")]
    NoLossTrace,
    /// Durations of `CoDel`.
    #[error("aqm: target_ns and interval_ns must be above 0 and target_ns at most interval_ns")]
    CoDel,
    /// Longer than any round trip.
    #[error("aqm: interval_ns {0} is out of range: at most {INTERVAL_MAX_NS}")]
    CoDelInterval(Nanoseconds),
    /// Thresholds of RED.
    #[error(
        "aqm: min_bytes must be below max_bytes, and weight and max_probability above 0 and at most 1"
    )]
    Red,
    /// In a row of the trace.
    #[error("trace row {row}: {source}")]
    TraceRow {
        /// From 0.
        row: usize,
        /// The error in that row.
        source: Box<ConfigError>,
    },
    /// Time must pass from row to row.
    #[error("t_ns must be above that of the row before")]
    TraceOrder,
    /// There is nothing to start.
    #[error("the link has no trace")]
    NoTrace,
}
