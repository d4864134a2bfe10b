// SPDX-License-Identifier: Apache-2.0
//! The rules of nftables on a machine, as a script for `nft -f -`: frames addressed to others are taken
//! in, packets are marked, dropped, or handed to a transparent proxy.
//!
//! Everything is in two tables of the agent's own. Their chains look at packets that come in by
//! experiment interfaces (or by `lo`, where a rule says so) for hosts of the experiment, and at no others.

use crate::settings::{HostSettings, LegPair, Mark, PacketKind, PacketRule, RuleVerdict};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Frames.
const NETDEV_TABLE: &str = "netdev atoll";

/// Packets.
const IP_TABLE: &str = "ip atoll";

const LOOPBACK: &str = "lo";

impl PacketKind {
    fn selector(self) -> &'static str {
        match self {
            Self::All => "ip saddr @hosts",
            Self::Tcp => "ip saddr @hosts meta l4proto tcp",
            Self::Syn => "ip saddr @hosts tcp flags & (syn | ack) == syn",
            Self::Udp => "ip saddr @hosts meta l4proto udp",
            Self::IcmpErrors => {
                "icmp type { destination-unreachable, time-exceeded, parameter-problem }"
            }
            // Behind 8 bytes of ICMP is the IPv4 header of the packet that it is about; its tenth byte is the protocol.
            Self::TcpIcmpErrors => {
                "icmp type { destination-unreachable, time-exceeded, parameter-problem } @th,136,8 6"
            }
        }
    }
}

fn set_mark_statement(mark: Mark) -> String {
    format!(
        " meta mark set meta mark & {:#x} | {:#x}",
        !mark.mask, mark.value
    )
}

impl PacketRule {
    fn statement(&self) -> String {
        let names: Vec<&str> = self.interfaces.iter().map(String::as_str).collect();
        let mut rule = format!("iifname {} {}", nft_set(&names), self.packets.selector());
        if self.transparent_socket {
            rule.push_str(" socket transparent 1");
        }
        if let Some(Mark { value, mask }) = self.mark {
            let _ = write!(rule, " meta mark & {mask:#x} == {value:#x}");
        }
        if let Some(port) = self.tproxy_port {
            let _ = write!(rule, " tproxy to 127.0.0.1:{port}");
        }
        if let Some(mark) = self.set_mark {
            rule.push_str(&set_mark_statement(mark));
        }
        rule.push_str(match self.verdict {
            Some(RuleVerdict::Accept) => " accept",
            Some(RuleVerdict::Drop) => " drop",
            None => "",
        });
        rule
    }
}

impl HostSettings {
    /// Whether the rules are for this machine's experiment interfaces only; if not, why.
    pub fn check_packet_rules(&self) -> Result<(), String> {
        for rule in &self.packet_rules {
            if rule.interfaces.is_empty() {
                return Err("a rule for packets names no interface".to_owned());
            }
            for name in rule.interfaces.iter().filter(|name| *name != LOOPBACK) {
                self.check_interface(name)?;
            }
            for mark in rule.mark.iter().chain(&rule.set_mark) {
                mark.check()?;
            }
            if rule.tproxy_port.is_some()
                && !matches!(
                    rule.packets,
                    PacketKind::Tcp | PacketKind::Syn | PacketKind::Udp
                )
            {
                return Err("a transparent proxy takes TCP or UDP".to_owned());
            }
        }
        Ok(())
    }

    /// Input of `nft -f -`; empty: nothing to do. Replaces in one transaction whatever an agent that
    /// was killed left behind.
    pub fn nft_script(&self) -> String {
        let mut script = self.nft_undo();
        if self.accepts_foreign() {
            let _ = writeln!(script, "table {NETDEV_TABLE} {{");
            let accepting = self.legs.iter().filter(|legs| legs.accept_foreign);
            for (number, name) in accepting.flat_map(LegPair::interfaces).enumerate() {
                let _ = writeln!(
                    script,
                    "chain in{number} {{ type filter hook ingress device \"{name}\" priority 0; \
                     meta pkttype other meta pkttype set host; }}",
                );
            }
            script.push_str("}\n");
        }
        if self.marks_packets() {
            let _ = writeln!(script, "table {IP_TABLE} {{\n{}}}", self.prerouting());
        }
        script
    }

    /// Input of `nft -f -` that takes [`Self::nft_script`] back, or finds that it never came that far.
    pub fn nft_undo(&self) -> String {
        let tables = [
            (self.accepts_foreign(), NETDEV_TABLE),
            (self.marks_packets(), IP_TABLE),
        ];
        let mut script = String::new();
        for (_, table) in tables.iter().filter(|(used, _)| *used) {
            let _ = writeln!(script, "add table {table}\ndelete table {table}");
        }
        script
    }

    /// Whether the machine routes frames addressed to others.
    fn accepts_foreign(&self) -> bool {
        self.legs.iter().any(|legs| legs.accept_foreign)
    }

    fn marks_packets(&self) -> bool {
        !self.packet_rules.is_empty() || self.legs.iter().any(|legs| legs.mark.is_some())
    }

    fn prerouting(&self) -> String {
        let mut table = String::from("set hosts { type ipv4_addr; ");
        let neighbours = self.interfaces.iter().flat_map(|i| &i.neighbours);
        let hosts: BTreeSet<&str> = neighbours.map(|(address, _)| address.as_str()).collect();
        if !hosts.is_empty() {
            let hosts: Vec<&str> = hosts.into_iter().collect();
            let _ = write!(table, "elements = {{ {} }}; ", hosts.join(", "));
        }
        table.push_str("}\nchain in { type filter hook prerouting priority mangle;\n");
        let names = self.interfaces.iter().map(|i| i.name.as_str());
        let uses_loopback = self
            .packet_rules
            .iter()
            .any(|rule| rule.interfaces.iter().any(|name| name == LOOPBACK));
        let names: Vec<&str> = names.chain(uses_loopback.then_some(LOOPBACK)).collect();
        let _ = writeln!(table, "iifname != {} return", nft_set(&names));
        table.push_str("ip daddr != @hosts return\n");
        for legs in &self.legs {
            if let Some(mark) = legs.mark {
                let names = nft_set(&legs.interfaces());
                let _ = writeln!(table, "iifname {names}{}", set_mark_statement(mark));
            }
        }
        for rule in &self.packet_rules {
            table.push_str(&rule.statement());
            table.push('\n');
        }
        table.push_str("}\n");
        table
    }
}

fn nft_set(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!("{{ {} }}", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::box_with_spare_legs;

    #[test]
    fn only_accepting_legs_get_an_ingress_chain() {
        let mut settings = box_with_spare_legs();
        settings.legs[1].accept_foreign = false;
        let script = settings.nft_script();
        assert_eq!(script.matches("hook ingress").count(), 2);
        assert!(script.contains("device \"w1\""));
        assert!(!script.contains("device \"w2\""));
    }

    #[test]
    fn a_box_without_rules_touches_no_table() {
        let mut settings = box_with_spare_legs();
        settings.packet_rules.clear();
        settings.legs.clear();
        assert_eq!(settings.nft_script(), "");
        assert_eq!(settings.nft_undo(), "");
    }

    #[test]
    fn rules_see_packets_of_the_experiment_alone() {
        let script = box_with_spare_legs().nft_script();
        let chain = script.split_once("priority mangle;\n").unwrap().1;
        let rules: Vec<&str> = chain.lines().take_while(|line| *line != "}").collect();
        assert_eq!(
            rules,
            [
                r#"iifname != { "w1", "i1", "w2", "i2", "lo" } return"#,
                "ip daddr != @hosts return",
                r#"iifname { "w1", "i1" } meta mark set meta mark & 0xfffffff9 | 0x0"#,
                r#"iifname { "w2", "i2" } meta mark set meta mark & 0xfffffff9 | 0x2"#,
                r#"iifname { "w1", "i1", "w2", "i2" } ip saddr @hosts meta l4proto tcp socket transparent 1 meta mark set meta mark & 0xfffffffe | 0x1 accept"#,
                r#"iifname { "i1", "i2" } ip saddr @hosts tcp flags & (syn | ack) == syn drop"#,
                r#"iifname { "lo" } ip saddr @hosts tcp flags & (syn | ack) == syn meta mark & 0x7 == 0x3 tproxy to 127.0.0.1:5001 accept"#,
                r#"iifname { "w1", "w2" } icmp type { destination-unreachable, time-exceeded, parameter-problem } meta mark set meta mark & 0xfffffffe | 0x1"#,
            ]
        );
        assert!(script.contains("elements = { 10.10.0.1, 10.20.0.1 };"));
    }

    #[test]
    fn errors_about_tcp_are_told_by_the_packet_that_they_quote() {
        let mut settings = box_with_spare_legs();
        settings.packet_rules[3].packets = PacketKind::TcpIcmpErrors;
        let script = settings.nft_script();
        let rule = "parameter-problem } @th,136,8 6 meta mark set meta mark & 0xfffffffe | 0x1\n";
        assert!(script.contains(rule), "{script}");
    }

    #[test]
    fn rules_for_other_interfaces_are_refused() {
        let mut settings = box_with_spare_legs();
        settings.check_packet_rules().unwrap();
        settings.packet_rules[3].tproxy_port = Some(1);
        let refusal = settings.check_packet_rules().unwrap_err();
        assert_eq!(refusal, "a transparent proxy takes TCP or UDP");
        settings.packet_rules[0].interfaces[0] = "eth0".into();
        let refusal = settings.check_packet_rules().unwrap_err();
        assert_eq!(
            refusal,
            "eth0 is not an experiment interface of this machine"
        );
        settings.packet_rules[0].interfaces.clear();
        assert!(settings.check_packet_rules().is_err());
    }
}
