// SPDX-License-Identifier: Apache-2.0
//! The delay box: one interface, one latency class per VLAN id; frames go back where they came from.

use crate::config::{Counted, DelayConfig};
use crate::engine::Program;
use crate::error::{BadConfiguration, Refusal};
use crate::frame::{Lengths, with_tag};
use crate::kernel_departures::Entrusted;
use crate::ports::Outgoing;
use crate::report::{ClassCounters, ClassMeasurement, DelayBox, Lateness};
use crate::request::Change;
use link_model::{ConfigError, DelayLine, Histogram, LinkChange, SplitMix64};
use netio::frame::Received;

const TRUNK: usize = 0;

/// `atoll-host delay`.
#[derive(Debug)]
pub(crate) struct DelayProgram {
    mtu: u32,
    shortest_delay_ns: u64,
    classes: Vec<Class>,
    unknown_vlan_packets: u64,
    oversize_packets: u64,
    /// Since the last mark.
    overloaded: bool,
    /// At the last mark.
    unknown_vlan_packets_before: u64,
    oversize_packets_before: u64,
}

impl DelayProgram {
    /// All classes empty.
    pub(crate) fn new(config: &DelayConfig) -> Result<Self, BadConfiguration> {
        let classes = config
            .classes
            .iter()
            .map(|class| {
                let random = SplitMix64::new(config.seed, u64::from(class.vlan));
                Ok(Class {
                    vlan: class.vlan,
                    line: DelayLine::new(class.settings(), random)?,
                    sums: ClassCounters::default(),
                    before: ClassCounters::default(),
                    lateness: Histogram::default(),
                    entrusted: Entrusted::default(),
                })
            })
            .collect::<Result<Vec<_>, BadConfiguration>>()?;
        Ok(Self {
            mtu: config.mtu,
            shortest_delay_ns: shortest_delay_ns(&classes),
            classes,
            unknown_vlan_packets: 0,
            oversize_packets: 0,
            overloaded: false,
            unknown_vlan_packets_before: 0,
            oversize_packets_before: 0,
        })
    }
}

fn shortest_delay_ns(classes: &[Class]) -> u64 {
    let shortest = classes.iter().map(|class| class.line.shortest_delay_ns());
    shortest.min().unwrap_or(u64::MAX)
}

impl Program for DelayProgram {
    type Counters = DelayBox<ClassCounters>;
    type Measurement = DelayBox<ClassMeasurement>;

    fn shortest_delay_ns(&self) -> u64 {
        self.shortest_delay_ns
    }

    fn arrival(&mut self, _port: usize, now: u64, received: &Received<'_>) {
        let vlan = received.vlan.map(netio::frame::VlanTag::id);
        let Some(class) = self
            .classes
            .iter_mut()
            .find(|class| Some(class.vlan) == vlan)
        else {
            self.unknown_vlan_packets += 1;
            return;
        };
        let lengths = Lengths::of(received.frame, received.wire_bytes);
        if lengths.payload_bytes > self.mtu {
            self.oversize_packets += 1;
            return;
        }
        let bytes = lengths.counted(Counted::Ip);
        class.sums.in_packets += 1;
        class.sums.in_bytes += u64::from(bytes);
        class
            .line
            .offer(now, bytes, with_tag(received.frame, received.vlan));
    }

    fn next_departure(&self) -> Option<u64> {
        self.classes
            .iter()
            .filter_map(|class| class.line.next_departure())
            .min()
    }

    fn pop_due(&mut self, now: u64) -> Option<Outgoing> {
        let (line, class) = self
            .classes
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, class)| class.line.next_departure().unwrap_or(u64::MAX))?;
        let departure = class.line.pop_due(now)?;
        Some(Outgoing {
            line,
            port: TRUNK,
            scheduled_ns: departure.scheduled_ns,
            bytes: departure.bytes,
            frame: departure.packet,
        })
    }

    fn sent(&mut self, outgoing: &Outgoing, now: u64) {
        let class = &mut self.classes[outgoing.line];
        let lateness_ns = now.saturating_sub(outgoing.scheduled_ns);
        class.sums.out_packets += 1;
        class.sums.out_bytes += u64::from(outgoing.bytes);
        class.sums.lateness_max_ns = class.sums.lateness_max_ns.max(lateness_ns);
        class.lateness.record(lateness_ns);
        if outgoing.scheduled_ns > now {
            class.entrusted.push(outgoing.scheduled_ns, outgoing.bytes);
        }
    }

    fn not_sent(&mut self, _outgoing: &Outgoing) {
        self.overloaded = true;
    }

    fn not_received(&mut self, _port: usize) {
        self.overloaded = true;
    }

    fn set(&mut self, _now: u64, change: &Change) -> Result<(), Refusal> {
        let vlan = change.vlan.ok_or(Refusal::NoVlan)?;
        let class = self.classes.iter_mut().find(|class| class.vlan == vlan);
        let class = class.ok_or(Refusal::UnknownVlan(vlan))?;
        let settings = change.settings();
        let delay_ns = settings.delay_ns.ok_or(Refusal::NotOfClass)?;
        let only_delay = LinkChange {
            delay_ns: Some(delay_ns),
            ..LinkChange::default()
        };
        if change.direction.is_some() || settings != only_delay {
            return Err(Refusal::NotOfClass);
        }
        class.line.set_delay(delay_ns)?;
        self.shortest_delay_ns = shortest_delay_ns(&self.classes);
        Ok(())
    }

    fn start_trace(&mut self, _now: u64) -> Result<(), Refusal> {
        Err(ConfigError::NoTrace.into())
    }

    fn counters(&mut self, now: u64) -> Self::Counters {
        DelayBox {
            classes: self
                .classes
                .iter_mut()
                .map(|class| (class.vlan, class.counters(now)))
                .collect(),
            unknown_vlan_packets: self.unknown_vlan_packets,
            oversize_packets: self.oversize_packets,
            overloaded: self.overloaded,
        }
    }

    fn measurement(&mut self, now: u64) -> Self::Measurement {
        let unknown_before = std::mem::replace(
            &mut self.unknown_vlan_packets_before,
            self.unknown_vlan_packets,
        );
        let oversize_before =
            std::mem::replace(&mut self.oversize_packets_before, self.oversize_packets);
        DelayBox {
            classes: self
                .classes
                .iter_mut()
                .map(|class| (class.vlan, class.measurement(now)))
                .collect(),
            unknown_vlan_packets: self.unknown_vlan_packets - unknown_before,
            oversize_packets: self.oversize_packets - oversize_before,
            overloaded: std::mem::take(&mut self.overloaded),
        }
    }
}

/// One latency class. Linear search finds it: a testbed has some dozens at most.
#[derive(Debug)]
struct Class {
    vlan: u16,
    line: DelayLine<Vec<u8>>,
    /// Since the start, with what was entrusted counted as out; the maximum since the last counters.
    sums: ClassCounters,
    /// At the last mark.
    before: ClassCounters,
    /// Since the last mark.
    lateness: Histogram,
    /// Left the line, but the kernel still has them.
    entrusted: Entrusted,
}

impl Class {
    /// Since the start, as of `now`; the maximum since the last counters.
    fn sums_at(&mut self, now: u64) -> ClassCounters {
        let entrusted = self.entrusted.held(now);
        ClassCounters {
            out_packets: self.sums.out_packets - entrusted.packets,
            out_bytes: self.sums.out_bytes - entrusted.bytes,
            held_packets: self.line.held_packets() + entrusted.packets,
            ..self.sums
        }
    }

    fn counters(&mut self, now: u64) -> ClassCounters {
        let counters = self.sums_at(now);
        self.sums.lateness_max_ns = 0;
        counters
    }

    fn measurement(&mut self, now: u64) -> ClassMeasurement {
        let after = self.sums_at(now);
        let before = std::mem::replace(&mut self.before, after);
        let lateness = std::mem::take(&mut self.lateness);
        ClassMeasurement {
            counters: ClassCounters {
                in_packets: after.in_packets - before.in_packets,
                in_bytes: after.in_bytes - before.in_bytes,
                out_packets: after.out_packets - before.out_packets,
                out_bytes: after.out_bytes - before.out_bytes,
                held_packets: after.held_packets,
                lateness_max_ns: lateness.max_ns(),
            },
            lateness: Lateness::from(&lateness),
        }
    }
}
