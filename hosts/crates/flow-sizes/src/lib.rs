// SPDX-License-Identifier: Apache-2.0
//! Flow sizes, servers and waits as a pure function of seed, channel and flow number.
//!
//! Flow k of channel c fetches `size` bytes from server number `server`, both drawn by [`draw`], and comes after a wait
//! that [`exponential_ns`] draws where waits are random. There is no
//! generator with a state: the draw is counter-based, so it is the same whatever the order in which flows
//! start and however the channels are spread over hosts. Nothing but integers and correctly rounded IEEE 754
//! operations take part, so every machine draws the same bytes.
#![forbid(unsafe_code)]

mod distribution;
mod exponential;
mod headers;

use atoll_random::SplitMix64;

pub use distribution::{Distribution, Invalid, Knot, UnknownDistribution};
pub use exponential::exponential_ns;
pub use headers::payload_bytes;

/// One flow: its server and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Index into the list of servers.
    pub server: usize,
    /// As drawn, at least 1: the bytes that the client asks for, or IP bytes ([`payload_bytes`]).
    pub size_bytes: u64,
}

/// Flow number `flow` of channel `channel`, with the server uniform among `servers` and the size from
/// `distribution`. The size does not depend on the number of servers.
///
/// This function is a promise: runs are compared across years by their seed, so it never changes.
///
/// # Panics
/// If `servers` is zero.
#[must_use]
pub fn draw(
    distribution: &Distribution,
    seed: u64,
    channel: u64,
    flow: u64,
    servers: usize,
) -> Flow {
    assert!(servers > 0, "a flow needs a server");
    let [server_draw, size_draw, _] = draws(seed, channel, flow);
    Flow {
        // Multiply-shift maps 64 random bits to 0..servers; its bias is below servers / 2^64.
        server: ((u128::from(server_draw) * servers as u128) >> 64) as usize,
        size_bytes: distribution.quantile(size_draw),
    }
}

/// Independent uniform 64-bit numbers for one flow: of its server, its size, its wait.
fn draws(seed: u64, channel: u64, flow: u64) -> [u64; 3] {
    let mut random = SplitMix64::at(&[seed, channel, flow]);
    [random.next_u64(), random.next_u64(), random.next_u64()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn draws_never_change() {
        let sizes = Distribution::published();
        let drawn: Vec<(usize, u64)> = [
            (1, 0, 0),
            (1, 0, 1),
            (1, 1, 0),
            (2, 0, 0),
            (u64::MAX, 4000, 1_000_000),
        ]
        .into_iter()
        .map(|(seed, channel, flow)| draw(&sizes, seed, channel, flow, 6))
        .map(|flow| (flow.server, flow.size_bytes))
        .collect();
        assert_eq!(drawn, [(5, 250), (3, 124), (4, 606), (3, 52), (2, 3856)]);
    }

    #[test]
    fn servers_are_drawn_evenly() {
        let sizes = Distribution::published();
        let mut counts = [0_i32; 6];
        for flow in 0..60_000 {
            counts[draw(&sizes, 7, flow % 20, flow / 20, 6).server] += 1;
        }
        // Standard deviation of a count: sqrt(60000 * 1/6 * 5/6) = 91.
        assert!(
            counts.iter().all(|count| (count - 10_000).abs() < 400),
            "{counts:?}"
        );
    }

    #[test]
    fn neighbouring_seeds_channels_and_flows_are_unrelated() {
        let sizes = Distribution::published();
        let same = (0..10_000)
            .filter(|&i| {
                let base = draw(&sizes, i, i, i, 1000);
                [
                    draw(&sizes, i + 1, i, i, 1000),
                    draw(&sizes, i, i + 1, i, 1000),
                    draw(&sizes, i, i, i + 1, 1000),
                ]
                .iter()
                .any(|other| other.server == base.server)
            })
            .count();
        // 30 of 10,000 are expected by chance.
        assert!(same < 60, "{same}");
    }

    proptest! {
        #[test]
        fn size_does_not_depend_on_the_number_of_servers(seed: u64, channel: u64, flow: u64, servers in 1..500_usize) {
            let sizes = Distribution::published();
            let some = draw(&sizes, seed, channel, flow, servers);
            prop_assert!(some.server < servers);
            prop_assert_eq!(some.size_bytes, draw(&sizes, seed, channel, flow, 1).size_bytes);
        }
    }
}
