// SPDX-License-Identifier: Apache-2.0
//! The spool of a machine: directories with the files of runs, until they are fetched.
//!
//! They outlive the agent on purpose: a lost connection must not lose measurements. They are deleted after
//! they were fetched, or after a week when the next run begins.

use crate::AgentError;
use crate::private_directory;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Parts of a run directory that jobs write to.
const FOLDERS: [&str; 2] = ["captures", "logs"];

/// Files that were not fetched are kept for this long.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A directory on disk (not on a file system in memory) that is this user's own.
fn root() -> PathBuf {
    PathBuf::from(format!(
        "/var/tmp/atoll-{}",
        rustix::process::geteuid().as_raw()
    ))
}

/// The directory of a run; a name that could lead anywhere else is refused.
fn place(name: &str) -> Result<PathBuf, AgentError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(AgentError::Machine(format!(
            "{name:?} is not the name of a run"
        )));
    }
    Ok(root().join(name))
}

/// The same, below a root that is ours or not there.
fn existing(name: &str) -> Result<PathBuf, AgentError> {
    let directory = place(name)?;
    if root().symlink_metadata().is_ok() {
        private_directory::check(&root())?;
    }
    Ok(directory)
}

/// Make the directory of a run; its path.
pub fn make(name: &str) -> Result<PathBuf, AgentError> {
    let directory = place(name)?;
    private_directory::make(&root())?;
    remove_old(&root());
    for folder in FOLDERS {
        let path = directory.join(folder);
        fs::create_dir_all(&path).map_err(AgentError::file(&path.to_string_lossy()))?;
    }
    Ok(directory)
}

/// The files of a run with their sizes in bytes, by path below its directory; none if there is no directory.
pub fn files(name: &str) -> Result<Value, AgentError> {
    let directory = existing(name)?;
    let mut found = Vec::new();
    for folder in FOLDERS {
        let Ok(entries) = fs::read_dir(directory.join(folder)) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            let file = format!("{folder}/{}", entry.file_name().to_string_lossy());
            found.push(json!({"name": file, "bytes": entry.metadata()?.len()}));
        }
    }
    Ok(json!({"path": directory, "files": found}))
}

/// Delete the directory of a run.
pub fn discard(name: &str) -> Result<(), AgentError> {
    let directory = existing(name)?;
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(AgentError::file(&directory.to_string_lossy()))?;
    }
    fs::remove_dir(root()).ok(); // the last one takes the root along
    Ok(())
}

/// Bytes that this user may still write where runs' files go.
pub fn free_bytes() -> Result<u64, AgentError> {
    let stat = rustix::fs::statvfs("/var/tmp")?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn remove_old(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else {
        return;
    };
    let now = SystemTime::now();
    for entry in entries.flatten() {
        let age = entry
            .metadata()
            .and_then(|data| data.modified())
            .ok()
            .and_then(|changed| now.duration_since(changed).ok());
        if age.is_some_and(|age| age > KEPT) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_out_of_the_spool() {
        for name in ["", "..", ".hidden", "a/b", "/etc", "a b"] {
            assert!(place(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn files_are_listed_until_they_are_discarded() {
        let name = format!("spool-test-{}", std::process::id());
        let directory = make(&name).unwrap();
        fs::write(directory.join("captures/world.pcap"), b"12345").unwrap();
        assert_eq!(
            files(&name).unwrap()["files"],
            json!([{"name": "captures/world.pcap", "bytes": 5}])
        );
        discard(&name).unwrap();
        assert_eq!(files(&name).unwrap()["files"], json!([]));
        discard(&name).unwrap();
    }
}
