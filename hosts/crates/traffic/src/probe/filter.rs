// SPDX-License-Identifier: Apache-2.0
//! A filter for the kernel (classic BPF, Documentation/networking/filter.rst) that passes the probes of one session.
//!
//! A host under load receives a hundred thousand packets a second; the job shall be woken by its own alone.

use super::probe_header::{ICMP, ICMP_HEADER_BYTES, MAGIC, TCP, TCP_HEADER_BYTES, UDP};
use socket2::SockFilter;

// Instructions (linux/bpf_common.h, linux/filter.h).
const LOAD_BYTE: u16 = 0x30;
const LOAD_WORD_AT_X: u16 = 0x40;
const LOAD_CONSTANT: u16 = 0x00;
const X_IS_HEADER_LENGTH: u16 = 0xb1;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const ADD_X: u16 = 0x0c;
const X_IS_A: u16 = 0x07;
const RETURN: u16 = 0x06;

/// Where filters find the packet's direction, and its value for what this machine sends (`linux/if_packet.h`).
const DIRECTION: u32 = 0xffff_f004;
const OUTGOING: u32 = 4;

/// Where an IPv4 header names its protocol.
const PROTOCOL_AT: u32 = 9;
const WHOLE_PACKET: u32 = 0xffff;
const LENGTH: u8 = 23;

/// The filter, for a socket whose packets begin with their IPv4 header. It knows TCP headers without options, which
/// probes have; UDP's are as long as those of ICMP.
pub fn session_filter(session: u32) -> Vec<SockFilter> {
    let word = |i: usize| u32::from_be_bytes([MAGIC[i], MAGIC[i + 1], MAGIC[i + 2], MAGIC[i + 3]]);
    let mut program = vec![
        SockFilter::new(LOAD_BYTE, 0, 0, DIRECTION),
        SockFilter::new(JUMP_IF_EQUAL, LENGTH - 3, 0, OUTGOING), // to the refusal, which is the last one
        SockFilter::new(X_IS_HEADER_LENGTH, 0, 0, 0),
        SockFilter::new(LOAD_BYTE, 0, 0, PROTOCOL_AT),
        SockFilter::new(JUMP_IF_EQUAL, 3, 0, TCP.into()),
        SockFilter::new(JUMP_IF_EQUAL, 4, 0, ICMP.into()),
        SockFilter::new(JUMP_IF_EQUAL, 3, 0, UDP.into()),
        SockFilter::new(JUMP, 0, 0, 5), // the payload follows the IPv4 header
        SockFilter::new(LOAD_CONSTANT, 0, 0, TCP_HEADER_BYTES as u32),
        SockFilter::new(JUMP, 0, 0, 1),
        SockFilter::new(LOAD_CONSTANT, 0, 0, ICMP_HEADER_BYTES as u32),
        SockFilter::new(ADD_X, 0, 0, 0),
        SockFilter::new(X_IS_A, 0, 0, 0),
    ];
    for (at, expected) in [(0, word(0)), (4, word(4)), (8, word(8)), (12, session)] {
        program.push(SockFilter::new(LOAD_WORD_AT_X, 0, 0, at));
        let position = program.len() as u8;
        program.push(SockFilter::new(
            JUMP_IF_EQUAL,
            0,
            LENGTH - 2 - position,
            expected,
        ));
    }
    program.push(SockFilter::new(RETURN, 0, 0, WHOLE_PACKET));
    program.push(SockFilter::new(RETURN, 0, 0, 0));
    program
}
