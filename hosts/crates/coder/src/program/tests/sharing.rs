// SPDX-License-Identifier: Apache-2.0
//! Two tunnels of a coder, over the same link or over two.

use super::*;
use crate::virtual_queue::VirtualQueue;
use atoll_rlnc::Header;

/// One client of each tunnel.
const CLIENTS: [[u8; 4]; 2] = [[10, 20, 1, 1], [10, 20, 2, 1]];
const RATE_BIT_S: u64 = 8_000_000;
const QUEUE_BYTES: u64 = 50_000;
const ROOM_BYTES: u64 = 20_000;

/// Titrated, over these ways, with a repair packet for two packets.
fn over(ways: [u32; 2]) -> impl Fn(&mut Value) {
    let tunnels: Vec<Value> = [1, 2]
        .iter()
        .zip(ways)
        .map(|(number, way)| {
            json!({
                "carries": {"world": "10.10.0.0/16", "island": format!("10.20.{number}.0/24"), "protocol": null},
                "peer_at": "island", "address": format!("10.10.255.{number}"),
                "peer_address": format!("10.20.{number}.254"), "peer_mac": "02:00:00:00:02:01", "way": way,
            })
        })
        .collect();
    move |line| {
        line["generation"] = json!(2);
        line["redundancy"] = json!(1);
        line["flush_ns"] = json!(1_000_000 * MS);
        line["tunnels"] = json!(tunnels);
        line["scheduler"] = json!({
            "kind": "titrated", "rate_bit_s": RATE_BIT_S, "queue_bytes": QUEUE_BYTES, "room_bytes": ROOM_BYTES,
        });
    }
}

fn coder(change: impl Fn(&mut Value)) -> Coder {
    Coder::new(&config(|line| change(line)).unwrap(), 3).unwrap()
}

fn to_client(tunnel: usize, bytes: usize) -> Vec<u8> {
    framed(&packet(SERVER, CLIENTS[tunnel], TCP, &vec![0; bytes]))
}

/// What leaves until and at an instant, with its time: what wakes let go, and then what an arriving frame does.
fn step(coder: &mut Coder, now_ns: u64, frame: Option<Vec<u8>>) -> Vec<(u64, Vec<u8>)> {
    let mut left = Vec::new();
    while let Some(at_ns) = coder.next_wake().filter(|at_ns| *at_ns <= now_ns) {
        left.extend(
            wake(coder, at_ns)
                .into_iter()
                .map(|(_, frame)| (at_ns, frame)),
        );
    }
    let arrived = frame.map(|frame| arrive(coder, WORLD, now_ns, &[frame]));
    left.extend(
        arrived
            .into_iter()
            .flatten()
            .map(|(_, frame)| (now_ns, frame)),
    );
    left
}

/// The tunnel of a frame, and the generation if it is a repair packet.
fn seen(frame: &[u8]) -> (usize, Option<u32>) {
    let outer = Ipv4::parse(&frame[ETHERNET_BYTES..]).unwrap();
    let tunnel = usize::from(outer.destination().octets()[2]) - 1;
    let header = outer::content(&outer).map(|(_, content)| Header::parse(content).unwrap().0);
    match header {
        Some(Header::Repair { generation, .. }) => (tunnel, Some(generation)),
        _ => (tunnel, None),
    }
}

fn ip_bytes(frame: &[u8]) -> u32 {
    (frame.len() - ETHERNET_BYTES) as u32
}

/// The links of two tunnels that share nothing, and the scheduler if it is not `titrated`.
fn apart() -> impl Strategy<Value = ([u32; 2], Option<Value>)> {
    let deferred = json!({"kind": "deferred", "after_ns": 5 * MS, "generations": 2});
    let kinds = ["tail", "interspersed"].map(|kind| json!({"kind": kind}));
    prop_oneof![
        Just(([0, 1], None)),
        proptest::sample::select(vec![deferred, kinds[0].clone(), kinds[1].clone()])
            .prop_map(|scheduler| ([0, 0], Some(scheduler))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A repair packet leaves only if all that was sent to the link leaves room for it, and those of both tunnels leave
    /// in the order in which they were made. Packets that are small, and so not coded, count, too.
    #[test]
    fn tunnels_over_one_link_share_its_room(
        traffic in proptest::collection::vec((0..2 * MS, 0..2_usize, 1..1_200_usize), 1..300),
    ) {
        let mut near = coder(|line| {
            over([0, 0])(line);
            line["small_bytes"] = json!(100);
        });
        let mut queue = VirtualQueue::new(RATE_BIT_S, QUEUE_BYTES, false);
        let (mut now_ns, mut made, mut coded) = (0, Vec::new(), [0, 0]);
        let arrivals = traffic.into_iter().map(Some).chain([None]);
        for arrival in arrivals {
            now_ns += arrival.map_or(2_000 * MS, |(pause, ..)| pause);
            let frame = arrival.map(|(_, tunnel, bytes)| to_client(tunnel, bytes));
            if let Some((_, tunnel, _)) = arrival.filter(|(_, _, bytes)| bytes + 20 > 100) {
                coded[tunnel] += 1;
                if coded[tunnel] % 2 == 0 {
                    made.push((tunnel, Some(3 + coded[tunnel] / 2 - 1)));
                }
            }
            for (at_ns, frame) in step(&mut near, now_ns, frame) {
                let repair = seen(&frame);
                queue.add(at_ns, ip_bytes(&frame));
                if repair.1.is_some() {
                    prop_assert!(queue.backlog_bytes(at_ns) <= ROOM_BYTES + 1);
                    let before = made.iter().position(|each| *each == repair);
                    prop_assert!(before.is_some(), "{repair:?} left before an older one, or twice");
                    made.drain(..=before.unwrap_or(0));
                }
            }
        }
        let sums = sums(&near);
        prop_assert_eq!(sums.encoded_generations, sums.repair_packets + sums.dropped_repair_packets);
    }

    /// Over different ways, and with other schedulers, each tunnel sends the same frames at the same instants as if there
    /// were no other one.
    #[test]
    fn other_tunnels_do_not_see_each_other(
        (ways, scheduler) in apart(),
        traffic in proptest::collection::vec((0..2 * MS, 0..2_usize, 1..1_200_usize), 1..300),
    ) {
        let [mut both, mut alone] = [(); 2].map(|()| coder(|line| {
            over(ways)(line);
            line["scheduler"] = scheduler.clone().unwrap_or(line["scheduler"].take());
        }));
        let (mut now_ns, mut found, mut expected) = (0, Vec::new(), Vec::new());
        for (pause, tunnel, bytes) in traffic {
            now_ns += pause;
            found.extend(step(&mut both, now_ns, Some(to_client(tunnel, bytes))));
            if tunnel == 0 {
                expected.extend(step(&mut alone, now_ns, Some(to_client(tunnel, bytes))));
            }
        }
        found.extend(step(&mut both, now_ns + 2_000 * MS, None));
        expected.extend(step(&mut alone, now_ns + 2_000 * MS, None));
        found.retain(|(_, frame)| seen(frame).0 == 0);
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn the_queue_is_that_of_titrated_tunnels_over_the_same_links_in_one_direction() {
    let shared = |change: &dyn Fn(&mut Value)| coder(change).outlets.len() == 1;
    assert!(shared(&over([0, 0])));
    assert!(!shared(&over([0, 1])));
    assert!(!shared(&|line| {
        over([0, 0])(line);
        line["tunnels"][1]["peer_at"] = json!("world");
    }));
    for kind in ["tail", "interspersed"] {
        assert!(!shared(&|line| {
            over([0, 0])(line);
            line["scheduler"] = json!({"kind": kind});
        }));
    }
}

/// A report of one tunnel, on the decoder's clock.
fn report(tunnel: usize, number: u32, newest: u16, arrived_ns: u64) -> Vec<u8> {
    let report = Report {
        number,
        newest,
        arrived_ns,
        first_generation: 3,
        ranks: vec![2; 40],
        ..Report::default()
    };
    let number = tunnel as u8 + 1;
    let addresses = outer::Addresses {
        source_mac: [2; 6],
        destination_mac: [2; 6],
        source: Ipv4Addr::new(10, 20, number, 254),
        destination: Ipv4Addr::new(10, 10, 255, number),
        session: 50_000,
    };
    let mut frame = Vec::new();
    outer::write_frame(&mut frame, &addresses, (0, 0), report.length(), |out| {
        report.write(out);
    });
    frame
}

fn with_reports(line: &mut Value) {
    over([0, 0])(line);
    line["feedback"] = json!({"every_ns": 100 * MS, "packets": null, "timeout_ns": 1000 * MS});
}

/// Both tunnels have a generation 3, and a repair packet of it that waits.
#[test]
fn a_report_makes_repair_packets_of_its_own_tunnel_useless() {
    let mut near = coder(with_reports);
    (0..50).for_each(|_| drop(arrive(&mut near, WORLD, 0, &[to_client(0, 980)])));
    let held = |near: &Coder| near.outlets[0].scheduler.held().packets;
    arrive(&mut near, WORLD, 0, &[to_client(1, 980), to_client(1, 980)]);
    let before = held(&near);
    arrive(&mut near, ISLAND, MS, &[report(1, 4, 1, 0)]);
    assert_eq!(
        (sums(&near).useless_repair_packets, before - held(&near)),
        (1, 1)
    );
    arrive(&mut near, ISLAND, MS, &[report(1, 5, 1, 0)]);
    assert_eq!(sums(&near).useless_repair_packets, 1);
}

/// Packets of each tunnel meet no queue, and then one of 30 ms twice, so that others fill the link; reports of one tunnel
/// or of both tell that.
#[test]
fn what_reports_tell_of_the_link_holds_for_all_tunnels_until_none_has_a_fresh_one() {
    let told_by = |tunnels: &[usize]| {
        let mut near = coder(with_reports);
        for sent_ns in [0, 300 * MS, 600 * MS] {
            let packets = [to_client(0, 80), to_client(1, 80)];
            arrive(&mut near, WORLD, sent_ns, &packets);
        }
        let arrived_ns = [7 * MS, 337 * MS, 637 * MS];
        for (tunnel, number) in tunnels.iter().zip(0..) {
            let report = report(
                *tunnel,
                4 + u32::from(number),
                number,
                arrived_ns[usize::from(number)],
            );
            arrive(&mut near, ISLAND, 650 * MS, &[report]);
        }
        near
    };
    let room_after = |near: &mut Coder, now_ns: u64| {
        step(near, now_ns, None);
        (0..25).for_each(|_| drop(arrive(near, WORLD, now_ns, &[to_client(0, 980)])));
        near.outlets[0].scheduler.next_ns().unwrap() - now_ns
    };
    let blind = room_after(&mut told_by(&[]), 700 * MS);
    for tunnels in [[0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 0]] {
        assert!(
            room_after(&mut told_by(&tunnels), 700 * MS) > blind + 5 * MS,
            "{tunnels:?}"
        );
        assert_eq!(
            room_after(&mut told_by(&tunnels), 1700 * MS),
            blind,
            "{tunnels:?}"
        );
        let mut renewed = told_by(&tunnels);
        arrive(
            &mut renewed,
            ISLAND,
            1500 * MS,
            &[report(1, 9, 2, 637 * MS)],
        );
        arrive(&mut renewed, ISLAND, 1600 * MS, &[report(0, 4, 0, 7 * MS)]); // an old one
        assert!(
            room_after(&mut renewed, 1700 * MS) > blind + 5 * MS,
            "{tunnels:?}"
        );
    }
}
