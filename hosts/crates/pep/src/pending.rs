// SPDX-License-Identifier: Apache-2.0
//! Connections that are not established on both sides yet: when each is given up, and which one makes room for another.
//! Also servers that accepted a connection lately.

use crate::connection::Connection;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddrV4;

/// A connection that has been pending for so long makes room for another one to the same server: twice the time after which
/// a lost SYN is repeated, and the round trip of a satellite.
const LONG_PENDING_NS: u64 = 3_000_000_000;

/// Their slots, by the time of their end, and of each server by the time of their beginning.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    ends: BTreeSet<(u64, usize)>,
    by_server: HashMap<SocketAddrV4, BTreeSet<(u64, usize)>>,
}

impl Pending {
    pub(crate) fn add(&mut self, slot: usize, connection: &Connection) {
        self.ends.insert((connection.until_ns, slot));
        let server = self.by_server.entry(connection.addresses.1).or_default();
        server.insert((connection.began_ns, slot));
    }

    pub(crate) fn remove(&mut self, slot: usize, connection: &Connection) {
        self.ends.remove(&(connection.until_ns, slot));
        let server = connection.addresses.1;
        if let Some(server_slots) = self.by_server.get_mut(&server) {
            server_slots.remove(&(connection.began_ns, slot));
            if server_slots.is_empty() {
                self.by_server.remove(&server);
            }
        }
    }

    /// A connection is to be given up at another time, which becomes its `until_ns`.
    pub(crate) fn end_at(&mut self, slot: usize, connection: &mut Connection, until_ns: u64) {
        self.remove(slot, connection);
        connection.until_ns = until_ns;
        self.add(slot, connection);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A connection whose time is over.
    pub(crate) fn expired(&self, now_ns: u64) -> Option<usize> {
        let &(until_ns, slot) = self.ends.first()?;
        (now_ns >= until_ns).then_some(slot)
    }

    /// The connection that makes room for one to `server`: of the server with the most, the one that has waited longest.
    /// None if `server` has as many and that one has not waited long.
    pub(crate) fn victim(&self, server: SocketAddrV4, now_ns: u64) -> Option<usize> {
        let own_count = self.by_server.get(&server).map_or(0, BTreeSet::len);
        let by_server = self.by_server.values();
        let largest = by_server.max_by_key(|slots| (slots.len(), Reverse(slots.first())))?;
        let &(began_ns, slot) = largest.first()?;
        (own_count < largest.len() || now_ns >= began_ns + LONG_PENDING_NS).then_some(slot)
    }

    /// How many the server with the most has.
    pub(crate) fn max_per_server(&self) -> usize {
        let counts = self.by_server.values().map(BTreeSet::len);
        counts.max().unwrap_or(0)
    }
}

/// So many are remembered at most.
const LEARNED_MAX: usize = 1 << 16;

/// Addresses and ports, each for a time.
#[derive(Debug)]
pub(crate) struct LearnedServers {
    until_ns: HashMap<SocketAddrV4, u64>,
    /// For how long servers that accept from now on are remembered.
    pub for_ns: u64,
}

impl LearnedServers {
    pub(crate) fn new(for_ns: u64) -> Self {
        Self {
            until_ns: HashMap::new(),
            for_ns,
        }
    }

    /// It accepted.
    pub(crate) fn learn(&mut self, server: SocketAddrV4, now_ns: u64) {
        if self.until_ns.len() >= LEARNED_MAX {
            self.until_ns.retain(|_, &mut until_ns| until_ns > now_ns);
        }
        if self.until_ns.len() < LEARNED_MAX {
            self.until_ns.insert(server, now_ns + self.for_ns);
        }
    }

    /// It did not accept.
    pub(crate) fn forget(&mut self, server: SocketAddrV4) {
        self.until_ns.remove(&server);
    }

    pub(crate) fn contains(&self, server: SocketAddrV4, now_ns: u64) -> bool {
        self.until_ns
            .get(&server)
            .is_some_and(|&until_ns| until_ns > now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Side;
    use crate::end::{End, Peer};

    fn server(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new([10, 10, 0, 1].into(), port)
    }

    /// Connections to ports, in order: the first one begins at 0, each other one 1 ns later.
    fn of(ports: &[u16]) -> Pending {
        let mut pending = Pending::default();
        for (slot, &port) in ports.iter().enumerate() {
            let addresses = ("10.20.0.1:4321".parse().unwrap(), server(port));
            let end = End::of_stream(slot, Peer::Server);
            let times = (slot as u64, slot as u64 + 2 * LONG_PENDING_NS);
            let one = Connection::new(slot as u64, addresses, (0, Side::Island), end, times);
            pending.add(slot, &one);
        }
        pending
    }

    #[test]
    fn the_longest_wait_of_the_server_with_the_most_makes_room_for_servers_with_fewer() {
        let pending = of(&[80, 82, 82, 82, 80]);
        assert_eq!(pending.victim(server(80), 5), Some(1));
        assert_eq!(pending.victim(server(81), 5), Some(1));
        assert_eq!(pending.max_per_server(), 3);
    }

    #[test]
    fn a_server_with_the_most_gets_no_more_before_its_longest_wait_is_long() {
        let pending = of(&[80, 82, 82]);
        assert_eq!(pending.victim(server(82), LONG_PENDING_NS), None);
        assert_eq!(pending.victim(server(82), LONG_PENDING_NS + 1), Some(1));
    }

    #[test]
    fn of_servers_with_as_many_the_longest_wait_makes_room() {
        let pending = of(&[81, 80, 82]);
        assert_eq!(pending.victim(server(83), 3), Some(0));
        assert_eq!(pending.victim(server(80), 3), None);
        assert_eq!(pending.victim(server(80), LONG_PENDING_NS), Some(0));
    }

    #[test]
    fn a_connection_is_given_up_at_its_time_even_if_that_changes() {
        let mut pending = Pending::default();
        let addresses = ("10.20.0.1:4321".parse().unwrap(), server(80));
        let end = End::of_stream(7, Peer::Server);
        let mut one = Connection::new(1, addresses, (0, Side::Island), end, (0, 100));
        pending.add(7, &one);
        pending.end_at(7, &mut one, 50);
        assert_eq!((pending.expired(49), pending.expired(50)), (None, Some(7)));
        pending.remove(7, &one);
        assert_eq!((pending.len(), pending.expired(100)), (0, None));
        assert_eq!(pending.victim(server(81), 0), None);
    }

    #[test]
    fn a_server_is_known_for_a_time_or_until_it_refuses() {
        let server = "10.10.0.1:80".parse().unwrap();
        let mut servers = LearnedServers::new(100);
        assert!(!servers.contains(server, 1));
        servers.learn(server, 1);
        assert!(servers.contains(server, 100));
        assert!(!servers.contains(server, 101));
        servers.learn(server, 101);
        servers.forget(server);
        assert!(!servers.contains(server, 102));
    }
}
