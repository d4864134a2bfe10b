// SPDX-License-Identifier: Apache-2.0
//! The configuration of a measurement.

use crate::error::ProbeError;
use crate::frame::LEAST_PACKET;
use serde::Deserialize;
use std::path::PathBuf;

/// A measurement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) flows: Vec<Flow>,
    #[serde(default)]
    pub(crate) captures: Vec<Capture>,
    /// From the last frame sent to the end of the captures: at least the longest delay that is being measured.
    #[serde(default)]
    pub(crate) settle_ns: u64,
}

/// An interface, in the network namespace of a path such as `/run/netns/world` or in this process's own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Port {
    pub(crate) netns: Option<PathBuf>,
    pub(crate) interface: String,
}

/// Frames of one size.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    pub(crate) port: Port,
    /// IP bytes of each packet; the frame has 14 more (18 with a VLAN tag).
    pub(crate) packet_bytes: u32,
    /// Mean rate in IP bits.
    pub(crate) rate_bit_s: u64,
    pub(crate) count: u64,
    #[serde(default)]
    pub(crate) gaps: Gaps,
    /// Frames due within this time of one that is sent are sent with it: saves wake-ups.
    #[serde(default)]
    pub(crate) burst_ns: u64,
    /// VLAN ids that the frames take in turn; none: no tag.
    #[serde(default)]
    pub(crate) vlans: Vec<u16>,
    #[serde(default)]
    pub(crate) seed: u64,
}

/// Times between frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Gaps {
    /// All the same.
    #[default]
    Even,
    /// A Poisson process: no two instants of the sender's and the link's clockworks keep step.
    Exponential,
}

/// Where and into which file to note the frames of all flows that arrive there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Capture {
    pub(crate) port: Port,
    pub(crate) file: PathBuf,
}

impl Config {
    /// # Errors
    /// The first thing that cannot be.
    pub(crate) fn check(&self) -> Result<(), ProbeError> {
        for flow in &self.flows {
            if !(LEAST_PACKET..=9216).contains(&flow.packet_bytes) {
                return Err(ProbeError::PacketBytes(flow.packet_bytes));
            }
            if flow.rate_bit_s == 0 {
                return Err(ProbeError::Rate);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: &str =
        r#"{"flows":[{"port":{"interface":"a"},"packet_bytes":1500,"rate_bit_s":1,"count":1}]}"#;

    #[test]
    fn what_is_left_out_has_a_meaning() {
        let config: Config = serde_json::from_str(FLOW).unwrap();
        config.check().unwrap();
        let flow = &config.flows[0];
        assert_eq!((flow.gaps, flow.burst_ns), (Gaps::Even, 0));
        assert!(flow.vlans.is_empty() && config.captures.is_empty());
    }

    #[test]
    fn packets_that_look_alike_are_refused() {
        let config: Config = serde_json::from_str(&FLOW.replace("1500", "41")).unwrap();
        assert!(config.check().unwrap_err().to_string().contains("41"));
        let config: Config =
            serde_json::from_str(&FLOW.replace("\"rate_bit_s\":1", "\"rate_bit_s\":0")).unwrap();
        assert!(matches!(config.check(), Err(ProbeError::Rate)));
    }
}
