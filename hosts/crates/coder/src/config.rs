// SPDX-License-Identifier: Apache-2.0
//! The configuration: the first line of standard input (docs/contracts.md, "coder").

use crate::decoder::{Decoder, HELD_MAX};
use crate::encoder::Encoder;
use crate::in_order;
use crate::outer::OVERHEAD_BYTES;
use crate::scheduler::{Release, WAITING_MAX_BYTES};
use crate::sliding_decoder::{LARGEST, SlidingDecoder};
use crate::sliding_encoder::SlidingEncoder;
use crate::stream::{Shape, StreamDecoder, StreamEncoder};
use crate::virtual_queue::VirtualQueue;
use atoll_headers::Prefix;
use atoll_rlnc::{BlockCode, CodeError, MOST_SOURCES, ReedSolomon, Repetition, Rlnc};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Far above the use of a program without tunnels, and of a packet besides its bytes and its coefficients.
const PROGRAM_BYTES: u64 = 256_000_000;
const PACKET_BYTES: u64 = 200;

const INTERSPERSED: &str = "interspersed repair packets need the scheme rlnc or sliding-window: others make them at the end of a generation";
const NO_GENERATIONS: &str = "a sliding window has no generations: no tail, no number of generations to defer, interleave 1, and no adaptive redundancy";
const INTERLEAVED: &str =
    "packets of interleaved generations cannot be held in order: interleave 1";
const ADAPTIVE: &str = "adaptive redundancy needs feedback, and a residual_loss above 0";
const PARTIAL_UNIT_MEMORY: &str = "partial-unit-memory has a memory of 1 to generation packets, interleave 1, and no adaptive redundancy";

/// The first line of standard input.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Pairs of legs, at least one. Packets leave by the pair at which they arrived.
    pub(crate) pairs: Vec<BySide<Interface>>,
    /// The hosts of both ends, with their MAC addresses.
    pub(crate) hosts: BySide<BTreeMap<Ipv4Addr, Mac>>,
    /// The first tunnel that carries a packet is the packet's.
    #[serde(default)]
    pub(crate) tunnels: Vec<TunnelConfig>,
    pub(crate) scheme: Scheme,
    /// Packets of a generation, or of the window.
    pub(crate) generation: u16,
    /// Packets of the generation before that repair packets combine, too, of a partial unit memory code.
    #[serde(default)]
    pub(crate) memory: u16,
    /// Repair packets of so many packets; if they are adapted, without reports of the other coder.
    pub(crate) redundancy: u16,
    /// Repair packets follow the losses that the other coder reports.
    pub(crate) adaptive: Option<AdaptiveConfig>,
    /// Reports between the coders, which both send or neither.
    pub(crate) feedback: Option<FeedbackConfig>,
    pub(crate) interleave: u16,
    pub(crate) flush_ns: u64,
    pub(crate) scheduler: Scheduling,
    /// The age at which repair packets are dropped.
    pub(crate) stale_ns: u64,
    pub(crate) direction: CodedDirection,
    /// Packets that come after a missing one wait for it, for so long at most; 0: none waits.
    #[serde(default)]
    pub(crate) hold_ns: u64,
    /// Packets of so many bytes or less are not coded.
    pub(crate) small_bytes: u64,
    /// The first bytes of each flow are not coded.
    pub(crate) flow_threshold_bytes: u64,
    /// Whether repair packets are marked as lower effort (RFC 8622).
    pub(crate) low_priority: bool,
    pub(crate) signal: Signal,
    /// The UDP port of calibrations, whose packets are not coded.
    pub(crate) calibration_port: u16,
    /// How often arrivals are looked for in virtual time.
    pub(crate) poll_ns: u64,
}

/// One of each end's.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BySide<T> {
    pub(crate) world: T,
    pub(crate) island: T,
}

/// An interface of the machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) mac: Mac,
    /// IP bytes of the longest packet.
    pub(crate) mtu: u32,
}

/// A MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = text.split(':').map(|part| {
            u8::from_str_radix(part, 16)
                .ok()
                .filter(|_| part.len() == 2)
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| format!("'{text}' is no MAC address"))
    }
}

/// A tunnel to another coder.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TunnelConfig {
    pub(crate) carries: Carries,
    /// Tunnels with the same number lead over the same links between the coders. In the same direction, they share their queue.
    pub(crate) way: u32,
    /// Where the other coder is.
    pub(crate) peer_at: Side,
    /// Outer addresses.
    pub(crate) address: Ipv4Addr,
    pub(crate) peer_address: Ipv4Addr,
    pub(crate) peer_mac: Mac,
    /// A checksum of the other coder's settings: with other ones both begin again, and none remembers the other's numbers.
    #[serde(default, rename = "peer_settings")]
    _peer_settings: u32,
}

/// The packets that a tunnel carries: between these prefixes, of this protocol.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Carries {
    pub(crate) world: Prefix,
    pub(crate) island: Prefix,
    /// Of all protocols if `None`.
    pub(crate) protocol: Option<u8>,
}

/// How repair packets follow the losses.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdaptiveConfig {
    /// Repair packets of a generation at most.
    pub(crate) most: u16,
    /// The share of packets that may stay lost.
    pub(crate) residual_loss: f64,
}

/// When reports leave, and when they are missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeedbackConfig {
    pub(crate) every_ns: u64,
    /// After so many packets, if that is earlier.
    pub(crate) packets: Option<u32>,
    /// After this time without an answer, there are no reports.
    pub(crate) timeout_ns: u64,
}

/// An end of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    World,
    Island,
}

/// The direction that this coder encodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CodedDirection {
    Both,
    ToIsland,
    ToWorld,
}

/// A code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scheme {
    Rlnc,
    ReedSolomon,
    Repetition,
    SlidingWindow,
    PartialUnitMemory,
}

/// How a host learns of a packet that was lost and recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Signal {
    /// Nothing.
    Hide,
    /// That there was congestion, if the packet can say that.
    Mark,
}

/// When repair packets leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Scheduling {
    Tail {},
    Interspersed {},
    Deferred {
        after_ns: u64,
        generations: Option<u64>,
    },
    Titrated {
        rate_bit_s: u64,
        queue_bytes: u64,
        room_bytes: u64,
    },
}

impl Config {
    /// # Errors
    /// The first thing wrong with `line`.
    pub(crate) fn parse(line: &str) -> io::Result<Self> {
        let config: Self = atoll_job::configuration(line)?;
        config.check().map_err(atoll_job::wrong_setting)?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.pairs.is_empty() {
            return Err("no pairs of legs".to_owned());
        }
        let most = u64::from(MOST_SOURCES);
        check("generation", self.generation.into(), 2..=most)?;
        check("redundancy", self.redundancy.into(), 0..=most)?;
        check("interleave", self.interleave.into(), 1..=64)?;
        if self.hold_ns > 0 && self.interleave > 1 {
            return Err(INTERLEAVED.to_owned());
        }
        for interface in self.interfaces() {
            // IPv4 hosts take packets of 576 bytes (RFC 791); no lab has longer ones than 9216.
            check("mtu", interface.mtu.into(), 576..=9216)?;
        }
        if let Scheduling::Titrated { rate_bit_s, .. } = self.scheduler {
            check("rate_bit_s", rate_bit_s, 1..=u64::MAX)?;
        }
        if let Some(adaptive) = self.adaptive {
            check("most", adaptive.most.into(), self.redundancy.into()..=most)?;
            let has_residual_loss = adaptive.residual_loss > 0.0; // which NaN is not
            if self.feedback.is_none() || !has_residual_loss {
                return Err(ADAPTIVE.to_owned());
            }
        }
        let is_interspersed = self.scheduler == Scheduling::Interspersed {};
        match self.scheme {
            Scheme::SlidingWindow => {
                check("generation", self.generation.into(), 2..=LARGEST.into())?;
                if !self.is_valid_for_window() {
                    return Err(NO_GENERATIONS.to_owned());
                }
            }
            Scheme::PartialUnitMemory => {
                let window = u64::from(self.generation) + u64::from(self.memory);
                check("generation and memory", window, 2..=LARGEST.into())?;
                let is_memory = (1..=self.generation).contains(&self.memory);
                if !is_memory || self.interleave > 1 || self.adaptive.is_some() {
                    return Err(PARTIAL_UNIT_MEMORY.to_owned());
                }
                if is_interspersed {
                    return Err(INTERSPERSED.to_owned());
                }
            }
            Scheme::ReedSolomon | Scheme::Repetition if is_interspersed => {
                return Err(INTERSPERSED.to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether nothing refers to generations.
    fn is_valid_for_window(&self) -> bool {
        let counts_generations = match self.scheduler {
            Scheduling::Tail {} => true,
            Scheduling::Deferred { generations, .. } => generations.is_some(),
            Scheduling::Interspersed {} | Scheduling::Titrated { .. } => false,
        };
        !counts_generations && self.interleave == 1 && self.adaptive.is_none()
    }

    /// The settings that [`Self::memory_bytes`] depends on.
    pub(crate) const MEMORY_SETTINGS: &str = "generation, memory and interleave";

    /// The limit of the program's memory: of each tunnel, the packets that the decoder and the encoder keep, and the
    /// bytes that wait. A buffer that shrinks is up to four times as large as its content.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let longest = self
            .interfaces()
            .map(|interface| interface.mtu)
            .max()
            .unwrap_or(0);
        let combined = u64::from(self.generation) + u64::from(self.memory);
        let packet = u64::from(longest) + combined + PACKET_BYTES;
        let generation_packets = combined + u64::from(MOST_SOURCES);
        let packets = 4 * HELD_MAX as u64 + generation_packets * u64::from(self.interleave);
        let waiting = 4 * (WAITING_MAX_BYTES + in_order::HELD_MAX.bytes);
        PROGRAM_BYTES + self.tunnels.len() as u64 * (packets * packet + waiting)
    }

    /// The interfaces in the order of the engine's ports: of each pair the world's, then the island's.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.pairs
            .iter()
            .flat_map(|pair| [&pair.world, &pair.island])
    }

    /// An encoder that counts generations or packets from `first` on.
    ///
    /// # Errors
    /// None: [`Config::parse`] has checked the sizes.
    pub(crate) fn encoder(&self, first: u32) -> Result<Box<dyn StreamEncoder>, CodeError> {
        Ok(match self.block_code() {
            Some(code) => Box::new(Encoder::new(code, self.shape(), first)),
            None => Box::new(SlidingEncoder::new(
                self.shape(),
                self.packets_before(),
                first,
            )?),
        })
    }

    /// A decoder of packets of at most `longest_packet` bytes, of which no more come after `timeout_ns`.
    ///
    /// # Errors
    /// As of [`Config::encoder`].
    pub(crate) fn decoder(
        &self,
        longest_packet: usize,
        timeout_ns: u64,
    ) -> Result<Box<dyn StreamDecoder>, CodeError> {
        let size = self.generation;
        Ok(match self.block_code() {
            Some(code) => Box::new(Decoder::new(code, size, longest_packet, timeout_ns)),
            None => Box::new(SlidingDecoder::new(
                size + self.memory,
                longest_packet,
                timeout_ns,
            )?),
        })
    }

    /// Packets of the generation before that repair packets combine; None: the code is another one.
    fn packets_before(&self) -> Option<u16> {
        (self.scheme == Scheme::PartialUnitMemory).then_some(self.memory)
    }

    fn block_code(&self) -> Option<Box<dyn BlockCode>> {
        let size = self.generation;
        match self.scheme {
            Scheme::Rlnc => Some(Box::new(Rlnc { size })),
            Scheme::Repetition => Some(Box::new(Repetition { size })),
            Scheme::ReedSolomon => Some(Box::new(ReedSolomon {
                size,
                repairs: (self.adaptive)
                    .map_or(self.redundancy, |adaptive| adaptive.most)
                    .max(1),
            })),
            Scheme::SlidingWindow | Scheme::PartialUnitMemory => None,
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape {
            size: self.generation,
            repairs: self.redundancy,
            interleave: self.interleave.into(),
            interspersed: self.scheduler == Scheduling::Interspersed {},
            flush_ns: self.flush_ns,
        }
    }

    pub(crate) fn release(&self) -> Release {
        match self.scheduler {
            Scheduling::Tail {} | Scheduling::Interspersed {} => Release::AtOnce,
            Scheduling::Deferred {
                after_ns,
                generations,
            } => Release::Deferred {
                after_ns,
                generations,
            },
            Scheduling::Titrated {
                rate_bit_s,
                queue_bytes,
                room_bytes,
            } => Release::Room {
                queue: VirtualQueue::new(rate_bit_s, queue_bytes, self.feedback.is_some()),
                room_bytes,
            },
        }
    }

    /// Whether repair packets of two tunnels wait for the same queue of a link.
    pub(crate) fn share_queue(&self, tunnel: &TunnelConfig, other: &TunnelConfig) -> bool {
        matches!(self.scheduler, Scheduling::Titrated { .. })
            && (tunnel.peer_at, tunnel.way) == (other.peer_at, other.way)
    }

    /// The longest packet that fits into a tunnel through that side's legs.
    pub(crate) fn longest_packet(&self, side: Side) -> usize {
        let mtus = self.pairs.iter().map(|pair| match side {
            Side::World => pair.world.mtu,
            Side::Island => pair.island.mtu,
        });
        (mtus.min().unwrap_or(0) as usize).saturating_sub(OVERHEAD_BYTES)
    }
}

/// A start that no program before this one had lately, in units of 65 us: more than a coder can fill with generations.
pub(crate) fn session_start(real_time_ns: u64) -> u32 {
    (real_time_ns >> 16) as u32
}

fn check(name: &str, number: u64, range: RangeInclusive<u64>) -> Result<(), String> {
    if range.contains(&number) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(format!(
        "{name} {number} is out of range: {least} to {most}"
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use atoll_contract_examples::examples;
    use serde_json::{Value, json};

    /// The first example of the contract, with other values.
    pub(crate) fn config(change: impl FnOnce(&mut Value)) -> io::Result<Config> {
        let mut line = examples("coder", "keeper")[0].clone();
        change(&mut line);
        Config::parse(&line.to_string())
    }

    #[test]
    fn configurations_of_the_contract_are_understood() {
        for line in examples("coder", "keeper")
            .iter()
            .filter(|line| line.get("op").is_none())
        {
            let config = Config::parse(&line.to_string()).unwrap();
            assert_eq!(config.longest_packet(Side::Island), 1500, "a raised cable");
        }
    }

    #[test]
    fn the_limit_of_memory_follows_from_generations_and_tunnels() {
        let memory = |name: &'static str, value: Value| {
            let config = config(|line| line[name] = value).unwrap();
            config.memory_bytes()
        };
        assert!(memory("generation", json!(100)) > memory("generation", json!(10)));
        assert_eq!(memory("tunnels", json!([])), PROGRAM_BYTES);
    }

    #[test]
    fn each_mistake_gets_a_line_that_names_it() {
        let mistakes = [
            (
                "generation",
                json!(1),
                "generation 1 is out of range: 2 to 1024",
            ),
            ("redundancy", json!(2000), "redundancy 2000"),
            ("interleave", json!(0), "interleave 0"),
            ("pairs", json!([]), "no pairs"),
            ("scheme", json!("fountain"), "fountain"),
            (
                "scheduler",
                json!({"kind":"titrated","rate_bit_s":0,"queue_bytes":1,"room_bytes":1}),
                "rate_bit_s 0",
            ),
            (
                "hosts",
                json!({"world":{"10.0.0.1":"02:00"},"island":{}}),
                "'02:00' is no MAC address",
            ),
            (
                "adaptive",
                json!({"most": 15, "residual_loss": 0.001}),
                "adaptive redundancy needs feedback",
            ),
            (
                "adaptive",
                json!({"most": 2, "residual_loss": 0.001}),
                "most 2 is out of range: 3 to 1024",
            ),
            ("more", json!(1), "more"),
        ];
        for (key, value, message) in mistakes {
            let error = config(|line| line[key] = value).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let error = config(|line| {
            line["scheme"] = json!("reed-solomon");
            line["scheduler"] = json!({"kind": "interspersed"});
        });
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("need the scheme rlnc")
        );
        for (key, value) in [
            ("scheduler", json!({"kind": "tail"})),
            (
                "scheduler",
                json!({"kind": "deferred", "after_ns": 1, "generations": 1}),
            ),
            ("interleave", json!(2)),
            ("generation", json!(513)),
        ] {
            let error = config(|line| {
                line["scheme"] = json!("sliding-window");
                line["scheduler"] = json!({"kind": "interspersed"});
                line[key] = value;
            });
            let message = error.unwrap_err().to_string();
            assert!(
                message.contains("no generations") || message.contains("2 to 512"),
                "{message}"
            );
        }
    }

    #[test]
    fn prefixes_have_no_bits_beyond_their_length() {
        let read = |text: &str| Prefix::try_from(text.to_owned());
        let prefix = read("10.20.0.4/30").unwrap();
        assert!(prefix.contains(Ipv4Addr::new(10, 20, 0, 7)));
        assert!(!prefix.contains(Ipv4Addr::new(10, 20, 0, 8)));
        assert!(
            read("0.0.0.0/0")
                .unwrap()
                .contains(Ipv4Addr::new(1, 2, 3, 4))
        );
        for wrong in ["10.20.0.5/30", "10.20.0.4/33", "10.20.0.4", "x/8"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
