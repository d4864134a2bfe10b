// SPDX-License-Identifier: Apache-2.0
//! Noticing that nobody is there any more: a stream over a network can fall silent without ending.

use std::time::{Duration, Instant};

/// How often either side says that it is there.
const EVERY: Duration = Duration::from_secs(1);

/// When to speak, and when to stop believing in the other side. Pure: the caller brings the time.
#[derive(Debug)]
pub struct Heartbeat {
    limit: Duration,
    next: Instant,
    heard: Instant,
}

impl Heartbeat {
    /// One that gives up when it has heard nothing for `limit`.
    pub fn new(limit: Duration, now: Instant) -> Self {
        Self {
            limit,
            next: now + EVERY,
            heard: now,
        }
    }

    /// The other side said something.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Whether a beat is due; if so the next one is a while later.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next <= now;
        if due {
            self.next = now + EVERY;
        }
        due
    }

    /// Whether the other side has been silent for too long.
    pub fn is_silent(&self, now: Instant) -> bool {
        now >= self.heard + self.limit
    }

    /// When to look again.
    pub fn wake_at(&self) -> Instant {
        self.next.min(self.heard + self.limit)
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
        heartbeat.heard(begin + limit);
        assert!(!heartbeat.is_silent(begin + limit));
    }

    #[test]
    fn a_beat_is_due_every_second() {
        let begin = Instant::now();
        let mut heartbeat = Heartbeat::new(Duration::from_secs(8), begin);
        assert!(!heartbeat.is_due(begin));
        assert_eq!(heartbeat.wake_at(), begin + EVERY);
        assert!(heartbeat.is_due(begin + EVERY));
        assert!(!heartbeat.is_due(begin + EVERY));
    }
}
