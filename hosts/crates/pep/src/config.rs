// SPDX-License-Identifier: Apache-2.0
//! The configuration: the first line of standard input (docs/contracts.md, "pep").

use crate::transfer::BUFFERED_MAX_BYTES;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The first line of standard input.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Pairs of legs, at least one.
    pub pairs: Vec<Pair>,
    /// The bit of a mark that delivers a packet to this machine.
    pub local_mark: u32,
    /// The bit of the mark of a SYN that arrived at a world leg.
    pub world_mark: u32,
    /// The hosts that may use the proxy.
    pub hosts: BySide<Vec<Ipv4Addr>>,
    /// When clients are accepted.
    pub mode: Mode,
    /// Settings of sockets.
    #[serde(default)]
    pub legs: BySide<SocketSettings>,
    /// The other PEP with which connections are multiplexed.
    pub between: Option<Between>,
    #[serde(default = "seconds::<600>")]
    pub learned_for_ns: u64,
    #[serde(default = "seconds::<60>")]
    pub handshake_ns: u64,
    #[serde(default = "number::<2000>")]
    pub pending_max: usize,
    #[serde(default = "number::<20_000>")]
    pub connections_max: usize,
    #[serde(default = "seconds::<120>")]
    pub silence_ns: u64,
    #[serde(default = "seconds::<10>")]
    pub flush_ns: u64,
}

/// Settings to change; absent ones stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub id: u64,
    /// Whether clients may begin connections: if not, their SYNs are ignored.
    pub admit: Option<bool>,
    /// As in [`Config`], and likewise the others.
    pub mode: Option<Mode>,
    pub learned_for_ns: Option<u64>,
    pub handshake_ns: Option<u64>,
    pub pending_max: Option<usize>,
    pub silence_ns: Option<u64>,
    pub flush_ns: Option<u64>,
}

const SECOND_NS: u64 = 1_000_000_000;
const LEAST_SILENCE_NS: u64 = 2 * SECOND_NS;

fn seconds<const S: u64>() -> u64 {
    S * SECOND_NS
}

fn number<const N: usize>() -> usize {
    N
}

/// A pair of legs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    /// Name of the interface towards the world.
    pub world: String,
    /// Name of the interface towards the island.
    pub island: String,
    /// The mark of the proxy's sockets.
    pub mark: u32,
    /// Its listeners, by the side of the client.
    pub ports: BySide<u16>,
}

impl Pair {
    /// The interface of a side.
    pub(crate) fn interface(&self, side: Side) -> &str {
        match side {
            Side::World => &self.world,
            Side::Island => &self.island,
        }
    }
}

/// The multiplexed connection to another PEP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Between {
    /// Where the other PEP is. The one at the island connects.
    pub side: Side,
    /// The addresses of the connection; the port at the island is that of the first pair of legs, others follow.
    pub world: SocketAddrV4,
    pub island: SocketAddrV4,
    /// Payload of the connection.
    pub pacing_bit_s: Option<u64>,
    /// The most that is promised to one stream.
    pub stream_bytes: u64,
    /// Sent first, to be ignored: it makes the other PEP's kernel offer a larger window.
    #[serde(default)]
    pub padding_bytes: u32,
    /// The initial congestion window of this end. An idle connection that has a smaller one is renewed.
    pub window_segments: Option<u32>,
}

impl Between {
    /// The addresses of a multiplexed connection, as client and server.
    pub(crate) fn addresses(&self, leg: usize) -> (SocketAddrV4, SocketAddrV4) {
        let port = self.island.port().saturating_add(leg as u16);
        (SocketAddrV4::new(*self.island.ip(), port), self.world)
    }

    /// The number that the other PEP has given to the multiplexed connection with these addresses; none: it is none.
    pub(crate) fn leg_of(&self, addresses: (SocketAddrV4, SocketAddrV4)) -> Option<usize> {
        (0..LEGS_MAX).find(|&leg| self.addresses(leg) == addresses)
    }

    /// The time in which pacing sends so many bytes; none: as fast as the path takes them.
    pub(crate) fn time_of_ns(&self, bytes: u32) -> Option<u64> {
        let bit_s = self.pacing_bit_s?;
        Some(u64::from(bytes) * 8 * SECOND_NS / bit_s)
    }

    /// Whether this PEP connects.
    pub(crate) fn connects(&self) -> bool {
        self.side == Side::World
    }
}

/// Pairs of legs of a box.
pub(crate) const PAIRS_MAX: usize = 2;

/// Multiplexed connections: those with numbers from 0, one for each pair, and their successors. The next one is the successor of
/// a successor, and has the first one's number.
pub(crate) const LEGS_MAX: usize = 2 * PAIRS_MAX;

/// A side of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    World,
    Island,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::World, Self::Island];

    pub(crate) fn opposite(self) -> Self {
        match self {
            Self::World => Self::Island,
            Self::Island => Self::World,
        }
    }
}

/// One of each side's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BySide<T> {
    pub world: T,
    pub island: T,
}

impl<T> BySide<T> {
    pub(crate) fn of(&self, side: Side) -> &T {
        match side {
            Side::World => &self.world,
            Side::Island => &self.island,
        }
    }

    pub(crate) fn of_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::World => &mut self.world,
            Side::Island => &mut self.island,
        }
    }
}

/// When a client is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// When its server has accepted.
    After,
    /// At once.
    Early,
    /// At once if the server accepted lately.
    Learned,
}

/// Settings of the sockets of a side; the kernel's apply where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketSettings {
    pub congestion_control: Option<String>,
    /// Payload of a connection.
    pub pacing_bit_s: Option<u64>,
    pub notsent_lowat_bytes: Option<u32>,
    pub window_clamp_bytes: Option<u32>,
    pub mss_bytes: Option<u32>,
    /// TCP fast open: SYNs carry data, in both directions.
    #[serde(default)]
    pub fast_open: bool,
}

const LEAST_PACING_BIT_S: u64 = 1000;
const LEAST_STREAM_BYTES: u64 = 1 << 14;

/// Half of the largest window that TCP can scale to (RFC 7323, section 2.3).
const MOST_PADDING_BYTES: u32 = 1 << 29;

/// Memory for what streams have brought and their receivers have not taken.
const STREAMS_BYTES: u64 = 256 << 20;

/// Far above the use of a program without connections, and of a connection without what it has buffered.
const PROGRAM_BYTES: u64 = 128_000_000;
const CONNECTION_BYTES: u64 = 4096;

/// `TCP_MAXSEG` takes no other (tcp(7); Linux: `TCP_MIN_MSS`, and the largest MTU of the laboratory).
const MSS_BYTES: std::ops::RangeInclusive<u32> = 88..=8960;

impl Config {
    /// A configuration from its JSON.
    ///
    /// # Errors
    /// If it is missing or no JSON, has no value for a field, or has a field that is unknown, of the wrong type or out of range.
    pub(crate) fn parse(line: &str) -> io::Result<Self> {
        let config: Self = atoll_job::configuration(line)?;
        config.check().map_err(atoll_job::wrong_setting)?;
        Ok(config)
    }

    /// With other settings.
    ///
    /// # Errors
    /// If one is out of range.
    pub(crate) fn changed(&self, change: &Change) -> Result<Self, String> {
        let changed = Self {
            mode: change.mode.unwrap_or(self.mode),
            learned_for_ns: change.learned_for_ns.unwrap_or(self.learned_for_ns),
            handshake_ns: change.handshake_ns.unwrap_or(self.handshake_ns),
            pending_max: change.pending_max.unwrap_or(self.pending_max),
            silence_ns: change.silence_ns.unwrap_or(self.silence_ns),
            flush_ns: change.flush_ns.unwrap_or(self.flush_ns),
            ..self.clone()
        };
        changed.check().map(|()| changed)
    }

    /// What streams may bring that their receivers have not taken.
    pub(crate) fn streams_bytes(&self) -> u64 {
        self.between.map_or(0, |_| STREAMS_BYTES)
    }

    /// The settings that [`Self::memory_bytes`] depends on.
    pub(crate) const MEMORY_SETTINGS: &str = "between and connections_max";

    /// The limit of the program's memory. A buffer that shrinks is up to four times as large as its content.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let connections = (self.connections_max as u64).saturating_mul(CONNECTION_BYTES);
        let buffered = 4 * (BUFFERED_MAX_BYTES + self.streams_bytes());
        connections.saturating_add(PROGRAM_BYTES + buffered)
    }

    fn check(&self) -> Result<(), String> {
        if self.pairs.is_empty() {
            return Err("pairs: there is none".to_owned());
        }
        if self.pairs.len() > PAIRS_MAX {
            return Err(format!("pairs: there are more than {PAIRS_MAX}"));
        }
        let bits = [self.local_mark, self.world_mark];
        let shared = self
            .pairs
            .iter()
            .any(|pair| pair.mark & (bits[0] | bits[1]) != 0);
        if bits.contains(&0) || bits[0] & bits[1] != 0 || shared {
            return Err("marks: local_mark, world_mark and those of pairs share bits, or one of the first two is 0".to_owned());
        }
        if self.silence_ns < LEAST_SILENCE_NS {
            return Err(format!("silence_ns: must be at least {LEAST_SILENCE_NS}"));
        }
        for (name, number) in [
            ("handshake_ns", self.handshake_ns),
            ("pending_max", self.pending_max as u64),
            ("connections_max", self.connections_max as u64),
        ] {
            if number == 0 {
                return Err(format!("{name}: must not be 0"));
            }
        }
        if let Some(between) = &self.between {
            if between.stream_bytes < LEAST_STREAM_BYTES {
                let least = LEAST_STREAM_BYTES;
                return Err(format!("between: stream_bytes: must be at least {least}"));
            }
            if between.padding_bytes > MOST_PADDING_BYTES {
                let most = MOST_PADDING_BYTES;
                return Err(format!("between: padding_bytes: must be at most {most}"));
            }
            if between
                .pacing_bit_s
                .is_some_and(|bit_s| bit_s < LEAST_PACING_BIT_S)
            {
                let least = LEAST_PACING_BIT_S;
                return Err(format!("between: pacing_bit_s: must be at least {least}"));
            }
        }
        for leg in Side::BOTH.map(|side| self.legs.of(side)) {
            let numbers = [
                ("pacing_bit_s", leg.pacing_bit_s, LEAST_PACING_BIT_S),
                (
                    "notsent_lowat_bytes",
                    leg.notsent_lowat_bytes.map(u64::from),
                    1,
                ),
                (
                    "window_clamp_bytes",
                    leg.window_clamp_bytes.map(u64::from),
                    1500,
                ),
            ];
            for (name, number, least) in numbers {
                if number.is_some_and(|number| number < least) {
                    return Err(format!("legs: {name}: must be at least {least}"));
                }
            }
            if leg
                .mss_bytes
                .is_some_and(|bytes| !MSS_BYTES.contains(&bytes))
            {
                let (least, most) = (MSS_BYTES.start(), MSS_BYTES.end());
                return Err(format!(
                    "legs: mss_bytes: must be between {least} and {most}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_contract_examples::examples;

    const REQUIRED: [&str; 5] = ["pairs", "local_mark", "world_mark", "hosts", "mode"];

    #[test]
    fn the_contracts_examples_are_taken_and_nothing_more_or_less() {
        for example in examples("pep", "keeper") {
            Config::parse(&example.to_string()).unwrap();
            let mut more = example.clone();
            more["surprise"] = 1.into();
            assert!(Config::parse(&more.to_string()).is_err());
            for field in REQUIRED {
                let mut less = example.clone();
                less.as_object_mut().unwrap().remove(field);
                assert!(
                    Config::parse(&less.to_string()).is_err(),
                    "not missed: {field}"
                );
            }
        }
    }

    #[test]
    fn the_limit_of_memory_follows_from_connections_and_streams() {
        let example = &examples("pep", "keeper")[1];
        let memory = |place: &str, value: serde_json::Value| {
            let mut line = example.clone();
            line[place] = value;
            Config::parse(&line.to_string()).unwrap().memory_bytes()
        };
        let many = memory("connections_max", 40_000.into());
        assert_eq!(
            many - memory("connections_max", 20_000.into()),
            20_000 * CONNECTION_BYTES
        );
        let split = memory("between", serde_json::Value::Null);
        let multiplexed = memory("between", example["between"].clone());
        assert_eq!(multiplexed - split, 4 * STREAMS_BYTES);
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let example = &examples("pep", "keeper")[1];
        for (place, number, what) in [
            ("/silence_ns", 1_u64, "silence_ns"),
            ("/pending_max", 0, "pending_max"),
            ("/legs/island/mss_bytes", 20, "mss_bytes"),
            ("/legs/island/pacing_bit_s", 20, "pacing_bit_s"),
            ("/between/padding_bytes", 600_000_000, "padding_bytes"),
            ("/world_mark", 1, "marks"),
            ("/pairs/1/mark", 8, "marks"),
        ] {
            let mut wrong = example.clone();
            *wrong.pointer_mut(place).unwrap() = number.into();
            let said = Config::parse(&wrong.to_string()).unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        }
    }
}
