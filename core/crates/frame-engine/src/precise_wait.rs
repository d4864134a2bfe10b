// SPDX-License-Identifier: Apache-2.0
//! How to wait for an instant: sleep most of it, spin the rest, and never spin much.
//!
//! A sleeping thread wakes 5 to 100 us late. Sleeping to shortly before the instant and watching the
//! clock from there halves the error (docs/decisions/0008-link-engine-one-thread.md). At rates where packets are
//! as close as the spin is long that would occupy a processor for ever, which the kernel forbids
//! real-time threads (it stops them for 50 ms a second, `sched_rt_runtime_us`): a budget ends it.

/// Share of time that may be spent spinning: one part in this many.
const SPIN_SHARE: u64 = 10;
/// Longest time that can be saved up for spinning.
const BUDGET_MAX_NS: u64 = 1_000_000;
/// `poll` adds up to 1/1000 of its time-out to it for threads that are not real-time
/// (`select_estimate_accuracy` in fs/select.c of Linux).
const POLL_SLACK_SHARE: u64 = 1000;

/// How the machine lets a thread wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waking {
    /// How long to spin before each instant, at most; 0: never.
    pub(crate) spin_ns: u64,
    /// Whether time-outs of `poll` are kept exactly: those of a real-time thread are.
    pub(crate) exact: bool,
}

/// A wait that spins before it is due, within a budget based on the cost of earlier waits.
#[derive(Debug)]
pub(crate) struct PreciseWait {
    waking: Waking,
    budget_ns: u64,
    refilled_ns: u64,
}

impl PreciseWait {
    /// Nothing saved up at `now`.
    pub(crate) fn new(waking: Waking, now: u64) -> Self {
        Self {
            waking,
            budget_ns: 0,
            refilled_ns: now,
        }
    }

    /// How long to sleep at `now` when waiting for `due`. 0: the instant is so near that it is to be
    /// waited for with [`PreciseWait::spin`], or it has come.
    pub(crate) fn sleep_ns(&mut self, now: u64, due: u64) -> u64 {
        let passed_ns = now.saturating_sub(self.refilled_ns);
        self.budget_ns = (self.budget_ns + passed_ns / SPIN_SHARE).min(BUDGET_MAX_NS);
        self.refilled_ns = now - passed_ns % SPIN_SHARE;
        let sleep_ns = due.saturating_sub(now).saturating_sub(self.affordable_ns());
        if self.waking.exact {
            sleep_ns
        } else {
            sleep_ns - sleep_ns / POLL_SLACK_SHARE
        }
    }

    /// Watch `clock` until `due`, if that is near enough and has been saved up for.
    pub(crate) fn spin(&mut self, due: u64, clock: impl Fn() -> u64) {
        if self.affordable_ns() == 0 {
            return;
        }
        let begin = clock();
        if due.saturating_sub(begin) > self.affordable_ns() {
            return;
        }
        let mut now = begin;
        while now < due {
            std::hint::spin_loop();
            now = clock();
        }
        self.budget_ns = self.budget_ns.saturating_sub(now - begin);
    }

    fn affordable_ns(&self) -> u64 {
        if self.budget_ns < self.waking.spin_ns {
            0
        } else {
            self.waking.spin_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn ordinary(spin_ns: u64) -> PreciseWait {
        let exact = false;
        PreciseWait::new(Waking { spin_ns, exact }, 0)
    }

    /// Wait for instants `gap_ns` apart with a sleep that is 5 us late; the share of time spent spinning,
    /// in percent.
    fn spinning_percent(spin_ns: u64, gap_ns: u64) -> u64 {
        let now = Cell::new(0);
        let mut pace = ordinary(spin_ns);
        let mut spun = 0;
        for packet in 1..=10_000 {
            let due = packet * gap_ns;
            while now.get() < due {
                let sleep_ns = pace.sleep_ns(now.get(), due);
                now.set(now.get() + sleep_ns + if sleep_ns > 0 { 5_000 } else { 100 });
                let begin = now.get();
                pace.spin(due, || {
                    now.set(now.get() + 50);
                    now.get()
                });
                spun += now.get() - begin;
            }
        }
        100 * spun / now.get()
    }

    #[test]
    fn the_instant_is_slept_for_and_then_watched() {
        let mut pace = ordinary(60_000);
        assert_eq!(pace.sleep_ns(10_000_000, 11_000_000), 940_000 - 940);
        assert_eq!(pace.sleep_ns(10_950_000, 11_000_000), 0);
    }

    #[test]
    fn without_spinning_the_whole_time_is_slept() {
        let mut pace = ordinary(0);
        assert_eq!(pace.sleep_ns(10_000_000, 10_000_999), 999);
        assert_eq!(pace.sleep_ns(11_000_000, 10_000_000), 0);
    }

    #[test]
    fn time_outs_that_are_exact_are_used_whole() {
        let waking = Waking {
            spin_ns: 0,
            exact: true,
        };
        assert_eq!(
            PreciseWait::new(waking, 0).sleep_ns(0, 250_000_000),
            250_000_000
        );
    }

    #[test]
    fn spinning_stays_a_tenth_however_close_the_packets() {
        assert!(spinning_percent(60_000, 750_000) > 0);
        for gap_ns in [1_000, 37_500, 100_000, 750_000] {
            assert!(spinning_percent(60_000, gap_ns) <= 11, "{gap_ns} ns");
        }
    }
}
