// SPDX-License-Identifier: Apache-2.0
//! Reaping of the agent's children: those it started, and those it adopted because their parents died.
//!
//! A daemon leaves its job's process group and session, and its parent ends: the agent, a child subreaper, adopts it. It
//! is identified by its job's [`MARK_VARIABLE`], which programs pass on with their environment. A daemon that has cleared its
//! environment ends with the agent.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait, waitpid};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Interval of polling processes that were just killed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The variable in a job's environment that identifies the processes it leaves behind.
pub const MARK_VARIABLE: &str = "ATOLL_JOB";

/// Send `signal` to every child that carries this mark.
pub fn signal_marked(mark: &str, signal: Signal) {
    for pid in marked(mark) {
        kill_process(pid, signal).ok();
    }
}

/// Whether any child carries this mark.
pub fn any_child_marked(mark: &str) -> bool {
    !marked(mark).is_empty()
}

fn marked(mark: &str) -> Vec<Pid> {
    let variable = format!("{MARK_VARIABLE}={mark}");
    let has_mark = |pid: &Pid| {
        fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).is_ok_and(|environment| {
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|entry| entry == variable.as_bytes())
        })
    };
    let mut children = listed_children();
    children.retain(|pid| has_mark(pid) && is_child(*pid));
    children
}

/// Whether it is our child and runs: /proc may show another PID namespace than ours, with other processes under the
/// same numbers, but only the parent can wait.
fn is_child(pid: Pid) -> bool {
    matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None))
}

/// Kill and collect all children, and their children as they are adopted: processes that left
/// their job's group and session by forking twice. Gives up after `timeout` on those that the
/// kernel does not let die (blocked in a driver).
pub fn kill_all(timeout: Duration) {
    let end = Instant::now() + timeout;
    while Instant::now() < end {
        if matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD)) {
            return; // none left
        }
        for pid in listed_children() {
            if is_child(pid) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Processes whose parent is this one, according to /proc.
fn listed_children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| parent(&stat) == Some(own.as_str()))
        })
        .filter_map(Pid::from_raw)
        .collect()
}

/// The parent's id in a line of /proc/PID/stat (proc(5)): the second field after the name, which is
/// in parentheses and may hold blanks and parentheses itself.
pub fn parent(stat: &str) -> Option<&str> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_fake_its_parent() {
        assert_eq!(parent("77 (x) S 1 (y) R 5 77 77 0"), Some("5"));
        assert_eq!(parent(""), None);
    }
}
