// SPDX-License-Identifier: Apache-2.0
//! What each request does, and what is answered.

use crate::AgentError;
use crate::apply;
use crate::cgroup::Tree;
use crate::job::Job;
use crate::machine;
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::protocol::{Asked, Message, Operation, Request, StartJob};
use crate::signals;
use crate::spool;
use crate::supervisor::Supervisor;
use crate::versions::{self, SPEAKS};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

type Answer = Result<Map<String, Value>, AgentError>;

impl Supervisor {
    /// Do what a line asks for and say what came of it.
    pub(crate) fn answer(&mut self, line: &[u8]) {
        let Request { id, operation } = Request::parse(line);
        let outcome = match operation {
            Ok(Operation::Beat) => return,
            Ok(Operation::Hello { speaks }) => match self.greeted(&speaks) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Ok(operation) => self.perform(operation),
            Err(error) => Err(error),
        };
        let (ok, error, fields) = match outcome {
            Ok(fields) => (true, None, fields),
            Err(error) => (false, Some(error.to_string()), Map::new()),
        };
        self.output.say(&Message::Answer {
            id: &id,
            ok,
            error,
            fields,
        });
    }

    /// Whoever speaks no version of ours is told so, and that is all.
    fn greeted(&mut self, speaks: &[versions::Version]) -> Result<(), AgentError> {
        if versions::agreed(&SPEAKS, speaks).is_some() {
            return Ok(());
        }
        self.close();
        Err(AgentError::Machine(format!(
            "this atoll-host {} speaks protocol {}, not {}: install the one that fits, on this machine or on yours",
            env!("CARGO_PKG_VERSION"),
            versions::words(&SPEAKS),
            versions::words(speaks),
        )))
    }

    fn perform(&mut self, operation: Operation) -> Answer {
        match operation {
            Operation::Start(request) => self.start(&request),
            Operation::Stop {
                job,
                signal,
                grace_ns,
            } => {
                let signal = signals::parse(&signal)?;
                let job = self.running(&job)?;
                job.kill_at = Some(Instant::now() + Duration::from_nanos(grace_ns));
                job.signal(signal)?;
                Ok(Map::new())
            }
            Operation::Input { job, text } => {
                self.running(&job)?.send(text.as_bytes())?;
                Ok(Map::new())
            }
            Operation::Set {
                host,
                netns,
                settings,
            } => {
                let was = self.holdings.set(&host, netns.as_deref(), settings)?;
                Ok(fields("was", was))
            }
            Operation::Unset { host } => self.holdings.unset(&host).map(|()| Map::new()),
            Operation::Sysctl { netns, sysctls } => {
                let was = self.holdings.sysctl(netns, &sysctls)?;
                Ok(fields("was", json!(was)))
            }
            Operation::Read {
                netns,
                sysctls,
                interfaces,
            } => Namespace::open(netns.as_deref())?.run(|| apply::read(&sysctls, &interfaces)),
            Operation::Measure { every_ns, hosts } => self.subscribe(every_ns, hosts),
            Operation::Sample { hosts } => {
                Ok(fields("sample", Metrics::once(hosts, &self.jobs)?.into()))
            }
            Operation::Hello { .. } | Operation::Beat => Ok(Map::new()),
            Operation::Claim { owner } => self.holdings.claim(&owner).map(|()| Map::new()),
            Operation::Describe => machine::describe(self.tree.as_ref().map(Tree::has_memory)),
            Operation::Clock => Ok(fields("t_ns", machine::clock_ns().into())),
            Operation::Spool { name } => Ok(fields("path", json!(spool::make(&name)?))),
            Operation::Files { name } => Ok(fields("spool", spool::files(&name)?)),
            Operation::Discard { name } => spool::discard(&name).map(|()| Map::new()),
        }
    }

    fn start(&mut self, request: &StartJob) -> Answer {
        if self.jobs.iter().any(|job| job.name == request.job) {
            return Err(AgentError::JobRunning(request.job.clone()));
        }
        let job = Job::start(
            request,
            self.open_files,
            self.tree.as_mut(),
            &mut self.remains,
        )?;
        let pid = job.pid.as_raw_nonzero().get();
        self.jobs.push(job);
        Ok(fields("pid", pid.into()))
    }

    fn running(&mut self, name: &str) -> Result<&mut Job, AgentError> {
        self.jobs
            .iter_mut()
            .find(|job| job.name == name)
            .ok_or_else(|| AgentError::NoJob(name.to_owned()))
    }

    /// Tell metrics from now on. With an interval of 0 the last ones are told before the answer.
    fn subscribe(&mut self, every_ns: u64, hosts: Vec<Asked>) -> Answer {
        if every_ns > 0 {
            let every = Duration::from_nanos(every_ns);
            self.metrics = Some(Metrics::new(every, hosts, Instant::now())?);
        } else if let Some(mut metrics) = self.metrics.take() {
            let fields = metrics.sample(&self.jobs);
            self.output.say(&Message::Metrics { fields });
        }
        Ok(Map::new())
    }
}

fn fields(name: &str, what: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), what)])
}
