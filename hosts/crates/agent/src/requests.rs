// SPDX-License-Identifier: Apache-2.0
//! The handling of requests, and their answers.

use crate::AgentError;
use crate::address_probe;
use crate::cgroup::AgentGroup;
use crate::host_setup;
use crate::job::Job;
use crate::machine_info;
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::protocol::{
    Message, Operation, Request, SUPPORTED_VERSIONS, SampledHost, StartJob, Version,
    common_version, version_text,
};
use crate::signals;
use crate::spool;
use crate::supervisor::Supervisor;
use crate::worker::{AgentAnswer, SharedState, Task};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// How a request is answered.
enum Reply {
    Nothing,
    Now(AgentAnswer),
    /// It may take long, so the worker thread does it.
    Later(Task),
}

impl Supervisor {
    /// Carry out the request in a line, and answer it now or later.
    pub(crate) fn answer(&mut self, line: &[u8]) {
        let Request { id, operation } = Request::parse(line);
        let answer = match operation.map(|operation| self.perform(operation)) {
            Ok(Reply::Nothing) => return,
            Ok(Reply::Now(answer)) => answer,
            Ok(Reply::Later(task)) => match self.worker.add(id.clone(), task) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        self.send_answer(&id, answer);
    }

    /// Answer a request.
    pub(crate) fn send_answer(&mut self, id: &Value, answer: AgentAnswer) {
        let (ok, error, fields) = match answer {
            Ok(fields) => (true, None, fields),
            Err(error) => (false, Some(error.to_string()), Map::new()),
        };
        self.output.push(&Message::Answer {
            id,
            ok,
            error,
            fields,
        });
    }

    /// Refuse a side with no version in common.
    fn check_versions(&mut self, speaks: &[Version]) -> Result<(), AgentError> {
        if common_version(&SUPPORTED_VERSIONS, speaks).is_some() {
            return Ok(());
        }
        self.close();
        Err(AgentError::Machine(format!(
            "this atoll-host {} speaks protocol {}, not {}: install the one that fits, on this machine or on yours",
            env!("CARGO_PKG_VERSION"),
            version_text(&SUPPORTED_VERSIONS),
            version_text(speaks),
        )))
    }

    fn perform(&mut self, operation: Operation) -> Reply {
        let result = match operation {
            Operation::Start(request) => self.start(request),
            Operation::Stop {
                job,
                signal,
                grace_ns,
            } => self.stop(&job, &signal, Duration::from_nanos(grace_ns)),
            Operation::Input { job, text } => self
                .running_job(&job)
                .and_then(|job| job.send(text.as_bytes()))
                .map(|()| Map::new()),
            Operation::Limit { job, data_bytes } => self
                .running_job(&job)
                .and_then(|job| job.raise_memory(data_bytes))
                .map(|()| Map::new()),
            Operation::Measure { every_ns, hosts } => self.subscribe(every_ns, hosts),
            Operation::Sample { hosts } => {
                let sample = Metrics::sample_once(hosts, &self.jobs, &mut self.heat);
                self.heat.restart_highest();
                sample.map(|sample| fields("sample", sample.into()))
            }
            Operation::Clock => Ok(fields("t_ns", machine_info::clock_ns().into())),
            Operation::Beat => return Reply::Nothing,
            Operation::Hello { speaks } => match self.check_versions(&speaks) {
                Ok(()) => return Reply::Nothing,
                Err(error) => Err(error),
            },
            Operation::Set {
                host,
                netns,
                settings,
            } => {
                return queued(move |state| {
                    let former = state.lock().set(&host, netns.as_deref(), settings)?;
                    Ok(fields("was", former))
                });
            }
            Operation::Unset { host } => {
                return queued(move |state| state.lock().unset(&host).map(|()| Map::new()));
            }
            Operation::Sysctl { netns, sysctls } => {
                return queued(move |state| {
                    let former = state.lock().sysctl(netns, &sysctls)?;
                    Ok(fields("was", json!(former)))
                });
            }
            Operation::Read {
                netns,
                sysctls,
                interfaces,
            } => {
                return queued(move |_| {
                    Namespace::open(netns.as_deref())?
                        .run(|| host_setup::read(&sysctls, &interfaces))
                });
            }
            Operation::Claim { owner } => {
                return queued(move |state| state.lock().acquire_lock(&owner).map(|()| Map::new()));
            }
            Operation::Describe => {
                let groups = self.agent_group.as_ref().map(AgentGroup::has_memory);
                return queued(move |_| machine_info::describe(groups));
            }
            Operation::Owners {
                netns,
                interface,
                address,
                mac,
            } => {
                return queued(move |_| {
                    let owners = Namespace::open(netns.as_deref())?
                        .run(|| address_probe::other_owners(&interface, address, &mac))?;
                    Ok(fields("owners", json!(owners)))
                });
            }
            Operation::Spool { name, memory_bytes } => {
                self.memory_file_bytes = memory_bytes;
                return queued(move |_| {
                    Ok(fields("path", json!(spool::make(&name, memory_bytes)?)))
                });
            }
            Operation::Files { name } => {
                return queued(move |_| Ok(fields("spool", spool::files(&name)?)));
            }
            Operation::Discard { name } => {
                self.memory_file_bytes = None;
                return queued(move |_| spool::discard(&name).map(|()| Map::new()));
            }
        };
        Reply::Now(result)
    }

    fn stop(&mut self, job: &str, signal: &str, grace: Duration) -> AgentAnswer {
        let signal = signals::parse(signal)?;
        let job = self.running_job(job)?;
        job.kill_at = Some(Instant::now() + grace);
        job.signal(signal)?;
        Ok(Map::new())
    }

    fn start(&mut self, mut request: StartJob) -> AgentAnswer {
        request.limits.limit_files_in_memory(self.memory_file_bytes);
        let name = &request.job;
        if self.jobs.iter().any(|job| job.name == *name) {
            return Err(AgentError::Machine(format!(
                "job {name:?} is already running"
            )));
        }
        let job = Job::start(
            &request,
            self.open_files,
            self.agent_group.as_mut(),
            &mut self.orphans,
        )?;
        let mut answer = fields("pid", job.pid.as_raw_nonzero().get().into());
        if let Some(unapplied) = request.limits.unapplied(job.pid) {
            answer.insert("unheld".to_owned(), unapplied.into());
        }
        self.jobs.push(job);
        Ok(answer)
    }

    fn running_job(&mut self, name: &str) -> Result<&mut Job, AgentError> {
        self.jobs
            .iter_mut()
            .find(|job| job.name == name)
            .ok_or_else(|| AgentError::Machine(format!("no job {name:?} is running")))
    }

    /// Subscribe to metrics. With an interval of 0 the last sample comes before the answer.
    fn subscribe(&mut self, every_ns: u64, hosts: Vec<SampledHost>) -> AgentAnswer {
        if every_ns > 0 {
            let interval = Duration::from_nanos(every_ns);
            self.metrics = Some(Metrics::new(interval, hosts, Instant::now())?);
        } else if let Some(mut metrics) = self.metrics.take() {
            let fields = metrics.sample(&self.jobs, &mut self.heat);
            self.output.push(&Message::Metrics { fields });
        }
        Ok(Map::new())
    }
}

fn queued(task: impl FnOnce(&SharedState) -> AgentAnswer + Send + 'static) -> Reply {
    Reply::Later(Box::new(task))
}

fn fields(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}
