// SPDX-License-Identifier: Apache-2.0
//! UDP that does not care about loss: a paced stream, or flows of drawn sizes together at a rate, and the end that
//! counts what came of it.

mod receive;
mod send;
mod stream;

use crate::job::{Input, wrong_setting};
use atoll_flow_sizes::Distribution;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;

/// IPv4 (RFC 791) and UDP (RFC 768) headers.
const PACKET_HEADERS_BYTES: usize = 20 + 8;

/// Stream (4), sequence number (8), send stamp (8).
const HEADER_BYTES: usize = 20;

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
    /// Further receivers: the flows go to all of them in turn, the first one to `connect`.
    #[serde(default)]
    pub further: Vec<SocketAddr>,
    /// IP bits to send in a second.
    pub rate_bit_s: u64,
    /// UDP payload of each packet: 1472 make a packet of 1500 bytes.
    pub payload_bytes: usize,
    /// When to send the first packet, real time; an instant in the past means at once.
    pub start_at_ns: i64,
    /// For how long; 0 means until stopped.
    pub duration_ns: u64,
    /// Absent: one stream of packets of the same size.
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
    #[serde(deserialize_with = "crate::flows::flow_sizes")]
    pub flow_sizes: Distribution,
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
    /// Whether to report nothing until the end.
    #[serde(default)]
    pub quiet: bool,
}

impl UdpSendConfig {
    /// Refuse what cannot be sent.
    fn check(&self) -> io::Result<()> {
        let later = self.changes.iter().map(|change| change.rate_bit_s);
        if later.chain([self.rate_bit_s]).any(|rate| rate == 0) {
            return Err(wrong_setting("rate_bit_s: must be above 0"));
        }
        if !self.changes.is_sorted_by(|a, b| a.after_ns < b.after_ns) {
            return Err(wrong_setting("changes: must be in order of time"));
        }
        if !(HEADER_BYTES..=PAYLOAD_MAX_BYTES).contains(&self.payload_bytes) {
            return Err(wrong_setting(format!(
                "payload_bytes: {HEADER_BYTES} (sequence number and time stamp) to {PAYLOAD_MAX_BYTES} (no fragments)"
            )));
        }
        let parallel = self.flows.as_ref().map_or(1, |flows| flows.parallel);
        if !(1..=PARALLEL_MAX).contains(&parallel) {
            return Err(wrong_setting(format!(
                "flows: parallel: 1 to {PARALLEL_MAX}"
            )));
        }
        Ok(())
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

/// Run one end of a UDP stream until it is over or the job is to stop.
///
/// # Errors
/// If the address cannot be used.
pub fn udp(config: &UdpConfig, input: Input) -> io::Result<()> {
    match config {
        UdpConfig::Send(config) => {
            config.check()?;
            send::send(config, input)
        }
        UdpConfig::Receive(config) => receive::receive(config, input),
    }
}

/// The first bytes of a packet's payload, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DatagramHeader {
    /// Which of a sender's streams; a lone one is 0.
    stream: u32,
    /// Counts from 0 within the stream.
    seq: u64,
    /// Real time just before the send call.
    sent_ns: i64,
}

impl DatagramHeader {
    /// Write it to the beginning of `payload`, which has room for it.
    fn write(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.stream.to_be_bytes());
        payload[4..12].copy_from_slice(&self.seq.to_be_bytes());
        payload[12..HEADER_BYTES].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Read it back; None when `payload` is too short to be one of ours.
    fn read(payload: &[u8]) -> Option<Self> {
        let (stream, rest) = payload.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (sent_ns, _) = rest.split_first_chunk()?;
        Some(Self {
            stream: u32::from_be_bytes(*stream),
            seq: u64::from_be_bytes(*seq),
            sent_ns: i64::from_be_bytes(*sent_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{assert_in_contract, configurations};
    use proptest::prelude::*;

    #[test]
    fn configurations_and_ready_are_those_of_the_contract() {
        let configs: Vec<UdpConfig> =
            configurations("udp", &["changes", "each", "flows", "further", "quiet"]);
        let listen = configs.iter().find_map(|config| match config {
            UdpConfig::Receive(config) => Some(config.listen),
            UdpConfig::Send(_) => None,
        });
        assert!(listen.is_some());
        assert_in_contract("udp", "receive", &Message::Ready { listen });
        assert_in_contract("udp", "send", &Message::Ready { listen: None });
    }

    #[test]
    fn what_could_not_be_sent_as_wished_is_refused() {
        let good = UdpSendConfig {
            connect: ([127, 0, 0, 1], 9).into(),
            further: Vec::new(),
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
            .check()
            .is_ok()
        );
        assert!(good.check().is_ok());
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
                    flow_sizes: Distribution::published(),
                    seed: 1,
                    parallel: 0,
                }),
                ..good.clone()
            },
        ] {
            assert!(matches!(
                bad.check(),
                Err(error) if atoll_job::is_bad_configuration(&error)
            ));
        }
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(stream: u32, seq: u64, sent_ns: i64, rest in 0..9_usize) {
            let header = DatagramHeader { stream, seq, sent_ns };
            let mut payload = vec![0; HEADER_BYTES + rest];
            header.write(&mut payload);
            prop_assert_eq!(DatagramHeader::read(&payload), Some(header));
            prop_assert_eq!(DatagramHeader::read(&payload[..HEADER_BYTES - 1]), None);
        }
    }
}
