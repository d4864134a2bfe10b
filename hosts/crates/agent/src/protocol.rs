// SPDX-License-Identifier: Apache-2.0
//! The messages of `docs/contracts.md`, "Agent", as values, and the versions of the protocol.
//!
//! A *major* version is one language: its messages mean the same in all its minor versions, and unknown fields and
//! events are ignored. A *minor* version adds to it. Each side sends the highest minor version of each major version that
//! it supports; both then keep to the highest major that both have, and in it to the lower minor.
//! The examples in `tests/data/contract/agent-versions.jsonl` hold this and the other side's rule to the same outcomes.

use crate::AgentError;
use crate::job_privileges::{Privilege, User};
use crate::limits::Limits;
use crate::settings::HostSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// One request: its number, and its operation, or why it is invalid.
#[derive(Debug)]
pub struct Request {
    /// Repeated in the answer; null when the line had none.
    pub id: Value,
    /// The operation.
    pub operation: Result<Operation, AgentError>,
}

impl Request {
    /// Read one line.
    pub fn parse(line: &[u8]) -> Self {
        /// A request that is understood.
        #[derive(Deserialize)]
        struct Numbered {
            #[serde(default)]
            id: Value,
            #[serde(flatten)]
            operation: Operation,
        }

        match atoll_job::request(line) {
            Ok(Numbered { id, operation }) => Self {
                id,
                operation: Ok(operation),
            },
            Err(error) => Self {
                id: error.id.clone().unwrap_or(Value::Null),
                operation: Err(error.into()),
            },
        }
    }
}

/// The operations of the agent.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// The protocol versions of the other side; answered only if there is no version in common.
    Hello {
        /// Major and highest minor version of each.
        speaks: Vec<Version>,
    },
    /// Start a job.
    Start(StartJob),
    /// Signal a job's process group; KILL follows after the grace time.
    Stop {
        /// The job's name.
        job: String,
        /// `TERM`, `INT`, ...
        #[serde(default = "default_signal")]
        signal: String,
        /// How long the job may take to end.
        #[serde(default = "default_grace_ns")]
        grace_ns: u64,
    },
    /// Write to a job's standard input.
    Input {
        /// The job's name.
        job: String,
        /// UTF-8 text, newline included.
        text: String,
    },
    /// Raise a job's limit of memory.
    Limit {
        /// The job's name.
        job: String,
        /// [`Limits::data_bytes`].
        data_bytes: u64,
    },
    /// Set a machine up.
    Set {
        /// The machine's name: what `unset` takes back.
        host: String,
        /// Its network namespace; null for the agent's own.
        netns: Option<PathBuf>,
        /// `atoll_core.plan.plan.HostSettings`.
        settings: HostSettings,
    },
    /// Undo `set`.
    Unset {
        /// The machine's name.
        host: String,
    },
    /// Write sysctls, verified; undone only by writing `was`, or by the end of the namespace.
    Sysctl {
        /// Network namespace; null for the agent's own.
        netns: Option<PathBuf>,
        /// Names with dots, and values.
        sysctls: Vec<(String, String)>,
    },
    /// Read sysctls, offloads and interface counters.
    Read {
        /// Network namespace; null for the agent's own.
        netns: Option<PathBuf>,
        /// Names with dots.
        #[serde(default)]
        sysctls: Vec<String>,
        /// Interface names.
        #[serde(default)]
        interfaces: Vec<String>,
    },
    /// Subscribe to metrics, or end the subscription.
    Measure {
        /// The interval; 0: one last sample.
        every_ns: u64,
        /// The objects to sample.
        #[serde(default)]
        hosts: Vec<SampledHost>,
    },
    /// Answer with one sample of [`Operation::Measure`].
    Sample {
        /// The objects to sample.
        hosts: Vec<SampledHost>,
    },
    /// Heartbeat; not answered.
    Beat,
    /// Lock this machine until the stream ends.
    Claim {
        /// The owner, in words.
        owner: String,
    },
    /// Describe the machine.
    Describe,
    /// Read the machine's clock.
    Clock,
    /// Find other owners of an interface's address.
    Owners {
        /// Network namespace; null for the agent's own.
        netns: Option<PathBuf>,
        /// The interface.
        interface: String,
        /// Its address.
        address: Ipv4Addr,
        /// Its MAC address.
        mac: String,
    },
    /// Create the directory of a run's files.
    Spool {
        /// The run's name.
        name: String,
        /// In memory, and no file of a job may be larger; none: on disk.
        memory_bytes: Option<u64>,
    },
    /// List the files of a run.
    Files {
        /// The run's name.
        name: String,
    },
    /// Delete a run's directory.
    Discard {
        /// The run's name.
        name: String,
    },
}

/// A host to sample: a network namespace and some interfaces in it.
#[derive(Debug, Deserialize)]
pub struct SampledHost {
    /// Its name in samples.
    pub host: String,
    /// Its network namespace; null for the agent's own.
    pub netns: Option<PathBuf>,
    /// Interface names.
    #[serde(default)]
    pub interfaces: Vec<String>,
}

/// A job to start.
#[derive(Debug, Deserialize)]
pub struct StartJob {
    /// Its name: unique among running jobs.
    pub job: String,
    /// Network namespace; null for the agent's own.
    pub netns: Option<PathBuf>,
    /// Program and arguments; `atoll-host` is the agent's own executable.
    pub argv: Vec<String>,
    /// First bytes of standard input.
    #[serde(default)]
    pub input: String,
    /// Standard input ends after `input`.
    #[serde(default)]
    pub close_input: bool,
    /// `lines`, or a file to append to.
    #[serde(default = "default_stdout")]
    pub stdout: String,
    /// `lines`, a file to append to, or null: the agent's own standard error.
    pub stderr: Option<String>,
    /// Its limits.
    #[serde(default)]
    pub limits: Limits,
    /// The capabilities that it keeps; null: all of the agent's.
    pub privileges: Option<Vec<Privilege>>,
    /// Its user, if there are `privileges`.
    #[serde(default)]
    pub user: User,
    /// Its working directory; null: the agent's.
    pub directory: Option<PathBuf>,
}

/// The word that turns a job's output into events instead of a file.
pub const LINES: &str = "lines";

fn default_stdout() -> String {
    LINES.to_owned()
}

fn default_signal() -> String {
    "TERM".to_owned()
}

fn default_grace_ns() -> u64 {
    2_000_000_000
}

/// Messages of the agent.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Message<'a> {
    /// First of all.
    Hello {
        /// The major version of this protocol: all that sides without `speaks` look at.
        protocol: u32,
        /// Major and highest minor version of each that is spoken.
        speaks: &'a [Version],
        /// Of the program.
        version: &'a str,
        /// The agent's process id.
        pid: u32,
        /// Of the machine that the program was built for, such as `x86_64`.
        arch: &'a str,
    },
    /// Heartbeat: sent every second by an agent that expects the same.
    Beat,
    /// A line of a job's output. Bytes that are not UTF-8 become U+FFFD.
    Line {
        /// The job's name.
        job: &'a str,
        /// `stdout` or `stderr`.
        stream: &'a str,
        /// Without its newline.
        line: &'a str,
    },
    /// A job has ended; no line of it follows.
    Exit {
        /// The job's name.
        job: &'a str,
        /// Exit status, unless a signal ended it.
        code: Option<i32>,
        /// Name of the signal that ended it, without `SIG`.
        signal: Option<String>,
        /// The limit that it had reached, in words, if that is why.
        exceeded: Option<String>,
        /// CPU time of it and the children that it waited for.
        cpu_ns: u64,
        /// The most memory that it, or one of those, had resident.
        peak_memory_bytes: u64,
    },
    /// Metrics of the machine, its namespaces and jobs.
    Metrics {
        /// Everything of [`crate::metrics::Metrics::sample`].
        #[serde(flatten)]
        fields: Map<String, Value>,
    },
    /// The answer to a request.
    Answer {
        /// The request's number.
        id: &'a Value,
        /// Whether it was done.
        ok: bool,
        /// Why not, on one line.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// The result of the operation.
        #[serde(flatten)]
        fields: Map<String, Value>,
    },
}

/// Major and minor.
pub type Version = (u32, u32);

/// The versions that this program supports, the best last.
pub const SUPPORTED_VERSIONS: [Version; 1] = [(2, 3)];

/// The version that two sides have in common; none: they cannot talk.
pub fn common_version(ours: &[Version], theirs: &[Version]) -> Option<Version> {
    ours.iter()
        .flat_map(|our| theirs.iter().map(move |their| (our, their)))
        .filter(|(our, their)| our.0 == their.0)
        .map(|(our, their)| (our.0, our.1.min(their.1)))
        .max()
}

/// Versions as text: `1.1`, `1.0 and 2.3`.
pub fn version_text(versions: &[Version]) -> String {
    if versions.is_empty() {
        return "no version".to_owned();
    }
    let texts = versions
        .iter()
        .map(|(major, minor)| format!("{major}.{minor}"));
    texts.collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_contract_examples::examples;

    #[test]
    fn every_request_of_the_contract_is_understood() {
        let requests = examples("agent", "keeper");
        assert!(requests.len() >= 7, "one example an operation at least");
        for example in requests {
            let request = Request::parse(example.to_string().as_bytes());
            assert_eq!(request.id, example["id"]);
            assert!(
                request.operation.is_ok(),
                "{example}: {}",
                request.operation.unwrap_err()
            );
        }
    }

    #[test]
    fn what_the_agent_says_is_what_the_contract_shows() {
        let was = serde_json::json!({"was": [["net.ipv4.tcp_ecn", "2"]]});
        let one = Value::from(6);
        let said = [
            Message::Hello {
                protocol: 2,
                speaks: &[(2, 0)],
                version: "0.1.0",
                pid: 12,
                arch: "x86_64",
            },
            Message::Beat,
            Message::Line {
                job: "serve-w1",
                stream: "stdout",
                line: "{\"type\":\"ready\"}",
            },
            Message::Exit {
                job: "serve-w1",
                code: Some(0),
                signal: None,
                exceeded: None,
                cpu_ns: 1_200_000_000,
                peak_memory_bytes: 4_000_000,
            },
            Message::Exit {
                job: "link-sat",
                code: None,
                signal: Some("KILL".into()),
                exceeded: Some("memory limit 512 MB".into()),
                cpu_ns: 1_200_000_000,
                peak_memory_bytes: 4_000_000,
            },
            Message::Answer {
                id: &one,
                ok: true,
                error: None,
                fields: was.as_object().unwrap().clone(),
            },
            Message::Answer {
                id: &one,
                ok: false,
                error: Some("one line".into()),
                fields: Map::new(),
            },
        ];
        let shown = examples("agent", "agent");
        for message in said {
            let message = serde_json::to_value(message).unwrap();
            assert!(
                shown.contains(&message),
                "{message} is not in the contract's examples"
            );
        }
    }

    #[test]
    fn a_bad_request_keeps_its_number_and_names_the_mistake() {
        let request = Request::parse(br#"{"id":4,"op":"stop"}"#);
        assert_eq!(request.id, Value::from(4));
        assert_eq!(
            request.operation.unwrap_err().to_string(),
            "request `stop` is not understood: missing field `job`"
        );
        let request = Request::parse(b"{nonsense");
        assert_eq!(request.id, Value::Null);
        assert!(request.operation.is_err());
    }

    #[derive(Deserialize)]
    struct Example {
        keeper: Vec<Version>,
        agent: Vec<Version>,
        agreed: Option<Version>,
    }

    #[test]
    fn both_sides_come_to_the_contracts_outcomes() {
        let examples = include_str!("../../../../tests/data/contract/agent-versions.jsonl");
        let mut seen = 0;
        for line in examples.lines() {
            let example: Example = serde_json::from_str(line).unwrap();
            assert_eq!(
                common_version(&example.agent, &example.keeper),
                example.agreed,
                "{line}"
            );
            seen += 1;
        }
        assert!(seen >= 6);
        assert_eq!(version_text(&SUPPORTED_VERSIONS), "2.3");
    }
}
