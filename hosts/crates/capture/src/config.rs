// SPDX-License-Identifier: Apache-2.0
//! The configuration of a capture.

use atoll_job::wrong_setting;
use atoll_netio::capture::CaptureDirection;
use serde::Deserialize;
use std::io;
use std::path::PathBuf;

/// Shortest useful record: an Ethernet header.
const LEAST_SNAP_BYTES: u16 = 14;
const LEAST_BUFFER_BYTES: u32 = 1 << 20;
const MOST_BUFFER_BYTES: u32 = 1 << 30;

/// The first line of standard input.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Where to listen.
    pub interface: String,
    /// The pcap file; it is overwritten.
    pub file: PathBuf,
    /// How much of each frame is kept, VLAN tag included.
    pub snap_bytes: u16,
    /// Which frames.
    pub direction: CaptureDirection,
    /// Size of the kernel's ring.
    pub buffer_bytes: u32,
}

impl Config {
    /// A configuration from its JSON.
    ///
    /// # Errors
    /// If it is missing or no JSON, or if a field is missing, unknown, of the wrong type or out of range.
    pub(crate) fn parse(line: &str) -> io::Result<Self> {
        let config: Self = atoll_job::configuration(line)?;
        if config.snap_bytes < LEAST_SNAP_BYTES {
            return Err(wrong_setting(format!(
                "snap_bytes {} is less than {LEAST_SNAP_BYTES}, an Ethernet header",
                config.snap_bytes
            )));
        }
        if !(LEAST_BUFFER_BYTES..=MOST_BUFFER_BYTES).contains(&config.buffer_bytes) {
            return Err(wrong_setting(format!(
                "buffer_bytes {} is not between {LEAST_BUFFER_BYTES} and {MOST_BUFFER_BYTES}",
                config.buffer_bytes
            )));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_contract_examples::examples;

    #[test]
    fn the_contracts_examples_are_taken_and_nothing_more_or_less() {
        for example in examples("capture", "keeper") {
            Config::parse(&example.to_string()).unwrap();
            let mut more = example.clone();
            more["surprise"] = 1.into();
            assert!(Config::parse(&more.to_string()).is_err());
            for field in example.as_object().unwrap().keys() {
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
    fn what_is_out_of_range_is_named() {
        let example = &examples("capture", "keeper")[0];
        for (field, value) in [
            ("snap_bytes", 13_u32),
            ("buffer_bytes", 4096),
            ("buffer_bytes", 1 << 31),
        ] {
            let mut wrong = example.clone();
            wrong[field] = value.into();
            let said = Config::parse(&wrong.to_string()).unwrap_err().to_string();
            assert!(said.contains(&format!("{field} {value}")), "{said}");
        }
    }
}
