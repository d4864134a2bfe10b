// SPDX-License-Identifier: Apache-2.0
//! The spool of a machine: directories with the files of runs, until they are fetched.
//!
//! They outlive the agent on purpose: a lost connection must not lose measurements. They are deleted after
//! they were fetched, or after a week when the next run begins. Machines whose disk must rest while they measure (the SD
//! card of a Raspberry Pi) have them in memory, with a limit for each file.

use crate::AgentError;
use crate::memory;
use crate::private_directory;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Parts of a run directory that jobs write to.
const FOLDERS: [&str; 2] = ["captures", "logs"];

/// Files that were not fetched are kept for this long.
const KEEP_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// File systems on disk and in memory where every user may write (file-hierarchy(7)).
const DISK: &str = "/var/tmp";
const MEMORY: &str = "/dev/shm";

/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A directory there that is this user's own.
fn root(parent: &str) -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("{parent}/atoll-{user}"))
}

/// The directory of a run; a name that could lead anywhere else is refused.
fn run_directory(parent: &str, name: &str) -> Result<PathBuf, AgentError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_allowed) {
        return Err(AgentError::Machine(format!(
            "{name:?} is not the name of a run"
        )));
    }
    Ok(root(parent).join(name))
}

/// The same in memory if it is there, else on disk, below a root that is ours or not there.
fn find_directory(name: &str) -> Result<PathBuf, AgentError> {
    let mut directory = run_directory(DISK, name)?;
    for parent in [MEMORY, DISK] {
        if root(parent).symlink_metadata().is_ok() {
            private_directory::check(&root(parent))?;
            if run_directory(parent, name)?.exists() {
                directory = run_directory(parent, name)?;
                break;
            }
        }
    }
    Ok(directory)
}

/// Make the directory of a run; its path. `memory_bytes`: in memory, with room for a file of that size.
pub fn make(name: &str, memory_bytes: Option<u64>) -> Result<PathBuf, AgentError> {
    let parent = if memory_bytes.is_some() { MEMORY } else { DISK };
    let directory = run_directory(parent, name)?;
    for root in [root(MEMORY), root(DISK)] {
        if root.symlink_metadata().is_ok() {
            private_directory::check(&root)?;
            remove_old(&root);
        }
    }
    if let Some(bytes) = memory_bytes {
        check_memory(bytes)?;
    }
    private_directory::make(&root(parent))?;
    for folder in FOLDERS {
        let path = directory.join(folder);
        fs::create_dir_all(&path).map_err(AgentError::file(path))?;
    }
    Ok(directory)
}

/// The files of a run with their sizes in bytes, by path below its directory; none if there is no directory.
pub fn files(name: &str) -> Result<Value, AgentError> {
    let directory = find_directory(name)?;
    let mut files = Vec::new();
    for folder in FOLDERS {
        let Ok(entries) = fs::read_dir(directory.join(folder)) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            let file = format!("{folder}/{}", entry.file_name().to_string_lossy());
            files.push(json!({"name": file, "bytes": entry.metadata()?.len()}));
        }
    }
    Ok(json!({"path": directory, "files": files}))
}

/// Delete the directory of a run.
pub fn discard(name: &str) -> Result<(), AgentError> {
    let directory = find_directory(name)?;
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(AgentError::file(directory))?;
    }
    for parent in [MEMORY, DISK] {
        fs::remove_dir(root(parent)).ok(); // the last one takes the root along
    }
    Ok(())
}

/// Refuse a file system that is not in memory, and a machine without the room.
fn check_memory(bytes: u64) -> Result<(), AgentError> {
    let remedy = "set files_limit of the machine, or files_in: disk, in the inventory";
    if !rustix::fs::statfs(MEMORY).is_ok_and(|stat| stat.f_type == TMPFS) {
        return Err(AgentError::Machine(format!(
            "{MEMORY} is not a file system in memory, where files of a run go: {remedy}"
        )));
    }
    let stat = rustix::fs::statvfs(MEMORY)?;
    let available_bytes = (stat.f_bavail * stat.f_frsize).min(memory::available_bytes());
    if available_bytes < bytes {
        return Err(AgentError::Machine(format!(
            "there is room for {} MB in memory, but files of a run may take {} MB: {remedy}",
            available_bytes / 1_000_000,
            bytes / 1_000_000
        )));
    }
    Ok(())
}

/// Bytes that this user may still write where runs' files go.
pub fn free_bytes() -> Result<u64, AgentError> {
    let stat = rustix::fs::statvfs(DISK)?;
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
        if age.is_some_and(|age| age > KEEP_TIME) {
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
            assert!(run_directory(DISK, name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn more_than_the_memory_is_refused_with_the_remedy() {
        let error = make("spool-test-large", Some(1 << 60)).unwrap_err();
        let words = error.to_string();
        assert!(words.starts_with("there is room for "), "{words}");
        assert!(
            words.ends_with("or files_in: disk, in the inventory"),
            "{words}"
        );
    }

    #[test]
    fn files_are_listed_until_they_are_discarded() {
        let name = format!("spool-test-{}", std::process::id());
        for memory_bytes in [None, Some(1_000_000)] {
            is_listed_until_it_is_discarded(&name, memory_bytes);
        }
    }

    fn is_listed_until_it_is_discarded(name: &str, memory_bytes: Option<u64>) {
        let directory = make(name, memory_bytes).unwrap();
        assert_eq!(directory.starts_with(MEMORY), memory_bytes.is_some());
        fs::write(directory.join("captures/world.pcap"), b"12345").unwrap();
        assert_eq!(
            files(name).unwrap()["files"],
            json!([{"name": "captures/world.pcap", "bytes": 5}])
        );
        discard(name).unwrap();
        assert_eq!(files(name).unwrap()["files"], json!([]));
        discard(name).unwrap();
    }
}
