// SPDX-License-Identifier: Apache-2.0
//! UDP that does not care about loss: a paced stream, or flows of drawn sizes together at a rate, and the end that
//! counts what came of it.

mod pace;
mod packet;
mod receive;
mod send;
mod stream;

use crate::error::TrafficError;
use crate::job::Input;
use crate::sizes::FlowSizes;
use packet::{HEADER_BYTES, PACKET_HEADERS_BYTES};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use stream::UdpFlows;

/// Largest payload that leaves in one packet of 9216 bytes, the largest MTU of a lab.
const PAYLOAD_MAX_BYTES: usize = 9216 - PACKET_HEADERS_BYTES;

/// Flows at a time, each of which has a socket.
const PARALLEL_MAX: usize = 1000;

/// Configuration of `atoll-host udp`.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase", deny_unknown_fields)]
pub enum UdpConfig {
    /// The end that sends.
    Send(UdpSendConfig),
    /// The end that counts.
    Receive(UdpReceiveConfig),
}

/// Configuration of the sender.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpSendConfig {
    /// Address and port of the receiver.
    pub connect: SocketAddr,
    /// IP bits to send in a second.
    pub rate_bit_s: u64,
    /// UDP payload of each packet: 1472 make a packet of 1500 bytes.
    pub payload_bytes: usize,
    /// When to send the first packet, real time; an instant in the past means at once.
    pub start_at_ns: i64,
    /// For how long; 0 means until stopped.
    pub duration_ns: u64,
    /// Absent: one stream of packets of the same size.
    #[serde(default)]
    pub flows: Option<FlowsConfig>,
    /// Other rates, in order of time.
    #[serde(default)]
    pub changes: Vec<RateChange>,
}

/// A rate from an instant on.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateChange {
    /// The instant, since the start.
    pub after_ns: u64,
    /// IP bits to send in a second.
    pub rate_bit_s: u64,
}

/// Flows of drawn sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowsConfig {
    /// The distribution of a flow's IP bytes.
    pub flow_sizes: FlowSizes,
    /// Seed of the experiment.
    pub seed: u64,
    /// Flows at a time.
    pub parallel: usize,
}

/// Configuration of the receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpReceiveConfig {
    /// Address and port to receive at; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Whether to report each packet.
    #[serde(default)]
    pub each: bool,
}

impl UdpSendConfig {
    /// The flows to send, if it is not one stream.
    fn validated(&self) -> Result<Option<UdpFlows>, TrafficError> {
        let wrong = |message: String| {
            Err(TrafficError::Configuration(format!(
                "configuration: {message}"
            )))
        };
        let later = self.changes.iter().map(|change| change.rate_bit_s);
        if later.chain([self.rate_bit_s]).any(|rate| rate == 0) {
            return wrong("rate_bit_s: must be above 0".into());
        }
        if !self
            .changes
            .is_sorted_by(|one, other| one.after_ns < other.after_ns)
        {
            return wrong("changes: must be in order of time".into());
        }
        if !(HEADER_BYTES..=PAYLOAD_MAX_BYTES).contains(&self.payload_bytes) {
            return wrong(format!(
                "payload_bytes: {HEADER_BYTES} (sequence number and time stamp) to {PAYLOAD_MAX_BYTES} (no fragments)"
            ));
        }
        let Some(flows) = &self.flows else {
            return Ok(None);
        };
        if !(1..=PARALLEL_MAX).contains(&flows.parallel) {
            return wrong(format!("flows: parallel: 1 to {PARALLEL_MAX}"));
        }
        match flows.flow_sizes.resolve() {
            Ok(sizes) => Ok(Some(UdpFlows {
                sizes,
                seed: flows.seed,
                parallel: flows.parallel,
            })),
            Err(message) => wrong(format!("flows: flow_sizes: {message}")),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message {
    Ready {
        #[serde(skip_serializing_if = "Option::is_none")]
        listen: Option<SocketAddr>,
    },
}

/// Run one end of a UDP stream until it is over or the word to stop comes.
///
/// # Errors
/// If the address cannot be used.
pub fn udp(config: &UdpConfig, input: Input) -> Result<(), TrafficError> {
    match config {
        UdpConfig::Send(config) => {
            let flows = config.validated()?;
            send::send(config, flows, input)
        }
        UdpConfig::Receive(config) => receive::receive(config, input),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{assert_said, configurations};

    #[test]
    fn configurations_and_ready_are_those_of_the_contract() {
        let configs: Vec<UdpConfig> = configurations("udp", &["changes", "each", "flows"]);
        let listen = configs.iter().find_map(|config| match config {
            UdpConfig::Receive(config) => Some(config.listen),
            UdpConfig::Send(_) => None,
        });
        assert!(listen.is_some());
        assert_said("udp", "receive", &Message::Ready { listen });
        assert_said("udp", "send", &Message::Ready { listen: None });
    }

    #[test]
    fn what_could_not_be_sent_as_wished_is_refused() {
        let good = UdpSendConfig {
            connect: ([127, 0, 0, 1], 9).into(),
            rate_bit_s: 1,
            payload_bytes: PAYLOAD_MAX_BYTES,
            start_at_ns: 0,
            duration_ns: 0,
            flows: None,
            changes: Vec::new(),
        };
        let changes = |times: [u64; 2]| {
            let change = |after_ns| RateChange {
                after_ns,
                rate_bit_s: 1,
            };
            times.map(change).to_vec()
        };
        assert!(
            UdpSendConfig {
                changes: changes([1, 2]),
                ..good.clone()
            }
            .validated()
            .is_ok()
        );
        assert!(good.validated().is_ok());
        for bad in [
            UdpSendConfig {
                rate_bit_s: 0,
                ..good.clone()
            },
            UdpSendConfig {
                payload_bytes: PAYLOAD_MAX_BYTES + 1,
                ..good.clone()
            },
            UdpSendConfig {
                payload_bytes: HEADER_BYTES - 1,
                ..good.clone()
            },
            UdpSendConfig {
                changes: changes([2, 2]),
                ..good.clone()
            },
            UdpSendConfig {
                flows: Some(FlowsConfig {
                    flow_sizes: FlowSizes::Named("published".into()),
                    seed: 1,
                    parallel: 0,
                }),
                ..good.clone()
            },
        ] {
            assert!(matches!(
                bad.validated(),
                Err(TrafficError::Configuration(_))
            ));
        }
    }
}
