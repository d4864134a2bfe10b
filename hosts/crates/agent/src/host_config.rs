// SPDX-License-Identifier: Apache-2.0
//! The configuration of a machine of the experiment network as text: sysctls and `ip -batch`. Pure.
//!
//! Interfaces have `arp off`: neighbours are permanent, so nothing may ever ask or answer on the
//! wire, but for the control of a machine with one interface. A routed box takes frames addressed to
//! others (the network rewrites no MAC addresses): `packet_filter` marks them as addressed to this host. What a box with several pairs of legs or a
//! transparent proxy needs besides is in `policy_routing`.

use crate::settings::{HostSettings, InterfaceSettings, RouteSettings};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// An interface as it is: one element of `ip -json address show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceState {
    /// Its name.
    #[serde(rename = "ifname")]
    pub name: String,
    /// Its MAC address; empty: it has none.
    #[serde(rename = "address", default)]
    pub mac: String,
    /// Bytes of the longest packet.
    pub mtu: u32,
    flags: Vec<String>,
    addr_info: Vec<AddressState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AddressState {
    #[serde(default)]
    local: String,
    prefixlen: u8,
}

/// A permanent neighbour as it is: one element of `ip -json neighbour show nud permanent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourState {
    #[serde(rename = "dev")]
    device: String,
    #[serde(rename = "dst")]
    address: String,
    #[serde(rename = "lladdr", default)]
    mac: String,
}

/// The state of a machine before it was set up: its interfaces, and the
/// permanent neighbours of all. (A route to the very prefix of an experiment route is not kept.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineState {
    /// Those of the settings.
    pub interfaces: Vec<InterfaceState>,
    /// Switching ARP off empties the neighbour table.
    pub neighbours: Vec<NeighbourState>,
}

impl InterfaceState {
    /// Whether it has a flag such as `UP`.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|present| present == flag)
    }

    /// Its addresses, with prefix lengths.
    pub fn addresses(&self) -> impl Iterator<Item = String> {
        let addresses = self.addr_info.iter();
        addresses.map(|address| format!("{}/{}", address.local, address.prefixlen))
    }
}

impl HostSettings {
    /// Each interface's present state, in the order of the settings; or what is wrong with the
    /// machine: an interface that is not there or has another MAC address.
    pub fn match_machine(&self, states: &[InterfaceState]) -> Result<Vec<InterfaceState>, String> {
        self.interfaces
            .iter()
            .map(|interface| {
                let state = states.iter().find(|state| state.name == interface.name).ok_or_else(|| {
                    format!("no interface {}; there are: {}", interface.name, names(states))
                })?;
                if !state.mac.eq_ignore_ascii_case(&interface.mac) {
                    return Err(format!(
                        "interface {} has MAC address {}, the plan says {}: correct the description of the lab",
                        interface.name, state.mac, interface.mac
                    ));
                }
                Ok(state.clone())
            })
            .collect()
    }

    /// The settings of those interfaces that are still there.
    pub fn present_in(&self, states: &[InterfaceState]) -> Self {
        let mut present = self.clone();
        present
            .interfaces
            .retain(|interface| states.iter().any(|state| state.name == interface.name));
        present
    }

    /// Sysctls in the order they must be written. `has_ipv6`: whether an interface has IPv6 now, which it loses with
    /// an MTU below 1280 (RFC 8200, section 5).
    pub fn all_sysctls(&self, has_ipv6: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        // Reverse-path filtering uses the larger of `all` and the interface's own value.
        let mut sysctls = vec![("net.ipv4.conf.all.rp_filter".to_owned(), "0".to_owned())];
        for interface in &self.interfaces {
            let name = interface.name.replace('.', "/");
            sysctls.push((format!("net.ipv4.conf.{name}.rp_filter"), "0".to_owned()));
            if has_ipv6(&interface.name) {
                // No router solicitations or neighbour discovery on the wire.
                sysctls.push((format!("net.ipv6.conf.{name}.disable_ipv6"), "1".to_owned()));
            }
        }
        if self.local.is_some() {
            sysctls.push(("net.ipv4.conf.lo.rp_filter".to_owned(), "0".to_owned()));
        }
        match self.forwarding {
            // Not `ip_forward`: setting that changes sysctls of every interface.
            Some(true) => {
                sysctls.push((
                    "net.ipv4.conf.all.send_redirects".to_owned(),
                    "0".to_owned(),
                ));
                sysctls.extend(self.interface_sysctls("send_redirects", "0"));
                sysctls.extend(self.interface_sysctls("accept_redirects", "0"));
                sysctls.extend(self.interface_sysctls("forwarding", "1"));
            }
            Some(false) => sysctls.extend(self.interface_sysctls("forwarding", "0")),
            None => {}
        }
        sysctls.extend(self.sysctls.iter().cloned());
        sysctls
    }

    /// An IPv4 sysctl of each interface.
    pub fn interface_sysctls(&self, setting: &str, value: &str) -> Vec<(String, String)> {
        let names = self
            .interfaces
            .iter()
            .map(|interface| interface.name.replace('.', "/"));
        names
            .map(|name| (format!("net.ipv4.conf.{name}.{setting}"), value.to_owned()))
            .collect()
    }

    /// Input of `ip -batch -`. ARP goes off first: changing that flag empties the neighbour table.
    pub fn ip_batch(&self) -> String {
        let mut batch = String::new();
        for interface in &self.interfaces {
            let device = &interface.name;
            let promiscuous = if interface.promiscuous {
                " promisc on"
            } else {
                ""
            };
            let arp = if interface.in_band { "" } else { " arp off" };
            let _ = writeln!(
                batch,
                "link set dev {device} mtu {}{arp}{promiscuous} up",
                interface.mtu
            );
            if let Some(address) = &interface.address {
                let _ = writeln!(batch, "address replace {address} dev {device}");
            }
            for (address, mac) in &interface.neighbours {
                let _ = writeln!(
                    batch,
                    "neighbour replace {address} lladdr {mac} dev {device} nud permanent"
                );
            }
            let source = interface.in_band_source();
            for route in &interface.routes {
                let _ = writeln!(
                    batch,
                    "route replace {} dev {device} scope link{source}{}{}",
                    route.prefix,
                    self.table_words(device),
                    route.metrics()
                );
            }
        }
        batch + &self.add_rules()
    }

    /// The settings without those that can change while packets pass: routes, sysctls and packet rules.
    pub fn without_routes(&self) -> Self {
        let mut others = self.clone();
        others.sysctls.clear();
        others.packet_rules.clear();
        for interface in &mut others.interfaces {
            interface.routes.clear();
        }
        others
    }

    /// Lines of `ip -batch` that delete the routing rules and the routes, one each.
    pub fn deletions(&self) -> Vec<String> {
        let rules = self.delete_rules();
        let rules = rules.split_inclusive('\n').map(str::to_owned);
        let interfaces = self.interfaces.iter();
        rules
            .chain(interfaces.flat_map(|interface| self.route_deletions_of(interface)))
            .collect()
    }

    fn route_deletions_of(&self, interface: &InterfaceSettings) -> Vec<String> {
        let device = &interface.name;
        let table = self.table_words(device);
        let deletion = |route: &RouteSettings| {
            format!(
                "route delete {} dev {device} scope link{table}\n",
                route.prefix
            )
        };
        interface.routes.iter().map(deletion).collect()
    }

    /// Input of `ip -force -batch -` that takes [`Self::batch`] back but for its rules, given the state before.
    pub fn undo_batch(&self, before: &MachineState) -> String {
        let mut batch = String::new();
        for interface in &self.interfaces {
            let Some(state) = before
                .interfaces
                .iter()
                .find(|state| state.name == interface.name)
            else {
                continue;
            };
            let device = &interface.name;
            batch.extend(self.route_deletions_of(interface));
            for (address, _) in &interface.neighbours {
                let _ = writeln!(batch, "neighbour delete {address} dev {device}");
            }
            if let Some(address) = interface
                .address
                .as_ref()
                .filter(|address| !state.addresses().any(|present| present == **address))
            {
                let _ = writeln!(batch, "address delete {address} dev {device}");
            }
            let arp = if state.has_flag("NOARP") { "off" } else { "on" };
            let promiscuous = if state.has_flag("PROMISC") {
                "on"
            } else {
                "off"
            };
            let link_state = if state.has_flag("UP") { "up" } else { "down" };
            let _ = writeln!(
                batch,
                "link set dev {device} mtu {} arp {arp} promisc {promiscuous} {link_state}",
                state.mtu
            );
            let restored = before
                .neighbours
                .iter()
                .filter(|neighbour| neighbour.device == *device);
            for NeighbourState { address, mac, .. } in restored {
                let _ = writeln!(
                    batch,
                    "neighbour replace {address} lladdr {mac} dev {device} nud permanent"
                );
            }
        }
        batch
    }
}

impl InterfaceSettings {
    /// The source of packets to its routes, as `ip route` takes it: the kernel would choose the address for control.
    fn in_band_source(&self) -> String {
        match &self.address {
            Some(address) if self.in_band => {
                format!(" src {}", address.split('/').next().unwrap_or(address))
            }
            _ => String::new(),
        }
    }
}

fn names(states: &[InterfaceState]) -> String {
    states
        .iter()
        .map(|state| state.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LegPair;

    fn settings() -> HostSettings {
        serde_json::from_value(serde_json::json!({
            "host": "pep-w",
            "interfaces": [
                {"name": "pep-w.a", "mac": "02:00:00:00:00:0A", "address": "10.0.0.1/32",
                 "routes": [{"prefix": "10.10.0.0/16"}], "neighbours": [["10.10.0.1", "02:00:00:00:00:01"]],
                 "promiscuous": true},
                {"name": "pep-w.b", "mac": "02:00:00:00:00:0b", "address": null, "routes": [], "neighbours": []}
            ],
            "sysctls": [["net.ipv4.tcp_ecn", "1"]]
        }))
        .unwrap()
    }

    fn states() -> Vec<InterfaceState> {
        serde_json::from_str(
            r#"[{"ifname":"lo","mtu":65536,"flags":["LOOPBACK"],"address":"00:00:00:00:00:00","addr_info":[]},
                {"ifname":"pep-w.b","mtu":9000,"flags":["UP","PROMISC"],"address":"02:00:00:00:00:0b","addr_info":[]},
                {"ifname":"pep-w.a","mtu":1500,"flags":["BROADCAST"],"address":"02:00:00:00:00:0a","addr_info":[]}]"#,
        )
        .unwrap()
    }

    fn machine(settings: &HostSettings) -> MachineState {
        let interfaces = settings.match_machine(&states()).unwrap();
        let neighbours = r#"[{"dst":"192.0.2.9","dev":"pep-w.b","lladdr":"02:00:00:00:09:09","state":["PERMANENT"]},
                             {"dst":"192.0.2.8","dev":"eth0","lladdr":"02:00:00:00:08:08","state":["PERMANENT"]}]"#;
        MachineState {
            interfaces,
            neighbours: serde_json::from_str(neighbours).unwrap(),
        }
    }

    #[test]
    fn arp_is_off_before_neighbours_are_set() {
        let batch = settings().ip_batch();
        let lines: Vec<&str> = batch.lines().collect();
        assert_eq!(
            lines[0],
            "link set dev pep-w.a mtu 1500 arp off promisc on up"
        );
        assert_eq!(lines[1], "address replace 10.0.0.1/32 dev pep-w.a");
        assert_eq!(
            lines[2],
            "neighbour replace 10.10.0.1 lladdr 02:00:00:00:00:01 dev pep-w.a nud permanent"
        );
        assert_eq!(
            lines[3],
            "route replace 10.10.0.0/16 dev pep-w.a scope link"
        );
        assert_eq!(lines[4], "link set dev pep-w.b mtu 1500 arp off up");
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn an_interface_that_control_passes_keeps_arp_and_has_another_source_for_the_experiment() {
        let mut settings = settings();
        settings.interfaces[0].in_band = true;
        let batch = settings.ip_batch();
        assert!(batch.starts_with("link set dev pep-w.a mtu 1500 promisc on up\n"));
        assert!(batch.contains("route replace 10.10.0.0/16 dev pep-w.a scope link src 10.0.0.1\n"));
        assert!(batch.contains("link set dev pep-w.b mtu 1500 arp off up\n"));
    }

    #[test]
    fn interfaces_and_routes_have_mtus() {
        let mut settings = settings();
        settings.interfaces[0].mtu = 1560;
        settings.interfaces[0].routes[0].mtu = Some(1400);
        let batch = settings.ip_batch();
        assert!(batch.starts_with("link set dev pep-w.a mtu 1560 arp off promisc on up\n"));
        assert!(batch.contains("route replace 10.10.0.0/16 dev pep-w.a scope link mtu 1400\n"));
        let undo = settings.undo_batch(&machine(&settings));
        assert!(undo.contains("route delete 10.10.0.0/16 dev pep-w.a scope link\n"));
        assert!(undo.contains("link set dev pep-w.a mtu 1500 arp on promisc off down\n"));
    }

    #[test]
    fn legs_with_a_table_have_their_routes_there() {
        let mut settings = settings();
        settings.legs = vec![LegPair {
            world: "pep-w.a".into(),
            island: "pep-w.b".into(),
            table: Some(2),
            mark: None,
            accept_foreign: false,
        }];
        let batch = settings.ip_batch();
        let route = "10.10.0.0/16 dev pep-w.a scope link table 2 protocol 97\n";
        assert!(batch.contains(&format!("route replace {route}")));
        assert!(batch.ends_with(&settings.add_rules()));
        let undo = settings.undo_batch(&machine(&settings));
        assert!(undo.contains(&format!("route delete {route}")));
    }

    #[test]
    fn experiment_interfaces_forward_or_do_not_and_others_are_not_touched() {
        let mut settings = settings();
        let mut forwarding = |on| {
            settings.forwarding = on;
            let sysctls = settings.all_sysctls(|_| false).into_iter();
            let named = sysctls.filter(|(name, _)| name.contains("forward"));
            named
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(forwarding(None), [""; 0]);
        assert_eq!(
            forwarding(Some(true)),
            [
                "net.ipv4.conf.pep-w/a.forwarding=1",
                "net.ipv4.conf.pep-w/b.forwarding=1"
            ]
        );
        assert_eq!(
            forwarding(Some(false)),
            [
                "net.ipv4.conf.pep-w/a.forwarding=0",
                "net.ipv4.conf.pep-w/b.forwarding=0"
            ]
        );
    }

    #[test]
    fn undoing_restores_each_link_as_it_was() {
        let settings = settings();
        let before = machine(&settings);
        let undo = settings.undo_batch(&before);
        assert!(undo.contains("address delete 10.0.0.1/32 dev pep-w.a\n"));
        assert!(undo.contains("link set dev pep-w.a mtu 1500 arp on promisc off down\n"));
        let last = "link set dev pep-w.b mtu 9000 arp on promisc on up\n\
            neighbour replace 192.0.2.9 lladdr 02:00:00:00:09:09 dev pep-w.b nud permanent\n";
        assert!(undo.ends_with(last), "{undo}");
        assert!(
            !undo.contains("192.0.2.8"),
            "other interfaces are nobody's business"
        );
    }

    #[test]
    fn an_address_that_was_there_before_stays() {
        let settings = settings();
        let mut before = machine(&settings);
        before.interfaces[0].addr_info.push(AddressState {
            local: "10.0.0.1".into(),
            prefixlen: 32,
        });
        assert!(!settings.undo_batch(&before).contains("address delete"));
    }

    #[test]
    fn another_mac_address_is_refused_by_name() {
        let mut settings = settings();
        settings.interfaces[1].mac = "02:00:00:00:00:0c".into();
        let refusal = settings.match_machine(&states()).unwrap_err();
        assert!(refusal.contains(
            "pep-w.b has MAC address 02:00:00:00:00:0b, the plan says 02:00:00:00:00:0c"
        ));
        settings.interfaces[1].name = "gone".into();
        let refusal = settings.match_machine(&states()).unwrap_err();
        assert_eq!(
            refusal,
            "no interface gone; there are: lo, pep-w.b, pep-w.a"
        );
    }

    #[test]
    fn a_dot_in_an_interface_name_is_not_a_sysctl_separator() {
        let sysctls = settings().all_sysctls(|interface| interface == "pep-w.a");
        assert!(sysctls.contains(&("net.ipv6.conf.pep-w/a.disable_ipv6".into(), "1".into())));
        assert_eq!(sysctls.last().unwrap().0, "net.ipv4.tcp_ecn");
        let of_ipv6 = sysctls.iter().filter(|(name, _)| name.contains("ipv6"));
        assert_eq!(of_ipv6.count(), 1, "the other interface has none");
    }
}
