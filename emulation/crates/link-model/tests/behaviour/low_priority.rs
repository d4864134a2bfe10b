// SPDX-License-Identifier: Apache-2.0
//! Links with a queue of low priority.

use crate::loads::{Arrival, any_link, arrivals, drain, is_low, new_link, offer, plain};
use atoll_link_model::{DropCause, Enqueued, Link, LinkSettings, LossPlace, LowPrioritySettings};
use proptest::prelude::*;
use std::collections::VecDeque;

const MS: u64 = 1_000_000;

/// 1000 bytes take 1 ms, and propagation takes 20.
fn slow() -> LinkSettings {
    LinkSettings {
        rate_bit_s: 8_000_000,
        delay_ns: 20 * MS,
        queue_bytes: 10_000,
        low_priority: Some(LowPrioritySettings {
            queue_bytes: 3000,
            queue_packets: None,
        }),
        ..LinkSettings::default()
    }
}

/// Two queues and a transmitter, kept the slow way: instants in parts of a nanosecond, one of the rate each.
struct Reference {
    rate: u128,
    limits: [(u64, Option<u64>); 2],
    waiting: [VecDeque<(usize, u64)>; 2],
    free: u128,
    departures: Vec<(usize, u64)>,
    delay_ns: u64,
}

impl Reference {
    fn new(settings: &LinkSettings) -> Self {
        let low = settings.low_priority.expect("of low priority");
        Self {
            rate: u128::from(settings.rate_bit_s),
            limits: [
                (settings.queue_bytes, settings.queue_packets),
                (low.queue_bytes, low.queue_packets),
            ],
            waiting: [VecDeque::new(), VecDeque::new()],
            free: 0,
            departures: Vec::new(),
            delay_ns: settings.delay_ns,
        }
    }

    fn send(&mut self, (number, bytes): (usize, u64)) {
        self.free += u128::from(bytes) * 8_000_000_000;
        let sent_ns = u64::try_from(self.free.div_ceil(self.rate)).expect("in range");
        self.departures.push((number, sent_ns + self.delay_ns));
    }

    /// Send what can begin by then.
    fn serve(&mut self, until: u128) {
        while self.free <= until {
            let [main, low] = &mut self.waiting;
            let Some(next) = main.pop_front().or_else(|| low.pop_front()) else {
                return;
            };
            self.send(next);
        }
    }

    fn waiting_bytes(&self, queue: usize) -> u64 {
        self.waiting[queue].iter().map(|&(_, bytes)| bytes).sum()
    }

    /// Whether a packet is let in.
    fn offer(&mut self, now: u64, bytes: u64, number: usize) -> bool {
        let instant = u128::from(now) * self.rate;
        self.serve(instant);
        if self.free <= instant {
            self.free = instant;
            self.send((number, bytes));
            return true;
        }
        let queue = usize::from(is_low(number));
        let (most_bytes, most_packets) = self.limits[queue];
        let waiting = &self.waiting[queue];
        let fits = self.waiting_bytes(queue) + bytes <= most_bytes
            && most_packets.is_none_or(|most| (waiting.len() as u64) < most);
        if fits {
            self.waiting[queue].push_back((number, bytes));
        }
        fits
    }
}

/// Dense enough that both queues hold packets.
fn dense() -> impl Strategy<Value = Vec<Arrival>> {
    let gap_ns = prop_oneof![Just(0), 1_u64..200_000, 1_u64..5_000_000];
    let bytes = prop_oneof![Just(1500_u32), Just(40), 20_u32..=1500];
    prop::collection::vec((gap_ns, bytes), 1..200)
}

fn with_queue(
    settings: LinkSettings,
    queue_bytes: u64,
    queue_packets: Option<u64>,
) -> LinkSettings {
    LinkSettings {
        low_priority: Some(LowPrioritySettings {
            queue_bytes,
            queue_packets,
        }),
        ..settings
    }
}

proptest! {
    #[test]
    fn every_packet_has_the_fate_and_the_instant_of_two_queues_kept_the_slow_way(
        settings in plain(), rate_bit_s in 1_000_000_u64..40_000_000, queue_bytes in 1500_u64..50_000,
        queue_packets in prop::option::of(1_u64..20), arrivals in dense(),
    ) {
        let settings = with_queue(LinkSettings { rate_bit_s, ..settings }, queue_bytes, queue_packets);
        let mut reference = Reference::new(&settings);
        let mut link = new_link(&settings, 1);
        let (mut now, mut peaks) = (0, [0, 0]);
        for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
            now += gap_ns;
            let fits = reference.offer(now, u64::from(bytes), number);
            let (said, full) = if is_low(number) {
                (link.enqueue_low_priority(now, bytes, number), DropCause::LowPriorityFull)
            } else {
                (link.enqueue(now, bytes, number), DropCause::QueueFull)
            };
            prop_assert_eq!(said, if fits { Enqueued::Accepted } else { Enqueued::Dropped(full) });
            let waiting = [0, 1].map(|queue| reference.waiting_bytes(queue));
            prop_assert_eq!([link.queue_bytes(now), link.low_priority_queue_bytes(now)], waiting);
            peaks = [peaks[0].max(waiting[0]), peaks[1].max(waiting[1])];
        }
        let found = [link.take_queue_peak_bytes(now), link.take_low_priority_queue_peak_bytes(now)];
        prop_assert_eq!(found, peaks);
        reference.serve(u128::MAX);
        let departed: Vec<(usize, u64)> =
            drain(&mut link).iter().map(|packet| (packet.packet, packet.scheduled_ns)).collect();
        prop_assert_eq!(departed, reference.departures);
        prop_assert_eq!(link.windows_over_rate(), 0);
    }

    /// Packets of low priority delay another one by as long as one of them takes to be sent, at most.
    #[test]
    fn no_other_packet_is_later_by_more_than_one_packet_of_low_priority(
        settings in plain(), rate_bit_s in 1_000_000_u64..40_000_000, arrivals in dense(),
    ) {
        // So large that nothing is dropped: which packets fit into a full queue depends on a packet's time, too.
        let settings = LinkSettings { rate_bit_s, queue_bytes: 10_000_000, queue_packets: None, ..settings };
        let mut shared = new_link(&with_queue(settings.clone(), 50_000, None), 1);
        offer(&mut shared, &arrivals);
        let mut alone = new_link(&settings, 1);
        let mut now = 0;
        for (number, &(gap_ns, bytes)) in arrivals.iter().enumerate() {
            now += gap_ns;
            if !is_low(number) {
                alone.enqueue(now, bytes, number);
            }
        }
        let others: Vec<_> = drain(&mut shared).into_iter().filter(|packet| !is_low(packet.packet)).collect();
        let undisturbed = drain(&mut alone);
        prop_assert_eq!(others.len(), undisturbed.len());
        let low = arrivals.iter().enumerate().filter(|&(number, _)| is_low(number));
        let longest = low.map(|(_, &(_, bytes))| u64::from(bytes)).max().unwrap_or(0);
        let longest_ns = (longest * 8_000_000_000).div_ceil(rate_bit_s);
        for (packet, undisturbed) in others.iter().zip(&undisturbed) {
            prop_assert_eq!(packet.packet, undisturbed.packet);
            prop_assert!(packet.scheduled_ns >= undisturbed.scheduled_ns);
            prop_assert!(packet.scheduled_ns <= undisturbed.scheduled_ns + longest_ns);
        }
    }

    #[test]
    fn packets_of_low_priority_are_counted_apart_and_none_is_missing(settings in any_link(), arrivals in arrivals()) {
        let mut settings = with_queue(settings, 20_000, None);
        if let Some(loss) = &mut settings.loss {
            loss.place = LossPlace::After;
        }
        let mut link = new_link(&settings, 1);
        if !settings.trace.is_empty() {
            link.start_trace(0).unwrap();
        }
        offer(&mut link, &arrivals);
        let departed = drain(&mut link);
        let (all, low) = (link.totals(), link.low_priority_totals().unwrap());
        let offered = arrivals.iter().enumerate().filter(|&(number, _)| is_low(number));
        prop_assert_eq!(low.arrived.packets, offered.clone().count() as u64);
        prop_assert_eq!(low.arrived.bytes, offered.map(|(_, &(_, bytes))| u64::from(bytes)).sum::<u64>());
        prop_assert_eq!(low.arrived.packets, low.sent.packets + all.dropped.low_priority.packets);
        prop_assert_eq!(low.arrived.bytes, low.sent.bytes + all.dropped.low_priority.bytes);
        prop_assert_eq!(link.take_low_priority_sojourn().count(), low.sent.packets);
        let sent = all.departed.packets + all.lost_after.packets;
        prop_assert_eq!(link.take_sojourn().count() + low.sent.packets, sent);
        let arrived_low = departed.iter().filter(|packet| is_low(packet.packet)).count() as u64;
        prop_assert!(low.sent.packets - arrived_low <= all.lost_after.packets);
    }
}

#[test]
fn the_transmitter_chooses_when_it_becomes_free_and_interrupts_nothing() {
    let mut link: Link<char> =
        Link::new(&slow(), atoll_link_model::SplitMix64::new(1, 0), 0).unwrap();
    let mut low = |now, name| link.enqueue_low_priority(now, 1000, name);
    // The first one begins at once; of the next three there is room for the bytes of three.
    let said = ['a', 'b', 'c', 'd', 'e'].map(|name| low(0, name));
    assert_eq!(said[..4], [Enqueued::Accepted; 4]);
    assert_eq!(said[4], Enqueued::Dropped(DropCause::LowPriorityFull));
    // While b is being sent two others come, at its very end a third one, which is too late for that choice.
    link.enqueue(3 * MS / 2, 1000, 'N');
    link.enqueue(3 * MS / 2, 1000, 'O');
    link.enqueue(4 * MS, 1000, 'P');
    let departed: Vec<_> = std::iter::from_fn(|| link.pop_due(1000 * MS)).collect();
    assert_eq!(
        departed.iter().map(|each| each.packet).collect::<String>(),
        "abNOcPd"
    );
    assert!(
        (1..)
            .zip(&departed)
            .all(|(n, each)| each.scheduled_ns == 20 * MS + n * MS)
    );
    assert_eq!(link.take_low_priority_sojourn().max_ns(), 7 * MS);
    assert_eq!(link.take_sojourn().max_ns(), 5 * MS / 2);
}

#[test]
fn without_a_second_queue_packets_of_low_priority_wait_with_the_others() {
    let settings = LinkSettings {
        low_priority: None,
        ..slow()
    };
    let mut link = new_link(&settings, 1);
    for number in 0..3 {
        link.enqueue_low_priority(0, 1000, number);
    }
    link.enqueue(0, 1000, 3);
    assert_eq!(link.queue_bytes(0), 3000);
    assert_eq!(link.low_priority_totals(), None);
    let numbers: Vec<usize> = drain(&mut link).iter().map(|each| each.packet).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
}
