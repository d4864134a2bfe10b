// SPDX-License-Identifier: Apache-2.0
//! Errors of links.
//!
//! ```text
//! BadConfiguration   in its configuration, found at the start: exit code 2
//! Refusal            in a request while running: reported in the answer
//! ```

use std::io;

/// A configuration that cannot be applied here; the message names the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadConfiguration {
    #[error(transparent)]
    Configuration(#[from] atoll_job::ConfigurationError),
    #[error("configuration: {0}")]
    Settings(#[from] atoll_link_model::ConfigError),
    #[error("configuration: {name}: {source}")]
    NamedSettings {
        name: String,
        source: atoll_link_model::ConfigError,
    },
    #[error("configuration: world and island are both '{0}': a link needs two interfaces")]
    SameInterface(String),
    #[error("configuration: mtu {0} is out of range: 68 to 9216")]
    Mtu(u32),
    #[error("configuration: vlan {0} is out of range: 1 to 4094")]
    Vlan(u16),
    #[error("configuration: vlan {0} has two classes")]
    VlanTwice(u16),
    #[error("configuration: vlan {0} needs a trunk")]
    NoTrunk(u16),
    #[error(
        "configuration: class {0} needs both from and to, two interfaces, and a number above 4095"
    )]
    Ends(u16),
}

/// The form in which `atoll-host` recognises a bad configuration.
impl From<BadConfiguration> for io::Error {
    fn from(error: BadConfiguration) -> Self {
        atoll_job::bad_configuration(error)
    }
}

/// A request that was not obeyed; everything is as it was before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0}")]
    Settings(#[from] atoll_link_model::ConfigError),
    #[error("direction is missing: to_island or to_world")]
    NoDirection,
    #[error("a link has directions, not classes: leave out vlan")]
    VlanOfLink,
    #[error("vlan is missing: it selects the class whose delay_ns is set")]
    NoVlan,
    #[error("vlan {0} has no class here")]
    UnknownVlan(u16),
    #[error("only delay_ns of a class can be set")]
    NotOfClass,
}
