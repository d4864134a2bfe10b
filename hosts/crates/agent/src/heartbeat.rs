// SPDX-License-Identifier: Apache-2.0
//! Noticing that nobody is there any more: a stream over a network can fall silent without ending.

use std::time::{Duration, Instant};

/// Heartbeats of either side within the limit: every second within 8 s. Limits are longer where the
/// stream shares the network of a measurement.
const BEATS_PER_LIMIT: u32 = 8;

/// When to speak, and when to stop believing in the other side. Pure: the caller brings the time.
#[derive(Debug)]
pub struct Heartbeat {
    limit: Duration,
    interval: Duration,
    next_beat: Instant,
    last_received: Instant,
}

impl Heartbeat {
    /// One that gives up when it has heard nothing for `limit`.
    pub fn new(limit: Duration, now: Instant) -> Self {
        let interval = limit / BEATS_PER_LIMIT;
        Self {
            limit,
            interval,
            next_beat: now + interval,
            last_received: now,
        }
    }

    /// The other side said something.
    pub fn on_received(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Whether a beat is due; if so the next one is a while later.
    pub fn advance_if_due(&mut self, now: Instant) -> bool {
        let is_due = self.next_beat <= now;
        if is_due {
            self.next_beat = now + self.interval;
        }
        is_due
    }

    /// Whether the other side has been silent for too long.
    pub fn is_silent(&self, now: Instant) -> bool {
        now >= self.last_received + self.limit
    }

    /// When to look again.
    pub fn wake_at(&self) -> Instant {
        self.next_beat.min(self.last_received + self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_noticed_after_the_limit_and_no_earlier() {
        let begin = Instant::now();
        let limit = Duration::from_secs(8);
        let mut heartbeat = Heartbeat::new(limit, begin);
        assert!(!heartbeat.is_silent(begin + Duration::from_millis(7_999)));
        assert!(heartbeat.is_silent(begin + limit));
        heartbeat.on_received(begin + limit);
        assert!(!heartbeat.is_silent(begin + limit));
    }

    #[test]
    fn beats_are_due_eight_times_within_the_limit() {
        for (limit, every) in [(8, 1), (64, 8)] {
            let (begin, every) = (Instant::now(), Duration::from_secs(every));
            let mut heartbeat = Heartbeat::new(Duration::from_secs(limit), begin);
            assert!(!heartbeat.advance_if_due(begin));
            assert_eq!(heartbeat.wake_at(), begin + every);
            assert!(heartbeat.advance_if_due(begin + every));
            assert!(!heartbeat.advance_if_due(begin + every));
        }
    }
}
