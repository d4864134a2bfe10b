// SPDX-License-Identifier: Apache-2.0
//! The host agent: starts, watches and stops every job on a host.
//!
//! It reads and writes JSON lines on its standard input and output (`docs/contracts.md`, "Agent"). Its jobs and
//! settings live no longer than that stream:
//!
//! | end of | cleaned up by |
//! |---|---|
//! | standard input, or the reader of standard output; SIGTERM, SIGINT, SIGHUP | the agent: TERM, then KILL after 1 s, then settings undone |
//! | the agent itself (`kill -9`) | the kernel: jobs carry a parent-death signal; on a machine of its own also the end of its PID namespace, and [`guard`] |
//! | a job that leaves processes behind | the agent: by process group, by control group ([`cgroup`]), or as adopted children with the job's mark ([`child_reaper`]) |
//! | a job that exceeds a limit | the kernel, or the agent ([`limits`]) |
//!
//! The main thread runs the jobs: [`supervisor`] is a poll loop, and all jobs are forked by this
//! thread because a parent-death signal is tied to the forking thread. A worker thread does what may
//! take long ([`worker`]). Further threads enter a network namespace for the length of one
//! request ([`namespace`]).
//! [`host_config`], [`policy_routing`] and [`packet_filter`] compute the settings of a machine as pure text (`ip -batch`,
//! `nft`, sysctls) and [`host_setup`] applies and undoes them.

mod address_probe;
mod applied_state;
mod cgroup;
mod child_reaper;
mod command;
mod counters;
mod error;
mod guard;
mod heartbeat;
mod heat;
mod host_config;
mod host_setup;
mod job;
mod job_privileges;
mod limits;
mod line_splitter;
mod machine_info;
mod machine_lock;
mod memory;
mod message_queue;
mod metrics;
mod namespace;
mod offloads;
mod orphans;
mod packet_filter;
mod policy_routing;
mod private_directory;
mod protocol;
mod requests;
mod settings;
mod settings_check;
mod signals;
mod spool;
mod supervisor;
mod sysctl;
mod worker;

pub use error::AgentError;
use std::time::Duration;

/// `atoll-host agent`: serve requests until standard input ends, or says nothing for `silence`, then leave nothing
/// behind. An agent that minds silence has a machine to itself: unless it is `guarded` already, a process of its own
/// watches over it, and its jobs have control groups where the machine lets us make some, unless `without_groups`.
/// (In an emulated lab the end of its PID namespace ends all there is, and leaves no empty groups behind.)
///
/// # Errors
/// A message for the user when the agent cannot begin; failed requests are answered instead.
pub fn run(
    silence: Option<Duration>,
    guarded: bool,
    without_groups: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    match silence {
        Some(limit) if !guarded => guard::watch_agent(limit, without_groups)?,
        _ => {
            let groups = silence.is_some() && !without_groups;
            let agent_group = groups.then(cgroup::AgentGroup::make).flatten();
            let open_files = limits::raise_open_files();
            supervisor::Supervisor::new(silence, agent_group, open_files)?.serve()?;
        }
    }
    Ok(())
}
