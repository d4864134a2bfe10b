// SPDX-License-Identifier: Apache-2.0
//! The frames of a multiplexed connection between two PEPs (docs/contracts.md, "pep"): bytes in, bytes out.
//!
//! A frame is a header of 8 bytes (kind, reason, length of the contents, number of the stream; big endian) and its contents.

use crate::first_segment::Refusal;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(crate) const HEADER_BYTES: usize = 8;

/// The longest payload of a frame: 8 ms of a link of 16 Mbit/s, which is how long another stream waits for its turn.
pub(crate) const PAYLOAD_BYTES: usize = 1 << 14;

/// Of this format. PEPs of different versions do not multiplex.
const VERSION: u32 = 2;

/// A message from one PEP to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// The first one in both directions.
    Hello,
    /// Connect to `server` in the name of `client`; the other side may send `credit` bytes of payload.
    Open {
        client: SocketAddrV4,
        server: SocketAddrV4,
        credit: u32,
    },
    /// The server has accepted; `credit` more bytes may be sent to it.
    Ok {
        credit: u32,
    },
    Refused(Refusal),
    Data(&'a [u8]),
    Fin,
    Rst,
    /// So many more bytes may be sent.
    Credit(u32),
    /// To be ignored.
    Padding(&'a [u8]),
    /// The PEP that connects is to make another connection, which takes the place of this one.
    Renew,
    /// No more streams are opened here.
    Last,
}

/// A message about a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub stream: u32,
    pub message: Message<'a>,
}

/// The bytes are of no frame: the peer is no PEP of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other end does not speak the protocol of this version")]
pub(crate) struct BadFrame;

const HELLO: u8 = 0;
const OPEN: u8 = 1;
const OK: u8 = 2;
const REFUSED: u8 = 3;
const DATA: u8 = 4;
const FIN: u8 = 5;
const RST: u8 = 6;
const CREDIT: u8 = 7;
const PADDING: u8 = 8;
const RENEW: u8 = 9;
const LAST_KIND: u8 = 10;

impl<'a> Frame<'a> {
    /// The first frame of `bytes` and its length; none: more bytes are needed.
    ///
    /// # Errors
    /// No frame begins so.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, BadFrame> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [kind, reason, length @ ..] = *header;
        let [high, low, stream @ ..] = length;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind > LAST_KIND || length > PAYLOAD_BYTES {
            return Err(BadFrame);
        }
        let Some(contents) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else {
            return Ok(None);
        };
        let message = message(kind, reason, contents).ok_or(BadFrame)?;
        let stream = u32::from_be_bytes(stream);
        Ok(Some((Self { stream, message }, HEADER_BYTES + length)))
    }

    /// Append it to `bytes`. Payload is [`PAYLOAD_BYTES`] at most.
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        let number = |kind, number: u32| (kind, 0, number.to_be_bytes().to_vec());
        let (kind, reason, contents) = match self.message {
            Message::Hello => number(HELLO, VERSION),
            Message::Open {
                client,
                server,
                credit,
            } => {
                let mut contents = Vec::with_capacity(16);
                for address in [client, server] {
                    contents.extend(address.ip().octets());
                    contents.extend(address.port().to_be_bytes());
                }
                contents.extend(credit.to_be_bytes());
                (OPEN, 0, contents)
            }
            Message::Ok { credit } => number(OK, credit),
            Message::Refused(refusal) => (REFUSED, refusal.byte(), Vec::new()),
            Message::Data(payload) => (DATA, 0, payload.to_vec()),
            Message::Padding(payload) => (PADDING, 0, payload.to_vec()),
            Message::Fin => (FIN, 0, Vec::new()),
            Message::Rst => (RST, 0, Vec::new()),
            Message::Renew => (RENEW, 0, Vec::new()),
            Message::Last => (LAST_KIND, 0, Vec::new()),
            Message::Credit(credit) => number(CREDIT, credit),
        };
        bytes.extend(header(kind, reason, contents.len(), self.stream));
        bytes.extend(contents);
    }
}

/// The header of payload that follows it.
pub(crate) fn data_header(stream: u32, payload_bytes: usize) -> [u8; HEADER_BYTES] {
    header(DATA, 0, payload_bytes, stream)
}

fn header(kind: u8, reason: u8, contents_bytes: usize, stream: u32) -> [u8; HEADER_BYTES] {
    let [high, low] = (contents_bytes as u16).to_be_bytes();
    let [a, b, c, d] = stream.to_be_bytes();
    [kind, reason, high, low, a, b, c, d]
}

fn message(kind: u8, reason: u8, contents: &[u8]) -> Option<Message<'_>> {
    if kind == REFUSED {
        let refusal = Refusal::of_byte(reason)?;
        return contents.is_empty().then_some(Message::Refused(refusal));
    }
    if reason != 0 {
        return None;
    }
    let number = || Some(u32::from_be_bytes(contents.try_into().ok()?));
    Some(match kind {
        HELLO => (number()? == VERSION).then_some(Message::Hello)?,
        OPEN => {
            let [client @ .., _, _, _, _, _, _, _, _, _, _] = *contents.first_chunk::<16>()?;
            let (_, rest) = contents.split_at(6);
            let (server, credit) = rest.split_at(6);
            Message::Open {
                client: address(&client)?,
                server: address(server)?,
                credit: u32::from_be_bytes(credit.try_into().ok()?),
            }
        }
        OK => Message::Ok { credit: number()? },
        DATA if !contents.is_empty() => Message::Data(contents),
        FIN if contents.is_empty() => Message::Fin,
        RST if contents.is_empty() => Message::Rst,
        RENEW if contents.is_empty() => Message::Renew,
        LAST_KIND if contents.is_empty() => Message::Last,
        CREDIT => Message::Credit(number()?),
        PADDING => Message::Padding(contents),
        _ => return None,
    })
}

fn address(bytes: &[u8]) -> Option<SocketAddrV4> {
    let (ip, port) = bytes.split_first_chunk::<4>()?;
    let port = u16::from_be_bytes(port.try_into().ok()?);
    Some(SocketAddrV4::new(Ipv4Addr::from(*ip), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::first_segment::UnreachableCode;
    use proptest::prelude::*;

    fn written(frames: &[Frame<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            frame.put(&mut bytes);
        }
        bytes
    }

    fn messages(payload: &[u8]) -> Vec<Message<'_>> {
        let client = "10.20.0.1:4321".parse().unwrap();
        let server = "10.10.0.1:80".parse().unwrap();
        let credit = 70_000;
        vec![
            Message::Hello,
            Message::Open {
                client,
                server,
                credit,
            },
            Message::Ok { credit },
            Message::Refused(Refusal::Refused),
            Message::Refused(Refusal::Unanswered),
            Message::Refused(Refusal::Unreachable(UnreachableCode::Network)),
            Message::Refused(Refusal::Unreachable(UnreachableCode::Host)),
            Message::Refused(Refusal::Unreachable(UnreachableCode::Protocol)),
            Message::Data(payload),
            Message::Fin,
            Message::Rst,
            Message::Credit(credit),
            Message::Padding(payload),
            Message::Renew,
            Message::Last,
        ]
    }

    #[test]
    fn an_open_frame_has_the_bytes_of_the_contract() {
        let bytes = written(&[Frame {
            stream: 258,
            message: messages(b"x")[1],
        }]);
        let header = [1, 0, 0, 16, 0, 0, 1, 2];
        let contents = [
            10, 20, 0, 1, 0x10, 0xe1, 10, 10, 0, 1, 0, 80, 0, 1, 0x11, 0x70,
        ];
        assert_eq!(bytes, [&header[..], &contents].concat());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let of = |kind, reason, length| header(kind, reason, length, 1);
        for header in [
            of(11, 0, 0),
            of(DATA, 0, PAYLOAD_BYTES + 1),
            of(FIN, 1, 0),
            of(REFUSED, 5, 0),
            of(DATA, 0, 0),
        ] {
            assert_eq!(Frame::parse(&header), Err(BadFrame), "{header:?}");
        }
        let other_version = [&of(HELLO, 0, 4)[..], &[0, 0, 0, 9]].concat();
        assert_eq!(Frame::parse(&other_version), Err(BadFrame));
        let web = b"GET / HTTP/1.1\r\n";
        assert_eq!(Frame::parse(web), Err(BadFrame));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frame::parse(&bytes);
        }

        #[test]
        fn any_contents_behind_a_header_are_read_or_refused(
            kind in 0_u8..12, reason in 0_u8..6, contents in prop::collection::vec(any::<u8>(), 0..40)
        ) {
            let bytes = [&header(kind, reason, contents.len(), 3)[..], &contents].concat();
            if let Ok(read) = Frame::parse(&bytes) {
                let (frame, length) = read.unwrap();
                prop_assert_eq!(length, bytes.len());
                prop_assert_eq!(written(&[frame]), bytes);
            }
        }

        #[test]
        fn frames_are_read_as_they_were_written_wherever_the_bytes_are_cut(
            payload in prop::collection::vec(any::<u8>(), 1..3000),
            kinds in prop::collection::vec(0_usize..15, 1..20),
            stream: u32,
            cut: prop::sample::Index,
        ) {
            let known = messages(&payload);
            let frames: Vec<Frame<'_>> =
                kinds.iter().map(|&kind| Frame { stream, message: known[kind] }).collect();
            let bytes = written(&frames);
            let cut = cut.index(bytes.len());
            let mut read = Vec::new();
            let mut at = 0;
            for until in [cut, bytes.len()] {
                while let Some((frame, length)) = Frame::parse(&bytes[at..until]).unwrap() {
                    read.push(frame);
                    at += length;
                }
            }
            prop_assert_eq!(read, frames);
            prop_assert_eq!(at, bytes.len());
        }
    }
}
