// SPDX-License-Identifier: Apache-2.0
//! The guard of an agent, which cleans up after an agent that is killed: outside of an emulated lab no namespace ends
//! with the agent.
//!
//! The guard starts the agent, as root in a PID namespace of its own, and waits. When the agent is killed, the kernel kills
//! every process of that namespace. Without a namespace the guard adopts the processes that the agent's jobs left behind (the
//! jobs themselves die with the agent), and kills them. Then it undoes the changes in the agent's journal. The agent does
//! not depend on its guard; when both are killed, the next agent on the machine undoes the changes.

use crate::AgentError;
use crate::machine_lock::{self, MachineLock};
use crate::{applied_state, cgroup, child_reaper};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

/// How long killed processes may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Run the agent as a child, its streams those of this process; an error when it failed or was killed.
pub fn watch_agent(silence: Duration, without_groups: bool) -> Result<(), AgentError> {
    cgroup::remove_abandoned();
    machine_lock::remove_abandoned();
    netio::process::set_child_subreaper()?;
    let end_requested = netio::shutdown_signal::requests()?;
    let seconds = silence.as_secs().to_string();
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["agent", "--guarded", "--silence", &seconds])
        .args(without_groups.then_some("--no-cgroups"));
    let mut agent = netio::process::spawn_in_pid_namespace_if_permitted(&mut command)?;
    let pid = Pid::from_child(&agent);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let mut fds = [
            PollFd::new(&pidfd, PollFlags::IN),
            PollFd::new(&end_requested, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if !fds[0].revents().is_empty() {
            break;
        }
        if !fds[1].revents().is_empty() {
            kill_process(pid, Signal::TERM).ok();
            // The agent needs a second or two; the request stays readable meanwhile.
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).ok();
            break;
        }
    }
    let status = agent.wait()?;
    if status.success() {
        return Ok(());
    }
    cgroup::remove_abandoned();
    child_reaper::kill_all(KILL_TIMEOUT);
    if let Ok(_lock) = MachineLock::acquire("the guard of an agent that was killed") {
        applied_state::undo_leftovers()?;
    }
    let end = status.signal().map_or_else(
        || "failed".to_owned(),
        |number| format!("was killed by signal {number}"),
    );
    Err(AgentError::Machine(format!(
        "the agent {end}; its settings are undone"
    )))
}
