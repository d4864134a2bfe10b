// SPDX-License-Identifier: Apache-2.0
//! Control groups of version 2 (Documentation/admin-guide/cgroup-v2.rst): all processes of a job, whatever they do to
//! leave it, can be counted, bounded and killed together.
//!
//! An agent makes a group of its own, locked for as long as it lives, and in it one for each job. It takes what it
//! can get: children of its own group if it may create some there, or, as root, children of the top group, where
//! systemd and others have enabled the memory controller. The groups of agents that were killed are emptied and removed
//! by the next agent.

use crate::AgentError;
use crate::command;
use crate::machine_info::clock_ns;
use netio::child_limits::{ChildLimits, limit_child};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Prefix of the names of agents' groups; the process id (of some PID namespace) and an instant follow.
const PREFIX: &str = "atoll-agent-";

/// A sweep that comes before a new group is locked takes it for an abandoned one.
const MOST_TRIES: usize = 3;

/// A group cannot be removed before the kernel has released its last process.
const REMOVAL_TIMEOUT: Duration = Duration::from_millis(500);
const REMOVAL_INTERVAL: Duration = Duration::from_millis(5);

/// The agent's own group.
#[derive(Debug)]
pub struct AgentGroup {
    path: PathBuf,
    has_memory: bool,
    job_group_count: u64,
    _lock: File,
}

/// A job's group. Removed when it is dropped, with those below it, if it is empty.
#[derive(Debug)]
pub struct JobGroup {
    path: PathBuf,
}

impl AgentGroup {
    /// Create a group at the best place; none if there is no place, processes cannot join groups there, or the kernel
    /// cannot kill groups (Linux 5.14).
    pub fn make() -> Option<Self> {
        let mut groups: Vec<Self> = parent_groups()
            .iter()
            .filter_map(|parent| Self::create_below(parent))
            .collect();
        let best = groups.iter().position(|g| g.has_memory).unwrap_or(0);
        (best < groups.len()).then(|| groups.swap_remove(best))
    }

    fn create_below(parent: &Path) -> Option<Self> {
        for _ in 0..MOST_TRIES {
            let path = parent.join(format!("{PREFIX}{}-{}", std::process::id(), clock_ns()));
            fs::create_dir(&path).ok()?;
            match Self::lock(&path) {
                Ok(mut agent_group) => return agent_group.can_be_joined().then_some(agent_group),
                Err(_) => drop(fs::remove_dir(&path)),
            }
        }
        None
    }

    fn lock(path: &Path) -> io::Result<Self> {
        let lock = File::open(path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::metadata(path.join("cgroup.kill"))?;
        Ok(Self {
            has_memory: has_word(&path.join("cgroup.controllers"), "memory")
                && fs::write(path.join("cgroup.subtree_control"), "+memory").is_ok(),
            path: path.to_owned(),
            job_group_count: 0,
            _lock: lock,
        })
    }

    /// Whether processes can join: making groups is one permission, moving processes into them another, which asks for
    /// the common ancestor as well ("Delegation Containment"). A child tries it.
    fn can_be_joined(&mut self) -> bool {
        let Ok((_job_group, procs)) = self.job_group(None) else {
            return false;
        };
        let mut child = command::command("true");
        child.stdin(Stdio::null()).stdout(Stdio::null());
        let child_limits = ChildLimits {
            group: Some(procs),
            ..ChildLimits::default()
        };
        limit_child(&mut child, child_limits);
        child.status().is_ok_and(|status| status.success())
    }

    /// Whether a group's memory can be bounded here.
    pub fn has_memory(&self) -> bool {
        self.has_memory
    }

    /// A group for one job, and the file to which a process writes `0` to join it.
    pub fn job_group(&mut self, memory_bytes: Option<u64>) -> Result<(JobGroup, File), AgentError> {
        self.job_group_count += 1;
        let job_group = JobGroup {
            path: self.path.join(format!("job-{}", self.job_group_count)),
        };
        fs::create_dir(&job_group.path).map_err(AgentError::file(&job_group.path))?;
        if let Some(limit) = memory_bytes.filter(|_| self.has_memory) {
            job_group.write("memory.max", &limit.to_string())?;
            job_group.write("memory.oom.group", "1")?;
            job_group.write("memory.swap.max", "0").ok(); // absent where the kernel has no swap
        }
        let path = job_group.path.join("cgroup.procs");
        let procs = OpenOptions::new().write(true).open(&path);
        Ok((job_group, procs.map_err(AgentError::file(path))?))
    }
}

impl Drop for AgentGroup {
    fn drop(&mut self) {
        kill_and_remove(&self.path);
    }
}

impl JobGroup {
    /// Whether it contains a live process.
    pub fn is_populated(&self) -> bool {
        counter(&self.path.join("cgroup.events"), "populated").is_some_and(|count| count > 0)
    }

    /// Kill all its processes, and those that they start meanwhile.
    pub fn kill(&self) {
        fs::write(self.path.join("cgroup.kill"), "1").ok();
    }

    /// Whether the kernel killed a process in it because memory ran out; none without the memory controller.
    pub fn ran_out_of_memory(&self) -> Option<bool> {
        counter(&self.path.join("memory.events"), "oom_kill").map(|count| count > 0)
    }

    /// CPU time of all processes that were ever in it.
    pub fn cpu_ns(&self) -> Option<u64> {
        counter(&self.path.join("cpu.stat"), "usage_usec").map(|us| us * 1000)
    }

    /// Memory charged to it now, file cache included; none without the memory controller.
    pub fn memory_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.path.join("memory.current")).ok()?;
        text.trim().parse().ok()
    }

    fn write(&self, file: &str, text: &str) -> Result<(), AgentError> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(AgentError::file(path))
    }
}

impl Drop for JobGroup {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Empty and remove the groups of agents that were killed.
pub fn remove_abandoned() {
    for parent in parent_groups() {
        let Ok(entries) = fs::read_dir(&parent) else {
            continue;
        };
        for entry in entries.flatten() {
            let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            let Some(lock) = ours.then(|| File::open(entry.path()).ok()).flatten() else {
                continue;
            };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                kill_and_remove(&entry.path());
            }
        }
    }
}

/// Kill everything in a group and below, and remove it with its children.
fn kill_and_remove(group: &Path) {
    fs::write(group.join("cgroup.kill"), "1").ok();
    let end = Instant::now() + REMOVAL_TIMEOUT;
    loop {
        remove(group);
        if !group.exists() || Instant::now() >= end {
            return;
        }
        thread::sleep(REMOVAL_INTERVAL);
    }
}

/// Remove a group and those below it, the lowest first, as far as they are empty: jobs may make groups in their own.
fn remove(group: &Path) {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    for child in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&child.path());
    }
    fs::remove_dir(group).ok();
}

/// Possible places of our groups: below our own group, and as root below the top group.
fn parent_groups() -> Vec<PathBuf> {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let (mounts, groups) = (text("/proc/self/mountinfo"), text("/proc/self/cgroup"));
    let Some((root, mount)) = hierarchy(&mounts) else {
        return Vec::new();
    };
    let mut parent_groups = Vec::new();
    parent_groups.extend(own_group(&groups, &root).map(|relative_path| mount.join(relative_path)));
    if rustix::process::geteuid().is_root() && !parent_groups.contains(&mount) {
        parent_groups.push(mount);
    }
    parent_groups
}

/// Of the version-2 hierarchy, in /proc/self/mountinfo (proc(5)): the mounted part, and its mount point.
fn hierarchy(mountinfo: &str) -> Option<(String, PathBuf)> {
    mountinfo.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let is_v2 = system.split(' ').next() == Some("cgroup2");
        is_v2.then(|| (root.to_owned(), PathBuf::from(point)))
    })
}

/// Our own group by /proc/self/cgroup (cgroups(7)), relative to the part that is mounted; none if it lies outside.
fn own_group(groups: &str, root: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let relative_path = Path::new(path).strip_prefix(root).ok()?;
    let is_outside = relative_path
        .components()
        .any(|part| part == std::path::Component::ParentDir);
    (!is_outside).then(|| relative_path.to_owned())
}

fn has_word(file: &Path, word: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|item| item == word))
}

/// A line `name count` of a flat keyed file.
fn counter(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_hierarchy_and_our_place_in_it_are_read_off_proc() {
        let unified = "24 1 0:22 / /sys rw - sysfs sysfs rw\n\
            30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let (root, mount) = hierarchy(unified).unwrap();
        assert_eq!(
            (root.as_str(), mount.as_path()),
            ("/", Path::new("/sys/fs/cgroup"))
        );
        assert!(hierarchy("25 24 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n").is_none());
        let own = "4:memory:/a\n0::/user.slice/session-3.scope\n";
        assert_eq!(
            own_group(own, "/"),
            Some("user.slice/session-3.scope".into())
        );
        assert_eq!(
            own_group(own, "/user.slice"),
            Some("session-3.scope".into())
        );
        assert_eq!(own_group(own, "/system.slice"), None);
        assert_eq!(own_group("0::/../other\n", "/"), None);
        assert_eq!(own_group("4:memory:/a\n", "/"), None);
    }

    /// On machines that let this user make control groups; elsewhere there is nothing to try.
    #[test]
    fn what_left_its_session_is_killed_with_its_group() {
        let Some(mut agent_group) = AgentGroup::make() else {
            return;
        };
        let (job_group, procs) = agent_group.job_group(None).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 1000 & exit 0"]);
        let group = Some(procs);
        limit_child(
            &mut command,
            ChildLimits {
                group,
                ..ChildLimits::default()
            },
        );
        assert!(command.status().unwrap().success());
        drop(command);
        assert!(job_group.is_populated());
        job_group.kill();
        let end = Instant::now() + Duration::from_secs(100);
        while job_group.is_populated() {
            assert!(Instant::now() < end, "the group is killed");
            thread::sleep(REMOVAL_INTERVAL);
        }
        let path = agent_group.path.clone();
        drop((job_group, agent_group));
        assert!(!path.exists(), "nothing of it is left");
    }

    /// Groups below a threaded one are invalid for processes until they are threaded themselves; with the memory
    /// controller at work the kernel makes no threaded one.
    #[test]
    fn groups_that_no_process_can_join_are_not_taken() {
        let Some(mut agent_group) = AgentGroup::make() else {
            return;
        };
        assert!(agent_group.can_be_joined());
        if fs::write(agent_group.path.join("cgroup.type"), "threaded").is_ok() {
            assert!(!agent_group.can_be_joined());
        }
    }

    #[test]
    fn groups_that_a_job_made_in_its_own_go_with_it_and_with_the_agent_s() {
        let Some(mut agent_group) = AgentGroup::make() else {
            return;
        };
        let (job, _procs) = agent_group.job_group(None).unwrap();
        let path = job.path.clone();
        fs::create_dir_all(path.join("of-the-job/and-deeper")).unwrap();
        drop(job);
        assert!(!path.exists(), "with the job's");
        fs::create_dir_all(path.join("of-the-job/and-deeper")).unwrap();
        let path = agent_group.path.clone();
        drop(agent_group);
        assert!(!path.exists(), "with the agent's");
    }
}
