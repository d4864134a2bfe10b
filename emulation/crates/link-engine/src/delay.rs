// SPDX-License-Identifier: Apache-2.0
//! The delay box: one interface, one latency class per VLAN id; frames go back where they came from.

use crate::config::{Counted, DelayConfig};
use crate::engine::Program;
use crate::error::{BadConfiguration, Refusal};
use crate::frame::{Lengths, with_tag};
use crate::kernel_pacing::KernelPaced;
use crate::ports::{Held, Outgoing};
use crate::punctuality::Punctuality;
use crate::report::{ClassCounters, ClassMeasurement, DelayBox, Doubtful};
use crate::request::Change;
use atoll_link_model::{ConfigError, DelayLine, LinkChange, SplitMix64};
use atoll_netio::frame::Received;

const TRUNK: usize = 0;

/// `atoll-host delay`.
#[derive(Debug)]
pub(crate) struct DelayProgram {
    mtu: u32,
    shortest_delay_ns: u64,
    classes: Vec<Class>,
    unknown_vlan_packets: u64,
    oversize_packets: u64,
    doubtful: Doubtful,
    /// Since the last mark.
    overloaded: bool,
    /// At the last mark.
    unknown_vlan_packets_before: u64,
    oversize_packets_before: u64,
    doubtful_before: Doubtful,
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
                    punctuality: Punctuality::new(config.stall_from_ns),
                    kernel_paced: KernelPaced::default(),
                })
            })
            .collect::<Result<Vec<_>, BadConfiguration>>()?;
        Ok(Self {
            mtu: config.mtu,
            shortest_delay_ns: shortest_delay_ns(&classes),
            classes,
            unknown_vlan_packets: 0,
            oversize_packets: 0,
            doubtful: Doubtful::default(),
            overloaded: false,
            unknown_vlan_packets_before: 0,
            oversize_packets_before: 0,
            doubtful_before: Doubtful::default(),
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
        let vlan = received.vlan.map(atoll_headers::VlanTag::id);
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
        self.doubtful.no_checksum_packets += u64::from(received.checksum_missing);
        let earliest_ns = class.line.last_arrival_ns();
        let held = Held {
            frame: with_tag(received.frame, received.vlan),
            clamped_ns: class.punctuality.arrived(now, earliest_ns),
        };
        class.line.enqueue(now, bytes, held);
    }

    fn unstamped(&mut self, _port: usize) {
        self.doubtful.unstamped_packets += 1;
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
            held: departure.packet,
        })
    }

    fn sent(&mut self, outgoing: &Outgoing, now: u64) {
        let class = &mut self.classes[outgoing.line];
        class.sums.out_packets += 1;
        class.sums.out_bytes += u64::from(outgoing.bytes);
        class.punctuality.departed(outgoing.due_ns(), now);
        if outgoing.scheduled_ns > now {
            class
                .kernel_paced
                .push(outgoing.scheduled_ns, outgoing.bytes);
        }
    }

    fn not_sent(&mut self, _outgoing: &Outgoing) {
        self.overloaded = true;
    }

    fn not_received(&mut self, _port: usize, packets: u64) {
        self.doubtful.unread_packets += packets;
        self.overloaded = true;
    }

    fn set(&mut self, now: u64, change: &Change) -> Result<(), Refusal> {
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
        class.line.set_delay(now, delay_ns)?;
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
            doubtful: self.doubtful,
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
        let doubtful_before = std::mem::replace(&mut self.doubtful_before, self.doubtful);
        DelayBox {
            classes: self
                .classes
                .iter_mut()
                .map(|class| (class.vlan, class.measurement(now)))
                .collect(),
            unknown_vlan_packets: self.unknown_vlan_packets - unknown_before,
            oversize_packets: self.oversize_packets - oversize_before,
            doubtful: self.doubtful.since(&doubtful_before),
            overloaded: std::mem::take(&mut self.overloaded),
        }
    }
}

/// One latency class. Linear search finds it: a testbed has some dozens at most.
#[derive(Debug)]
struct Class {
    vlan: u16,
    line: DelayLine<Held>,
    punctuality: Punctuality,
    /// Since the start, with frames passed to the kernel counted as out, without timing.
    sums: ClassCounters,
    /// At the last mark.
    before: ClassCounters,
    /// Left the line, but the kernel still has them.
    kernel_paced: KernelPaced,
}

impl Class {
    /// Since the start, as of `now`, without timing.
    fn sums_at(&mut self, now: u64) -> ClassCounters {
        let kernel_paced = self.kernel_paced.held(now);
        ClassCounters {
            out_packets: self.sums.out_packets - kernel_paced.packets,
            out_bytes: self.sums.out_bytes - kernel_paced.bytes,
            held_packets: self.line.held_packets() + kernel_paced.packets,
            ..self.sums
        }
    }

    fn counters(&mut self, now: u64) -> ClassCounters {
        ClassCounters {
            timing: self.punctuality.timing(),
            ..self.sums_at(now)
        }
    }

    fn measurement(&mut self, now: u64) -> ClassMeasurement {
        let after = self.sums_at(now);
        let before = std::mem::replace(&mut self.before, after);
        let (timing, lateness) = self.punctuality.measurement();
        ClassMeasurement {
            counters: ClassCounters {
                in_packets: after.in_packets - before.in_packets,
                in_bytes: after.in_bytes - before.in_bytes,
                out_packets: after.out_packets - before.out_packets,
                out_bytes: after.out_bytes - before.out_bytes,
                held_packets: after.held_packets,
                timing,
            },
            lateness,
        }
    }
}
