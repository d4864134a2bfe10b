// SPDX-License-Identifier: Apache-2.0
//! What the agent holds of machines: what it has set, how that was before, and the machine it has taken.
//!
//! On a machine that it has taken, everything is written down before it is done, in a file that the machine forgets when
//! it is started anew: whoever takes the machine after an agent that was killed first undoes what that one had set.

use crate::AgentError;
use crate::host_config::HostSettings;
use crate::host_setup::{Applied, Before};
use crate::machine_lock::{self, Claim};
use crate::namespace::Namespace;
use crate::sysctl;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Everything that has been set and not been undone.
#[derive(Debug, Default)]
pub struct Holdings {
    hosts: BTreeMap<String, Applied>,
    sysctls: sysctl::Written,
    claim: Option<Claim>,
    /// Everything was undone for good: the agent ends.
    closed: bool,
}

/// What the file holds: settings of the agent's own network namespace.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Journal {
    hosts: Vec<(HostSettings, Before)>,
    sysctls: Vec<(String, String)>,
}

impl Holdings {
    /// Take the machine, and undo what an agent that was killed has left on it.
    pub fn claim(&mut self, owner: &str) -> Result<(), AgentError> {
        self.check_open()?;
        if self.claim.is_none() {
            self.claim = Some(Claim::take(owner)?);
            undo_what_was_left()?;
        }
        Ok(())
    }

    /// Set a machine up; how it was. On failure it is as it was.
    pub fn set(
        &mut self,
        host: &str,
        netns: Option<&Path>,
        settings: HostSettings,
    ) -> Result<Value, AgentError> {
        self.check_open()?;
        let namespace = Namespace::open(netns)?;
        if let Some(former) = self.hosts.remove(host) {
            former.undo()?;
        }
        let applied = Applied::survey(namespace, settings)?;
        let was = applied.was();
        self.hosts.insert(host.to_owned(), applied);
        let outcome = self.write_down().and_then(|()| self.hosts[host].apply());
        if let Err(error) = outcome {
            // The first failure is what the user has to know; what follows from it is not.
            self.unset(host).ok();
            return Err(error);
        }
        Ok(was)
    }

    /// Take back what [`Self::set`] did.
    pub fn unset(&mut self, host: &str) -> Result<(), AgentError> {
        let applied = self
            .hosts
            .remove(host)
            .ok_or_else(|| AgentError::Machine(format!("nothing is set on {host:?}")))?;
        let undone = applied.undo();
        self.write_down()?;
        undone
    }

    /// Write sysctls, verified; what they held before.
    pub fn sysctl(
        &mut self,
        netns: Option<PathBuf>,
        sysctls: &[(String, String)],
    ) -> Result<Vec<(String, String)>, AgentError> {
        self.check_open()?;
        let namespace = Namespace::open(netns.as_deref())?;
        let was = namespace.run(|| sysctl::read_all(sysctls))?;
        let written = self.sysctls.note(netns, namespace, &was);
        self.write_down()?;
        let namespace = self.sysctls.namespace(written);
        namespace.run(|| sysctl::write_all(sysctls))
    }

    /// Undo everything, and take nothing from now on; what could not be undone, as messages.
    pub fn undo(&mut self) -> Vec<String> {
        self.closed = true;
        let mut problems = self.sysctls.restore();
        while let Some((_, applied)) = self.hosts.pop_last() {
            problems.extend(applied.undo().err().map(|error| error.to_string()));
        }
        if self.claim.is_some() {
            fs::remove_file(journal()).ok();
        }
        problems
    }

    fn check_open(&self) -> Result<(), AgentError> {
        if self.closed {
            return Err(AgentError::Machine("the agent ends".to_owned()));
        }
        Ok(())
    }

    /// Write down what is held of this machine, if it was taken.
    fn write_down(&self) -> Result<(), AgentError> {
        if self.claim.is_none() {
            return Ok(());
        }
        let held = Journal {
            hosts: self.hosts.values().filter_map(Applied::own).collect(),
            sysctls: self.sysctls.own(),
        };
        let (path, new) = (journal(), journal().with_extension("new"));
        let text = serde_json::to_string(&held)?;
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(AgentError::file(&path.to_string_lossy()))
    }
}

fn journal() -> PathBuf {
    machine_lock::directory().join("settings.json")
}

/// Undo what is written down: nobody lives who would. To be called by who has the machine. Interfaces that are gone
/// took their settings along, and what else cannot be undone is told.
pub fn undo_what_was_left() -> Result<(), AgentError> {
    let path = journal();
    let Ok(text) = fs::read_to_string(&path) else {
        return Ok(());
    };
    let held: Journal = serde_json::from_str(&text).unwrap_or_else(|error| {
        eprintln!("atoll-host agent: {}: {error}", path.display());
        Journal::default()
    });
    let mut problems = sysctl::restore(&held.sysctls);
    for (settings, before) in held.hosts.into_iter().rev() {
        let applied = Applied::held_before(Namespace::open(None)?, settings, before);
        problems.extend(applied.undo().err().map(|error| error.to_string()));
    }
    for problem in problems {
        eprintln!("atoll-host agent: {problem}");
    }
    fs::remove_file(&path).map_err(AgentError::file(&path.to_string_lossy()))
}
