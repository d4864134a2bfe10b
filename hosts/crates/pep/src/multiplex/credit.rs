// SPDX-License-Identifier: Apache-2.0
//! How much a PEP may send of each stream: what the other one promises to keep if the stream's receiver is slow.

/// The bytes that the side that opens a stream may send before it is answered.
pub(crate) const FIRST_CREDIT: u64 = 1 << 14;

/// The least that a stream is promised, however much others were.
const LEAST_CREDIT: u64 = 1 << 12;

/// Memory for the received and not yet delivered bytes of all streams. What is promised exceeds `total` by at most
/// [`FIRST_CREDIT`] for each stream.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u64,
    /// To one stream at most.
    stream_max: u64,
    pub(super) promised: u64,
}

/// The receiver's side of a stream.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The bytes that the sender may still send.
    allowed: u64,
    /// Received, not delivered.
    waiting: u64,
}

/// A peer has sent more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded;

impl Budget {
    pub(crate) fn new(total: u64, stream_max: u64) -> Self {
        Self {
            total,
            stream_max,
            promised: 0,
        }
    }

    /// For a stream that has shown that it is read. Idle streams keep what they were promised, so that a single one
    /// never gets more than a part of what is left.
    fn of_stream(&self) -> u64 {
        let part = self.total.saturating_sub(self.promised) / 8;
        part.clamp(LEAST_CREDIT, self.stream_max.max(LEAST_CREDIT))
    }

    /// For a new one, the `streams`-th: thousands of them are promised two thirds of the memory together.
    fn of_new_stream(&self, streams: usize) -> u64 {
        let part = self.total / 16 / (streams as u64).max(1);
        part.clamp(LEAST_CREDIT, self.stream_max.max(LEAST_CREDIT))
            .min(self.of_stream())
    }
}

impl Window {
    /// A stream of which the sender may send [`FIRST_CREDIT`] without an answer.
    pub(crate) fn of_opened(budget: &mut Budget) -> Self {
        budget.promised += FIRST_CREDIT;
        Self {
            allowed: FIRST_CREDIT,
            waiting: 0,
        }
    }

    /// Raise what the sender of a new stream, the `streams`-th, may send; returns the increase.
    pub(crate) fn first_credit(&mut self, budget: &mut Budget, streams: usize) -> u32 {
        let target = budget.of_new_stream(streams);
        self.raise_to(target, budget)
    }

    /// Bytes have come.
    ///
    /// # Errors
    /// More than were promised.
    pub(crate) fn receive(&mut self, bytes: u64) -> Result<(), Exceeded> {
        self.allowed = self.allowed.checked_sub(bytes).ok_or(Exceeded)?;
        self.waiting += bytes;
        Ok(())
    }

    /// So many of those that wait are left: the others were delivered.
    pub(crate) fn deliver(&mut self, remaining: u64, budget: &mut Budget) {
        budget.promised -= self.waiting.saturating_sub(remaining);
        self.waiting = self.waiting.min(remaining);
    }

    /// Raise what the sender may send; returns the increase, 0 as long as it is little.
    pub(crate) fn raise(&mut self, budget: &mut Budget) -> u32 {
        let target = budget.of_stream();
        let is_little = self.allowed + self.waiting > target / 4 * 3;
        if is_little {
            0
        } else {
            self.raise_to(target, budget)
        }
    }

    fn raise_to(&mut self, target: u64, budget: &mut Budget) -> u32 {
        let increase = target.saturating_sub(self.allowed + self.waiting);
        let increase = u32::try_from(increase).unwrap_or(u32::MAX);
        self.allowed += u64::from(increase);
        budget.promised += u64::from(increase);
        increase
    }

    /// The stream has ended.
    pub(crate) fn close(&mut self, budget: &mut Budget) {
        budget.promised -= self.allowed + self.waiting;
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_single_stream_gets_all_that_one_may_have_at_once() {
        let mut budget = Budget::new(256 * MIB, 5 * MIB);
        let mut window = Window::default();
        assert_eq!(u64::from(window.first_credit(&mut budget, 1)), 5 * MIB);
        window.receive(2 * MIB).unwrap();
        window.deliver(2 * MIB, &mut budget);
        assert_eq!(window.raise(&mut budget), 0, "nothing was delivered");
        window.deliver(0, &mut budget);
        assert_eq!(u64::from(window.raise(&mut budget)), 2 * MIB);
        assert_eq!(window.receive(5 * MIB + 1), Err(Exceeded));
        window.close(&mut budget);
        assert_eq!(budget.promised, 0);
    }

    #[test]
    fn thousands_of_idle_streams_leave_a_busy_one_its_window() {
        let mut budget = Budget::new(256 * MIB, 5 * MIB);
        for streams in 1..10_000 {
            Window::default().first_credit(&mut budget, streams);
        }
        let mut busy = Window::default();
        let first = u64::from(busy.first_credit(&mut budget, 10_000));
        let promised = budget.promised;
        assert!(promised < 256 * MIB / 3 * 2, "{promised}");
        busy.receive(first).unwrap();
        busy.deliver(0, &mut budget);
        assert_eq!(u64::from(busy.raise(&mut budget)), 5 * MIB);
    }

    proptest! {
        #[test]
        fn what_is_promised_is_bounded_whatever_is_delivered(
            steps in prop::collection::vec((0_usize..40, 0_u64..(4 * MIB), 0_u64..(4 * MIB)), 1..300)
        ) {
            let mut budget = Budget::new(16 * MIB, 4 * MIB);
            let mut windows: Vec<Window> = Vec::new();
            for (which, received, delivered) in steps {
                if which >= windows.len() {
                    let mut window = Window::of_opened(&mut budget);
                    window.first_credit(&mut budget, windows.len() + 1);
                    windows.push(window);
                    continue;
                }
                let window = &mut windows[which];
                window.receive(received.min(window.allowed)).unwrap();
                let left = window.waiting.saturating_sub(delivered);
                window.deliver(left, &mut budget);
                window.raise(&mut budget);
                let together: u64 = windows.iter().map(|one| one.allowed + one.waiting).sum();
                prop_assert_eq!(together, budget.promised);
                prop_assert!(budget.promised <= 16 * MIB + windows.len() as u64 * FIRST_CREDIT);
            }
            for window in &mut windows {
                window.close(&mut budget);
            }
            prop_assert_eq!(budget.promised, 0);
        }
    }
}
