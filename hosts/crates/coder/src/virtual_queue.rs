// SPDX-License-Identifier: Apache-2.0
//! An estimate of the queue before a link, from what was sent to it.

use std::cmp::Ordering;

const SECOND_NS: u128 = 1_000_000_000;
const BITS: u128 = 8;

/// A queue of `capacity_bytes` that a transmitter empties at a known rate. Instants that decrease count as the latest.
#[derive(Debug, Clone)]
pub(crate) struct VirtualQueue {
    rate_bit_s: u64,
    capacity_bytes: u64,
    /// When the transmitter will have sent all.
    idle_from_ns: u64,
    now_ns: u64,
    /// By how much longer packets were found to wait than by what was sent.
    error_ns: i64,
}

impl VirtualQueue {
    /// An empty queue. `rate_bit_s`: at least 1.
    pub(crate) fn new(rate_bit_s: u64, capacity_bytes: u64) -> Self {
        Self {
            rate_bit_s,
            capacity_bytes,
            idle_from_ns: 0,
            now_ns: 0,
            error_ns: 0,
        }
    }

    /// A packet is sent to the link; one that finds no room is lost there and changes nothing.
    pub(crate) fn add(&mut self, now_ns: u64, bytes: u32) {
        self.advance(now_ns);
        if self.sent_room_at_ns(bytes, self.capacity_bytes) <= self.now_ns {
            let begin_ns = self.idle_from_ns.max(self.now_ns);
            self.idle_from_ns = begin_ns.saturating_add(self.time_of_ns(u64::from(bytes)));
        }
    }

    /// Whether so many bytes would wait at most, with a packet of `bytes`. The present packet of an idle link always
    /// has room.
    #[cfg(test)]
    pub(crate) fn has_room(&mut self, now_ns: u64, bytes: u32, limit_bytes: u64) -> bool {
        self.advance(now_ns);
        self.room_at_ns(bytes, limit_bytes) <= self.now_ns
    }

    /// For how long a packet that is sent now waits, by what was sent before.
    pub(crate) fn wait_ns(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        self.idle_from_ns.saturating_sub(self.now_ns)
    }

    /// Packets were found to wait so much longer than [`VirtualQueue::wait_ns`], because of others that are not known here, or
    /// shorter. From now on, there is room by so much later.
    pub(crate) fn correct(&mut self, error_ns: i64) {
        self.error_ns = error_ns;
    }

    /// From when on [`VirtualQueue::has_room`] if nothing is sent meanwhile.
    pub(crate) fn room_at_ns(&self, bytes: u32, limit_bytes: u64) -> u64 {
        self.sent_room_at_ns(bytes, limit_bytes)
            .saturating_add_signed(self.error_ns)
    }

    /// The same by what was sent, without the correction.
    fn sent_room_at_ns(&self, bytes: u32, limit_bytes: u64) -> u64 {
        match limit_bytes.cmp(&u64::from(bytes)) {
            Ordering::Less => self.idle_from_ns,
            _ => self
                .idle_from_ns
                .saturating_sub(self.time_of_ns(limit_bytes - u64::from(bytes))),
        }
    }

    /// The bytes that wait.
    #[cfg(test)]
    pub(crate) fn backlog_bytes(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        let waiting_ns = u128::from(self.idle_from_ns.saturating_sub(self.now_ns));
        (waiting_ns * u128::from(self.rate_bit_s) / (BITS * SECOND_NS)) as u64
    }

    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// The time in which the transmitter sends so many bytes, rounded up.
    fn time_of_ns(&self, bytes: u64) -> u64 {
        let ns = (u128::from(bytes) * BITS * SECOND_NS).div_ceil(u128::from(self.rate_bit_s));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_packet_is_sent_in_the_time_of_its_bytes() {
        let mut queue = VirtualQueue::new(8_000_000, 10_000);
        queue.add(0, 1000);
        queue.add(0, 1000);
        assert_eq!(
            [0, 1, 2, 3].map(|ms| queue.backlog_bytes(ms * MS)),
            [2000, 1000, 0, 0]
        );
        assert_eq!(
            queue.room_at_ns(1000, 500),
            2 * MS,
            "larger than the limit: when the link is idle"
        );
    }

    #[test]
    fn room_comes_later_by_what_others_sent() {
        let mut queue = VirtualQueue::new(8_000_000, 10_000);
        (0..4).for_each(|_| queue.add(5 * MS, 1000));
        assert_eq!(
            (queue.wait_ns(6 * MS), queue.room_at_ns(1000, 3000)),
            (3 * MS, 7 * MS)
        );
        queue.correct(10_000_000);
        assert_eq!(queue.room_at_ns(1000, 3000), 17 * MS);
        queue.correct(-2_000_000);
        assert_eq!(
            (queue.wait_ns(6 * MS), queue.room_at_ns(1000, 3000)),
            (3 * MS, 5 * MS)
        );
        queue.correct(i64::MIN);
        assert_eq!(queue.room_at_ns(1000, 3000), 0);
    }

    proptest! {
        /// Whatever is sent and when, the backlog is within the capacity, and room comes when it was foretold.
        #[test]
        fn the_backlog_is_bounded_and_room_comes_in_time(
            rate in 1_000..1_000_000_000_u64,
            capacity in 1_500..200_000_u64,
            sent in proptest::collection::vec((0..5 * MS, 40..1_500_u32), 1..200),
            percent in 0..100_u64,
        ) {
            let mut queue = VirtualQueue::new(rate, capacity);
            let (limit, mut now) = (capacity * percent / 100, 0);
            for (pause, bytes) in sent {
                now += pause;
                queue.add(now, bytes);
                prop_assert!(queue.backlog_bytes(now) <= capacity + 1);
                let at = queue.room_at_ns(bytes, limit);
                prop_assert_eq!(queue.has_room(now, bytes, limit), at <= now);
                let mut later = queue.clone();
                prop_assert!(later.has_room(at.max(now), bytes, limit));
            }
        }
    }
}
