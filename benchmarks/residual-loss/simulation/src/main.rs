// SPDX-License-Identifier: Apache-2.0
//! Two coders and a link with the losses of a Gilbert chain between them, in simulated time: what stays lost.
//!
//! Each line of standard input is a simulation (`Simulation`), and is answered by one line (`Outcome`):
//!
//!     echo '{"size":30,"depth":1,"redundancy":3,"adaptive":null,"seed":1,"reports_until":null,"count_from":0,"phases":[{"packets":30000,"to_bad":0.01,"to_good":0.2}]}' |
//!       cargo run --release -p atoll-residual-loss

use atoll_coder::DetachedCoder;
use atoll_random::SplitMix64;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, BufRead, Write};

/// Packets of hosts arrive at this interval; with their 1000 bytes they are the 11.4 Mbit/s of a busy link.
const INTERVAL_NS: u64 = 700_000;
/// Of the link, one way.
const DELAY_NS: u64 = 250_000_000;
/// The simulated packets are shorter: losses do not depend on their length.
const PAYLOAD_BYTES: usize = 20;
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const OUTER_BYTES: usize = 28;
/// Ports of both coders.
const WORLD: usize = 0;
const ISLAND: usize = 1;
/// The first byte of repair packets and reports in the tunnel.
const REPAIR: u8 = 0xb1;
const REPORT: u8 = 0xbf;
const SAMPLE_PACKETS: u64 = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Simulation {
    /// Packets of a generation.
    size: u16,
    /// Generations that take turns.
    depth: u16,
    /// Repair packets of a generation; if they are adapted, without reports.
    redundancy: u16,
    adaptive: Option<Adaptive>,
    seed: u64,
    /// Reports are lost from the packet of this number on.
    reports_until: Option<u64>,
    /// Losses are counted from the packet of this number on.
    count_from: u64,
    phases: Vec<Phase>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Adaptive {
    most: u16,
    residual_loss: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Phase {
    packets: u64,
    to_bad: f64,
    to_good: f64,
}

#[derive(Serialize, Default)]
struct Outcome {
    sources: u64,
    repairs: u64,
    /// Packets that stayed lost, and generations with such packets.
    lost: u64,
    generations: u64,
    failed_generations: u64,
    /// Of the link, of all packets of the tunnel.
    link_packets: u64,
    link_lost: u64,
    /// Repair packets of a generation, every 500 packets.
    redundancy: Vec<u64>,
}

/// A link that loses packets by the chain, which moves at each of them.
struct Link {
    draws: SplitMix64,
    is_bad: bool,
    in_flight: VecDeque<(u64, Vec<u8>)>,
}

impl Link {
    /// Whether the packet is lost.
    fn send(&mut self, now_ns: u64, frame: Vec<u8>, (to_bad, to_good): (f64, f64)) -> bool {
        self.is_bad ^= self
            .draws
            .chance(if self.is_bad { to_good } else { to_bad });
        if !self.is_bad {
            self.in_flight.push_back((now_ns + DELAY_NS, frame));
        }
        self.is_bad
    }

    fn next_ns(&self) -> Option<u64> {
        self.in_flight.front().map(|(at_ns, _)| *at_ns)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lock().lines() {
        let outcome = simulate(&serde_json::from_str(&line?)?)?;
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &outcome)?;
        writeln!(out)?;
    }
    Ok(())
}

fn simulate(simulation: &Simulation) -> Result<Outcome, Box<dyn Error>> {
    let mut near = DetachedCoder::new(&configuration(simulation, true).to_string(), 1)?;
    let mut far = DetachedCoder::new(&configuration(simulation, false).to_string(), 1)?;
    let mut link = Link {
        draws: SplitMix64::new(simulation.seed, 0),
        is_bad: false,
        in_flight: VecDeque::new(),
    };
    let mut back: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
    let count: u64 = simulation.phases.iter().map(|phase| phase.packets).sum();
    let mut has_arrived = vec![false; count as usize];
    let (mut outcome, mut sent) = (Outcome::default(), 0);
    loop {
        let source_ns = (sent < count).then_some(sent * INTERVAL_NS);
        let back_ns = back.front().map(|(at_ns, _)| *at_ns);
        let wakes = [
            source_ns,
            near.next_wake(),
            far.next_wake(),
            link.next_ns(),
            back_ns,
        ];
        let Some(now_ns) = wakes.into_iter().flatten().min() else {
            break;
        };
        let is_now = |next: Option<u64>| next == Some(now_ns);
        let (mut from_near, mut from_far) = (Vec::new(), Vec::new());
        if is_now(source_ns) {
            if sent % SAMPLE_PACKETS == 0 {
                let figures = near.counters(now_ns)?;
                outcome.redundancy.extend(figures["redundancy"].as_u64());
            }
            from_near = near.arrive(WORLD, now_ns, &host_frame(sent as u32));
            sent += 1;
        } else if is_now(near.next_wake()) {
            from_near = near.wake(now_ns);
        } else if is_now(link.next_ns()) {
            let frame = link.in_flight.pop_front().unwrap_or_default().1;
            from_far = far.arrive(WORLD, now_ns, &frame);
        } else if is_now(back_ns) {
            let frame = back.pop_front().unwrap_or_default().1;
            from_near = near.arrive(ISLAND, now_ns, &frame);
        } else {
            from_far = far.wake(now_ns);
        }
        let newest = sent.saturating_sub(1);
        let is_counted = newest >= simulation.count_from;
        for (port, frame) in from_near {
            if port != ISLAND {
                continue; // nothing comes back to hosts
            }
            outcome.repairs += u64::from(is_counted && kind(&frame) == Some(REPAIR));
            let lost = link.send(now_ns, frame, phase(simulation, newest));
            outcome.link_packets += u64::from(is_counted);
            outcome.link_lost += u64::from(is_counted && lost);
        }
        for (port, frame) in from_far {
            let reports = simulation.reports_until.is_none_or(|until| newest < until);
            if port == WORLD && kind(&frame) == Some(REPORT) && reports {
                back.push_back((now_ns + DELAY_NS, frame));
            } else if port == ISLAND {
                let number = number(&frame).ok_or("a packet without its number")?;
                has_arrived[number as usize] = true;
            }
        }
    }
    count_losses(simulation, &has_arrived, &mut outcome);
    Ok(outcome)
}

/// Packets join `depth` generations in turn.
fn count_losses(simulation: &Simulation, has_arrived: &[bool], outcome: &mut Outcome) {
    let interleaved_packets = usize::from(simulation.size) * usize::from(simulation.depth);
    let counted = &has_arrived[simulation.count_from as usize..];
    for packets in counted.chunks_exact(interleaved_packets) {
        for offset in 0..usize::from(simulation.depth) {
            let generation = packets.iter().skip(offset).step_by(simulation.depth.into());
            let lost = generation.filter(|has_arrived| !**has_arrived).count() as u64;
            outcome.lost += lost;
            outcome.generations += 1;
            outcome.failed_generations += u64::from(lost > 0);
        }
        outcome.sources += packets.len() as u64;
    }
}

fn phase(simulation: &Simulation, mut number: u64) -> (f64, f64) {
    for phase in &simulation.phases {
        if number < phase.packets {
            return (phase.to_bad, phase.to_good);
        }
        number -= phase.packets;
    }
    (0.0, 1.0)
}

fn kind(frame: &[u8]) -> Option<u8> {
    frame.get(ETHERNET_BYTES + OUTER_BYTES).copied()
}

fn number(frame: &[u8]) -> Option<u32> {
    let payload = frame.get(ETHERNET_BYTES + IPV4_BYTES..)?;
    payload
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes))
}

/// A packet from a server to a client, with a number.
fn host_frame(number: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let length = (IPV4_BYTES + PAYLOAD_BYTES) as u8;
    frame.extend([
        0x45, 0, 0, length, 0, 0, 0x40, 0, 64, 253, 0, 0, 10, 10, 0, 1, 10, 20, 0, 1,
    ]);
    let checksum = atoll_headers::internet_checksum(0, &frame[ETHERNET_BYTES..]);
    frame[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.resize(ETHERNET_BYTES + usize::from(length), 0);
    frame
}

fn configuration(simulation: &Simulation, is_world_end: bool) -> serde_json::Value {
    let (world, island) = ("10.10.255.254", "10.20.255.254");
    let (peer_at, address, peer_address) = if is_world_end {
        ("island", world, island)
    } else {
        ("world", island, world)
    };
    json!({
        "pairs": [{
            "world": {"name": "w", "mac": "02:00:00:00:01:01", "mtu": 1500},
            "island": {"name": "i", "mac": "02:00:00:00:01:02", "mtu": 1500},
        }],
        "hosts": {"world": {"10.10.0.1": "02:00:00:01:00:01"}, "island": {"10.20.0.1": "02:00:00:02:00:01"}},
        "tunnels": [{
            "carries": {"world": "10.10.0.0/16", "island": "10.20.0.0/16", "protocol": null},
            "peer_at": peer_at, "address": address, "peer_address": peer_address, "peer_mac": "02:00:00:00:02:01",
            "way": 0,
        }],
        "scheme": "rlnc",
        "generation": simulation.size,
        "redundancy": simulation.redundancy,
        "adaptive": simulation.adaptive,
        "feedback": {"every_ns": 100_000_000, "packets": null, "timeout_ns": 3_000_000_000_u64},
        "interleave": simulation.depth,
        "flush_ns": 10_000_000_000_u64,
        "scheduler": {"kind": "tail"},
        "stale_ns": 1_000_000_000,
        "direction": "to_island",
        "small_bytes": 0,
        "flow_threshold_bytes": 0,
        "low_priority": false,
        "signal": "hide",
        "calibration_port": 5311,
        "poll_ns": 0,
    })
}
