// SPDX-License-Identifier: Apache-2.0
//! Titration over a link that also carries packets of another tunnel, or such as bypass the coder, in simulated time.

use atoll_coder::DetachedCoder;
use atoll_contract_examples::examples;
use serde_json::{Value, json};
use std::collections::VecDeque;

const MS: u64 = 1_000_000;
const DELAY_NS: u64 = 250 * MS;
const NS_PER_BYTE: u64 = 500; // 16 Mbit/s
const QUEUE_BYTES: u64 = 120_000;
/// Ports of both coders.
const WORLD: usize = 0;
const ISLAND: usize = 1;
const ETHERNET_BYTES: usize = 14;

/// Packets of 1000 bytes that are coded, one in so much time, and such as bypass both coders.
struct Load {
    coded_ns: u64,
    bypass_ns: u64,
}

const HALF: Load = Load {
    coded_ns: 1_150_000,
    bypass_ns: MS,
};
const ALL_CODED: Load = Load {
    coded_ns: 550_000,
    bypass_ns: u64::MAX,
};

/// Both names are of the link that is simulated: by different ones, the tunnels do not know that they share it.
const ONE: &[u32] = &[0];
const TWO: &[u32] = &[0, 0];
const TWO_APART: &[u32] = &[0, 1];

/// The link towards the island: a byte queue and a delay.
#[derive(Default)]
struct Link {
    idle_from_ns: u64,
    dropped: u64,
    flying: VecDeque<(u64, Vec<u8>)>,
}

impl Link {
    fn send(&mut self, now_ns: u64, bytes: u64, frame: Option<Vec<u8>>) {
        let waiting_ns = self.idle_from_ns.saturating_sub(now_ns);
        if waiting_ns + bytes * NS_PER_BYTE > QUEUE_BYTES * NS_PER_BYTE {
            self.dropped += 1;
            return;
        }
        self.idle_from_ns = self.idle_from_ns.max(now_ns) + bytes * NS_PER_BYTE;
        if let Some(frame) = frame {
            self.flying.push_back((self.idle_from_ns + DELAY_NS, frame));
        }
    }
}

/// Coders with a tunnel for each of `ways`; packets take them in turn.
fn coder(at_world: bool, has_feedback: bool, ways: &[u32]) -> DetachedCoder {
    let mut line = examples("coder", "keeper")[0].clone();
    line["generation"] = json!(10);
    line["redundancy"] = json!(3);
    line["scheduler"] = json!({
        "kind": "titrated", "rate_bit_s": 16_000_000, "queue_bytes": QUEUE_BYTES, "room_bytes": QUEUE_BYTES / 2,
    });
    if has_feedback {
        line["feedback"] = json!({"every_ns": 50 * MS, "packets": null, "timeout_ns": 3000 * MS});
    }
    let tunnel = |(number, way): (usize, &u32)| {
        let (world, island) = (format!("10.10.255.{number}"), format!("10.20.{number}.254"));
        let (address, peer_address) = if at_world {
            (world, island)
        } else {
            (island, world)
        };
        json!({
            "carries": {"world": "10.10.0.0/16", "island": format!("10.20.{number}.0/24"), "protocol": null},
            "peer_at": if at_world { "island" } else { "world" }, "address": address, "peer_address": peer_address,
            "peer_mac": "02:00:00:00:02:01", "way": way,
        })
    };
    line["tunnels"] = ways.iter().enumerate().map(tunnel).collect();
    DetachedCoder::new(&line.to_string(), 1).unwrap()
}

fn host_frame(tunnel: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([
        0x45, 0, 0x03, 0xe8, 0, 0, 0x40, 0, 64, 253, 0, 0, 10, 10, 0, 1, 10, 20, tunnel, 1,
    ]);
    let checksum = atoll_headers::internet_checksum(0, &frame[ETHERNET_BYTES..]).to_be_bytes();
    frame[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12].copy_from_slice(&checksum);
    frame.resize(ETHERNET_BYTES + 1000, 0);
    frame
}

/// Twenty seconds of it: the packets that the queue dropped, and the encoder's figures.
fn run(load: &Load, has_feedback: bool, ways: &[u32]) -> (u64, Value) {
    let (mut near, mut far) = (
        coder(true, has_feedback, ways),
        coder(false, has_feedback, ways),
    );
    let (mut link, mut back) = (Link::default(), VecDeque::new());
    let (mut coded_ns, mut bypass_ns) = (0, 0);
    let mut tunnels = (0..ways.len() as u8).cycle();
    let next =
        |queue: &VecDeque<(u64, Vec<u8>)>| queue.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
    loop {
        let wakes = [&near, &far].map(|each| each.next_wake().unwrap_or(u64::MAX));
        let nexts = [
            coded_ns,
            bypass_ns,
            wakes[0],
            wakes[1],
            next(&link.flying),
            next(&back),
        ];
        let now_ns = nexts.into_iter().min().unwrap();
        if now_ns > 20_000 * MS {
            return (link.dropped, near.counters(now_ns).unwrap());
        }
        let mut from_near = Vec::new();
        let mut from_far = Vec::new();
        match nexts.iter().position(|at_ns| *at_ns == now_ns) {
            Some(0) => {
                from_near = near.arrive(WORLD, now_ns, &host_frame(tunnels.next().unwrap()));
                coded_ns += load.coded_ns;
            }
            Some(1) => {
                link.send(now_ns, 1000, None);
                bypass_ns = bypass_ns.saturating_add(load.bypass_ns);
            }
            Some(2) => from_near = near.wake(now_ns),
            Some(3) => from_far = far.wake(now_ns),
            Some(4) => from_far = far.arrive(WORLD, now_ns, &link.flying.pop_front().unwrap().1),
            _ => from_near = near.arrive(ISLAND, now_ns, &back.pop_front().unwrap().1),
        }
        for (_, frame) in from_near {
            link.send(now_ns, (frame.len() - ETHERNET_BYTES) as u64, Some(frame));
        }
        let reports = from_far.into_iter().filter(|(port, _)| *port == WORLD);
        back.extend(reports.map(|(_, frame)| (now_ns + DELAY_NS, frame)));
    }
}

/// 15.2 Mbit/s come to a link of 16 Mbit/s, of which the virtual queue sees the smaller half; repair packets would be 2.2
/// Mbit/s more. Reports of two tunnels correct the queue that they share as those of one do.
#[test]
fn reports_make_room_for_traffic_that_bypasses_the_coder() {
    for ways in [ONE, TWO] {
        let (blind, all) = run(&HALF, false, ways);
        let (dropped, figures) = run(&HALF, true, ways);
        assert!(
            blind > 500,
            "{blind}: without reports all repair packets leave"
        );
        assert_eq!(all["dropped_repair_packets"], 0);
        assert!(dropped < blind / 20, "{dropped} of {blind}");
        let sent = figures["repair_packets"].as_u64().unwrap();
        assert!(sent > 500, "{sent}: some fit");
        assert!(
            figures["useless_repair_packets"].as_u64().unwrap() > 500,
            "{figures}"
        );
        let delay_ns = figures["queueing_delay_ns"].as_u64().unwrap();
        assert!(delay_ns < 60 * MS, "{delay_ns}");
    }
}

/// Packets for 15.1 Mbit/s come to a link of 16 Mbit/s by two tunnels; repair packets would be 4.5 Mbit/s more.
#[test]
fn tunnels_over_one_link_lose_nothing_there_as_one_does() {
    let (one, alone) = run(&ALL_CODED, false, ONE);
    let (two, together) = run(&ALL_CODED, false, TWO);
    assert_eq!((one, two), (0, 0));
    for key in ["repair_packets", "dropped_repair_packets"] {
        let [one, two] = [&alone, &together].map(|each| each[key].as_u64().unwrap());
        assert!(one > 500 && one.abs_diff(two) < 30, "{key}: {one}, {two}");
    }
    let (apart, all) = run(&ALL_CODED, false, TWO_APART);
    assert!(apart > 1000, "{apart}: each queue has room for everything");
    assert_eq!(all["dropped_repair_packets"], 0);
}
