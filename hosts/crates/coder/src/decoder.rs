// SPDX-License-Identifier: Apache-2.0
//! The decoder of block codes: packets at once as they come, and those that repair packets bring back.
//!
//! It keeps the last generations. What it is given may come from anyone: it never panics, and its memory is bounded by
//! [`HELD_MAX`] packets and as many repair packets.

use crate::counters::DecoderSums;
use crate::numbering;
use crate::stream::{Deliveries, ReceiveCounters, StreamDecoder};
use atoll_measures::Peak;
use atoll_redundancy::{GENERATIONS_MAX, NUMBER_MODULUS, Report};
use atoll_rlnc::{BlockCode, BlockDecoder, CodeError, Header, Progress};
use std::collections::VecDeque;

/// Packets of all generations that are kept.
pub(crate) const HELD_MAX: usize = 16_384;
/// Generations that are kept, at least and at most.
const GENERATIONS: std::ops::RangeInclusive<usize> = 8..=1024;

/// Decodes the packets of one direction.
#[derive(Debug)]
pub(crate) struct Decoder {
    code: Box<dyn BlockCode>,
    size: u16,
    longest_packet: usize,
    /// After this time without a packet of it, a generation gets no more.
    timeout_ns: u64,
    /// The generations from number `first` on.
    window: VecDeque<Slot>,
    first: u32,
    generations_max: usize,
    received: ReceiveCounters,
}

#[derive(Debug)]
enum Slot {
    /// No packet of it has come.
    Unseen,
    Open(Box<Generation>),
    /// All of its packets were delivered, or it got no more: how many independent ones there were.
    Over(u16),
}

#[derive(Debug)]
struct Generation {
    decoder: Box<dyn BlockDecoder>,
    /// The number of its packets, as far as it is known.
    sources: u16,
    delivered: u16,
    /// The number of its first packet in the tunnel.
    first_number: Option<u16>,
    /// When each packet came, 0 if it did not.
    arrived_ns: Vec<u64>,
    first_ns: u64,
    last_ns: u64,
}

impl Decoder {
    pub(crate) fn new(
        code: Box<dyn BlockCode>,
        size: u16,
        longest_packet: usize,
        timeout_ns: u64,
    ) -> Self {
        Self {
            code,
            size,
            longest_packet,
            timeout_ns,
            window: VecDeque::new(),
            first: 0,
            generations_max: (HELD_MAX / usize::from(size))
                .clamp(*GENERATIONS.start(), *GENERATIONS.end()),
            received: ReceiveCounters::default(),
        }
    }

    fn on_source<'a>(
        &mut self,
        now_ns: u64,
        slot: usize,
        (number, index): (u16, u16),
        packet: &'a [u8],
    ) -> Deliveries<'a> {
        let Slot::Open(open) = &mut self.window[slot] else {
            return Deliveries::default(); // it came twice, or after it was recovered
        };
        open.last_ns = now_ns;
        open.first_number = Some((number + NUMBER_MODULUS - index) % NUMBER_MODULUS);
        open.sources = open.sources.max(index + 1);
        let arrived_ns = &mut open.arrived_ns[usize::from(index)];
        let is_first = *arrived_ns == 0;
        *arrived_ns = now_ns.max(1);
        let result = open.decoder.systematic(index, packet);
        // One that arrived itself is right, even if others of its generation were damaged.
        let is_new = result == Ok(Progress::Useful) || (result.is_err() && is_first);
        open.delivered += u16::from(is_new);
        Deliveries {
            arrived: is_new.then_some((packet, number)),
            recovered: self.take_recovered(now_ns, slot, result),
        }
    }

    fn on_repair(
        &mut self,
        now_ns: u64,
        slot: usize,
        (first_number, count, seed): (u16, u16, u32),
        symbol: &[u8],
    ) -> Vec<(Vec<u8>, Option<u16>)> {
        let Slot::Open(open) = &mut self.window[slot] else {
            return Vec::new();
        };
        open.last_ns = now_ns;
        open.sources = open.sources.max(count);
        open.first_number.get_or_insert(first_number);
        let result = open.decoder.repair(count, seed, symbol);
        self.received.sums.useful_repair_packets += u64::from(result == Ok(Progress::Useful));
        self.take_recovered(now_ns, slot, result)
    }

    /// The packets that a packet recovered, and their numbers in the tunnel.
    fn take_recovered(
        &mut self,
        now_ns: u64,
        slot: usize,
        result: Result<Progress, CodeError>,
    ) -> Vec<(Vec<u8>, Option<u16>)> {
        self.received.sums.malformed_packets += u64::from(result.is_err());
        let mut recovered = Vec::new();
        let Slot::Open(open) = &mut self.window[slot] else {
            return recovered;
        };
        for (index, packet) in open.decoder.recovered() {
            let since_ns = open.gap_ns(usize::from(index));
            open.delivered += 1;
            self.received.recovered(now_ns, since_ns);
            let number = (open.first_number).map(|first| (first + index) % NUMBER_MODULUS);
            recovered.push((packet, number));
        }
        if open.delivered >= self.size {
            self.end_generation(slot);
        }
        recovered
    }

    /// The index of a generation in the window, which is moved if it is a newer one; `None` if it is over since long.
    fn move_window(&mut self, now_ns: u64, generation: u32) -> Option<usize> {
        let ahead = generation.wrapping_sub(self.first);
        if !self.window.is_empty() {
            if ahead > u32::MAX / 2 {
                return None; // by serial numbers (RFC 1982)
            }
            if ahead as usize >= 2 * self.generations_max + self.window.len() {
                self.restart(); // nothing came for so long that no packet before is of use
            }
        }
        if self.window.is_empty() {
            self.first = generation;
        }
        let slot = generation.wrapping_sub(self.first) as usize;
        while self.window.len() <= slot {
            self.window.push_back(Slot::Unseen);
        }
        while self.window.len() > self.generations_max {
            self.end_generation(0);
            self.window.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        let slot = generation.wrapping_sub(self.first) as usize;
        if matches!(self.window[slot], Slot::Unseen) {
            // A size that the code does not have was refused at the start.
            let decoder = self.code.decoder(generation, self.longest_packet).ok()?;
            self.window[slot] = Slot::Open(Box::new(Generation::new(decoder, self.size, now_ns)));
        }
        Some(slot)
    }

    /// Count what became of a generation, and free its memory.
    fn end_generation(&mut self, slot: usize) {
        let ended = Slot::Over(self.window[slot].rank());
        match std::mem::replace(&mut self.window[slot], ended) {
            Slot::Open(open) => {
                let lost = open.sources.saturating_sub(open.delivered);
                self.received.sums.lost_packets += u64::from(lost);
                self.received.sums.lost_generations += u64::from(lost > 0);
                self.received.sums.complete_generations += u64::from(lost == 0);
            }
            Slot::Unseen => self.received.sums.lost_generations += 1, // nobody knows of how many packets
            Slot::Over(_) => {}
        }
    }
}

impl StreamDecoder for Decoder {
    fn take<'a>(&mut self, now_ns: u64, content: &'a [u8]) -> Deliveries<'a> {
        let mut deliveries = Deliveries::default();
        match numbering::parse(content) {
            Ok((number, Header::Systematic { generation, index }, packet)) => {
                self.received.sums.arrived_source_packets += 1;
                if index >= self.size || packet.len() > self.longest_packet {
                    self.received.sums.malformed_packets += 1;
                } else if let Some(slot) = self.move_window(now_ns, generation) {
                    self.received.arrived(now_ns, number);
                    deliveries = self.on_source(now_ns, slot, (number, index), packet);
                } else {
                    // Whether it was recovered is forgotten. A duplicate does less harm than a loss.
                    self.received.sums.late_packets += 1;
                    deliveries.arrived = Some((packet, number));
                }
            }
            Ok((
                first_number,
                Header::Repair {
                    generation,
                    count,
                    seed,
                },
                symbol,
            )) => {
                self.received.sums.arrived_repair_packets += 1;
                if count == 0 || count > self.size || symbol.len() > self.longest_packet + 4 {
                    self.received.sums.malformed_packets += 1;
                } else if let Some(slot) = self.move_window(now_ns, generation) {
                    let fields = (first_number, count, seed);
                    deliveries.recovered = self.on_repair(now_ns, slot, fields, symbol);
                } else {
                    self.received.sums.late_packets += 1;
                }
            }
            _ => self.received.sums.malformed_packets += 1,
        }
        deliveries
    }

    fn restart(&mut self) {
        for at in 0..self.window.len() {
            self.end_generation(at);
        }
        self.window.clear();
        self.received.losses.restart();
    }

    /// End the generations that get no more packets.
    fn expire(&mut self, now_ns: u64) {
        for at in 0..self.window.len() {
            if let Slot::Open(open) = &self.window[at] {
                if now_ns.saturating_sub(open.last_ns) >= self.timeout_ns {
                    self.end_generation(at);
                }
            }
        }
    }

    fn sums(&self) -> DecoderSums {
        self.received.sums()
    }

    fn report(&self, now_ns: u64, number: u32) -> Report {
        let skipped = self.window.len().saturating_sub(GENERATIONS_MAX);
        Report {
            first_generation: self.first.wrapping_add(skipped as u32),
            ranks: self.window.iter().skip(skipped).map(Slot::rank).collect(),
            ..self.received.report(now_ns, number)
        }
    }

    /// How many packets more the open generations need, as far as they are known.
    fn rank_deficit(&self) -> u64 {
        let deficit = |slot: &Slot| match slot {
            Slot::Open(open) => u64::from(open.decoder.missing()),
            _ => 0,
        };
        self.window.iter().map(deficit).sum()
    }

    fn recovery_ns(&mut self) -> &mut Peak {
        &mut self.received.recovery_ns
    }

    /// Generations of which more packets may come.
    fn open_generations(&self) -> u64 {
        let open = |slot: &&Slot| matches!(slot, Slot::Open(_));
        self.window.iter().filter(open).count() as u64
    }
}

impl Slot {
    /// The independent packets of it that came.
    fn rank(&self) -> u16 {
        match self {
            Self::Unseen => 0,
            Self::Open(open) => open.sources.saturating_sub(open.decoder.missing()),
            Self::Over(rank) => *rank,
        }
    }
}

impl Generation {
    fn new(decoder: Box<dyn BlockDecoder>, size: u16, now_ns: u64) -> Self {
        Self {
            decoder,
            sources: 0,
            delivered: 0,
            first_number: None,
            arrived_ns: vec![0; usize::from(size)],
            first_ns: now_ns,
            last_ns: now_ns,
        }
    }

    /// When the packet before this one came, or the first of all: about when it should have come itself.
    fn gap_ns(&self, index: usize) -> u64 {
        let earlier = self.arrived_ns[..index].iter().rev();
        earlier.copied().find(|at| *at > 0).unwrap_or(self.first_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::Encoder;
    use crate::stream::tests::taken;
    use crate::stream::{Repair, Shape, StreamEncoder};
    use atoll_random::SplitMix64;
    use atoll_rlnc::Rlnc;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const LONGEST: usize = 1400;
    const OVER_NS: u64 = 2_000 * MS;

    fn decoder(size: u16) -> Decoder {
        Decoder::new(Box::new(Rlnc { size }), size, LONGEST, OVER_NS)
    }

    fn bytes(header: &Header, rest: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        header.write(&mut out);
        out.extend(rest);
        out
    }

    /// What an encoder makes of these packets, in order: true if it is a repair packet.
    fn encoded(shape: Shape, packets: &[Vec<u8>]) -> Vec<(bool, Vec<u8>)> {
        let mut encoder = Encoder::new(Box::new(Rlnc { size: shape.size }), shape, 7);
        let mut found = Vec::new();
        let repair = |each: &Repair| (true, bytes(&each.header, &each.symbol));
        for packet in packets {
            let (header, made) = encoder.push(0, packet).unwrap();
            found.push((false, bytes(&header, packet)));
            found.extend(made.repairs.iter().map(repair));
        }
        found.extend(encoder.flush(u64::MAX).unwrap().repairs.iter().map(repair));
        found
    }

    fn shape(size: u16, repairs: u16, interleave: usize, interspersed: bool) -> Shape {
        Shape {
            size,
            repairs,
            interleave,
            interspersed,
            flush_ns: 0,
        }
    }

    fn numbered(count: usize) -> Vec<Vec<u8>> {
        (0..count)
            .map(|number| {
                [
                    &number.to_be_bytes()[..],
                    &vec![number as u8; number * 7 % 90],
                ]
                .concat()
            })
            .collect()
    }

    #[test]
    fn a_lost_packet_comes_back_with_the_time_it_took() {
        let packets = numbered(3);
        let mut decoder = decoder(3);
        let mut got = Vec::new();
        for (number, (_, content)) in encoded(shape(3, 1, 1, false), &packets).iter().enumerate() {
            if number != 1 {
                let now = [10, 20, 30, 50][number] * MS;
                got.extend(taken(&mut decoder, now, content));
            }
        }
        let order = [(0, false), (2, false), (1, true)];
        assert_eq!(
            got,
            order.map(|(number, recovered)| (packets[number].clone(), recovered))
        );
        let sums = decoder.sums();
        assert_eq!(
            (sums.recovered_packets, sums.recovery_delay_ns),
            (1, 40 * MS)
        );
        assert_eq!((sums.complete_generations, sums.lost_packets), (1, 0));
        assert_eq!(decoder.open_generations(), 0, "its memory is free");
    }

    #[test]
    fn what_cannot_be_recovered_is_counted_when_nothing_more_comes() {
        let mut decoder = decoder(4);
        for (number, (_, content)) in encoded(shape(4, 1, 1, false), &numbered(4))
            .iter()
            .enumerate()
        {
            if number > 1 {
                taken(&mut decoder, 0, content);
            }
        }
        decoder.expire(OVER_NS - 1);
        assert_eq!(decoder.sums().lost_packets, 0);
        decoder.expire(OVER_NS);
        assert_eq!(
            (decoder.sums().lost_packets, decoder.sums().lost_generations),
            (2, 1)
        );
        assert_eq!(
            decoder.sums().useful_repair_packets,
            1,
            "it said something new"
        );
    }

    /// The first packet of each of these generations: how many are delivered.
    fn first_packets(decoder: &mut Decoder, generations: &[u32]) -> usize {
        let packet = |generation| {
            bytes(
                &Header::Systematic {
                    generation,
                    index: 0,
                },
                &[1],
            )
        };
        let taken = |each: &u32| taken(decoder, 0, &packet(*each)).len();
        generations.iter().map(taken).sum()
    }

    #[test]
    fn another_session_is_followed_from_its_first_packet() {
        let mut decoder = decoder(2);
        for generations in [[100_000, 100_001], [5, 6], [u32::MAX, 0]] {
            assert_eq!(first_packets(&mut decoder, &generations), 2);
            assert_eq!(first_packets(&mut decoder, &generations), 0, "came twice");
            decoder.restart();
        }
        assert_eq!(decoder.sums().late_packets, 0);
    }

    #[test]
    fn generations_after_a_long_outage_are_followed_and_those_before_are_late() {
        let mut decoder = decoder(2);
        assert_eq!(first_packets(&mut decoder, &[5, 6, 100_000, 100_001]), 4);
        assert!(decoder.window.len() <= 2);
        assert_eq!(first_packets(&mut decoder, &[7, 8]), 2, "delivered");
        assert_eq!(decoder.sums().late_packets, 2);
    }

    #[test]
    fn memory_is_bounded_by_the_generations_that_are_kept() {
        let mut decoder = decoder(512);
        for generation in 0..10_000_u32 {
            let content = bytes(
                &Header::Systematic {
                    generation,
                    index: 511,
                },
                &[1; 1000],
            );
            taken(&mut decoder, 0, &content);
        }
        assert_eq!(decoder.open_generations(), (HELD_MAX / 512) as u64);
    }

    /// Loss of so many packets, by a seed.
    fn lost(seed: u64, count: usize, share_percent: u64) -> Vec<bool> {
        let mut draws = SplitMix64::new(seed, 0);
        (0..count)
            .map(|_| draws.up_to(99) < share_percent)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// With any losses, order and duplicates: each packet at most once and unchanged, each that arrived, and all of
        /// a generation of which as many arrived as it has packets.
        #[test]
        fn packets_are_delivered_once_and_as_they_were(
            seed: u64,
            size in 2..20_u16,
            repairs in 0..6_u16,
            interleave in 1..4_usize,
            count in 1..120_usize,
            percent in 0..60_u64,
        ) {
            let packets = numbered(count);
            let sent = encoded(shape(size, repairs, interleave, false), &packets);
            let lost = lost(seed, sent.len(), percent);
            let mut arrived: Vec<&Vec<u8>> = (sent.iter().zip(&lost))
                .filter(|(_, lost)| !**lost)
                .map(|((_, content), _)| content)
                .collect();
            let mut draws = SplitMix64::new(seed, 1);
            for at in (1..arrived.len()).rev() {
                arrived.swap(at, draws.up_to(at as u64) as usize);
            }
            let again: Vec<&Vec<u8>> = arrived.iter().step_by(3).copied().collect();
            arrived.extend(again);
            let mut decoder = decoder(size);
            // The stream has begun: packets of its first generations are not late, whichever comes first.
            decoder.first = 7;
            decoder.window.push_back(Slot::Unseen);
            let mut got: Vec<Vec<u8>> = Vec::new();
            for content in arrived {
                got.extend(taken(&mut decoder, 0, content).into_iter().map(|each| each.0));
            }
            got.sort();
            let once = got.len();
            got.dedup();
            prop_assert_eq!(got.len(), once, "delivered once");
            prop_assert!(got.iter().all(|packet| packets.contains(packet)), "unchanged");
            for ((is_repair, content), lost) in sent.iter().zip(&lost) {
                prop_assert!(*is_repair || *lost || got.iter().any(|packet| *packet == content[8..]));
            }
            prop_assert_eq!(decoder.sums().malformed_packets, 0);
            // A maximum distance separable code: what is missing of a generation, less its repair packets that arrived.
            let generation = |content: &[u8]| content[7];
            for number in 7..7 + (count as u8) {
                let of = |repair: bool, lost_too: bool| {
                    (sent.iter().zip(&lost))
                        .filter(|((is, content), lost)| *is == repair && generation(content) == number && (lost_too || !**lost))
                        .count()
                };
                let missing = of(false, true) - of(false, false);
                if missing > 0 && missing <= of(true, false) {
                    let all = sent.iter().filter(|(is, content)| !is && generation(content) == number);
                    for (_, content) in all {
                        prop_assert!(got.iter().any(|packet| *packet == content[8..]), "recovered");
                    }
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic_and_memory_stays_bounded(
            contents in proptest::collection::vec(
                (0xb0..0xb6_u8, 0..5_u16, any::<u32>(), any::<u32>(), proptest::collection::vec(any::<u8>(), 0..40)),
                1..200,
            ),
            near: bool,
        ) {
            let mut decoder = decoder(3);
            for (kind, number, generation, seed, rest) in contents {
                let generation = if near { generation % 8 } else { generation };
                let content = [
                    &[kind, 0][..], &number.to_be_bytes(), &generation.to_be_bytes(), &seed.to_be_bytes(), &rest,
                ].concat();
                taken(&mut decoder, 0, &content[..content.len().min(rest.len() + 9)]);
                prop_assert!(decoder.window.len() <= decoder.generations_max);
            }
        }
    }
}
