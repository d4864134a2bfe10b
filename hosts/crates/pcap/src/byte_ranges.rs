// SPDX-License-Identifier: Apache-2.0
//! Which bytes of one direction of a TCP connection have been seen.

/// More separate ranges than this are not held: a sender with a window of 64 MB that loses every
/// other segment makes half as many.
const MOST_RANGES: usize = 4096;

/// Positions begin here, so that data older than the first segment seen has one too.
const FIRST_POSITION: u64 = 1 << 40;

/// The bytes of a sequence space (modulo 2^32, however often it wraps) that have been seen.
///
/// In-order data extends one range. Losses leave holes between ranges until they are retransmitted;
/// when there are too many, the oldest hole is given up: bytes that later fill it count as
/// seen. So a byte may be missed after thousands of open holes, and never counted twice.
#[derive(Debug, Default)]
pub struct ByteRanges {
    /// Disjoint, not touching, ascending, half open. Most connections need only the first.
    first: Option<(u64, u64)>,
    later: Vec<(u64, u64)>,
    highest: u64,
}

impl ByteRanges {
    /// Note `length` bytes from sequence number `seq`; how many of them are new.
    pub fn add(&mut self, seq: u32, length: u32) -> u32 {
        if length == 0 {
            return 0;
        }
        let start = self.position(seq);
        let end = start + u64::from(length);
        self.highest = self.highest.max(end);
        let Some(first) = &mut self.first else {
            self.first = Some((start, end));
            return length;
        };
        if self.later.is_empty() && start >= first.0 && start <= first.1 {
            let new = end.saturating_sub(first.1);
            first.1 = first.1.max(end);
            return new as u32;
        }
        let mut ranges = std::mem::take(&mut self.later);
        ranges.insert(0, *first);
        let new = insert(&mut ranges, start, end);
        if ranges.len() > MOST_RANGES {
            ranges[1].0 = ranges[0].0;
            ranges.remove(0);
        }
        self.first = Some(ranges.remove(0));
        self.later = ranges;
        new as u32
    }

    /// Whether nothing has been seen.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The position nearest to the highest seen so far whose lower 32 bits are `seq`.
    fn position(&self, seq: u32) -> u64 {
        if self.first.is_none() {
            return FIRST_POSITION + u64::from(seq);
        }
        let distance = i32::from_ne_bytes(seq.wrapping_sub(self.highest as u32).to_ne_bytes());
        self.highest.saturating_add_signed(i64::from(distance))
    }
}

/// Merge [start, end) into disjoint ascending ranges; how many positions are new.
fn insert(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) -> u64 {
    // Those that overlap or touch.
    let from = ranges.partition_point(|range| range.1 < start);
    let to = ranges.partition_point(|range| range.0 <= end);
    let merged = &ranges[from..to];
    let overlap: u64 = merged
        .iter()
        .map(|range| range.1.min(end).saturating_sub(range.0.max(start)))
        .sum();
    let union = (
        merged.first().map_or(start, |range| range.0.min(start)),
        merged.last().map_or(end, |range| range.1.max(end)),
    );
    ranges.splice(from..to, [union]);
    end - start - overlap
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn retransmissions_count_once_even_across_the_wrap() {
        let mut seen = ByteRanges::default();
        assert_eq!(seen.add(u32::MAX - 99, 200), 200);
        assert_eq!(seen.add(u32::MAX - 99, 200), 0);
        assert_eq!(seen.add(50, 100), 50);
        assert_eq!(seen.add(150, 10), 10);
        assert_eq!(seen.add(0, 10), 0);
    }

    #[test]
    fn a_hole_filled_later_counts_when_it_is_filled() {
        let mut seen = ByteRanges::default();
        assert_eq!(seen.add(0, 1000), 1000);
        assert_eq!(seen.add(2000, 1000), 1000);
        assert_eq!(seen.add(500, 2000), 1000);
        assert_eq!(seen.first, Some((FIRST_POSITION, FIRST_POSITION + 3000)));
        assert!(seen.later.is_empty());
    }

    #[test]
    fn bytes_older_than_the_first_seen_count() {
        let mut seen = ByteRanges::default();
        assert_eq!(seen.add(5, 10), 10);
        assert_eq!(seen.add(u32::MAX - 9, 10), 10);
    }

    #[test]
    fn memory_is_bounded_and_nothing_counts_twice_then_either() {
        let mut seen = ByteRanges::default();
        let segments = MOST_RANGES as u32 * 3;
        let first: u64 = (0..segments).map(|n| u64::from(seen.add(n * 20, 10))).sum();
        assert_eq!(first, u64::from(segments) * 10);
        assert!(seen.later.len() < MOST_RANGES);
        let holes: u64 = (0..segments).map(|n| u64::from(seen.add(n * 20, 20))).sum();
        assert!(holes <= u64::from(segments) * 10, "{holes}");
        assert!(
            holes >= MOST_RANGES as u64 * 10 - 20,
            "the newest holes are kept"
        );
    }

    proptest! {
        #[test]
        fn every_byte_counts_exactly_once_as_in_a_set_of_bytes(
            base in prop_oneof![Just(0_u32), Just(u32::MAX - 300), any::<u32>()],
            segments in prop::collection::vec((0_u32..700, 0_u32..90), 1..80),
        ) {
            let mut seen = ByteRanges::default();
            let mut model = HashSet::new();
            for (offset, length) in segments {
                let new = (offset..offset + length).filter(|byte| model.insert(*byte)).count();
                prop_assert_eq!(seen.add(base.wrapping_add(offset), length) as usize, new);
                prop_assert!(seen.later.iter().all(|range| range.0 < range.1));
            }
        }

        #[test]
        fn a_long_connection_with_losses_never_counts_more_than_it_sent(
            lost in prop::collection::vec(any::<bool>(), 1..200),
        ) {
            // 40 MB segments: the sequence space wraps every hundred.
            const SEGMENT: u32 = 40 << 20;
            let mut seen = ByteRanges::default();
            let mut counted = u64::from(seen.add(7, SEGMENT));
            let mut seq = 7_u32.wrapping_add(SEGMENT);
            for lost in &lost {
                let next = seq.wrapping_add(SEGMENT);
                if *lost {
                    counted += u64::from(seen.add(next, SEGMENT)) ;
                    counted += u64::from(seen.add(seq, SEGMENT));
                    seq = next.wrapping_add(SEGMENT);
                } else {
                    counted += u64::from(seen.add(seq, SEGMENT));
                    counted += u64::from(seen.add(seq, SEGMENT));
                    seq = next;
                }
            }
            let sent = lost.iter().map(|lost| if *lost { 2 } else { 1 }).sum::<u64>() + 1;
            prop_assert_eq!(counted, sent * u64::from(SEGMENT));
        }
    }
}
