// SPDX-License-Identifier: Apache-2.0
//! When repair packets leave: a value without clock and sockets.
//!
//! Packets are served in the order in which they were made. One that is older than `stale_ns` when its turn comes is
//! dropped: by then, its receiver's TCP has sent the data again.

use crate::virtual_queue::VirtualQueue;
use atoll_measures::Count;
use std::collections::VecDeque;

/// The bytes of waiting packets are bounded: beyond, the oldest are dropped.
pub(crate) const WAITING_MAX_BYTES: u64 = 8 << 20;

/// When a repair packet may leave.
#[derive(Debug, Clone)]
pub(crate) enum Release {
    /// When it was made.
    AtOnce,
    /// After so much time, or when so many further generations are complete, if that is earlier.
    Deferred {
        after_ns: u64,
        generations: Option<u64>,
    },
    /// When the queue before the link has room for it: `room_bytes` wait at most with it.
    Room {
        queue: VirtualQueue,
        room_bytes: u64,
    },
}

#[derive(Debug)]
struct WaitingPacket<T> {
    item: T,
    bytes: u32,
    made_ns: u64,
    /// Generations that were complete when it was made.
    generations: u64,
}

/// Holds repair packets until they may leave.
#[derive(Debug)]
pub(crate) struct Scheduler<T> {
    release: Release,
    stale_ns: u64,
    waiting: VecDeque<WaitingPacket<T>>,
    held: Count,
    generations: u64,
    dropped: u64,
}

impl<T> Scheduler<T> {
    pub(crate) fn new(release: Release, stale_ns: u64) -> Self {
        Self {
            release,
            stale_ns,
            waiting: VecDeque::new(),
            held: Count::default(),
            generations: 0,
            dropped: 0,
        }
    }

    /// A packet of `bytes` that is no repair packet leaves for the link.
    pub(crate) fn sent(&mut self, now_ns: u64, bytes: u32) {
        if let Release::Room { queue, .. } = &mut self.release {
            queue.add(now_ns, bytes);
        }
    }

    /// A packet that was sent at `sent_ns` waited for `waited_ns` before the link, by a report.
    pub(crate) fn learn(&mut self, sent_ns: u64, waited_ns: u64) {
        if let Release::Room { queue, .. } = &mut self.release {
            queue.learn(sent_ns, waited_ns);
        }
    }

    /// There are no reports any more.
    pub(crate) fn forget_reports(&mut self) {
        if let Release::Room { queue, .. } = &mut self.release {
            queue.forget();
        }
    }

    /// Drop the packets that nobody needs any more: how many.
    pub(crate) fn discard(&mut self, is_useless: impl Fn(&T) -> bool) -> u64 {
        let (before, held) = (self.waiting.len(), &mut self.held);
        self.waiting.retain(|packet| {
            let stays = !is_useless(&packet.item);
            if !stays {
                held.remove(packet.bytes);
            }
            stays
        });
        (before - self.waiting.len()) as u64
    }

    /// A repair packet of `bytes` was made.
    pub(crate) fn push(&mut self, now_ns: u64, bytes: u32, item: T) {
        self.held.record(bytes);
        self.waiting.push_back(WaitingPacket {
            item,
            bytes,
            made_ns: now_ns,
            generations: self.generations,
        });
        while self.held.bytes > WAITING_MAX_BYTES {
            self.drop_first();
        }
    }

    /// A generation is complete: it has no more packets but those that wait here.
    pub(crate) fn generation_ended(&mut self) {
        self.generations += 1;
    }

    /// When [`Scheduler::pop`] is to be called next; `None` if nothing waits.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let first = self.waiting.front()?;
        let due_ns = match &self.release {
            Release::AtOnce => first.made_ns,
            Release::Deferred {
                after_ns,
                generations,
            } => {
                let behind = self.generations - first.generations;
                if generations.is_some_and(|least| behind > least) {
                    first.made_ns
                } else {
                    first.made_ns.saturating_add(*after_ns)
                }
            }
            Release::Room { queue, room_bytes } => queue.room_at_ns(first.bytes, *room_bytes),
        };
        Some(due_ns.min(first.made_ns.saturating_add(self.stale_ns)))
    }

    /// The next packet, if it may leave at `now_ns`. Those that are too old are dropped.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<T> {
        while let Some(first) = self.waiting.front() {
            if self.next_ns().is_none_or(|due_ns| due_ns > now_ns) {
                return None;
            }
            if now_ns.saturating_sub(first.made_ns) >= self.stale_ns {
                self.drop_first();
                continue;
            }
            let first = self.waiting.pop_front()?;
            self.held.remove(first.bytes);
            self.sent(now_ns, first.bytes);
            return Some(first.item);
        }
        None
    }

    /// The packets that wait.
    pub(crate) fn held(&self) -> Count {
        self.held
    }

    /// Packets that were dropped since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.waiting.pop_front() {
            self.held.remove(first.bytes);
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const STALE_NS: u64 = 400 * MS;
    const SIZE: u32 = 1000;

    /// All that leaves until `until_ms`, with the instants in ms; nothing else is sent meanwhile.
    fn leaves(scheduler: &mut Scheduler<u32>, until_ms: u64) -> Vec<(u64, u32)> {
        let mut found = Vec::new();
        while let Some(at) = scheduler.next_ns().filter(|at| *at <= until_ms * MS) {
            found.extend(scheduler.pop(at).map(|item| (at / MS, item)));
        }
        found
    }

    fn with_two(release: Release) -> Scheduler<u32> {
        let mut scheduler = Scheduler::new(release, STALE_NS);
        scheduler.push(0, SIZE, 1);
        scheduler.push(0, SIZE, 2);
        scheduler.generation_ended();
        scheduler
    }

    #[test]
    fn at_once_is_at_once() {
        assert_eq!(leaves(&mut with_two(Release::AtOnce), 9), [(0, 1), (0, 2)]);
    }

    #[test]
    fn deferred_packets_wait_for_time_or_for_generations() {
        let deferred = |generations| {
            with_two(Release::Deferred {
                after_ns: 50 * MS,
                generations,
            })
        };
        assert_eq!(leaves(&mut deferred(None), 90), [(50, 1), (50, 2)]);
        let mut after_two = deferred(Some(2));
        after_two.generation_ended();
        assert_eq!(after_two.pop(MS), None, "one further generation");
        after_two.generation_ended();
        assert_eq!(after_two.pop(MS), Some(1), "its own, and two further ones");
        assert_eq!(
            leaves(&mut deferred(Some(2)), 90),
            [(50, 1), (50, 2)],
            "without traffic"
        );
    }

    #[test]
    fn titrated_packets_leave_when_the_queue_has_room() {
        // 1 ms for each packet; five wait, and with a repair packet there may be three.
        let room_bytes = 3 * u64::from(SIZE);
        let mut scheduler = with_two(Release::Room {
            queue: VirtualQueue::new(8_000_000, 10_000, false),
            room_bytes,
        });
        (0..5).for_each(|_| scheduler.sent(0, SIZE));
        assert_eq!(leaves(&mut scheduler, 90), [(3, 1), (4, 2)]);
    }

    #[test]
    fn titrated_packets_are_dropped_if_there_was_no_room_in_time() {
        let mut scheduler = with_two(Release::Room {
            queue: VirtualQueue::new(8_000_000, 10_000, false),
            room_bytes: 3 * u64::from(SIZE),
        });
        for ms in 0..=400 {
            (0..10).for_each(|_| scheduler.sent(ms * MS, SIZE));
            assert_eq!(scheduler.pop(ms * MS), None, "at {ms} ms");
        }
        assert_eq!((scheduler.dropped(), scheduler.held().packets), (2, 0));
    }

    #[test]
    fn useless_packets_are_dropped() {
        let mut scheduler = with_two(Release::AtOnce);
        assert_eq!(scheduler.discard(|item| *item == 1), 1);
        assert_eq!(
            (scheduler.held().packets, scheduler.held().bytes),
            (1, u64::from(SIZE))
        );
        assert_eq!((scheduler.pop(0), scheduler.pop(0)), (Some(2), None));
        assert_eq!(scheduler.dropped(), 0, "they are counted apart");
    }

    fn release() -> impl Strategy<Value = Release> {
        prop_oneof![
            Just(Release::AtOnce),
            (0..600 * MS, proptest::option::of(0..4_u64)).prop_map(|(after_ns, generations)| {
                Release::Deferred {
                    after_ns,
                    generations,
                }
            }),
            (100_000..100_000_000_u64, 1_500..100_000_u64).prop_map(|(rate, room_bytes)| {
                Release::Room {
                    queue: VirtualQueue::new(rate, 100_000, false),
                    room_bytes,
                }
            }),
        ]
    }

    proptest! {
        /// Every packet leaves or is dropped, once, in order, never early for its age, and what waits is bounded.
        #[test]
        fn every_packet_leaves_or_is_dropped(
            release in release(),
            made in proptest::collection::vec((0..40 * MS, 40..60_000_u32, 0..3_u8), 1..400),
        ) {
            let mut scheduler = Scheduler::new(release, STALE_NS);
            let (mut now, mut left) = (0, Vec::new());
            let mut born = Vec::new();
            for (number, (pause, bytes, kind)) in made.into_iter().enumerate() {
                now += pause;
                match kind {
                    0 => scheduler.sent(now, bytes),
                    1 => scheduler.generation_ended(),
                    _ => {
                        scheduler.push(now, bytes, number);
                        born.push((number, now));
                    }
                }
                prop_assert!(scheduler.held().bytes <= WAITING_MAX_BYTES);
                while let Some(item) = scheduler.pop(now) {
                    left.push((item, now));
                }
                if let Some(next_ns) = scheduler.next_ns() {
                    prop_assert!(next_ns > now, "what may leave has left");
                }
            }
            while let Some(next_ns) = scheduler.next_ns() {
                now = now.max(next_ns);
                left.extend(scheduler.pop(now).map(|item| (item, now)));
            }
            prop_assert_eq!(left.len() as u64 + scheduler.dropped(), born.len() as u64);
            prop_assert!(left.is_sorted_by_key(|(item, _)| *item));
            for (item, at) in left {
                let made_ns = born.iter().find(|(number, _)| *number == item).map(|(_, made)| *made);
                prop_assert!(made_ns.is_some_and(|made| at < made + STALE_NS));
            }
        }

        /// Titrated packets never overfill the queue that the coder itself knows of.
        #[test]
        fn titration_keeps_within_its_room(
            traffic in proptest::collection::vec((0..3 * MS, 40..1_500_u32, any::<bool>()), 1..300),
        ) {
            let room_bytes = 20_000;
            let queue = || VirtualQueue::new(8_000_000, 50_000, false);
            let mut scheduler = Scheduler::new(Release::Room { queue: queue(), room_bytes }, STALE_NS);
            let (mut real, mut now) = (queue(), 0);
            for (pause, bytes, repair) in traffic {
                now += pause;
                if repair {
                    scheduler.push(now, bytes, bytes);
                } else {
                    scheduler.sent(now, bytes);
                    real.add(now, bytes);
                }
                while let Some(bytes) = scheduler.pop(now) {
                    real.add(now, bytes);
                    prop_assert!(real.backlog_bytes(now) <= room_bytes + 1);
                }
            }
        }
    }
}
