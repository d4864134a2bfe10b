// SPDX-License-Identifier: Apache-2.0
//! The kernel's statistics as the counters of a link or a delay box.

use crate::config::{self, Config, Handle};
use crate::error::TcError;
use crate::report::{
    DelayFigures, DirectionFigures, Figures, LowPriorityFigures, MeasuredDirection, Measurement,
    class_sums,
};
use crate::rtnetlink::{Kernel, Qdiscs, Statistics};
use atoll_link_report::{ClassSums, Directions};
use atoll_measures::{Histogram, Marked, Peak};
use atoll_netio::interface::Interface;
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;

const NS_OF_BYTE_AT_BIT_S: u64 = 8_000_000_000;
/// At a mark: packets that pass all the while leave one of a few readings without one between two counters.
const MARK_READINGS: usize = 5;

/// The counters, with their values at the last mark.
#[derive(Debug)]
pub(crate) enum Counters {
    /// To the island, to the world.
    Link(Box<[Direction; 2]>),
    Delay {
        classes: BTreeMap<u16, Class>,
        unknown: Filter,
        /// Packets of no class, at the last mark.
        unknown_marked: Marked<u64>,
    },
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Direction {
    arrivals: Filter,
    header_bytes: u64,
    loss: Loss,
    queue: Qdisc,
    low_priority: Option<Qdisc>,
    delay: Qdisc,
    /// The most packets that the delay holds.
    limit_packets: u64,
    /// The most bytes in the queue, since the last line of counters and since the last mark.
    queue_max_bytes: Peak,
    low_priority_queue_max_bytes: Peak,
    rate_bit_s: NonZeroU64,
    /// The time in which the queue would empty, at each look since the last mark.
    sojourns: Histogram,
    /// Whether the delay was found full since the last mark.
    was_full: bool,
    dropped_before: DroppedBytes,
    lost_after: DroppedBytes,
    /// Packets that the delay had dropped for want of room, now and at the last mark.
    refused: u64,
    refused_marked: u64,
    marked: Marked<DirectionFigures>,
}

/// Where a direction loses packets by chance.
#[derive(Debug)]
enum Loss {
    None,
    /// In a queueing discipline that the queue is below.
    Before(Qdisc),
    /// Where the delay is.
    After,
}

impl Loss {
    fn of(config: &config::Direction) -> Result<Self, TcError> {
        let Some(loss) = &config.loss else {
            return Ok(Self::None);
        };
        let delay = &config.delay;
        if (&loss.dev, loss.handle) == (&delay.dev, delay.handle) {
            return Ok(Self::After);
        }
        Ok(Self::Before(Qdisc::new(&loss.dev, loss.handle)?))
    }
}

/// One class of a delay box.
#[derive(Debug)]
pub(crate) struct Class {
    qdisc: Qdisc,
    marked: Marked<ClassSums>,
    /// Packets that there was no room for, now and at the last mark.
    refused: u64,
    refused_marked: u64,
}

/// A queueing discipline that is there.
#[derive(Debug)]
pub(crate) struct Qdisc {
    dev: String,
    key: (u32, Handle),
}

/// A filter that is there.
#[derive(Debug)]
pub(crate) struct Filter {
    dev: String,
    ifindex: u32,
    parent: Handle,
    pref: u16,
}

impl Counters {
    /// # Errors
    /// When an interface that is to be counted on does not exist.
    pub(crate) fn new(config: &Config) -> Result<Self, TcError> {
        if let Some(link) = &config.link {
            let directions = [&link.to_island, &link.to_world].map(Direction::new);
            let [to_island, to_world] = directions;
            return Ok(Self::Link(Box::new([to_island?, to_world?])));
        }
        let Some(delay) = &config.delay else {
            unreachable!("`Config::parse` refuses neither link nor delay box")
        };
        let classes = delay.classes.iter().map(|(&vlan, qdisc)| {
            let class = Class {
                qdisc: Qdisc::new(&qdisc.dev, qdisc.handle)?,
                marked: Marked::default(),
                refused: 0,
                refused_marked: 0,
            };
            Ok((vlan, class))
        });
        Ok(Self::Delay {
            classes: classes.collect::<Result<_, TcError>>()?,
            unknown: Filter::new(&delay.unknown)?,
            unknown_marked: Marked::default(),
        })
    }

    /// The settings of a link changed; where it is counted stays.
    ///
    /// # Errors
    /// When an interface is gone.
    pub(crate) fn change(&mut self, directions: &config::Directions) -> Result<(), TcError> {
        if let Self::Link(total) = self {
            let [to_island, to_world] = &mut **total;
            to_island.change(&directions.to_island)?;
            to_world.change(&directions.to_world)?;
        }
        Ok(())
    }

    /// Look at the queues.
    ///
    /// # Errors
    /// When one of them is gone.
    pub(crate) fn sample(&mut self, kernel: &mut Kernel) -> Result<(), TcError> {
        let Self::Link(directions) = self else {
            return Ok(());
        };
        let qdiscs = kernel.qdiscs()?;
        for direction in &mut **directions {
            let queues = direction.queues(&qdiscs)?;
            let delay = direction.delay.statistics(&qdiscs)?;
            direction.record_queues(&queues, &delay);
        }
        Ok(())
    }

    /// Sums since the start, the queue's maximum since the last call.
    ///
    /// # Errors
    /// When a queueing discipline or filter is gone.
    pub(crate) fn interval(&mut self, kernel: &mut Kernel) -> Result<Figures, TcError> {
        let figures = self.read(kernel)?;
        if let Self::Link(directions) = self {
            for direction in &mut **directions {
                direction.queue_max_bytes.take_interval();
                direction.low_priority_queue_max_bytes.take_interval();
            }
        }
        Ok(figures)
    }

    /// The counters since the last call; a new measurement begins.
    ///
    /// # Errors
    /// When a queueing discipline or filter is gone.
    pub(crate) fn measurement(&mut self, kernel: &mut Kernel) -> Result<Measurement, TcError> {
        let mut figures = self.read(kernel)?;
        for _ in 0..MARK_READINGS {
            if self.is_exact() {
                break;
            }
            figures = self.read(kernel)?;
        }
        Ok(match (self, figures) {
            (Self::Link(directions), Figures::Link(now)) => {
                let [to_island, to_world] = &mut **directions;
                Measurement::Link(Box::new(Directions {
                    to_island: to_island.measure(&now.to_island),
                    to_world: to_world.measure(&now.to_world),
                }))
            }
            (
                Self::Delay {
                    classes,
                    unknown_marked,
                    ..
                },
                Figures::Delay(mut now),
            ) => {
                for (vlan, class) in classes {
                    class.refused_marked = class.refused;
                    if let Some(figures) = now.classes.get_mut(vlan) {
                        *figures = class.marked.measure(*figures);
                    }
                }
                now.unknown_vlan_packets = unknown_marked.measure(now.unknown_vlan_packets);
                Measurement::Delay(now)
            }
            _ => unreachable!("a link's figures are a link's"),
        })
    }

    /// Whether the bytes of dropped packets are known exactly.
    fn is_exact(&self) -> bool {
        match self {
            Self::Link(directions) => directions.iter().all(|d| {
                d.dropped_before.exact && (d.lost_after.exact || d.lost_after.packets == 0)
            }),
            Self::Delay { .. } => true,
        }
    }

    fn read(&mut self, kernel: &mut Kernel) -> Result<Figures, TcError> {
        // In the order of passage: what is lost meanwhile is counted next time, never twice.
        match self {
            Self::Link(directions) => {
                let [to_island, to_world] = &mut **directions;
                let arrived = (
                    to_island.arrivals.statistics(kernel)?,
                    to_world.arrivals.statistics(kernel)?,
                );
                let queues = kernel.qdiscs()?;
                let loses = |direction: &Direction| matches!(direction.loss, Loss::After);
                let have_loss = loses(to_island) || loses(to_world);
                let later = have_loss.then(|| kernel.qdiscs()).transpose()?;
                let delays = later.as_ref().unwrap_or(&queues);
                Ok(Figures::Link(Box::new(Directions {
                    to_island: to_island.figures(&arrived.0, &queues, delays)?,
                    to_world: to_world.figures(&arrived.1, &queues, delays)?,
                })))
            }
            Self::Delay {
                classes, unknown, ..
            } => {
                let unknown_vlan_packets = unknown.statistics(kernel)?.packets;
                let qdiscs = kernel.qdiscs()?;
                let mut figures = BTreeMap::new();
                let mut overloaded = false;
                for (vlan, class) in classes {
                    let counted = class.qdisc.statistics(&qdiscs)?;
                    class.refused = counted.drops;
                    overloaded |= class.refused > class.refused_marked;
                    figures.insert(*vlan, class_sums(&counted));
                }
                Ok(Figures::Delay(DelayFigures {
                    classes: figures,
                    unknown_vlan_packets,
                    overloaded,
                }))
            }
        }
    }
}

impl Direction {
    fn new(config: &config::Direction) -> Result<Self, TcError> {
        let qdisc = |config: &config::Qdisc| Qdisc::new(&config.dev, config.handle);
        Ok(Self {
            arrivals: Filter::new(&config.arrivals)?,
            header_bytes: config.in_header_bytes,
            loss: Loss::of(config)?,
            queue: qdisc(&config.queue)?,
            low_priority: config.low_priority.as_ref().map(qdisc).transpose()?,
            delay: Qdisc::new(&config.delay.dev, config.delay.handle)?,
            limit_packets: config.delay.limit_packets,
            queue_max_bytes: Peak::default(),
            low_priority_queue_max_bytes: Peak::default(),
            rate_bit_s: config.rate_bit_s,
            sojourns: Histogram::default(),
            was_full: false,
            dropped_before: DroppedBytes::default(),
            lost_after: DroppedBytes::default(),
            refused: 0,
            refused_marked: 0,
            marked: Marked::default(),
        })
    }

    fn change(&mut self, config: &config::Direction) -> Result<(), TcError> {
        self.loss = match (&self.loss, Loss::of(config)?) {
            // What was lost before still counts, where nothing more is lost.
            (Loss::After, Loss::None) => Loss::After,
            (_, now) => now,
        };
        self.rate_bit_s = config.rate_bit_s;
        self.limit_packets = config.delay.limit_packets;
        Ok(())
    }

    fn queues(&self, qdiscs: &Qdiscs) -> Result<Queues, TcError> {
        let low_priority = self.low_priority.as_ref();
        Ok(Queues {
            total: self.queue.statistics(qdiscs)?,
            low_priority: low_priority.map(|low| low.statistics(qdiscs)).transpose()?,
        })
    }

    fn record_queues(&mut self, queues: &Queues, delay: &Statistics) {
        let backlog_bytes = queues.main_bytes();
        self.queue_max_bytes.record(backlog_bytes);
        if let Some(low) = &queues.low_priority {
            self.low_priority_queue_max_bytes.record(low.backlog_bytes);
        }
        let sojourn_ns = u128::from(backlog_bytes) * u128::from(NS_OF_BYTE_AT_BIT_S)
            / u128::from(self.rate_bit_s.get());
        self.sojourns
            .record(u64::try_from(sojourn_ns).unwrap_or(u64::MAX));
        self.was_full |= delay.backlog_packets >= self.limit_packets;
    }

    /// `queues` were read before `delays`, or both at once.
    fn figures(
        &mut self,
        arrived: &Statistics,
        queues: &Qdiscs,
        delays: &Qdiscs,
    ) -> Result<DirectionFigures, TcError> {
        let waiting = self.queues(queues)?;
        let (queue, low_priority) = (waiting.total, waiting.low_priority);
        let delay = self.delay.statistics(delays)?;
        self.record_queues(&waiting, &delay);
        let in_bytes = arrived.bytes + self.header_bytes * arrived.packets;
        let passed_bytes = queue.bytes + queue.backlog_bytes;
        let (mut lost_before, mut lost_after) = (0, 0);
        match &self.loss {
            Loss::None => self.refused = delay.drops,
            Loss::Before(loss) => {
                lost_before = loss.statistics(queues)?.drops.saturating_sub(queue.drops);
                self.refused = delay.drops;
            }
            Loss::After => {
                lost_after = delay.drops;
                let left_queue = (queue.packets, queue.bytes);
                self.lost_after
                    .update(delay.drops, missing(left_queue, &delay));
            }
        }
        let dropped_before = queue.drops + lost_before;
        self.dropped_before
            .update(dropped_before, missing((arrived.packets, in_bytes), &queue));
        let (before_bytes, after_bytes) = (self.dropped_before.bytes, self.lost_after.bytes);
        let loss_is_separate = !matches!(self.loss, Loss::Before(_));
        let by_cause = loss_is_separate && low_priority.is_none();
        let low_priority_drops = low_priority.map_or(0, |low| low.drops);
        Ok(DirectionFigures {
            in_packets: queue.packets + queue.backlog_packets + dropped_before,
            in_bytes: before_bytes + passed_bytes,
            out_packets: delay.packets,
            out_bytes: delay.bytes,
            dropped_packets: dropped_before + delay.drops,
            dropped_bytes: before_bytes + after_bytes,
            dropped_queue_packets: queue.drops.saturating_sub(low_priority_drops),
            dropped_queue_bytes: by_cause.then_some(before_bytes),
            dropped_loss_packets: lost_before + lost_after,
            dropped_loss_bytes: loss_is_separate.then_some(after_bytes),
            lost_after_packets: lost_after,
            lost_after_bytes: after_bytes,
            queue_bytes: waiting.main_bytes(),
            queue_max_bytes: self.queue_max_bytes.interval(),
            held_packets: queue.backlog_packets + delay.backlog_packets,
            low_priority: low_priority.map(|low| {
                LowPriorityFigures::of(&low, self.low_priority_queue_max_bytes.interval())
            }),
            overloaded: self.was_full || self.refused > self.refused_marked,
        })
    }

    fn measure(&mut self, now: &DirectionFigures) -> MeasuredDirection {
        let queue_max_bytes = self.queue_max_bytes.take_measurement();
        self.queue_max_bytes.record(now.queue_bytes); // with which the next measurement begins
        self.was_full = false;
        self.refused_marked = self.refused;
        let low_priority_queue_max_bytes = self.low_priority_queue_max_bytes.take_measurement();
        if let Some(low) = &now.low_priority {
            self.low_priority_queue_max_bytes
                .record(low.low_priority_queue_bytes);
        }
        let sojourns = std::mem::take(&mut self.sojourns);
        let measured = self.marked.measure(*now);
        let figures = DirectionFigures {
            queue_max_bytes,
            low_priority: measured.low_priority.map(|low| LowPriorityFigures {
                low_priority_queue_max_bytes,
                ..low
            }),
            ..measured
        };
        MeasuredDirection::new(figures, sojourns)
    }
}

/// The queues of a direction.
#[derive(Debug, Clone, Copy)]
struct Queues {
    /// All that waits for the rate.
    total: Statistics,
    /// The part that is of low priority; `None`: no packet has a queue of its own.
    low_priority: Option<Statistics>,
}

impl Queues {
    fn main_bytes(&self) -> u64 {
        let low_priority_bytes = self.low_priority.map_or(0, |low| low.backlog_bytes);
        self.total.backlog_bytes.saturating_sub(low_priority_bytes)
    }
}

/// Bytes of dropped packets, which the kernel does not count: those that came and neither left nor wait.
///
/// The counters are read one after the other. A packet that passes between two readings is counted by the later one
/// alone, one between two counters by the first alone: then as many packets are missing as were dropped no longer, and
/// the missing bytes are not those of dropped packets.
#[derive(Debug, Default)]
struct DroppedBytes {
    packets: u64,
    bytes: u64,
    /// Whether the bytes are exact: none of the packets was between two readings.
    exact: bool,
}

impl DroppedBytes {
    /// `dropped` packets so far; `missing`: packets and bytes that came, and have neither left nor wait.
    fn update(&mut self, dropped: u64, missing: (u64, u64)) {
        let (missing_packets, missing_bytes) = missing;
        let exact = missing_packets == dropped;
        if exact {
            self.bytes = missing_bytes;
        } else if dropped > self.packets {
            self.bytes = self.bytes.max(missing_bytes); // until the next exact reading
        }
        self.exact = exact || (self.exact && dropped == self.packets);
        self.packets = dropped;
    }
}

/// Packets and bytes of `input` that did not go `out`, nor wait there.
fn missing(input: (u64, u64), out: &Statistics) -> (u64, u64) {
    (
        input.0.saturating_sub(out.packets + out.backlog_packets),
        input.1.saturating_sub(out.bytes + out.backlog_bytes),
    )
}

impl Qdisc {
    fn new(dev: &str, handle: Handle) -> Result<Self, TcError> {
        Ok(Self {
            dev: dev.to_owned(),
            key: (index(dev)?, handle),
        })
    }

    fn statistics(&self, qdiscs: &Qdiscs) -> Result<Statistics, TcError> {
        let object = || format!("qdisc {:x}:", self.key.1.0 >> 16);
        let statistics = qdiscs.get(&self.key).copied();
        statistics.ok_or_else(|| gone(&object(), &self.dev))
    }
}

impl Filter {
    fn new(config: &config::Filter) -> Result<Self, TcError> {
        Ok(Self {
            dev: config.dev.clone(),
            ifindex: index(&config.dev)?,
            parent: config.parent,
            pref: config.pref,
        })
    }

    fn statistics(&self, kernel: &mut Kernel) -> Result<Statistics, TcError> {
        let statistics = match kernel.filter(self.ifindex, self.parent, self.pref) {
            Err(error) if !error.is_gone() => return Err(error),
            statistics => statistics.ok().flatten(),
        };
        statistics.ok_or_else(|| gone(&format!("filter {}", self.pref), &self.dev))
    }
}

fn index(dev: &str) -> Result<u32, TcError> {
    let interface = Interface::find(dev).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => gone("anything", dev),
        _ => error.into(),
    })?;
    Ok(interface.index)
}

fn gone(object: &str, dev: &str) -> TcError {
    TcError::Failed(format!(
        "the kernel no longer has {object} on '{dev}': the interface has disappeared, or another program changed its qdiscs"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_gone_is_called_gone_and_other_errors_keep_their_names() {
        let filter = Filter {
            dev: "sat-w".to_owned(),
            ifindex: 4,
            parent: Handle(0xffff_fff2),
            pref: 5,
        };
        let said = |kind: u16, errno: i32| {
            let (mut kernel, _far) = Kernel::that_says(&[(kind, &(-errno).to_ne_bytes())]);
            filter.statistics(&mut kernel).unwrap_err().to_string()
        };
        let (error, done) = (2, 3);
        for gone in [said(done, 0), said(error, 19), said(error, 2)] {
            assert!(
                gone.starts_with("the kernel no longer has filter 5 on 'sat-w'"),
                "{gone}"
            );
        }
        for refusal in [said(error, 105), said(done, 105)] {
            assert_eq!(
                refusal,
                "rtnetlink: No buffer space available (os error 105)"
            );
        }
        assert!(said(error, 1).starts_with("rtnetlink: Operation not permitted"));
    }

    #[test]
    fn a_packet_between_two_counters_is_not_taken_for_dropped() {
        let mut dropped = DroppedBytes::default();
        dropped.update(0, (1, 1500)); // one is on its way
        assert_eq!((dropped.bytes, dropped.exact), (0, false));
        dropped.update(1, (2, 3000)); // one is dropped while another is on its way
        dropped.update(1, (1, 1500));
        assert_eq!((dropped.bytes, dropped.exact), (1500, true));
    }

    #[test]
    fn packets_that_pass_between_two_readings_do_not_make_dropped_ones_smaller() {
        let mut dropped = DroppedBytes::default();
        dropped.update(150, (150, 225_000));
        // Three pings of 84 bytes came after the first counter was read, and passed before the second was.
        dropped.update(150, (147, 224_748));
        assert_eq!((dropped.bytes, dropped.exact), (225_000, true));
        dropped.update(151, (151, 226_308));
        assert_eq!(dropped.bytes, 226_308);
    }
}
