// SPDX-License-Identifier: Apache-2.0
//! Netlink's type-length-value attributes (linux/netlink.h) and the statistics in them (`linux/gen_stats.h`).

const HEADER: usize = 4;
const TYPE_MASK: u16 = 0x3fff; // without the flags "nested" and "network byte order"

const TCA_STATS_BASIC: u16 = 1; // u64 bytes, u32 packets
const TCA_STATS_QUEUE: u16 = 3; // u32 qlen, backlog, drops, requeues, overlimits
const TCA_STATS_PKT64: u16 = 8; // u64 packets, where 32 bits do not hold them

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

/// The attributes in `bytes`: type and value. What is cut short ends them.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the attribute of that type, if there is one.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

/// The statistics nested in an attribute.
pub(crate) fn statistics(nested: &[u8]) -> Statistics {
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

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
pub(crate) fn encode(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = HEADER + value.len();
    let mut bytes = u16::try_from(length).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

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
