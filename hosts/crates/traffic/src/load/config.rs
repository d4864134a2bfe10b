// SPDX-License-Identifier: Apache-2.0
//! The configuration of `atoll-host load`.

use crate::flows::CountedBytes;
use crate::job::{SECOND_NS, wrong_setting};
use crate::writes::Writes;
use atoll_flow_sizes::{Distribution, exponential_ns};
use serde::Deserialize;
use std::collections::HashSet;
use std::io;
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
    #[serde(deserialize_with = "crate::flows::flow_sizes")]
    pub flow_sizes: Distribution,
    /// The bytes that its sizes include.
    #[serde(default)]
    pub counts: CountedBytes,
    /// When flows begin; absent: each as soon as the one before it on the channel is over.
    pub pace: Option<FlowStarts>,
    /// Changes of the load, in order of time.
    #[serde(default)]
    pub changes: Vec<Change>,
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
    /// Print no counters before `done`: they would pass the network that is measured.
    #[serde(default)]
    pub quiet: bool,
    /// Which end sends the bytes of the flows.
    #[serde(default)]
    pub direction: Direction,
    /// How the client writes uploads.
    #[serde(flatten)]
    pub writes: Writes,
}

/// The direction of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the servers to the clients.
    #[default]
    Download,
    /// From the clients to the servers.
    Upload,
}

/// A server that is there sends again every two minutes at the latest (`TCP_RTO_MAX`), unless it has nothing to send.
const fn longest_silence_ns() -> u64 {
    180 * SECOND_NS
}

/// The load from an instant on; absent settings stay.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The instant, since the start.
    pub after_ns: u64,
    /// The channels that begin flows from then on.
    pub channels: Option<Vec<u64>>,
    /// The distribution of the flows that begin from then on.
    #[serde(default, deserialize_with = "crate::flows::flow_sizes")]
    pub flow_sizes: Option<Distribution>,
    /// The bytes that its sizes include.
    pub counts: Option<CountedBytes>,
    /// When flows begin: of the same kind as before.
    pub pace: Option<FlowStarts>,
}

/// The settings that a channel's next flow depends on; they may change during the run.
#[derive(Clone, Debug)]
pub struct LoadSettings {
    /// The flow-size distribution.
    pub sizes: Distribution,
    /// The bytes that its sizes include.
    pub counts: CountedBytes,
    /// When flows begin.
    pub pace: Option<FlowStarts>,
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

impl FlowStarts {
    fn is_open_loop(pace: Option<Self>) -> bool {
        matches!(pace, Some(Self::Poisson { .. }))
    }
}

impl LoadSettings {
    /// How long before flow `flow` of `channel` begins: since the flow before it ended (closed loop; the first one begins
    /// at once), or began (open loop; the first one: since the start).
    pub fn wait_ns(&self, seed: u64, channel: u64, flow: u64) -> u64 {
        match self.pace {
            Some(FlowStarts::Poisson { mean_ns }) => exponential_ns(mean_ns, seed, channel, flow),
            Some(FlowStarts::Exponential { mean_ns }) if flow > 0 => {
                exponential_ns(mean_ns, seed, channel, flow)
            }
            Some(FlowStarts::Constant { mean_ns }) if flow > 0 => mean_ns,
            _ => 0,
        }
    }
}

impl LoadConfig {
    /// The load at the start.
    ///
    /// # Errors
    /// If there never are channels, or no servers, a channel is there twice, changes are not in order of time, the
    /// client is to write in chunks, or uploads count IP bytes.
    pub fn validated(&self) -> io::Result<LoadSettings> {
        self.writes.check()?;
        if self.writes.are_in_chunks() {
            return Err(wrong_setting(
                "write_chunk_bytes: a client does not write in chunks",
            ));
        }
        let counts = self.changes.iter().filter_map(|change| change.counts);
        let is_ip = |counted| counted == CountedBytes::Ip;
        if self.direction == Direction::Upload && counts.chain([self.counts]).any(is_ip) {
            return Err(wrong_setting("counts: sizes of uploads are payload"));
        }
        if self.all_channels().is_empty() {
            return Err(wrong_setting("channels: give at least one"));
        }
        if self.servers.is_empty() {
            return Err(wrong_setting("servers: give at least one"));
        }
        for channels in self.channel_lists() {
            let mut seen = HashSet::new();
            if let Some(repeat) = channels.iter().find(|channel| !seen.insert(**channel)) {
                return Err(wrong_setting(format!("channels: {repeat} is listed twice")));
            }
        }
        let paces = self.changes.iter().filter_map(|change| change.pace);
        for pace in paces.chain(self.pace) {
            if pace == (FlowStarts::Poisson { mean_ns: 0 }) {
                return Err(wrong_setting(
                    "pace: mean_ns: must be above 0 in an open loop",
                ));
            }
            if FlowStarts::is_open_loop(Some(pace)) != self.is_open_loop() {
                let message = "changes: pace: an open loop stays one, and a closed loop too";
                return Err(wrong_setting(message));
            }
        }
        if !self.changes.is_sorted_by(|a, b| a.after_ns < b.after_ns) {
            return Err(wrong_setting("changes: must be in order of time"));
        }
        Ok(LoadSettings {
            sizes: self.flow_sizes.clone(),
            counts: self.counts,
            pace: self.pace,
        })
    }

    /// Every channel that ever is there: those of the start in their order, then others.
    pub fn all_channels(&self) -> Vec<u64> {
        let mut seen = HashSet::new();
        let channels = self.channel_lists().flatten().copied();
        channels.filter(|channel| seen.insert(*channel)).collect()
    }

    /// The channels of the start and those of each change.
    fn channel_lists(&self) -> impl Iterator<Item = &Vec<u64>> {
        let later = self
            .changes
            .iter()
            .filter_map(|change| change.channels.as_ref());
        [&self.channels].into_iter().chain(later)
    }

    /// Whether flows begin whatever became of those before.
    pub fn is_open_loop(&self) -> bool {
        FlowStarts::is_open_loop(self.pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::configurations;

    use crate::tests::LOAD_OPTIONAL as OPTIONAL;

    fn changing(config: &LoadConfig, changes: &str) -> LoadConfig {
        LoadConfig {
            changes: serde_json::from_str(changes).unwrap(),
            ..config.clone()
        }
    }

    #[test]
    fn channels_that_come_later_are_known_from_the_start() {
        let config: LoadConfig = configurations("load", OPTIONAL).remove(0);
        let config = changing(
            &config,
            r#"[{"after_ns":7,"channels":[0,9]},{"after_ns":8,"channels":[]},{"after_ns":9,"channels":[3]}]"#,
        );
        assert_eq!(config.all_channels(), [0, 6, 12, 9, 3]);
        assert!(config.validated().is_ok());
    }

    #[test]
    fn an_unknown_distribution_is_an_error_that_names_the_setting() {
        let line = r#"{"after_ns":7,"flow_sizes":"x"}"#;
        let message = serde_json::from_str::<Change>(line)
            .unwrap_err()
            .to_string();
        let expected = "flow_sizes: unknown flow-size distribution 'x'; known: published";
        assert!(message.starts_with(expected), "{message}");
    }

    #[test]
    fn configurations_that_cannot_work_are_refused() {
        let configs: Vec<LoadConfig> = configurations("load", OPTIONAL);
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
                changing(
                    &good,
                    r#"[{"after_ns":7,"channels":[1]},{"after_ns":7,"channels":[2]}]"#,
                ),
                "changes: must be in order of time",
            ),
            (
                LoadConfig {
                    writes: serde_json::from_str(
                        r#"{"write_rate_bit_s":8000,"write_chunk_bytes":1000}"#,
                    )
                    .unwrap(),
                    ..good.clone()
                },
                "write_chunk_bytes: a client does not write in chunks",
            ),
            (
                LoadConfig {
                    direction: Direction::Upload,
                    ..changing(&good, r#"[{"after_ns":7,"counts":"ip"}]"#)
                },
                "counts: sizes of uploads are payload",
            ),
            (
                changing(&good, r#"[{"after_ns":7,"channels":[1,1]}]"#),
                "channels: 1 is listed twice",
            ),
            (
                changing(
                    &good,
                    r#"[{"after_ns":7,"pace":{"kind":"poisson","mean_ns":7}}]"#,
                ),
                "changes: pace: an open loop stays one, and a closed loop too",
            ),
            (
                LoadConfig {
                    pace: Some(FlowStarts::Poisson { mean_ns: 0 }),
                    ..good.clone()
                },
                "pace: mean_ns: must be above 0 in an open loop",
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
        let good = configurations::<LoadConfig>("load", OPTIONAL).remove(0);
        let mean_ns = 1_000_000_000;
        let paced = |pace| {
            let config = LoadConfig {
                pace,
                ..good.clone()
            };
            let settings = config.validated().unwrap();
            [settings.wait_ns(1, 0, 0), settings.wait_ns(1, 0, 1)]
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
