// SPDX-License-Identifier: Apache-2.0
//! Settings of a link direction and of a latency class, as they appear in a job's configuration.

use crate::range_checks::{check_delay, check_rate, probability};
use crate::trace::check_trace;
use crate::{AqmSettings, ConfigError, JitterSettings, LossSettings, Nanoseconds, TraceRow};

/// One direction of a satellite link.
///
/// Write it with `..LinkSettings::default()`: later versions may have more settings, whose default is to do nothing.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct LinkSettings {
    /// Serialisation rate in bit/s of counted bytes.
    pub rate_bit_s: u64,
    /// One-way propagation delay.
    pub delay_ns: Nanoseconds,
    /// Half-width of the uniform distribution around `delay_ns`: the short form of `jitter`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub jitter_ns: Nanoseconds,
    /// Distribution around `delay_ns`.
    pub jitter: Option<JitterSettings>,
    /// Whether packets may overtake others in propagation.
    #[cfg_attr(feature = "serde", serde(default))]
    pub reorder: bool,
    /// Capacity of the queue in counted bytes, the packet being serialised not included.
    pub queue_bytes: u64,
    /// Also its capacity in packets.
    pub queue_packets: Option<u64>,
    /// A second queue, which is served while the first one is empty. None: all packets wait in the first one.
    pub low_priority: Option<LowPrioritySettings>,
    /// Losses, after the transmitter or before the queue.
    pub loss: Option<LossSettings>,
    /// How the queue is managed; None: drop-tail.
    pub aqm: Option<AqmSettings>,
    /// The state of the link as a function of time.
    #[cfg_attr(feature = "serde", serde(default))]
    pub trace: Vec<TraceRow>,
}

impl LinkSettings {
    /// Check the settings of a link.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_rate(self.rate_bit_s)?;
        if self.jitter_ns > 0 && self.jitter.is_some() {
            return Err(ConfigError::JitterTwice);
        }
        self.propagation().check()?;
        let low_priority = self.low_priority.and_then(|low| low.queue_packets);
        if self.queue_packets == Some(0) || low_priority == Some(0) {
            return Err(ConfigError::QueuePackets);
        }
        self.loss.as_ref().map_or(Ok(()), LossSettings::check)?;
        self.aqm.as_ref().map_or(Ok(()), AqmSettings::check)?;
        check_trace(&self.trace)
    }

    /// Delay and jitter alone.
    #[must_use]
    pub fn propagation(&self) -> DelaySettings {
        DelaySettings {
            delay_ns: self.delay_ns,
            jitter: self
                .jitter
                .unwrap_or(JitterSettings::uniform(self.jitter_ns)),
            reorder: self.reorder,
        }
    }
}

/// The queue of packets of low priority: drop-tail, with limits of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct LowPrioritySettings {
    /// Capacity in counted bytes, the packet being serialised not included.
    pub queue_bytes: u64,
    /// Also its capacity in packets.
    pub queue_packets: Option<u64>,
}

/// One latency class, or the propagation of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelaySettings {
    /// One-way delay.
    pub delay_ns: Nanoseconds,
    /// Distribution around `delay_ns`.
    pub jitter: JitterSettings,
    /// Whether packets may overtake others.
    pub reorder: bool,
}

impl DelaySettings {
    /// Uniform jitter of this half-width around this delay, order kept.
    #[must_use]
    pub fn uniform(delay_ns: Nanoseconds, jitter_ns: Nanoseconds) -> Self {
        Self {
            delay_ns,
            jitter: JitterSettings::uniform(jitter_ns),
            reorder: false,
        }
    }

    /// The shortest delay of a packet.
    #[must_use]
    pub fn shortest_ns(&self) -> Nanoseconds {
        self.delay_ns.saturating_sub(self.jitter.earliest_ns())
    }

    /// Check delay and jitter.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_delay(self.delay_ns)?;
        probability("jitter.correlation", self.jitter.correlation)?;
        if self.jitter.amount_ns > self.delay_ns {
            return Err(ConfigError::Jitter {
                jitter_ns: self.jitter.amount_ns,
                delay_ns: self.delay_ns,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LossKind, LossPlace};

    #[test]
    fn settings_out_of_range_are_named() {
        let good = LinkSettings {
            rate_bit_s: 16_000_000,
            delay_ns: 250_000_000,
            queue_bytes: 100_000,
            ..LinkSettings::default()
        };
        assert_eq!(good.check(), Ok(()));
        let mistake = |change: fn(&mut LinkSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert!(mistake(|link| link.rate_bit_s = 0).starts_with("rate_bit_s 0 "));
        assert!(mistake(|link| link.delay_ns = u64::MAX).starts_with("delay_ns "));
        assert!(mistake(|link| link.jitter_ns = 250_000_001).contains("before it arrives"));
        assert!(mistake(|link| link.queue_packets = Some(0)).starts_with("queue_packets 0 "));
        let low_priority = |link: &mut LinkSettings| {
            link.low_priority = Some(LowPrioritySettings {
                queue_bytes: 1500,
                queue_packets: Some(0),
            });
        };
        assert!(mistake(low_priority).starts_with("queue_packets 0 "));
        let loss = |link: &mut LinkSettings| {
            link.loss = Some(LossSettings {
                kind: LossKind::Bernoulli {
                    probability: f64::NAN,
                },
                place: LossPlace::After,
            });
        };
        assert!(mistake(loss).starts_with("loss.probability NaN "));
        let codel = |link: &mut LinkSettings| {
            link.aqm = Some(AqmSettings::CoDel {
                target_ns: 5_000_000,
                interval_ns: u64::MAX,
            });
        };
        assert!(mistake(codel).starts_with("aqm: interval_ns 18446744073709551615 "));
        let both = |link: &mut LinkSettings| {
            link.jitter = Some(JitterSettings::uniform(1));
            link.jitter_ns = 1;
        };
        assert!(mistake(both).contains("both"));
    }
}
