// SPDX-License-Identifier: Apache-2.0
//! One channel: which flow comes next, and how long after a failure.

use super::config::{LoadConfig, LoadSettings};
use super::flow_log::Entry;

/// First wait after a failure, doubled for each further one in a row.
const BACK_OFF_MIN_NS: u64 = 100_000_000;

/// Longest wait after a failure.
const BACK_OFF_MAX_NS: u64 = 5_000_000_000;

/// A channel between its flows.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    number: u64,
    next_flow: u64,
    failures_in_a_row: u32,
}

impl Channel {
    /// A channel before its first flow.
    pub fn new(number: u64) -> Self {
        Self {
            number,
            next_flow: 0,
            failures_in_a_row: 0,
        }
    }

    /// The next flow, which begins now, at `start_ns` of real time.
    pub fn next(&mut self, config: &LoadConfig, settings: &LoadSettings, start_ns: i64) -> Entry {
        let servers = config.servers.len();
        let (seed, sizes) = (config.seed, &settings.sizes);
        let flow = atoll_flow_sizes::draw(sizes, seed, self.number, self.next_flow, servers);
        let entry = Entry {
            channel: self.number,
            flow: self.next_flow,
            server: config.servers[flow.server],
            size_bytes: settings.counts.payload_bytes(flow.size_bytes),
            received_bytes: 0,
            start_ns,
            connected_ns: None,
            first_byte_ns: None,
            end_ns: 0,
        };
        self.next_flow += 1;
        entry
    }

    /// Its number, unique in the experiment.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How long the next flow waits by its pace ([`LoadSettings::wait_ns`]).
    pub fn wait_ns(&self, seed: u64, settings: &LoadSettings) -> u64 {
        settings.wait_ns(seed, self.number, self.next_flow)
    }

    /// A flow is complete.
    pub fn succeeded(&mut self) {
        self.failures_in_a_row = 0;
    }

    /// A flow failed; the least wait before the next one.
    pub fn failed(&mut self) -> u64 {
        let doublings = self.failures_in_a_row.min(6);
        let wait_ns = (BACK_OFF_MIN_NS << doublings).min(BACK_OFF_MAX_NS);
        self.failures_in_a_row += 1;
        wait_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::CountedBytes;
    use crate::tests::{LOAD_OPTIONAL, configurations};

    #[test]
    fn sizes_of_ip_bytes_are_asked_for_less_headers_and_drawn_alike() {
        let configs: Vec<LoadConfig> = configurations("load", LOAD_OPTIONAL);
        let counted = configs
            .iter()
            .find(|config| config.counts == CountedBytes::Ip);
        let config = counted.unwrap();
        let ip = config.validated().unwrap();
        let payload = LoadSettings {
            counts: CountedBytes::Payload,
            ..ip.clone()
        };
        let first = |settings| Channel::new(3).next(config, settings, 0);
        let drawn = first(&payload);
        assert_eq!(first(&ip).server, drawn.server);
        assert_eq!(
            first(&ip).size_bytes,
            atoll_flow_sizes::payload_bytes(drawn.size_bytes)
        );
    }

    #[test]
    fn back_off_doubles_up_to_its_bound_and_begins_anew() {
        let mut channel = Channel::new(3);
        let waits: Vec<u64> = (0..8).map(|_| channel.failed() / 1_000_000).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        channel.succeeded();
        assert_eq!(channel.failed(), BACK_OFF_MIN_NS);
    }
}
