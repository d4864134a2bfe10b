// SPDX-License-Identifier: Apache-2.0
//! One job: a process leading a group of its own, and its pipes.

use crate::AgentError;
use crate::cgroup::{AgentGroup, JobGroup};
use crate::child_reaper;
use crate::command;
use crate::job_privileges;
use crate::limits::Limits;
use crate::line_splitter::LineSplitter;
use crate::machine_info::clock_ns;
use crate::orphans::Orphans;
use crate::protocol::{LINES, StartJob};
use netio::child_limits::data_limit;
use netio::children::Ended;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Longest line of a job's output; longer ones are split, which bounds the agent's memory.
const LONGEST_LINE: usize = 4 << 20;

/// Largest unread input of a job; more is refused.
const MOST_INPUT_BYTES: usize = 16 << 20;

/// How much of a job's output is read at a time: a pipe's capacity.
const CHUNK_BYTES: usize = 64 << 10;

/// A running job.
#[derive(Debug)]
pub struct Job {
    /// Its name: unique among running jobs.
    pub name: String,
    /// Process id, and that of its group and session.
    pub pid: Pid,
    /// The network namespace it was started in; none: the agent's own.
    pub netns: Option<PathBuf>,
    /// Readable when the process has ended.
    pub pidfd: OwnedFd,
    /// When its group is killed, after a request to stop.
    pub kill_at: Option<Instant>,
    /// When its time limit is reached.
    pub timeout_at: Option<Instant>,
    /// Standard output, then standard error, as far as they become lines.
    pub streams: Vec<Stream>,
    input: Option<Input>,
    limits: Limits,
    group: Option<JobGroup>,
    mark: String,
    timed_out: bool,
}

/// Grace time of a job that has reached its time limit.
const OVERTIME_GRACE: Duration = Duration::from_secs(1);

/// A pipe whose lines become events.
#[derive(Debug)]
pub struct Stream {
    /// `stdout` or `stderr`.
    pub name: &'static str,
    pipe: OwnedFd,
    splitter: LineSplitter,
}

#[derive(Debug)]
struct Input {
    pipe: OwnedFd,
    pending: VecDeque<u8>, // taking bytes off its front moves none of the others
    close_when_empty: bool,
}

impl Job {
    /// Start a job, in a control group of its own where there is a tree for that, and one can be made in it now. To be
    /// called by a thread that lives as long as the agent: the kernel kills the job when that thread ends.
    /// `open_files`: its limit if it says none. One that was started but cannot be managed is left to `orphans`.
    pub fn start(
        request: &StartJob,
        open_files: Rlimit,
        agent_group: Option<&mut AgentGroup>,
        orphans: &mut Orphans,
    ) -> Result<Self, AgentError> {
        let limits = &request.limits;
        limits.check()?;
        let (program, arguments) = request
            .argv
            .split_first()
            .ok_or_else(|| AgentError::Machine("argv is empty".to_owned()))?;
        let mut command = command::command(executable(program));
        let mark = format!("{}/{}", request.job, clock_ns()); // of this start: the name may come again
        command.arg0(program).args(arguments).stdin(Stdio::piped());
        command.env(child_reaper::MARK_VARIABLE, &mark);
        command.stdout(destination(&request.stdout)?);
        if let Some(stderr) = &request.stderr {
            command.stderr(destination(stderr)?);
        }
        let has_memory = agent_group.as_ref().is_some_and(|g| g.has_memory());
        let (job_group, procs) = agent_group
            .and_then(|agent_group| agent_group.job_group(limits.memory_bytes).ok())
            .unzip();
        let mut child_limits = limits.child_limits(has_memory && job_group.is_some(), open_files);
        child_limits.group = procs;
        let netns = request.netns.as_deref();
        netio::process::configure_child(&mut command, netns)
            .map_err(AgentError::file(netns.unwrap_or(Path::new(""))))?;
        netio::child_limits::limit_child(&mut command, child_limits);
        let directory = request.directory.as_deref();
        if let Some(directory) = directory {
            command.current_dir(directory);
        }
        if let Some(privileges) = &request.privileges {
            let granted = job_privileges::granted(privileges, request.user, directory)?;
            netio::privileges::restrict(&mut command, granted);
        }
        let mut child = command.spawn().map_err(|source| {
            limits.refusal(&source).unwrap_or(AgentError::Start {
                program: program.clone(),
                source,
            })
        })?;
        let pid = Pid::from_child(&child);
        let (pidfd, streams, input) = match descriptors(&mut child) {
            Ok(descriptors) => descriptors,
            Err(error) => {
                orphans.add(pid, job_group, mark, Instant::now()); // nobody could manage it: to be killed at once
                return Err(error);
            }
        };
        let mut job = Self {
            name: request.job.clone(),
            pid,
            netns: request.netns.clone(),
            pidfd,
            kill_at: None,
            timeout_at: (limits.wall_ns).map(|ns| Instant::now() + Duration::from_nanos(ns)),
            streams,
            input,
            limits: limits.clone(),
            group: job_group,
            mark,
            timed_out: false,
        };
        job.send(request.input.as_bytes())?;
        if request.close_input {
            job.end_input();
        }
        Ok(job)
    }

    /// Raise the limit of memory that its first process may write to; a higher one, or none, stays.
    pub fn raise_memory(&mut self, bytes: u64) -> Result<(), AgentError> {
        if self.limits.raise_memory(bytes) {
            let group_ran_out = self.group.as_ref().and_then(JobGroup::ran_out_of_memory);
            let raised = self.limits.process_memory_limit(group_ran_out.is_some());
            if let Some(limit) = raised.map(data_limit) {
                rustix::process::prlimit(Some(self.pid), Resource::Data, limit)?;
            }
        }
        Ok(())
    }

    /// Send a signal to the whole process group. A group that has ended is no error.
    pub fn signal(&self, signal: Signal) -> Result<(), AgentError> {
        match rustix::process::kill_process_group(self.pid, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Send TERM to the job's daemons, which a signal to the process group does not reach.
    pub fn terminate_daemons(&self) {
        if self.group.is_none() {
            child_reaper::signal_marked(&self.mark, Signal::TERM);
        }
    }

    /// Send TERM after the time limit, and KILL after the grace time.
    pub fn enforce_time(&mut self, now: Instant) {
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.timeout_at = None;
            self.timed_out = true;
            self.signal(Signal::TERM).ok();
            let kill_at = now + OVERTIME_GRACE;
            self.kill_at = Some(self.kill_at.map_or(kill_at, |at| at.min(kill_at)));
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            self.signal(Signal::KILL).ok();
            self.kill_at = None;
        }
    }

    /// When to call [`Self::enforce_time`] next.
    pub fn wake_at(&self) -> Option<Instant> {
        self.kill_at.into_iter().chain(self.timeout_at).min()
    }

    /// The limit that ended it, in words, now that it has ended.
    pub fn exceeded_limit(&self, ended: &Ended) -> Option<String> {
        if self.timed_out {
            return Some(self.limits.wall_text());
        }
        let memory = match self.group.as_ref().and_then(JobGroup::ran_out_of_memory) {
            Some(true) => self.limits.memory_bytes,
            // The end of a job that was stopped says nothing of its memory.
            _ if self.kill_at.is_some() => None,
            group_ran_out => self.limits.refused_memory(ended, group_ran_out.is_some()),
        };
        self.limits.exceeded(ended, memory)
    }

    /// Its control group, if it has one.
    pub fn group(&self) -> Option<&JobGroup> {
        self.group.as_ref()
    }

    /// The processes that may outlive the job: its process group, its control group, and the mark of its daemons.
    pub fn into_orphan(self) -> (Pid, Option<JobGroup>, String) {
        (self.pid, self.group, self.mark)
    }

    /// Queue bytes for standard input and write what goes without blocking. A job that has closed
    /// its input gets nothing, without an error: it ends, or its output says why.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        let Some(input) = &mut self.input else {
            return Ok(());
        };
        let pending = input.pending.len();
        if pending > 0 && pending + bytes.len() > MOST_INPUT_BYTES {
            return Err(AgentError::Machine(format!(
                "job {:?} does not read its input ({pending} bytes wait)",
                self.name
            )));
        }
        input.pending.extend(bytes);
        self.write_input();
        Ok(())
    }

    /// End standard input once everything queued is written.
    pub fn end_input(&mut self) {
        if let Some(input) = &mut self.input {
            input.close_when_empty = true;
        }
        self.write_input();
    }

    /// The input pipe, if bytes wait for it.
    pub fn blocked_input(&self) -> Option<BorrowedFd<'_>> {
        let input = self.input.as_ref()?;
        (!input.pending.is_empty()).then(|| input.pipe.as_fd())
    }

    /// Write queued input as far as it goes without blocking.
    pub fn write_input(&mut self) {
        let Some(input) = &mut self.input else {
            return;
        };
        while !input.pending.is_empty() {
            match rustix::io::write(&input.pipe, input.pending.as_slices().0) {
                Ok(count) => drop(input.pending.drain(..count)),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => {
                    self.input = None; // closed by the job
                    return;
                }
            }
        }
        if input.close_when_empty {
            self.input = None;
        }
    }
}

/// Of a process that was just started: one that is readable when it has ended, and its pipes.
fn descriptors(child: &mut Child) -> Result<(OwnedFd, Vec<Stream>, Option<Input>), AgentError> {
    let stdout = (child.stdout.take()).map(|pipe| Stream::new("stdout", pipe.into()));
    let stderr = (child.stderr.take()).map(|pipe| Stream::new("stderr", pipe.into()));
    let streams = stdout.into_iter().chain(stderr);
    let input = (child.stdin.take()).map(|pipe| Input::new(pipe.into()));
    Ok((
        pidfd_open(Pid::from_child(child), PidfdFlags::empty())?,
        streams.collect::<Result<_, _>>()?,
        input.transpose()?,
    ))
}

impl Input {
    fn new(pipe: OwnedFd) -> Result<Self, AgentError> {
        // This end is ours alone; the job's end keeps its own blocking mode.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self {
            pipe,
            pending: VecDeque::new(),
            close_when_empty: false,
        })
    }
}

impl Stream {
    fn new(name: &'static str, pipe: OwnedFd) -> Result<Self, AgentError> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self {
            name,
            pipe,
            splitter: LineSplitter::new(LONGEST_LINE),
        })
    }

    /// The pipe to poll.
    pub fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Read once and deliver the lines this completes. `Ok(true)`: there may be more;
    /// `Ok(false)`: nothing at the moment; an error: the stream has ended.
    pub fn read(&mut self, deliver: impl FnMut(&[u8])) -> Result<bool, StreamEnded> {
        let mut chunk = vec![0; CHUNK_BYTES];
        match rustix::io::read(&self.pipe, &mut chunk) {
            Ok(0) => {
                self.splitter.finish(deliver);
                Err(StreamEnded)
            }
            Ok(count) => {
                self.splitter.feed(&chunk[..count], deliver);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(_) => Err(StreamEnded),
        }
    }

    /// The job has ended: deliver what the pipe still holds. What a surviving descendant writes
    /// later is not the job's output any more.
    pub fn drain(&mut self, mut deliver: impl FnMut(&[u8])) {
        let most_chunks = LONGEST_LINE / CHUNK_BYTES; // a descendant may write faster than we read
        for _ in 0..most_chunks {
            match self.read(&mut deliver) {
                Ok(true) => {}
                Ok(false) => break,
                Err(StreamEnded) => return,
            }
        }
        self.splitter.finish(deliver);
    }
}

/// The end of a stream.
#[derive(Debug)]
pub struct StreamEnded;

/// The agent's own executable for `atoll-host`: hosts need one file, even in a folder that the job may not enter.
fn executable(program: &str) -> &str {
    if program == "atoll-host" {
        return "/proc/self/exe";
    }
    program
}

fn destination(output: &str) -> Result<Stdio, AgentError> {
    if output == LINES {
        return Ok(Stdio::piped());
    }
    let file: File = OpenOptions::new()
        .append(true)
        .create(true)
        .open(output)
        .map_err(AgentError::file(output))?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::{ClockId, clock_gettime};

    fn cpu() -> Duration {
        Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
    }

    #[test]
    fn feeding_a_job_takes_time_in_proportion_to_its_input() {
        let request = StartJob {
            job: "reader".to_owned(),
            netns: None,
            argv: vec!["cat".to_owned()],
            input: "x".repeat(128 << 20),
            close_input: true,
            stdout: "/dev/null".to_owned(),
            stderr: None,
            limits: Limits::default(),
            privileges: None,
            user: job_privileges::User::Agent,
            directory: None,
        };
        let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let begun = cpu();
        let mut job = Job::start(&request, open_files, None, &mut Orphans::default()).unwrap();
        while let Some(pipe) = job.blocked_input() {
            poll(&mut [PollFd::from_borrowed_fd(pipe, PollFlags::OUT)], None).unwrap();
            job.write_input();
        }
        // Moving what is left for each of two thousand full pipes would be 140 GB.
        let spent = cpu().saturating_sub(begun);
        assert!(spent < Duration::from_secs(4), "{spent:?}");
    }
}
