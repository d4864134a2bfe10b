// SPDX-License-Identifier: Apache-2.0
//! The machine's lock: a machine serves one laboratory at a time, whose agent holds the lock while it lives.

use crate::AgentError;
use crate::private_directory;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// The lock, a file that names its owner. The kernel releases it however the agent ends; whoever has it removes the file.
#[derive(Debug)]
pub struct MachineLock {
    file: File,
}

/// Where agents of this user keep what must not outlive the machine's next start; to be used once it is found to be
/// private ([`MachineLock::acquire`], [`holder`]).
pub fn directory() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    if user == 0 {
        PathBuf::from("/run/atoll")
    } else {
        PathBuf::from(format!("/tmp/atoll-agent-{user}"))
    }
}

/// A test of the lock (see [`holder`]) may briefly prevent taking it.
const MOST_TRIES: usize = 5;
const TRY_INTERVAL: Duration = Duration::from_millis(20);

impl MachineLock {
    /// Lock the machine for `owner` (words for people); the error names the present owner.
    pub fn acquire(owner: &str) -> Result<Self, AgentError> {
        for _ in 0..MOST_TRIES {
            if let Some(mut lock) = Self::attempt()? {
                writeln!(lock.file, "{owner}").map_err(AgentError::file(lock_path()))?;
                return Ok(lock);
            }
            thread::sleep(TRY_INTERVAL);
        }
        let holder = holder().unwrap_or_else(|| "somebody else".to_owned());
        Err(AgentError::Machine(format!(
            "this machine is in use by {holder}"
        )))
    }

    /// None while somebody has it, or is removing its file.
    fn attempt() -> Result<Option<Self>, AgentError> {
        let opened = private_directory::make(&directory())
            .and_then(|directory| open_lock_file(&directory, OFlags::RDWR | OFlags::CREATE));
        let file = match opened {
            Err(AgentError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        if file.metadata()?.nlink() == 0 {
            return Ok(None); // removed before we had locked it
        }
        file.set_len(0)?;
        Ok(Some(Self { file }))
    }
}

impl Drop for MachineLock {
    /// Remove the file before it is unlocked, so that nobody removes another agent's; the directory stays with a journal.
    fn drop(&mut self) {
        fs::remove_file(lock_path()).ok();
        fs::remove_dir(directory()).ok();
    }
}

/// Remove the lock of agents that were killed.
pub fn remove_abandoned() {
    if directory().exists() {
        drop(MachineLock::attempt());
    }
}

fn lock_path() -> PathBuf {
    directory().join("claim")
}

fn open_lock_file(directory: &OwnedFd, flags: OFlags) -> Result<File, AgentError> {
    openat(
        directory,
        "claim",
        flags | OFlags::CLOEXEC,
        Mode::from(0o600),
    )
    .map(File::from)
    .map_err(|errno| AgentError::file(lock_path())(errno.into()))
}

/// The owner of the lock, if it is held.
pub fn holder() -> Option<String> {
    let directory = private_directory::check(&directory()).ok()?;
    let mut file = open_lock_file(&directory, OFlags::RDONLY).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared) != Err(Errno::WOULDBLOCK) {
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn a_machine_serves_one_at_a_time_and_tells_whom() {
        let Ok(lock) = MachineLock::acquire("test of the lock") else {
            return; // an agent of this user is at work on this machine
        };
        assert_eq!(holder().as_deref(), Some("test of the lock"));
        let refusal = MachineLock::acquire("another").unwrap_err().to_string();
        assert_eq!(refusal, "this machine is in use by test of the lock");
        drop(lock);
        assert_eq!(holder(), None);
        assert!(!lock_path().exists());
        several_have_it_in_turn();
    }

    fn several_have_it_in_turn() {
        let (holders, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Some(_lock) = MachineLock::attempt().unwrap() else {
                            continue;
                        };
                        assert_eq!(holders.fetch_add(1, SeqCst), 0, "one at a time");
                        turns.fetch_add(1, SeqCst);
                        holders.fetch_sub(1, SeqCst);
                    }
                });
            }
        });
        assert!(turns.into_inner() > 0);
        assert!(!lock_path().exists());
    }
}
