// SPDX-License-Identifier: Apache-2.0
//! The state that the agent has applied to machines: settings, the values before, and the lock of the machine.
//!
//! On a locked machine every change is first written to a journal that does not survive a restart of the machine. The
//! next agent that locks the machine first undoes the changes of an agent that was killed.

use crate::AgentError;
use crate::host_setup::{FormerState, HostState};
use crate::machine_lock::{self, MachineLock};
use crate::namespace::Namespace;
use crate::settings::HostSettings;
use crate::sysctl;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// All settings that are applied and not undone.
#[derive(Debug, Default)]
pub struct AppliedState {
    hosts: BTreeMap<String, HostState>,
    sysctls: sysctl::OriginalSysctls,
    lock: Option<MachineLock>,
    /// Everything was undone, and the agent ends.
    closed: bool,
}

/// The journal: settings of the agent's own network namespace.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Journal {
    hosts: Vec<(HostSettings, FormerState)>,
    sysctls: Vec<(String, String)>,
}

impl AppliedState {
    /// Lock the machine, and undo the changes of an agent that was killed.
    pub fn acquire_lock(&mut self, owner: &str) -> Result<(), AgentError> {
        self.check_open()?;
        if self.lock.is_none() {
            let lock = MachineLock::acquire(owner)?;
            undo_leftovers()?;
            self.lock = Some(lock);
        }
        Ok(())
    }

    /// Set up a machine; returns its state before. On failure its state is restored.
    pub fn set(
        &mut self,
        host: &str,
        netns: Option<&Path>,
        settings: HostSettings,
    ) -> Result<Value, AgentError> {
        self.check_open()?;
        let applied = self.hosts.get_mut(host);
        if let Some(applied) = applied.filter(|applied| applied.can_change_to(&settings)) {
            let former = applied.record_change(settings)?;
            return self.apply_or_restore(host, |applied| applied.apply_change(&former));
        }
        let namespace = Namespace::open(netns)?;
        if self.hosts.contains_key(host) {
            self.unset(host)?;
        }
        let applied = HostState::read_before(namespace, settings)?;
        self.hosts.insert(host.to_owned(), applied);
        self.apply_or_restore(host, HostState::apply)
    }

    /// Write the journal and take steps on a machine; returns its state before all. After a failure it is restored.
    fn apply_or_restore(
        &mut self,
        host: &str,
        change: impl FnOnce(&HostState) -> Result<(), AgentError>,
    ) -> Result<Value, AgentError> {
        let result = self.save_journal().and_then(|()| change(&self.hosts[host]));
        let Err(error) = result else {
            return Ok(self.hosts[host].former_values());
        };
        Err(match self.unset(host) {
            Ok(()) => error,
            Err(problem) => AgentError::Machine(format!("{error}; {problem}")),
        })
    }

    /// Undo [`Self::set`]. After a failure the settings remain here and in the journal, to be undone later.
    pub fn unset(&mut self, host: &str) -> Result<(), AgentError> {
        let applied = self
            .hosts
            .get_mut(host)
            .ok_or_else(|| AgentError::Machine(format!("no settings were made on {host:?}")))?;
        applied.undo()?;
        self.hosts.remove(host);
        self.save_journal()
    }

    /// Write and verify sysctls; returns their values before.
    pub fn sysctl(
        &mut self,
        netns: Option<PathBuf>,
        sysctls: &[(String, String)],
    ) -> Result<Vec<(String, String)>, AgentError> {
        self.check_open()?;
        let namespace = Namespace::open(netns.as_deref())?;
        let former = namespace.run(|| sysctl::read_all(sysctls))?;
        let namespace_index = self.sysctls.record(netns, namespace, &former);
        self.save_journal()?;
        let namespace = self.sysctls.namespace(namespace_index);
        namespace.run(|| sysctl::write_all(sysctls))
    }

    /// Undo everything, unlock the machine, and refuse new settings from now on; returns failures as messages. The
    /// journal keeps what is left for the next agent.
    pub fn undo(&mut self) -> Vec<String> {
        self.closed = true;
        let mut problems = self.sysctls.restore();
        self.hosts.retain(|_, applied| {
            let failure = applied.undo().err();
            problems.extend(failure.as_ref().map(AgentError::to_string));
            failure.is_some()
        });
        problems.extend(self.save_journal().err().map(|error| error.to_string()));
        self.lock = None;
        problems
    }

    fn check_open(&self) -> Result<(), AgentError> {
        if self.closed {
            return Err(AgentError::Machine("the agent ends".to_owned()));
        }
        Ok(())
    }

    /// Write the journal of this machine, if it is locked.
    fn save_journal(&self) -> Result<(), AgentError> {
        if self.lock.is_none() {
            return Ok(());
        }
        let content = Journal {
            hosts: self.hosts.values().filter_map(HostState::entry).collect(),
            sysctls: self.sysctls.own(),
        };
        content.save(&journal_path())
    }
}

impl Journal {
    /// Write the journal; without settings there is none.
    fn save(&self, path: &Path) -> Result<(), AgentError> {
        let saved = if self.hosts.is_empty() && self.sysctls.is_empty() {
            fs::remove_file(path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
        } else {
            let new = path.with_extension("new");
            fs::write(&new, serde_json::to_string(self)?).and_then(|()| fs::rename(&new, path))
        };
        saved.map_err(AgentError::file(path))
    }
}

fn journal_path() -> PathBuf {
    machine_lock::directory().join("settings.json")
}

/// Undo the changes in the journal of an agent that was killed. The caller must hold the machine's lock. Settings of
/// interfaces that no longer exist are gone with them. The journal keeps changes that could not be undone, which is an
/// error; so is a journal of another version.
pub fn undo_leftovers() -> Result<(), AgentError> {
    let path = journal_path();
    fs::remove_file(path.with_extension("new")).ok();
    let Some(content) = read_journal(&path)? else {
        return Ok(());
    };
    let mut problems = sysctl::restore(&content.sysctls);
    let mut remaining = Journal::default();
    if !problems.is_empty() {
        remaining.sysctls = content.sysctls;
    }
    for (settings, before) in content.hosts {
        let mut applied = HostState::from_journal(Namespace::open(None)?, settings, before);
        if let Err(error) = applied.undo() {
            problems.push(error.to_string());
            remaining.hosts.extend(applied.entry());
        }
    }
    remaining.save(&path)?;
    if problems.is_empty() {
        return Ok(());
    }
    Err(AgentError::Machine(format!(
        "settings of an earlier agent are still on this machine: {}; try again, or restart the machine",
        problems.join("; ")
    )))
}

fn read_journal(path: &Path) -> Result<Option<Journal>, AgentError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(AgentError::file(path)(error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let path = path.display();
        AgentError::Machine(format!(
            "settings of an agent of another version are not undone ({path}: {error}): restart the machine, or undo \
             them and remove that file"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_of_another_version_is_kept_and_said() {
        let path = std::env::temp_dir().join(format!("atoll-journal-{}", std::process::id()));
        assert!(read_journal(&path).unwrap().is_none());
        fs::write(
            &path,
            r#"{"hosts":[],"sysctls":[["net.ipv4.tcp_ecn","2"]]}"#,
        )
        .unwrap();
        assert_eq!(read_journal(&path).unwrap().unwrap().sysctls.len(), 1);
        let older = r#"{"hosts":[[{"host":"w1","interfaces":[{"name":"w1-eth0","mac":"02:00:00:00:00:01","address":null,
            "routes":[],"neighbours":[],"accept_foreign":true}],"sysctls":[]},
            {"sysctls":[],"offloads":{},"machine":{"interfaces":[],"neighbours":[]}}]],"sysctls":[]}"#;
        fs::write(&path, older).unwrap();
        let refusal = read_journal(&path).unwrap_err().to_string();
        assert!(
            refusal.contains("unknown field `accept_foreign`"),
            "{refusal}"
        );
        assert!(refusal.ends_with("restart the machine, or undo them and remove that file"));
        assert_eq!(fs::read_to_string(&path).unwrap(), older);
        fs::remove_file(&path).unwrap();
    }
}
