// SPDX-License-Identifier: Apache-2.0
//! A delay line, which emulates one latency class: every packet leaves after its delay.

use crate::propagation::Propagation;
use crate::{ConfigError, DelaySettings, Departure, Nanoseconds, SplitMix64};

/// A path of some delay and jitter, without a queue and of unlimited rate.
#[derive(Debug)]
pub struct DelayLine<P> {
    settings: DelaySettings,
    propagation: Propagation<P>,
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
            settings,
            propagation: Propagation::new(&settings, random),
            last_arrival_ns: 0,
        })
    }

    /// A packet that counts for `bytes` arrives at `now`; it leaves at the instant returned. An instant
    /// before the last arrival is taken for the last arrival.
    pub fn enqueue(&mut self, now: Nanoseconds, bytes: u32, packet: P) -> Nanoseconds {
        self.last_arrival_ns = self.last_arrival_ns.max(now);
        let delay_ns = self.settings.delay_ns;
        self.propagation
            .push(self.last_arrival_ns, delay_ns, bytes, packet)
    }

    /// An arrival before this instant is taken for one at it: that of the last arrival or change.
    #[must_use]
    pub fn last_arrival_ns(&self) -> Nanoseconds {
        self.last_arrival_ns
    }

    /// Delay packets that arrive from `now` on by `delay_ns`. Packets in flight keep their departure times.
    ///
    /// # Errors
    /// When it is out of its range; the delay is then as before.
    pub fn set_delay(
        &mut self,
        now: Nanoseconds,
        delay_ns: Nanoseconds,
    ) -> Result<(), ConfigError> {
        let settings = DelaySettings {
            delay_ns,
            ..self.settings
        };
        settings.check()?;
        self.settings = settings;
        self.last_arrival_ns = self.last_arrival_ns.max(now);
        Ok(())
    }

    /// The shortest delay of a packet.
    #[must_use]
    pub fn shortest_delay_ns(&self) -> Nanoseconds {
        self.settings.shortest_ns()
    }

    /// When the next packet leaves.
    #[must_use]
    pub fn next_departure(&self) -> Option<Nanoseconds> {
        self.propagation.next_departure()
    }

    /// The next packet, if it was due at or before `now`.
    pub fn pop_due(&mut self, now: Nanoseconds) -> Option<Departure<P>> {
        self.propagation.pop_due(now)
    }

    /// Packets that have not left yet.
    #[must_use]
    pub fn held_packets(&self) -> u64 {
        self.propagation.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_is_known_after_a_change_does_not_leave_by_the_delay_before() {
        let settings = DelaySettings::uniform(5_000_000, 0);
        let mut line = DelayLine::new(settings, SplitMix64::new(1, 0)).unwrap();
        line.set_delay(10_000_000, 1_000_000).unwrap();
        assert_eq!(line.enqueue(9_999_000, 1500, ()), 11_000_000);
    }
}
