// SPDX-License-Identifier: Apache-2.0
//! A day of traffic between two coders in simulated time: whatever the code can recover is delivered, once and whole.
//!
//! The link loses packets by a Gilbert chain, whose losses grow in hours of rain; it also delays some, so that they
//! arrive after later ones, and repeats some. What it let through says which generations can be recovered: those of
//! which as many packets came as they have sources.

use atoll_coder::DetachedCoder;
use atoll_contract_examples::examples;
use atoll_random::SplitMix64;
use atoll_rlnc::Header;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

const MS: u64 = 1_000_000;
const DAY_NS: u64 = 86_400_000 * MS;
const HOUR_NS: u64 = DAY_NS / 24;
const DELAY_NS: u64 = 250 * MS;
/// Less than the generations are kept.
const LATE_NS: u64 = 30 * MS;
const FIRST_GENERATION: u32 = u32::MAX - 1000; // numbers begin again at 0 within the day
/// Ports of both coders.
const WORLD: usize = 0;
const ISLAND: usize = 1;
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const OUTER_BYTES: usize = 28;

/// A packet of a server to a client: its length follows from its number.
fn host_frame(number: u32) -> Vec<u8> {
    let length = IPV4_BYTES + 4 + SplitMix64::at(&[u64::from(number)]).up_to(300) as usize;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((length as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 253, 0, 0, 10, 10, 0, 1, 10, 20, 0, 1]);
    let checksum = atoll_headers::internet_checksum(0, &frame[ETHERNET_BYTES..]).to_be_bytes();
    frame[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12].copy_from_slice(&checksum);
    frame.extend(number.to_be_bytes());
    frame.resize(ETHERNET_BYTES + length, number as u8);
    frame
}

fn number(frame: &[u8], before: usize) -> u32 {
    u32::from_be_bytes(*frame[before + IPV4_BYTES..].first_chunk().unwrap())
}

fn coder(at_world: bool) -> DetachedCoder {
    let mut line = examples("coder", "keeper")[0].clone();
    line["generation"] = json!(30);
    line["redundancy"] = json!(6);
    line["interleave"] = json!(2);
    line["scheduler"] = json!({"kind": "tail"});
    line["flush_ns"] = json!(100 * MS);
    line["stale_ns"] = json!(1000 * MS);
    line["small_bytes"] = json!(0);
    line["flow_threshold_bytes"] = json!(0);
    if !at_world {
        let tunnel = &mut line["tunnels"][0];
        let (address, peer_address) = (tunnel["address"].take(), tunnel["peer_address"].take());
        (tunnel["address"], tunnel["peer_address"]) = (peer_address, address);
        tunnel["peer_at"] = json!("world");
    }
    DetachedCoder::new(&line.to_string(), FIRST_GENERATION).unwrap()
}

/// A packet from server to client after this one: in bursts of some hundred, and single ones between them.
fn gap_ns(draws: &mut SplitMix64, in_burst: &mut bool) -> u64 {
    *in_burst = draws.chance(if *in_burst { 0.995 } else { 0.05 });
    draws.up_to(if *in_burst { 2 * MS } else { 2000 * MS })
}

#[derive(Default)]
struct Link {
    is_bad: bool,
    flying: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
    sent: u64,
}

impl Link {
    /// How often a packet arrives: not at all, once, or twice.
    fn send(&mut self, now_ns: u64, frame: &[u8], draws: &mut SplitMix64) -> u32 {
        let rain = (now_ns / HOUR_NS) % 6 == 5;
        let to_bad = if rain { 0.03 } else { 0.003 };
        self.is_bad = draws.chance(if self.is_bad { 0.7 } else { to_bad });
        if self.is_bad {
            return 0;
        }
        let copies = if draws.chance(0.001) { 2 } else { 1 };
        for _ in 0..copies {
            let late_ns = if draws.chance(0.02) {
                draws.up_to(LATE_NS)
            } else {
                0
            };
            self.sent += 1;
            let arrival = (now_ns + DELAY_NS + late_ns, self.sent, frame.to_vec());
            self.flying.push(Reverse(arrival));
        }
        copies
    }

    fn next_ns(&self) -> u64 {
        self.flying
            .peek()
            .map_or(u64::MAX, |Reverse((at_ns, ..))| *at_ns)
    }
}

/// Of a generation: what was sent, and what the link let through.
#[derive(Default)]
struct Fate {
    sources: Vec<u32>,
    arrived: HashSet<u32>,
    repairs: HashSet<u32>,
}

#[derive(Default)]
struct Day {
    generations: HashMap<u32, Fate>,
    delivered: HashMap<u32, u32>,
    sent: u32,
}

impl Day {
    /// A packet of the tunnel, and how often it will arrive.
    fn note(&mut self, frame: &[u8], copies: u32) {
        let (header, rest) = Header::parse(&frame[ETHERNET_BYTES + OUTER_BYTES..]).unwrap();
        match header {
            Header::Systematic { generation, .. } => {
                let fate = self.generations.entry(generation).or_default();
                let source = number(rest, 0);
                fate.sources.push(source);
                if copies > 0 {
                    fate.arrived.insert(source);
                }
            }
            Header::Repair {
                generation,
                count,
                seed,
            } => {
                let fate = self.generations.get_mut(&generation).unwrap();
                assert_eq!(usize::from(count), fate.sources.len(), "at the tail");
                if copies > 0 {
                    fate.repairs.insert(seed);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn deliver(&mut self, frame: &[u8]) {
        let number = number(frame, ETHERNET_BYTES);
        let sent = host_frame(number);
        assert_eq!(
            frame[ETHERNET_BYTES + IPV4_BYTES..],
            sent[ETHERNET_BYTES + IPV4_BYTES..]
        );
        *self.delivered.entry(number).or_default() += 1;
    }
}

fn live(day_ns: u64) -> Day {
    let (mut near, mut far) = (coder(true), coder(false));
    let (mut day, mut link) = (Day::default(), Link::default());
    let (mut traffic, mut losses) = (SplitMix64::new(1, 0), SplitMix64::new(1, 1));
    let (mut source_ns, mut in_burst) = (0, false);
    loop {
        let wakes = [&near, &far].map(|each| each.next_wake().unwrap_or(u64::MAX));
        let nexts = [source_ns, wakes[0], wakes[1], link.next_ns()];
        let now_ns = nexts.into_iter().min().unwrap();
        if now_ns == u64::MAX {
            return day;
        }
        let (mut from_near, mut from_far) = (Vec::new(), Vec::new());
        match nexts.iter().position(|at_ns| *at_ns == now_ns) {
            Some(0) => {
                from_near = near.arrive(WORLD, now_ns, &host_frame(day.sent));
                day.sent += 1;
                source_ns += gap_ns(&mut traffic, &mut in_burst);
                if source_ns >= day_ns {
                    source_ns = u64::MAX;
                }
            }
            Some(1) => from_near = near.wake(now_ns),
            Some(2) => from_far = far.wake(now_ns),
            _ => {
                let Reverse((.., frame)) = link.flying.pop().unwrap();
                from_far = far.arrive(WORLD, now_ns, &frame);
            }
        }
        for (port, frame) in from_near {
            assert_eq!(port, ISLAND);
            let copies = link.send(now_ns, &frame, &mut losses);
            day.note(&frame, copies);
        }
        for (port, frame) in from_far {
            assert_eq!(port, ISLAND, "without feedback nothing goes back");
            day.deliver(&frame);
        }
    }
}

#[test]
fn a_day_of_traffic_loses_nothing_that_the_code_can_recover() {
    let day = live(DAY_NS);
    let (mut recovered, mut beyond, mut whole) = (0, 0, 0);
    for fate in day.generations.values() {
        let can_be_recovered = fate.arrived.len() + fate.repairs.len() >= fate.sources.len();
        whole += u32::from(fate.sources.len() == 30);
        for source in &fate.sources {
            let arrived = fate.arrived.contains(source);
            let delivered = day.delivered.get(source).copied().unwrap_or(0);
            assert_eq!(
                delivered,
                u32::from(arrived || can_be_recovered),
                "packet {source}: {} of {} sources and {} repair packets came",
                fate.arrived.len(),
                fate.sources.len(),
                fate.repairs.len()
            );
            recovered += u32::from(!arrived && can_be_recovered);
            beyond += u32::from(!arrived && !can_be_recovered);
        }
    }
    let sources: usize = day
        .generations
        .values()
        .map(|fate| fate.sources.len())
        .sum();
    assert_eq!(
        sources, day.sent as usize,
        "every packet was coded, and once"
    );
    // the day has everything: whole generations, flushed ones, what the code recovers, and what it cannot
    assert!(day.sent > 500_000, "{}", day.sent);
    assert!(
        whole > 5000 && (whole as usize) < day.generations.len(),
        "{whole}"
    );
    assert!(recovered > 5000, "{recovered}");
    assert!(beyond > 50, "{beyond}");
}
