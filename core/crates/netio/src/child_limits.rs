// SPDX-License-Identifier: Apache-2.0
//! Limits of a child process, set between fork and exec: resource limits, niceness, CPUs, a control group.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, write};
use rustix::process::{Resource, Rlimit, getpid, getrlimit, setpriority_process, setrlimit};
use rustix::thread::{CapabilitySet, CpuSet, capabilities, nanosleep, sched_setaffinity};
use rustix::time::Timespec;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The limits of a child; its own children inherit them. `None` or empty: unchanged.
#[derive(Debug, Default)]
pub struct ChildLimits {
    /// `cgroup.procs` of its control group, open for writing.
    pub group: Option<File>,
    /// CPU seconds of a single process: `SIGXCPU` then, `SIGKILL` a second later (`RLIMIT_CPU`).
    pub cpu_seconds: Option<u64>,
    /// Private writable memory of a single process in bytes; requests beyond fail (`RLIMIT_DATA`, Linux 4.7). It may be
    /// raised later: see [`data_limit`].
    pub data_bytes: Option<u64>,
    /// Open file descriptors of a single process, soft and hard.
    pub open_files: Option<Rlimit>,
    /// Size of any file that it writes, in bytes: `SIGXFSZ` beyond.
    pub file_bytes: Option<u64>,
    /// Niceness, 0 to 19.
    pub nice: Option<u8>,
    /// Numbers of the CPUs that it may run on, each less than 1024.
    pub cpus: Vec<usize>,
}

/// The interval at which unprivileged processes, all together, may set the niceness of an autogroup (`kernel/sched/autogroup.c`).
const AUTOGROUP_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Number of attempts. Jobs that start together wait for each other, and the starter waits for each.
const AUTOGROUP_TRIES: usize = 5;

/// Set the limits of the child that `command` starts. The niceness also applies to the session's autogroup if the child
/// leads a session: call this after [`crate::process::configure_child`]. Limits of one number are both hard and soft;
/// signals of limits write no core files.
///
/// A failure in the child (not permitted, no such CPU) is the error of `Command::spawn`.
pub fn limit_child(command: &mut Command, limits: ChildLimits) {
    let resources = limits_of(&limits);
    let mut allowed = CpuSet::new();
    for &cpu in limits.cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        allowed.set(cpu);
    }
    let is_pinned = !limits.cpus.is_empty();
    let ChildLimits { group, nice, .. } = limits;
    let nice = nice.map(|nice| (i32::from(nice), nice.to_string()));
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe system calls on memory that
    // was made before the fork; it neither allocates nor takes locks.
    unsafe {
        command.pre_exec(move || {
            if let Some(group) = &group {
                write(group, b"0")?;
            }
            if let Some((nice, text)) = &nice {
                setpriority_process(None, *nice)?;
                set_autogroup_nice(text.as_bytes())?;
            }
            if is_pinned {
                sched_setaffinity(None, &allowed)?;
            }
            for (resource, limit) in resources.into_iter().flatten() {
                setrlimit(resource, limit)?;
            }
            Ok(())
        });
    }
}

/// Give the session's autogroup this niceness, too (sched(7), "The autogroup feature"): where there are autogroups, the
/// niceness of a process counts only within its session. Does nothing without autogroups, where they cannot be
/// set (/proc is read-only, or other processes use up the permitted rate), or if the session is shared with other processes.
fn set_autogroup_nice(nice: &[u8]) -> rustix::io::Result<()> {
    if !leads_session() {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(file) = open(c"/proc/self/autogroup", flags, Mode::empty()) else {
        return Ok(());
    };
    for _ in 0..AUTOGROUP_TRIES {
        match write(&file, nice) {
            Err(Errno::AGAIN) => drop(nanosleep(&AUTOGROUP_INTERVAL)),
            outcome => return outcome.map(drop),
        }
    }
    Ok(())
}

/// Whether this process leads its session. getsid(2) answers 0 if the session began outside of this PID namespace, as in
/// `docker exec`; the type of `rustix::process::getsid` cannot hold that.
fn leads_session() -> bool {
    // SAFETY: getsid(2) takes no pointers.
    let session = unsafe { libc::getsid(0) };
    session == getpid().as_raw_nonzero().get()
}

/// The niceness of a process's autogroup; `None` where there are no autogroups, or the process is gone.
#[must_use]
pub fn autogroup_nice(pid: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
    text.split_whitespace().last()?.parse().ok()
}

/// The limit of private writable memory that a child can have: at most the hard one of this process. A soft limit alone if
/// this process could not raise a hard one later.
#[must_use]
pub fn data_limit(bytes: u64) -> Rlimit {
    let hard_limit = getrlimit(Resource::Data).maximum;
    let current = Some(bytes.min(hard_limit.unwrap_or(u64::MAX)));
    let maximum = if can_raise_hard_limits() {
        current
    } else {
        hard_limit
    };
    Rlimit { current, maximum }
}

/// Whether this process has `CAP_SYS_RESOURCE` in the initial user namespace, whose inode number is `PROC_USER_INIT_INO`
/// (`include/linux/proc_ns.h`).
fn can_raise_hard_limits() -> bool {
    let namespace = std::fs::read_link("/proc/self/ns/user");
    namespace.is_ok_and(|namespace| namespace.as_os_str() == "user:[4026531837]")
        && capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::SYS_RESOURCE))
}

fn limits_of(limits: &ChildLimits) -> [Option<(Resource, Rlimit)>; 5] {
    let rlimit = |soft: u64, hard: u64| Rlimit {
        current: Some(soft),
        maximum: Some(hard),
    };
    let (cpu_seconds, file_bytes) = (limits.cpu_seconds, limits.file_bytes);
    let signals = cpu_seconds.is_some() || file_bytes.is_some();
    [
        signals.then(|| (Resource::Core, rlimit(0, 0))),
        cpu_seconds.map(|limit| (Resource::Cpu, rlimit(limit, limit.saturating_add(1)))),
        limits
            .data_bytes
            .map(|limit| (Resource::Data, data_limit(limit))),
        limits.open_files.map(|limit| (Resource::Nofile, limit)),
        file_bytes.map(|limit| (Resource::Fsize, rlimit(limit, limit))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn shell(script: &str, limits: ChildLimits) -> std::process::Output {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        limit_child(&mut command, limits);
        command.output().unwrap()
    }

    #[test]
    fn a_child_has_the_bounds_it_was_given_and_its_children_too() {
        let bound = ChildLimits {
            cpu_seconds: Some(7),
            data_bytes: Some(512 << 20),
            open_files: Some(Rlimit {
                current: Some(99),
                maximum: Some(100),
            }),
            file_bytes: Some(4096 * 512),
            nice: Some(5),
            cpus: vec![0],
            ..ChildLimits::default()
        };
        let script = "sh -c 'ulimit -t; ulimit -d; ulimit -n; ulimit -Hn; ulimit -f; nice; grep Cpus_allowed_list /proc/self/status'";
        let ended = shell(script, bound);
        assert!(ended.status.success(), "{ended:?}"); // its signal or message
        let said = String::from_utf8(ended.stdout).unwrap();
        let words: Vec<&str> = said.split_whitespace().collect();
        // dash counts memory in KiB and files in blocks of 512 bytes.
        assert_eq!(
            words,
            [
                "7",
                "524288",
                "99",
                "100",
                "4096",
                "5",
                "Cpus_allowed_list:",
                "0"
            ]
        );
    }

    /// As in a container that is entered by `docker exec`.
    #[test]
    fn a_session_may_begin_outside_of_the_pid_namespace() {
        let in_namespace = |arguments: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork"]);
            if !rustix::process::geteuid().is_root() {
                command.args(["--user", "--map-root-user"]);
            }
            command.args(arguments).output().unwrap()
        };
        if !in_namespace(&["true"]).status.success() {
            eprintln!("skipped: this machine allows no namespaces");
            return;
        }
        let tests = std::env::current_exe().unwrap();
        let name = "child_limits::tests::a_child_has_the_bounds_it_was_given_and_its_children_too";
        let ended = in_namespace(&[tests.to_str().unwrap(), "--exact", name]);
        assert!(ended.status.success(), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(said.contains("1 passed"), "the test has that name: {said}");
    }

    #[test]
    fn niceness_is_that_of_the_childs_autogroup_too_and_not_of_ours() {
        let autogroup = || std::fs::read_to_string("/proc/self/autogroup").unwrap_or_default();
        let ours = autogroup();
        let mut command = Command::new("cat");
        command.arg("/proc/self/autogroup");
        crate::process::configure_child(&mut command, None).unwrap();
        let bound = ChildLimits {
            nice: Some(7),
            ..ChildLimits::default()
        };
        limit_child(&mut command, bound);
        let said = command.output().unwrap();
        // Without autogroups there is no such file, or it is empty.
        if !ours.is_empty() {
            let theirs = String::from_utf8(said.stdout).unwrap();
            assert!(theirs.ends_with(" nice 7\n"), "{theirs}");
            assert_eq!(autogroup(), ours);
        }
    }

    #[test]
    fn a_file_beyond_its_limit_ends_the_writer() {
        let bound = ChildLimits {
            file_bytes: Some(1000),
            ..ChildLimits::default()
        };
        let file = std::env::temp_dir().join(format!("atoll-confine-{}", std::process::id()));
        let script = format!("exec head -c 2000 /dev/zero >{}", file.display());
        let ended = shell(&script, bound);
        std::fs::remove_file(&file).ok();
        assert_eq!(ended.status.signal(), Some(libc::SIGXFSZ));
        assert!(!ended.status.core_dumped());
    }
}
