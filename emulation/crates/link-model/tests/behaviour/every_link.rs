// SPDX-License-Identifier: Apache-2.0
//! Properties of every link and every sequence of arrivals.

use crate::loads::{
    any_link, arrivals, drain, is_low, jitters, new_link, offer, offer_one, plain, traces,
    with_jitter,
};
use atoll_link_model::{
    DelayLine, DelaySettings, DropCause, Enqueued, JitterKind, JitterSettings, Link, LinkSettings,
    LossPlace, SplitMix64,
};
use proptest::prelude::*;

/// Serialisation time, rounded up.
fn serialisation_ns(rate_bit_s: u64, bytes: u64) -> u64 {
    (bytes * 8_000_000_000).div_ceil(rate_bit_s)
}

fn conserves(link: &Link<usize>) -> bool {
    let totals = link.totals();
    let gone = totals.departed.packets + totals.dropped.all().packets;
    totals.arrived.packets == gone + link.held_packets()
}

proptest! {
    #[test]
    fn what_comes_in_goes_out_once_or_is_counted_as_dropped(settings in any_link(), arrivals in arrivals(), start_after in 0_usize..150) {
        let mut link = new_link(&settings, 1);
        let (mut now, mut departed) = (0, Vec::new());
        for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
            now += gap_ns;
            if number == start_after && !settings.trace.is_empty() {
                prop_assert_eq!(link.start_trace(now), Ok(()));
            }
            offer_one(&mut link, now, bytes, number);
            prop_assert!(conserves(&link));
            departed.extend(std::iter::from_fn(|| link.pop_due(now)));
            prop_assert!(conserves(&link));
        }
        if start_after >= arrivals.len() && !settings.trace.is_empty() {
            link.start_trace(now).unwrap();
        }
        departed.extend(drain(&mut link));
        prop_assert_eq!(link.held_packets(), 0, "nothing stalls");
        prop_assert!(departed.windows(2).all(|pair| pair[0].scheduled_ns <= pair[1].scheduled_ns));
        let mut numbers: Vec<usize> = departed.iter().map(|departure| departure.packet).collect();
        if !settings.reorder {
            let of_a_queue = |low: bool| {
                let is_there = move |number: &&usize| settings.low_priority.is_none() || is_low(**number) == low;
                numbers.iter().filter(is_there)
            };
            prop_assert!(of_a_queue(false).is_sorted() && of_a_queue(true).is_sorted());
        }
        numbers.sort_unstable();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), departed.len(), "none twice");
        let totals = link.totals();
        prop_assert_eq!(totals.arrived.packets, arrivals.len() as u64);
        prop_assert_eq!(totals.arrived.bytes, arrivals.iter().map(|&(_, bytes)| u64::from(bytes)).sum::<u64>());
        prop_assert_eq!(totals.arrived.bytes, totals.departed.bytes + totals.dropped.all().bytes);
        prop_assert!(departed.iter().all(|departure| departure.bytes == arrivals[departure.packet].1));
        prop_assert_eq!(link.windows_over_rate(), 0);
    }

    /// Departures depend on arrivals alone: not on when, how late and how often the link is asked for them.
    #[test]
    fn it_does_not_matter_when_the_link_is_asked(
        settings in any_link(), arrivals in arrivals(), asked in prop::collection::vec((0_u64..20_000_000, any::<bool>()), 150),
    ) {
        // CoDel looks at what waits when a packet leaves the queue, and so does a transmitter with two queues: they may
        // be asked as late as one likes, but must know what has arrived.
        let codel = matches!(settings.aqm, Some(atoll_link_model::AqmSettings::CoDel { .. }));
        let ahead = u64::from(!codel && settings.low_priority.is_none());
        let mut quiet = new_link(&settings, 1);
        offer(&mut quiet, &arrivals);
        let expected = drain(&mut quiet);

        let mut link = new_link(&settings, 1);
        let (mut now, mut departed) = (0, Vec::new());
        for (number, (&(gap_ns, bytes), &(ahead_ns, look))) in arrivals.iter().zip(&asked).enumerate() {
            now += gap_ns;
            offer_one(&mut link, now, bytes, number);
            departed.extend(std::iter::from_fn(|| link.pop_due(now)));
            if look {
                link.queue_bytes(now + ahead * ahead_ns);
                link.idle_ns(now + ahead * ahead_ns);
            }
        }
        departed.extend(drain(&mut link));
        departed.sort_by_key(|departure| (departure.scheduled_ns, departure.packet));
        let mut expected = expected;
        expected.sort_by_key(|departure| (departure.scheduled_ns, departure.packet));
        prop_assert_eq!(departed, expected);
        prop_assert_eq!(link.totals(), quiet.totals());
        prop_assert_eq!(link.low_priority_totals(), quiet.low_priority_totals());
    }

    #[test]
    fn no_interval_carries_more_than_the_rate_and_one_packet(settings in plain(), arrivals in arrivals()) {
        let mut link = new_link(&settings, 1);
        offer(&mut link, &arrivals);
        let departed = drain(&mut link);
        for first in 0..departed.len() {
            let mut bytes_after_first = 0;
            for last in first + 1..departed.len() {
                bytes_after_first += u64::from(departed[last].bytes);
                let interval_ns = departed[last].scheduled_ns - departed[first].scheduled_ns;
                // One nanosecond for the rounding up of the interval's begin.
                prop_assert!(serialisation_ns(settings.rate_bit_s, bytes_after_first) <= interval_ns + 1);
            }
        }
    }

    #[test]
    fn no_interval_carries_more_than_the_traced_rate_and_one_packet(
        settings in plain(), trace in traces(), arrivals in arrivals(), start_ns in 0_u64..100_000_000,
    ) {
        // The path alone is left constant, so that departures show what the transmitter did.
        let trace: Vec<_> = trace
            .into_iter()
            .map(|row| atoll_link_model::TraceRow { delay_ns: None, loss: None, blocked: false, ..row })
            .collect();
        let settings = LinkSettings { trace: trace.clone(), ..settings };
        let mut link = new_link(&settings, 1);
        link.start_trace(start_ns).unwrap();
        offer(&mut link, &arrivals);
        let departed = drain(&mut link);
        // Billionths of a bit from the start of the trace's first row to an instant, computed the slow way.
        let work_until = |instant_ns: u64| -> u128 {
            let mut work = 0;
            for (number, row) in trace.iter().enumerate() {
                let begin_ns = if number == 0 { 0 } else { start_ns + row.t_ns };
                let end_ns = trace.get(number + 1).map_or(u64::MAX, |next| start_ns + next.t_ns);
                let lasts_ns = instant_ns.min(end_ns).saturating_sub(begin_ns);
                work += u128::from(lasts_ns) * u128::from(row.rate_bit_s.unwrap_or(settings.rate_bit_s));
            }
            work
        };
        let done: Vec<u128> = departed.iter().map(|packet| work_until(packet.scheduled_ns - settings.delay_ns)).collect();
        for first in 0..departed.len() {
            let mut work = 0;
            for last in first + 1..departed.len() {
                work += u128::from(departed[last].bytes) * 8_000_000_000;
                // A nanosecond of the highest rate, for the rounding up of the interval's begin.
                prop_assert!(work <= done[last] - done[first] + 400_000_000);
            }
        }
    }

    #[test]
    fn no_packet_is_faster_than_serialisation_and_propagation(settings in plain(), jitter in jitters(), reorder: bool, arrivals in arrivals()) {
        let settings = with_jitter(settings, jitter, reorder);
        let shortest_ns = settings.propagation().shortest_ns();
        let mut link = new_link(&settings, 1);
        let offered = offer(&mut link, &arrivals);
        for departure in drain(&mut link) {
            let least_ns = serialisation_ns(settings.rate_bit_s, u64::from(departure.bytes)) + shortest_ns;
            prop_assert!(departure.scheduled_ns - offered[departure.packet].0 >= least_ns);
        }
    }

    /// The verdict of every packet is that of a queue kept the slow way: packet by packet, as a list of
    /// those accepted whose serialisation has not begun.
    #[test]
    fn a_packet_is_refused_exactly_when_the_waiting_bytes_and_its_own_exceed_the_queue(
        settings in plain(), arrivals in arrivals(),
    ) {
        let mut link = new_link(&settings, 1);
        let mut accepted: Vec<(u128, u128, u64)> = Vec::new(); // begin and end in 1/rate ns, bytes
        let rate = u128::from(settings.rate_bit_s);
        let (mut now, mut peak) = (0_u64, 0);
        for &(gap_ns, bytes) in &arrivals {
            now += gap_ns;
            let instant = u128::from(now) * rate;
            let waiting = |accepted: &[(u128, u128, u64)]| {
                let waiting = accepted.iter().filter(|packet| packet.0 > instant);
                waiting.fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + packet.2))
            };
            let (packets_before, bytes_before) = waiting(&accepted);
            let free = accepted.last().map_or(0, |packet| packet.1);
            let fits = bytes_before + u64::from(bytes) <= settings.queue_bytes
                && settings.queue_packets.is_none_or(|limit| packets_before < limit);
            // Only what has to wait needs room.
            let fits = fits || free <= instant;
            let verdict = link.enqueue(now, bytes, 0);
            prop_assert_eq!(verdict == Enqueued::Dropped(DropCause::QueueFull), !fits);
            if fits {
                let begin = free.max(instant);
                accepted.push((begin, begin + u128::from(bytes) * 8_000_000_000, u64::from(bytes)));
                if begin > instant {
                    peak = peak.max(bytes_before + u64::from(bytes));
                }
            }
            let (_, waiting_now) = waiting(&accepted);
            prop_assert_eq!(link.queue_bytes(now), waiting_now);
            prop_assert!(waiting_now <= settings.queue_bytes);
        }
        prop_assert_eq!(link.take_queue_peak_bytes(now), peak);
    }

    /// Losses at the receiver take packets away and change nothing else: no instant, no queue, no idle time, no sojourn.
    #[test]
    fn what_is_lost_at_the_receiver_has_used_the_link(settings in any_link(), arrivals in arrivals()) {
        let mut settings = LinkSettings { jitter: None, ..settings };
        if let Some(loss) = &mut settings.loss {
            loss.place = LossPlace::After;
        }
        let mut faultless = settings.clone();
        faultless.loss = None;
        for row in &mut faultless.trace {
            row.loss = None;
        }
        let mut found = Vec::new();
        for settings in [&settings, &faultless] {
            let mut link = new_link(settings, 1);
            let offered = offer(&mut link, &arrivals);
            let departed = drain(&mut link);
            let end_ns = offered.last().map_or(0, |&(now, _)| now) + 10_000_000_000_000;
            prop_assert_eq!(link.windows_over_rate(), 0);
            let low = (link.take_low_priority_queue_peak_bytes(end_ns), link.low_priority_totals());
            let peaks = (link.take_queue_peak_bytes(end_ns), low);
            let used = (offered, link.idle_ns(end_ns), peaks, link.take_sojourn());
            found.push((departed, link.totals(), used));
        }
        let (departed, totals, used) = &found[0];
        let (expected, all, used_by_all) = &found[1];
        prop_assert_eq!((&used.0, used.1, used.2), (&used_by_all.0, used_by_all.1, used_by_all.2));
        prop_assert_eq!(used.3.non_empty().collect::<Vec<_>>(), used_by_all.3.non_empty().collect::<Vec<_>>());
        prop_assert_eq!(departed.len() as u64 + totals.dropped.loss.packets, expected.len() as u64);
        prop_assert_eq!(totals.departed.bytes + totals.dropped.loss.bytes, all.departed.bytes);
        prop_assert_eq!(totals.lost_after.bytes, totals.dropped.loss.bytes + totals.dropped.blocked.bytes);
        let mut rest = expected.iter();
        prop_assert!(departed.iter().all(|packet| rest.any(|other| other.packet == packet.packet)));
    }

    #[test]
    fn equal_seeds_give_equal_departures(settings in any_link(), arrivals in arrivals(), seed: u64) {
        let run = || {
            let mut link = new_link(&settings, seed);
            offer(&mut link, &arrivals);
            drain(&mut link)
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn a_latency_class_delays_each_packet_within_its_jitter_unless_it_waits_for_the_one_before(
        delay_ns in 0_u64..300_000_000, (kind, permille, correlation) in jitters(), arrivals in arrivals(), seed: u64,
    ) {
        let amount_ns = delay_ns * permille / 1000;
        let settings = DelaySettings {
            jitter: JitterSettings { kind, amount_ns, correlation },
            ..DelaySettings::uniform(delay_ns, 0)
        };
        let longest_ns = delay_ns + if kind == JitterKind::Uniform { amount_ns } else { 4 * amount_ns };
        let mut line = DelayLine::new(settings, SplitMix64::new(seed, 0)).expect("settings in range");
        let (mut now, mut last_ns) = (0, 0);
        for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
            now += gap_ns;
            let scheduled_ns = line.enqueue(now, bytes, number);
            prop_assert!(scheduled_ns >= now + settings.shortest_ns());
            prop_assert!(scheduled_ns == last_ns || scheduled_ns <= now + longest_ns);
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
        queue_bytes: 100_000,
        ..LinkSettings::default()
    };
    let mut link = new_link(&settings, 1);
    for number in 0..100 {
        link.enqueue(0, 1500, number);
    }
    // One packet being serialised and 66 waiting: 67 times 0.75 ms.
    assert_eq!(link.totals().dropped.queue.packets, 33);
    assert_eq!(link.queue_bytes(0), 99_000);
    assert_eq!(link.enqueue(0, 84, 100), Enqueued::Accepted);
    let departed = drain(&mut link);
    assert_eq!(departed[66].scheduled_ns, 67 * 750_000 + 250_000_000);
    assert_eq!(
        departed[67].scheduled_ns,
        67 * 750_000 + 42_000 + 250_000_000
    );
    assert_eq!(link.take_sojourn().max_ns(), 67 * 750_000 + 42_000);
}
