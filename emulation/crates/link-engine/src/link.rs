// SPDX-License-Identifier: Apache-2.0
//! The satellite emulator: two interfaces, one `atoll_link_model::Link` each way.

use crate::config::{Counted, LinkChange, LinkConfig, check_directions};
use crate::emulator::Emulation;
use crate::frame::{Held, Lengths, SentFrame, is_lower_effort};
use crate::report::{
    DirectionCounters, DirectionMeasurement, DroppedByCause, LowPriorityCounters,
    LowPrioritySojourn,
};
use atoll_frame_engine::{
    Arrival, Doubtful, FrameOutput, KernelPaced, Outgoing, Punctuality, Timing,
};
use atoll_link_model::{ConfigError, Count, Link, LinkSettings, SplitMix64};
use atoll_link_report::Directions;
use atoll_measures::{Marked, Peak};

/// Ports in the order in which the engine opens them, and directions by the port they begin at.
const WORLD: usize = 0;
const ISLAND: usize = 1;

/// `atoll-host link`.
#[derive(Debug)]
pub(crate) struct LinkProgram {
    counts: Counted,
    mtu: u32,
    /// By the port at which packets come in: to the island, to the world.
    directions: [Direction; 2],
}

impl LinkProgram {
    /// Both directions empty and idle from `now` on.
    pub(crate) fn new(config: &LinkConfig, now: u64) -> Result<Self, ConfigError> {
        Ok(Self {
            counts: config.counts,
            mtu: config.mtu,
            directions: [
                Direction::new(config, &config.to_island, 0, now)?,
                Direction::new(config, &config.to_world, 1, now)?,
            ],
        })
    }

    /// The next frame that came in at port `from`, if it was due at or before `now`.
    fn pop_from(&mut self, from: usize, now: u64) -> Option<Outgoing<SentFrame>> {
        let departure = self.directions[from].link.pop_due(now)?;
        Some(SentFrame::outgoing(from, WORLD + ISLAND - from, departure))
    }

    fn change(&mut self, now: u64, change: &LinkChange) -> Result<(), String> {
        let settings = [change.to_island.as_ref(), change.to_world.as_ref()];
        check_directions(settings[0], settings[1])?;
        self.counts = change.counts.unwrap_or(self.counts);
        for (direction, settings) in self.directions.iter_mut().zip(settings) {
            if let Some(stall_from_ns) = change.stall_from_ns {
                direction.punctuality.set_stall_from(stall_from_ns);
            }
            if let Some(settings) = settings {
                let changed = direction.link.change(now, settings);
                changed.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn by_direction<T>(&mut self, of: impl Fn(&mut Direction) -> T) -> Directions<T> {
        Directions {
            to_island: of(&mut self.directions[WORLD]),
            to_world: of(&mut self.directions[ISLAND]),
        }
    }
}

impl Emulation for LinkProgram {
    type Counters = Directions<DirectionCounters>;
    type Measurement = Directions<DirectionMeasurement>;
    type Change = LinkChange;

    fn on_frame(&mut self, arrival: &Arrival<'_>, out: &mut FrameOutput<SentFrame>) {
        let (received, now) = (arrival.received, arrival.now_ns);
        let direction = &mut self.directions[arrival.port];
        direction.doubtful.unstamped_packets += u64::from(!arrival.stamped);
        let lengths = Lengths::of(received.frame, received.wire_bytes);
        if lengths.payload_bytes > self.mtu {
            direction.oversize_packets += 1;
            return;
        }
        direction.doubtful.no_checksum_packets += u64::from(received.checksum_missing);
        let earliest_ns = direction.link.last_arrival_ns();
        let held = Held {
            frame: out.copy(received),
            arrival_shift_ns: direction.punctuality.arrived(now, earliest_ns),
        };
        let (link, bytes) = (&mut direction.link, lengths.counted_bytes(self.counts));
        if link.has_low_priority() && is_lower_effort(received.frame) {
            link.enqueue_low_priority(now, bytes, held);
        } else {
            link.enqueue(now, bytes, held);
        }
    }

    fn next_departure(&self) -> Option<u64> {
        self.directions
            .iter()
            .filter_map(|direction| direction.link.next_departure())
            .min()
    }

    fn pop_due(&mut self, now: u64) -> Option<Outgoing<SentFrame>> {
        let next = |from: usize| self.directions[from].link.next_departure();
        let first = if next(ISLAND).unwrap_or(u64::MAX) < next(WORLD).unwrap_or(u64::MAX) {
            ISLAND
        } else {
            WORLD
        };
        // With jitter a link may only have thought that it could be first.
        [first, WORLD + ISLAND - first]
            .into_iter()
            .find_map(|from| self.pop_from(from, now))
    }

    fn shortest_delay_ns(&self) -> u64 {
        let [to_island, to_world] = &self.directions;
        let to_island_ns = to_island.link.shortest_delay_ns();
        to_island_ns.min(to_world.link.shortest_delay_ns())
    }

    fn on_sent(&mut self, frame: &Outgoing<SentFrame>, now_ns: u64) {
        let direction = &mut self.directions[frame.tag.part];
        direction.punctuality.departed(frame.tag.due_ns, now_ns);
        if frame.scheduled_ns > now_ns {
            let paced = &mut direction.kernel_paced;
            paced.push(frame.scheduled_ns, frame.tag.bytes);
        }
    }

    fn on_refused(&mut self, frame: &Outgoing<SentFrame>) {
        let direction = &mut self.directions[frame.tag.part];
        direction.unsent.record(frame.tag.bytes);
        direction.overloaded = true;
    }

    fn on_unread(&mut self, port: usize, frames: u64) {
        self.directions[port].doubtful.unread_packets += frames;
        self.directions[port].overloaded = true;
    }

    fn set(&mut self, now: u64, change: &LinkChange) -> (u64, Result<(), String>) {
        (change.id, self.change(now, change))
    }

    fn start_trace(&mut self, now: u64) -> Result<(), String> {
        let started = self.by_direction(|direction| direction.link.start_trace(now).is_ok());
        if started.to_island || started.to_world {
            return Ok(());
        }
        Err(ConfigError::NoTrace.to_string())
    }

    fn sums(&mut self, now: u64) -> Self::Counters {
        self.by_direction(|direction| direction.counters(now))
    }

    fn measurement(&mut self, now: u64) -> Self::Measurement {
        self.by_direction(|direction| direction.measurement(now))
    }
}

/// A link, and the engine's counters of it.
#[derive(Debug)]
struct Direction {
    link: Link<Held>,
    punctuality: Punctuality,
    doubtful: Doubtful,
    oversize_packets: u64,
    /// Left the model, but the interface would not take them.
    unsent: Count,
    /// Left the model, but the kernel still has them.
    kernel_paced: KernelPaced,
    queue_max_bytes: Peak,
    low_priority_queue_max_bytes: Peak,
    /// Since the last mark.
    overloaded: bool,
    marked: Marked<DirectionCounters>,
    windows_over_rate_marked: Marked<u64>,
}

impl Direction {
    fn new(
        config: &LinkConfig,
        settings: &LinkSettings,
        stream: u64,
        now: u64,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            link: Link::new(settings, SplitMix64::new(config.seed, stream), now)?,
            punctuality: Punctuality::new(config.stall_from_ns),
            doubtful: Doubtful::default(),
            oversize_packets: 0,
            unsent: Count::default(),
            kernel_paced: KernelPaced::default(),
            queue_max_bytes: Peak::default(),
            low_priority_queue_max_bytes: Peak::default(),
            overloaded: false,
            marked: Marked::default(),
            windows_over_rate_marked: Marked::default(),
        })
    }

    fn counters(&mut self, now: u64) -> DirectionCounters {
        self.take_queue_peaks(now);
        let sums = self.sums(now);
        DirectionCounters {
            queue_max_bytes: self.queue_max_bytes.take_interval(),
            low_priority: sums
                .low_priority
                .map(|low| low.with_queue_max(self.low_priority_queue_max_bytes.take_interval())),
            timing: self.punctuality.timing(),
            ..sums
        }
    }

    fn measurement(&mut self, now: u64) -> DirectionMeasurement {
        self.take_queue_peaks(now);
        let sums = self.sums(now);
        let measured = self.marked.measure(sums);
        let (timing, lateness) = self.punctuality.measurement();
        let over_rate = self.link.windows_over_rate();
        DirectionMeasurement {
            counters: DirectionCounters {
                queue_max_bytes: self.queue_max_bytes.take_measurement(),
                low_priority: measured.low_priority.map(|low| {
                    low.with_queue_max(self.low_priority_queue_max_bytes.take_measurement())
                }),
                timing,
                ..measured
            },
            lateness,
            sojourn: self.link.take_sojourn().into(),
            low_priority_sojourn: measured
                .low_priority
                .map(|_| LowPrioritySojourn::new(self.link.take_low_priority_sojourn())),
            scheduled_windows_over_rate: self.windows_over_rate_marked.measure(over_rate),
            overloaded: std::mem::take(&mut self.overloaded),
        }
    }

    /// Since the start, with maxima left 0 and without timing.
    fn sums(&mut self, now: u64) -> DirectionCounters {
        // First, since they serve the transmitter, which can drop packets.
        let queue_bytes = self.link.queue_bytes(now);
        let idle_ns = self.link.idle_ns(now);
        let totals = self.link.totals();
        let kernel_paced = self.kernel_paced.held(now);
        let dropped = totals.dropped.all();
        DirectionCounters {
            in_packets: totals.arrived.packets,
            in_bytes: totals.arrived.bytes,
            out_packets: totals.departed.packets - self.unsent.packets - kernel_paced.packets,
            out_bytes: totals.departed.bytes - self.unsent.bytes - kernel_paced.bytes,
            dropped_packets: dropped.packets + self.unsent.packets,
            dropped_bytes: dropped.bytes + self.unsent.bytes,
            dropped: DroppedByCause::new(&totals.dropped, self.unsent),
            oversize_packets: self.oversize_packets,
            queue_bytes,
            queue_max_bytes: 0,
            held_packets: self.link.held_packets() + kernel_paced.packets,
            idle_ns,
            lost_after_packets: totals.lost_after.packets,
            lost_after_bytes: totals.lost_after.bytes,
            low_priority: LowPriorityCounters::of(&mut self.link, now),
            timing: Timing::default(),
            doubtful: self.doubtful,
        }
    }

    fn take_queue_peaks(&mut self, now: u64) {
        self.queue_max_bytes
            .record(self.link.take_queue_peak_bytes(now));
        self.low_priority_queue_max_bytes
            .record(self.link.take_low_priority_queue_peak_bytes(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Request;
    use atoll_frame_engine::Received;

    const MS: u64 = 1_000_000;
    const FRAME: Received<'_> = Received {
        real_time_ns: 0,
        wire_bytes: 1014,
        frame: &[0; 1014],
        vlan: None,
        checksum_missing: false,
    };

    /// 1 ms for 1000 bytes, then 20 ms; with `more` keys in each direction.
    fn program(more: &str) -> LinkProgram {
        let direction =
            format!(r#"{{"rate_bit_s":8000000,"delay_ns":20000000,"queue_bytes":30000{more}}}"#);
        let line = format!(
            r#"{{"world":"w","island":"i","mtu":1500,"seed":1,"to_island":{direction},"to_world":{direction}}}"#
        );
        LinkProgram::new(&LinkConfig::parse(&line).unwrap(), 0).unwrap()
    }

    fn arrive(program: &mut LinkProgram, port: usize, now_ns: u64, received: &Received<'_>) {
        let arrival = Arrival {
            port,
            now_ns,
            stamped: true,
            received,
        };
        program.on_frame(&arrival, &mut FrameOutput::default());
    }

    fn set(program: &mut LinkProgram, now: u64, line: &str) {
        let Ok(Request::Set(change)) = atoll_job::request(line.as_bytes()) else {
            panic!("not understood");
        };
        program.set(now, &change).1.unwrap();
    }

    fn send_all(program: &mut LinkProgram) {
        while let Some(outgoing) = program.pop_due(u64::MAX) {
            program.on_sent(&outgoing, outgoing.scheduled_ns);
        }
    }

    #[test]
    fn an_arrival_that_is_known_too_late_makes_its_packet_late() {
        let mut program = program("");
        let way = r#"{"rate_bit_s":4000000,"delay_ns":20000000,"queue_bytes":30000}"#;
        set(
            &mut program,
            50 * MS,
            &format!(r#"{{"op":"set","id":1,"to_island":{way}}}"#),
        );
        // It was in the ring by then: it should have been sent at the rate before, and 47 ms earlier.
        arrive(&mut program, WORLD, 3 * MS, &FRAME);
        send_all(&mut program);
        let measured = program.measurement(100 * MS).to_island.counters.timing;
        assert_eq!(
            (measured.clamped_packets, measured.clamped_max_ns),
            (1, 47 * MS)
        );
        assert_eq!(
            (
                measured.lateness_max_ns,
                measured.stall_count,
                measured.stall_ns
            ),
            (47 * MS, 1, 47 * MS)
        );
    }

    #[test]
    fn counted_bytes_and_the_limit_of_a_stall_change_along_with_directions_or_nothing_does() {
        let mut program = program("");
        let changes = r#""counts":"ethernet","stall_from_ns":1000000"#;
        let wrong = format!(
            r#"{{"op":"set","id":1,{changes},"to_world":{{"rate_bit_s":0,"delay_ns":0,"queue_bytes":0}}}}"#
        );
        let Ok(Request::Set(wrong)) = atoll_job::request(wrong.as_bytes()) else {
            panic!("not understood");
        };
        let late = |program: &mut LinkProgram, now_ns| {
            arrive(program, WORLD, now_ns, &FRAME);
            let outgoing = program.pop_due(u64::MAX).unwrap();
            program.on_sent(&outgoing, outgoing.scheduled_ns + 2 * MS);
            let measured = program.measurement(now_ns + MS).to_island.counters;
            (measured.in_bytes, measured.timing.stall_count)
        };
        assert!(program.set(0, &wrong).1.is_err());
        assert_eq!(late(&mut program, MS), (1000, 0));
        set(
            &mut program,
            2 * MS,
            &format!(r#"{{"op":"set","id":1,{changes}}}"#),
        );
        assert_eq!(late(&mut program, 50 * MS), (1014, 1));
    }

    #[test]
    fn what_the_ring_did_not_deliver_as_it_should_is_counted_by_direction() {
        let mut program = program("");
        let unfinished = Received {
            checksum_missing: true,
            ..FRAME
        };
        let arrival = Arrival {
            port: ISLAND,
            now_ns: 0,
            stamped: false,
            received: &FRAME,
        };
        program.on_frame(&arrival, &mut FrameOutput::default());
        arrive(&mut program, ISLAND, 0, &unfinished);
        arrive(&mut program, ISLAND, 0, &FRAME);
        program.on_unread(ISLAND, 5);
        let expected = Doubtful {
            unread_packets: 5,
            unstamped_packets: 1,
            no_checksum_packets: 1,
        };
        assert_eq!(program.sums(MS).to_world.doubtful, expected);
        let measured = program.measurement(MS);
        assert_eq!(measured.to_world.counters.doubtful, expected);
        assert_eq!(measured.to_island.counters.doubtful, Doubtful::default());
        let measured = program.measurement(2 * MS);
        assert_eq!(measured.to_world.counters.doubtful, Doubtful::default());
        assert_eq!(
            program.sums(MS).to_world.doubtful,
            expected,
            "since the start"
        );
    }

    #[test]
    fn a_packet_lost_at_the_receiver_has_used_queue_and_transmitter() {
        let mut lossy = program(r#","loss":{"kind":"trace","lost":[true,false]}"#);
        let mut before =
            program(r#","loss":{"kind":"trace","lost":[true,false],"where":"before"}"#);
        let mut found = [&mut lossy, &mut before].map(|program| {
            for _ in 0..4 {
                arrive(program, WORLD, 0, &FRAME);
            }
            send_all(program);
            program.measurement(100 * MS).to_island
        });
        for measured in &mut found {
            let counters = measured.counters;
            assert_eq!((counters.in_packets, counters.out_packets), (4, 2));
            assert_eq!(
                (counters.dropped_packets, counters.dropped_bytes),
                (2, 2000)
            );
        }
        let used = found.map(|measured| {
            let sojourn = (
                measured.sojourn.sojourn_count,
                measured.sojourn.sojourn_sum_ns / MS,
            );
            let counters = measured.counters;
            (
                counters.lost_after_bytes,
                counters.idle_ns / MS,
                sojourn,
                measured.sojourn.sojourn_max_ns / MS,
            )
        });
        assert_eq!(used[0], (2000, 96, (4, 1 + 2 + 3 + 4), 4));
        assert_eq!(used[1], (0, 98, (2, 1 + 2), 2));
    }

    /// An IPv4 or IPv6 frame that counts for 1000 bytes, with a first word of its header.
    fn ip_frame(ether_type: u16, word: u16) -> Vec<u8> {
        let mut frame = vec![0; 1014];
        frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
        frame[14..16].copy_from_slice(&word.to_be_bytes());
        if ether_type == 0x0800 {
            frame[16..18].copy_from_slice(&1000_u16.to_be_bytes());
        }
        frame
    }

    #[test]
    fn packets_marked_le_wait_in_a_queue_of_their_own() {
        let mut program = program(r#","low_priority":{"queue_bytes":2000}"#);
        let frames = [
            (0, 0x0800, 0x4500),         // sent at once, 0 to 1 ms
            (0, 0x0800, 0x4504),         // LE: sent third
            (0, 0x86dd, 0x6070),         // LE, CE: sent fifth
            (0, 0x0800, 0x4504),         // no room for its bytes
            (500_000, 0x0800, 0x4500),   // sent second
            (2_500_000, 0x86dd, 0x6000), // comes while an LE packet is sent, and is fourth
        ];
        for (now, ether_type, word) in frames {
            let frame = ip_frame(ether_type, word);
            let received = Received {
                frame: &frame,
                ..FRAME
            };
            arrive(&mut program, WORLD, now, &received);
        }
        let mut left = Vec::new();
        while let Some(outgoing) = program.pop_due(u64::MAX) {
            left.push((
                outgoing.scheduled_ns / MS,
                outgoing.frame[14],
                outgoing.frame[15],
            ));
            program.on_sent(&outgoing, outgoing.scheduled_ns);
        }
        let expected = [
            (21, 0x45, 0),
            (22, 0x45, 0),
            (23, 0x45, 4),
            (24, 0x60, 0),
            (25, 0x60, 0x70),
        ];
        assert_eq!(left, expected);
        let measured = program.measurement(100 * MS).to_island;
        let counters = measured.counters;
        assert_eq!(
            (
                counters.in_packets,
                counters.out_packets,
                counters.dropped_packets
            ),
            (6, 5, 1)
        );
        assert_eq!(
            (counters.queue_max_bytes, counters.idle_ns),
            (1000, 95 * MS)
        );
        // 1, 1.5 and 1.5 ms; of the others 3 and 5 ms.
        assert_eq!(
            (
                measured.sojourn.sojourn_count,
                measured.sojourn.sojourn_sum_ns
            ),
            (3, 4 * MS)
        );
        let said = serde_json::to_value(&measured).unwrap();
        let figure = |name: &str| said[name].as_u64().unwrap();
        for (name, value) in [
            ("low_priority_in_packets", 3),
            ("low_priority_in_bytes", 3000),
            ("low_priority_sent_packets", 2),
            ("low_priority_sent_bytes", 2000),
            ("dropped_low_priority_packets", 1),
            ("dropped_low_priority_bytes", 1000),
            ("dropped_queue_packets", 0),
            ("low_priority_queue_bytes", 0),
            ("low_priority_queue_max_bytes", 2000),
            ("low_priority_sojourn_count", 2),
            ("low_priority_sojourn_sum_ns", 8 * MS),
            ("low_priority_sojourn_max_ns", 5 * MS),
        ] {
            assert_eq!(figure(name), value, "{name}");
        }
        let next = serde_json::to_value(program.measurement(200 * MS).to_island).unwrap();
        assert_eq!(next["low_priority_in_packets"], 0, "sums of a measurement");
        assert_eq!(next["low_priority_queue_max_bytes"], 0);
    }

    #[test]
    fn a_link_without_that_queue_does_not_speak_of_it() {
        let mut program = program("");
        let frame = ip_frame(0x0800, 0x4504);
        let received = Received {
            frame: &frame,
            ..FRAME
        };
        for _ in 0..3 {
            arrive(&mut program, WORLD, 0, &received);
        }
        let counters = program.sums(0).to_island;
        assert_eq!(counters.queue_bytes, 2000);
        let said = serde_json::to_string(&program.measurement(0)).unwrap();
        assert!(!said.contains("low_priority"), "{said}");
    }

    #[test]
    fn what_was_left_to_the_kernel_is_held_until_it_is_due() {
        let mut program = program("");
        arrive(&mut program, WORLD, 0, &FRAME);
        let outgoing = program.pop_due(21 * MS).unwrap();
        assert_eq!(outgoing.scheduled_ns, 21 * MS);
        program.on_sent(&outgoing, 15 * MS);
        let mut at = |now| {
            let counters = program.sums(now).to_island;
            (
                counters.in_packets,
                counters.out_packets,
                counters.held_packets,
            )
        };
        assert_eq!(at(16 * MS), (1, 0, 1));
        assert_eq!(at(21 * MS), (1, 1, 0));
        let measured = program.measurement(22 * MS).to_island;
        assert_eq!(
            (
                measured.counters.out_bytes,
                measured.counters.timing.lateness_max_ns
            ),
            (1000, 0)
        );
    }
}
