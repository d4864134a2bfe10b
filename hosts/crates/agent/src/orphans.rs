// SPDX-License-Identifier: Apache-2.0
//! Processes left behind by jobs that have ended or cannot be managed, and when they are killed.

use crate::cgroup::JobGroup;
use crate::child_reaper;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::time::{Duration, Instant};

/// Interval of polling orphans until they have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Processes that the kernel does not let die (blocked in a driver) are given up after so long.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// One that has not ended yet.
#[derive(Debug)]
struct Orphan {
    /// The process group, until it has no members: its number may then be given to another one.
    group: Option<Pid>,
    job_group: Option<JobGroup>,
    /// That of its daemons: without a control group nothing else holds them together.
    mark: String,
    kill_at: Instant,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Orphans(Vec<Orphan>);

impl Orphan {
    fn is_running(&mut self) -> bool {
        self.group = self
            .group
            .filter(|group| test_kill_process_group(*group).is_ok());
        let has_escaped = match &self.job_group {
            Some(job_group) => job_group.is_populated(),
            None => child_reaper::any_child_marked(&self.mark),
        };
        self.group.is_some() || has_escaped
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            kill_process_group(group, signal).ok();
        }
        if self.job_group.is_none() {
            child_reaper::signal_marked(&self.mark, signal);
        }
    }

    fn kill(&self) {
        self.signal(Signal::KILL);
        if let Some(job_group) = &self.job_group {
            job_group.kill();
        }
    }
}

impl Orphans {
    /// The first process of a job has ended or is to be ended, and nobody has taken its number yet: see to the rest.
    pub fn add(&mut self, group: Pid, job_group: Option<JobGroup>, mark: String, kill_at: Instant) {
        let mut orphan = Orphan {
            group: Some(group),
            job_group,
            mark,
            kill_at,
        };
        if orphan.is_running() {
            self.0.push(orphan);
        }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How long one may sleep before the next look.
    pub fn delay(&self) -> Option<Duration> {
        (!self.is_empty()).then_some(POLL_INTERVAL)
    }

    /// Kill what is overdue, and forget what has ended. Children that ended must have been collected just before: they
    /// count as members until then.
    pub fn kill_overdue(&mut self, now: Instant) {
        self.0.retain_mut(|orphan| {
            if !orphan.is_running() {
                return false;
            }
            if orphan.kill_at <= now {
                orphan.kill();
            }
            now < orphan.kill_at + KILL_TIMEOUT
        });
    }

    /// Ask all of it to end, and kill it at `kill_at` at the latest.
    pub fn terminate(&mut self, kill_at: Instant) {
        for orphan in &mut self.0 {
            orphan.signal(Signal::TERM);
            orphan.kill_at = orphan.kill_at.min(kill_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    #[test]
    fn what_still_runs_is_killed_when_its_time_has_come() {
        let mut child = Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .unwrap();
        let (mut orphans, now) = (Orphans::default(), Instant::now());
        orphans.add(
            Pid::from_child(&child),
            None,
            String::new(),
            now + POLL_INTERVAL,
        );
        orphans.kill_overdue(now);
        assert!(child.try_wait().unwrap().is_none(), "not before");
        orphans.kill_overdue(now + POLL_INTERVAL);
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        orphans.kill_overdue(now + POLL_INTERVAL);
        assert!(orphans.is_empty());
    }
}
