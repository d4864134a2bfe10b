// SPDX-License-Identifier: Apache-2.0
//! The kernel's counters of a network namespace: frames of its interfaces, TCP and UDP; and packets that the kernel drops
//! on the machine before any namespace receives them.

use serde_json::{Map, Value};

/// Columns of /proc/net/dev (proc(5)); those that veth and NICs count for frames.
const COUNTERS: [(usize, &str); 8] = [
    (0, "rx_bytes"),
    (1, "rx_packets"),
    (2, "rx_errors"),
    (3, "rx_dropped"),
    (8, "tx_bytes"),
    (9, "tx_packets"),
    (10, "tx_errors"),
    (11, "tx_dropped"),
];

/// The counters of an interface in /proc/net/dev, by name; none if it does not exist.
pub fn interface_counters(table: &str, interface: &str) -> Option<Value> {
    let row = table
        .lines()
        .filter_map(|line| line.rsplit_once(':'))
        .find_map(|(name, row)| (name.trim() == interface).then_some(row))?;
    let columns: Vec<u64> = row
        .split_whitespace()
        .map_while(|column| column.parse().ok())
        .collect();
    COUNTERS
        .iter()
        .map(|(column, name)| Some(((*name).to_owned(), Value::from(*columns.get(*column)?))))
        .collect::<Option<Map<String, Value>>>()
        .map(Value::Object)
}

/// Reported TCP counters: group and name in /proc/net/snmp or /proc/net/netstat (RFC 4022; Linux adds `TcpExt` and
/// `InCsumErrors`, wrong checksums alone: among `InErrs` it counts the SYNs of established connections, too,
/// `tcp_validate_incoming`), our name.
const TCP: [(&str, &str, &str); 11] = [
    ("Tcp:", "CurrEstab", "established"),
    ("Tcp:", "InSegs", "in_segments"),
    ("Tcp:", "OutSegs", "out_segments"),
    ("Tcp:", "RetransSegs", "retransmitted_segments"),
    ("Tcp:", "InErrs", "in_errors"),
    ("Tcp:", "InCsumErrors", "checksum_errors"),
    ("TcpExt:", "TCPTimeouts", "timeouts"),
    ("TcpExt:", "TCPSpuriousRTOs", "spurious_timeouts"),
    ("TcpExt:", "ListenDrops", "listen_drops"),
    ("TcpExt:", "TCPBacklogDrop", "backlog_dropped"),
    ("TcpExt:", "TCPRcvQDrop", "receive_queue_dropped"),
];

/// Reported UDP counters: name in /proc/net/snmp (RFC 4113; Linux adds the causes of errors), our name.
const UDP: [(&str, &str); 6] = [
    ("InDatagrams", "in_datagrams"),
    ("OutDatagrams", "out_datagrams"),
    ("InErrors", "in_errors"),
    ("InCsumErrors", "checksum_errors"),
    ("RcvbufErrors", "receive_buffer_errors"),
    ("SndbufErrors", "send_buffer_errors"),
];

/// The TCP counters by our names, from the texts of both files. Counters that a kernel does not have are absent.
pub fn tcp_counters(snmp: &str, netstat: &str) -> Map<String, Value> {
    let entry = |(group, name, ours): &(&str, &str, &str)| {
        let text = if *group == "Tcp:" { snmp } else { netstat };
        Some(((*ours).to_owned(), counter(text, group, name)?.into()))
    };
    TCP.iter().filter_map(entry).collect()
}

/// The UDP counters by our names. Counters that a kernel does not have are absent.
pub fn udp_counters(snmp: &str) -> Map<String, Value> {
    let entry = |(name, ours): &(&str, &str)| {
        Some(((*ours).to_owned(), counter(snmp, "Udp:", name)?.into()))
    };
    UDP.iter().filter_map(entry).collect()
}

/// Packets that waited for a processor, summed over all processors since each was brought up.
#[derive(Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Dropped: `net.core.netdev_max_backlog` of them waited already.
    pub dropped: u64,
    /// How often a processor used up `net.core.netdev_budget` or its time while packets still waited.
    pub squeezed: u64,
}

impl Backlog {
    /// Of `/proc/net/softnet_stat`, which every network namespace shows of the whole machine: a line a processor,
    /// hexadecimal; processed, dropped, squeezed, more (Linux 6.1, net/core/net-procfs.c, `softnet_seq_show`).
    pub fn parse(softnet: &str) -> Option<Self> {
        let mut total = None;
        for line in softnet.lines() {
            let mut counts = line
                .split_whitespace()
                .map(|word| u64::from_str_radix(word, 16));
            let (dropped, squeezed) = (counts.nth(1)?.ok()?, counts.next()?.ok()?);
            let total = total.get_or_insert(Self {
                dropped: 0,
                squeezed: 0,
            });
            total.dropped += dropped;
            total.squeezed += squeezed;
        }
        total
    }
}

/// Such a file has two lines for each group: its names, and what was counted of each.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (names, counts) = (lines.next()?, lines.next()?);
    let column = names.split_whitespace().position(|word| word == name)?;
    counts.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_counters_are_found_by_their_names_wherever_they_stand() {
        let snmp = "Ip: Forwarding InSegs\nIp: 1 77\nTcp: MaxConn CurrEstab InSegs OutSegs RetransSegs InErrs \
            OutRsts InCsumErrors\nTcp: -1 3 40 50 6 9 0 2\n";
        let netstat = "TcpExt: SyncookiesSent ListenDrops TCPTimeouts\nTcpExt: 0 2 5\nIpExt: InNoRoutes\nIpExt: 1\n";
        let counters = tcp_counters(snmp, netstat);
        assert_eq!(counters["established"], 3);
        assert_eq!(counters["in_segments"], 40);
        assert_eq!(counters["retransmitted_segments"], 6);
        assert_eq!(
            (&counters["in_errors"], &counters["checksum_errors"]),
            (&9.into(), &2.into())
        );
        assert_eq!(
            (&counters["timeouts"], &counters["listen_drops"]),
            (&5.into(), &2.into())
        );
        assert!(
            !counters.contains_key("spurious_timeouts"),
            "this kernel does not count them"
        );
        assert_eq!(tcp_counters("", ""), Map::new());
    }

    #[test]
    fn udp_counters_are_not_those_of_udp_lite() {
        let snmp = "UdpLite: InDatagrams InErrors\nUdpLite: 8 9\n\
            Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors \
            SndbufErrors InCsumErrors\nUdp: 10 1 3 20 2 0 1\n";
        let counters = udp_counters(snmp);
        assert_eq!(counters["in_datagrams"], 10);
        assert_eq!(counters["out_datagrams"], 20);
        assert_eq!(
            (&counters["in_errors"], &counters["receive_buffer_errors"]),
            (&3.into(), &2.into())
        );
        assert_eq!(counters["checksum_errors"], 1);
    }

    #[test]
    fn what_waits_is_summed_over_processors_from_hexadecimal() {
        let softnet = "0000a1b2 00000010 00000003 00000000 00000000 00000000\n\
            00000001 0000000f 0000000a 00000000 00000000 00000000\n";
        assert_eq!(
            Backlog::parse(softnet),
            Some(Backlog {
                dropped: 31,
                squeezed: 13
            })
        );
        assert_eq!(Backlog::parse(""), None);
        assert_eq!(Backlog::parse("00000001 00000002\n"), None);
        assert_eq!(Backlog::parse("00000001 z 00000002\n"), None);
    }

    #[test]
    fn interface_counters_are_read_by_name() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets errs ...\n\
            w1-eth0: 100 2 0 1 0 0 0 0 300 4 0 5 0 0 0 0\n";
        let counter = interface_counters(table, "w1-eth0").unwrap();
        assert_eq!(counter["rx_packets"], 2);
        assert_eq!(counter["rx_dropped"], 1);
        assert_eq!(counter["tx_bytes"], 300);
        assert_eq!(counter["tx_dropped"], 5);
        assert!(interface_counters(table, "w1").is_none());
    }
}
