// SPDX-License-Identifier: Apache-2.0
//! Seeded runs, packet by packet, against tables that people have read: a change of the arithmetic, of the order
//! in which random numbers are drawn or of the generator shows here first.

use atoll_link_model::{
    AqmSettings, Enqueued, JitterKind, JitterSettings, Link, LinkSettings, LossKind, LossPlace,
    LossSettings, SplitMix64, TraceRow,
};
use std::fmt::Write;
use std::path::Path;

const MS: u64 = 1_000_000;

/// 16 Mbit/s with everything that is random or changes, at 20, 30, 40 and 42 ms.
fn settings() -> LinkSettings {
    let row = |t_ms: u64| TraceRow {
        t_ns: t_ms * MS,
        rate_bit_s: None,
        delay_ns: None,
        loss: None,
        blocked: false,
    };
    LinkSettings {
        rate_bit_s: 16_000_000,
        delay_ns: 250 * MS,
        jitter: Some(JitterSettings {
            kind: JitterKind::Normal,
            amount_ns: MS,
            correlation: 0.25,
        }),
        queue_bytes: 6_000,
        loss: Some(LossSettings {
            kind: LossKind::GilbertElliott {
                good_to_bad: 0.05,
                bad_to_good: 0.3,
                loss_good: 0.0,
                loss_bad: 0.8,
            },
            place: LossPlace::Before,
        }),
        trace: vec![
            row(0),
            TraceRow {
                rate_bit_s: Some(12_000_000),
                ..row(20)
            },
            TraceRow {
                delay_ns: Some(248 * MS),
                ..row(30)
            },
            TraceRow {
                blocked: true,
                ..row(40)
            },
            row(42),
        ],
        ..LinkSettings::default()
    }
}

/// A line a packet: number, bytes, arrival, fate. A packet that is lost later than on arrival has no departure.
fn table(settings: &LinkSettings) -> String {
    let mut link = Link::new(settings, SplitMix64::new(1, 0), 0).expect("settings in range");
    // Of links without a trace this is refused.
    let _ = link.start_trace(0);
    let mut load = SplitMix64::new(1, 1);
    let mut now = 0;
    let mut packets = Vec::new();
    for number in 0..100_usize {
        now += load.up_to(MS);
        let bytes = if load.chance(0.25) { 84 } else { 1500 };
        let fate = match link.enqueue(now, bytes, number) {
            Enqueued::Accepted => "lost under way".to_owned(),
            Enqueued::Dropped(cause) => format!("{cause:?}"),
        };
        packets.push((bytes, now, fate));
    }
    while let Some(next_ns) = link.next_departure() {
        while let Some(departure) = link.pop_due(next_ns) {
            let (_, arrival_ns, fate) = &mut packets[departure.packet];
            let delay_ns = departure.scheduled_ns - *arrival_ns;
            *fate = format!("{:>9} {:>9}", departure.scheduled_ns, delay_ns);
        }
    }
    let mut table = String::from("# number bytes arrival_ns scheduled_ns delay_ns\n");
    for (number, (bytes, arrival_ns, fate)) in packets.iter().enumerate() {
        writeln!(table, "{number:>2} {bytes:>4} {arrival_ns:>8} {fate}").expect("to memory");
    }
    table
}

/// Compare with `testdata/NAME.txt`; a table that differs is written to the build directory.
fn assert_reviewed(name: &str, table: &str) {
    let reviewed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name);
    if std::fs::read_to_string(&reviewed).is_ok_and(|known| known == table) {
        return;
    }
    let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&found, table).expect("build directory");
    panic!(
        "differs: diff {} {} - and copy it if the change is wanted",
        reviewed.display(),
        found.display()
    );
}

#[test]
fn an_impaired_link_does_what_was_reviewed() {
    assert_reviewed("impaired.txt", &table(&settings()));
    let loss = settings().loss.map(|loss| LossSettings {
        place: LossPlace::After,
        ..loss
    });
    let at_receiver = LinkSettings { loss, ..settings() };
    assert_reviewed("impaired-at-receiver.txt", &table(&at_receiver));
}

#[test]
fn managed_queues_do_what_was_reviewed() {
    let plain = LinkSettings {
        rate_bit_s: 8_000_000,
        delay_ns: 10 * MS,
        queue_bytes: 60_000,
        ..LinkSettings::default()
    };
    let codel = LinkSettings {
        aqm: Some(AqmSettings::CoDel {
            target_ns: 5 * MS,
            interval_ns: 20 * MS,
        }),
        ..plain.clone()
    };
    assert_reviewed("codel.txt", &table(&codel));
    let red = LinkSettings {
        aqm: Some(AqmSettings::Red {
            min_bytes: 5_000,
            max_bytes: 15_000,
            max_probability: 0.2,
            weight: 0.1,
        }),
        ..plain
    };
    assert_reviewed("red.txt", &table(&red));
}
