// SPDX-License-Identifier: Apache-2.0
//! Any n of n + w packets decode, whatever their sizes and order.

use std::collections::BTreeMap;

use atoll_random::SplitMix64;
use atoll_rlnc::{
    BlockCode, BlockDecoder, BlockEncoder, CodeError, GenerationDecoder, GenerationEncoder, Header,
    Progress, Recoder, ReedSolomon, Repetition, Rlnc,
};
use proptest::prelude::*;

const LONGEST: usize = 1500;

/// Packets of mixed sizes: short ones, empty ones, full ones.
fn packets(seed: u64, count: u16) -> Vec<Vec<u8>> {
    let mut draws = SplitMix64::at(&[seed]);
    let mut one = || {
        let length = match draws.up_to(3) {
            0 => draws.up_to(80),
            1 => draws.up_to(LONGEST as u64),
            _ => 1400,
        };
        (0..length).map(|_| draws.next_u64() as u8).collect()
    };
    (0..count).map(|_| one()).collect()
}

fn shuffled<T>(mut all: Vec<T>, seed: u64) -> Vec<T> {
    let mut draws = SplitMix64::at(&[seed, 1]);
    for end in (1..all.len()).rev() {
        all.swap(end, draws.up_to(end as u64) as usize);
    }
    all
}

/// The packets as sent, headers included.
fn sent(code: &dyn BlockCode, generation: u32, packets: &[Vec<u8>], repairs: u16) -> Vec<Vec<u8>> {
    sent_by(&mut *code.encoder(generation).unwrap(), packets, repairs)
}

fn sent_by(encoder: &mut dyn BlockEncoder, packets: &[Vec<u8>], repairs: u16) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    let mut put = |header: Header, rest: &[u8], most: usize| {
        let mut packet = Vec::new();
        header.write(&mut packet);
        assert!(packet.len() == header.length() && packet.len() <= most);
        packet.extend_from_slice(rest);
        sent.push(packet);
    };
    for packet in packets {
        put(encoder.push(packet).unwrap(), packet, 8);
    }
    let mut symbol = Vec::new();
    for _ in 0..repairs {
        put(encoder.repair(&mut symbol).unwrap(), &symbol, 16);
    }
    sent
}

/// Give a packet to the decoder; what is delivered by it.
fn take(decoder: &mut dyn BlockDecoder, packet: &[u8]) -> (Progress, Vec<(u16, Vec<u8>)>) {
    let mut delivered = Vec::new();
    let progress = match Header::parse(packet).unwrap() {
        (Header::Systematic { index, .. }, packet) => {
            let progress = decoder.systematic(index, packet).unwrap();
            if progress == Progress::Useful {
                delivered.push((index, packet.to_vec()));
            }
            progress
        }
        (Header::Repair { count, seed, .. }, symbol) => {
            decoder.repair(count, seed, symbol).unwrap()
        }
        other => panic!("{other:?}"),
    };
    delivered.extend(decoder.recovered());
    (progress, delivered)
}

type Outcome = (Result<Progress, CodeError>, Vec<(u16, Vec<u8>)>);

/// What comes of a packet, errors included.
fn outcome(decoder: &mut dyn BlockDecoder, packet: &[u8]) -> Outcome {
    let progress = match Header::parse(packet).unwrap() {
        (Header::Systematic { index, .. }, packet) => decoder.systematic(index, packet),
        (Header::Repair { count, seed, .. }, symbol) => decoder.repair(count, seed, symbol),
        other => panic!("{other:?}"),
    };
    (progress, decoder.recovered())
}

fn all_delivered(code: &dyn BlockCode, received: &[Vec<u8>], packets: &[Vec<u8>]) {
    let mut decoder = code.decoder(5, LONGEST).unwrap();
    let mut delivered = BTreeMap::new();
    for packet in received {
        for (index, packet) in take(&mut *decoder, packet).1 {
            assert!(
                delivered.insert(index, packet).is_none(),
                "packet {index} twice"
            );
        }
    }
    assert_eq!(delivered.into_values().collect::<Vec<_>>(), packets);
    assert_eq!(decoder.missing(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_n_of_n_and_w_decode(count in 2_u16..80, repairs in 1_u16..40, seed: u64) {
        let packets = packets(seed, count);
        let codes: [&dyn BlockCode; 2] = [&Rlnc { size: count }, &ReedSolomon { size: count, repairs }];
        for code in codes {
            let mut received = shuffled(sent(code, 5, &packets, repairs), seed);
            received.truncate(usize::from(count));
            all_delivered(code, &received, &packets);
        }
    }

    /// Whatever the generations before left behind: other sizes, packets that were not recovered, damage.
    #[test]
    fn a_coder_that_is_used_again_does_what_a_new_one_does(
        generations in prop::collection::vec((2_u16..40, 0_usize..60, any::<bool>(), any::<u64>()), 2..6),
    ) {
        let codes: [Box<dyn BlockCode>; 3] = [
            Box::new(Rlnc { size: 40 }),
            Box::new(ReedSolomon { size: 40, repairs: 10 }),
            Box::new(Repetition { size: 40 }),
        ];
        for code in codes {
            let (mut encoder, mut decoder) = (code.encoder(0).unwrap(), code.decoder(0, LONGEST).unwrap());
            for (number, &(count, lost, damaged, seed)) in (1..).zip(&generations) {
                let packets = packets(seed, count);
                encoder.restart(number);
                let sent = sent_by(&mut *encoder, &packets, 10);
                prop_assert_eq!(&sent, &self::sent(&*code, number, &packets, 10));
                let mut received = shuffled(sent, seed);
                received.truncate(received.len().saturating_sub(lost).max(1));
                if damaged {
                    let end = received[0].len() - 1; // of its packet, or of its header if that is empty
                    if end >= 12 {
                        received[0][end] ^= 1;
                    }
                }
                decoder.restart(number);
                let mut new = code.decoder(number, LONGEST).unwrap();
                for packet in &received {
                    prop_assert_eq!(outcome(&mut *decoder, packet), outcome(&mut *new, packet));
                    prop_assert_eq!(decoder.missing(), new.missing());
                }
            }
        }
    }

    #[test]
    fn duplicates_and_more_than_needed_change_nothing(count in 2_u16..40, seed: u64) {
        let packets = packets(seed, count);
        let code = Rlnc { size: count };
        let once = sent(&code, 5, &packets, 10);
        let twice = shuffled([once.clone(), once].concat(), seed);
        all_delivered(&code, &twice, &packets);
        let mut decoder = code.decoder(5, LONGEST).unwrap();
        let useful = twice.iter().filter(|packet| take(&mut *decoder, packet).0 == Progress::Useful).count();
        prop_assert_eq!(useful, usize::from(count));
    }

    #[test]
    fn repair_packets_between_packets_decode(count in 4_u16..60, seed: u64) {
        // after every fourth packet one repair packet of those so far; one of the last four is lost
        let packets = packets(seed, count);
        let mut encoder = GenerationEncoder::new(5, count).unwrap();
        let mut decoder = GenerationDecoder::new(5, count, LONGEST).unwrap();
        let mut draws = SplitMix64::at(&[seed, 2]);
        let mut symbol = Vec::new();
        for four in packets.chunks(4) {
            let lost = draws.up_to(four.len() as u64 - 1) as usize;
            for (number, packet) in four.iter().enumerate() {
                let Header::Systematic { index, .. } = encoder.push(packet).unwrap() else { unreachable!() };
                if number != lost {
                    decoder.systematic(index, packet).unwrap();
                }
            }
            let Header::Repair { count, seed, .. } = encoder.repair(&mut symbol).unwrap() else { unreachable!() };
            decoder.repair(count, seed, &symbol).unwrap();
            prop_assert_eq!(&decoder.recovered()[0].1, &four[lost]);
        }
    }

    #[test]
    fn recoded_packets_decode(count in 2_u16..40, seed: u64) {
        let packets = packets(seed, count);
        let mut recoders = [1, 2].map(|node| Recoder::new(5, count, LONGEST, node).unwrap());
        for packet in shuffled(sent(&Rlnc { size: count }, 5, &packets, 3), seed).iter().skip(3) {
            match Header::parse(packet).unwrap() {
                (Header::Systematic { index, .. }, packet) => recoders[0].systematic(index, packet).unwrap(),
                (Header::Repair { count, seed, .. }, symbol) => recoders[0].repair(count, seed, symbol).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        let (mut coefficients, mut symbol) = (Vec::new(), Vec::new());
        for _ in 0..count + 8 {
            recoders[0].combine(&mut coefficients, &mut symbol).unwrap();
            recoders[1].recoded(&coefficients, &symbol).unwrap(); // more than it has room for
        }
        let mut decoder = GenerationDecoder::new(5, count, LONGEST).unwrap();
        let mut decoded = BTreeMap::new();
        for _ in 0..count + 8 {
            let header = recoders[1].combine(&mut coefficients, &mut symbol).unwrap();
            prop_assert_eq!(header, Header::Recoded { generation: 5, count });
            decoder.recoded(&coefficients, &symbol).unwrap();
            decoded.extend(decoder.recovered());
        }
        prop_assert_eq!(decoded.into_values().collect::<Vec<_>>(), packets);
    }

    #[test]
    fn repetition_recovers_what_it_repeats(count in 2_u16..40, lost in 0_u16..40, seed: u64) {
        let packets = packets(seed, count);
        let code = Repetition { size: count };
        let mut received = sent(&code, 5, &packets, count);
        received.remove(usize::from(lost % count));
        all_delivered(&code, &received, &packets);
    }
}

#[test]
fn large_generations_decode() {
    // Random coefficients: one packet more than needed fails once in 65,000 times, and this seed is none of them.
    for (count, lost) in [(256_u16, 50_u16), (700, 60), (1024, 40)] {
        let packets = packets(u64::from(count), count);
        let code = Rlnc { size: count };
        let mut received = shuffled(sent(&code, 5, &packets, lost + 1), 3);
        received.truncate(usize::from(count) + 1);
        all_delivered(&code, &received, &packets);
    }
}

#[test]
fn repair_packets_are_as_long_as_their_longest_source() {
    let mut encoder = GenerationEncoder::new(0, 4).unwrap();
    let mut symbol = Vec::new();
    for (length, longest) in [(40, 42), (1000, 1002), (60, 1002)] {
        encoder.push(&vec![1; length]).unwrap();
        encoder.repair(&mut symbol).unwrap();
        assert_eq!(symbol.len(), longest);
    }
}

/// Half a million packets through bursts of loss, generations of random size and redundancy: what has n packets left of
/// n + w is delivered entirely, and nothing else is made up.
#[test]
fn a_long_stream_loses_nothing_that_the_code_can_recover() {
    let mut draws = SplitMix64::at(&[21]);
    let (mut bad, mut left, mut generation) = (false, 500_000_i64, 0);
    let (mut recovered, mut lost) = (0, 0);
    while left > 0 {
        generation += 1;
        let (count, repairs) = (2 + draws.up_to(60) as u16, draws.up_to(20) as u16);
        left -= i64::from(count);
        let mut encoder = GenerationEncoder::new(generation, count).unwrap();
        let mut decoder = GenerationDecoder::new(generation, count, 64).unwrap();
        let packets: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                draws
                    .next_u64()
                    .to_be_bytes()
                    .repeat(1 + draws.up_to(7) as usize)[draws.up_to(7) as usize..]
                    .to_vec()
            })
            .collect();
        let (mut symbol, mut passed, mut there) = (Vec::new(), 0, vec![false; usize::from(count)]);
        for number in 0..count + repairs {
            // Gilbert-Elliott: bursts of three packets on average, a tenth of the time
            bad = if bad {
                draws.chance(0.67)
            } else {
                draws.chance(0.04)
            };
            if number < count {
                encoder.push(&packets[usize::from(number)]).unwrap();
            }
            if bad {
                continue;
            }
            passed += 1;
            if number < count {
                decoder
                    .systematic(number, &packets[usize::from(number)])
                    .unwrap();
                there[usize::from(number)] = true;
            } else if let Header::Repair { mut seed, .. } = encoder.repair(&mut symbol).unwrap() {
                while seed < u32::from(number - count) {
                    let Header::Repair { seed: next, .. } = encoder.repair(&mut symbol).unwrap()
                    else {
                        unreachable!()
                    };
                    seed = next;
                }
                decoder.repair(count, seed, &symbol).unwrap();
            }
            for (index, packet) in decoder.recovered() {
                assert_eq!(packet, packets[usize::from(index)]);
                assert!(!std::mem::replace(&mut there[usize::from(index)], true));
                recovered += 1;
            }
        }
        let missing = there.iter().filter(|there| !**there).count();
        assert!(
            missing == 0 || passed < count,
            "generation {generation}: {passed} of {count} packets, {missing} missing"
        );
        lost += missing;
    }
    assert!(
        recovered > 10_000 && lost > 1000,
        "{recovered} recovered, {lost} lost: the channel tests too little"
    );
}
