// SPDX-License-Identifier: Apache-2.0
//! Packets of a tunnel in their order: a value without clock and sockets.
//!
//! A packet that comes after a missing one waits until the missing one comes or is recovered, for a bounded time. Packets
//! are ordered by their numbers in the tunnel, serial numbers (RFC 1982) modulo [`NUMBER_MODULUS`].

use atoll_measures::Count;
use atoll_redundancy::NUMBER_MODULUS;
use std::collections::VecDeque;

/// What waits is bounded: beyond, what is missing before the oldest packet is given up.
pub(crate) const HELD_MAX: Count = Count {
    packets: 2048,
    bytes: 4 << 20,
};

/// What was counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldSums {
    /// Packets that waited, and the sum of their times.
    pub(crate) packets: u64,
    pub(crate) waited_ns: u64,
    /// Missing packets that were not waited for any longer.
    pub(crate) given_up: u64,
}

#[derive(Debug)]
struct HeldPacket<T> {
    item: T,
    bytes: u32,
    since_ns: u64,
}

/// Holds packets until it is their turn.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    hold_ns: u64,
    /// After this time without a packet, those that are missing do not come.
    timeout_ns: u64,
    last_ns: u64,
    /// The number whose turn it is. `None` before the first packet.
    next: Option<u16>,
    /// Packets by how far they are ahead of `next`, whose own index is the first one.
    waiting: VecDeque<Option<HeldPacket<T>>>,
    /// Those that wait, or waited, in the order in which they came: when, and their numbers.
    arrivals: VecDeque<(u64, u16)>,
    held: Count,
    /// Packets whose turn has come.
    released: Vec<T>,
    sums: HeldSums,
}

impl<T> InOrder<T> {
    pub(crate) fn new(hold_ns: u64, timeout_ns: u64) -> Self {
        Self {
            hold_ns,
            timeout_ns,
            last_ns: 0,
            next: None,
            waiting: VecDeque::new(),
            arrivals: VecDeque::new(),
            held: Count::default(),
            released: Vec::new(),
            sums: HeldSums::default(),
        }
    }

    /// A packet of `bytes` came, or was recovered. One whose turn is over, or whose number is not known, does not wait.
    pub(crate) fn push(&mut self, now_ns: u64, number: Option<u16>, bytes: u32, item: T) {
        let silent_ns = now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, now_ns));
        let Some(number) = number else {
            return self.released.push(item);
        };
        if silent_ns >= self.timeout_ns && self.ahead(number) >= NUMBER_MODULUS / 2 {
            self.restart(now_ns); // so many were lost that it may be behind or ahead
        }
        let ahead = self.ahead(number);
        let index = usize::from(ahead);
        if ahead >= NUMBER_MODULUS / 2 || self.waiting.get(index).is_some_and(Option::is_some) {
            return self.released.push(item); // a duplicate, or given up: it does less harm than a loss
        }
        if index == 0 {
            self.released.push(item);
            self.advance();
            return self.release_next(now_ns);
        }
        if self.waiting.len() <= index {
            self.waiting.resize_with(index + 1, || None);
        }
        self.waiting[index] = Some(HeldPacket {
            item,
            bytes,
            since_ns: now_ns,
        });
        self.held.record(bytes);
        self.arrivals.push_back((now_ns, number));
        while self.held.packets > HELD_MAX.packets || self.held.bytes > HELD_MAX.bytes {
            self.give_up_before_oldest(now_ns);
        }
    }

    /// The packets whose turn has come, in order.
    pub(crate) fn released(&mut self) -> std::vec::Drain<'_, T> {
        self.released.drain(..)
    }

    /// Give up all that is missing; the next packet is the first one of another session.
    pub(crate) fn restart(&mut self, now_ns: u64) {
        while !self.arrivals.is_empty() {
            self.give_up_before_oldest(now_ns);
        }
        self.waiting.clear();
        self.next = None;
    }

    /// When [`InOrder::expire`] is to be called next; `None` if nothing waits.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let (since_ns, _) = self.arrivals.front()?;
        Some(since_ns.saturating_add(self.hold_ns))
    }

    /// Give up what is missing before packets that have waited long enough.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        while self.next_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.give_up_before_oldest(now_ns);
        }
    }

    /// The packets that wait.
    pub(crate) fn held(&self) -> Count {
        self.held
    }

    pub(crate) fn sums(&self) -> HeldSums {
        self.sums
    }

    /// How far a number is ahead of the one whose turn it is; from half of all numbers on, it is behind.
    fn ahead(&mut self, number: u16) -> u16 {
        let next = *self.next.get_or_insert(number);
        (number + NUMBER_MODULUS - next) % NUMBER_MODULUS
    }

    /// The turn of the next number.
    fn advance(&mut self) {
        self.next = self.next.map(|next| (next + 1) % NUMBER_MODULUS);
        self.waiting.pop_front();
    }

    fn give_up_before_oldest(&mut self, now_ns: u64) {
        let Some((_, number)) = self.arrivals.front().copied() else {
            return;
        };
        for _ in 0..self.ahead(number) {
            match self.waiting.front_mut().and_then(Option::take) {
                Some(held) => self.release(now_ns, held),
                None => self.sums.given_up += 1,
            }
            self.advance();
        }
        self.release_next(now_ns);
    }

    /// Release the packets whose turn it is.
    fn release_next(&mut self, now_ns: u64) {
        while let Some(held) = self.waiting.front_mut().and_then(Option::take) {
            self.release(now_ns, held);
            self.advance();
        }
        // Those that were released are no longer waited for.
        while let Some((_, number)) = self.arrivals.front().copied() {
            let index = usize::from(self.ahead(number));
            if matches!(self.waiting.get(index), Some(Some(_))) {
                break;
            }
            self.arrivals.pop_front();
        }
    }

    fn release(&mut self, now_ns: u64, held: HeldPacket<T>) {
        self.held.remove(held.bytes);
        self.sums.packets += 1;
        self.sums.waited_ns += now_ns.saturating_sub(held.since_ns);
        self.released.push(held.item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const HOLD_NS: u64 = 20 * MS;
    const OVER_NS: u64 = 2000 * MS;

    fn in_order<T>() -> InOrder<T> {
        InOrder::new(HOLD_NS, OVER_NS)
    }

    /// What is released, in ms and by number, when packets of these numbers come at these ms.
    fn released(arrivals: &[(u64, u16)]) -> (Vec<(u64, u16)>, HeldSums) {
        let mut in_order = in_order();
        let mut found = Vec::new();
        let expire = |in_order: &mut InOrder<u16>, found: &mut Vec<(u64, u16)>, until_ms: u64| {
            while let Some(due_ns) = in_order.next_ns().filter(|at| *at <= until_ms * MS) {
                in_order.expire(due_ns);
                found.extend(in_order.released().map(|item| (due_ns / MS, item)));
            }
        };
        for (ms, number) in arrivals {
            expire(&mut in_order, &mut found, *ms);
            in_order.push(ms * MS, Some(*number), 100, *number);
            found.extend(in_order.released().map(|item| (*ms, item)));
        }
        expire(&mut in_order, &mut found, u64::MAX / MS);
        (found, in_order.sums())
    }

    #[test]
    fn packets_wait_for_the_one_before_them() {
        let (found, sums) = released(&[(0, 8190), (1, 8191), (2, 1), (3, 2), (9, 0), (10, 3)]);
        assert_eq!(
            found,
            [(0, 8190), (1, 8191), (9, 0), (9, 1), (9, 2), (10, 3)]
        );
        let waited_ns = (7 + 6) * MS;
        assert_eq!(
            sums,
            HeldSums {
                packets: 2,
                waited_ns,
                given_up: 0
            }
        );
    }

    #[test]
    fn what_is_missing_is_given_up_after_the_time() {
        let (found, sums) = released(&[(0, 0), (5, 2), (6, 4), (30, 1), (31, 5)]);
        assert_eq!(
            found,
            [(0, 0), (25, 2), (26, 4), (30, 1), (31, 5)],
            "one that comes later nevertheless leaves at once"
        );
        assert_eq!((sums.packets, sums.given_up), (2, 2));
    }

    #[test]
    fn another_session_has_an_order_of_its_own() {
        let mut in_order = in_order();
        for number in [3000, 3002] {
            in_order.push(0, Some(number), 100, number);
        }
        in_order.restart(MS);
        for number in [0, 2, 1] {
            in_order.push(MS, Some(number), 100, number);
        }
        assert_eq!(
            in_order.released().collect::<Vec<_>>(),
            [3000, 3002, 0, 1, 2]
        );
        assert_eq!(in_order.sums().given_up, 1);
    }

    #[test]
    fn order_begins_again_after_a_silence_in_which_numbers_may_have_gone_round() {
        let begin = OVER_NS / MS;
        let after = [(begin, 5000), (begin + 1, 5002), (begin + 2, 5001)];
        let (found, _) = released(&[&[(0, 0)][..], &after].concat());
        assert_eq!(
            found[1..],
            [(begin, 5000), (begin + 2, 5001), (begin + 2, 5002)]
        );
    }

    #[test]
    fn packets_that_are_recovered_too_late_are_no_new_beginning() {
        let mut in_order = in_order();
        let mut found = Vec::new();
        for number in [0].into_iter().chain(71..100) {
            in_order.push(0, Some(number), 100, number);
        }
        in_order.expire(HOLD_NS);
        found.extend(in_order.released());
        assert_eq!((found.len(), in_order.sums().given_up), (30, 70));
        for number in (1..71).chain([100]) {
            in_order.push(2 * HOLD_NS, Some(number), 100, number);
        }
        found.extend(in_order.released());
        assert_eq!(found.len(), 101, "nothing waits");
        assert_eq!(in_order.sums().given_up, 70);
    }

    proptest! {
        /// Whatever comes in whatever order: every packet leaves once, none waits longer than the time, and numbers
        /// that were in time are in order.
        #[test]
        fn every_packet_leaves_once_and_in_time(
            steps in proptest::collection::vec((0..8 * MS, 0..40_u16, any::<bool>(), any::<bool>()), 1..400),
        ) {
            let mut in_order = in_order::<(u32, u64)>();
            let (mut now, mut sent, mut came, mut left) = (0, 0_u32, Vec::new(), Vec::new());
            for (pause, back, is_lost, is_known) in steps {
                now += pause;
                while let Some(due_ns) = in_order.next_ns().filter(|due_ns| *due_ns <= now) {
                    in_order.expire(due_ns);
                    left.extend(in_order.released().map(|item| (item.0, due_ns - item.1)));
                }
                sent += 1;
                if !is_lost {
                    let position = sent.saturating_sub(u32::from(back)); // late, or a duplicate
                    let number = is_known.then_some((position % u32::from(NUMBER_MODULUS)) as u16);
                    came.push(position);
                    in_order.push(now, number, 1500, (position, now));
                    left.extend(in_order.released().map(|item| (item.0, now - item.1)));
                }
                prop_assert_eq!(in_order.held().bytes, 1500 * in_order.held().packets);
            }
            while let Some(due_ns) = in_order.next_ns() {
                in_order.expire(due_ns);
                left.extend(in_order.released().map(|item| (item.0, due_ns - item.1)));
            }
            prop_assert!(left.iter().all(|(_, waited)| *waited <= HOLD_NS));
            let mut all: Vec<u32> = left.iter().map(|(position, _)| *position).collect();
            all.sort_unstable();
            came.sort_unstable();
            prop_assert_eq!(all, came);
            prop_assert_eq!(in_order.held(), Count::default());
        }

        /// If each packet comes in time, lost ones and others in any order, all are in order.
        #[test]
        fn packets_that_come_in_time_are_in_order(
            delays in proptest::collection::vec(0..HOLD_NS, 2..3000),
        ) {
            // 100 us from packet to packet; the order is that of arrivals.
            let mut arrivals: Vec<(u64, usize)> = delays.iter().enumerate()
                .map(|(position, delay)| (position as u64 * MS / 10 + if position == 0 { 0 } else { *delay }, position)).collect();
            arrivals.sort_unstable();
            let mut in_order = in_order();
            let mut left = Vec::new();
            for (now, position) in arrivals {
                in_order.expire(now);
                let number = (position % usize::from(NUMBER_MODULUS)) as u16;
                in_order.push(now, Some(number), 100, position);
                left.extend(in_order.released());
            }
            prop_assert_eq!(left.len(), delays.len());
            prop_assert!(left.is_sorted());
            prop_assert_eq!(in_order.sums().given_up, 0);
        }

        #[test]
        fn what_waits_is_bounded(count in 1..6000_u16, bytes in 1..9000_u32) {
            let mut in_order = in_order();
            let mut left = 0;
            in_order.push(0, Some(0), bytes, ());
            for number in 2..=count {
                in_order.push(0, Some(number), bytes, ());
                left += in_order.released().count() as u64;
                prop_assert!(in_order.held().packets <= HELD_MAX.packets && in_order.held().bytes <= HELD_MAX.bytes);
            }
            left += in_order.released().count() as u64;
            prop_assert_eq!(left + in_order.held().packets, 1 + u64::from(count.saturating_sub(1)));
        }
    }
}
