// SPDX-License-Identifier: Apache-2.0
//! Packets of the testbed itself, which pass as they are: probes, whistles and those of tests before a run.
//!
//! Probes prove what flow entries do, whistles begin and end a measurement in each capture, the configuration test and
//! calibrations compare paths and links with their settings. All need the packets that hosts sent.

use crate::ipv4::{Ipv4, UDP};
use atoll_headers::read_u16;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const TCP_BYTES: usize = 20;
const ICMP_UDP_BYTES: usize = 8;
/// How the payloads of probes, whistles and pings of tests before a run begin (docs/contracts.md, "ping", "probe").
const PAYLOAD_PREFIXES: [&[u8]; 4] = [
    b"atoll probe\0",
    b"atoll whistle ",
    b"atoll calibrate",
    b"atoll check",
];

/// Whether a packet is one of these. `calibration_port`: the UDP port of calibrations.
pub(crate) fn is_testbed_packet(packet: &Ipv4<'_>, calibration_port: u16) -> bool {
    if packet.is_fragment() {
        return false;
    }
    let payload = packet.payload();
    let header_bytes = match packet.protocol() {
        UDP if read_u16(payload, 2) == Some(calibration_port) => return true,
        ICMP | UDP => ICMP_UDP_BYTES,
        TCP => TCP_BYTES,
        _ => 0,
    };
    let data = payload.get(header_bytes..).unwrap_or_default();
    PAYLOAD_PREFIXES.iter().any(|begin| data.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::tests::packet;

    const PORT: u16 = 5311;

    fn is_found(bytes: &[u8]) -> bool {
        is_testbed_packet(&Ipv4::parse(bytes).unwrap(), PORT)
    }

    #[test]
    fn probes_of_every_protocol_are_found() {
        let known = atoll_contract_examples::lines("probe-packets");
        assert_eq!(known.len(), 4);
        for line in known {
            let text = line["packet"].as_str().unwrap();
            let bytes: Vec<u8> = (0..text.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
                .collect();
            assert!(is_found(&bytes), "{line}");
        }
    }

    #[test]
    fn whistles_and_tests_before_a_run_are_found_and_nothing_else() {
        let of = |protocol: u8, header: &[u8], text: &[u8]| {
            is_found(&packet(
                [10, 0, 0, 1],
                [10, 0, 0, 2],
                protocol,
                &[header, text].concat(),
            ))
        };
        let to = |port: u16| [&[0, 9], &port.to_be_bytes()[..], &[0, 20, 0, 0]].concat();
        assert!(of(ICMP, &[8, 0, 0, 0, 0, 1, 0, 0], b"atoll whistle start"));
        assert!(of(ICMP, &[8, 0, 0, 0, 0, 1, 0, 0], b"atoll calibrate"));
        assert!(of(ICMP, &[8, 0, 0, 0, 0, 1, 0, 0], b"atoll check"));
        assert!(of(UDP, &to(PORT), &[0; 20]));
        assert!(!of(UDP, &to(PORT - 1), &[0; 20]));
        assert!(!of(ICMP, &[8, 0, 0, 0, 0, 1, 0, 0], b"atoll ping"));
        assert!(!of(ICMP, &[8], b""));
        assert!(!of(TCP, &[0; TCP_BYTES], b"GET / HTTP/1.1"));
    }
}
