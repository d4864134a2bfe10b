// SPDX-License-Identifier: Apache-2.0
//! Settings of a link direction and of a latency class, as they stand in a job's configuration.

use crate::Nanoseconds;
use serde::{Deserialize, Serialize};

/// Highest rate the exact arithmetic of the serialiser holds: 1 Tbit/s.
const RATE_MAX_BIT_S: u64 = 1_000_000_000_000;
/// Longest propagation delay: one hour; more is a mistake of units.
const DELAY_MAX_NS: Nanoseconds = 3_600_000_000_000;

/// One direction of a satellite link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSettings {
    /// Serialisation rate in bit/s of counted bytes.
    pub rate_bit_s: u64,
    /// One-way propagation delay.
    pub delay_ns: Nanoseconds,
    /// Half-width of the uniform distribution around `delay_ns`.
    #[serde(default)]
    pub jitter_ns: Nanoseconds,
    /// Capacity of the drop-tail queue in counted bytes, the packet being serialised not included.
    pub queue_bytes: u64,
}

impl LinkSettings {
    /// Whether a link can be made of these settings.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.rate_bit_s == 0 || self.rate_bit_s > RATE_MAX_BIT_S {
            return Err(ConfigError::Rate(self.rate_bit_s));
        }
        self.propagation().check()
    }

    /// Delay and jitter alone.
    #[must_use]
    pub fn propagation(&self) -> DelaySettings {
        DelaySettings {
            delay_ns: self.delay_ns,
            jitter_ns: self.jitter_ns,
        }
    }
}

/// One latency class, or the propagation of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelaySettings {
    /// One-way delay.
    pub delay_ns: Nanoseconds,
    /// Half-width of the uniform distribution around `delay_ns`.
    #[serde(default)]
    pub jitter_ns: Nanoseconds,
}

impl DelaySettings {
    /// The least by which a packet is delayed. The settings must have passed [`DelaySettings::check`].
    #[must_use]
    pub fn shortest_ns(&self) -> Nanoseconds {
        self.delay_ns - self.jitter_ns
    }

    /// Whether delay and jitter make sense.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.delay_ns > DELAY_MAX_NS {
            return Err(ConfigError::Delay(self.delay_ns));
        }
        if self.jitter_ns > self.delay_ns {
            return Err(ConfigError::Jitter {
                jitter_ns: self.jitter_ns,
                delay_ns: self.delay_ns,
            });
        }
        Ok(())
    }
}

/// A setting outside its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Zero, or beyond what the arithmetic holds.
    #[error("rate_bit_s {0} is out of range: 1 to {RATE_MAX_BIT_S}")]
    Rate(u64),
    /// Longer than any link.
    #[error("delay_ns {0} is out of range: 0 to {DELAY_MAX_NS}")]
    Delay(Nanoseconds),
    /// Packets would arrive before they were sent.
    #[error(
        "jitter_ns {jitter_ns} is larger than delay_ns {delay_ns}: a packet would leave before it came"
    )]
    Jitter {
        /// Jitter asked for.
        jitter_ns: Nanoseconds,
        /// Delay it exceeds.
        delay_ns: Nanoseconds,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let good = LinkSettings {
            rate_bit_s: 16_000_000,
            delay_ns: 250_000_000,
            jitter_ns: 0,
            queue_bytes: 100_000,
        };
        assert_eq!(good.check(), Ok(()));
        let rate = LinkSettings {
            rate_bit_s: 0,
            ..good
        };
        assert_eq!(rate.check(), Err(ConfigError::Rate(0)));
        let delay = LinkSettings {
            delay_ns: u64::MAX,
            ..good
        };
        assert_eq!(delay.check(), Err(ConfigError::Delay(u64::MAX)));
        let jitter = LinkSettings {
            jitter_ns: 250_000_001,
            ..good
        };
        assert!(
            jitter
                .check()
                .unwrap_err()
                .to_string()
                .contains("before it came")
        );
    }
}
