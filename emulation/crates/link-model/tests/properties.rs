// SPDX-License-Identifier: Apache-2.0
//! What holds for every link and every sequence of arrivals.

use link_model::{DelayLine, DelaySettings, DropCause, Link, LinkSettings, SplitMix64, Verdict};
use proptest::prelude::*;

/// Gap to the packet before, and bytes.
type Arrival = (u64, u32);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    // Bursts at one instant, gaps around a packet's serialisation time, and pauses.
    let gap_ns = prop_oneof![Just(0), 1_u64..3_000_000, 1_u64..300_000_000];
    let bytes = prop_oneof![Just(1500_u32), Just(40), 20_u32..=1500];
    prop::collection::vec((gap_ns, bytes), 1..150)
}

fn settings(jitter: bool) -> impl Strategy<Value = LinkSettings> {
    (
        1_000_000_u64..400_000_000,
        0_u64..300_000_000,
        1500_u64..200_000,
        0_u64..=1000,
    )
        .prop_map(
            move |(rate_bit_s, delay_ns, queue_bytes, jitter_permille)| LinkSettings {
                rate_bit_s,
                delay_ns,
                jitter_ns: if jitter {
                    delay_ns * jitter_permille / 1000
                } else {
                    0
                },
                queue_bytes,
            },
        )
}

/// An accepted packet: number, arrival, departure, bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Passed {
    number: usize,
    arrival_ns: u64,
    scheduled_ns: u64,
    bytes: u32,
}

fn run(link: &mut Link<usize>, arrivals: &[Arrival]) -> Vec<Passed> {
    let mut now = 0;
    let mut passed = Vec::new();
    for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
        now += gap_ns;
        if let Verdict::Accepted { scheduled_ns } = link.offer(now, bytes, number) {
            passed.push(Passed {
                number,
                arrival_ns: now,
                scheduled_ns,
                bytes,
            });
        }
    }
    passed
}

fn new_link(settings: &LinkSettings, seed: u64) -> Link<usize> {
    Link::new(settings, SplitMix64::new(seed, 0), 0).expect("settings in range")
}

/// Serialisation time, rounded up.
fn serialisation_ns(settings: &LinkSettings, bytes: u64) -> u64 {
    (bytes * 8_000_000_000).div_ceil(settings.rate_bit_s)
}

proptest! {
    #[test]
    fn what_comes_in_goes_out_in_order_or_is_counted_as_dropped(settings in settings(true), arrivals in arrivals()) {
        let mut link = new_link(&settings, 1);
        let passed = run(&mut link, &arrivals);
        let mut departed = Vec::new();
        while let Some(next_ns) = link.next_departure() {
            prop_assert_eq!(link.pop_due(next_ns.saturating_sub(1)).map(|departure| departure.packet), None, "never early");
            let departure = link.pop_due(next_ns).expect("due");
            departed.push((departure.packet, departure.scheduled_ns, departure.bytes));
            let totals = link.totals();
            prop_assert_eq!(totals.in_packets, totals.out_packets + totals.dropped_packets + link.held_packets());
        }
        prop_assert_eq!(departed, passed.iter().map(|packet| (packet.number, packet.scheduled_ns, packet.bytes)).collect::<Vec<_>>());
        prop_assert!(passed.windows(2).all(|pair| pair[0].number < pair[1].number && pair[0].scheduled_ns <= pair[1].scheduled_ns));
        let totals = link.totals();
        prop_assert_eq!(totals.in_packets, arrivals.len() as u64);
        prop_assert_eq!(totals.in_bytes, arrivals.iter().map(|&(_, bytes)| u64::from(bytes)).sum::<u64>());
        prop_assert_eq!(totals.in_bytes, totals.out_bytes + totals.dropped_bytes);
    }

    #[test]
    fn no_interval_carries_more_than_the_rate_and_one_packet(settings in settings(false), arrivals in arrivals()) {
        let mut link = new_link(&settings, 1);
        let passed = run(&mut link, &arrivals);
        for first in 0..passed.len() {
            let mut bytes_after_first = 0;
            for last in first + 1..passed.len() {
                bytes_after_first += u64::from(passed[last].bytes);
                let interval_ns = passed[last].scheduled_ns - passed[first].scheduled_ns;
                // One nanosecond for the rounding up of the interval's begin.
                prop_assert!(serialisation_ns(&settings, bytes_after_first) <= interval_ns + 1);
            }
        }
        prop_assert_eq!(link.windows_over_rate(), 0);
    }

    #[test]
    fn jitter_does_not_count_as_exceeding_the_rate(settings in settings(true), arrivals in arrivals()) {
        let mut link = new_link(&settings, 1);
        run(&mut link, &arrivals);
        prop_assert_eq!(link.windows_over_rate(), 0);
    }

    #[test]
    fn no_packet_is_faster_than_serialisation_and_propagation(settings in settings(true), arrivals in arrivals()) {
        let mut link = new_link(&settings, 1);
        for packet in run(&mut link, &arrivals) {
            let shortest_ns = serialisation_ns(&settings, u64::from(packet.bytes)) + settings.delay_ns - settings.jitter_ns;
            prop_assert!(packet.scheduled_ns - packet.arrival_ns >= shortest_ns);
        }
    }

    /// The verdict of every packet is that of a queue kept the slow way: packet by packet, as a list of
    /// those accepted whose serialisation has not begun.
    #[test]
    fn a_packet_is_refused_exactly_when_the_waiting_bytes_and_its_own_exceed_the_queue(
        settings in settings(false), arrivals in arrivals(),
    ) {
        let mut link = new_link(&settings, 1);
        let mut accepted: Vec<(u128, u128, u64)> = Vec::new(); // begin and end in 1/rate ns, bytes
        let rate = u128::from(settings.rate_bit_s);
        let (mut now, mut peak) = (0_u64, 0);
        for &(gap_ns, bytes) in &arrivals {
            now += gap_ns;
            let instant = u128::from(now) * rate;
            let waiting: u64 = accepted.iter().filter(|packet| packet.0 > instant).map(|packet| packet.2).sum();
            let free = accepted.last().map_or(0, |packet| packet.1);
            let fits = waiting + u64::from(bytes) <= settings.queue_bytes;
            let verdict = link.offer(now, bytes, 0);
            prop_assert_eq!(verdict == Verdict::Dropped(DropCause::QueueFull), !fits);
            if fits {
                let begin = free.max(instant);
                accepted.push((begin, begin + u128::from(bytes) * 8_000_000_000, u64::from(bytes)));
                if begin > instant {
                    peak = peak.max(waiting + u64::from(bytes));
                }
            }
            let waiting_now: u64 = accepted.iter().filter(|packet| packet.0 > instant).map(|packet| packet.2).sum();
            prop_assert_eq!(link.queue_bytes(now), waiting_now);
            prop_assert!(waiting_now <= settings.queue_bytes);
        }
        prop_assert_eq!(link.take_queue_peak_bytes(now), peak);
    }

    #[test]
    fn equal_seeds_give_equal_departures(settings in settings(true), arrivals in arrivals(), seed: u64) {
        let first = run(&mut new_link(&settings, seed), &arrivals);
        prop_assert_eq!(run(&mut new_link(&settings, seed), &arrivals), first);
    }

    #[test]
    fn a_latency_class_delays_each_packet_within_its_jitter_unless_it_waits_for_the_one_before(
        delay_ns in 0_u64..300_000_000, jitter_permille in 0_u64..=1000, arrivals in arrivals(), seed: u64,
    ) {
        let settings = DelaySettings { delay_ns, jitter_ns: delay_ns * jitter_permille / 1000 };
        let mut line = DelayLine::new(settings, SplitMix64::new(seed, 0)).expect("settings in range");
        let (mut now, mut last_ns) = (0, 0);
        for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
            now += gap_ns;
            let scheduled_ns = line.offer(now, bytes, number);
            prop_assert!(scheduled_ns >= now + delay_ns - settings.jitter_ns);
            prop_assert!(scheduled_ns == last_ns || scheduled_ns <= now + delay_ns + settings.jitter_ns);
            prop_assert!(scheduled_ns >= last_ns);
            last_ns = scheduled_ns;
        }
        for number in 0..arrivals.len() {
            prop_assert_eq!(line.held_packets(), (arrivals.len() - number) as u64);
            prop_assert_eq!(line.pop_due(u64::MAX).map(|departure| departure.packet), Some(number));
        }
    }
}

#[test]
fn the_sojourn_of_a_full_queue_is_its_bytes_at_the_rate() {
    let settings = LinkSettings {
        rate_bit_s: 16_000_000,
        delay_ns: 250_000_000,
        jitter_ns: 0,
        queue_bytes: 100_000,
    };
    let mut link = new_link(&settings, 1);
    for number in 0..100 {
        link.offer(0, 1500, number);
    }
    // One packet being serialised and 66 waiting: 67 times 0.75 ms.
    assert_eq!(link.totals().dropped_packets, 33);
    assert_eq!(link.take_sojourn().max_ns(), 67 * 750_000);
    assert_eq!(link.queue_bytes(0), 99_000);
    assert_eq!(
        link.offer(0, 84, 0),
        Verdict::Accepted {
            scheduled_ns: 67 * 750_000 + 42_000 + 250_000_000
        }
    );
}
