// SPDX-License-Identifier: Apache-2.0
//! The decoder of a sliding window: packets at once as they come, and those that repair packets bring back.
//!
//! It remembers the last [`REMEMBERED_PACKETS`] packets and as many repair packets, whatever it is given.

use crate::counters::DecoderSums;
use crate::numbering;
use crate::stream::{Deliveries, ReceiveCounters, StreamDecoder};
use atoll_measures::Peak;
use atoll_redundancy::{NUMBER_MODULUS, Report};
use atoll_rlnc::{CodeError, Header, MOST_SOURCES, Progress, WindowDecoder};

/// The last packets, among which repair packets that come late can still recover some.
const REMEMBERED_PACKETS: u16 = MOST_SOURCES;
/// The most packets of a window, so that repair packets may come late by as many packets or more.
pub(crate) const LARGEST: u16 = REMEMBERED_PACKETS / 2;

/// Decodes the packets of one direction.
#[derive(Debug)]
pub(crate) struct SlidingDecoder {
    window: WindowDecoder,
    size: u16,
    longest_packet: usize,
    /// After this time without a packet, those that are missing do not come.
    timeout_ns: u64,
    last_ns: u64,
    /// Numbers of packets that arrived and when, at their number modulo [`REMEMBERED_PACKETS`].
    arrivals: Vec<Option<(u32, u64)>>,
    /// Numbers in the tunnel are so much more than those in the code, modulo [`NUMBER_MODULUS`].
    number_offset: Option<u16>,
    received: ReceiveCounters,
}

impl SlidingDecoder {
    /// # Errors
    /// None: the window has a size that the code has.
    pub(crate) fn new(
        size: u16,
        longest_packet: usize,
        timeout_ns: u64,
    ) -> Result<Self, CodeError> {
        Ok(Self {
            window: WindowDecoder::new(REMEMBERED_PACKETS, longest_packet)?,
            size,
            longest_packet,
            timeout_ns,
            last_ns: 0,
            arrivals: vec![None; usize::from(REMEMBERED_PACKETS)],
            number_offset: None,
            received: ReceiveCounters::default(),
        })
    }

    /// Whether packets from `first` on are in the window, or move it.
    fn is_in_window(&mut self, now_ns: u64, first: u32, count: u16) -> bool {
        self.last_ns = now_ns;
        let last = first.wrapping_add(u32::from(count)).wrapping_sub(1);
        self.window.window().is_none_or(|(_, end)| {
            let is_ahead = last.wrapping_sub(end) <= u32::MAX / 2; // by serial numbers (RFC 1982)
            is_ahead || end.wrapping_sub(first) <= u32::from(REMEMBERED_PACKETS)
        })
    }

    fn on_source<'a>(
        &mut self,
        now_ns: u64,
        (number, id): (u16, u32),
        packet: &'a [u8],
    ) -> Deliveries<'a> {
        self.number_offset = Some(
            (number + NUMBER_MODULUS - (id % u32::from(NUMBER_MODULUS)) as u16) % NUMBER_MODULUS,
        );
        self.arrivals[slot(id)] = Some((id, now_ns));
        let result = self.window.source(id, packet);
        Deliveries {
            // One that arrived itself is right, even if others were damaged.
            arrived: (result != Ok(Progress::Redundant)).then_some((packet, number)),
            recovered: self.take_recovered(now_ns, result),
        }
    }

    /// The packets that a packet recovered, and their numbers in the tunnel.
    fn take_recovered(
        &mut self,
        now_ns: u64,
        result: Result<Progress, CodeError>,
    ) -> Vec<(Vec<u8>, Option<u16>)> {
        self.received.sums.malformed_packets += u64::from(result.is_err());
        let recovered = self.window.recovered().into_iter();
        recovered
            .map(|(id, packet)| {
                let since_ns = self.gap_ns(id).unwrap_or(now_ns);
                self.received.recovered(now_ns, since_ns);
                let id_number = (id % u32::from(NUMBER_MODULUS)) as u16;
                let number =
                    (self.number_offset).map(|offset| (offset + id_number) % NUMBER_MODULUS);
                (packet, number)
            })
            .collect()
    }

    /// When the packet before this one came: about when it should have come itself.
    fn gap_ns(&self, id: u32) -> Option<u64> {
        let earlier = (1..u32::from(REMEMBERED_PACKETS)).map(|distance| id.wrapping_sub(distance));
        let arrived = |id: u32| self.arrivals[slot(id)].filter(|(number, _)| *number == id);
        earlier.filter_map(arrived).map(|(_, at_ns)| at_ns).next()
    }
}

fn slot(id: u32) -> usize {
    id as usize % usize::from(REMEMBERED_PACKETS)
}

impl StreamDecoder for SlidingDecoder {
    fn take<'a>(&mut self, now_ns: u64, content: &'a [u8]) -> Deliveries<'a> {
        let mut deliveries = Deliveries::default();
        match numbering::parse(content) {
            Ok((number, Header::WindowSource { id }, packet)) => {
                self.received.sums.arrived_source_packets += 1;
                if packet.len() > self.longest_packet {
                    self.received.sums.malformed_packets += 1;
                } else if self.is_in_window(now_ns, id, 1) {
                    self.received.arrived(now_ns, number);
                    deliveries = self.on_source(now_ns, (number, id), packet);
                } else {
                    // Whether it was recovered is forgotten. A duplicate does less harm than a loss.
                    self.received.sums.late_packets += 1;
                    deliveries.arrived = Some((packet, number));
                }
            }
            Ok((_, Header::WindowRepair { first, count, seed }, symbol)) => {
                let sums = &mut self.received.sums;
                sums.arrived_repair_packets += 1;
                if count == 0 || count > self.size || symbol.len() > self.longest_packet + 4 {
                    sums.malformed_packets += 1;
                } else if self.is_in_window(now_ns, first, count) {
                    let result = self.window.repair(first, count, seed, symbol);
                    let is_useful = result == Ok(Progress::Useful);
                    self.received.sums.useful_repair_packets += u64::from(is_useful);
                    deliveries.recovered = self.take_recovered(now_ns, result);
                } else {
                    self.received.sums.late_packets += 1;
                }
            }
            _ => self.received.sums.malformed_packets += 1,
        }
        deliveries
    }

    fn restart(&mut self) {
        self.window.restart();
        self.arrivals.fill(None);
        self.number_offset = None;
        self.received.losses.restart();
    }

    fn expire(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.last_ns) >= self.timeout_ns {
            self.window.give_up();
        }
    }

    fn sums(&self) -> DecoderSums {
        DecoderSums {
            lost_packets: self.window.lost(),
            ..self.received.sums()
        }
    }

    fn report(&self, now_ns: u64, number: u32) -> Report {
        Report {
            residual: self.window.lost(),
            first_generation: self.window.first_missing().unwrap_or(0),
            ..self.received.report(now_ns, number)
        }
    }

    fn rank_deficit(&self) -> u64 {
        self.window.missing().into()
    }

    fn recovery_ns(&mut self) -> &mut Peak {
        &mut self.received.recovery_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sliding_encoder::SlidingEncoder;
    use crate::stream::tests::taken;
    use crate::stream::{Repair, Shape, StreamEncoder};
    use atoll_random::SplitMix64;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MS: u64 = 1_000_000;
    const LONGEST: usize = 1400;
    const OVER_NS: u64 = 2_000 * MS;

    fn decoder(size: u16) -> SlidingDecoder {
        SlidingDecoder::new(size, LONGEST, OVER_NS).unwrap()
    }

    fn bytes(header: &Header, rest: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        header.write(&mut out);
        out.extend(rest);
        out
    }

    fn packet(number: usize) -> Vec<u8> {
        let filler = vec![number as u8; number * 7 % 90];
        [&number.to_be_bytes()[..], &filler].concat()
    }

    /// What an encoder makes of so many packets: of each its content, and those of the repair packets that follow it.
    fn encoded(size: u16, repairs: u16, first: u32, count: usize) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
        let shape = Shape {
            size,
            repairs,
            interleave: 1,
            interspersed: true,
            flush_ns: MS,
        };
        let mut encoder = SlidingEncoder::new(shape, None, first).unwrap();
        let content = |each: &Repair| bytes(&each.header, &each.symbol);
        (0..count)
            .map(|number| {
                let packet = packet(number);
                let (header, made) = encoder.push(0, &packet).unwrap();
                let repairs = made.repairs.iter().map(content).collect();
                (bytes(&header, &packet), repairs)
            })
            .collect()
    }

    #[test]
    fn a_lost_packet_comes_back_with_the_next_repair_packet_and_the_time_it_took() {
        let sent = encoded(8, 2, u32::MAX, 4);
        let mut decoder = decoder(8);
        taken(&mut decoder, 5 * MS, &sent[0].0);
        taken(&mut decoder, 7 * MS, &sent[2].0);
        assert_eq!(decoder.rank_deficit(), 1);
        assert_eq!(decoder.report(7 * MS, 1).first_generation, 0);
        taken(&mut decoder, 8 * MS, &sent[3].0);
        let got = taken(&mut decoder, 9 * MS, &sent[3].1[0]);
        assert_eq!(got, [(packet(1), true)]);
        let sums = decoder.sums();
        assert_eq!(
            (sums.recovered_packets, sums.recovery_delay_ns),
            (1, 4 * MS)
        );
        assert_eq!((sums.useful_repair_packets, decoder.rank_deficit()), (1, 0));
        assert_eq!(decoder.report(9 * MS, 2).first_generation, 3);
    }

    #[test]
    fn packets_that_stay_lost_are_counted_when_no_more_come() {
        let sent = encoded(8, 0, 7, 6);
        let mut decoder = decoder(8);
        for number in [0, 1, 5] {
            taken(&mut decoder, MS, &sent[number].0);
        }
        decoder.expire(OVER_NS);
        assert_eq!(decoder.sums().lost_packets, 0);
        decoder.expire(OVER_NS + MS);
        decoder.expire(2 * OVER_NS);
        assert_eq!(decoder.sums().lost_packets, 3);
        assert_eq!(decoder.report(OVER_NS, 1).residual, 3);
    }

    #[test]
    fn another_session_is_followed_from_its_first_packet() {
        let mut decoder = decoder(8);
        for first in [5_000_000, 1_000_000, 900_000_000] {
            let sent = encoded(8, 2, first, 200);
            let mut got = 0;
            for (content, _) in &sent {
                got += taken(&mut decoder, MS, content).len();
            }
            assert_eq!(got, 200);
            assert_eq!(taken(&mut decoder, MS, &sent[199].0), [], "came twice");
            decoder.restart();
        }
        let sums = decoder.sums();
        assert_eq!((sums.late_packets, sums.lost_packets), (0, 0));
    }

    #[test]
    fn packets_before_the_memory_are_delivered_though_they_are_late() {
        let sent = encoded(8, 2, 0, 1 + usize::from(REMEMBERED_PACKETS));
        let mut decoder = decoder(8);
        taken(&mut decoder, 0, &sent[usize::from(REMEMBERED_PACKETS)].0);
        assert_eq!(taken(&mut decoder, 0, &sent[0].0), [(packet(0), false)]);
        assert_eq!(decoder.sums().late_packets, 1);
    }

    /// A burst comes back when as many repair packets have followed as it has packets, all of them within its window; but for
    /// random coefficients that are singular, about one of 255.
    #[test]
    fn a_burst_comes_back_with_as_many_repair_packets() {
        let (mut bursts, mut singular) = (0, 0);
        for size in [8_u16, 20, 60] {
            for repairs in 1..=size / 2 {
                let room = usize::from(size * repairs) / usize::from(size + repairs);
                for burst in 1..=room.min(8) {
                    let (begin, first) = (usize::from(size) + burst, bursts);
                    let sent = encoded(size, repairs, first, begin + usize::from(size));
                    let mut decoder = decoder(size);
                    let mut followed = 0;
                    for (number, (content, follow)) in sent.iter().enumerate() {
                        if (begin..begin + burst).contains(&number) {
                            continue;
                        }
                        taken(&mut decoder, 0, content);
                        for repair in follow {
                            if followed < burst {
                                taken(&mut decoder, 0, repair);
                                followed += usize::from(number > begin);
                            }
                        }
                    }
                    assert_eq!(followed, burst);
                    bursts += 1;
                    singular += u32::from(decoder.rank_deficit() > 0);
                }
            }
        }
        assert!(
            bursts > 200 && singular <= bursts / 100,
            "{singular} of {bursts}"
        );
    }

    #[test]
    fn a_pause_does_not_make_it_forget_what_came_before() {
        let sent = encoded(4, 1, 7, 8);
        let mut decoder = decoder(4);
        for (content, _) in &sent[..6] {
            taken(&mut decoder, MS, content);
        }
        decoder.expire(3 * OVER_NS);
        for (content, follow) in &sent[6..] {
            assert_eq!(taken(&mut decoder, 3 * OVER_NS, content).len(), 1);
            for repair in follow {
                assert_eq!(taken(&mut decoder, 3 * OVER_NS, repair), []);
            }
        }
        let sums = decoder.sums();
        assert_eq!((sums.useful_repair_packets, sums.lost_packets), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// With any losses, order within the memory, and duplicates: each packet at most once and unchanged, each that
        /// arrived, and all if there were enough useful repair packets.
        #[test]
        fn packets_are_delivered_once_and_as_they_were(
            seed: u64,
            first: u32,
            size in 2..40_u16,
            repairs in 0..9_u16,
            count in 1..300_usize,
            percent in 0..40_u64,
            distance in 1..20_u64,
        ) {
            let mut draws = SplitMix64::new(seed, 0);
            let mut arrived: Vec<(u64, Option<usize>, Vec<u8>)> = Vec::new();
            let mut sent = 0;
            for (number, (content, follow)) in encoded(size, repairs, first, count).into_iter().enumerate() {
                for (which, content) in std::iter::once((Some(number), content)).chain(follow.into_iter().map(|each| (None, each))) {
                    sent += 1;
                    if draws.up_to(99) >= percent {
                        for _ in 0..=(draws.up_to(10) / 10) {
                            arrived.push((sent + draws.up_to(distance), which, content.clone()));
                        }
                    }
                }
            }
            arrived.sort_by_key(|each| each.0);
            let mut decoder = decoder(size);
            let mut got: Vec<Vec<u8>> = Vec::new();
            for (_, _, content) in &arrived {
                got.extend(taken(&mut decoder, 0, content).into_iter().map(|each| each.0));
            }
            let once: BTreeSet<&Vec<u8>> = got.iter().collect();
            prop_assert_eq!(got.len(), once.len(), "delivered once");
            let packets: BTreeSet<Vec<u8>> = (0..count).map(packet).collect();
            prop_assert!(got.iter().all(|each| packets.contains(each)), "unchanged");
            let direct: BTreeSet<usize> = arrived.iter().filter_map(|each| each.1).collect();
            prop_assert!(direct.iter().all(|number| once.contains(&packet(*number))));
            let sums = decoder.sums();
            prop_assert_eq!((sums.malformed_packets, sums.late_packets), (0, 0));
            prop_assert!(sums.recovered_packets <= sums.useful_repair_packets);
            let (begin, end) = decoder.window.window().unwrap_or_default();
            let known = (0..end.wrapping_sub(begin)).map(|number| packet(begin.wrapping_sub(first).wrapping_add(number) as usize));
            let still_lost = known.filter(|each| !once.contains(each)).count();
            prop_assert_eq!(still_lost == 0, decoder.rank_deficit() == 0, "all, or too few repair packets");
        }

        #[test]
        fn no_bytes_make_it_panic_and_memory_stays_bounded(
            contents in proptest::collection::vec(
                (0xb0..0xb6_u8, 0..6_u16, any::<u32>(), any::<u32>(), proptest::collection::vec(any::<u8>(), 0..40)),
                1..200,
            ),
            near in 0..3_u8,
        ) {
            let mut decoder = decoder(4);
            for (kind, number, id, seed, rest) in contents {
                let id = match near { 0 => id, 1 => id % 2048, _ => (id % 2048).wrapping_sub(1024) };
                let content = [
                    &[kind, 0][..], &number.to_be_bytes(), &id.to_be_bytes(), &seed.to_be_bytes(), &rest,
                ].concat();
                taken(&mut decoder, 0, &content[..content.len().min(rest.len() + 9)]);
                decoder.expire(u64::from(seed));
                prop_assert_eq!(decoder.arrivals.len(), usize::from(REMEMBERED_PACKETS));
                prop_assert!(decoder.rank_deficit() <= REMEMBERED_PACKETS.into());
                decoder.report(0, 1);
            }
        }
    }
}
