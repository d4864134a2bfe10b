// SPDX-License-Identifier: Apache-2.0
//! Leg pairs and their routing tables, firewall marks, local delivery: as lines for `ip -batch`.
//!
//! Every rule names an experiment interface, or a mark and one of the prefixes that the machine has
//! experiment routes to. Rules and routes carry [`PROTOCOL`], so that those of others with the same
//! words are never deleted.

use crate::settings::{HostSettings, LegPair, LocalDelivery};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A route as it is: one element of `ip -N -json route show table all`.
#[derive(Debug, Deserialize)]
pub struct RouteState {
    #[serde(default)]
    table: String,
    #[serde(default)]
    protocol: String,
    dst: String,
}

/// The routing protocol number of everything here: no routing daemon's.
const PROTOCOL: &str = "97";

/// Where rules are: before the main table, and before the rules that people make without a priority.
const LOCAL_PRIORITY: u32 = 10;
const MARK_PRIORITY: u32 = 11;
const LEG_PRIORITY: u32 = 12;

impl LegPair {
    /// Whether tables and marks tell this pair from another; if not, why.
    fn check_distinct(&self, other: &Self) -> Result<(), String> {
        if self.table == other.table {
            let table = self
                .table
                .map_or("the main one".to_owned(), |table| table.to_string());
            return Err(format!("two pairs of legs have one routing table, {table}"));
        }
        if let (Some(a), Some(b)) = (self.mark, other.mark) {
            if (a.value ^ b.value) & a.mask & b.mask == 0 {
                return Err(format!("a packet can have both marks {b} and {a}"));
            }
        }
        Ok(())
    }
}

impl HostSettings {
    /// Whether legs, tables and marks make sense; if not, why.
    pub fn check_routing(&self) -> Result<(), String> {
        let mut legs = BTreeSet::new();
        for name in self.legs.iter().flat_map(LegPair::interfaces) {
            self.check_interface(name)?;
            if !legs.insert(name) {
                return Err(format!("{name} is a leg twice"));
            }
        }
        for table in self.own_tables() {
            if table == 0 || (253..=255).contains(&table) {
                return Err(format!("routing table {table} belongs to the kernel"));
            }
        }
        for (number, legs) in self.legs.iter().enumerate() {
            if let Some(mark) = legs.mark {
                mark.check()?;
            }
            for other in &self.legs[..number] {
                legs.check_distinct(other)?;
            }
        }
        let Some(local) = &self.local else {
            return Ok(());
        };
        local.mark.check()?;
        if local.mark.value == 0 {
            let mark = local.mark;
            return Err(format!("packets without a mark have mark {mark} of local"));
        }
        for legs in &self.legs {
            if legs.table == Some(local.table) {
                let table = local.table;
                return Err(format!("routing table {table} is of legs and of local"));
            }
            if let Some(mark) = legs.mark.filter(|mark| mark.mask & local.mark.mask != 0) {
                let local = local.mark;
                return Err(format!("mark {mark} of legs shares bits with {local}"));
            }
        }
        Ok(())
    }

    /// Refuse routing tables that somebody else uses.
    pub fn check_tables(&self, routes: &[RouteState]) -> Result<(), String> {
        let own_tables = self.own_tables();
        let foreign = routes.iter().find(|route| {
            route.protocol != PROTOCOL
                && route
                    .table
                    .parse()
                    .is_ok_and(|table: u32| own_tables.contains(&table))
        });
        foreign.map_or(Ok(()), |route| {
            Err(format!(
                "routing table {} is in use: it has a route to {}",
                route.table, route.dst
            ))
        })
    }

    /// The routing tables besides the main one.
    pub fn own_tables(&self) -> BTreeSet<u32> {
        let leg_tables = self.legs.iter().filter_map(|legs| legs.table);
        leg_tables
            .chain(self.local.iter().map(|local| local.table))
            .collect()
    }

    /// ` table 2 protocol 97` for routes of an interface whose legs have a table.
    pub fn table_words(&self, interface: &str) -> String {
        let legs = self
            .legs
            .iter()
            .find(|legs| legs.interfaces().contains(&interface));
        legs.and_then(|legs| legs.table)
            .map(|table| format!(" table {table} protocol {PROTOCOL}"))
            .unwrap_or_default()
    }

    /// Lines that add all rules and the routes of local delivery.
    pub fn add_rules(&self) -> String {
        let mut batch = String::new();
        for route in self.local_routes() {
            let _ = writeln!(batch, "route replace {route}");
        }
        for rule in self.rules() {
            let _ = writeln!(batch, "rule add {rule}");
        }
        batch
    }

    /// Lines that take [`Self::add_rules`] back, or remove what an agent that was killed left of it.
    pub fn delete_rules(&self) -> String {
        let mut batch = String::new();
        for rule in self.rules() {
            let _ = writeln!(batch, "rule delete {rule}");
        }
        for route in self.local_routes() {
            let _ = writeln!(batch, "route delete {route}");
        }
        batch
    }

    fn rules(&self) -> Vec<String> {
        let mut rules = Vec::new();
        let mut add = |priority: u32, selector: &str, table: u32| {
            rules.push(format!(
                "priority {priority} {selector} lookup {table} protocol {PROTOCOL}"
            ));
        };
        for legs in &self.legs {
            let Some(table) = legs.table else { continue };
            for interface in legs.interfaces() {
                add(LEG_PRIORITY, &format!("iif {interface}"), table);
            }
            if let Some(mark) = legs.mark {
                for prefix in self.prefixes() {
                    add(MARK_PRIORITY, &format!("to {prefix} fwmark {mark}"), table);
                }
            }
        }
        if let Some(LocalDelivery { mark, table }) = self.local {
            for prefix in self.prefixes() {
                add(LOCAL_PRIORITY, &format!("to {prefix} fwmark {mark}"), table);
            }
        }
        rules
    }

    fn local_routes(&self) -> Vec<String> {
        let Some(LocalDelivery { table, .. }) = self.local else {
            return Vec::new();
        };
        let prefixes = self.prefixes().into_iter();
        prefixes
            .map(|prefix| format!("local {prefix} dev lo table {table} protocol {PROTOCOL}"))
            .collect()
    }

    /// The experiment's prefixes: all that the machine has routes to.
    fn prefixes(&self) -> BTreeSet<&str> {
        let interfaces = self.interfaces.iter();
        interfaces
            .flat_map(|interface| interface.routes.iter().map(|route| route.prefix.as_str()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Mark;
    use crate::settings::tests::box_with_spare_legs;

    #[test]
    fn rules_name_an_interface_or_a_mark_and_a_prefix() {
        let settings = box_with_spare_legs();
        let added = settings.add_rules();
        assert_eq!(
            added.lines().collect::<Vec<_>>(),
            [
                "route replace local 10.10.0.0/16 dev lo table 100 protocol 97",
                "route replace local 10.20.0.0/16 dev lo table 100 protocol 97",
                "rule add priority 12 iif w2 lookup 2 protocol 97",
                "rule add priority 12 iif i2 lookup 2 protocol 97",
                "rule add priority 11 to 10.10.0.0/16 fwmark 0x2/0x6 lookup 2 protocol 97",
                "rule add priority 11 to 10.20.0.0/16 fwmark 0x2/0x6 lookup 2 protocol 97",
                "rule add priority 10 to 10.10.0.0/16 fwmark 0x1/0x1 lookup 100 protocol 97",
                "rule add priority 10 to 10.20.0.0/16 fwmark 0x1/0x1 lookup 100 protocol 97",
            ]
        );
        let deleted = settings.delete_rules();
        assert_eq!(deleted.lines().count(), added.lines().count());
        for line in added.lines() {
            let undo = line
                .replace("rule add", "rule delete")
                .replace("route replace", "route delete");
            assert!(deleted.contains(&undo), "{undo}");
        }
    }

    #[test]
    fn marks_tables_and_interfaces_of_others_are_refused() {
        let refusal = |change: fn(&mut HostSettings)| {
            let mut settings = box_with_spare_legs();
            settings.check_routing().unwrap();
            change(&mut settings);
            settings.check_routing().unwrap_err()
        };
        assert_eq!(
            refusal(|settings| settings.legs[1].world = "eth0".into()),
            "eth0 is not an experiment interface of this machine"
        );
        assert_eq!(
            refusal(|settings| settings.legs[1].table = Some(254)),
            "routing table 254 belongs to the kernel"
        );
        assert_eq!(
            refusal(|settings| settings.legs[1].mark = Some(Mark { value: 2, mask: 3 })),
            "mark 0x2/0x3 of legs shares bits with 0x1/0x1"
        );
    }

    #[test]
    fn legs_and_local_delivery_have_tables_and_marks_of_their_own() {
        type Change = fn(&mut HostSettings);
        let refusal = |change: Change| {
            let mut settings = box_with_spare_legs();
            change(&mut settings);
            settings.check_routing().unwrap_err()
        };
        let cases: [(Change, &str); 7] = [
            (
                |settings| settings.legs[1].island = "i1".into(),
                "i1 is a leg twice",
            ),
            (
                |settings| settings.legs[1].island = "w2".into(),
                "w2 is a leg twice",
            ),
            (
                |settings| settings.legs[1].table = None,
                "two pairs of legs have one routing table, the main one",
            ),
            (
                |settings| settings.legs[0].table = Some(2),
                "two pairs of legs have one routing table, 2",
            ),
            (
                |settings| settings.legs[1].mark = Some(Mark { value: 8, mask: 8 }),
                "a packet can have both marks 0x0/0x6 and 0x8/0x8",
            ),
            (
                |settings| settings.legs[1].table = Some(100),
                "routing table 100 is of legs and of local",
            ),
            (
                |settings| settings.local.as_mut().unwrap().mark = Mark { value: 0, mask: 1 },
                "packets without a mark have mark 0x0/0x1 of local",
            ),
        ];
        for (change, words) in cases {
            assert_eq!(refusal(change), words);
        }
    }

    #[test]
    fn a_table_with_routes_of_others_is_refused() {
        let settings = box_with_spare_legs();
        let routes = |table: &str, protocol: &str| -> Vec<RouteState> {
            serde_json::from_value(serde_json::json!([
                {"dst": "default", "dev": "eth0", "table": table, "protocol": protocol}
            ]))
            .unwrap()
        };
        settings.check_tables(&routes("2", PROTOCOL)).unwrap();
        settings.check_tables(&routes("3", "4")).unwrap();
        assert_eq!(
            settings.check_tables(&routes("2", "4")).unwrap_err(),
            "routing table 2 is in use: it has a route to default"
        );
    }
}
