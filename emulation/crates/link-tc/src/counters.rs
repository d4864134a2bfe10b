// SPDX-License-Identifier: Apache-2.0
//! The kernel's statistics as the counters of a link or a delay box.

use crate::attributes::Statistics;
use crate::config::{self, Counted, Handle};
use crate::error::TcError;
use crate::report::{ClassFigures, DelayFigures, DirectionFigures, Figures};
use crate::rtnetlink::{Kernel, Qdiscs};
use link_report::Directions;
use netio::interface::Interface;
use std::collections::BTreeMap;

/// What is counted, with the counts of the last mark.
#[derive(Debug)]
pub(crate) enum Counters {
    Link {
        to_island: Box<Direction>,
        to_world: Box<Direction>,
    },
    Delay {
        classes: BTreeMap<u16, Class>,
        unknown: Filter,
        /// Packets of no class, at the last mark.
        unknown_marked: u64,
    },
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Direction {
    arrivals: Filter,
    header_bytes: u64,
    loss: Option<Qdisc>,
    queue: Qdisc,
    delay: Qdisc,
    /// The most bytes in the queue, since the last line of counters and since the last mark.
    interval_max_bytes: u64,
    measurement_max_bytes: u64,
    /// Dropped bytes never become fewer, though counters read one after the other may say so.
    dropped_bytes: u64,
    marked: DirectionFigures,
}

/// One class of a delay box.
#[derive(Debug)]
pub(crate) struct Class {
    qdisc: Qdisc,
    marked: ClassFigures,
}

/// A queueing discipline that was found.
#[derive(Debug)]
pub(crate) struct Qdisc {
    dev: String,
    key: (u32, Handle),
}

/// A filter that was found.
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
    pub(crate) fn new(counted: &Counted) -> Result<Self, TcError> {
        let delay = match counted {
            Counted::Link(link) => {
                return Ok(Self::Link {
                    to_island: Box::new(Direction::new(&link.to_island)?),
                    to_world: Box::new(Direction::new(&link.to_world)?),
                });
            }
            Counted::Delay(delay) => delay,
        };
        let classes = delay.classes.iter().map(|(&vlan, qdisc)| {
            let class = Class {
                qdisc: Qdisc::new(qdisc)?,
                marked: ClassFigures::default(),
            };
            Ok((vlan, class))
        });
        Ok(Self::Delay {
            classes: classes.collect::<Result<_, TcError>>()?,
            unknown: Filter::new(&delay.unknown)?,
            unknown_marked: 0,
        })
    }

    /// Look at the queues.
    ///
    /// # Errors
    /// When one of them is gone.
    pub(crate) fn sample(&mut self, kernel: &mut Kernel) -> Result<(), TcError> {
        let Self::Link {
            to_island,
            to_world,
        } = self
        else {
            return Ok(());
        };
        let qdiscs = kernel.qdiscs()?;
        for direction in [to_island, to_world] {
            direction.look(direction.queue.statistics(&qdiscs)?.backlog_bytes);
        }
        Ok(())
    }

    /// Sums since the start, the queue's maximum since the last call.
    ///
    /// # Errors
    /// When what is to be read is gone.
    pub(crate) fn interval(&mut self, kernel: &mut Kernel) -> Result<Figures, TcError> {
        let figures = self.read(kernel)?;
        if let Self::Link {
            to_island,
            to_world,
        } = self
        {
            to_island.interval_max_bytes = 0;
            to_world.interval_max_bytes = 0;
        }
        Ok(figures)
    }

    /// What passed since the last call; a new measurement begins.
    ///
    /// # Errors
    /// When what is to be read is gone.
    pub(crate) fn measurement(&mut self, kernel: &mut Kernel) -> Result<Figures, TcError> {
        let mut figures = self.read(kernel)?;
        match (self, &mut figures) {
            (
                Self::Link {
                    to_island,
                    to_world,
                },
                Figures::Link(now),
            ) => {
                now.to_island = to_island.measure(&now.to_island);
                now.to_world = to_world.measure(&now.to_world);
            }
            (
                Self::Delay {
                    classes,
                    unknown_marked,
                    ..
                },
                Figures::Delay(now),
            ) => {
                for (vlan, class) in classes {
                    if let Some(figures) = now.classes.get_mut(vlan) {
                        let marked = std::mem::replace(&mut class.marked, *figures);
                        *figures = figures.since(&marked);
                    }
                }
                let unknown = std::mem::replace(unknown_marked, now.unknown_vlan_packets);
                now.unknown_vlan_packets = now.unknown_vlan_packets.saturating_sub(unknown);
            }
            _ => unreachable!("a link's figures are a link's"),
        }
        Ok(figures)
    }

    fn read(&mut self, kernel: &mut Kernel) -> Result<Figures, TcError> {
        // What arrived is read first: what is lost meanwhile is counted next time, never twice.
        match self {
            Self::Link {
                to_island,
                to_world,
            } => {
                let arrived = (
                    to_island.arrivals.statistics(kernel)?,
                    to_world.arrivals.statistics(kernel)?,
                );
                let qdiscs = kernel.qdiscs()?;
                Ok(Figures::Link(Directions {
                    to_island: to_island.figures(&arrived.0, &qdiscs)?,
                    to_world: to_world.figures(&arrived.1, &qdiscs)?,
                }))
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
                    overloaded |= counted.drops > 0;
                    figures.insert(*vlan, ClassFigures::of(&counted));
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
        Ok(Self {
            arrivals: Filter::new(&config.arrivals)?,
            header_bytes: config.in_header_bytes,
            loss: config.loss.as_ref().map(Qdisc::new).transpose()?,
            queue: Qdisc::new(&config.queue)?,
            delay: Qdisc::new(&config.delay)?,
            interval_max_bytes: 0,
            measurement_max_bytes: 0,
            dropped_bytes: 0,
            marked: DirectionFigures::default(),
        })
    }

    fn look(&mut self, queue_bytes: u64) {
        self.interval_max_bytes = self.interval_max_bytes.max(queue_bytes);
        self.measurement_max_bytes = self.measurement_max_bytes.max(queue_bytes);
    }

    fn figures(
        &mut self,
        arrived: &Statistics,
        qdiscs: &Qdiscs,
    ) -> Result<DirectionFigures, TcError> {
        let queue = self.queue.statistics(qdiscs)?;
        let delay = self.delay.statistics(qdiscs)?;
        let loss = match &self.loss {
            Some(loss) => loss.statistics(qdiscs)?.drops.saturating_sub(queue.drops),
            None => 0,
        };
        self.look(queue.backlog_bytes);
        let in_bytes = arrived.bytes + self.header_bytes * arrived.packets;
        let passed = queue.bytes + queue.backlog_bytes;
        // The kernel counts no bytes of what it drops: they are what arrived and neither left nor waits.
        self.dropped_bytes = self.dropped_bytes.max(in_bytes.saturating_sub(passed));
        Ok(DirectionFigures {
            in_packets: queue.packets + queue.backlog_packets + queue.drops + loss,
            in_bytes: self.dropped_bytes + passed,
            out_packets: delay.packets,
            out_bytes: delay.bytes,
            dropped_packets: queue.drops + loss + delay.drops,
            dropped_bytes: self.dropped_bytes,
            dropped_queue_packets: queue.drops,
            dropped_loss_packets: loss,
            queue_bytes: queue.backlog_bytes,
            queue_max_bytes: self.interval_max_bytes,
            held_packets: queue.backlog_packets + delay.backlog_packets,
            overloaded: delay.drops > 0,
        })
    }

    fn measure(&mut self, now: &DirectionFigures) -> DirectionFigures {
        let marked = std::mem::replace(&mut self.marked, *now);
        let most = std::mem::replace(&mut self.measurement_max_bytes, now.queue_bytes);
        DirectionFigures {
            queue_max_bytes: most,
            ..now.since(&marked)
        }
    }
}

impl Qdisc {
    fn new(config: &config::Qdisc) -> Result<Self, TcError> {
        Ok(Self {
            dev: config.dev.clone(),
            key: (index(&config.dev)?, config.handle),
        })
    }

    fn statistics(&self, qdiscs: &Qdiscs) -> Result<Statistics, TcError> {
        qdiscs.get(&self.key).copied().ok_or_else(|| TcError::Gone {
            dev: self.dev.clone(),
            what: format!("qdisc {:x}:", self.key.1.0 >> 16),
        })
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
        let found = kernel.filter(self.ifindex, self.parent, self.pref);
        found.ok().flatten().ok_or_else(|| TcError::Gone {
            dev: self.dev.clone(),
            what: format!("filter {}", self.pref),
        })
    }
}

fn index(dev: &str) -> Result<u32, TcError> {
    let found = Interface::find(dev).map_err(|_| TcError::Gone {
        dev: dev.to_owned(),
        what: "anything".to_owned(),
    })?;
    Ok(found.index)
}
