// SPDX-License-Identifier: Apache-2.0
//! The results of the pings to one target. Pure: times are arguments.
//!
//! Pings are numbered from 0 without end; the wire carries the low 16 bits. A number is recovered as the latest
//! one sent that has those bits, which is right as long as fewer than 65,536 pings are under way.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The number of distinct sequence numbers on the wire.
const WIRE_NUMBERS: u64 = 1 << 16;

/// A ping under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Real time of sending.
    sent_ns: i64,
    /// Whether that is the kernel's stamp.
    stamped: bool,
    /// Monotonic time after which it is lost.
    expires_ns: u64,
}

/// A ping that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// The ping's number.
    pub seq: u64,
    /// Real time of sending.
    pub sent_ns: i64,
}

/// An answered ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PingReply {
    /// The ping's number.
    pub seq: u64,
    /// Real time of sending.
    pub sent_ns: i64,
    /// From sending to the reply.
    pub rtt_ns: u64,
}

/// The figures of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SeriesFigures {
    /// Pings sent, or that should have been.
    pub sent: u64,
    /// Those of them that the kernel refused to send: no route, a full queue; they are lost.
    pub unsent: u64,
    /// Pings answered in time.
    pub received: u64,
    /// Those of them whose sending or reply the kernel did not stamp: this program's clock is used instead.
    pub unstamped: u64,
    /// Replies that came after their ping was given up.
    pub late: u64,
    /// Further replies to answered pings.
    pub duplicates: u64,
    /// Shortest round trip.
    pub rtt_min_ns: Option<u64>,
    /// Median round trip (the lower of the two middle ones).
    pub rtt_median_ns: Option<u64>,
    /// Longest round trip.
    pub rtt_max_ns: Option<u64>,
}

/// The pings to one target.
#[derive(Debug, Default)]
pub struct Series {
    /// The number of the next ping.
    pub next: u64,
    pending: BTreeMap<u64, Pending>,
    lost: BTreeSet<u64>,
    rtts_ns: Vec<u64>,
    /// Those that are counted one by one.
    counts: SeriesFigures,
}

impl Series {
    /// The next ping was sent at `sent_ns` and is lost at `expires_ns` (monotonic).
    pub fn sent(&mut self, sent_ns: i64, expires_ns: u64) {
        let pending = Pending {
            sent_ns,
            stamped: false,
            expires_ns,
        };
        self.pending.insert(self.next, pending);
        self.next += 1;
    }

    /// The ping just noted as sent was not: the kernel refused it.
    pub fn refused(&mut self) {
        self.counts.unsent += 1;
    }

    /// The kernel's stamp of the ping with this wire number. Only the first stamp counts: on virtual
    /// wires a packet keeps its socket, and every further interface that the same kernel sends it out of stamps
    /// it again.
    pub fn stamped(&mut self, sequence: u16, sent_ns: i64) {
        let number = self.number(sequence);
        if let Some(pending) = number.and_then(|number| self.pending.get_mut(&number)) {
            if !pending.stamped {
                pending.sent_ns = sent_ns;
                pending.stamped = true;
            }
        }
    }

    /// A reply with this wire number came at `received_ns`, by the kernel's stamp if `stamped`; None if nobody waits
    /// for it any more.
    pub fn replied(&mut self, sequence: u16, received_ns: i64, stamped: bool) -> Option<PingReply> {
        let seq = self.number(sequence)?;
        let Some(pending) = self.pending.remove(&seq) else {
            let was_lost = self.lost.remove(&seq);
            self.counts.late += u64::from(was_lost);
            self.counts.duplicates += u64::from(!was_lost);
            return None;
        };
        // Negative only if the real-time clock was set back meanwhile.
        let rtt_ns = u64::try_from(received_ns - pending.sent_ns).unwrap_or(0);
        self.rtts_ns.push(rtt_ns);
        self.counts.unstamped += u64::from(!(stamped && pending.stamped));
        Some(PingReply {
            seq,
            sent_ns: pending.sent_ns,
            rtt_ns,
        })
    }

    /// When the first ping under way is lost (monotonic).
    pub fn next_expiry_ns(&self) -> Option<u64> {
        self.pending
            .first_key_value()
            .map(|(_, pending)| pending.expires_ns)
    }

    /// Give up the pings that nothing answered until `now_ns` (monotonic).
    pub fn expire(&mut self, now_ns: u64) -> Vec<Lost> {
        let mut given_up = Vec::new();
        while let Some((&seq, pending)) = self.pending.first_key_value() {
            let sent_ns = pending.sent_ns;
            if pending.expires_ns > now_ns {
                break;
            }
            self.pending.remove(&seq);
            self.lost.insert(seq);
            given_up.push(Lost { seq, sent_ns });
        }
        self.lost = self.lost.split_off(&self.next.saturating_sub(WIRE_NUMBERS));
        given_up
    }

    /// The figures so far.
    pub fn summary(&self) -> SeriesFigures {
        let mut sorted = self.rtts_ns.clone();
        sorted.sort_unstable();
        SeriesFigures {
            sent: self.next,
            received: sorted.len() as u64,
            rtt_min_ns: sorted.first().copied(),
            rtt_median_ns: sorted.get(sorted.len().saturating_sub(1) / 2).copied(),
            rtt_max_ns: sorted.last().copied(),
            ..self.counts
        }
    }

    fn number(&self, sequence: u16) -> Option<u64> {
        let latest = self.next.checked_sub(1)?;
        let behind = u64::from((latest as u16).wrapping_sub(sequence));
        latest.checked_sub(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_are_matched_late_ones_and_duplicates_counted() {
        let mut series = Series::default();
        for (sent_ns, expires_ns) in [(0, 500), (1000, 501), (2000, 502), (3000, 503)] {
            series.sent(sent_ns, expires_ns);
        }
        assert_eq!(
            series.replied(1, 1300, true),
            Some(PingReply {
                seq: 1,
                sent_ns: 1000,
                rtt_ns: 300
            })
        );
        assert_eq!(series.replied(1, 1400, true), None);
        assert_eq!(series.next_expiry_ns(), Some(500));
        assert_eq!(
            series.expire(502),
            [
                Lost { seq: 0, sent_ns: 0 },
                Lost {
                    seq: 2,
                    sent_ns: 2000
                }
            ]
        );
        assert_eq!(series.replied(2, 9000, true), None);
        series.stamped(3, 3010);
        series.stamped(3, 3050); // by the next interface on the way
        assert_eq!(
            series.replied(3, 3110, true),
            Some(PingReply {
                seq: 3,
                sent_ns: 3010,
                rtt_ns: 100
            })
        );
        let summary = series.summary();
        assert_eq!(
            (
                summary.sent,
                summary.received,
                summary.late,
                summary.duplicates
            ),
            (4, 2, 1, 1)
        );
        assert_eq!(
            (
                summary.rtt_min_ns,
                summary.rtt_median_ns,
                summary.rtt_max_ns
            ),
            (Some(100), Some(100), Some(300))
        );
    }

    #[test]
    fn pings_that_were_refused_and_stamps_that_are_not_the_kernels_are_counted() {
        let mut series = Series::default();
        for sent_ns in [0, 1000, 2000, 3000] {
            series.sent(sent_ns, 500);
        }
        series.refused(); // the fourth
        series.stamped(0, 10);
        series.stamped(1, 1010);
        assert!(series.replied(0, 110, true).is_some());
        assert!(series.replied(1, 1110, false).is_some());
        assert!(series.replied(2, 2110, true).is_some());
        assert_eq!(series.expire(500).len(), 1);
        let summary = series.summary();
        assert_eq!((summary.sent, summary.unsent), (4, 1));
        assert_eq!((summary.received, summary.unstamped), (3, 2));
    }

    #[test]
    fn a_reply_to_nothing_is_ignored() {
        let mut series = Series::default();
        assert_eq!(series.replied(0, 5, true), None);
        series.sent(0, 10);
        assert_eq!(series.replied(7, 5, true), None);
        assert_eq!(
            series.summary(),
            SeriesFigures {
                sent: 1,
                ..SeriesFigures::default()
            }
        );
    }

    proptest! {
        #[test]
        fn numbers_survive_wrapping(first in 0..300_000_u64, under_way in 1..200_u64) {
            let mut series = Series { next: first, ..Series::default() };
            for _ in 0..under_way {
                series.sent(0, 1);
            }
            for seq in (first..first + under_way).rev() {
                prop_assert_eq!(series.replied(seq as u16, 0, true).map(|answer| answer.seq), Some(seq));
            }
        }

        #[test]
        fn every_ping_is_answered_or_lost(answered in proptest::collection::vec(any::<bool>(), 0..300)) {
            let mut series = Series::default();
            for (seq, &is_answered) in answered.iter().enumerate() {
                series.sent(0, seq as u64 + 10);
                if is_answered {
                    prop_assert!(series.replied(seq as u16, 1, true).is_some());
                }
            }
            let lost = series.expire(u64::MAX);
            prop_assert_eq!(series.summary().received as usize + lost.len(), answered.len());
            prop_assert_eq!(series.next_expiry_ns(), None);
        }
    }
}
