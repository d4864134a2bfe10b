// SPDX-License-Identifier: Apache-2.0
//! The delay box. A latency class has a VLAN id on the trunk, where its frames go back where they came from, or takes
//! untagged frames from one interface to another.

use crate::config::{Counted, DelayChange, DelayConfig};
use crate::emulator::Emulation;
use crate::frame::{Held, Lengths, SentFrame};
use crate::report::{ClassCounters, ClassMeasurement, CommonCounters, DelayBox};
use atoll_frame_engine::{Arrival, FrameOutput, KernelPaced, Outgoing, Punctuality};
use atoll_link_model::{ConfigError, DelayLine, SplitMix64};
use atoll_link_report::ClassSums;
use atoll_measures::Marked;

const HALF_OF_CLASS: &str = "vlan and delay_ns are given together: the class, and its delay";

/// `atoll-host delay`.
#[derive(Debug)]
pub(crate) struct DelayProgram {
    mtu: u32,
    shortest_delay_ns: u64,
    classes: Vec<Class>,
    common: CommonCounters,
    common_marked: Marked<CommonCounters>,
    /// Since the last mark.
    overloaded: bool,
}

impl DelayProgram {
    /// All classes empty.
    pub(crate) fn new(config: &DelayConfig) -> Result<Self, ConfigError> {
        let names = config.interfaces();
        let port_of = |name: &Option<String>| {
            let name = name.as_deref()?;
            names.iter().position(|other| *other == name)
        };
        let classes = config
            .classes
            .iter()
            .map(|class| {
                let random = SplitMix64::new(config.seed, u64::from(class.vlan));
                Ok(Class {
                    vlan: class.vlan,
                    tag: class.from.is_none().then_some(class.vlan),
                    // The trunk is the first interface.
                    from: port_of(&class.from).unwrap_or_default(),
                    to: port_of(&class.to).unwrap_or_default(),
                    line: DelayLine::new(class.settings(), random)?,
                    sums: ClassSums::default(),
                    marked: Marked::default(),
                    punctuality: Punctuality::new(config.stall_from_ns),
                    kernel_paced: KernelPaced::default(),
                })
            })
            .collect::<Result<Vec<_>, ConfigError>>()?;
        Ok(Self {
            mtu: config.mtu,
            shortest_delay_ns: shortest_delay_ns(&classes),
            classes,
            common: CommonCounters::default(),
            common_marked: Marked::default(),
            overloaded: false,
        })
    }

    fn change(&mut self, now: u64, change: &DelayChange) -> Result<(), String> {
        match (change.vlan, change.delay_ns) {
            (None, None) => {}
            (Some(vlan), Some(delay_ns)) => {
                let class = self.classes.iter_mut().find(|class| class.vlan == vlan);
                let class = class.ok_or_else(|| format!("vlan {vlan} has no class here"))?;
                let set = class.line.set_delay(now, delay_ns);
                set.map_err(|error| error.to_string())?;
                self.shortest_delay_ns = shortest_delay_ns(&self.classes);
            }
            _ => return Err(HALF_OF_CLASS.to_owned()),
        }
        if let Some(stall_from_ns) = change.stall_from_ns {
            for class in &mut self.classes {
                class.punctuality.set_stall_from(stall_from_ns);
            }
        }
        Ok(())
    }
}

fn shortest_delay_ns(classes: &[Class]) -> u64 {
    let shortest = classes.iter().map(|class| class.line.shortest_delay_ns());
    shortest.min().unwrap_or(u64::MAX)
}

impl Emulation for DelayProgram {
    type Counters = DelayBox<ClassCounters>;
    type Measurement = DelayBox<ClassMeasurement>;
    type Change = DelayChange;

    fn on_frame(&mut self, arrival: &Arrival<'_>, out: &mut FrameOutput<SentFrame>) {
        let (received, now) = (arrival.received, arrival.now_ns);
        self.common.doubtful.unstamped_packets += u64::from(!arrival.stamped);
        let vlan = received.vlan.map(atoll_headers::VlanTag::id);
        let Some(class) = self
            .classes
            .iter_mut()
            .find(|class| class.tag == vlan && class.from == arrival.port)
        else {
            self.common.unknown_vlan_packets += 1;
            return;
        };
        let lengths = Lengths::of(received.frame, received.wire_bytes);
        if lengths.payload_bytes > self.mtu {
            self.common.oversize_packets += 1;
            return;
        }
        let bytes = lengths.counted_bytes(Counted::Ip);
        class.sums.in_packets += 1;
        class.sums.in_bytes += u64::from(bytes);
        self.common.doubtful.no_checksum_packets += u64::from(received.checksum_missing);
        let earliest_ns = class.line.last_arrival_ns();
        let held = Held {
            frame: out.copy(received),
            arrival_shift_ns: class.punctuality.arrived(now, earliest_ns),
        };
        class.line.enqueue(now, bytes, held);
    }

    fn next_departure(&self) -> Option<u64> {
        self.classes
            .iter()
            .filter_map(|class| class.line.next_departure())
            .min()
    }

    fn pop_due(&mut self, now: u64) -> Option<Outgoing<SentFrame>> {
        let (part, class) = self
            .classes
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, class)| class.line.next_departure().unwrap_or(u64::MAX))?;
        let departure = class.line.pop_due(now)?;
        Some(SentFrame::outgoing(part, class.to, departure))
    }

    fn shortest_delay_ns(&self) -> u64 {
        self.shortest_delay_ns
    }

    fn on_sent(&mut self, frame: &Outgoing<SentFrame>, now_ns: u64) {
        let SentFrame {
            part,
            bytes,
            due_ns,
        } = frame.tag;
        let class = &mut self.classes[part];
        class.sums.out_packets += 1;
        class.sums.out_bytes += u64::from(bytes);
        class.punctuality.departed(due_ns, now_ns);
        if frame.scheduled_ns > now_ns {
            class.kernel_paced.push(frame.scheduled_ns, bytes);
        }
    }

    fn on_refused(&mut self, _frame: &Outgoing<SentFrame>) {
        self.overloaded = true;
    }

    fn on_unread(&mut self, _port: usize, frames: u64) {
        self.common.doubtful.unread_packets += frames;
        self.overloaded = true;
    }

    fn set(&mut self, now: u64, change: &DelayChange) -> (u64, Result<(), String>) {
        (change.id, self.change(now, change))
    }

    fn start_trace(&mut self, _now: u64) -> Result<(), String> {
        Err(ConfigError::NoTrace.to_string())
    }

    fn sums(&mut self, now: u64) -> Self::Counters {
        DelayBox {
            classes: self
                .classes
                .iter_mut()
                .map(|class| (class.vlan, class.counters(now)))
                .collect(),
            common: self.common,
            overloaded: self.overloaded,
        }
    }

    fn measurement(&mut self, now: u64) -> Self::Measurement {
        DelayBox {
            classes: self
                .classes
                .iter_mut()
                .map(|class| (class.vlan, class.measurement(now)))
                .collect(),
            common: self.common_marked.measure(self.common),
            overloaded: std::mem::take(&mut self.overloaded),
        }
    }
}

/// One latency class. Linear search finds it: a testbed has some dozens at most.
#[derive(Debug)]
struct Class {
    /// What requests and counters call it.
    vlan: u16,
    /// Of its frames; `None`: untagged.
    tag: Option<u16>,
    /// The port where its frames arrive.
    from: usize,
    /// The port where they leave.
    to: usize,
    line: DelayLine<Held>,
    punctuality: Punctuality,
    /// Since the start, with frames passed to the kernel counted as out.
    sums: ClassSums,
    marked: Marked<ClassSums>,
    /// Left the line, but the kernel still has them.
    kernel_paced: KernelPaced,
}

impl Class {
    /// Since the start, as of `now`.
    fn sums_at(&mut self, now: u64) -> ClassSums {
        let kernel_paced = self.kernel_paced.held(now);
        ClassSums {
            out_packets: self.sums.out_packets - kernel_paced.packets,
            out_bytes: self.sums.out_bytes - kernel_paced.bytes,
            held_packets: self.line.held_packets() + kernel_paced.packets,
            ..self.sums
        }
    }

    fn counters(&mut self, now: u64) -> ClassCounters {
        ClassCounters {
            sums: self.sums_at(now),
            timing: self.punctuality.timing(),
        }
    }

    fn measurement(&mut self, now: u64) -> ClassMeasurement {
        let sums = self.sums_at(now);
        let (timing, lateness) = self.punctuality.measurement();
        ClassMeasurement {
            counters: ClassCounters {
                sums: self.marked.measure(sums),
                timing,
            },
            lateness,
        }
    }
}
