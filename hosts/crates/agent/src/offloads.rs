// SPDX-License-Identifier: Apache-2.0
//! NIC and veth offloads: reading the output of `ethtool -k`, switching offloads off, restoring them.
//!
//! Super-packets falsify queue and loss accounting, and checksums left to a missing NIC
//! make Open vSwitch's userspace datapath deliver broken packets: the experiment network carries
//! complete frames of wire size only.

use crate::AgentError;
use crate::command::run_tool;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State of one feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    /// In force now.
    pub on: bool,
    /// Cannot be changed.
    pub fixed: bool,
    /// A heading of several (`tx-checksumming`), which follows from its members.
    pub group: bool,
}

/// Features of one interface by the names `ethtool -k` gives them.
pub type Features = BTreeMap<String, Feature>;

/// The offloads that must be off in the experiment network. Headings: their members go off with them.
const FORBIDDEN: [&str; 10] = [
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
    "tx-udp-segmentation",
    "rx-gro-list",
    "rx-udp-gro-forwarding",
];

/// The only unwanted feature a NIC may keep fixed on: received checksums verified in hardware
/// change neither a frame's size nor its bytes.
const HARMLESS_WHEN_FIXED: &str = "rx-checksumming";

/// Read the features of `interface` in the calling thread's namespace.
pub fn read(interface: &str) -> Result<Features, AgentError> {
    Ok(parse(&run_tool("ethtool", &["-k", interface], "")?))
}

/// Switch off everything unwanted that is on, by what was read `before`, and verify it.
pub fn switch_off(interface: &str, before: &Features) -> Result<(), AgentError> {
    let unwanted: Vec<(&str, bool)> = FORBIDDEN
        .iter()
        .filter(|name| before.get(**name).is_some_and(|f| f.on && !f.fixed))
        .map(|name| (*name, false))
        .collect();
    let present = if unwanted.is_empty() {
        before.clone()
    } else {
        change(interface, &unwanted)?;
        read(interface)?
    };
    let remaining: Vec<&str> = FORBIDDEN
        .into_iter()
        .filter(|name| {
            present
                .get(*name)
                .is_some_and(|f| f.on && !(f.fixed && *name == HARMLESS_WHEN_FIXED))
        })
        .collect();
    if remaining.is_empty() {
        return Ok(());
    }
    Err(AgentError::Machine(format!(
        "{interface}: {} cannot be switched off; use another interface or driver",
        remaining.join(", ")
    )))
}

/// Restore every feature that differs from `before`.
pub fn restore(interface: &str, before: &Features) -> Result<(), AgentError> {
    let now = read(interface)?;
    let changes = differences(before, &now);
    if changes.is_empty() {
        Ok(())
    } else {
        change(interface, &changes)
    }
}

/// Features, headings apart, that hold something else in `now`, with what they held `before`.
pub fn differences<'a>(before: &'a Features, now: &Features) -> Vec<(&'a str, bool)> {
    before
        .iter()
        .filter(|(_, feature)| !feature.fixed && !feature.group)
        .filter(|(name, feature)| now.get(*name).is_some_and(|c| c.on != feature.on))
        .map(|(name, feature)| (name.as_str(), feature.on))
        .collect()
}

fn change(interface: &str, features: &[(&str, bool)]) -> Result<(), AgentError> {
    let mut arguments = vec!["-K", interface];
    for (name, on) in features {
        arguments.extend([*name, on_off(*on)]);
    }
    run_tool("ethtool", &arguments, "").map(drop)
}

/// As `ethtool` says it.
pub fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Headings are the unindented features followed by indented ones.
fn parse(listing: &str) -> Features {
    let lines: Vec<&str> = listing.lines().skip(1).collect();
    let mut features = Features::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((name, state)) = line.split_once(':') else {
            continue;
        };
        let next_indented = lines
            .get(index + 1)
            .is_some_and(|next| next.starts_with('\t'));
        features.insert(
            name.trim().to_owned(),
            Feature {
                on: state.trim().starts_with("on"),
                fixed: state.contains("[fixed]"),
                group: !line.starts_with('\t') && next_indented,
            },
        );
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    const VETH: &str = "Features for w1-eth0:\n\
        rx-checksumming: on\n\
        tx-checksumming: on\n\
        \ttx-checksum-ipv4: off [fixed]\n\
        \ttx-checksum-ip-generic: on\n\
        tcp-segmentation-offload: off\n\
        \ttx-tcp-segmentation: off [requested on]\n\
        generic-receive-offload: off\n\
        large-receive-offload: off [fixed]\n";

    #[test]
    fn ethtool_listings_are_understood() {
        let features = parse(VETH);
        assert_eq!(features.len(), 8);
        assert_eq!(
            features["tx-checksumming"],
            Feature {
                on: true,
                fixed: false,
                group: true
            }
        );
        assert_eq!(
            features["tx-checksum-ipv4"],
            Feature {
                on: false,
                fixed: true,
                group: false
            }
        );
        assert_eq!(
            features["tx-tcp-segmentation"],
            Feature {
                on: false,
                fixed: false,
                group: false
            }
        );
        assert!(!features["rx-checksumming"].group);
    }

    #[test]
    fn only_members_that_changed_are_put_back() {
        let before = parse(VETH);
        let now = parse(
            &VETH
                .replace("checksumming: on", "checksumming: off")
                .replace("generic: on", "generic: off"),
        );
        assert_eq!(
            differences(&before, &now),
            [("rx-checksumming", true), ("tx-checksum-ip-generic", true)]
        );
    }
}
