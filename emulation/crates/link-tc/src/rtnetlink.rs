// SPDX-License-Identifier: Apache-2.0
//! Statistics of queueing disciplines and filters, read from the kernel (rtnetlink(7), `linux/pkt_sched.h`, `linux/gen_stats.h`).
//!
//! By netlink rather than by `tc`, which would be a process ten times a second.

use crate::config::Handle;
use crate::error::TcError;
use atoll_netio::receive::receive;
use rustix::fd::OwnedFd;
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};
use std::collections::HashMap;

const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;

const NLMSG_HEADER: usize = 16; // u32 length, u16 type, u16 flags, u32 sequence, u32 port
const TCMSG: usize = 20; // u8 family, 3 unused, i32 ifindex, u32 handle, u32 parent, u32 info

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_ACT_STATS: u16 = 4;

/// The attribute that holds the actions in a filter's options, by the filter's kind.
const ACTIONS: [(&[u8], u16); 2] = [(b"matchall\0", 2), (b"flower\0", 3)];

const ATTRIBUTE_HEADER: usize = 4; // u16 length, u16 type (linux/netlink.h)
const ATTRIBUTE_TYPE: u16 = 0x3fff; // without the flags "nested" and "network byte order"

const TCA_STATS_BASIC: u16 = 1; // u64 bytes, u32 packets
const TCA_STATS_QUEUE: u16 = 3; // u32 qlen, backlog, drops, requeues, overlimits
const TCA_STATS_PKT64: u16 = 8; // u64 packets, where 32 bits do not hold them

/// The kernel sends dumps in pieces of up to 32 KiB to those who can take them.
const RECEIVE_BYTES: usize = 32 * 1024;

/// Queueing disciplines of a network namespace: by interface number and handle.
pub(crate) type Qdiscs = HashMap<(u32, Handle), Statistics>;

/// A socket to the kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    socket: OwnedFd,
    sequence: u32,
    /// For a dump and for the message that it is done, which comes by itself: received at once, since each system
    /// call costs a virtual kernel two switches of processes.
    dumped: Vec<u8>,
    done: Vec<u8>,
}

impl Kernel {
    /// # Errors
    /// When there can be no such socket.
    pub(crate) fn open() -> Result<Self, TcError> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // the default, 0, is NETLINK_ROUTE
        )
        .map_err(|error| TcError::Netlink(error.into()))?;
        Ok(Self::on_socket(socket))
    }

    fn on_socket(socket: OwnedFd) -> Self {
        Self {
            socket,
            sequence: 0,
            dumped: vec![0; RECEIVE_BYTES],
            done: vec![0; RECEIVE_BYTES],
        }
    }

    /// One that answers its first request with these messages: type and body of each.
    #[cfg(test)]
    pub(crate) fn that_says(replies: &[(u16, &[u8])]) -> (Self, OwnedFd) {
        let (socket, peer) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        for (kind, body) in replies {
            let length = (NLMSG_HEADER + body.len()) as u32;
            let mut message = length.to_ne_bytes().to_vec();
            message.extend(kind.to_ne_bytes());
            message.extend([0; 2]);
            message.extend(1_u32.to_ne_bytes());
            message.extend([0; 4]);
            message.extend(*body);
            send(&peer, &message, SendFlags::empty()).unwrap();
        }
        (Self::on_socket(socket), peer)
    }

    /// Every queueing discipline of the namespace, in one dump.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn qdiscs(&mut self) -> Result<Qdiscs, TcError> {
        let mut qdiscs = Qdiscs::new();
        self.dump(RTM_GETQDISC, 0, Handle(0), |kind, body| {
            if kind == RTM_NEWQDISC {
                if let Some((key, counted)) = qdisc(body) {
                    qdiscs.insert(key, counted);
                }
            }
        })?;
        Ok(qdiscs)
    }

    /// The counters of a filter's first action; `None` if there is no such filter.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn filter(
        &mut self,
        ifindex: u32,
        parent: Handle,
        pref: u16,
    ) -> Result<Option<Statistics>, TcError> {
        let mut counted = None;
        self.dump(RTM_GETTFILTER, ifindex, parent, |kind, body| {
            if kind == RTM_NEWTFILTER {
                counted = counted.or_else(|| filter_statistics(body, pref));
            }
        })?;
        Ok(counted)
    }

    fn dump(
        &mut self,
        kind: u16,
        ifindex: u32,
        parent: Handle,
        mut take: impl FnMut(u16, &[u8]),
    ) -> Result<(), TcError> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(kind, self.sequence, ifindex, parent);
        retry_on_intr(|| send(&self.socket, &request, SendFlags::empty()))
            .map_err(|error| TcError::Netlink(error.into()))?;
        loop {
            let lengths = receive(&self.socket, &mut [&mut self.dumped, &mut self.done])
                .map_err(TcError::Netlink)?;
            for (buffer, length) in [&self.dumped, &self.done].into_iter().zip(lengths) {
                for (sequence, kind, body) in messages(&buffer[..length]) {
                    match kind {
                        _ if sequence != self.sequence => {} // left over from a dump that failed
                        // A dump that broke off is done, too, with an error number.
                        NLMSG_DONE | NLMSG_ERROR => return outcome(body),
                        _ => take(kind, body),
                    }
                }
            }
        }
    }
}

fn request(kind: u16, sequence: u32, ifindex: u32, parent: Handle) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(NLMSG_HEADER + TCMSG);
    bytes.extend(((NLMSG_HEADER + TCMSG) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    for word in [sequence, 0, 0, ifindex, 0, parent.0, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// Sequence number, type and body of every message.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u32, u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 4)?;
        let sequence = u32_at(bytes, 8)?;
        let body = bytes.get(NLMSG_HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((sequence, kind, body))
    })
}

/// The error number, negative, in the body of the message that ends a dump; 0 or none: it is complete.
fn outcome(body: &[u8]) -> Result<(), TcError> {
    let number = u32_at(body, 0).map_or(0, |word| i32::from_ne_bytes(word.to_ne_bytes()));
    match number.wrapping_neg() {
        0 => Ok(()),
        error => Err(TcError::Netlink(std::io::Error::from_raw_os_error(error))),
    }
}

fn qdisc(body: &[u8]) -> Option<((u32, Handle), Statistics)> {
    let ifindex = u32_at(body, 4)?;
    let handle = Handle(u32_at(body, 8)?);
    let counted = statistics(attribute(body.get(TCMSG..)?, TCA_STATS2)?);
    Some(((ifindex, handle), counted))
}

/// Of the dump's two messages for a filter, one describes its preference alone and has no actions.
fn filter_statistics(body: &[u8], pref: u16) -> Option<Statistics> {
    let info = u32_at(body, 16)?;
    if info >> 16 != u32::from(pref) {
        return None;
    }
    let described = body.get(TCMSG..)?;
    let kind = attribute(described, TCA_KIND)?;
    let (_, actions) = ACTIONS.iter().find(|(name, _)| *name == kind)?;
    let listed = attribute(attribute(described, TCA_OPTIONS)?, *actions)?;
    let (_, first) = attributes(listed).next()?;
    Some(statistics(attribute(first, TCA_ACT_STATS)?))
}

/// The kernel's counters of a queueing discipline or an action, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// Passed on.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    /// Held now.
    pub(crate) backlog_bytes: u64,
    pub(crate) backlog_packets: u64,
    pub(crate) drops: u64,
}

/// The attributes in `bytes`: type and value. One that is cut short ends them.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & ATTRIBUTE_TYPE;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the attribute of that type, if there is one.
fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(other, _)| *other == kind)
        .map(|(_, value)| value)
}

/// The statistics nested in an attribute.
fn statistics(nested: &[u8]) -> Statistics {
    let basic = attribute(nested, TCA_STATS_BASIC).unwrap_or_default();
    let queue = attribute(nested, TCA_STATS_QUEUE).unwrap_or_default();
    let counter = |index: usize| u32_at(queue, 4 * index).map_or(0, u64::from);
    Statistics {
        bytes: u64_at(basic, 0).unwrap_or(0),
        packets: attribute(nested, TCA_STATS_PKT64)
            .and_then(|value| u64_at(value, 0))
            .or_else(|| u32_at(basic, 8).map(u64::from))
            .unwrap_or(0),
        backlog_packets: counter(0),
        backlog_bytes: counter(1),
        drops: counter(2),
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
fn encode(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = ATTRIBUTE_HEADER + value.len();
    let mut bytes = u16::try_from(length).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcmsg(ifindex: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
        [0, ifindex, handle, parent, info]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect()
    }

    fn counted(bytes: u64, packets: u32) -> Vec<u8> {
        encode(
            1,
            &[&bytes.to_ne_bytes()[..], &packets.to_ne_bytes()].concat(),
        )
    }

    #[test]
    fn a_qdisc_is_known_by_interface_and_handle() {
        let body = [
            tcmsg(4, 0x1_0000, u32::MAX, 0),
            encode(1, b"tbf\0"),
            encode(7, &counted(9, 3)),
        ]
        .concat();
        let (key, found) = qdisc(&body).unwrap();
        assert_eq!(key, (4, Handle(0x1_0000)));
        assert_eq!((found.bytes, found.packets), (9, 3));
    }

    #[test]
    fn a_filter_counts_by_its_first_action() {
        for (kind, actions) in [(&b"matchall\0"[..], 2), (b"flower\0", 3)] {
            let action = [encode(1, b"mirred\0"), encode(4, &counted(1500, 1))].concat();
            let options = encode(actions, &encode(1, &action));
            let body = [
                tcmsg(4, 1, 0, 5 << 16),
                encode(1, kind),
                encode(2, &options),
            ]
            .concat();
            assert_eq!(filter_statistics(&body, 5).unwrap().bytes, 1500);
            assert_eq!(filter_statistics(&body, 6), None, "another preference");
            let alone = [tcmsg(4, 0, 0, 5 << 16), encode(1, kind)].concat();
            assert_eq!(filter_statistics(&alone, 5), None);
        }
    }

    #[test]
    fn the_kernel_answers_a_dump_of_this_namespace() {
        let mut kernel = Kernel::open().unwrap();
        let loopback = atoll_netio::interface::Interface::find("lo").unwrap();
        kernel.qdiscs().unwrap();
        // Nothing is attached to the loopback interface's clsact, most likely not even a clsact.
        let none = kernel
            .filter(loopback.index, Handle(0xffff_fff2), 0x7777)
            .unwrap();
        assert_eq!(none, None);
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn attributes_of_odd_length_are_followed_by_the_next_one() {
        let bytes = [encode(1, b"tbf\0x"), encode(0x8000 | 7, b"")].concat();
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found, [(1, &b"tbf\0x"[..]), (7, &b""[..])]);
    }

    #[test]
    fn what_is_cut_short_is_no_attribute() {
        let whole = encode(1, b"12345678");
        for length in 0..whole.len() {
            assert_eq!(attributes(&whole[..length]).count(), 0, "{length}");
        }
        assert_eq!(
            attributes(&[0; 8]).count(),
            0,
            "a length that moves nowhere"
        );
    }

    #[test]
    fn statistics_are_read_and_packets_may_need_64_bits() {
        let basic = encode(
            1,
            &[&5_000_000_000_u64.to_ne_bytes()[..], &words(&[7, 0])].concat(),
        );
        let queue = encode(3, &words(&[2, 3000, 11, 0, 99]));
        let mut nested = [basic, queue].concat();
        let expected = Statistics {
            bytes: 5_000_000_000,
            packets: 7,
            backlog_packets: 2,
            backlog_bytes: 3000,
            drops: 11,
        };
        assert_eq!(statistics(&nested), expected);
        nested.extend(encode(8, &5_000_000_007_u64.to_ne_bytes()));
        assert_eq!(statistics(&nested).packets, 5_000_000_007);
        assert_eq!(statistics(&[]), Statistics::default());
    }
}
