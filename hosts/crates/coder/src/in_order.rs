// SPDX-License-Identifier: Apache-2.0
//! Packets of a tunnel in their order: a value without clock and sockets.
//!
//! A packet that comes after a missing one waits until the missing one comes or is recovered, for a bounded time. Packets
//! are ordered by their numbers in the tunnel, serial numbers (RFC 1982) modulo [`NUMBERS`].

use atoll_measures::Count;
use atoll_redundancy::NUMBERS;
use std::collections::VecDeque;

/// What waits is bounded: beyond, what is missing before the oldest packet is given up.
pub(crate) const HELD_MAX: Count = Count {
    packets: 2048,
    bytes: 4 << 20,
};
/// After so many packets in a row whose turn was over, the other coder has begun again.
const LATE_MAX: u32 = 64;

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
struct Held<T> {
    item: T,
    bytes: u32,
    since_ns: u64,
}

/// Holds packets until it is their turn.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    hold_ns: u64,
    /// The number whose turn it is. `None` before the first packet.
    next: Option<u16>,
    /// Packets by how far they are ahead of `next`, whose own place is the first one.
    waiting: VecDeque<Option<Held<T>>>,
    /// Those that wait, or waited, in the order in which they came: when, and their numbers.
    arrivals: VecDeque<(u64, u16)>,
    held: Count,
    late_in_a_row: u32,
    sums: HeldSums,
}

impl<T> InOrder<T> {
    pub(crate) fn new(hold_ns: u64) -> Self {
        Self {
            hold_ns,
            next: None,
            waiting: VecDeque::new(),
            arrivals: VecDeque::new(),
            held: Count::default(),
            late_in_a_row: 0,
            sums: HeldSums::default(),
        }
    }

    /// A packet of `bytes` came, or was recovered. `release` gets the packets whose turn it is now: this one, others, or
    /// none.
    ///
    /// One whose turn is over, or whose number is not known, does not wait.
    pub(crate) fn take(
        &mut self,
        now_ns: u64,
        number: Option<u16>,
        recovered: bool,
        (bytes, item): (u32, T),
        release: &mut dyn FnMut(T),
    ) {
        let Some(number) = number else {
            return release(item);
        };
        let ahead = self.ahead(number);
        let is_late = ahead >= NUMBERS / 2;
        if !recovered {
            self.late_in_a_row = if is_late { self.late_in_a_row + 1 } else { 0 };
        }
        if self.late_in_a_row > LATE_MAX {
            self.restart(now_ns, release);
            self.next = Some((number + 1) % NUMBERS);
            return release(item);
        }
        let place = usize::from(ahead);
        if is_late || self.waiting.get(place).is_some_and(Option::is_some) {
            return release(item); // a duplicate, or given up: it does less harm than a loss
        }
        if place == 0 {
            release(item);
            self.step();
            self.release_next(now_ns, release);
            return;
        }
        if self.waiting.len() <= place {
            self.waiting.resize_with(place + 1, || None);
        }
        self.waiting[place] = Some(Held {
            item,
            bytes,
            since_ns: now_ns,
        });
        self.held.record(bytes);
        self.arrivals.push_back((now_ns, number));
        while self.held.packets > HELD_MAX.packets || self.held.bytes > HELD_MAX.bytes {
            self.give_up_before_oldest(now_ns, release);
        }
    }

    /// When [`InOrder::expire`] is to be called next; `None` if nothing waits.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let (since_ns, _) = self.arrivals.front()?;
        Some(since_ns.saturating_add(self.hold_ns))
    }

    /// Give up what is missing before packets that have waited long enough, and release those.
    pub(crate) fn expire(&mut self, now_ns: u64, release: &mut dyn FnMut(T)) {
        while self.next_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.give_up_before_oldest(now_ns, release);
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
        (number + NUMBERS - next) % NUMBERS
    }

    /// The turn of the next number.
    fn step(&mut self) {
        self.next = self.next.map(|next| (next + 1) % NUMBERS);
        self.waiting.pop_front();
    }

    fn give_up_before_oldest(&mut self, now_ns: u64, release: &mut dyn FnMut(T)) {
        let Some((_, number)) = self.arrivals.front().copied() else {
            return;
        };
        for _ in 0..self.ahead(number) {
            match self.waiting.front_mut().and_then(Option::take) {
                Some(held) => self.release(now_ns, held, release),
                None => self.sums.given_up += 1,
            }
            self.step();
        }
        self.release_next(now_ns, release);
    }

    /// Release the packets whose turn it is.
    fn release_next(&mut self, now_ns: u64, release: &mut dyn FnMut(T)) {
        while let Some(held) = self.waiting.front_mut().and_then(Option::take) {
            self.release(now_ns, held, release);
            self.step();
        }
        // Those that were released are no longer waited for.
        while let Some((_, number)) = self.arrivals.front().copied() {
            let place = usize::from(self.ahead(number));
            if matches!(self.waiting.get(place), Some(Some(_))) {
                break;
            }
            self.arrivals.pop_front();
        }
    }

    fn release(&mut self, now_ns: u64, held: Held<T>, release: &mut dyn FnMut(T)) {
        self.held.remove(held.bytes);
        self.sums.packets += 1;
        self.sums.waited_ns += now_ns.saturating_sub(held.since_ns);
        release(held.item);
    }

    fn restart(&mut self, now_ns: u64, release: &mut dyn FnMut(T)) {
        while !self.arrivals.is_empty() {
            self.give_up_before_oldest(now_ns, release);
        }
        self.waiting.clear();
        self.late_in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const HOLD_NS: u64 = 20 * MS;

    /// What is released, in ms and by number, when packets of these numbers come at these ms.
    fn released(arrivals: &[(u64, u16)]) -> (Vec<(u64, u16)>, HeldSums) {
        let mut in_order = InOrder::new(HOLD_NS);
        let mut found = Vec::new();
        for (ms, number) in arrivals {
            while let Some(due_ns) = in_order.next_ns().filter(|due_ns| *due_ns <= ms * MS) {
                in_order.expire(due_ns, &mut |item| found.push((due_ns / MS, item)));
            }
            let item = (100, *number);
            in_order.take(ms * MS, Some(*number), false, item, &mut |item| {
                found.push((*ms, item));
            });
        }
        while let Some(due_ns) = in_order.next_ns() {
            in_order.expire(due_ns, &mut |item| found.push((due_ns / MS, item)));
        }
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
    fn numbers_that_begin_again_wait_only_for_a_while() {
        let mut arrivals: Vec<(u64, u16)> = (0..100).map(|number| (0, number + 3000)).collect();
        arrivals.extend(
            (0..200)
                .filter(|number| *number != 150)
                .map(|number| (1, number)),
        );
        arrivals.push((2, 150));
        let (found, _) = released(&arrivals);
        let last: Vec<u16> = found
            .iter()
            .rev()
            .take(51)
            .map(|(_, number)| *number)
            .collect();
        assert_eq!(
            last,
            (149..200).rev().collect::<Vec<_>>(),
            "they are in order again"
        );
    }

    #[test]
    fn packets_that_are_recovered_too_late_are_no_new_beginning() {
        let mut in_order = InOrder::new(HOLD_NS);
        let mut found = Vec::new();
        for number in [0].into_iter().chain(71..100) {
            in_order.take(0, Some(number), false, (100, number), &mut |item| {
                found.push(item);
            });
        }
        in_order.expire(HOLD_NS, &mut |item| found.push(item));
        assert_eq!((found.len(), in_order.sums().given_up), (30, 70));
        for number in 1..71 {
            in_order.take(
                2 * HOLD_NS,
                Some(number),
                true,
                (100, number),
                &mut |item| found.push(item),
            );
        }
        in_order.take(2 * HOLD_NS, Some(100), false, (100, 100), &mut |item| {
            found.push(item);
        });
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
            let mut in_order = InOrder::new(HOLD_NS);
            let (mut now, mut sent, mut came, mut left) = (0, 0_u32, Vec::new(), Vec::new());
            for (pause, back, is_lost, is_known) in steps {
                now += pause;
                while let Some(due_ns) = in_order.next_ns().filter(|due_ns| *due_ns <= now) {
                    in_order.expire(due_ns, &mut |item: (u32, u64)| left.push((item.0, due_ns - item.1)));
                }
                sent += 1;
                if !is_lost {
                    let position = sent.saturating_sub(u32::from(back)); // late, or a duplicate
                    let number = is_known.then_some((position % u32::from(NUMBERS)) as u16);
                    came.push(position);
                    in_order.take(now, number, back > 0, (1500, (position, now)), &mut |item| left.push((item.0, now - item.1)));
                }
                prop_assert_eq!(in_order.held().bytes, 1500 * in_order.held().packets);
            }
            while let Some(due_ns) = in_order.next_ns() {
                in_order.expire(due_ns, &mut |item| left.push((item.0, due_ns - item.1)));
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
            let mut in_order = InOrder::new(HOLD_NS);
            let mut left = Vec::new();
            for (now, position) in arrivals {
                in_order.expire(now, &mut |item| left.push(item));
                let number = (position % usize::from(NUMBERS)) as u16;
                in_order.take(now, Some(number), false, (100, position), &mut |item| left.push(item));
            }
            prop_assert_eq!(left.len(), delays.len());
            prop_assert!(left.is_sorted());
            prop_assert_eq!(in_order.sums().given_up, 0);
        }

        #[test]
        fn what_waits_is_bounded(count in 1..6000_u16, bytes in 1..9000_u32) {
            let mut in_order = InOrder::new(HOLD_NS);
            let mut left = 0;
            in_order.take(0, Some(0), false, (bytes, ()), &mut |()| left += 1);
            for number in 2..=count {
                in_order.take(0, Some(number), false, (bytes, ()), &mut |()| left += 1);
                prop_assert!(in_order.held().packets <= HELD_MAX.packets && in_order.held().bytes <= HELD_MAX.bytes);
            }
            prop_assert_eq!(left + in_order.held().packets, 1 + u64::from(count.saturating_sub(1)));
        }
    }
}
