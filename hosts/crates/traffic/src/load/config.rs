// SPDX-License-Identifier: Apache-2.0
//! The configuration of `atoll-host load`.

use crate::clock::SECOND_NS;
use crate::error::TrafficError;
use crate::sizes::{Counts, FlowSizes};
use atoll_flow_sizes::{Distribution, exponential_ns};
use serde::Deserialize;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Configuration of `atoll-host load`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadConfig {
    /// Seed of the experiment.
    pub seed: u64,
    /// Numbers of the channels that run here, unique in the experiment.
    pub channels: Vec<u64>,
    /// All servers of the experiment, in the same order on every client.
    pub servers: Vec<SocketAddr>,
    /// The flow-size distribution.
    pub flow_sizes: FlowSizes,
    /// The bytes that its sizes include.
    #[serde(default)]
    pub counts: Counts,
    /// When flows begin; absent: each as soon as the one before it on the channel is over.
    #[serde(default)]
    pub pace: Option<FlowStarts>,
    /// When to start, real time; an instant in the past means at once.
    pub start_at_ns: i64,
    /// How long to go on; 0 means until stopped.
    pub duration_ns: u64,
    /// TCP congestion control of the client's sockets.
    pub congestion_control: String,
    /// The CSV file to write, a line a flow.
    pub flow_log: PathBuf,
    /// How long a connection may bring nothing before its flow is given up.
    #[serde(default = "longest_silence_ns")]
    pub silence_ns: u64,
}

/// A server that is there sends again every two minutes at the latest (`TCP_RTO_MAX`), unless it has nothing to send.
const fn longest_silence_ns() -> u64 {
    180 * SECOND_NS
}

/// When a channel begins its flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum FlowStarts {
    /// Closed loop: as long after the end of the flow before.
    Constant {
        /// The think time.
        mean_ns: u64,
    },
    /// Closed loop: after the end of the flow before and a think time, exponentially distributed.
    Exponential {
        /// The mean think time.
        mean_ns: u64,
    },
    /// Open loop: a Poisson process, whatever became of the flows before; they overlap.
    Poisson {
        /// The mean time between two flows of one channel.
        mean_ns: u64,
    },
}

impl LoadConfig {
    /// # Errors
    /// If there are no channels or servers, a channel is there twice, or the distribution is none.
    pub fn validated(&self) -> Result<Distribution, TrafficError> {
        let wrong = |message: &str| {
            Err(TrafficError::Configuration(format!(
                "configuration: {message}"
            )))
        };
        if self.channels.is_empty() {
            return wrong("channels: give at least one");
        }
        if self.servers.is_empty() {
            return wrong("servers: give at least one");
        }
        let mut seen = HashSet::new();
        if let Some(twice) = self.channels.iter().find(|channel| !seen.insert(**channel)) {
            return wrong(&format!("channels: {twice} is listed twice"));
        }
        if self.pace == Some(FlowStarts::Poisson { mean_ns: 0 }) {
            return wrong("pace: mean_ns: must be above 0 in an open loop");
        }
        self.flow_sizes
            .resolve()
            .or_else(|message| wrong(&format!("flow_sizes: {message}")))
    }

    /// Whether flows begin whatever became of those before.
    pub fn is_open_loop(&self) -> bool {
        matches!(self.pace, Some(FlowStarts::Poisson { .. }))
    }

    /// How long before flow `flow` of `channel` begins: since the flow before it ended (closed loop; the first one begins
    /// at once), or began (open loop; the first one: since the start).
    pub fn wait_ns(&self, channel: u64, flow: u64) -> u64 {
        match self.pace {
            Some(FlowStarts::Poisson { mean_ns }) => {
                exponential_ns(mean_ns, self.seed, channel, flow)
            }
            Some(FlowStarts::Exponential { mean_ns }) if flow > 0 => {
                exponential_ns(mean_ns, self.seed, channel, flow)
            }
            Some(FlowStarts::Constant { mean_ns }) if flow > 0 => mean_ns,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::configurations;

    #[test]
    fn configurations_that_cannot_work_are_refused() {
        let configs: Vec<LoadConfig> = configurations("load", &["counts", "pace", "silence_ns"]);
        assert!(configs.iter().all(|config| config.validated().is_ok()));
        let good = configs[0].clone();
        for (bad, message) in [
            (
                LoadConfig {
                    channels: vec![],
                    ..good.clone()
                },
                "channels: give at least one",
            ),
            (
                LoadConfig {
                    channels: vec![3, 4, 3],
                    ..good.clone()
                },
                "channels: 3 is listed twice",
            ),
            (
                LoadConfig {
                    servers: vec![],
                    ..good.clone()
                },
                "servers: give at least one",
            ),
            (
                LoadConfig {
                    pace: Some(FlowStarts::Poisson { mean_ns: 0 }),
                    ..good.clone()
                },
                "pace: mean_ns: must be above 0 in an open loop",
            ),
            (
                LoadConfig {
                    flow_sizes: FlowSizes::Named("x".into()),
                    ..good.clone()
                },
                "flow_sizes: unknown flow-size distribution 'x'; known: published",
            ),
        ] {
            assert_eq!(
                bad.validated().unwrap_err().to_string(),
                format!("configuration: {message}")
            );
        }
    }

    #[test]
    fn waits_are_those_of_the_pace() {
        let good =
            configurations::<LoadConfig>("load", &["counts", "pace", "silence_ns"]).remove(0);
        let mean_ns = 1_000_000_000;
        let paced = |pace| {
            let config = LoadConfig {
                pace,
                seed: 1,
                ..good.clone()
            };
            [config.wait_ns(0, 0), config.wait_ns(0, 1)]
        };
        assert_eq!(paced(None), [0, 0]);
        assert_eq!(paced(Some(FlowStarts::Constant { mean_ns })), [0, mean_ns]);
        assert_eq!(
            paced(Some(FlowStarts::Exponential { mean_ns })),
            [0, 2_160_149_875]
        );
        assert_eq!(
            paced(Some(FlowStarts::Poisson { mean_ns })),
            [176_421_093, 2_160_149_875]
        );
    }
}
