// SPDX-License-Identifier: Apache-2.0
//! Controlled delay: section 5 of RFC 8289, whose names the variables have.

use crate::Nanoseconds;
use crate::queue::{Queue, Waiting};

/// State of the controller.
#[derive(Debug, Clone, Default)]
pub(crate) struct CoDel {
    target_ns: Nanoseconds,
    interval_ns: Nanoseconds,
    /// When the sojourn time will have been above the target for an interval; None: it is below.
    first_above_ns: Option<Nanoseconds>,
    drop_next_ns: Nanoseconds,
    count: u32,
    last_count: u32,
    dropping: bool,
    /// The largest packet seen, used as the MTU.
    mtu_bytes: u32,
}

/// A packet taken from the queue.
struct Taken<P> {
    now: Nanoseconds,
    packet: Waiting<P>,
    ok_to_drop: bool,
}

impl CoDel {
    pub(crate) fn new(target_ns: Nanoseconds, interval_ns: Nanoseconds) -> Self {
        Self {
            target_ns,
            interval_ns,
            ..Self::default()
        }
    }

    /// `dequeue` of the RFC.
    pub(crate) fn take<P>(
        &mut self,
        queue: &mut Queue<P>,
        free_ns: Nanoseconds,
        mut drop: impl FnMut(&Waiting<P>),
    ) -> Option<(Nanoseconds, Waiting<P>)> {
        let Some(mut taken) = self.pop(queue, free_ns) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            self.dropping = taken.ok_to_drop;
            while self.dropping && taken.now >= self.drop_next_ns {
                drop(&taken.packet);
                self.count += 1;
                let Some(next) = self.pop(queue, taken.now) else {
                    self.dropping = false;
                    return None;
                };
                taken = next;
                self.dropping = taken.ok_to_drop;
                if self.dropping {
                    self.drop_next_ns = self.control_law(self.drop_next_ns);
                }
            }
        } else if taken.ok_to_drop {
            let now = taken.now;
            drop(&taken.packet);
            let next = self.pop(queue, now);
            self.dropping = true;
            // Resume at the rate that controlled the queue, if it was controlled not long ago.
            let delta = self.count.saturating_sub(self.last_count);
            let is_recent = now.saturating_sub(self.drop_next_ns) < 16 * self.interval_ns;
            self.count = if delta > 1 && is_recent { delta } else { 1 };
            self.drop_next_ns = self.control_law(now);
            self.last_count = self.count;
            taken = next?;
        }
        Some((taken.now, taken.packet))
    }

    /// `dodequeue` of the RFC.
    fn pop<P>(&mut self, queue: &mut Queue<P>, free_ns: Nanoseconds) -> Option<Taken<P>> {
        let Some((now, packet)) = queue.pop(free_ns) else {
            self.first_above_ns = None;
            return None;
        };
        self.mtu_bytes = self.mtu_bytes.max(packet.bytes);
        let sojourn_ns = now - packet.arrival_ns;
        let mut ok_to_drop = false;
        if sojourn_ns < self.target_ns || queue.backlog_bytes() <= u64::from(self.mtu_bytes) {
            self.first_above_ns = None;
        } else {
            match self.first_above_ns {
                None => self.first_above_ns = Some(now + self.interval_ns),
                Some(first_above_ns) => ok_to_drop = now >= first_above_ns,
            }
        }
        Some(Taken {
            now,
            packet,
            ok_to_drop,
        })
    }

    /// `control_law` of the RFC.
    fn control_law(&self, now: Nanoseconds) -> Nanoseconds {
        let interval_ns = self.interval_ns as f64 / libm::sqrt(f64::from(self.count));
        #[expect(clippy::cast_sign_loss, reason = "a quotient of positive numbers")]
        let interval_ns = interval_ns as Nanoseconds;
        now + interval_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Drops of a queue in which each packet has waited 20 ms, a packet taken each millisecond.
    fn drops(target_ms: u64, backlog: u64) -> Vec<u64> {
        let mut codel = CoDel::new(target_ms * MS, 100 * MS);
        let mut queue = Queue::new(u64::MAX, None, 0);
        let mut drops = Vec::new();
        let mut next = 0;
        for now in (0..1000).map(|ms| 1000 * MS + ms * MS) {
            while queue.len() < backlog as usize {
                queue.push(Waiting {
                    arrival_ns: now - 20 * MS,
                    bytes: 1500,
                    packet: next,
                });
                next += 1;
            }
            codel.take(&mut queue, now, |_| drops.push(now / MS - 1000));
        }
        drops
    }

    #[test]
    fn drops_begin_an_interval_late_and_come_ever_closer() {
        // 100, then 100 / sqrt(n) ms later.
        assert_eq!(drops(5, 5)[..6], [100, 200, 271, 329, 379, 424]);
    }

    #[test]
    fn what_is_below_the_target_or_a_single_packet_is_left_alone() {
        assert_eq!(drops(40, 5), [] as [u64; 0]);
        assert_eq!(drops(5, 2), [] as [u64; 0]);
    }
}
