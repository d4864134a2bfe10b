// SPDX-License-Identifier: Apache-2.0
//! The program without interfaces: frames in, frames out.

use super::*;
use crate::config::tests::config;
use crate::ipv4::tests::packet;
use crate::outer::OVERHEAD_BYTES;
use atoll_frame_engine::Received;
use atoll_redundancy::{BURST_CLASSES, LossSums};
use proptest::prelude::*;
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
/// Ports of the coder at the world's end; those of the other one are the same.
const WORLD: usize = 0;
const ISLAND: usize = 1;
const SERVER: [u8; 4] = [10, 10, 0, 1];
const CLIENT: [u8; 4] = [10, 20, 0, 1];
const TCP: u8 = 6;

mod sharing;

/// The coders of both ends, which carry all packets between the prefixes of the contract's first example.
fn pair(change: impl Fn(&mut Value)) -> (Coder, Coder) {
    (near(3, &change), far(3, &change))
}

/// The coder at the world's end, which began at this instant.
fn near(session_start: u32, change: impl Fn(&mut Value)) -> Coder {
    Coder::new(&config(change).unwrap(), session_start).unwrap()
}

fn far(session_start: u32, change: impl Fn(&mut Value)) -> Coder {
    let config = config(|line| {
        change(line);
        let tunnel = &mut line["tunnels"][0];
        let address = tunnel["address"].take();
        tunnel["address"] = tunnel["peer_address"].take();
        tunnel["peer_address"] = address;
        tunnel["peer_at"] = json!("world");
        let pair = line["pairs"][0].as_object_mut().unwrap();
        let (world, island) = (pair["world"]["mtu"].take(), pair["island"]["mtu"].take());
        (pair["world"]["mtu"], pair["island"]["mtu"]) = (island, world);
    });
    Coder::new(&config.unwrap(), session_start).unwrap()
}

fn sums(coder: &Coder) -> Sums {
    coder.sums(Now {
        monotonic_ns: 0,
        real_time_ns: 0,
        cpu_ns: 0,
    })
}

fn small_generations(line: &mut Value) {
    line["generation"] = json!(4);
    line["redundancy"] = json!(1);
    line["scheduler"] = json!({"kind": "tail"});
}

fn framed(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0]);
    frame.extend(packet);
    frame
}

/// What leaves when these frames arrive at a port: port and frame of each.
fn arrive(
    coder: &mut Coder,
    port: usize,
    now_ns: u64,
    frames: &[Vec<u8>],
) -> Vec<(usize, Vec<u8>)> {
    let mut out = FrameOutput::default();
    for frame in frames {
        let received = Received::whole(frame, now_ns);
        let arrival = Arrival {
            port,
            now_ns,
            stamped: true,
            received: &received,
        };
        coder.on_frame(&arrival, &mut out);
    }
    out.take()
        .into_iter()
        .map(|each| (each.port, each.frame))
        .collect()
}

fn frames(sent: &[(usize, Vec<u8>)]) -> Vec<Vec<u8>> {
    sent.iter().map(|(_, frame)| frame.clone()).collect()
}

fn numbered(count: u8) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| packet(SERVER, CLIENT, TCP, &[number; 100]))
        .collect()
}

fn payloads(frames: &[Vec<u8>]) -> Vec<u8> {
    let number = |frame: &Vec<u8>| Ipv4::parse(&frame[ETHERNET_BYTES..]).unwrap().payload()[0];
    frames.iter().map(number).collect()
}

#[test]
fn packets_pass_two_coders_as_they_were_and_one_that_is_lost_comes_back() {
    let (mut near, mut far) = pair(small_generations);
    let packets: Vec<Vec<u8>> = numbered(4).iter().map(|packet| framed(packet)).collect();
    let mut sent = frames(&arrive(&mut near, WORLD, MS, &packets));
    assert_eq!(sent.len(), 5);
    assert_eq!(sums(&near).repair_packets, 1);
    let outer = Ipv4::parse(&sent[4][ETHERNET_BYTES..]).unwrap();
    assert_eq!(outer.tos() >> 2, 1, "lower effort");
    assert_eq!(
        outer.bytes.len() + 2,
        120 + OVERHEAD_BYTES,
        "room for an even length"
    );
    sent.remove(1);
    let delivered = arrive(&mut far, WORLD, 2 * MS, &sent);
    assert!(delivered.iter().all(|(port, _)| *port == ISLAND));
    let delivered = frames(&delivered);
    assert_eq!(payloads(&delivered), [0, 2, 3, 1]);
    let mut expected = numbered(2)[1].clone();
    ipv4::decrement_ttl(&mut expected);
    ipv4::decrement_ttl(&mut expected);
    assert_eq!(
        delivered[3][ETHERNET_BYTES..],
        expected,
        "as behind two routers"
    );
    assert_eq!(delivered[3][..6], [2, 0, 0, 2, 0, 1], "the host's address");
    let sums = sums(&far).decoded;
    assert_eq!(
        (
            sums.recovered_packets,
            sums.useful_repair_packets,
            sums.lost_packets
        ),
        (1, 1, 0)
    );
}

#[test]
fn both_directions_are_coded() {
    let (mut near, mut far) = pair(small_generations);
    let back: Vec<Vec<u8>> = (0..4)
        .map(|number| framed(&packet(CLIENT, SERVER, TCP, &[number; 9])))
        .collect();
    let mut sent = frames(&arrive(&mut far, ISLAND, MS, &back));
    sent.remove(0);
    let delivered = arrive(&mut near, ISLAND, MS, &sent);
    assert_eq!(payloads(&frames(&delivered)), [1, 2, 3, 0]);
    assert!(delivered.iter().all(|(port, _)| *port == WORLD));
}

#[test]
fn a_generation_that_is_not_whole_is_repaired_after_its_time() {
    let (mut near, _) = pair(small_generations);
    arrive(&mut near, WORLD, MS, &[framed(&numbered(1)[0])]);
    assert_eq!(near.next_wake(), Some(101 * MS));
    let mut out = FrameOutput::default();
    near.on_wake(101 * MS, &mut out);
    assert_eq!((out.take().len(), near.next_wake()), (1, None));
}

#[test]
fn packets_of_the_testbed_pass_uncoded() {
    let (mut near, mut far) = pair(small_generations);
    let whistle = packet(
        SERVER,
        CLIENT,
        1,
        b"\x08\0\0\0\0\x01\0\0atoll whistle start",
    );
    let sent = frames(&arrive(&mut near, WORLD, 0, &[framed(&whistle)]));
    let arrived = frames(&arrive(&mut far, WORLD, 0, &sent));
    assert_eq!(arrived[0][ETHERNET_BYTES + 20..], whistle[20..]);
    assert_eq!(
        (sums(&near).source_packets, sums(&near).uncoded_packets),
        (0, 1)
    );
    assert!(!near.may_poll(), "its delay is measured");
    arrive(&mut near, WORLD, MEASURE_GAP_NS, &[framed(&numbered(1)[0])]);
    assert!(near.may_poll());
}

#[test]
fn short_flows_and_small_packets_are_not_coded() {
    let (mut near, _) = pair(|line| {
        line["small_bytes"] = json!(60);
        line["flow_threshold_bytes"] = json!(200);
    });
    let long = framed(&packet(SERVER, CLIENT, TCP, &[0; 100]));
    let small = framed(&packet(SERVER, CLIENT, TCP, &[0; 40]));
    arrive(
        &mut near,
        WORLD,
        0,
        &[long.clone(), long.clone(), long, small],
    );
    assert_eq!(
        (sums(&near).source_packets, sums(&near).uncoded_packets),
        (1, 3)
    );
}

#[test]
fn one_direction_can_be_coded_alone() {
    let (mut near, mut far) = pair(|line| line["direction"] = json!("to_island"));
    arrive(
        &mut near,
        WORLD,
        0,
        &[framed(&packet(SERVER, CLIENT, TCP, &[1]))],
    );
    arrive(
        &mut far,
        ISLAND,
        0,
        &[framed(&packet(CLIENT, SERVER, TCP, &[1]))],
    );
    assert_eq!(
        (sums(&near).source_packets, sums(&far).source_packets),
        (1, 0)
    );
}

#[test]
fn packets_that_do_not_fit_and_those_at_the_end_of_their_way_are_dropped() {
    let (mut near, _) = pair(|_| {});
    let long = packet(SERVER, CLIENT, TCP, &vec![0; 1481]);
    let mut old = packet(SERVER, CLIENT, TCP, &[0]);
    (0..63).for_each(|_| ipv4::decrement_ttl(&mut old));
    assert!(arrive(&mut near, WORLD, 0, &[framed(&long), framed(&old)]).is_empty());
    assert_eq!(
        (sums(&near).oversize_packets, sums(&near).ignored_frames),
        (1, 1)
    );
}

#[test]
fn congestion_is_passed_on_and_recovered_packets_say_it_if_asked_to() {
    let (mut near, mut far) = pair(|line| {
        small_generations(line);
        line["signal"] = json!("mark");
    });
    let capable: Vec<Vec<u8>> = numbered(4)
        .into_iter()
        .map(|mut packet| {
            ipv4::mark_congestion(&mut packet);
            let sum = atoll_headers::read_u16(&packet, 10).unwrap() + 1; // of ECN 2 instead of 3
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet[1] = 2;
            framed(&packet)
        })
        .collect();
    let mut sent = frames(&arrive(&mut near, WORLD, 0, &capable));
    sent.remove(0);
    ipv4::mark_congestion(&mut sent[1][ETHERNET_BYTES..]);
    let delivered = frames(&arrive(&mut far, WORLD, 0, &sent));
    let marks: Vec<u8> = delivered
        .iter()
        .map(|frame| frame[ETHERNET_BYTES + 1])
        .collect();
    assert_eq!(
        (payloads(&delivered), marks),
        (vec![1, 2, 3, 0], vec![2, 3, 2, 3])
    );
}

#[test]
fn a_mark_has_the_sums_since_the_last_one() {
    let (mut near, _) = pair(small_generations);
    let now = Now {
        monotonic_ns: MS,
        real_time_ns: 9,
        cpu_ns: 5 * MS,
    };
    arrive(&mut near, WORLD, 0, &[framed(&numbered(1)[0])]);
    assert_eq!(near.measurement(now).sums.source_packets, 1);
    let later = Now {
        cpu_ns: 7 * MS,
        ..now
    };
    let sums = near.measurement(later).sums;
    assert_eq!((sums.source_packets, sums.cpu_ns), (0, 2 * MS));
}

fn with_feedback(line: &mut Value) {
    small_generations(line);
    line["feedback"] = json!({"every_ns": 100 * MS, "packets": null, "timeout_ns": 3000 * MS});
}

/// What leaves because time has passed.
fn wake(coder: &mut Coder, now_ns: u64) -> Vec<(usize, Vec<u8>)> {
    let mut out = FrameOutput::default();
    coder.on_wake(now_ns, &mut out);
    out.take()
        .into_iter()
        .map(|each| (each.port, each.frame))
        .collect()
}

fn is_report(frame: &[u8]) -> bool {
    frame.get(ETHERNET_BYTES + outer::OUTER_BYTES) == Some(&0xbf)
}

#[test]
fn reports_go_back_where_packets_came_from() {
    let (mut near, mut far) = pair(with_feedback);
    let packets: Vec<Vec<u8>> = numbered(4).iter().map(|packet| framed(packet)).collect();
    let mut sent = frames(&arrive(&mut near, WORLD, MS, &packets));
    sent.remove(1);
    let answered = arrive(&mut far, WORLD, 10 * MS, &sent);
    let (reports, delivered): (Vec<_>, Vec<_>) = answered
        .into_iter()
        .partition(|(_, frame)| is_report(frame));
    assert_eq!(payloads(&frames(&delivered)), [0, 2, 3, 1]);
    assert_eq!(reports.len(), 1, "the first packet is reported at once");
    assert_eq!(reports[0].0, WORLD);
    assert_eq!(far.next_wake(), Some(110 * MS), "the others later");
    let late = wake(&mut far, 110 * MS);
    assert_eq!((late.len(), far.next_wake()), (1, None));
    let outer = Ipv4::parse(&late[0].1[ETHERNET_BYTES..]).unwrap();
    let report = Report::parse(outer::content(&outer).unwrap().1).unwrap();
    assert_eq!((report.losses.arrived, report.losses.lost), (3, 1));
    assert_eq!((report.losses.runs, report.recovered), ([1, 0, 0, 0, 0], 1));
    assert_eq!((report.first_generation, report.ranks), (3, vec![4]));
    assert!(arrive(&mut near, ISLAND, 120 * MS, &frames(&late)).is_empty());
    assert_eq!(
        (sums(&far).sent_reports, sums(&near).arrived_reports),
        (2, 1)
    );
    assert_eq!(near.current(Peak::take_interval).report_rtt_ns, 19 * MS);
}

#[test]
fn repair_packets_are_dropped_when_their_generation_has_arrived() {
    let (mut near, mut far) = pair(|line| {
        with_feedback(line);
        line["scheduler"] = json!({"kind": "deferred", "after_ns": 500 * MS});
    });
    let packets: Vec<Vec<u8>> = numbered(8).iter().map(|packet| framed(packet)).collect();
    let mut sent = frames(&arrive(&mut near, WORLD, 0, &packets));
    assert_eq!(sent.len(), 8, "two repair packets wait");
    sent.remove(6); // of the second generation
    arrive(&mut far, WORLD, 10 * MS, &sent);
    let reports = frames(&wake(&mut far, 110 * MS));
    arrive(&mut near, ISLAND, 120 * MS, &reports);
    let (total, held) = (sums(&near), near.outlets[0].scheduler.held());
    assert_eq!((total.useless_repair_packets, held.packets), (1, 1));
    let repaired = arrive(
        &mut far,
        WORLD,
        510 * MS,
        &frames(&wake(&mut near, 500 * MS)),
    );
    assert_eq!(sums(&far).decoded.recovered_packets, 1);
    assert!(repaired.iter().any(|(port, _)| *port == ISLAND));
}

fn sliding_window(line: &mut Value) {
    with_feedback(line);
    line["scheme"] = json!("sliding-window");
    line["scheduler"] = json!({"kind": "interspersed"});
}

#[test]
fn a_sliding_window_brings_lost_packets_back_between_packets() {
    let (mut near, mut far) = pair(sliding_window);
    let packets: Vec<Vec<u8>> = numbered(12).iter().map(|packet| framed(packet)).collect();
    let mut sent = frames(&arrive(&mut near, WORLD, 0, &packets));
    assert_eq!(sent.len(), 12 + 3, "one repair packet for four packets");
    sent.remove(6); // packet 5: a repair packet followed packet 3
    let answered = arrive(&mut far, WORLD, 10 * MS, &sent);
    let (_, delivered): (Vec<_>, Vec<_>) = answered
        .into_iter()
        .partition(|(_, frame)| is_report(frame));
    let expected = [0, 1, 2, 3, 4, 6, 7, 5, 8, 9, 10, 11];
    assert_eq!(payloads(&frames(&delivered)), expected);
    let late = frames(&wake(&mut far, 110 * MS));
    let outer = Ipv4::parse(&late[0][ETHERNET_BYTES..]).unwrap();
    let report = Report::parse(outer::content(&outer).unwrap().1).unwrap();
    assert_eq!((report.losses.lost, report.recovered), (1, 1));
    assert_eq!((report.first_generation, report.ranks), (3 + 12, vec![]));
    let sums = sums(&far).decoded;
    assert_eq!((sums.useful_repair_packets, sums.malformed_packets), (1, 0));
}

#[test]
fn repair_packets_of_a_window_are_dropped_when_all_of_it_has_arrived() {
    let (mut near, mut far) = pair(|line| {
        sliding_window(line);
        line["scheduler"] = json!({"kind": "deferred", "after_ns": 500 * MS});
    });
    let packets: Vec<Vec<u8>> = numbered(8).iter().map(|packet| framed(packet)).collect();
    let mut sent = frames(&arrive(&mut near, WORLD, 0, &packets));
    assert_eq!(sent.len(), 8, "two repair packets wait");
    sent.remove(6); // of the second one
    arrive(&mut far, WORLD, 10 * MS, &sent);
    let reports = frames(&wake(&mut far, 110 * MS));
    arrive(&mut near, ISLAND, 120 * MS, &reports);
    let (total, held) = (sums(&near), near.outlets[0].scheduler.held());
    assert_eq!((total.useless_repair_packets, held.packets), (1, 1));
    let repairs = frames(&wake(&mut near, 500 * MS));
    let repaired = arrive(&mut far, WORLD, 510 * MS, &repairs);
    assert_eq!(sums(&far).decoded.recovered_packets, 1);
    assert!(repaired.iter().any(|(port, _)| *port == ISLAND));
}

#[test]
fn reports_that_were_not_agreed_are_foreign() {
    let (_, mut far) = pair(with_feedback);
    let (mut near, _) = pair(small_generations);
    let sent = frames(&arrive(&mut near, WORLD, 0, &[framed(&numbered(1)[0])]));
    let reports: Vec<Vec<u8>> = frames(&arrive(&mut far, WORLD, MS, &sent))
        .into_iter()
        .filter(|frame| is_report(frame))
        .collect();
    assert_eq!(reports.len(), 1);
    arrive(&mut near, ISLAND, MS, &reports);
    assert_eq!(sums(&near).decoded.malformed_packets, 1);
    let cut = framed(&reports[0][ETHERNET_BYTES..reports[0].len() - 1]);
    arrive(&mut near, ISLAND, MS, &[cut]);
    assert_eq!(sums(&near).arrived_reports, 0);
}

#[test]
fn repair_packets_follow_the_losses_and_fall_back_without_reports() {
    let (mut near, mut far) = pair(|line| {
        with_feedback(line);
        line["generation"] = json!(10);
        line["redundancy"] = json!(2);
        line["adaptive"] = json!({"most": 8, "residual_loss": 0.01});
    });
    let mut number = 0_u64;
    let mut run = |near: &mut Coder, far: &mut Coder, packets: u64, reports: bool| {
        for _ in 0..packets {
            let now_ns = number * MS;
            let packet = framed(&packet(SERVER, CLIENT, TCP, &[7; 40]));
            let sent = frames(&arrive(near, WORLD, now_ns, &[packet]));
            // Every tenth packet is lost, and the one after it.
            let arrives = number % 10 > 1;
            number += 1;
            let sent: Vec<Vec<u8>> = sent.into_iter().filter(|_| arrives).collect();
            let mut answers = frames(&arrive(far, WORLD, now_ns, &sent));
            answers.extend(frames(&wake(far, now_ns)));
            let mut answers = answers.into_iter().filter(|frame| is_report(frame));
            if let Some(report) = answers.next().filter(|_| reports) {
                arrive(near, ISLAND, now_ns, &[report]);
            }
        }
        near.current(Peak::take_interval)
    };
    let begin = run(&mut near, &mut far, 50, true);
    assert_eq!((begin.redundancy, begin.fallback), (2, 1));
    let adapted = run(&mut near, &mut far, 3000, true);
    assert!((4..=8).contains(&adapted.redundancy), "{adapted:?}");
    assert_eq!(adapted.fallback, 0);
    let silent = run(&mut near, &mut far, 3200, false);
    assert_eq!((silent.redundancy, silent.fallback), (2, 1));
    assert_eq!(sums(&near).fallbacks, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever arrives at either leg, also in the tunnel and with a right checksum.
    #[test]
    fn no_frames_make_it_panic(
        contents in proptest::collection::vec((0..5_u8, proptest::collection::vec(any::<u8>(), 0..200)), 1..50),
        window: bool,
    ) {
        let (mut near, mut far) = pair(if window { sliding_window } else { with_feedback });
        for (kind, mut content) in contents {
            let addresses = outer::Addresses {
                source_mac: [2; 6],
                destination_mac: [2; 6],
                source: Ipv4Addr::new(10, 20, 255, 254),
                destination: Ipv4Addr::new(10, 10, 255, 254),
                session: 50_000 + content.len() as u16 % 3,
            };
            let mut frame = Vec::new();
            match kind {
                0 => frame = content,
                1 => frame = framed(&content),
                2 => frame = framed(&packet(SERVER, CLIENT, content.first().copied().unwrap_or(0), &content)),
                3 => {
                    let ranks: Vec<u16> = content.iter().map(|byte| u16::from(*byte)).collect();
                    let sum = |at: usize| content.get(at).copied().map_or(0, |byte| u64::from(byte) << 56);
                    let report = Report {
                        number: sum(0) as u32,
                        arrived_ns: sum(1),
                        losses: LossSums { arrived: sum(2), lost: sum(3), runs: [sum(4); BURST_CLASSES] },
                        ranks,
                        ..Report::default()
                    };
                    outer::write_frame(&mut frame, &addresses, (0, 0), report.length(), |out| report.write(out));
                }
                _ => {
                    if let [first, second, ..] = content.as_mut_slice() {
                        (*first, *second) = (0xb0 + *first % 5, 0);
                    }
                    outer::write_frame(&mut frame, &addresses, (0, 0), content.len(), |out| out.extend(&content));
                }
            }
            for (coder, port) in [(&mut near, WORLD), (&mut far, ISLAND)] {
                arrive(coder, port, 0, &[frame.clone()]);
            }
            arrive(&mut near, ISLAND, 0, &[frame]);
        }
    }
}

fn held(line: &mut Value) {
    small_generations(line);
    line["hold_ns"] = json!(20 * MS);
}

#[test]
fn packets_wait_for_one_that_is_recovered_or_given_up() {
    let (mut near, mut far) = pair(held);
    let packets: Vec<Vec<u8>> = numbered(12).iter().map(|packet| framed(packet)).collect();
    let mut sent = frames(&arrive(&mut near, WORLD, 0, &packets));
    assert_eq!(sent.len(), 15, "a repair packet after four");
    let third = sent.split_off(10);
    // Of the first generation one is lost and comes back; of the second one two, which do not.
    for lost in [8, 6, 1] {
        sent.remove(lost);
    }
    let delivered = arrive(&mut far, WORLD, MS, &sent);
    assert_eq!(payloads(&frames(&delivered)), [0, 1, 2, 3, 4]);
    assert_eq!(arrive(&mut far, WORLD, 2 * MS, &third), []);
    for (ms, expected) in [(21, vec![6]), (22, vec![8, 9, 10, 11])] {
        assert_eq!(far.next_wake(), Some(ms * MS));
        assert_eq!(payloads(&frames(&wake(&mut far, ms * MS))), expected);
    }
    let sums = sums(&far);
    assert_eq!((sums.held_packets, sums.given_up_packets), (7, 2));
    assert_eq!(sums.held_ns, 5 * 20 * MS);
}

#[test]
fn a_generation_of_which_repair_packets_alone_arrive_has_its_place() {
    let (mut near, mut far) = pair(|line| {
        held(line);
        line["redundancy"] = json!(4);
    });
    let packets: Vec<Vec<u8>> = numbered(12).iter().map(|packet| framed(packet)).collect();
    let mut sent = frames(&arrive(&mut near, WORLD, 0, &packets));
    assert_eq!(sent.len(), 24);
    sent.drain(8..12);
    sent[8..].rotate_left(4); // the third generation overtakes the repair packets of the second one
    let delivered = arrive(&mut far, WORLD, MS, &sent);
    assert_eq!(payloads(&frames(&delivered)), (0..12).collect::<Vec<u8>>());
    assert_eq!(
        sums(&far).held_packets,
        4 + 3,
        "those recovered together come in any order"
    );
}

#[test]
fn recovered_packets_leave_by_the_pair_of_legs_by_which_they_would_have() {
    let spare = 2;
    for kind in [small_generations, sliding_window, held] {
        let (mut near, mut far) = pair(|line| {
            kind(line);
            let mut pair = line["pairs"][0].clone();
            pair["world"]["mtu"] = json!(1544);
            line["pairs"].as_array_mut().unwrap().push(pair);
        });
        let packets: Vec<Vec<u8>> = numbered(8).iter().map(|packet| framed(packet)).collect();
        let (early, late) = packets.split_at(2);
        let mut sent = arrive(&mut near, spare + WORLD, 0, early);
        sent.extend(arrive(&mut near, WORLD, 0, late));
        sent.extend(wake(&mut near, 100 * MS));
        let ports: Vec<usize> = sent.iter().map(|(port, _)| *port).collect();
        assert_eq!(ports, [3, 3, 1, 3, 1, 1, 1, 1, 1, 1, 1]);
        for lost in [5, 1] {
            sent.remove(lost);
        }
        let mut delivered = Vec::new();
        for (port, frame) in sent {
            delivered.extend(arrive(&mut far, other_leg(port), 200 * MS, &[frame]));
        }
        delivered.retain(|(_, frame)| !is_report(frame));
        delivered.sort_by_key(|(_, frame)| payloads(std::slice::from_ref(frame)));
        assert_eq!(payloads(&frames(&delivered)), (0..8).collect::<Vec<u8>>());
        let ports: Vec<usize> = delivered.iter().map(|(port, _)| *port).collect();
        assert_eq!(ports, [3, 3, 1, 1, 1, 1, 1, 1]);
    }
}

/// What a coder that began at this instant makes of twelve packets.
fn coded(start: u32, change: impl Fn(&mut Value)) -> Vec<Vec<u8>> {
    let packets: Vec<Vec<u8>> = numbered(12).iter().map(|packet| framed(packet)).collect();
    frames(&arrive(&mut near(start, change), WORLD, 0, &packets))
}

/// The numbers of the packets that hosts get.
fn to_hosts(sent: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let mut frames = frames(sent);
    frames.retain(|frame| !is_report(frame));
    payloads(&frames)
}

#[test]
fn a_coder_that_begins_again_is_followed_from_its_first_packet() {
    for change in [small_generations, sliding_window, held] {
        for session_start in [2, 100_000, u32::MAX] {
            let mut far = far(3, change);
            arrive(&mut far, WORLD, MS, &coded(3, change));
            let mut again = coded(session_start, change);
            again.remove(1);
            let mut delivered = to_hosts(&arrive(&mut far, WORLD, 2 * MS, &again));
            assert!(delivered.is_sorted() || sums(&far).held_packets == 0);
            delivered.sort_unstable();
            assert_eq!(delivered, (0..12).collect::<Vec<u8>>(), "{session_start}");
            let sums = sums(&far).decoded;
            assert_eq!((sums.recovered_packets, sums.late_packets), (1, 0));
        }
    }
}

#[test]
fn packets_on_hold_leave_when_the_other_coder_begins_again() {
    let mut far = far(3, held);
    let mut sent = coded(3, held)[..4].to_vec();
    sent.remove(1);
    assert_eq!(to_hosts(&arrive(&mut far, WORLD, MS, &sent)), [0]);
    let again = &coded(100_000, held)[..1];
    assert_eq!(to_hosts(&arrive(&mut far, WORLD, 2 * MS, again)), [2, 3, 0]);
    assert_eq!(far.next_wake(), None, "none waits");
}

#[test]
fn packets_of_the_session_before_that_still_come_change_nothing() {
    let mut far = far(3, small_generations);
    let mut before = coded(900_000, small_generations);
    let repair = before.remove(4);
    arrive(&mut far, WORLD, MS, &before);
    let again = coded(3, small_generations);
    let mixed = [&again[..1], &[repair], &again[2..5]].concat();
    assert_eq!(
        to_hosts(&arrive(&mut far, WORLD, 2 * MS, &mixed)),
        [0, 2, 3, 1]
    );
    let sums = sums(&far).decoded;
    assert_eq!((sums.recovered_packets, sums.late_packets), (1, 1));
}

#[test]
fn a_straggler_of_an_older_session_ends_the_present_one_for_a_moment_only() {
    let mut far = far(3, small_generations);
    for (session_start, ms) in [(900_000, 1), (500_000, 2), (3, 3), (900_000, 4)] {
        arrive(
            &mut far,
            WORLD,
            ms * MS,
            &coded(session_start, small_generations)[..1],
        );
    }
    let current = coded(3, small_generations);
    assert!(to_hosts(&arrive(&mut far, WORLD, 5 * MS, &current[1..3])).is_empty());
    let later = to_hosts(&arrive(&mut far, WORLD, 10_000 * MS, &current[1..3]));
    assert_eq!(later.len(), 2);
}

#[test]
fn reports_of_a_coder_that_begins_again_are_heard_at_once() {
    let mut near = near(3, with_feedback);
    for (session_start, ms) in [(100_000, 10), (3, 20)] {
        let mut far = far(session_start, with_feedback);
        let sent = frames(&arrive(&mut near, WORLD, 0, &[framed(&numbered(1)[0])]));
        let mut reports = frames(&arrive(&mut far, WORLD, MS, &sent));
        reports.retain(|frame| is_report(frame));
        arrive(&mut near, ISLAND, ms * MS, &reports);
        let rtt_ns = near.current(Peak::take_interval).report_rtt_ns;
        assert_eq!(
            rtt_ns,
            ms * MS,
            "the number of packets is that of the first session"
        );
    }
}

/// The outer packet, of another version of its header.
fn with_version(frame: &[u8], version: u8) -> Vec<u8> {
    let at = ETHERNET_BYTES + outer::OUTER_BYTES;
    let mut frame = frame.to_vec();
    let before = frame[at];
    frame[at] = version << 4 | before & 15;
    let sum = at - 2;
    let checksum = u16::from_be_bytes([frame[sum], frame[sum + 1]]);
    let less = u16::from(before.wrapping_sub(frame[at])) << 8;
    let (checksum, carry) = checksum.overflowing_add(less);
    frame[sum..at].copy_from_slice(&(checksum + u16::from(carry)).to_be_bytes());
    frame
}

#[test]
fn a_coder_of_another_version_is_refused_and_named() {
    let mut far = far(3, small_generations);
    let now = Now {
        monotonic_ns: MS,
        real_time_ns: 9,
        cpu_ns: 0,
    };
    let sent = coded(3, small_generations);
    let other: Vec<Vec<u8>> = sent.iter().map(|frame| with_version(frame, 10)).collect();
    assert_eq!(arrive(&mut far, WORLD, MS, &other), []);
    let line = serde_json::to_value(far.counters(now)).unwrap();
    assert_eq!(
        (&line["other_version_packets"], &line["malformed_packets"]),
        (&json!(15), &json!(0))
    );
    let text = line["error"].as_str().unwrap();
    assert!(
        text.contains("10.10.255.254") && text.contains("version 10"),
        "{text}"
    );
    arrive(&mut far, WORLD, MS, &sent);
    let line = serde_json::to_value(far.counters(now)).unwrap();
    assert_eq!(line.get("error"), None, "the other coder was replaced");
}
