// SPDX-License-Identifier: Apache-2.0
//! Drop-tail queue that counts bytes, as the input queue of a satellite modem does.

use crate::Nanoseconds;
use std::collections::VecDeque;

/// How many bytes wait, as a function of time.
///
/// A packet waits from its arrival until its own serialisation begins. It is refused when the
/// waiting bytes plus its own exceed the capacity, so a small packet still enters a queue that is
/// full for large ones. Only sizes and instants are kept here, never packets.
#[derive(Debug, Clone)]
pub struct ByteQueue {
    capacity_bytes: u64,
    waiting: VecDeque<Waiting>,
    /// Bytes ever admitted, those that never waited included.
    admitted_bytes: u64,
    /// `admitted_bytes` up to the last packet taken off `waiting`.
    begun_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    begin_ns: Nanoseconds,
    /// `ByteQueue::admitted_bytes` including this packet.
    through_bytes: u64,
}

impl ByteQueue {
    /// An empty queue that holds `capacity_bytes`.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            waiting: VecDeque::new(),
            admitted_bytes: 0,
            begun_bytes: 0,
        }
    }

    /// Whether a packet of `bytes` that has to wait from `now` on finds room. Forgets what began
    /// before `now`: later calls must not lie before it.
    #[must_use]
    pub fn has_room(&mut self, now: Nanoseconds, bytes: u32) -> bool {
        while let Some(first) = self.waiting.front() {
            if first.begin_ns > now {
                break;
            }
            self.begun_bytes = first.through_bytes;
            self.waiting.pop_front();
        }
        self.admitted_bytes - self.begun_bytes + u64::from(bytes) <= self.capacity_bytes
    }

    /// Count a packet of `bytes` that waits until `begin_ns`, not before the `begin_ns` of those ahead.
    pub fn admit(&mut self, begin_ns: Nanoseconds, bytes: u32) {
        self.admitted_bytes += u64::from(bytes);
        self.waiting.push_back(Waiting {
            begin_ns,
            through_bytes: self.admitted_bytes,
        });
    }

    /// Bytes waiting at `now`, by what has been admitted so far.
    #[must_use]
    pub fn bytes(&self, now: Nanoseconds) -> u64 {
        let begun = self
            .waiting
            .partition_point(|packet| packet.begin_ns <= now);
        let begun_bytes = begun
            .checked_sub(1)
            .map_or(self.begun_bytes, |last| self.waiting[last].through_bytes);
        self.admitted_bytes - begun_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_packet_enters_where_a_large_one_no_longer_fits() {
        let mut queue = ByteQueue::new(3000);
        queue.admit(100, 1500);
        queue.admit(200, 1400);
        assert!(!queue.has_room(50, 1500));
        assert!(queue.has_room(50, 100));
        assert!(!queue.has_room(50, 101));
    }

    #[test]
    fn a_packet_stops_waiting_when_its_serialisation_begins() {
        let mut queue = ByteQueue::new(3000);
        queue.admit(100, 1500);
        queue.admit(200, 1400);
        assert_eq!(queue.bytes(99), 2900);
        assert_eq!(queue.bytes(100), 1400);
        assert_eq!(queue.bytes(200), 0);
        assert_eq!(queue.bytes(99), 2900, "looking does not forget");
        assert!(queue.has_room(100, 1600));
        assert_eq!(queue.bytes(100), 1400);
    }
}
