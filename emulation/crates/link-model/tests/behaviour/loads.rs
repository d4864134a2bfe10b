// SPDX-License-Identifier: Apache-2.0
//! Links and loads for property tests.

use atoll_link_model::{
    AqmSettings, Departure, Enqueued, JitterKind, JitterSettings, Link, LinkSettings, LossKind,
    LossPlace, LossSettings, LowPrioritySettings, SplitMix64, TraceRow,
};
use proptest::prelude::*;

/// Gap to the packet before, and bytes.
pub type Arrival = (u64, u32);

/// Bursts at one instant, gaps around a packet's serialisation time, and pauses.
pub fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap_ns = prop_oneof![Just(0), 1_u64..3_000_000, 1_u64..300_000_000];
    let bytes = prop_oneof![Just(1500_u32), Just(40), 20_u32..=1500];
    prop::collection::vec((gap_ns, bytes), 1..150)
}

/// A constant drop-tail link that loses nothing.
pub fn plain() -> impl Strategy<Value = LinkSettings> {
    let rate = 1_000_000_u64..400_000_000;
    let packets = prop_oneof![Just(None), (1_u64..100).prop_map(Some)];
    (rate, 0_u64..300_000_000, 1500_u64..200_000, packets).prop_map(
        |(rate_bit_s, delay_ns, queue_bytes, queue_packets)| LinkSettings {
            rate_bit_s,
            delay_ns,
            queue_bytes,
            queue_packets,
            ..LinkSettings::default()
        },
    )
}

/// Steps of all conditions, pauses included, for ever changing rates within a few packets; the last one works.
pub fn traces() -> impl Strategy<Value = Vec<TraceRow>> {
    let rate = prop_oneof![
        Just(None),
        Just(Some(0)),
        (100_000_u64..200_000_000).prop_map(Some)
    ];
    let delay = prop_oneof![Just(None), (0_u64..300_000_000).prop_map(Some)];
    let loss = prop_oneof![Just(None), (0.0..=1.0).prop_map(Some)];
    let row = (1_u64..300_000_000, rate, delay, loss, any::<bool>());
    prop::collection::vec(row, 1..20).prop_map(|rows| {
        let mut t_ns = 0;
        let mut trace: Vec<TraceRow> = Vec::new();
        for (gap_ns, rate_bit_s, delay_ns, loss, blocked) in rows {
            trace.push(TraceRow {
                t_ns,
                rate_bit_s,
                delay_ns,
                loss,
                blocked,
            });
            t_ns += gap_ns;
        }
        trace.push(TraceRow {
            t_ns,
            rate_bit_s: Some(1_000_000),
            delay_ns: None,
            loss: None,
            blocked: false,
        });
        trace
    })
}

pub fn jitters() -> impl Strategy<Value = (JitterKind, u64, f64)> {
    let kind = prop_oneof![
        Just(JitterKind::Uniform),
        Just(JitterKind::Normal),
        Just(JitterKind::Pareto)
    ];
    (kind, 0_u64..=1000, 0.0..=1.0)
}

pub fn with_jitter(
    settings: LinkSettings,
    (kind, permille, correlation): (JitterKind, u64, f64),
    reorder: bool,
) -> LinkSettings {
    LinkSettings {
        jitter: Some(JitterSettings {
            kind,
            amount_ns: settings.delay_ns * permille / 1000,
            correlation,
        }),
        reorder,
        ..settings
    }
}

/// No second queue, or one of any size.
pub fn low_priority() -> impl Strategy<Value = Option<LowPrioritySettings>> {
    let packets = prop_oneof![Just(None), (1_u64..20).prop_map(Some)];
    prop::option::of(
        (1500_u64..50_000, packets).prop_map(|(queue_bytes, queue_packets)| LowPrioritySettings {
            queue_bytes,
            queue_packets,
        }),
    )
}

/// Everything a link can have.
pub fn any_link() -> impl Strategy<Value = LinkSettings> {
    let kind = prop_oneof![
        (0.0..=1.0).prop_map(|probability| LossKind::Bernoulli { probability }),
        (0.0..=1e-3).prop_map(|probability| LossKind::BitError { probability }),
        (0.0..=1.0, 0.0..=1.0, 0.0..=1.0).prop_map(|(good_to_bad, bad_to_good, loss_bad)| {
            LossKind::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_good: 0.0,
                loss_bad,
            }
        }),
        prop::collection::vec(any::<bool>(), 1..20).prop_map(|lost| LossKind::Trace { lost }),
    ];
    let place = prop_oneof![Just(LossPlace::After), Just(LossPlace::Before)];
    let loss =
        prop::option::of((kind, place).prop_map(|(kind, place)| LossSettings { kind, place }));
    let aqm = prop_oneof![
        Just(None),
        (1_u64..20_000_000, 0_u64..100_000_000).prop_map(|(target_ns, more_ns)| {
            Some(AqmSettings::CoDel {
                target_ns,
                interval_ns: target_ns + more_ns,
            })
        }),
        (0_u64..50_000, 1_u64..50_000, 0.01..=1.0, 0.01..=1.0).prop_map(
            |(min_bytes, more_bytes, max_probability, weight)| {
                Some(AqmSettings::Red {
                    min_bytes,
                    max_bytes: min_bytes + more_bytes,
                    max_probability,
                    weight,
                })
            }
        ),
    ];
    let trace = prop_oneof![Just(Vec::new()), traces()];
    let order = (jitters(), any::<bool>());
    (plain(), low_priority(), order, loss, aqm, trace).prop_map(
        |(settings, low_priority, (jitter, reorder), loss, aqm, trace)| LinkSettings {
            low_priority,
            loss,
            aqm,
            trace,
            ..with_jitter(settings, jitter, reorder)
        },
    )
}

pub fn new_link(settings: &LinkSettings, seed: u64) -> Link<usize> {
    Link::new(settings, SplitMix64::new(seed, 0), 0).expect("settings in range")
}

/// Whether the packet of that number is of low priority: two of five, runs included.
pub fn is_low(number: usize) -> bool {
    matches!(number % 5, 1 | 2)
}

/// Offer one packet, some of them as of low priority.
pub fn offer_one(link: &mut Link<usize>, now: u64, bytes: u32, number: usize) -> Enqueued {
    if is_low(number) {
        return link.enqueue_low_priority(now, bytes, number);
    }
    link.enqueue(now, bytes, number)
}

/// Offer all packets, numbered; returns when each arrived and what the link said.
pub fn offer(link: &mut Link<usize>, arrivals: &[Arrival]) -> Vec<(u64, Enqueued)> {
    let mut now = 0;
    let mut offered = Vec::new();
    for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
        now += gap_ns;
        offered.push((now, offer_one(link, now, bytes, number)));
    }
    offered
}

/// Everything that still leaves, asked for only when the link says so.
pub fn drain(link: &mut Link<usize>) -> Vec<Departure<usize>> {
    let mut departed = Vec::new();
    while let Some(next_ns) = link.next_departure() {
        assert!(
            next_ns == 0 || link.pop_due(next_ns - 1).is_none(),
            "before the instant it announced"
        );
        while let Some(departure) = link.pop_due(next_ns) {
            assert!(departure.scheduled_ns <= next_ns, "early");
            departed.push(departure);
        }
        assert!(link.next_departure() > Some(next_ns) || link.next_departure().is_none());
    }
    departed
}
