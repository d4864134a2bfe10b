// SPDX-License-Identifier: Apache-2.0
//! The machine's lock: a machine serves one laboratory at a time, whose agent holds the lock while it lives.

use crate::AgentError;
use crate::private_directory;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// The lock, a file that names its owner. The kernel releases it however the agent ends.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
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
        let directory = directory();
        private_directory::make(&directory)?;
        let path = directory.join("claim");
        let fault = |error| AgentError::file(&path)(error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(fault)?;
        for _ in 0..MOST_TRIES {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    file.set_len(0).map_err(fault)?;
                    writeln!(file, "{owner}").map_err(fault)?;
                    return Ok(Self { _file: file });
                }
                Err(Errno::WOULDBLOCK) => thread::sleep(TRY_INTERVAL),
                Err(errno) => return Err(errno.into()),
            }
        }
        let holder = holder().unwrap_or_else(|| "somebody else".to_owned());
        Err(AgentError::Machine(format!(
            "this machine is in use by {holder}"
        )))
    }
}

/// The owner of the lock, if it is held.
pub fn holder() -> Option<String> {
    private_directory::check(&directory()).ok()?;
    let mut file = File::open(directory().join("claim")).ok()?;
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
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    #[test]
    fn a_machine_serves_one_at_a_time_and_tells_whom() {
        let Ok(lock) = MachineLock::acquire("test of the lock") else {
            return; // an agent of this user is at work on this machine
        };
        assert_eq!(holder().as_deref(), Some("test of the lock"));
        let refusal = MachineLock::acquire("another").unwrap_err().to_string();
        assert_eq!(refusal, "this machine is in use by test of the lock");
        drop(lock);
        // A process that another test has just forked has the lock, too, until it executes its program.
        let end = Instant::now() + Duration::from_secs(100);
        while holder().is_some() && Instant::now() < end {
            sleep(Duration::from_millis(1));
        }
        assert_eq!(holder(), None);
    }
}
