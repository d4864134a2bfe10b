// SPDX-License-Identifier: Apache-2.0
//! Children that cannot outlive their parent: parent-death signals, sub-reapers, namespaces.
//!
//! A job of the agent is started by [`std::process::Command`] after [`configure_child`]: it enters
//! its network namespace, becomes leader of a session and process group of its own (so that the
//! whole group can be signalled by `-pid`), and is killed by the kernel when its parent dies.

use crate::shutdown_signal;
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal,
    setrlimit, setsid,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

/// Make `command` start its program in a session and process group of its own, optionally inside
/// the network namespace of `netns` (a path such as `/proc/123/ns/net` or `/run/netns/w1`), and have
/// the kernel kill it (`SIGKILL`) when the calling **thread** ends.
///
/// The kernel ties the death signal to the thread that forks (prctl(2), `PR_SET_PDEATHSIG`): spawn
/// from a thread that lives as long as the process does. Programs with set-user-id bits or file
/// capabilities lose the signal at `exec`. The namespace is opened here, before the fork, so it is
/// the one meant even if the process that gave it its path ends meanwhile. It stays open until
/// `command` is dropped.
///
/// # Errors
/// When `netns` cannot be opened. Failures in the child (not permitted to enter the namespace, the
/// parent already dead) are the error of `Command::spawn`.
pub fn configure_child(command: &mut Command, netns: Option<&Path>) -> io::Result<()> {
    let namespace = netns.map(File::open).transpose()?;
    let parent = getpid();
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe system calls;
    // it neither allocates nor takes locks.
    unsafe {
        command.pre_exec(move || {
            die_with(parent)?;
            setsid()?;
            shutdown_signal::unblock_all()?; // the standard library passes the mask on
            if let Some(namespace) = &namespace {
                enter(namespace)?;
            }
            Ok(())
        });
    }
    Ok(())
}

/// Have the kernel kill the calling process (`SIGKILL`) when the thread that created it ends. A `parent` that died before
/// can no longer signal: that is an error.
pub(crate) fn die_with(parent: Pid) -> rustix::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) {
        return Ok(());
    }
    Err(Errno::SRCH)
}

fn enter(namespace: &File) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Become the parent of every descendant whose own parent dies, instead of process 1: what a job
/// leaves behind by double forking shows up as our child and can be killed and reaped.
///
/// # Errors
/// Those of prctl(2); none are expected.
pub fn set_child_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
}

/// Start `command` as process 1 of a PID namespace with a /proc of its own: the kernel kills all that it leaves when it
/// ends (`pid_namespaces(7)`). Without `CAP_SYS_ADMIN`, which both steps need, it is started in this process's namespace.
///
/// # Errors
/// Those of `Command::spawn`.
pub fn spawn_in_pid_namespace_if_permitted(command: &mut Command) -> io::Result<Child> {
    let ours = File::open("/proc/self/ns/pid")?;
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe system calls;
    // it neither allocates nor takes locks.
    unsafe {
        command.pre_exec(|| {
            if getpid() == Pid::INIT {
                mount_own_proc()?;
            }
            Ok(())
        });
    }
    let return_to_ours =
        || move_into_link_name_space(ours.as_fd(), Some(LinkNameSpaceType::ProcessID));
    // SAFETY: file descriptors stay as they are.
    let unshare = || unsafe { unshare_unsafe(UnshareFlags::NEWPID) };
    if return_to_ours().and_then(|()| unshare()).is_ok() {
        let spawned = command.spawn();
        let returned = return_to_ours(); // with the children that follow
        if let Ok(mut child) = spawned {
            if let Err(error) = returned {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
            return Ok(child);
        }
    }
    command.spawn()
}

fn mount_own_proc() -> rustix::io::Result<()> {
    // SAFETY: file descriptors stay as they are.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change(
        c"/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", c"/proc", c"proc", flags, None)
}

/// Allow this process as many descriptors as the machine lets it have; how many those are.
#[must_use]
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    allowed.unwrap_or(u64::MAX)
}

/// Move the calling **thread** into the network namespace of `netns`; other threads stay.
///
/// Sockets it opens and files it opens under `/proc/sys/net` belong to that namespace from then on.
///
/// # Errors
/// When the path cannot be opened, is no network namespace, or may not be entered (`EPERM`).
pub fn enter_network_namespace(netns: &Path) -> io::Result<()> {
    Ok(enter(&File::open(netns)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::thread;

    #[test]
    fn a_child_leads_a_process_group_of_its_own() {
        let mut command = Command::new("cat");
        command.arg("/proc/self/stat").stdout(Stdio::piped());
        configure_child(&mut command, None).unwrap();
        let mut child = command.spawn().unwrap();
        let mut stat = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut stat)
            .unwrap();
        child.wait().unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(fields[2], child.id().to_string(), "process group");
        assert_eq!(fields[3], child.id().to_string(), "session");
    }

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let mut child = thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("1000");
            configure_child(&mut command, None).unwrap();
            command.spawn().unwrap()
        })
        .join()
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_missing_namespace_is_reported_before_anything_starts() {
        let mut command = Command::new("true");
        let error =
            configure_child(&mut command, Some(Path::new("/proc/self/ns/no-such"))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_configured_child_can_be_terminated_although_we_cannot() {
        let child = std::thread::spawn(|| {
            shutdown_signal::requests().unwrap(); // of this thread only
            let mut command = Command::new("grep");
            command.args(["-q", "^SigBlk:\t0*$", "/proc/self/status"]);
            configure_child(&mut command, None).unwrap();
            command.status().unwrap()
        });
        assert!(child.join().unwrap().success());
    }
}
