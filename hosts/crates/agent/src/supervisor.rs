// SPDX-License-Identifier: Apache-2.0
//! The poll loop: reads requests, writes events, supervises jobs and cleans up.

use crate::AgentError;
use crate::cgroup::AgentGroup;
use crate::child_reaper;
use crate::command::TOOL_LIMIT;
use crate::heartbeat::Heartbeat;
use crate::heat::Heat;
use crate::job::{Job, StreamEnded};
use crate::line_splitter::LineSplitter;
use crate::message_queue::MessageQueue;
use crate::metrics::Metrics;
use crate::orphans::Orphans;
use crate::protocol::{Message, SUPPORTED_VERSIONS};
use crate::signals;
use crate::worker::Worker;
use netio::children::{self, Ended};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Rlimit, Signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long jobs may take to end when the agent's own input ends, and a finished job's group.
const END_GRACE: Duration = Duration::from_secs(1);

/// Longest request.
const LONGEST_REQUEST_BYTES: usize = 64 << 20;

/// The poll events of standard output after its reader has closed it.
const READER_CLOSED: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

/// The state of the agent.
pub struct Supervisor {
    requests: LineSplitter,
    pub(crate) output: MessageQueue,
    end_requested: OwnedFd,
    pub(crate) jobs: Vec<Job>,
    pub(crate) orphans: Orphans,
    pub(crate) worker: Worker,
    /// Control groups for jobs, where there are any.
    pub(crate) agent_group: Option<AgentGroup>,
    /// Of a job without a limit of its own.
    pub(crate) open_files: Rlimit,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) heat: Heat,
    /// Files of runs are in memory: the largest that a job may write.
    pub(crate) memory_file_bytes: Option<u64>,
    /// Once closing: when to give up on jobs that even KILL does not end (blocked in a driver).
    give_up_at: Option<Instant>,
    /// Of a stream over a network.
    heartbeat: Option<Heartbeat>,
}

/// A descriptor to poll.
#[derive(Clone, Copy)]
enum Source {
    Requests,
    Reader,
    EndRequested,
    Answered,
    Ended,
    Input(usize),
    Stream(usize, usize),
}

impl Supervisor {
    /// Become the subreaper of the jobs' descendants. `silence`: how long the stream may be silent; none: for ever.
    /// `agent_group`: control groups for jobs. `open_files`: what jobs may have that say nothing else.
    pub fn new(
        silence: Option<Duration>,
        agent_group: Option<AgentGroup>,
        open_files: Rlimit,
    ) -> Result<Self, AgentError> {
        let end_requested = netio::shutdown_signal::requests()?;
        netio::process::set_child_subreaper()?;
        Ok(Self {
            requests: LineSplitter::new(LONGEST_REQUEST_BYTES),
            output: MessageQueue::default(),
            end_requested,
            jobs: Vec::new(),
            orphans: Orphans::default(),
            worker: Worker::begin()?,
            agent_group,
            open_files,
            metrics: None,
            memory_file_bytes: None,
            heat: Heat::find(Path::new("/sys"), Instant::now()),
            give_up_at: None,
            heartbeat: silence.map(|limit| Heartbeat::new(limit, Instant::now())),
        })
    }

    /// Serve until standard input ends, standard output is closed, or a signal arrives.
    pub fn serve(mut self) -> Result<(), AgentError> {
        self.output.push(&Message::Hello {
            protocol: SUPPORTED_VERSIONS[0].0,
            speaks: &SUPPORTED_VERSIONS,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            arch: std::env::consts::ARCH,
        });
        let result = self.serve_until_end();
        self.clean_up();
        result
    }

    fn serve_until_end(&mut self) -> Result<(), AgentError> {
        while !self.is_finished() {
            self.output.flush();
            for (source, flags) in self.wait()? {
                self.handle(source, flags)?;
            }
            self.kill_overdue()?;
            self.beat();
            self.measure();
            if !self.jobs.is_empty() {
                self.heat.read_when_due(Instant::now());
            }
            if self.output.reader_closed() {
                self.close();
            }
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        let nothing_left = self.jobs.is_empty() && self.orphans.is_empty() && self.worker.is_idle();
        self.give_up_at
            .is_some_and(|at| nothing_left || at <= Instant::now())
    }

    /// Wait for events. With a full output queue nothing is read, but the end of
    /// any stream or job is still seen.
    fn wait(&self) -> Result<Vec<(Source, PollFlags)>, AgentError> {
        let stdin = io::stdin();
        let stdout = io::stdout();
        let read_flags = if self.output.is_full() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let write_flags = if self.output.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        let mut sources = Vec::new();
        let mut fds = Vec::new();
        let mut watch = |source: Source, fd, flags: PollFlags| {
            sources.push(source);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if self.give_up_at.is_none() {
            watch(Source::Requests, stdin.as_fd(), read_flags);
            watch(
                Source::EndRequested,
                self.end_requested.as_fd(),
                PollFlags::IN,
            );
        }
        if !self.output.reader_closed() {
            watch(Source::Reader, stdout.as_fd(), write_flags);
        }
        if !read_flags.is_empty() {
            watch(Source::Answered, self.worker.answered(), read_flags);
        }
        for (job_index, job) in self.jobs.iter().enumerate() {
            if let Some(pipe) = job.blocked_input() {
                watch(Source::Input(job_index), pipe, PollFlags::OUT);
            }
            for (index, stream) in job.streams.iter().enumerate() {
                if !read_flags.is_empty() {
                    watch(Source::Stream(job_index, index), stream.pipe(), read_flags);
                }
            }
            watch(Source::Ended, job.pidfd.as_fd(), PollFlags::IN);
        }
        match poll(&mut fds, self.time_to_wake().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = sources.into_iter().zip(fds.iter().map(PollFd::revents));
        let mut ready: Vec<_> = ready.filter(|(_, flags)| !flags.is_empty()).collect();
        // Requests and ended jobs last: they change which job has which number, and a job's last
        // lines come before its exit. Of streams that end, the higher number goes first.
        ready.reverse();
        ready.sort_by_key(|(source, _)| match source {
            Source::Requests => 1,
            Source::Ended => 2,
            _ => 0,
        });
        ready.dedup_by(|a, b| matches!((a.0, b.0), (Source::Ended, Source::Ended)));
        Ok(ready)
    }

    fn handle(&mut self, source: Source, flags: PollFlags) -> Result<(), AgentError> {
        match source {
            Source::Requests => self.take_requests(flags)?,
            Source::EndRequested => self.close(),
            Source::Answered => self.send_answers(),
            Source::Reader if flags.intersects(READER_CLOSED) => self.output.discard(),
            Source::Reader => self.output.flush(),
            Source::Ended => self.reap()?,
            Source::Input(job_index) => self.jobs[job_index].write_input(),
            Source::Stream(job_index, index) => self.relay(job_index, index),
        }
        Ok(())
    }

    fn take_requests(&mut self, flags: PollFlags) -> Result<(), AgentError> {
        if !flags.contains(PollFlags::IN) {
            // Hung up with nothing left to read, or while our reader takes nothing.
            self.close();
            return Ok(());
        }
        let mut chunk = vec![0; 64 << 10];
        let count = match rustix::io::read(io::stdin(), &mut chunk) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        if count == 0 {
            self.close();
            return Ok(());
        }
        let mut lines = Vec::new();
        self.requests
            .feed(&chunk[..count], |line| lines.push(line.to_vec()));
        for line in lines.iter().filter(|line| !line.trim_ascii().is_empty()) {
            self.answer(line);
        }
        // Not before: what the other side says while we answer is read only afterwards.
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.on_received(Instant::now());
        }
        Ok(())
    }

    fn send_answers(&mut self) {
        for (id, answer) in self.worker.answers() {
            self.send_answer(&id, answer);
        }
    }

    fn relay(&mut self, job_index: usize, index: usize) {
        let Self { jobs, output, .. } = self;
        let Job { name, streams, .. } = &mut jobs[job_index];
        let stream = &mut streams[index];
        let stream_name = stream.name;
        if let Err(StreamEnded) = stream.read(|line| push_line(output, name, stream_name, line)) {
            streams.remove(index);
        }
    }

    /// Collect every child that has ended: jobs, and what jobs left to us.
    fn reap(&mut self) -> Result<(), AgentError> {
        while let Some(ended) = children::collect()? {
            self.on_child_end(&ended);
        }
        Ok(())
    }

    fn on_child_end(&mut self, ended: &Ended) {
        let pid = Pid::from_raw(ended.pid);
        let Some(job_index) = self.jobs.iter().position(|job| Some(job.pid) == pid) else {
            return; // adopted
        };
        let mut job = self.jobs.remove(job_index);
        let output = &mut self.output;
        for mut stream in job.streams.drain(..) {
            let stream_name = stream.name;
            stream.drain(|line| push_line(output, &job.name, stream_name, line));
        }
        output.push(&Message::Exit {
            job: &job.name,
            code: ended.status.code(),
            signal: ended.status.signal().map(signals::name),
            exceeded: job.exceeded_limit(ended),
            cpu_ns: u64::try_from(ended.cpu.as_nanos()).unwrap_or(u64::MAX),
            peak_memory_bytes: ended.peak_memory_bytes,
        });
        if job.kill_at.is_some() {
            job.terminate_daemons();
        }
        // A job is over when its first process is; a moment is left for what it started to end as well.
        let kill_at = job.kill_at.unwrap_or(Instant::now() + END_GRACE);
        let (group, job_group, mark) = job.into_orphan();
        self.orphans.add(group, job_group, mark, kill_at);
    }

    fn time_to_wake(&self) -> Option<Timespec> {
        let wake_times = self.heartbeat.as_ref().map(Heartbeat::wake_at).into_iter();
        let wake_times = wake_times.chain(self.metrics.as_ref().map(Metrics::wake_at));
        let wake_times = wake_times.chain(self.heat.wake_at().filter(|_| !self.jobs.is_empty()));
        let next = self
            .jobs
            .iter()
            .filter_map(Job::wake_at)
            .chain(self.give_up_at)
            .chain(wake_times.filter(|_| self.give_up_at.is_none()))
            .min();
        let remaining = next.map(|next| next.saturating_duration_since(Instant::now()));
        let remaining = remaining.into_iter().chain(self.orphans.delay()).min()?;
        Timespec::try_from(remaining).ok()
    }

    fn kill_overdue(&mut self) -> Result<(), AgentError> {
        if !self.orphans.is_empty() {
            self.reap()?; // ended but uncollected members still count as members
        }
        let now = Instant::now();
        for job in &mut self.jobs {
            job.enforce_time(now);
        }
        self.orphans.kill_overdue(now);
        Ok(())
    }

    /// Send metrics when they are due; a reader that is behind gets none.
    fn measure(&mut self) {
        let Some(metrics) = self.metrics.as_mut().filter(|_| self.give_up_at.is_none()) else {
            return;
        };
        if metrics.advance_if_due(Instant::now()) && !self.output.is_full() {
            let fields = metrics.sample(&self.jobs, &mut self.heat);
            self.output.push(&Message::Metrics { fields });
        }
    }

    /// Send heartbeats; end everything when the other side has been silent for too long.
    fn beat(&mut self) {
        let now = Instant::now();
        let Some(heartbeat) = &mut self.heartbeat else {
            return;
        };
        let silent = heartbeat.is_silent(now);
        if heartbeat.advance_if_due(now) && !self.output.is_full() {
            self.output.push(&Message::Beat);
        }
        if silent {
            self.close();
        }
    }

    /// Take no more requests; end every job within [`END_GRACE`].
    pub(crate) fn close(&mut self) {
        if self.give_up_at.is_some() {
            return;
        }
        let kill_at = Instant::now() + END_GRACE;
        self.give_up_at = Some(kill_at + END_GRACE);
        for job in &mut self.jobs {
            job.end_input();
            job.signal(Signal::TERM).ok();
            job.kill_at = Some(job.kill_at.map_or(kill_at, |at| at.min(kill_at)));
        }
        self.orphans.terminate(kill_at);
    }

    /// The jobs have ended: kill processes that left their groups, undo every setting, send the last messages.
    fn clean_up(mut self) {
        self.orphans = Orphans::default();
        drop(self.agent_group.take()); // kills what is in it
        // Settings in progress are completed, which tools do within their time limit, and then undone.
        let state = self.worker.state.lock_within(TOOL_LIMIT + END_GRACE);
        child_reaper::kill_all(END_GRACE);
        match state {
            Some(mut state) => {
                for problem in state.undo() {
                    eprintln!("atoll-host agent: {problem}");
                }
            }
            None => {
                eprintln!("atoll-host agent: a tool does not end, so the settings were not undone");
            }
        }
        self.output.flush_all(&Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
    }
}

fn push_line(output: &mut MessageQueue, job: &str, stream: &str, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    output.push(&Message::Line {
        job,
        stream,
        line: &line,
    });
}
