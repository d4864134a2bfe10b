// SPDX-License-Identifier: Apache-2.0
//! Whether settings are of the experiment only, checked before anything is changed.
//!
//! Names and addresses become words of `ip -batch` and `nft -f -`: each has exactly its form.

use crate::settings::{HostSettings, InterfaceSettings};
use std::net::Ipv4Addr;

/// Shortest prefix of an experiment: a shorter one could replace a machine's default route.
const SHORTEST_PREFIX: u8 = 8;

/// Scopes of sysctls that are no interface, and the machine's own one.
const SCOPES: [&str; 3] = ["all", "default", "lo"];

impl HostSettings {
    /// Whether the settings are of this machine's experiment interfaces only; if not, why.
    pub fn check(&self) -> Result<(), String> {
        for interface in &self.interfaces {
            interface.check()?;
        }
        for (name, _) in &self.sysctls {
            self.check_sysctl(name)?;
        }
        self.check_routing()?;
        self.check_packet_rules()
    }

    fn check_sysctl(&self, name: &str) -> Result<(), String> {
        let conf = [
            "net.ipv4.conf.",
            "net.ipv6.conf.",
            "net.ipv4.neigh.",
            "net.ipv6.neigh.",
        ];
        let setting = conf.iter().find_map(|prefix| name.strip_prefix(prefix));
        if let Some((interface, _)) = setting.and_then(|setting| setting.split_once('.')) {
            if !["all", "lo"].contains(&interface) {
                self.check_interface(&interface.replace('/', "."))?;
            }
        } else if !name.starts_with("net.") {
            return Err(format!("sysctl {name} is not a network setting"));
        }
        let affects_all_interfaces = name == "net.ipv4.ip_forward"
            || name == "net.ipv4.conf.all.forwarding"
            || name.starts_with("net.ipv6.conf.all.");
        if affects_all_interfaces {
            return Err(format!("sysctl {name} changes every interface"));
        }
        if name.ends_with(".disable_ipv6") {
            return Err(format!("sysctl {name} is set by the agent itself"));
        }
        Ok(())
    }
}

impl InterfaceSettings {
    fn check(&self) -> Result<(), String> {
        let forbidden = |c: char| c.is_whitespace() || c.is_control() || "\"/\\".contains(c);
        if self.name.is_empty()
            || self.name.contains(forbidden)
            || SCOPES.contains(&self.name.as_str())
        {
            return Err(format!("{:?} is not an experiment interface", self.name));
        }
        if let Some(address) = &self.address {
            if parse_prefix(address).is_none_or(|(_, length)| length < SHORTEST_PREFIX) {
                return Err(format!(
                    "address {address:?} of {} is not an IPv4 address with a prefix length from {SHORTEST_PREFIX} on",
                    self.name
                ));
            }
        }
        for route in &self.routes {
            if !is_experiment_prefix(&route.prefix) {
                return Err(format!(
                    "route to {:?} by {} is not an IPv4 prefix of hosts with at least {SHORTEST_PREFIX} bits and no host bits set",
                    route.prefix, self.name
                ));
            }
        }
        for (address, mac) in &self.neighbours {
            if address.parse::<Ipv4Addr>().is_err() || !is_mac(mac) {
                return Err(format!(
                    "neighbour {address:?} of {} with {mac:?} is not an IPv4 address with a MAC address",
                    self.name
                ));
            }
        }
        Ok(())
    }
}

/// An address and a prefix length, written as they are always written.
fn parse_prefix(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, length) = text.split_once('/')?;
    let parsed: (Ipv4Addr, u8) = (address.parse().ok()?, length.parse().ok()?);
    let is_canonical = format!("{}/{}", parsed.0, parsed.1) == text;
    (is_canonical && parsed.1 <= 32).then_some(parsed)
}

fn is_experiment_prefix(text: &str) -> bool {
    parse_prefix(text).is_some_and(|(network, length)| {
        let host_bits = u32::MAX.checked_shr(length.into()).unwrap_or(0);
        length >= SHORTEST_PREFIX
            && network.to_bits() & host_bits == 0
            && !network.is_loopback()
            && !network.is_multicast()
    })
}

fn is_mac(text: &str) -> bool {
    let bytes: Vec<&str> = text.split(':').collect();
    let is_byte = |byte: &&str| byte.len() == 2 && byte.bytes().all(|c| c.is_ascii_hexdigit());
    bytes.len() == 6 && bytes.iter().all(is_byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::box_with_spare_legs;

    fn refusal(change: impl FnOnce(&mut HostSettings)) -> Option<String> {
        let mut settings = box_with_spare_legs();
        settings.check().unwrap();
        change(&mut settings);
        settings.check().err()
    }

    #[test]
    fn routes_are_to_prefixes_of_the_experiment() {
        let route = |prefix: &str| {
            refusal(|settings| settings.interfaces[0].routes[0].prefix = prefix.to_owned())
        };
        for prefix in ["10.0.0.0/8", "10.10.0.0/16", "192.0.2.1/32"] {
            assert_eq!(route(prefix), None);
        }
        for prefix in [
            "default",
            "0.0.0.0/0",
            "0.0.0.0/1",
            "10.10.0.1/16",
            "10.10.0.0",
            "10.10.0.0/33",
            "10.10.0.0/+16",
            "10.10.0.0/16 via 192.0.2.1",
            "10.10.0.0/16\nroute delete default",
            "127.0.0.0/8",
            "224.0.0.0/8",
            "2001:db8::/32",
            "",
        ] {
            let words = route(prefix).unwrap();
            assert!(words.starts_with(&format!("route to {prefix:?} by w1 is not an IPv4 prefix")));
        }
    }

    #[test]
    fn addresses_have_prefix_lengths() {
        let address =
            |text: &str| refusal(|settings| settings.interfaces[0].address = Some(text.to_owned()));
        assert_eq!(address("10.10.0.1/32"), None);
        for text in ["10.10.0.1", "10.10.0.1/0", "10.10.0.1/32 dev eth0", "a\n"] {
            assert!(address(text).unwrap().contains("is not an IPv4 address"));
        }
    }

    #[test]
    fn neighbours_are_addresses() {
        let neighbour = |address: &str, mac: &str| {
            refusal(|settings| {
                settings.interfaces[0].neighbours[0] = (address.to_owned(), mac.to_owned());
            })
        };
        assert_eq!(neighbour("10.10.0.1", "02:00:00:00:aA:01"), None);
        for (address, mac) in [
            ("10.10.0.1 }", "02:00:00:00:00:01"),
            ("10.10.0.0/16", "02:00:00:00:00:01"),
            ("10.10.0.1", "02:00:00:00:00"),
            ("10.10.0.1", "02:00:00:00:00:+1"),
            ("10.10.0.1", "02:00:00:00:00:01\nlink set lo down"),
        ] {
            assert!(neighbour(address, mac).unwrap().starts_with("neighbour "));
        }
    }

    #[test]
    fn interfaces_have_names_of_interfaces() {
        for name in ["", "all", "default", "lo", "w 1", "w\"1", "w1\n"] {
            let words = refusal(|settings| settings.interfaces[0].name = name.to_owned());
            assert_eq!(
                words.unwrap(),
                format!("{name:?} is not an experiment interface")
            );
        }
    }

    #[test]
    fn sysctls_are_of_the_network_and_not_of_other_interfaces() {
        let sysctl = |name: &str| {
            refusal(|settings| {
                settings.interfaces[0].name = "w1.5".into();
                settings.legs.clear();
                settings.packet_rules.clear();
                settings.sysctls = vec![(name.to_owned(), "1".to_owned())];
            })
        };
        for name in [
            "net.ipv4.tcp_rmem",
            "net.ipv4.conf.w1/5.forwarding",
            "net.ipv4.conf.all.log_martians",
        ] {
            assert_eq!(sysctl(name), None);
        }
        for (name, words) in [
            (
                "net.ipv4.conf.eth0.forwarding",
                "eth0 is not an experiment interface of this machine",
            ),
            (
                "net.ipv4.conf.default.forwarding",
                "default is not an experiment interface of this machine",
            ),
            (
                "net.ipv6.neigh.eth0/1.mcast_solicit",
                "eth0.1 is not an experiment interface of this machine",
            ),
            (
                "kernel.panic",
                "sysctl kernel.panic is not a network setting",
            ),
            (
                "net.ipv4.ip_forward",
                "sysctl net.ipv4.ip_forward changes every interface",
            ),
            (
                "net.ipv4.conf.all.forwarding",
                "sysctl net.ipv4.conf.all.forwarding changes every interface",
            ),
            (
                "net.ipv6.conf.all.accept_ra",
                "sysctl net.ipv6.conf.all.accept_ra changes every interface",
            ),
            (
                "net.ipv6.conf.w1/5.disable_ipv6",
                "sysctl net.ipv6.conf.w1/5.disable_ipv6 is set by the agent itself",
            ),
        ] {
            assert_eq!(sysctl(name).unwrap(), words);
        }
    }
}
