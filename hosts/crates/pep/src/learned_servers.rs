// SPDX-License-Identifier: Apache-2.0
//! Servers that accepted a connection lately.

use std::collections::HashMap;
use std::net::SocketAddrV4;

/// So many are remembered at most.
const MAX: usize = 1 << 16;

/// Addresses and ports, each for a time.
#[derive(Debug)]
pub(crate) struct LearnedServers {
    until_ns: HashMap<SocketAddrV4, u64>,
    for_ns: u64,
}

impl LearnedServers {
    pub(crate) fn new(for_ns: u64) -> Self {
        Self {
            until_ns: HashMap::new(),
            for_ns,
        }
    }

    /// Remember for another time those that accept from now on.
    pub(crate) fn remember_for(&mut self, for_ns: u64) {
        self.for_ns = for_ns;
    }

    /// It accepted.
    pub(crate) fn learn(&mut self, server: SocketAddrV4, now_ns: u64) {
        if self.until_ns.len() >= MAX {
            self.until_ns.retain(|_, &mut until_ns| until_ns > now_ns);
        }
        if self.until_ns.len() < MAX {
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
