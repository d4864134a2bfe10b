// SPDX-License-Identifier: Apache-2.0
//! An estimate of the queue before a link, from what was sent to it.

use std::cmp::Ordering;
use std::collections::VecDeque;

const SECOND_NS: u128 = 1_000_000_000;
const BITS: u128 = 8;
/// Packets that are remembered at most, for so long: more than an RTT.
const SENT_MAX: usize = 16_384;
const SENT_FOR_NS: u64 = 5_000_000_000;
/// A rate is measured over this time or more.
const SPAN_NS: u64 = 200_000_000;
/// Packets that waited for less than this, with the poll of both coders, may have met no queue.
const NO_QUEUE_NS: u64 = 5_000_000;
/// Of the rate of others that is kept by each report that tells of no queue, and at most of the link's rate.
const DECAY_PERCENT: u64 = 99;

/// A queue of `capacity_bytes` that a transmitter empties at a known rate. Instants that decrease count as the latest.
#[derive(Debug, Clone, Default)]
pub(crate) struct VirtualQueue {
    rate_bit_s: u64,
    capacity_bytes: u64,
    /// The rate of packets that are not known here, as far as reports tell of them.
    cross_bit_s: u64,
    /// When the transmitter will have sent all.
    idle_from_ns: u64,
    now_ns: u64,
    /// If reports come: the packets that were sent last, and what was reported of them.
    history: Option<History>,
}

#[derive(Debug, Clone, Default)]
struct History {
    /// Instants and bytes.
    sent: VecDeque<(u64, u32)>,
    /// Reported packets: when they were sent, and how long they waited.
    waits: VecDeque<(u64, u64)>,
}

impl VirtualQueue {
    /// An empty queue. `rate_bit_s`: at least 1. `with_reports`: whether reports will tell of it.
    pub(crate) fn new(rate_bit_s: u64, capacity_bytes: u64, with_reports: bool) -> Self {
        Self {
            rate_bit_s,
            capacity_bytes,
            history: with_reports.then(History::default),
            ..Self::default()
        }
    }

    /// A packet is sent to the link; one that finds no room is lost there and changes nothing.
    pub(crate) fn add(&mut self, now_ns: u64, bytes: u32) {
        self.advance(now_ns);
        if let Some(History { sent, .. }) = &mut self.history {
            let is_old = |at_ns: u64| now_ns.saturating_sub(at_ns) > SENT_FOR_NS;
            while sent.len() >= SENT_MAX || sent.front().is_some_and(|(at_ns, _)| is_old(*at_ns)) {
                sent.pop_front();
            }
            sent.push_back((self.now_ns, bytes));
        }
        self.add_packet(self.now_ns, bytes);
    }

    /// A packet that was sent at `sent_ns` waited for `waited_ns` before the link, by a report.
    ///
    /// The queue is what it was then, with what was sent since, and what others may have sent. Their rate is what has come
    /// out of the queue since an earlier report, or has made it longer, less what was sent from here. If there was no queue,
    /// it is no more than the link had room for, and is taken to become lower slowly.
    pub(crate) fn learn(&mut self, sent_ns: u64, waited_ns: u64) {
        let Some(mut history) = self.history.take() else {
            return;
        };
        let is_remembered = history
            .sent
            .front()
            .is_some_and(|(at_ns, _)| *at_ns <= sent_ns);
        if is_remembered
            && history
                .waits
                .back()
                .is_none_or(|(at_ns, _)| *at_ns < sent_ns)
        {
            if let Some(previous) = history.earlier_report(sent_ns) {
                self.learn_cross_traffic(&history, previous, (sent_ns, waited_ns));
            }
            history.waits.push_back((sent_ns, waited_ns));
            self.idle_from_ns = sent_ns.saturating_add(self.drain_ns(waited_ns));
            let first = history.sent.partition_point(|(at_ns, _)| *at_ns < sent_ns);
            for (at_ns, bytes) in history.sent.range(first..) {
                self.add_packet(*at_ns, *bytes);
            }
        }
        self.history = Some(history);
    }

    /// There are no reports any more.
    pub(crate) fn forget(&mut self) {
        self.cross_bit_s = 0;
        if let Some(history) = &mut self.history {
            history.waits.clear();
        }
    }

    /// Whether so many bytes would wait at most, with a packet of `bytes`. The present packet of an idle link always
    /// has room.
    #[cfg(test)]
    pub(crate) fn has_room(&mut self, now_ns: u64, bytes: u32, limit_bytes: u64) -> bool {
        self.advance(now_ns);
        self.room_at_ns(bytes, limit_bytes) <= self.now_ns
    }

    /// From when on there is room, if nothing is sent meanwhile.
    pub(crate) fn room_at_ns(&self, bytes: u32, limit_bytes: u64) -> u64 {
        match limit_bytes.cmp(&u64::from(bytes)) {
            Ordering::Less => self.idle_from_ns,
            _ => self
                .idle_from_ns
                .saturating_sub(self.transmission_ns(limit_bytes - u64::from(bytes))),
        }
    }

    /// The bytes that wait.
    #[cfg(test)]
    pub(crate) fn backlog_bytes(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        let waiting_ns = u128::from(self.idle_from_ns.saturating_sub(self.now_ns));
        (waiting_ns * u128::from(self.free_bit_s()) / (BITS * SECOND_NS)) as u64
    }

    /// The rate of others between two packets, of which it is known when they were sent and how long they waited.
    fn learn_cross_traffic(&mut self, history: &History, previous: (u64, u64), latest: (u64, u64)) {
        let span_ns = u128::from(latest.0 - previous.0);
        let own_bits = BITS * u128::from(history.bytes_between(previous.0, latest.0));
        // The link's time for all bits that came to it, of which some wait now and did not before.
        let served_ns = (span_ns + u128::from(latest.1)).saturating_sub(u128::from(previous.1));
        let all_bits = u128::from(self.rate_bit_s) * served_ns / SECOND_NS;
        let cross_bit_s = all_bits.saturating_sub(own_bits) * SECOND_NS / span_ns.max(1);
        let measured_bit_s = u64::try_from(cross_bit_s).unwrap_or(u64::MAX);
        self.cross_bit_s = if previous.1.min(latest.1) >= NO_QUEUE_NS {
            self.cross_bit_s / 2 + measured_bit_s / 2
        } else {
            (self.cross_bit_s / 100 * DECAY_PERCENT).min(measured_bit_s)
        };
        self.cross_bit_s = self.cross_bit_s.min(self.rate_bit_s / 100 * DECAY_PERCENT);
    }

    fn add_packet(&mut self, at_ns: u64, bytes: u32) {
        if self.room_at_ns(bytes, self.capacity_bytes) <= at_ns {
            let begin_ns = self.idle_from_ns.max(at_ns);
            self.idle_from_ns = begin_ns.saturating_add(self.transmission_ns(u64::from(bytes)));
        }
    }

    /// What others leave of the rate.
    fn free_bit_s(&self) -> u64 {
        self.rate_bit_s - self.cross_bit_s
    }

    /// The time in which what waits for `waited_ns` is sent while others send more.
    fn drain_ns(&self, waited_ns: u64) -> u64 {
        let ns =
            u128::from(waited_ns) * u128::from(self.rate_bit_s) / u128::from(self.free_bit_s());
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// The time in which the transmitter sends so many bytes, rounded up.
    fn transmission_ns(&self, bytes: u64) -> u64 {
        let ns = (u128::from(bytes) * BITS * SECOND_NS).div_ceil(u128::from(self.free_bit_s()));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl History {
    /// The latest reported packet that was sent long enough before `sent_ns`. Earlier ones are forgotten.
    fn earlier_report(&mut self, sent_ns: u64) -> Option<(u64, u64)> {
        let is_long_before = |(at_ns, _): &&(u64, u64)| sent_ns.saturating_sub(*at_ns) >= SPAN_NS;
        let count = self.waits.iter().take_while(is_long_before).count();
        self.waits.drain(..count.saturating_sub(1));
        let begin_ns = self.sent.front()?.0;
        (self.waits.front().copied()).filter(|(at_ns, _)| count > 0 && *at_ns >= begin_ns)
    }

    /// Bytes sent from the one instant on and before the other one.
    fn bytes_between(&self, from_ns: u64, until_ns: u64) -> u64 {
        let at = |instant_ns: u64| self.sent.partition_point(|(at_ns, _)| *at_ns < instant_ns);
        let between = self.sent.range(at(from_ns)..at(until_ns).max(at(from_ns)));
        between.map(|(_, bytes)| u64::from(*bytes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_packet_is_sent_in_the_time_of_its_bytes() {
        let mut queue = VirtualQueue::new(8_000_000, 10_000, false);
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

    /// A queue of which a link that others use with 6.4 of its 8 Mbit/s tells after 100 ms; the rest is sent from here.
    fn beside_others(packets: u64) -> VirtualQueue {
        let mut queue = VirtualQueue::new(8_000_000, 100_000, true);
        let mut real = VirtualQueue::new(8_000_000, 100_000, false);
        let mut waits = VecDeque::new();
        for number in 0..packets {
            let now_ns = number * 5 * MS;
            if number == 0 {
                real.add(now_ns, 20_000); // a burst, so that the link is never idle
            }
            waits.push_back((now_ns, real.idle_from_ns.saturating_sub(now_ns)));
            queue.add(now_ns, 1000);
            real.add(now_ns, 1000 + 4000);
            if number >= 20 {
                let (sent_ns, waited_ns) = waits.pop_front().unwrap();
                queue.learn(sent_ns, waited_ns);
            }
        }
        queue
    }

    #[test]
    fn the_rate_of_others_is_known_by_reports() {
        let mut queue = beside_others(200);
        let others = queue.cross_bit_s;
        assert!((6_300_000..=6_500_000).contains(&others), "{others}");
        let backlog = queue.backlog_bytes(199 * 5 * MS);
        assert!((10_000..22_000).contains(&backlog), "{backlog}");
        queue.forget();
        assert_eq!(queue.cross_bit_s, 0);
    }

    #[test]
    fn reports_of_no_queue_leave_the_rate_of_others_below_what_the_link_had_room_for() {
        let mut queue = beside_others(200);
        let before = queue.cross_bit_s;
        for number in 200..400 {
            queue.add(number * 5 * MS, 1000);
            queue.learn(number * 5 * MS - 100 * MS, 0);
        }
        assert!(queue.cross_bit_s < before / 2, "{}", queue.cross_bit_s);
        assert_eq!(queue.backlog_bytes(400 * 5 * MS), 0);
    }

    proptest! {
        #[test]
        fn no_reports_make_it_panic(
            rate in 1..10_000_000_u64,
            steps in proptest::collection::vec((any::<bool>(), 0..600 * MS, any::<u64>(), any::<u64>()), 1..200),
        ) {
            let mut queue = VirtualQueue::new(rate, 100_000, true);
            let mut now = 0;
            for (is_report, pause, sent_ns, waited_ns) in steps {
                now += pause;
                if is_report {
                    let sent_ns = if sent_ns % 2 == 0 { sent_ns } else { now.saturating_sub(pause) };
                    queue.learn(sent_ns, waited_ns);
                } else {
                    queue.add(now, (sent_ns % 1500) as u32);
                }
                prop_assert!(queue.cross_bit_s < queue.rate_bit_s || queue.rate_bit_s < 2);
                queue.room_at_ns(1000, 50_000);
            }
        }

        /// Whatever is sent and when, the backlog is within the capacity, and room comes when it was foretold.
        #[test]
        fn the_backlog_is_bounded_and_room_comes_in_time(
            rate in 1_000..1_000_000_000_u64,
            capacity in 1_500..200_000_u64,
            sent in proptest::collection::vec((0..5 * MS, 40..1_500_u32), 1..200),
            percent in 0..100_u64,
        ) {
            let mut queue = VirtualQueue::new(rate, capacity, false);
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
