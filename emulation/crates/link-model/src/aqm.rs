// SPDX-License-Identifier: Apache-2.0
//! Active queue management, for comparison with drop-tail: drop decisions for packets that fit into the queue.

use crate::codel::CoDel;
use crate::queue::{Queue, Waiting};
use crate::range_checks::{check_interval, probability};
use crate::red::{Arrival, Red};
use crate::{ConfigError, Nanoseconds, SplitMix64};

/// How a queue is managed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum AqmSettings {
    /// Controlled delay (RFC 8289): drops at the head while the time in the queue stays above a target.
    CoDel {
        /// Time in the queue that is borne.
        target_ns: Nanoseconds,
        /// For how long more is borne; about the longest round-trip time, and an hour at most.
        interval_ns: Nanoseconds,
    },
    /// Random early detection (Floyd and Jacobson 1993): drops arrivals with a probability that grows
    /// with the mean queue.
    Red {
        /// Mean queue up to which nothing is dropped.
        min_bytes: u64,
        /// Mean queue from which on everything is.
        max_bytes: u64,
        /// Probability just below `max_bytes`.
        max_probability: f64,
        /// Of one arrival's queue in the moving average.
        weight: f64,
    },
}

impl AqmSettings {
    /// Whether a queue can be managed by these settings.
    ///
    /// # Errors
    /// The invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        match *self {
            Self::CoDel {
                target_ns,
                interval_ns,
            } => {
                if target_ns == 0 || target_ns > interval_ns {
                    return Err(ConfigError::CoDel);
                }
                check_interval(interval_ns)
            }
            Self::Red {
                min_bytes,
                max_bytes,
                max_probability,
                weight,
            } => {
                probability("aqm.max_probability", max_probability)?;
                probability("aqm.weight", weight)?;
                if min_bytes >= max_bytes || max_probability == 0.0 || weight == 0.0 {
                    return Err(ConfigError::Red);
                }
                Ok(())
            }
        }
    }
}

/// The manager of one queue.
#[derive(Debug, Clone)]
pub(crate) enum Aqm {
    DropTail,
    CoDel(CoDel),
    Red(Red),
}

impl Aqm {
    pub(crate) fn new(settings: Option<AqmSettings>, random: SplitMix64) -> Self {
        match settings {
            None => Self::DropTail,
            Some(AqmSettings::CoDel {
                target_ns,
                interval_ns,
            }) => Self::CoDel(CoDel::new(target_ns, interval_ns)),
            Some(AqmSettings::Red {
                min_bytes,
                max_bytes,
                max_probability,
                weight,
            }) => Self::Red(Red::new(
                min_bytes..max_bytes,
                max_probability,
                weight,
                random,
            )),
        }
    }

    /// Whether a packet is refused on its arrival.
    pub(crate) fn refuses(&mut self, arrival: impl FnOnce() -> Arrival) -> bool {
        match self {
            Self::DropTail | Self::CoDel(_) => false,
            Self::Red(red) => red.refuses(&arrival()),
        }
    }

    /// The next packet for the transmitter, which is free from `free_ns` on, and the instant at which it is
    /// taken; those dropped in its favour go to `drop`.
    pub(crate) fn take<P>(
        &mut self,
        queue: &mut Queue<P>,
        free_ns: Nanoseconds,
        drop: impl FnMut(&Waiting<P>),
    ) -> Option<(Nanoseconds, Waiting<P>)> {
        match self {
            Self::DropTail | Self::Red(_) => queue.pop(free_ns),
            Self::CoDel(codel) => codel.take(queue, free_ns, drop),
        }
    }
}
