// SPDX-License-Identifier: Apache-2.0
//! The sliding window recovers all that follows from the equations, as a plain solver with all of them finds it.

use std::collections::BTreeSet;

use atoll_gf256::Field;
use atoll_random::SplitMix64;
use atoll_rlnc::{Header, WindowDecoder, WindowEncoder};
use proptest::prelude::*;

/// Which unknowns the equations determine: Gaussian elimination over the whole stream, with nothing forgotten.
fn determined(mut rows: Vec<Vec<u8>>) -> BTreeSet<usize> {
    let mut pivots = 0;
    for column in 0..rows.first().map_or(0, Vec::len) {
        let Some(pivot) = (pivots..rows.len()).find(|row| rows[*row][column] != 0) else {
            continue;
        };
        rows.swap(pivots, pivot);
        let row = rows[pivots].clone();
        let inverse = Field::Rfc8681.inverse(row[column]).unwrap();
        for (number, other) in rows.iter_mut().enumerate() {
            let factor = Field::Rfc8681.mul(other[column], inverse);
            if number != pivots && factor != 0 {
                for (sum, entry) in other.iter_mut().zip(&row) {
                    *sum ^= Field::Rfc8681.mul(factor, *entry);
                }
            }
        }
        pivots += 1;
    }
    let single = |row: &Vec<u8>| row.iter().filter(|entry| **entry != 0).count() == 1;
    rows.iter()
        .filter(|row| single(row))
        .filter_map(|row| row.iter().position(|entry| *entry != 0))
        .collect()
}

/// The coefficients of a repair packet, found from outside: packets that are a unit matrix are encoded by the same seed.
fn coefficients(first: u32, count: u16, seed: u32) -> Vec<u8> {
    let mut encoder = WindowEncoder::new(first, count.max(2)).unwrap();
    for number in 0..usize::from(count) {
        let mut unit = vec![0; usize::from(count)];
        unit[number] = 1;
        encoder.push(&unit).unwrap();
    }
    let mut symbol = Vec::new();
    for _ in 0..=seed {
        encoder.repair(&mut symbol).unwrap();
    }
    symbol.split_off(2)
}

fn packet(draws: &mut SplitMix64) -> Vec<u8> {
    (0..draws.up_to(60))
        .map(|_| draws.next_u64() as u8)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_the_equations_determine_is_recovered(seed: u64, width in 2_u16..16, every in 1_u64..5, first: u32) {
        let mut draws = SplitMix64::at(&[seed]);
        let mut encoder = WindowEncoder::new(first, width).unwrap();
        let mut decoder = WindowDecoder::new(128, 60).unwrap();
        let (mut packets, mut symbol, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        let mut found = BTreeSet::new();
        for number in 0..100_usize {
            packets.push(packet(&mut draws));
            let Header::WindowSource { id } = encoder.push(&packets[number]).unwrap() else { unreachable!() };
            if draws.chance(0.7) {
                decoder.source(id, &packets[number]).unwrap();
                found.insert(number);
                let mut row = vec![0; 100];
                row[number] = 1;
                rows.push(row);
            }
            if draws.up_to(every) == 0 {
                let header = encoder.repair(&mut symbol).unwrap();
                let Header::WindowRepair { first: from, count, seed } = header else { unreachable!() };
                if draws.chance(0.8) {
                    decoder.repair(from, count, seed, &symbol).unwrap();
                    let mut row = vec![0; 100];
                    let at = from.wrapping_sub(first) as usize;
                    row[at..at + usize::from(count)].copy_from_slice(&coefficients(from, count, seed));
                    rows.push(row);
                }
            }
            for (id, packet) in decoder.recovered() {
                let number = id.wrapping_sub(first) as usize;
                prop_assert_eq!(&packet, &packets[number]);
                prop_assert!(found.insert(number));
            }
        }
        prop_assert_eq!(found, determined(rows));
    }
}

/// A hundred thousand packets, across the end of the numbers. A narrow decoder recovers what a wide one does, but for
/// packets that have left its window.
#[test]
fn a_long_stream_is_recovered_by_a_narrow_window() {
    const FIRST: u32 = u32::MAX - 50_000;
    let mut draws = SplitMix64::at(&[8681]);
    let mut encoder = WindowEncoder::new(FIRST, 24).unwrap();
    let [mut narrow, mut wide] = [64, 512].map(|width| WindowDecoder::new(width, 60).unwrap());
    let (mut packets, mut symbol, mut bad) = (Vec::new(), Vec::new(), false);
    let (mut recovered, mut late, mut lost) = (0, 0, BTreeSet::new());
    for number in 0..100_000_u32 {
        packets.push(packet(&mut draws));
        let Header::WindowSource { id } = encoder.push(&packets[number as usize]).unwrap() else {
            unreachable!()
        };
        bad = if bad {
            draws.chance(0.6)
        } else {
            draws.chance(0.04)
        };
        if bad {
            lost.insert(id);
        } else {
            narrow.source(id, &packets[number as usize]).unwrap();
            wide.source(id, &packets[number as usize]).unwrap();
        }
        if number % 6 == 5 {
            let header = encoder.repair(&mut symbol).unwrap();
            let Header::WindowRepair { first, count, seed } = header else {
                unreachable!()
            };
            narrow.repair(first, count, seed, &symbol).unwrap();
            wide.repair(first, count, seed, &symbol).unwrap();
        }
        let one: BTreeSet<_> = narrow.recovered().into_iter().collect();
        let all: BTreeSet<_> = wide.recovered().into_iter().collect();
        assert!(one.is_subset(&all));
        for (id, packet) in &all {
            assert_eq!(packet, &packets[id.wrapping_sub(FIRST) as usize]);
            let age = FIRST.wrapping_add(number).wrapping_sub(*id);
            assert!(
                one.contains(&(*id, packet.clone())) || age >= 64,
                "packet of age {age}"
            );
        }
        for (id, _) in &one {
            lost.remove(id);
        }
        recovered += one.len();
        late += all.len() - one.len();
    }
    assert!(recovered > 4000, "{recovered} recovered, {late} too late");
    let end = FIRST.wrapping_add(100_000);
    let in_window: BTreeSet<u32> = (end - 64..end).filter(|id| lost.contains(id)).collect();
    assert_eq!(narrow.first_missing(), in_window.first().copied());
    assert!(usize::from(narrow.missing()) <= in_window.len());
    assert_eq!(narrow.lost() as usize, lost.len() - in_window.len());
}

#[test]
fn lost_packets_are_counted_when_they_leave_the_window_or_are_given_up() {
    let mut decoder = WindowDecoder::new(4, 60).unwrap();
    assert_eq!((decoder.first_missing(), decoder.missing()), (None, 0));
    decoder.source(u32::MAX, &[1]).unwrap();
    decoder.source(2, &[1]).unwrap();
    assert_eq!((decoder.first_missing(), decoder.missing()), (Some(0), 2));
    decoder.source(u32::MAX - 1, &[1]).unwrap();
    assert_eq!(
        decoder.first_missing(),
        Some(0),
        "one that left the window before it was known"
    );
    decoder.source(4, &[1]).unwrap();
    assert_eq!(decoder.lost(), 1, "packet 0");
    assert!(decoder.knows(2) && !decoder.knows(3) && !decoder.knows(9));
    decoder.give_up();
    decoder.give_up();
    assert_eq!((decoder.lost(), decoder.first_missing()), (3, Some(5)));
    assert!(decoder.knows(2), "what is known is not forgotten");
    decoder.source(5, &[1]).unwrap();
    assert_eq!(decoder.lost(), 3, "packet 1 left, and was counted");
    decoder.source(100, &[1]).unwrap();
    assert_eq!(decoder.lost(), 3 + 91, "all before the new window");
    assert_eq!(decoder.first_missing(), Some(97));
    decoder.restart();
    assert_eq!((decoder.lost(), decoder.first_missing()), (94 + 3, None));
    decoder.source(7, &[1]).unwrap();
    assert_eq!((decoder.lost(), decoder.missing()), (97, 0));
}

#[test]
fn acknowledged_packets_leave_the_window() {
    let mut encoder = WindowEncoder::new(u32::MAX, 10).unwrap();
    for _ in 0..4 {
        encoder.push(&[1, 2, 3]).unwrap();
    }
    encoder.acknowledge(1);
    let header = encoder.repair(&mut Vec::new()).unwrap();
    assert_eq!(
        header,
        Header::WindowRepair {
            first: 1,
            count: 2,
            seed: 0
        }
    );
    encoder.acknowledge(u32::MAX); // an old one
    encoder.acknowledge(700); // all that there are
    assert!(encoder.repair(&mut Vec::new()).is_err());
}

#[test]
fn recovered_packets_that_left_the_window_are_not_taken_for_others() {
    let mut encoder = WindowEncoder::new(0, 2).unwrap();
    let mut decoder = WindowDecoder::new(2, 60).unwrap();
    let mut symbol = Vec::new();
    for id in 0..4 {
        encoder.push(&[id as u8]).unwrap();
        if id == 1 {
            encoder.repair(&mut symbol).unwrap();
            decoder.repair(0, 2, 0, &symbol).unwrap(); // packet 1 was lost, is recovered, and nobody asks
        } else {
            decoder.source(id, &[id as u8]).unwrap();
        }
    }
    assert_eq!(decoder.recovered(), []);
}
