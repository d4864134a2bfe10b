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

pub use distribution::{Distribution, Knot};

use atoll_random::SplitMix64;

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
    let [server_draw, size_draw, _] = uniform_draws(seed, channel, flow);
    Flow {
        // Multiply-shift maps 64 random bits to 0..servers; its bias is below servers / 2^64.
        server: ((u128::from(server_draw) * servers as u128) >> 64) as usize,
        size_bytes: distribution.quantile(size_draw),
    }
}

/// Independent uniform 64-bit numbers for one flow: of its server, its size, its wait.
fn uniform_draws(seed: u64, channel: u64, flow: u64) -> [u64; 3] {
    let mut random = SplitMix64::at(&[seed, channel, flow]);
    [random.next_u64(), random.next_u64(), random.next_u64()]
}

/// IPv4 and TCP headers of a segment, time stamps included.
const HEADERS_BYTES: u64 = 52;

/// IP bytes of a full-size segment.
const SEGMENT_BYTES: u64 = 1500;

/// SYN-ACK, two acknowledgements, FIN.
const WITHOUT_PAYLOAD_BYTES: u64 = 60 + 3 * HEADERS_BYTES;

/// The most TCP payload that a flow of `ip_bytes` holds, and at least 1 byte: a flow of fewer than 269 does not exist.
///
/// A flow is one direction of a connection. That of a server to its client holds, where nothing is sent twice, packets of
/// 1500 bytes and Linux's options: a SYN-ACK of 60 bytes; acknowledgements of the client's request and of its FIN and the
/// server's own FIN, 52 bytes each; and the payload, of which each segment holds up to 1448 bytes below headers of 52 (20
/// of IPv4, 20 of TCP, 12 of the time stamps option, RFC 7323). A long flow may do with one or two packets of 52 bytes
/// less, when the FIN leaves with the last payload or an acknowledgement with the first.
#[must_use]
pub const fn payload_bytes(ip_bytes: u64) -> u64 {
    let remaining = ip_bytes.saturating_sub(WITHOUT_PAYLOAD_BYTES);
    let (segments, last) = (remaining / SEGMENT_BYTES, remaining % SEGMENT_BYTES);
    let payload = segments * (SEGMENT_BYTES - HEADERS_BYTES) + last.saturating_sub(HEADERS_BYTES);
    if payload == 0 { 1 } else { payload }
}

/// ln 2 in units of 2^-64.
const LN_2: u128 = 0xb172_17f7_d1cf_79ac;

/// Bits of the fraction of a logarithm.
const FRACTION_BITS: u32 = 32;

/// The wait before flow `flow` of channel `channel`, nanoseconds: exponential with mean `mean_ns`, whatever the sizes
/// and servers of the flows. A promise as [`draw`] is one. Integers alone take part, so that every machine waits the same.
#[must_use]
pub fn exponential_ns(mean_ns: u64, seed: u64, channel: u64, flow: u64) -> u64 {
    let [_, _, uniform] = uniform_draws(seed, channel, flow);
    let minus_log2 = (64_u128 << FRACTION_BITS) - u128::from(log2(u128::from(uniform) + 1));
    let minus_ln = (minus_log2 * LN_2) >> 64; // at most 45 * 2^32
    u64::try_from((minus_ln * u128::from(mean_ns)) >> FRACTION_BITS).unwrap_or(u64::MAX)
}

/// log2 of `number`, 1 to 2^64, in units of 2^-32, rounded down: a bit of the fraction for each squaring.
fn log2(number: u128) -> u64 {
    let integer_part = number.ilog2();
    let mut mantissa = (number << 62) >> integer_part; // from 1 to below 2, in units of 2^-62
    let mut log2 = u64::from(integer_part);
    for _ in 0..FRACTION_BITS {
        mantissa = (mantissa * mantissa) >> 62;
        log2 <<= 1;
        if mantissa >= 1 << 63 {
            mantissa >>= 1;
            log2 |= 1;
        }
    }
    log2
}

#[cfg(test)]
mod exponential_tests {
    use super::*;

    #[test]
    fn waits_never_change() {
        let waits = [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)]
            .map(|(seed, channel, flow)| exponential_ns(1_000_000_000, seed, channel, flow));
        assert_eq!(
            waits,
            [176_421_093, 2_160_149_875, 273_851_491, 831_067_475]
        );
    }

    #[test]
    fn logarithms_are_those_of_floating_point() {
        for number in [
            1,
            2,
            3,
            7,
            1000,
            1 << 40,
            (1 << 63) + 12_345,
            u128::from(u64::MAX),
            1 << 64,
        ] {
            let found = log2(number) as f64 / f64::from(1_u32 << 31) / 2.0;
            assert!(
                (found - (number as f64).log2()).abs() < 1e-8,
                "{number} {found}"
            );
        }
    }

    #[test]
    fn waits_are_exponential_and_unrelated_to_sizes() {
        let (mean_ns, count) = (1_000_000_u64, 200_000_u64);
        let mut waits: Vec<u64> = (0..count)
            .map(|flow| exponential_ns(mean_ns, 9, flow % 50, flow / 50))
            .collect();
        let mean = waits.iter().sum::<u64>() as f64 / count as f64;
        assert!((mean / mean_ns as f64 - 1.0).abs() < 0.01, "{mean}");
        waits.sort_unstable();
        let distance = waits
            .iter()
            .zip(0..)
            .map(|(&wait, rank)| {
                let share = 1.0 - (-(wait as f64) / mean_ns as f64).exp();
                (share - f64::from(rank) / count as f64).abs()
            })
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / (count as f64).sqrt(), "{distance}");
        let sizes = crate::Distribution::published();
        let median = sizes.quantile(1 << 63);
        let long_and_large = (0..10_000)
            .filter(|&flow| {
                crate::draw(&sizes, 9, 0, flow, 1).size_bytes > median
                    && exponential_ns(mean_ns, 9, 0, flow) > 693_147
            })
            .count();
        // A quarter is expected, with a standard deviation of 43.
        assert!((2_300..2_700).contains(&long_and_large), "{long_and_large}");
    }
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

#[cfg(test)]
mod headers_tests {
    use super::*;
    use proptest::prelude::*;

    fn ip_bytes(payload: u64) -> u64 {
        60 + 52 + 52 + 52 + payload + 52 * payload.div_ceil(1448)
    }

    #[test]
    fn the_smallest_flow_carries_one_byte() {
        assert_eq!(ip_bytes(1), 269);
        assert_eq!(
            [0, 1, 216, 268, 269, 270].map(payload_bytes),
            [1, 1, 1, 1, 1, 2]
        );
        assert_eq!(payload_bytes(216 + 1500), 1448);
        assert_eq!(payload_bytes(216 + 1500 + 52), 1448);
        assert_eq!(payload_bytes(216 + 1500 + 53), 1449);
    }

    proptest! {
        #[test]
        fn as_much_is_carried_as_fits(ip in 269..1_u64 << 53) {
            let payload = payload_bytes(ip);
            prop_assert!(ip_bytes(payload) <= ip && ip < ip_bytes(payload + 1));
        }
    }
}
