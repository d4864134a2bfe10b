// SPDX-License-Identifier: Apache-2.0
//! The settings of a machine of the experiment network, as values: the JSON of `docs/contracts.md`, "Settings of machines".

use serde::{Deserialize, Serialize};

/// `atoll_core.plan.plan.HostSettings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSettings {
    /// The machine's name.
    pub host: String,
    /// Its experiment interfaces.
    pub interfaces: Vec<InterfaceSettings>,
    /// Names with dots, and values: of the network, and of no other interface.
    pub sysctls: Vec<(String, String)>,
    /// Whether the kernel forwards what comes in by the experiment interfaces; none: as it is.
    pub forwarding: Option<bool>,
    /// The pairs of legs of a routed box.
    #[serde(default)]
    pub legs: Vec<LegPair>,
    /// Delivery of marked packets to a transparent proxy.
    pub local: Option<LocalDelivery>,
    /// For packets that come in, in this order.
    #[serde(default)]
    pub packet_rules: Vec<PacketRule>,
}

/// `atoll_core.plan.plan.InterfaceSettings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceSettings {
    /// The interface's name.
    pub name: String,
    /// The MAC address it must have: everybody's permanent neighbours say so.
    pub mac: String,
    /// With prefix length.
    pub address: Option<String>,
    /// Bytes of the longest packet; up to 1500 is wire-size Ethernet.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// On-link routes, in the table of its pair of legs.
    pub routes: Vec<RouteSettings>,
    /// IPv4 address and MAC address.
    pub neighbours: Vec<(String, String)>,
    /// Receive frames addressed to others.
    #[serde(default)]
    pub promiscuous: bool,
    /// The machine's control passes this interface, too: ARP stays on, and routes name its address as their source, as
    /// it has another one before.
    #[serde(default)]
    pub in_band: bool,
}

/// `atoll_core.plan.plan.RouteSettings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSettings {
    /// The destinations.
    pub prefix: String,
    /// Bytes of the longest packet to them; none: that of the interface.
    pub mtu: Option<u32>,
    /// Initial congestion window of TCP, in segments; none: the kernel's.
    pub initial_window: Option<u32>,
    /// Initial receive window of TCP, in segments; none: the kernel's.
    pub initial_receive_window: Option<u32>,
    /// Acknowledge every TCP segment at once.
    #[serde(default)]
    pub quick_ack: bool,
}

impl RouteSettings {
    /// Its metrics, as `ip route` says them.
    pub fn metrics(&self) -> String {
        let metrics = [
            ("mtu", self.mtu),
            ("initcwnd", self.initial_window),
            ("initrwnd", self.initial_receive_window),
            ("quickack", self.quick_ack.then_some(1)),
        ];
        let words = metrics
            .iter()
            .filter_map(|(name, value)| value.map(|value| format!(" {name} {value}")));
        words.collect()
    }
}

fn default_mtu() -> u32 {
    1500
}

/// Some bits of a packet's firewall mark: `mask` says which, `value` what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// No bits outside the mask.
    pub value: u32,
    /// Not zero.
    pub mask: u32,
}

/// A pair of legs of a routed box: packets that come in by one leave by the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LegPair {
    /// The interface towards the world.
    pub world: String,
    /// The interface towards the island.
    pub island: String,
    /// The routing table of both interfaces' routes, for packets that come in by them and for
    /// packets with the mark; none: the main one.
    pub table: Option<u32>,
    /// Packets that come in by the pair get it; packets of programs that have it use the table.
    pub mark: Option<Mark>,
    /// Treat frames addressed to others as addressed to this machine, and route them.
    #[serde(default)]
    pub accept_foreign: bool,
}

impl LegPair {
    /// Both interfaces.
    pub fn interfaces(&self) -> [&str; 2] {
        [&self.world, &self.island]
    }
}

/// Packets between hosts of the experiment with the mark are delivered to sockets of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalDelivery {
    /// Its own routing table.
    pub table: u32,
    /// The mark.
    pub mark: Mark,
}

/// A rule for packets that come in. The first one with a verdict decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketRule {
    /// Experiment interfaces that the packets come in by; `lo`: packets that programs of this machine
    /// send to the experiment's hosts, and that local delivery returns.
    pub interfaces: Vec<String>,
    /// Which packets.
    pub packets: PacketKind,
    /// Only those of a socket of this machine that is transparent (`IP_TRANSPARENT`).
    #[serde(default)]
    pub transparent_socket: bool,
    /// Only those with this mark.
    pub mark: Option<Mark>,
    /// The mark that they get; the other bits stay.
    pub set_mark: Option<Mark>,
    /// The TCP or UDP port of the transparent listener, at 127.0.0.1 or any address, that they go to.
    pub tproxy_port: Option<u16>,
    /// None: later rules apply, too.
    pub verdict: Option<RuleVerdict>,
}

/// Packets between hosts of the experiment, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacketKind {
    /// IPv4.
    All,
    /// TCP.
    Tcp,
    /// The first of a TCP connection.
    Syn,
    /// UDP.
    Udp,
    /// ICMP messages about other packets. They may come from any router.
    IcmpErrors,
    /// Those about TCP.
    TcpIcmpErrors,
}

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleVerdict {
    /// It goes on.
    Accept,
    /// It does not.
    Drop,
}

impl HostSettings {
    /// Whether an interface is one of these settings; if not, why.
    pub fn check_interface(&self, name: &str) -> Result<(), String> {
        if self.interfaces.iter().any(|i| i.name == name) {
            return Ok(());
        }
        Err(format!(
            "{name} is not an experiment interface of this machine"
        ))
    }
}

impl Mark {
    /// Whether the mask has all bits of the value; if not, why.
    pub fn check(self) -> Result<(), String> {
        if self.mask == 0 || self.value & !self.mask != 0 {
            return Err(format!(
                "{self} is not a valid mark: bits outside the mask are set"
            ));
        }
        Ok(())
    }
}

/// As `ip rule` says it.
impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A transparent proxy with two pairs of legs, as docs/contracts.md shows it.
    pub fn box_with_spare_legs() -> HostSettings {
        let interface = |name: &str, number: u8, side: u8| {
            serde_json::json!({
                "name": name, "mac": format!("02:00:00:00:03:{number:02x}"), "address": null,
                "routes": [{"prefix": format!("10.{side}0.0.0/16")}],
                "neighbours": [[format!("10.{side}0.0.1"), "02:00:00:00:01:01"]], "promiscuous": true,
            })
        };
        serde_json::from_value(serde_json::json!({
            "host": "pep-w",
            "interfaces": [
                interface("w1", 1, 1), interface("i1", 2, 2), interface("w2", 3, 1), interface("i2", 4, 2),
            ],
            "sysctls": [],
            "forwarding": true,
            "legs": [
                {"world": "w1", "island": "i1", "mark": {"value": 0, "mask": 6}, "accept_foreign": true},
                {"world": "w2", "island": "i2", "table": 2, "mark": {"value": 2, "mask": 6}, "accept_foreign": true},
            ],
            "local": {"table": 100, "mark": {"value": 1, "mask": 1}},
            "packet_rules": [
                {"interfaces": ["w1", "i1", "w2", "i2"], "packets": "tcp", "transparent_socket": true,
                 "set_mark": {"value": 1, "mask": 1}, "verdict": "accept"},
                {"interfaces": ["i1", "i2"], "packets": "syn", "verdict": "drop"},
                {"interfaces": ["lo"], "packets": "syn", "mark": {"value": 3, "mask": 7}, "tproxy_port": 5001,
                 "verdict": "accept"},
                {"interfaces": ["w1", "w2"], "packets": "icmp-errors", "set_mark": {"value": 1, "mask": 1}},
            ],
        }))
        .unwrap()
    }

    #[test]
    fn a_key_that_is_not_known_is_refused() {
        let refusal = |place: &str, key: &str| {
            let mut settings = serde_json::to_value(box_with_spare_legs()).unwrap();
            settings.pointer_mut(place).unwrap()[key] = 1.into();
            let read: Result<HostSettings, _> = serde_json::from_value(settings);
            read.unwrap_err().to_string()
        };
        for place in [
            "",
            "/interfaces/0",
            "/interfaces/0/routes/0",
            "/legs/0",
            "/local",
            "/local/mark",
            "/packet_rules/0",
        ] {
            let words = refusal(place, "dports");
            assert!(words.contains("unknown field `dports`"), "{place}: {words}");
        }
    }

    #[test]
    fn a_mark_has_no_bits_outside_its_mask() {
        let mark = |value, mask| Mark { value, mask }.check();
        mark(2, 6).unwrap();
        mark(0, 6).unwrap();
        assert_eq!(
            mark(8, 6).unwrap_err(),
            "0x8/0x6 is not a valid mark: bits outside the mask are set"
        );
        assert!(mark(0, 0).is_err());
    }
}
