// SPDX-License-Identifier: Apache-2.0
//! One latency class: every packet that comes in goes out, later.

use crate::{ConfigError, DelaySettings, Departure, Nanoseconds, Propagation, SplitMix64};
use std::collections::VecDeque;

/// A path of some delay and jitter, without a queue and of unlimited rate.
#[derive(Debug)]
pub struct DelayLine<P> {
    propagation: Propagation,
    in_flight: VecDeque<Departure<P>>,
    last_arrival_ns: Nanoseconds,
}

impl<P> DelayLine<P> {
    /// An empty path. Jitter is drawn from `random`.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub fn new(settings: DelaySettings, random: SplitMix64) -> Result<Self, ConfigError> {
        settings.check()?;
        Ok(Self {
            propagation: Propagation::new(settings, random),
            in_flight: VecDeque::new(),
            last_arrival_ns: 0,
        })
    }

    /// A packet that counts for `bytes` arrives at `now`; it leaves at the instant returned. An instant
    /// before the last arrival is taken for the last arrival.
    pub fn offer(&mut self, now: Nanoseconds, bytes: u32, packet: P) -> Nanoseconds {
        self.last_arrival_ns = self.last_arrival_ns.max(now);
        let scheduled_ns = self.propagation.arrival_ns(self.last_arrival_ns);
        self.in_flight.push_back(Departure {
            scheduled_ns,
            bytes,
            packet,
        });
        scheduled_ns
    }

    /// When the next packet leaves.
    #[must_use]
    pub fn next_departure(&self) -> Option<Nanoseconds> {
        self.in_flight
            .front()
            .map(|departure| departure.scheduled_ns)
    }

    /// The next packet, if it was due at or before `now`.
    pub fn pop_due(&mut self, now: Nanoseconds) -> Option<Departure<P>> {
        if self.next_departure()? > now {
            return None;
        }
        self.in_flight.pop_front()
    }

    /// Packets that have not left yet.
    #[must_use]
    pub fn held_packets(&self) -> u64 {
        self.in_flight.len() as u64
    }
}
