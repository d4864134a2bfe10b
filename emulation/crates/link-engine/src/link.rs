// SPDX-License-Identifier: Apache-2.0
//! The satellite emulator: two interfaces, one `link_model::Link` each way.

use crate::config::{Counted, LinkConfig};
use crate::engine::Program;
use crate::error::{BadConfiguration, Refusal};
use crate::frame::{Lengths, with_tag};
use crate::kernel_departures::Entrusted;
use crate::ports::Outgoing;
use crate::report::{DirectionCounters, DirectionMeasurement, DroppedByCause, Lateness, buckets};
use crate::request::{Change, Towards};
use link_model::{ConfigError, Count, Histogram, Link, LinkSettings, SplitMix64};
use link_report::Directions;
use netio::frame::Received;

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
    pub(crate) fn new(config: &LinkConfig, now: u64) -> Result<Self, BadConfiguration> {
        Ok(Self {
            counts: config.counts,
            mtu: config.mtu,
            directions: [
                Direction::new(&config.to_island, SplitMix64::new(config.seed, 0), now)?,
                Direction::new(&config.to_world, SplitMix64::new(config.seed, 1), now)?,
            ],
        })
    }

    /// The next frame that came in at port `from`, if it was due at or before `now`.
    fn pop_from(&mut self, from: usize, now: u64) -> Option<Outgoing> {
        let departure = self.directions[from].link.pop_due(now)?;
        Some(Outgoing {
            line: from,
            port: WORLD + ISLAND - from,
            scheduled_ns: departure.scheduled_ns,
            bytes: departure.bytes,
            frame: departure.packet,
        })
    }

    fn by_direction<T>(&mut self, of: impl Fn(&mut Direction) -> T) -> Directions<T> {
        Directions {
            to_island: of(&mut self.directions[WORLD]),
            to_world: of(&mut self.directions[ISLAND]),
        }
    }
}

impl Program for LinkProgram {
    type Counters = Directions<DirectionCounters>;
    type Measurement = Directions<DirectionMeasurement>;

    fn shortest_delay_ns(&self) -> u64 {
        let [to_island, to_world] = &self.directions;
        let to_island_ns = to_island.link.shortest_delay_ns();
        to_island_ns.min(to_world.link.shortest_delay_ns())
    }

    fn arrival(&mut self, port: usize, now: u64, received: &Received<'_>) {
        let direction = &mut self.directions[port];
        let lengths = Lengths::of(received.frame, received.wire_bytes);
        if lengths.payload_bytes > self.mtu {
            direction.oversize_packets += 1;
            return;
        }
        let frame = with_tag(received.frame, received.vlan);
        direction
            .link
            .offer(now, lengths.counted(self.counts), frame);
    }

    fn next_departure(&self) -> Option<u64> {
        self.directions
            .iter()
            .filter_map(|direction| direction.link.next_departure())
            .min()
    }

    fn pop_due(&mut self, now: u64) -> Option<Outgoing> {
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

    fn sent(&mut self, outgoing: &Outgoing, now: u64) {
        let direction = &mut self.directions[outgoing.line];
        let lateness_ns = now.saturating_sub(outgoing.scheduled_ns);
        direction.lateness_max_ns = direction.lateness_max_ns.max(lateness_ns);
        direction.lateness.record(lateness_ns);
        if outgoing.scheduled_ns > now {
            direction
                .entrusted
                .push(outgoing.scheduled_ns, outgoing.bytes);
        }
    }

    fn not_sent(&mut self, outgoing: &Outgoing) {
        let direction = &mut self.directions[outgoing.line];
        direction.unsent.add(outgoing.bytes);
        direction.overloaded = true;
    }

    fn not_received(&mut self, port: usize) {
        self.directions[port].overloaded = true;
    }

    fn set(&mut self, now: u64, change: &Change) -> Result<(), Refusal> {
        if change.vlan.is_some() {
            return Err(Refusal::VlanOfLink);
        }
        let direction = match change.direction {
            Some(Towards::Island) => &mut self.directions[WORLD],
            Some(Towards::World) => &mut self.directions[ISLAND],
            None => return Err(Refusal::NoDirection),
        };
        Ok(direction.link.change(now, &change.settings())?)
    }

    fn start_trace(&mut self, now: u64) -> Result<(), Refusal> {
        let started = self.by_direction(|direction| direction.link.start_trace(now).is_ok());
        if started.to_island || started.to_world {
            return Ok(());
        }
        Err(ConfigError::NoTrace.into())
    }

    fn counters(&mut self, now: u64) -> Self::Counters {
        self.by_direction(|direction| direction.counters(now))
    }

    fn measurement(&mut self, now: u64) -> Self::Measurement {
        self.by_direction(|direction| direction.measurement(now))
    }
}

/// A link and what the engine knows of it beyond the model.
#[derive(Debug)]
struct Direction {
    link: Link<Vec<u8>>,
    oversize_packets: u64,
    /// Left the model, but the interface would not take them.
    unsent: Count,
    /// Left the model, but the kernel still has them.
    entrusted: Entrusted,
    /// Maxima since the last counters.
    queue_max_bytes: u64,
    lateness_max_ns: u64,
    /// Since the last mark.
    lateness: Histogram,
    measured_queue_max_bytes: u64,
    overloaded: bool,
    /// At the last mark.
    before: DirectionCounters,
    windows_over_rate_before: u64,
}

impl Direction {
    fn new(
        settings: &LinkSettings,
        random: SplitMix64,
        now: u64,
    ) -> Result<Self, BadConfiguration> {
        Ok(Self {
            link: Link::new(settings, random, now)?,
            oversize_packets: 0,
            unsent: Count::default(),
            entrusted: Entrusted::default(),
            queue_max_bytes: 0,
            lateness_max_ns: 0,
            lateness: Histogram::default(),
            measured_queue_max_bytes: 0,
            overloaded: false,
            before: DirectionCounters::default(),
            windows_over_rate_before: 0,
        })
    }

    fn counters(&mut self, now: u64) -> DirectionCounters {
        self.take_queue_peak(now);
        DirectionCounters {
            queue_max_bytes: std::mem::take(&mut self.queue_max_bytes),
            lateness_max_ns: std::mem::take(&mut self.lateness_max_ns),
            ..self.sums(now)
        }
    }

    fn measurement(&mut self, now: u64) -> DirectionMeasurement {
        self.take_queue_peak(now);
        let after = self.sums(now);
        let before = std::mem::replace(&mut self.before, after);
        let lateness = std::mem::take(&mut self.lateness);
        let sojourn = self.link.take_sojourn();
        let over_rate = self.link.windows_over_rate();
        DirectionMeasurement {
            counters: DirectionCounters {
                queue_max_bytes: std::mem::replace(
                    &mut self.measured_queue_max_bytes,
                    after.queue_bytes,
                ),
                lateness_max_ns: lateness.max_ns(),
                ..after.since(&before)
            },
            lateness: Lateness::from(&lateness),
            sojourn_max_ns: sojourn.max_ns(),
            sojourn_histogram: buckets(&sojourn),
            scheduled_windows_over_rate: over_rate
                - std::mem::replace(&mut self.windows_over_rate_before, over_rate),
            overloaded: std::mem::take(&mut self.overloaded),
        }
    }

    /// Since the start, with maxima left 0.
    fn sums(&mut self, now: u64) -> DirectionCounters {
        // First, since they serve the transmitter, which can drop packets.
        let queue_bytes = self.link.queue_bytes(now);
        let idle_ns = self.link.idle_ns(now);
        let totals = self.link.totals();
        let entrusted = self.entrusted.held(now);
        let dropped = totals.dropped.all();
        DirectionCounters {
            in_packets: totals.arrived.packets,
            in_bytes: totals.arrived.bytes,
            out_packets: totals.departed.packets - self.unsent.packets - entrusted.packets,
            out_bytes: totals.departed.bytes - self.unsent.bytes - entrusted.bytes,
            dropped_packets: dropped.packets + self.unsent.packets,
            dropped_bytes: dropped.bytes + self.unsent.bytes,
            dropped: DroppedByCause::new(&totals.dropped, self.unsent),
            oversize_packets: self.oversize_packets,
            queue_bytes,
            queue_max_bytes: 0,
            held_packets: self.link.held_packets() + entrusted.packets,
            idle_ns,
            lateness_max_ns: 0,
        }
    }

    fn take_queue_peak(&mut self, now: u64) {
        let peak = self.link.take_queue_peak_bytes(now);
        self.queue_max_bytes = self.queue_max_bytes.max(peak);
        self.measured_queue_max_bytes = self.measured_queue_max_bytes.max(peak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_was_left_to_the_kernel_is_held_until_it_is_due() {
        let direction = r#"{"rate_bit_s":8000000,"delay_ns":20000000,"queue_bytes":30000}"#;
        let line = format!(
            r#"{{"world":"w","island":"i","mtu":1500,"seed":1,"to_island":{direction},"to_world":{direction}}}"#
        );
        let mut program = LinkProgram::new(&LinkConfig::parse(&line).unwrap(), 0).unwrap();
        let received = Received {
            real_time_ns: 0,
            wire_bytes: 1014,
            frame: &[0; 1014],
            vlan: None,
            checksum_missing: false,
        };
        program.arrival(WORLD, 0, &received);
        let outgoing = program.pop_due(21 * MS).unwrap();
        assert_eq!(outgoing.scheduled_ns, 21 * MS);
        program.sent(&outgoing, 15 * MS);
        let mut at = |now| {
            let counters = program.counters(now).to_island;
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
                measured.counters.lateness_max_ns
            ),
            (1000, 0)
        );
    }
}
