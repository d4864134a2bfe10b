// SPDX-License-Identifier: Apache-2.0
//! Applying host settings, and undoing them.

use crate::AgentError;
use crate::command::run_tool;
use crate::counters;
use crate::host_config::{InterfaceState, MachineState, NeighbourState};
use crate::namespace::Namespace;
use crate::offloads::{self, Features, on_off};
use crate::policy_routing::RouteState;
use crate::settings::HostSettings;
use crate::sysctl;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Times that undoing is attempted, as a tool may fail where the kernel is short of memory.
const UNDO_ATTEMPTS: usize = 3;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(200);

/// What `ip` says if the object to delete does not exist: a route, a neighbour or rule, an address, a routing table.
const ABSENT_ERRORS: [&str; 5] = [
    "No such process",
    "No such file or directory",
    "Cannot assign requested address",
    "Address not found",
    "FIB table does not exist",
];

/// Settings applied to one machine, and its state before. Its namespace is held open, so that they
/// can be undone after the process that created it has ended.
#[derive(Debug)]
pub struct HostState {
    namespace: Namespace,
    settings: HostSettings,
    before: FormerState,
    /// An attempt to undo the settings was made, so that some of them are no longer there.
    undone: bool,
}

/// The machine's state before anything is done to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FormerState {
    sysctls: Vec<(String, String)>,
    offloads: BTreeMap<String, Features>,
    machine: MachineState,
}

impl HostState {
    /// Read the state of a machine before `settings` are applied to it; an error when they are for another machine.
    pub fn read_before(namespace: Namespace, settings: HostSettings) -> Result<Self, AgentError> {
        let before = namespace.run(|| FormerState::read(&settings))?;
        Ok(Self {
            namespace,
            settings,
            before,
            undone: false,
        })
    }

    /// Settings applied by another agent, from its journal.
    pub fn from_journal(namespace: Namespace, settings: HostSettings, before: FormerState) -> Self {
        Self {
            namespace,
            settings,
            before,
            undone: true,
        }
    }

    /// Apply the settings. After a failure, [`Self::undo`] restores the machine.
    pub fn apply(&self) -> Result<(), AgentError> {
        self.namespace
            .run(|| apply_settings(&self.settings, &self.before))
    }

    /// Whether other settings can replace these while packets pass: all of these are there, and they differ in routes,
    /// sysctls and packet rules only.
    pub fn can_change_to(&self, settings: &HostSettings) -> bool {
        !self.undone && self.settings.without_routes() == settings.without_routes()
    }

    /// Note other settings, and the values before of their sysctls; returns these ones, for [`Self::apply_change`].
    pub fn record_change(&mut self, settings: HostSettings) -> Result<HostSettings, AgentError> {
        let refuse = |message| AgentError::Machine(format!("{}: {message}", settings.host));
        settings.check().map_err(refuse)?;
        let known_sysctls = &self.before.sysctls;
        let new: Vec<_> = sysctls_of(&settings)
            .into_iter()
            .filter(|(name, _)| known_sysctls.iter().all(|(known, _)| known != name))
            .collect();
        let values = self.namespace.run(|| sysctl::read_all(&new))?;
        self.before.sysctls.extend(values);
        Ok(std::mem::replace(&mut self.settings, settings))
    }

    /// Apply only what differs from `former`. After a failure, [`Self::undo`] restores the machine.
    pub fn apply_change(&self, former: &HostSettings) -> Result<(), AgentError> {
        self.namespace
            .run(|| apply_differences(former, &self.settings, &self.before))
    }

    /// Settings and the state before, if they are for the agent's own network namespace.
    pub fn entry(&self) -> Option<(HostSettings, FormerState)> {
        self.namespace
            .is_own()
            .then(|| (self.settings.clone(), self.before.clone()))
    }

    /// Sysctls before, and offloads that were switched off, for the run's manifest.
    pub fn former_values(&self) -> Value {
        let offloads: Map<String, Value> = self
            .before
            .offloads
            .iter()
            .map(|(interface, features)| (interface.clone(), features_json(features)))
            .collect();
        json!({"sysctls": self.before.sysctls, "offloads": offloads})
    }

    /// Restore everything that the machine still has. May be repeated.
    pub fn undo(&mut self) -> Result<(), AgentError> {
        self.undone = true;
        let attempt = || {
            self.namespace
                .run(|| Ok(self.before.restore(&self.settings)))
        };
        let mut problems = attempt()?;
        for _ in 1..UNDO_ATTEMPTS {
            if problems.is_empty() {
                break;
            }
            thread::sleep(ATTEMPT_INTERVAL);
            problems = attempt()?;
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(AgentError::Machine(format!(
            "{} is not fully restored: {}",
            self.settings.host,
            problems.join("; ")
        )))
    }
}

impl FormerState {
    fn read(settings: &HostSettings) -> Result<Self, AgentError> {
        let refuse = |message| AgentError::Machine(format!("{}: {message}", settings.host));
        settings.check().map_err(refuse)?;
        if !settings.own_tables().is_empty() {
            let arguments = ["-N", "-json", "route", "show", "table", "all"];
            let routes: Vec<RouteState> = serde_json::from_str(&run_tool("ip", &arguments, "")?)?;
            settings.check_tables(&routes).map_err(refuse)?;
        }
        let (interfaces, neighbours) = read_machine_state()?;
        let interfaces = settings.match_machine(&interfaces).map_err(refuse)?;
        let offloads = settings
            .interfaces
            .iter()
            .map(|interface| Ok((interface.name.clone(), offloads::read(&interface.name)?)))
            .collect::<Result<_, AgentError>>()?;
        Ok(Self {
            sysctls: sysctl::read_all(&sysctls_of(settings))?,
            offloads,
            machine: MachineState {
                interfaces,
                neighbours,
            },
        })
    }

    /// Undo the steps taken, last first; returns failures as messages. Settings of an interface that no longer exists, or
    /// disappears meanwhile, are gone with it.
    fn restore(&self, settings: &HostSettings) -> Vec<String> {
        let read_present = || Ok(settings.present_in(&read_machine_state()?.0));
        let present_settings = match read_present() {
            Ok(present_settings) => present_settings,
            Err(error) => return vec![AgentError::to_string(&error)],
        };
        let problems = self.undo_steps(settings, &present_settings);
        let vanished = read_present().is_ok_and(|later| later != present_settings);
        if vanished { Vec::new() } else { problems }
    }

    fn undo_steps(&self, settings: &HostSettings, present: &HostSettings) -> Vec<String> {
        let mut problems = Vec::new();
        let mut attempt = |step: Result<(), AgentError>| {
            problems.extend(step.err().map(|error| error.to_string()));
        };
        if settings.forwarding == Some(true) {
            // Without the rules, packets would pass by the program of the box.
            for (name, value) in present.interface_sysctls("forwarding", "0") {
                attempt(sysctl::write(&name, &value).map(drop));
            }
        }
        attempt(run_nft(&settings.nft_undo()));
        let batch = settings.delete_rules() + &present.undo_batch(&self.machine);
        attempt(undo_batch(&batch));
        for interface in &present.interfaces {
            if let Some(features) = self.offloads.get(&interface.name) {
                attempt(offloads::restore(&interface.name, features));
            }
        }
        problems.extend(sysctl::restore(&self.sysctls));
        problems
    }
}

fn apply_settings(settings: &HostSettings, before: &FormerState) -> Result<(), AgentError> {
    // Nothing is forwarded before the rules for it are there.
    let (forwarding, sysctls): (Vec<_>, Vec<_>) = sysctls_of(settings)
        .into_iter()
        .partition(|(name, value)| name.ends_with(".forwarding") && value == "1");
    sysctl::write_all(&sysctls)?;
    for interface in &settings.interfaces {
        offloads::switch_off(&interface.name, &before.offloads[&interface.name])?;
    }
    let stale = settings.delete_rules();
    if !stale.is_empty() {
        run_tool("ip", &["-force", "-batch", "-"], &stale).ok(); // of an agent that was killed: as a rule there are none
    }
    run_batch(&settings.ip_batch())?;
    run_nft(&settings.nft_script())?;
    sysctl::write_all(&forwarding).map(drop)
}

fn apply_differences(
    former: &HostSettings,
    settings: &HostSettings,
    before: &FormerState,
) -> Result<(), AgentError> {
    let (old, new) = (sysctls_of(former), sysctls_of(settings));
    let is_of =
        |sysctls: &[(String, String)], name: &str| sysctls.iter().any(|(other, _)| other == name);
    let changed: Vec<_> = new
        .iter()
        .filter(|sysctl| !old.contains(sysctl))
        .cloned()
        .collect();
    sysctl::write_all(&changed)?;
    let is_stale = |(name, _): &&(String, String)| is_of(&old, name) && !is_of(&new, name);
    let stale: Vec<_> = before.sysctls.iter().filter(is_stale).cloned().collect();
    let problems = sysctl::restore(&stale);
    let batch = settings.ip_batch();
    let former_lines: BTreeSet<_> = former
        .ip_batch()
        .split_inclusive('\n')
        .map(str::to_owned)
        .collect();
    let routes = batch
        .split_inclusive('\n')
        .filter(|line| !former_lines.contains(*line));
    run_batch(&routes.collect::<String>())?;
    let current = settings.deletions();
    let removed = former
        .deletions()
        .into_iter()
        .filter(|line| !current.contains(line));
    undo_batch(&removed.collect::<String>())?; // a route is gone already if another interface has its prefix now
    if former.nft_script() != settings.nft_script() {
        run_nft(&(former.nft_undo() + &settings.nft_script()))?; // one transaction
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(AgentError::Machine(problems.join("; ")))
}

fn run_nft(script: &str) -> Result<(), AgentError> {
    if script.is_empty() {
        return Ok(());
    }
    run_tool("nft", &["-f", "-"], script).map(drop)
}

fn sysctls_of(settings: &HostSettings) -> Vec<(String, String)> {
    let conf = Path::new("/proc/sys/net/ipv6/conf");
    settings.all_sysctls(|interface| conf.join(interface).exists())
}

/// All interfaces and permanent neighbours, by one process.
fn read_machine_state() -> Result<(Vec<InterfaceState>, Vec<NeighbourState>), AgentError> {
    let commands = "address show\nneighbour show nud permanent\n";
    let output = run_tool("ip", &["-json", "-batch", "-"], commands)?;
    let mut output = serde_json::Deserializer::from_str(&output);
    let interfaces = Vec::deserialize(&mut output)?;
    Ok((interfaces, Vec::deserialize(&mut output)?))
}

/// Run `ip -batch`; an error names the line of the batch that failed.
fn run_batch(batch: &str) -> Result<(), AgentError> {
    if batch.is_empty() {
        return Ok(());
    }
    let Err(error) = run_tool("ip", &["-batch", "-"], batch) else {
        return Ok(());
    };
    let AgentError::Tool { message, .. } = &error else {
        return Err(error);
    };
    // "Error: Device does not exist.; Command failed -:3"
    let Some((error_text, number)) = message.rsplit_once("Command failed -:") else {
        return Err(error);
    };
    let line = number
        .trim()
        .parse::<usize>()
        .ok()
        .and_then(|n| batch.lines().nth(n - 1));
    Err(AgentError::Tool {
        tool: format!("ip {}", line.unwrap_or("-batch")),
        message: error_text.trim_end_matches([';', ' ']).to_owned(),
    })
}

/// Run `ip -force -batch`. Deletions of objects that are not there have not failed: they were not made, or an earlier
/// attempt has deleted them.
fn undo_batch(batch: &str) -> Result<(), AgentError> {
    if batch.is_empty() {
        return Ok(());
    }
    match run_tool("ip", &["-force", "-batch", "-"], batch) {
        Err(AgentError::Tool { tool, message }) => {
            let failed = failed_lines(batch, &message);
            if failed.is_empty() {
                return Ok(());
            }
            let message = failed.join("; ");
            Err(AgentError::Tool { tool, message })
        }
        done => done.map(drop),
    }
}

/// The lines of a batch that failed, each with its complaint: "RTNETLINK answers: No such process; Command failed -:3".
fn failed_lines(batch: &str, message: &str) -> Vec<String> {
    let mut failed = Vec::new();
    let mut error_text = Vec::new();
    for part in message.split("; ") {
        let Some(number) = part.strip_prefix("Command failed -:") else {
            error_text.push(part);
            continue;
        };
        let number: Option<usize> = number.parse().ok();
        let line = number.and_then(|number| batch.lines().nth(number.checked_sub(1)?));
        let (line, errors) = (line.unwrap_or("-batch"), error_text.join("; "));
        error_text.clear();
        if !line.contains(" delete ") || !ABSENT_ERRORS.iter().any(|text| errors.contains(text)) {
            failed.push(format!("{line}: {errors}"));
        }
    }
    failed.extend(error_text.into_iter().map(str::to_owned));
    failed
}

/// The answer to `read`, from the calling thread's namespace.
pub fn read(sysctls: &[String], interfaces: &[String]) -> Result<Map<String, Value>, AgentError> {
    let mut values = Map::new();
    for name in sysctls {
        values.insert(name.clone(), sysctl::read(name)?.into());
    }
    let mut features = Map::new();
    for interface in interfaces {
        features.insert(
            interface.clone(),
            features_json(&offloads::read(interface)?),
        );
    }
    // Not /sys/class/net: that shows the namespace in which it was mounted.
    let table = fs::read_to_string("/proc/thread-self/net/dev")
        .map_err(AgentError::file("/proc/thread-self/net/dev"))?;
    let mut counters = Map::new();
    for interface in interfaces {
        let counter = counters::interface_counters(&table, interface)
            .ok_or_else(|| AgentError::Machine(format!("no interface {interface}")))?;
        counters.insert(interface.clone(), counter);
    }
    let mut answer = Map::new();
    answer.insert("sysctls".to_owned(), values.into());
    answer.insert("offloads".to_owned(), features.into());
    answer.insert("counters".to_owned(), counters.into());
    Ok(answer)
}

fn features_json(features: &Features) -> Value {
    let states = features
        .iter()
        .map(|(name, feature)| (name.clone(), on_off(feature.on).into()));
    Value::Object(states.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleting_what_is_not_there_is_no_failure() {
        let batch =
            "rule delete priority 12\nroute delete 10.1.0.0/16 dev x\nlink set dev x mtu 9000 up\n";
        let message = "RTNETLINK answers: No such file or directory; Command failed -:1; \
                       RTNETLINK answers: No such process; Command failed -:2";
        assert!(failed_lines(batch, message).is_empty());
        let message = "RTNETLINK answers: No such file or directory; Command failed -:1; \
                       RTNETLINK answers: Operation not permitted; Command failed -:2; \
                       Error: mtu greater than device maximum.; Command failed -:3; out of memory";
        assert_eq!(
            failed_lines(batch, message),
            [
                "route delete 10.1.0.0/16 dev x: RTNETLINK answers: Operation not permitted",
                "link set dev x mtu 9000 up: Error: mtu greater than device maximum.",
                "out of memory",
            ]
        );
    }
}
