// SPDX-License-Identifier: Apache-2.0
//! Changes while packets are in the link: set by hand, or by a trace.

use crate::loads::{arrivals, drain, new_link, offer, plain};
use atoll_link_model::{
    ConfigError, DropCause, Enqueued, Link, LinkChange, LinkSettings, LossKind, LossPlace,
    LossSettings, TraceRow,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn changes() -> impl Strategy<Value = LinkChange> {
    let rate = prop::option::of(100_000_u64..400_000_000);
    let delay = prop::option::of(0_u64..300_000_000);
    let queue = prop::option::of(1500_u64..200_000);
    (rate, delay, queue).prop_map(|(rate_bit_s, delay_ns, queue_bytes)| LinkChange {
        rate_bit_s,
        delay_ns,
        queue_bytes,
        ..LinkChange::default()
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
        settings in plain(), arrivals in arrivals(), changes in prop::collection::vec((0_usize..150, changes()), 0..10),
    ) {
        let mut link = new_link(&settings, 1);
        let (mut now, mut accepted) = (0, Vec::new());
        for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
            now += gap_ns;
            for (_, change) in changes.iter().filter(|(at, _)| *at == number) {
                let held = link.held_packets();
                prop_assert_eq!(link.change(now, change), Ok(()));
                prop_assert_eq!(link.held_packets(), held);
            }
            if link.enqueue(now, bytes, number) == Enqueued::Accepted {
                accepted.push(number);
            }
        }
        let held_bytes = link.totals().arrived.bytes - link.totals().dropped.all().bytes;
        let departed = drain(&mut link);
        prop_assert!(departed.iter().map(|departure| departure.packet).eq(accepted));
        prop_assert_eq!(link.windows_over_rate(), 0);
        // By the slowest rate and the longest delay that there can be.
        let last_ns = departed.last().map_or(0, |departure| departure.scheduled_ns);
        prop_assert!(last_ns <= now + 300 * MS + held_bytes * 8_000_000_000 / 100_000 + 1);
    }

    #[test]
    fn a_change_to_the_same_changes_nothing(settings in plain(), arrivals in arrivals(), every in 1_usize..20) {
        let mut quiet = new_link(&settings, 1);
        offer(&mut quiet, &arrivals);
        let same = LinkChange {
            rate_bit_s: Some(settings.rate_bit_s),
            delay_ns: Some(settings.delay_ns),
            queue_bytes: Some(settings.queue_bytes),
            ..LinkChange::default()
        };
        let mut link = new_link(&settings, 1);
        let mut now = 0;
        for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
            now += gap_ns;
            link.enqueue(now, bytes, number);
            if number % every == 0 {
                link.change(now, &same).unwrap();
            }
        }
        prop_assert_eq!(drain(&mut link), drain(&mut quiet));
    }
}

#[test]
fn a_new_rate_holds_from_its_instant_on_in_the_middle_of_a_packet() {
    let slower = LinkChange {
        rate_bit_s: Some(4_000_000),
        ..LinkChange::default()
    };
    let departures = ten(|link| link.change(3_500_000, &slower).unwrap());
    let expected = [
        1000, 2000, 3000, 4500, 6500, 8500, 10_500, 12_500, 14_500, 16_500,
    ];
    assert_eq!(departures, expected.map(|sent| 250_000 + sent));
}

#[test]
fn a_shorter_delay_lets_nothing_overtake_what_is_under_way() {
    let shorter = LinkChange {
        delay_ns: Some(247 * MS),
        ..LinkChange::default()
    };
    let departures = ten(|link| link.change(4_500_000, &shorter).unwrap());
    let expected = [251, 252, 253, 254, 254, 254, 254, 255, 256, 257];
    assert_eq!(departures, expected.map(|ms| ms * 1000));
}

#[test]
fn a_longer_delay_holds_for_what_is_sent_from_then_on() {
    let longer = LinkChange {
        delay_ns: Some(300 * MS),
        ..LinkChange::default()
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
    let smaller = LinkChange {
        queue_bytes: Some(3000),
        ..LinkChange::default()
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

fn losing(probability: f64, place: LossPlace) -> LinkChange {
    let kind = LossKind::Bernoulli { probability };
    LinkChange {
        loss: Some(LossSettings { kind, place }),
        ..LinkChange::default()
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
    let change = LinkChange {
        rate_bit_s: Some(0),
        queue_bytes: Some(0),
        ..LinkChange::default()
    };
    assert_eq!(link.change(0, &change), Err(ConfigError::Rate(0)));
    assert_eq!(link.enqueue(0, 1000, 0), Enqueued::Accepted);
    assert_eq!(link.enqueue(0, 1000, 1), Enqueued::Accepted);

    let row = TraceRow {
        rate_bit_s: Some(1_000_000),
        ..ROW
    };
    let mut link = new_link(&traced(&[row]), 1);
    let change = LinkChange {
        rate_bit_s: Some(2_000_000),
        ..LinkChange::default()
    };
    assert_eq!(
        link.change(0, &change),
        Err(ConfigError::Traced("rate_bit_s"))
    );
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
