// SPDX-License-Identifier: Apache-2.0
//! Configuration lines of both programs, and requests to them, one line of JSON each (docs/contracts.md).

use atoll_frame_engine::Departures;
use atoll_job::wrong_setting;
use atoll_link_model::{ConfigError, DelaySettings, JitterSettings, LinkSettings};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io;

/// `atoll-host link`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkConfig {
    /// Interface towards the world.
    pub(crate) world: String,
    /// Interface towards the island.
    pub(crate) island: String,
    #[serde(default)]
    pub(crate) counts: Counted,
    /// Largest packet in bytes; larger ones are refused.
    pub(crate) mtu: u32,
    pub(crate) seed: u64,
    pub(crate) to_island: LinkSettings,
    pub(crate) to_world: LinkSettings,
    /// How long to spin before a departure, at most; by default what the machine allows.
    pub(crate) spin_ns: Option<u64>,
    /// By default what suits the clock.
    pub(crate) departures: Option<Departures>,
    /// Lateness from which a departure is a stall.
    pub(crate) stall_from_ns: Option<u64>,
}

/// The layers whose bytes rate, queue and counters include.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Counted {
    /// The IP packet.
    #[default]
    Ip,
    /// The IP packet and 14 bytes of Ethernet header.
    Ethernet,
}

/// `atoll-host delay`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelayConfig {
    /// Interface that all classes with a VLAN share.
    pub(crate) trunk: Option<String>,
    pub(crate) mtu: u32,
    pub(crate) seed: u64,
    pub(crate) classes: Vec<ClassConfig>,
    pub(crate) spin_ns: Option<u64>,
    pub(crate) departures: Option<Departures>,
    pub(crate) stall_from_ns: Option<u64>,
}

/// A latency class: of a VLAN on the trunk, or of untagged frames that go from one interface to another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClassConfig {
    /// Without a VLAN a number above all VLAN ids.
    pub(crate) vlan: u16,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    delay_ns: u64,
    /// Half-width of the uniform distribution around `delay_ns`: the short form of `jitter`.
    #[serde(default)]
    jitter_ns: u64,
    jitter: Option<JitterSettings>,
    /// Whether packets of the class may overtake others of it.
    #[serde(default)]
    reorder: bool,
}

impl ClassConfig {
    pub(crate) fn settings(&self) -> DelaySettings {
        DelaySettings {
            delay_ns: self.delay_ns,
            jitter: self
                .jitter
                .unwrap_or(JitterSettings::uniform(self.jitter_ns)),
            reorder: self.reorder,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.jitter_ns > 0 && self.jitter.is_some() {
            return Err(ConfigError::JitterTwice);
        }
        self.settings().check()
    }
}

impl LinkConfig {
    /// # Errors
    /// The first thing wrong with `line`.
    pub(crate) fn parse(line: &str) -> io::Result<Self> {
        let config: Self = atoll_job::configuration(line)?;
        check_mtu(config.mtu)?;
        if config.world == config.island {
            return Err(wrong_setting(format!(
                "world and island are both '{}': a link needs two interfaces",
                config.world
            )));
        }
        check_directions(Some(&config.to_island), Some(&config.to_world)).map_err(wrong_setting)?;
        Ok(config)
    }
}

/// VLAN ids have twelve bits.
const LAST_VLAN: u16 = 4095;

impl DelayConfig {
    /// The interfaces: the trunk first, then those that classes name, each once.
    pub(crate) fn interfaces(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.trunk.iter().map(String::as_str).collect();
        for class in &self.classes {
            for name in [&class.from, &class.to].into_iter().flatten() {
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// # Errors
    /// The first thing wrong with `line`.
    pub(crate) fn parse(line: &str) -> io::Result<Self> {
        let config: Self = atoll_job::configuration(line)?;
        check_mtu(config.mtu)?;
        let mut vlans = BTreeSet::new();
        for class in &config.classes {
            let vlan = class.vlan;
            match (&class.from, &class.to) {
                (None, None) if !(1..=4094).contains(&vlan) => {
                    return Err(wrong_setting(format!(
                        "vlan {vlan} is out of range: 1 to 4094"
                    )));
                }
                (None, None) if config.trunk.is_none() => {
                    return Err(wrong_setting(format!("vlan {vlan} needs a trunk")));
                }
                (None, None) => {}
                (Some(from), Some(to)) if from != to && vlan > LAST_VLAN => {}
                _ => {
                    return Err(wrong_setting(format!(
                        "class {vlan} needs both from and to, two interfaces, and a number above {LAST_VLAN}"
                    )));
                }
            }
            if !vlans.insert(vlan) {
                return Err(wrong_setting(format!("vlan {vlan} has two classes")));
            }
            let checked = class.check();
            checked.map_err(|error| wrong_setting(format!("vlan {vlan}: {error}")))?;
        }
        Ok(config)
    }
}

/// From the least an IPv4 link may have (RFC 791) to jumbo frames.
fn check_mtu(mtu: u32) -> io::Result<()> {
    if (68..=9216).contains(&mtu) {
        return Ok(());
    }
    Err(wrong_setting(format!(
        "mtu {mtu} is out of range: 68 to 9216"
    )))
}

/// A request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request<C> {
    /// End a measurement, begin the next one.
    Mark {
        /// Repeated in the answer.
        id: u64,
    },
    /// Change settings.
    Set(C),
    /// Time 0 of the traces is now.
    TraceStart {
        /// Repeated in the answer.
        id: u64,
    },
}

/// Settings of a link as in its configuration; absent ones stay.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkChange {
    /// Repeated in the answer.
    pub(crate) id: u64,
    pub(crate) to_island: Option<LinkSettings>,
    pub(crate) to_world: Option<LinkSettings>,
    pub(crate) counts: Option<Counted>,
    pub(crate) stall_from_ns: Option<u64>,
}

/// Settings of a delay box; absent ones stay.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelayChange {
    /// Repeated in the answer.
    pub(crate) id: u64,
    /// The class that gets `delay_ns`.
    pub(crate) vlan: Option<u16>,
    pub(crate) delay_ns: Option<u64>,
    pub(crate) stall_from_ns: Option<u64>,
}

/// Check the settings of both directions of a link, as far as they are given.
///
/// # Errors
/// The first setting out of its range, with its direction.
pub(crate) fn check_directions(
    to_island: Option<&LinkSettings>,
    to_world: Option<&LinkSettings>,
) -> Result<(), String> {
    for (name, settings) in [("to_island", to_island), ("to_world", to_world)] {
        let checked = settings.map_or(Ok(()), LinkSettings::check);
        checked.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = r#"{"world":"w","island":"i","counts":"ip","mtu":1500,"seed":1,
        "to_island":{"rate_bit_s":16000000,"delay_ns":250000000,"jitter_ns":0,"queue_bytes":100000},
        "to_world":{"rate_bit_s":4000000,"delay_ns":250000000,"jitter_ns":0,"queue_bytes":100000}}"#;

    #[test]
    fn a_link_is_read_as_written() {
        let config = LinkConfig::parse(LINK).unwrap();
        assert_eq!(config.to_island.rate_bit_s, 16_000_000);
        assert_eq!((config.counts, config.spin_ns), (Counted::Ip, None));
        assert_eq!(config.departures, None);
    }

    #[test]
    fn departures_are_the_kernels_or_the_engines() {
        let asked = |who: &str| {
            let line = LINK.replacen("\"mtu\"", &format!("\"departures\":\"{who}\",\"mtu\""), 1);
            LinkConfig::parse(&line).map(|config| config.departures)
        };
        assert_eq!(asked("kernel").unwrap(), Some(Departures::Kernel));
        assert_eq!(asked("engine").unwrap(), Some(Departures::Engine));
        assert!(
            asked("nobody")
                .unwrap_err()
                .to_string()
                .contains("`kernel`")
        );
    }

    #[test]
    fn each_mistake_gets_a_line_that_names_it() {
        let mistakes = [
            ("\"w\"", "\"i\"", "both 'i'"),
            ("1500", "15", "mtu 15 "),
            ("16000000", "0", "to_island: rate_bit_s 0 "),
            (
                "\"jitter_ns\":0,\"queue_bytes\":100000}}",
                "\"jitter_ns\":300000000,\"queue_bytes\":0}}",
                "to_world: jitter_ns",
            ),
            ("\"seed\"", "\"seeed\"", "seeed"),
            ("}}", "", "EOF"),
        ];
        for (right, wrong, message) in mistakes {
            let error = LinkConfig::parse(&LINK.replacen(right, wrong, 1))
                .unwrap_err()
                .to_string();
            assert!(error.contains(message), "{error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn a_class_without_a_vlan_has_two_interfaces_and_a_number_above_all_ids() {
        let parsed = |class: &str| {
            DelayConfig::parse(&format!(
                r#"{{"mtu":1500,"seed":1,"classes":[{{"delay_ns":1,{class}}}]}}"#
            ))
        };
        let config = parsed(r#""vlan":4096,"from":"w","to":"i""#).unwrap();
        assert_eq!(config.interfaces(), ["w", "i"]);
        for wrong in [
            r#""vlan":4096,"from":"w","to":"w""#,
            r#""vlan":4096,"from":"w""#,
            r#""vlan":101,"from":"w","to":"i""#,
        ] {
            let error = parsed(wrong).unwrap_err().to_string();
            assert!(error.contains("needs both from and to"), "{error}");
        }
        let error = parsed(r#""vlan":101"#).unwrap_err();
        assert_eq!(error.to_string(), "configuration: vlan 101 needs a trunk");
    }

    #[test]
    fn classes_with_the_same_or_an_impossible_vlan_are_refused() {
        let line = |vlan: u32| {
            format!(
                r#"{{"trunk":"t","mtu":1500,"seed":1,"classes":[{{"vlan":101,"delay_ns":1}},{{"vlan":{vlan},"delay_ns":1}}]}}"#
            )
        };
        assert_eq!(DelayConfig::parse(&line(102)).unwrap().classes.len(), 2);
        for (vlan, message) in [
            (101, "vlan 101 has two classes"),
            (4095, "vlan 4095 is out of range"),
            (0, "vlan 0 is out of range"),
        ] {
            let error = DelayConfig::parse(&line(vlan)).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            assert!(atoll_job::is_bad_configuration(&error));
        }
    }
}
