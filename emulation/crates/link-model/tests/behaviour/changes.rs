// SPDX-License-Identifier: Apache-2.0
//! Changes while packets are in the link: set by hand, or by a trace.

use crate::loads::{
    any_link, arrivals, drain, is_low, jitters, low_priority, new_link, offer_one, plain,
    with_jitter,
};
use atoll_link_model::{
    ConfigError, DropCause, Enqueued, JitterSettings, Link, LinkSettings, LossKind, LossPlace,
    LossSettings, LowPrioritySettings, TraceRow,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Settings of a link, and the packets before which it gets them.
fn versions(
    settings: impl Strategy<Value = LinkSettings>,
) -> impl Strategy<Value = Vec<(usize, LinkSettings)>> {
    prop::collection::vec((0_usize..150, settings), 1..6).prop_map(|mut versions| {
        versions.sort_by_key(|&(at, _)| at);
        versions
    })
}

/// A link that loses no packet that it has accepted, and keeps the order.
fn faultless() -> impl Strategy<Value = LinkSettings> {
    (plain(), jitters(), low_priority()).prop_map(|(settings, jitter, low_priority)| LinkSettings {
        low_priority,
        ..with_jitter(settings, jitter, false)
    })
}

/// The numbers of packets of low priority, and of the others.
fn by_priority(numbers: &[usize]) -> [Vec<usize>; 2] {
    [true, false].map(|low| {
        let of_a_queue = numbers.iter().filter(|&&number| is_low(number) == low);
        of_a_queue.copied().collect()
    })
}

fn geo() -> LinkSettings {
    LinkSettings {
        rate_bit_s: 8_000_000,
        delay_ns: 250 * MS,
        queue_bytes: 100_000,
        ..LinkSettings::default()
    }
}

/// Departures of ten packets of 1000 bytes, 1 ms each at 8 Mbit/s, all offered at 0.
fn ten(change: impl FnOnce(&mut Link<usize>)) -> Vec<u64> {
    let mut link = new_link(&geo(), 1);
    for number in 0..10 {
        assert_eq!(link.enqueue(0, 1000, number), Enqueued::Accepted);
    }
    change(&mut link);
    let departed = drain(&mut link);
    assert!(departed.iter().map(|departure| departure.packet).eq(0..10));
    departed
        .iter()
        .map(|departure| departure.scheduled_ns / 1000)
        .collect()
}

fn traced(rows: &[TraceRow]) -> LinkSettings {
    LinkSettings {
        trace: rows.to_vec(),
        ..geo()
    }
}

const ROW: TraceRow = TraceRow {
    t_ns: 0,
    rate_bit_s: None,
    delay_ns: None,
    loss: None,
    blocked: false,
};

proptest! {
    #[test]
    fn changes_reorder_drop_and_stall_nothing_that_was_accepted(
        first in faultless(), arrivals in arrivals(), versions in versions(faultless()),
    ) {
        let mut link = new_link(&first, 1);
        let (mut now, mut accepted) = (0, Vec::new());
        for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
            now += gap_ns;
            for (_, settings) in versions.iter().filter(|(at, _)| *at == number) {
                let held = link.held_packets();
                prop_assert_eq!(link.change(now, settings), Ok(()));
                prop_assert_eq!(link.held_packets(), held);
            }
            if offer_one(&mut link, now, bytes, number) == Enqueued::Accepted {
                accepted.push(number);
            }
        }
        let departed: Vec<usize> = drain(&mut link).iter().map(|departure| departure.packet).collect();
        prop_assert_eq!(by_priority(&departed), by_priority(&accepted));
        prop_assert_eq!(link.windows_over_rate(), 0);
    }

    /// A change itself loses nothing; later losses have a cause among the settings.
    #[test]
    fn any_link_becomes_any_other_one_under_traffic(
        first in any_link(), arrivals in arrivals(), versions in versions(any_link()), started in prop::collection::vec(any::<bool>(), 6),
    ) {
        let mut link = new_link(&first, 1);
        let (mut now, mut departed, mut changed) = (0, Vec::new(), 0);
        let mut in_order_from = if first.reorder { arrivals.len() } else { 0 };
        for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
            now += gap_ns;
            for (_, settings) in versions.iter().filter(|(at, _)| *at == number) {
                link.queue_bytes(now);
                let before = (link.held_packets(), link.totals());
                prop_assert_eq!(link.change(now, settings), Ok(()));
                prop_assert_eq!((link.held_packets(), link.totals()), before);
                if started[changed] {
                    let _ = link.start_trace(now);
                }
                changed += 1;
                if settings.reorder {
                    in_order_from = arrivals.len();
                } else if in_order_from > number {
                    in_order_from = number;
                }
            }
            offer_one(&mut link, now, bytes, number);
            departed.extend(std::iter::from_fn(|| link.pop_due(now)));
            let totals = link.totals();
            prop_assert_eq!(totals.arrived.packets, totals.departed.packets + totals.dropped.all().packets + link.held_packets());
        }
        let _ = link.start_trace(now);
        departed.extend(drain(&mut link));
        prop_assert_eq!(link.held_packets(), 0, "nothing stalls");
        prop_assert_eq!(link.windows_over_rate(), 0);
        prop_assert!(departed.windows(2).all(|pair| pair[0].scheduled_ns <= pair[1].scheduled_ns));
        let numbers: Vec<usize> = departed.iter().map(|departure| departure.packet).collect();
        for of_a_queue in by_priority(&numbers) {
            let mut latest = None;
            for number in of_a_queue {
                prop_assert!(number < in_order_from || latest < Some(number), "{number} is after {latest:?}");
                latest = latest.max(Some(number));
            }
        }
        let (totals, all) = (link.totals(), || versions.iter().map(|(_, settings)| settings).chain([&first]));
        prop_assert!(totals.dropped.aqm.packets == 0 || all().any(|settings| settings.aqm.is_some()));
        let is_lossy = |settings: &LinkSettings| settings.loss.is_some() || settings.trace.iter().any(|row| row.loss.is_some());
        prop_assert!(totals.dropped.loss.packets == 0 || all().any(is_lossy));
        prop_assert!(totals.dropped.blocked.packets == 0 || all().any(|settings| !settings.trace.is_empty()));
    }

    #[test]
    fn a_change_to_the_same_changes_nothing(settings in any_link(), arrivals in arrivals(), every in 1_usize..20) {
        let run = |every: Option<usize>| {
            let mut link = new_link(&settings, 1);
            let _ = link.start_trace(0);
            let mut now = 0;
            for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
                now += gap_ns;
                offer_one(&mut link, now, bytes, number);
                if every.is_some_and(|every| number % every == 0) {
                    link.change(now, &settings).unwrap();
                }
            }
            (drain(&mut link), link.totals())
        };
        prop_assert_eq!(run(Some(every)), run(None));
    }
}

#[test]
fn a_new_rate_holds_from_its_instant_on_in_the_middle_of_a_packet() {
    let slower = LinkSettings {
        rate_bit_s: 4_000_000,
        ..geo()
    };
    let departures = ten(|link| link.change(3_500_000, &slower).unwrap());
    let expected = [
        1000, 2000, 3000, 4500, 6500, 8500, 10_500, 12_500, 14_500, 16_500,
    ];
    assert_eq!(departures, expected.map(|sent| 250_000 + sent));
}

#[test]
fn a_shorter_delay_lets_nothing_overtake_what_is_under_way() {
    let shorter = LinkSettings {
        delay_ns: 247 * MS,
        ..geo()
    };
    let departures = ten(|link| link.change(4_500_000, &shorter).unwrap());
    let expected = [251, 252, 253, 254, 254, 254, 254, 255, 256, 257];
    assert_eq!(departures, expected.map(|ms| ms * 1000));
}

#[test]
fn a_longer_delay_holds_for_what_is_sent_from_then_on() {
    let longer = LinkSettings {
        delay_ns: 300 * MS,
        ..geo()
    };
    let departures = ten(|link| link.change(4_500_000, &longer).unwrap());
    let expected = [251, 252, 253, 254, 305, 306, 307, 308, 309, 310];
    assert_eq!(departures, expected.map(|ms| ms * 1000));
}

#[test]
fn a_smaller_queue_keeps_what_waits_and_refuses_what_comes() {
    let mut link = new_link(&geo(), 1);
    for number in 0..10 {
        link.enqueue(0, 1000, number);
    }
    let smaller = LinkSettings {
        queue_bytes: 3000,
        ..geo()
    };
    link.change(0, &smaller).unwrap();
    assert_eq!((link.queue_bytes(0), link.held_packets()), (9000, 10));
    assert!(matches!(
        link.enqueue(6 * MS, 1000, 10),
        Enqueued::Dropped(_)
    ));
    assert_eq!(link.enqueue(7 * MS, 1000, 11), Enqueued::Accepted);
}

#[test]
fn loss_can_be_switched_on_and_off() {
    let mut link = new_link(&geo(), 1);
    for (now, probability, verdict) in [
        (MS, 1.0, Enqueued::Dropped(DropCause::Loss)),
        (2 * MS, 0.0, Enqueued::Accepted),
    ] {
        link.change(now, &losing(probability, LossPlace::Before))
            .unwrap();
        assert_eq!(link.enqueue(now, 100, 0), verdict);
    }
}

fn losing(probability: f64, place: LossPlace) -> LinkSettings {
    let kind = LossKind::Bernoulli { probability };
    LinkSettings {
        loss: Some(LossSettings { kind, place }),
        ..geo()
    }
}

/// Ten packets of 1 ms each, all at the receiver lost that end between 4.5 and 8.5 ms.
#[test]
fn a_loss_that_begins_takes_what_is_sent_from_then_on() {
    let mut link = new_link(&geo(), 1);
    for number in 0..10 {
        assert_eq!(link.enqueue(0, 1000, number), Enqueued::Accepted);
    }
    // Nobody asked the link for anything before these instants.
    link.change(4_500_000, &losing(1.0, LossPlace::After))
        .unwrap();
    link.change(8_500_000, &losing(0.0, LossPlace::After))
        .unwrap();
    let numbers: Vec<usize> = drain(&mut link).iter().map(|each| each.packet).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 8, 9]);
    assert_eq!(link.totals().dropped.loss.packets, 4);
}

#[test]
fn the_loss_of_a_trace_is_that_of_the_instant_at_which_a_packet_has_been_sent() {
    let lossy = TraceRow {
        t_ns: 3_500_000,
        loss: Some(1.0),
        ..ROW
    };
    let clear = TraceRow {
        t_ns: 5_500_000,
        ..ROW
    };
    let mut link = new_link(&traced(&[ROW, lossy, clear]), 1);
    link.start_trace(0).unwrap();
    for number in 0..10 {
        assert_eq!(link.enqueue(0, 1000, number), Enqueued::Accepted);
    }
    let numbers: Vec<usize> = drain(&mut link).iter().map(|each| each.packet).collect();
    assert_eq!(numbers, [0, 1, 2, 5, 6, 7, 8, 9]);
}

#[test]
fn a_change_that_cannot_be_changes_nothing() {
    let mut link = new_link(&geo(), 1);
    let change = LinkSettings {
        rate_bit_s: 0,
        queue_bytes: 0,
        ..geo()
    };
    assert_eq!(link.change(0, &change), Err(ConfigError::Rate(0)));
    assert_eq!(link.enqueue(0, 1000, 0), Enqueued::Accepted);
    assert_eq!(link.enqueue(0, 1000, 1), Enqueued::Accepted);
    assert_eq!(
        new_link(&geo(), 1).start_trace(0),
        Err(ConfigError::NoTrace)
    );
}

#[test]
fn a_trace_begins_when_it_is_started_and_its_first_row_holds_before() {
    let slow = TraceRow {
        rate_bit_s: Some(4_000_000),
        ..ROW
    };
    let fast = TraceRow {
        t_ns: 3 * MS,
        rate_bit_s: Some(8_000_000),
        ..ROW
    };
    let mut link = new_link(&traced(&[slow, fast]), 1);
    for number in 0..5 {
        link.enqueue(0, 1000, number);
    }
    link.start_trace(4 * MS).unwrap();
    let departed = drain(&mut link);
    let sent: Vec<u64> = departed
        .iter()
        .map(|departure| departure.scheduled_ns / 1000 - 250_000)
        .collect();
    // Half of the fourth packet at the slow rate until 7 ms.
    assert_eq!(sent, [2000, 4000, 6000, 7500, 8500]);
}

#[test]
fn a_blockage_loses_what_is_being_sent_and_goes_on_sending() {
    let blocked = TraceRow {
        t_ns: 3_500_000,
        blocked: true,
        ..ROW
    };
    let clear = TraceRow {
        t_ns: 5_500_000,
        ..ROW
    };
    let mut link = new_link(&traced(&[ROW, blocked, clear]), 1);
    link.start_trace(0).unwrap();
    for number in 0..10 {
        link.enqueue(0, 1000, number);
    }
    let numbers: Vec<usize> = drain(&mut link)
        .iter()
        .map(|departure| departure.packet)
        .collect();
    assert_eq!(
        numbers,
        [0, 1, 2, 6, 7, 8, 9],
        "those sent in 3-4, 4-5 and 5-6 ms are lost"
    );
    assert_eq!(link.totals().dropped.blocked.packets, 3);
}

#[test]
fn a_pause_makes_packets_wait_and_drops_none() {
    let pause = TraceRow {
        t_ns: 3_500_000,
        rate_bit_s: Some(0),
        ..ROW
    };
    let resume = TraceRow {
        t_ns: 13_500_000,
        ..ROW
    };
    let mut link = new_link(&traced(&[ROW, pause, resume]), 1);
    link.start_trace(0).unwrap();
    for number in 0..10 {
        link.enqueue(0, 1000, number);
    }
    let departed = drain(&mut link);
    let sent: Vec<u64> = departed
        .iter()
        .map(|departure| departure.scheduled_ns / MS - 250)
        .collect();
    assert_eq!(sent, [1, 2, 3, 14, 15, 16, 17, 18, 19, 20]);
}

#[test]
fn a_queue_that_is_removed_leaves_its_packets_to_the_other_one_behind_those_there() {
    let with_two = LinkSettings {
        low_priority: Some(LowPrioritySettings {
            queue_bytes: 9000,
            queue_packets: None,
        }),
        ..geo()
    };
    let mut link = new_link(&with_two, 1);
    link.enqueue(0, 1000, 0);
    link.enqueue_low_priority(0, 1000, 1);
    link.enqueue(0, 1000, 2);
    link.change(0, &geo()).unwrap();
    assert_eq!(
        (link.queue_bytes(0), link.has_low_priority()),
        (2000, false)
    );
    assert_eq!(link.take_queue_peak_bytes(0), 2000);
    link.enqueue_low_priority(0, 1000, 3);
    link.change(0, &with_two).unwrap();
    link.enqueue_low_priority(0, 1000, 4);
    link.enqueue(0, 1000, 5);
    let numbers: Vec<usize> = drain(&mut link).iter().map(|each| each.packet).collect();
    assert_eq!(numbers, [0, 2, 1, 3, 5, 4]);
}

#[test]
fn a_trace_that_is_removed_no_longer_holds_and_another_one_has_to_be_started() {
    let pause = TraceRow {
        rate_bit_s: Some(0),
        ..ROW
    };
    let blocked = TraceRow {
        blocked: true,
        ..ROW
    };
    let mut link = new_link(&traced(&[pause]), 1);
    for number in 0..3 {
        link.enqueue(0, 1000, number);
    }
    link.change(5 * MS, &geo()).unwrap();
    assert_eq!(link.start_trace(5 * MS), Err(ConfigError::NoTrace));
    let second = TraceRow {
        t_ns: MS,
        ..blocked
    };
    link.change(6 * MS, &traced(&[ROW, second])).unwrap();
    link.start_trace(6 * MS).unwrap();
    let sent: Vec<(usize, u64)> = drain(&mut link)
        .iter()
        .map(|each| (each.packet, each.scheduled_ns / MS - 250))
        .collect();
    assert_eq!(
        sent,
        [(0, 6), (1, 7)],
        "the third one is sent while the path is blocked"
    );
}

#[test]
fn jitter_and_order_are_those_of_the_instant_at_which_a_packet_has_been_sent() {
    let jittery = |reorder| LinkSettings {
        jitter: Some(JitterSettings::uniform(100 * MS)),
        reorder,
        ..geo()
    };
    let mut link = new_link(&geo(), 1);
    let mut departed = Vec::new();
    for (number, settings) in [(100, jittery(true)), (200, jittery(false)), (300, geo())] {
        for number in number - 100..number {
            link.enqueue(number * MS, 1000, number as usize);
        }
        link.change(number * MS, &settings).unwrap();
    }
    for number in 300..400_u64 {
        link.enqueue(number * MS, 1000, number as usize);
    }
    departed.extend(drain(&mut link).iter().map(|each| each.packet));
    let is_sorted = |numbers: std::ops::Range<usize>| {
        departed
            .iter()
            .filter(|number| numbers.contains(number))
            .is_sorted()
    };
    assert!(is_sorted(0..100) && !is_sorted(100..200) && is_sorted(200..400));
}
