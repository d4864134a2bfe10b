// SPDX-License-Identifier: Apache-2.0
//! Limits of a job, and which of them ended it.

use crate::AgentError;
use netio::child_limits::{ChildLimits, autogroup_nice};
use netio::children::Ended;
use rustix::process::{Pid, Resource, Rlimit, getrlimit};
use serde::Deserialize;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// Signals by which the kernel says which limit it was (signal(7), x86 and ARM).
const XCPU: i32 = 24;
const XFSZ: i32 = 25;
const KILL: i32 = 9;

/// Those of programs that are refused memory: they give up (`abort(3)`), or use what they did not get.
const ABRT: i32 = 6;
const SEGV: i32 = 11;

/// The limits of a job; absent: as the agent's own. One that is unknown is refused, not ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Time since its start.
    pub wall_ns: Option<u64>,
    /// CPU time of a single process, counted in whole seconds.
    pub cpu_ns: Option<u64>,
    /// Memory: of all its processes with a control group, else what a single one may write to.
    pub memory_bytes: Option<u64>,
    /// What a single process may write to, also with a control group, whose count includes the memory of sockets.
    pub data_bytes: Option<u64>,
    /// Open file descriptors of a single process.
    pub open_files: Option<u64>,
    /// Size of any file that it writes.
    pub file_bytes: Option<u64>,
    /// Niceness, 0 to 19.
    pub nice: Option<u8>,
    /// The CPUs it may run on; empty: all.
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// `file_bytes` is the limit of files in memory.
    #[serde(skip)]
    files_in_memory: bool,
}

impl Limits {
    /// Limit files to `most` bytes because they are in memory; a lower limit of the job's own stays.
    pub fn limit_files_in_memory(&mut self, limit: Option<u64>) {
        if let Some(limit) = limit.filter(|limit| self.file_bytes.is_none_or(|own| *limit < own)) {
            self.file_bytes = Some(limit);
            self.files_in_memory = true;
        }
    }

    /// Refuse what this machine cannot hold a job to, saying why.
    pub fn check(&self) -> Result<(), AgentError> {
        let refuse = |text: String| Err(AgentError::Machine(text));
        if let Some(nice) = self.nice.filter(|nice| *nice > 19) {
            return refuse(format!("nice {nice} is not between 0 and 19"));
        }
        if self.cpus.is_empty() {
            return Ok(());
        }
        let own = rustix::thread::sched_getaffinity(None)?;
        let absent = |cpu: &&usize| **cpu >= rustix::thread::CpuSet::MAX_CPU || !own.is_set(**cpu);
        if let Some(cpu) = self.cpus.iter().find(absent) {
            let count = own.count();
            return refuse(format!("CPU {cpu} is not available; there are {count}"));
        }
        Ok(())
    }

    /// Why a job could not be started, if that was for its limits: only the privileged may have more descriptors than
    /// the agent may.
    pub fn refusal(&self, error: &io::Error) -> Option<AgentError> {
        let (open_files, most) = (self.open_files?, getrlimit(Resource::Nofile).maximum?);
        let refused = error.kind() == io::ErrorKind::PermissionDenied && open_files > most;
        refused.then(|| {
            AgentError::Machine(format!(
                "open_files {open_files} is more than the {most} that this user may have; raise it in /etc/security/limits.conf"
            ))
        })
    }

    /// The limits that the kernel enforces. Memory by itself only where no control group does it; `open_files` where the job has
    /// no limit of its own.
    pub fn child_limits(&self, memory_by_group: bool, open_files: Rlimit) -> ChildLimits {
        let own_open_files = self.open_files.map(|most| Rlimit {
            current: Some(most),
            maximum: Some(most),
        });
        ChildLimits {
            group: None,
            cpu_seconds: self.cpu_ns.map(|ns| ns.div_ceil(1_000_000_000).max(1)),
            data_bytes: self.process_memory_limit(memory_by_group),
            open_files: Some(own_open_files.unwrap_or(open_files)),
            file_bytes: self.file_bytes,
            nice: self.nice,
            cpus: self.cpus.clone(),
        }
    }

    /// The limit that could not be applied although the job was started, in words.
    pub fn unapplied(&self, pid: Pid) -> Option<String> {
        let nice = i32::from(self.nice?);
        let session_nice = autogroup_nice(pid.as_raw_nonzero().get())?;
        (session_nice != nice).then(|| {
            format!(
                "niceness {nice} has an effect within its session only: the niceness of the session is {session_nice} and could not be changed"
            )
        })
    }

    /// Raise `data_bytes`; returns false if a higher one, or none, stays.
    pub fn raise_memory(&mut self, bytes: u64) -> bool {
        let raised = self.data_bytes.is_some_and(|limit| limit < bytes);
        if raised {
            self.data_bytes = Some(bytes);
        }
        raised
    }

    /// The memory that a single process may write to.
    pub fn process_memory_limit(&self, memory_by_group: bool) -> Option<u64> {
        let own_limit = self.memory_bytes.filter(|_| !memory_by_group);
        self.data_bytes.into_iter().chain(own_limit).min()
    }

    /// The limit beyond which a process was presumably refused memory: it failed by itself with nearly all of it, or gave
    /// up, as allocators do, with so much of it that a buffer could not become twice as large.
    pub fn refused_memory(&self, ended: &Ended, memory_by_group: bool) -> Option<u64> {
        let tenths = match (ended.status.code(), ended.status.signal()) {
            (Some(code), _) if code != 0 => 9,
            (_, Some(ABRT | SEGV)) => 4,
            _ => return None,
        };
        let limit = self.process_memory_limit(memory_by_group);
        limit.filter(|limit| ended.peak_memory_bytes >= limit / 10 * tenths)
    }

    /// The limit that ended the job, in words. `memory`: that of memory, if it was this one: the kernel killed something
    /// of its control group, or [`Self::refused_memory`].
    pub fn exceeded(&self, ended: &Ended, memory: Option<u64>) -> Option<String> {
        let signal = ended.status.signal();
        if let (Some(limit), Some(XFSZ)) = (self.file_bytes, signal) {
            let name = if self.files_in_memory {
                "files_limit of the inventory, for files in memory,"
            } else {
                "file size limit"
            };
            return Some(format!("{name} {}", bytes(limit)));
        }
        if let Some(limit) = self.cpu_ns {
            let used_up = ended.cpu >= Duration::from_nanos(limit);
            if signal == Some(XCPU) || (signal == Some(KILL) && used_up) {
                return Some(format!("CPU time limit {}", seconds(limit)));
            }
        }
        memory.map(|limit| format!("memory limit {}", bytes(limit)))
    }

    /// The limit of the job's duration, as text.
    pub fn wall_text(&self) -> String {
        format!("time limit {}", seconds(self.wall_ns.unwrap_or(0)))
    }
}

/// Raise the agent's limit of descriptors to its maximum, as it holds some for every machine and every job. Returns the
/// limit before, which jobs get: select(2) is limited to 1024, and some programs close every possible descriptor.
pub fn raise_open_files() -> Rlimit {
    let inherited = getrlimit(Resource::Nofile);
    let _ = netio::process::raise_descriptor_limit(); // if refused, as many as before
    inherited
}

fn bytes(count: u64) -> String {
    let (unit, name) = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")]
        .into_iter()
        .find(|(unit, _)| count as f64 >= *unit)
        .unwrap_or((1.0, "B"));
    format!("{} {name}", two_decimals(count as f64 / unit))
}

fn seconds(ns: u64) -> String {
    format!("{} s", two_decimals(ns as f64 / 1e9))
}

/// At most two decimals, and none that say nothing.
fn two_decimals(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::ExitStatus;

    const TERM: i32 = 15;

    fn ended(wait_status: i32, cpu_s: u64, peak: u64) -> Ended {
        Ended {
            pid: 1,
            status: ExitStatus::from_raw(wait_status),
            cpu: Duration::from_secs(cpu_s),
            peak_memory_bytes: peak,
        }
    }

    fn all() -> Limits {
        Limits {
            wall_ns: Some(1_500_000_000),
            cpu_ns: Some(2_000_000_000),
            memory_bytes: Some(512_000_000),
            file_bytes: Some(1_000),
            ..Limits::default()
        }
    }

    #[test]
    fn the_limit_that_ended_a_job_is_named() {
        let limits = all();
        let said = |ended: Ended, memory| limits.exceeded(&ended, memory).unwrap_or_default();
        assert_eq!(said(ended(XFSZ, 0, 0), None), "file size limit 1 kB");
        let mut in_memory = Limits::default();
        in_memory.limit_files_in_memory(Some(2_000));
        assert_eq!(
            in_memory.exceeded(&ended(XFSZ, 0, 0), None).unwrap(),
            "files_limit of the inventory, for files in memory, 2 kB"
        );
        in_memory.limit_files_in_memory(Some(3_000));
        assert_eq!(in_memory.file_bytes, Some(2_000));
        assert_eq!(said(ended(XCPU, 2, 0), None), "CPU time limit 2 s");
        assert_eq!(said(ended(KILL, 3, 0), None), "CPU time limit 2 s");
        let memory = Some(512_000_000);
        assert_eq!(said(ended(KILL, 0, 0), memory), "memory limit 512 MB");
        assert_eq!(limits.wall_text(), "time limit 1.5 s");
    }

    #[test]
    fn only_a_failure_of_its_own_with_much_of_its_memory_may_be_for_want_of_it() {
        let limits = all();
        let refused = |status, peak| limits.refused_memory(&ended(status, 0, peak), false);
        let limit = limits.memory_bytes;
        assert_eq!(refused(1 << 8, 500_000_000), limit);
        assert_eq!(refused(1 << 8, 400_000_000), None, "it had enough");
        assert_eq!(
            [ABRT, SEGV].map(|status| refused(status, 250_000_000)),
            [limit; 2]
        );
        assert_eq!(refused(ABRT, 200_000_000), None, "it had enough");
        for status in [0, TERM, KILL] {
            assert_eq!(
                refused(status, 500_000_000),
                None,
                "it succeeded, or was ended"
            );
        }
        assert_eq!(
            Limits::default().refused_memory(&ended(1 << 8, 0, u64::MAX), false),
            None
        );
    }

    #[test]
    fn a_control_group_bounds_no_single_process_and_data_does() {
        let mut limits = all();
        let process_memory_limit = |limits: &Limits, by_group| {
            let confined = limits.child_limits(by_group, getrlimit(Resource::Nofile));
            let refused = limits.refused_memory(&ended(ABRT, 0, u64::MAX), by_group);
            assert_eq!(confined.data_bytes, refused);
            refused
        };
        assert_eq!(process_memory_limit(&limits, true), None);
        limits.data_bytes = Some(400_000_000);
        assert_eq!(process_memory_limit(&limits, true), Some(400_000_000));
        limits.data_bytes = Some(600_000_000);
        assert_eq!(process_memory_limit(&limits, false), Some(512_000_000));
    }

    #[test]
    fn an_end_within_the_limits_has_no_cause_among_them() {
        let limits = all();
        for (status, cpu_s, peak) in [
            (0, 1, 511_000_000),
            (1 << 8, 1, 1_000),
            (KILL, 1, 1_000),
            (TERM, 1, 511_000_000),
        ] {
            assert_eq!(limits.exceeded(&ended(status, cpu_s, peak), None), None);
        }
        assert_eq!(
            Limits::default().exceeded(&ended(XFSZ, 9, u64::MAX), None),
            None
        );
    }

    #[test]
    fn what_the_machine_cannot_hold_to_is_refused() {
        let refused = |limits: Limits| limits.check().unwrap_err().to_string();
        let cpus = vec![1_000_000];
        assert!(
            refused(Limits {
                cpus,
                ..Limits::default()
            })
            .starts_with("CPU 1000000 is not available")
        );
        let nice = Some(20);
        assert_eq!(
            refused(Limits {
                nice,
                ..Limits::default()
            }),
            "nice 20 is not between 0 and 19"
        );
        assert!(serde_json::from_str::<Limits>(r#"{"memory":1}"#).is_err());
        Limits {
            cpus: vec![0],
            nice: Some(0),
            ..Limits::default()
        }
        .check()
        .unwrap();
    }
}
