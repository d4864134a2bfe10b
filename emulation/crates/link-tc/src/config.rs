// SPDX-License-Identifier: Apache-2.0
//! The configuration line, and requests, one line of JSON each (docs/contracts.md, "tc"; the configuration is made by
//! `atoll_core.plan.tc_settings`).

use atoll_job::wrong_setting;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;

/// `atoll-host tc`: a link or a delay box.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Largest packet in bytes that the interfaces must carry.
    pub(crate) mtu: u32,
    /// Interfaces that are there before and after.
    pub(crate) interfaces: Vec<String>,
    pub(crate) setup: Batches,
    pub(crate) undo: Batches,
    /// The expected output of `tc -r -j qdisc show` after `setup`.
    pub(crate) expect: Vec<Expected>,
    /// Where a link is counted.
    pub(crate) link: Option<Box<Directions>>,
    /// Where a delay box is counted.
    pub(crate) delay: Option<Delay>,
}

/// Lines for `ip -batch` and `tc -batch`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batches {
    pub(crate) ip: Vec<String>,
    pub(crate) tc: Vec<String>,
}

/// A queueing discipline that must be there, with options that it must have.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    pub(crate) dev: String,
    pub(crate) handle: String,
    pub(crate) kind: String,
    pub(crate) options: Value,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Directions {
    pub(crate) to_island: Direction,
    pub(crate) to_world: Direction,
}

/// Where one direction is counted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Direction {
    /// The filter that every packet passes; it counts what follows the Ethernet header.
    #[serde(rename = "in")]
    pub(crate) arrivals: Filter,
    /// Bytes that belong to each packet besides.
    pub(crate) in_header_bytes: u64,
    /// Drops at random: `delay`, or one that `queue` is below, whose drops are counted here too.
    pub(crate) loss: Option<Qdisc>,
    pub(crate) queue: Qdisc,
    /// The part of `queue` that holds packets of low priority, if they have a queue of their own.
    pub(crate) low_priority: Option<Qdisc>,
    /// At which the queue is emptied.
    pub(crate) rate_bit_s: NonZeroU64,
    pub(crate) delay: Limited,
}

/// A queueing discipline, and the most packets it holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limited {
    pub(crate) dev: String,
    pub(crate) handle: Handle,
    pub(crate) limit_packets: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delay {
    /// By VLAN id.
    pub(crate) classes: BTreeMap<u16, Qdisc>,
    /// The filter of packets without a class.
    pub(crate) unknown: Filter,
}

/// A queueing discipline, by what `tc qdisc show` calls it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Qdisc {
    pub(crate) dev: String,
    pub(crate) handle: Handle,
}

/// A filter with an action that counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    pub(crate) dev: String,
    /// The handle that it is attached to, such as `ffff:fff2` (clsact, ingress).
    pub(crate) parent: Handle,
    /// Its preference.
    pub(crate) pref: u16,
}

/// Hexadecimal `MAJOR:MINOR`, the minor number zero where it is missing (`tc(8)`, "HANDLES").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle(pub(crate) u32);

impl Handle {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a handle: write hexadecimal MAJOR:MINOR");
        let (major, minor) = text.split_once(':').ok_or_else(wrong)?;
        let number = |digits: &str| u16::from_str_radix(digits, 16).map_err(|_| wrong());
        let minor = if minor.is_empty() { 0 } else { number(minor)? };
        Ok(Self(u32::from(number(major)?) << 16 | u32::from(minor)))
    }
}

impl<'de> Deserialize<'de> for Handle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Config {
    /// # Errors
    /// The first thing wrong with `text`.
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let config: Self = atoll_job::configuration(text)?;
        if config.link.is_some() == config.delay.is_some() {
            let message = "give either link or delay, not both or neither";
            return Err(wrong_setting(message));
        }
        Ok(config)
    }
}

/// Requests to a running link.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// End a measurement, begin the next one.
    Mark { id: u64 },
    /// Change the link.
    Set(Change),
    /// Begin a trace; only the engine has any.
    TraceStart { id: u64 },
}

/// Settings of a running link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) id: u64,
    /// Lines for `tc -batch`.
    pub(crate) tc: Vec<String>,
    /// What `tc -r -j qdisc show` must then show of the disciplines that changed.
    pub(crate) expect: Vec<Expected>,
    /// Where the counters are from then on.
    pub(crate) link: Box<Directions>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_read_as_tc_writes_them() {
        assert_eq!(Handle::parse("1:").unwrap(), Handle(0x1_0000));
        assert_eq!(Handle::parse("ffff:fff2").unwrap(), Handle(0xffff_fff2));
        for wrong in ["", "1", "g:", "1:x", "10000:"] {
            let error = Handle::parse(wrong).unwrap_err();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }

    #[test]
    fn a_configuration_that_counts_nothing_is_refused() {
        let line = r#"{"mtu":1500,"interfaces":[],"setup":{"ip":[],"tc":[]},"undo":{"ip":[],"tc":[]},"expect":[]}"#;
        for (line, message) in [
            (line, "configuration: give either link or delay"),
            (" ", "no configuration on standard input"),
            ("{", "configuration: EOF"),
        ] {
            let error = Config::parse(line).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
            assert!(atoll_job::is_bad_configuration(&error));
        }
    }
}
