// SPDX-License-Identifier: Apache-2.0
//! Metrics of the machine, its namespaces and its jobs, sampled at an interval.
//!
//! A sample costs three reads a namespace and two a job, no process and no thread: the kernel's files are opened once,
//! and a file below /proc/net goes on showing the namespace that it was opened in.

use crate::AgentError;
use crate::cgroup::JobGroup;
use crate::child_reaper;
use crate::counters::{self, Backlog};
use crate::heat::Heat;
use crate::job::Job;
use crate::machine_info::{clock_ns, object};
use crate::memory::kilobytes;
use crate::namespace::Namespace;
use crate::protocol::SampledHost;
use rustix::process::Pid;
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The shortest interval: below it, sampling itself would dominate the figures.
const LEAST_INTERVAL: Duration = Duration::from_millis(50);

/// A subscription: what is sampled, and when next.
#[derive(Debug)]
pub struct Metrics {
    interval: Duration,
    next: Instant,
    hosts: Vec<Host>,
    /// Busy time and all time of all CPUs at the sample before, in ticks.
    last_cpu: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Host {
    name: String,
    netns: Option<PathBuf>,
    interfaces: Vec<String>,
    interface_table: File,
    snmp: File,
    netstat: File,
}

impl Metrics {
    /// Sample these hosts at once and then at this `interval`.
    pub fn new(
        interval: Duration,
        hosts: Vec<SampledHost>,
        now: Instant,
    ) -> Result<Self, AgentError> {
        if interval < LEAST_INTERVAL {
            let least = LEAST_INTERVAL.as_millis();
            return Err(AgentError::Machine(format!(
                "every_ns: the shortest interval of metrics is {least} ms"
            )));
        }
        Ok(Self {
            interval,
            next: now,
            hosts: (hosts.into_iter().map(Host::open)).collect::<Result<_, _>>()?,
            last_cpu: None,
        })
    }

    /// Sample these hosts once, without a subscription.
    pub fn sample_once(
        hosts: Vec<SampledHost>,
        jobs: &[Job],
        heat: &mut Heat,
    ) -> Result<Map<String, Value>, AgentError> {
        Ok(Self::new(LEAST_INTERVAL, hosts, Instant::now())?.sample(jobs, heat))
    }

    /// When the next sample is due.
    pub fn wake_at(&self) -> Instant {
        self.next
    }

    /// Whether a sample is due; if so the next one is an interval later. None is made up for: after a stall the
    /// intervals restart.
    pub fn advance_if_due(&mut self, now: Instant) -> bool {
        let is_due = self.next <= now;
        if is_due {
            let next = self.next + self.interval;
            self.next = if next > now {
                next
            } else {
                now + self.interval
            };
        }
        is_due
    }

    /// Take a sample (`docs/contracts.md`, "Agent", metrics).
    pub fn sample(&mut self, jobs: &[Job], heat: &mut Heat) -> Map<String, Value> {
        let mut hosts = Map::new();
        let mut unread = Vec::new();
        for host in &self.hosts {
            match host.read() {
                Ok(sample) => drop(hosts.insert(host.name.clone(), sample)),
                Err(_) => unread.push(host.name.clone()),
            }
        }
        object(json!({
            "t_ns": clock_ns(),
            "machine": self.machine(heat),
            "clock": clock(),
            "agent": agent(jobs.len()),
            "hosts": hosts,
            "jobs": jobs.iter().filter_map(|job| self.job(job)).collect::<Map<_, _>>(),
            "unread": unread,
        }))
    }

    fn machine(&mut self, heat: &mut Heat) -> Value {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = Cpu::parse(&text("/proc/stat")).unwrap_or_default();
        let share = self.last_cpu.and_then(|(busy, all)| {
            let elapsed = cpu.all.checked_sub(all).filter(|elapsed| *elapsed > 0)?;
            Some(cpu.busy.saturating_sub(busy) as f64 / elapsed as f64)
        });
        self.last_cpu = Some((cpu.busy, cpu.all));
        let memory = text("/proc/meminfo");
        let load = text("/proc/loadavg");
        let backlog = Backlog::parse(&text("/proc/thread-self/net/softnet_stat"));
        let limit = text("/proc/sys/net/core/netdev_max_backlog"); // of the machine, and shown in its first namespace only
        let mut figures = json!({
            "cpus": cpu.count,
            "busy": share,
            "busy_ns": ticks_ns(cpu.busy),
            "idle_ns": ticks_ns(cpu.all - cpu.busy),
            "steal_ns": ticks_ns(cpu.steal),
            "load_1m": load.split(' ').next().and_then(|first| first.parse::<f64>().ok()),
            "memory_bytes": kilobytes(&memory, "MemTotal:"),
            "memory_available_bytes": kilobytes(&memory, "MemAvailable:"),
            "backlog_dropped_packets": backlog.as_ref().map(|backlog| backlog.dropped),
            "backlog_squeezes": backlog.map(|backlog| backlog.squeezed),
            "backlog_limit_packets": limit.trim().parse::<u64>().ok(),
        });
        if let Some(fields) = figures.as_object_mut() {
            fields.extend(heat.sample(Instant::now()));
        }
        figures
    }

    fn job(&self, job: &Job) -> Option<(String, Value)> {
        let process = Process::read(job.pid);
        let group = job.group();
        let cpu_ns = group
            .and_then(JobGroup::cpu_ns)
            .or(process.as_ref().map(|process| process.cpu_ns))?;
        let memory_bytes = group
            .and_then(JobGroup::memory_bytes)
            .or(process.map(|process| process.memory_bytes))?;
        let host = self.hosts.iter().find(|host| host.netns == job.netns);
        let sample = json!({
            "host": host.map(|host| &host.name),
            "cpu_ns": cpu_ns,
            "memory_bytes": memory_bytes,
        });
        Some((job.name.clone(), sample))
    }
}

impl Host {
    fn open(host: SampledHost) -> Result<Self, AgentError> {
        let open = |name: &str| {
            let path = format!("/proc/thread-self/net/{name}");
            File::open(&path).map_err(AgentError::file(path))
        };
        let namespace = Namespace::open(host.netns.as_deref())?;
        let [interface_table, snmp, netstat] =
            namespace.run(|| Ok([open("dev")?, open("snmp")?, open("netstat")?]))?;
        let table = read_again(&interface_table)?;
        let is_absent = |name: &&String| counters::interface_counters(&table, name).is_none();
        if let Some(name) = host.interfaces.iter().find(is_absent) {
            let host = host.host;
            return Err(AgentError::Machine(format!("{host}: no interface {name}")));
        }
        Ok(Self {
            name: host.host,
            netns: host.netns,
            interfaces: host.interfaces,
            interface_table,
            snmp,
            netstat,
        })
    }

    fn read(&self) -> Result<Value, AgentError> {
        let table = read_again(&self.interface_table)?;
        // An interface that has disappeared is left out.
        let interfaces: Map<String, Value> = self
            .interfaces
            .iter()
            .filter_map(|name| Some((name.clone(), counters::interface_counters(&table, name)?)))
            .collect();
        let snmp = read_again(&self.snmp)?;
        let tcp = counters::tcp_counters(&snmp, &read_again(&self.netstat)?);
        Ok(json!({"interfaces": interfaces, "tcp": tcp, "udp": counters::udp_counters(&snmp)}))
    }
}

/// Read a file of the kernel's from its beginning, which renews its content.
fn read_again(file: &File) -> Result<String, AgentError> {
    let mut content = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        match file.read_at(&mut chunk, content.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&content).into_owned()),
            count => content.extend_from_slice(&chunk[..count]),
        }
    }
}

/// CPU time of the machine since it was started, in ticks, of all CPUs together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cpu {
    count: usize,
    busy: u64,
    all: u64,
    steal: u64,
}

impl Cpu {
    /// Of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal; guests are among user and nice.
    fn parse(stat: &str) -> Option<Self> {
        let mut lines = stat.lines();
        let ticks: Vec<u64> = lines
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace()
            .take(8)
            .map_while(|word| word.parse().ok())
            .collect();
        let ticks_in = |column: usize| ticks.get(column).copied().unwrap_or(0);
        let all: u64 = ticks.iter().sum();
        Some(Self {
            count: lines.take_while(|line| line.starts_with("cpu")).count(),
            busy: all - ticks_in(3) - ticks_in(4),
            all,
            steal: ticks_in(7),
        })
    }
}

/// A process and the children that it has waited for.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    cpu_ns: u64,
    memory_bytes: u64,
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&stat, &std::process::id().to_string())
    }

    /// Of /proc/PID/stat (proc(5)). /proc may show another PID namespace than ours: a process that is not our child is a different one.
    fn parse(stat: &str, parent: &str) -> Option<Self> {
        let (_, after_name) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = after_name.split(' ').collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok(); // numbered as in proc(5)
        if fields.get(1) != Some(&parent) {
            return None;
        }
        Some(Self {
            cpu_ns: ticks_ns(number(14)? + number(15)? + number(16)? + number(17)?),
            memory_bytes: number(24)? * rustix::param::page_size() as u64,
        })
    }
}

fn ticks_ns(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second())
}

fn clock() -> Value {
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    netio::clock_sync::state().map_or(Value::Null, |state| {
        json!({
            "synchronised": state.synchronised,
            "estimated_error_ns": ns(state.estimated_error),
            "maximum_error_ns": ns(state.maximum_error),
        })
    })
}

fn agent(jobs: usize) -> Value {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let own = child_reaper::parent(&stat).and_then(|parent| Process::parse(&stat, parent));
    json!({
        "cpu_ns": own.as_ref().map(|own| own.cpu_ns),
        "memory_bytes": own.as_ref().map(|own| own.memory_bytes),
        "jobs": jobs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn busy_is_all_but_idle_and_waiting() {
        let stat = "cpu  10 1 5 100 20 1 2 3 4 0\ncpu0 5 1 2 50 10 1 1 1 0 0\ncpu1 5 0 3 50 10 0 1 2 0 0\nintr 1\n";
        let cpu = Cpu::parse(stat).unwrap();
        assert_eq!(
            cpu,
            Cpu {
                count: 2,
                busy: 22,
                all: 142,
                steal: 3
            }
        );
        assert_eq!(Cpu::parse("nothing"), None);
    }

    #[test]
    fn a_process_is_measured_only_if_it_is_our_child() {
        let stat = "77 (a b) c) S 5 77 77 0 -1 4194560 100 0 0 0 30 20 7 3 20 0 1 0 99 1000000 25 18446744073709551615";
        let found = Process::parse(stat, "5").unwrap();
        assert_eq!(found.cpu_ns, ticks_ns(60));
        assert_eq!(found.memory_bytes, 25 * rustix::param::page_size() as u64);
        assert_eq!(Process::parse(stat, "6"), None);
    }

    #[test]
    fn this_machine_is_sampled_with_its_busy_share_from_the_second_time_on() {
        let request = r#"[{"host":"here","interfaces":["lo"]}]"#;
        let now = Instant::now();
        let mut metrics =
            Metrics::new(LEAST_INTERVAL, serde_json::from_str(request).unwrap(), now).unwrap();
        assert!(metrics.advance_if_due(now));
        let mut heat = Heat::find(Path::new("/sys"), now);
        let first = metrics.sample(&[], &mut heat);
        assert!(first["machine"]["busy"].is_null());
        assert!(
            first["machine"]["memory_available_bytes"].as_u64()
                < first["machine"]["memory_bytes"].as_u64()
        );
        assert!(first["hosts"]["here"]["tcp"]["out_segments"].is_u64());
        assert!(first["hosts"]["here"]["udp"]["receive_buffer_errors"].is_u64());
        assert!(first["hosts"]["here"]["interfaces"]["lo"]["rx_bytes"].is_u64());
        assert!(first["machine"]["backlog_dropped_packets"].is_u64());
        assert!(first["machine"]["backlog_squeezes"].is_u64());
        assert!(first["agent"]["memory_bytes"].as_u64().unwrap() > 1 << 16);
        assert!(!metrics.advance_if_due(now), "an interval has to pass");
        std::thread::sleep(LEAST_INTERVAL);
        assert!(metrics.advance_if_due(Instant::now()));
        let second = metrics.sample(&[], &mut heat);
        assert!((0.0..=1.0).contains(&second["machine"]["busy"].as_f64().unwrap()));
    }

    #[test]
    fn a_stall_is_followed_by_one_sample_and_a_whole_interval() {
        let begin = Instant::now();
        let mut metrics = Metrics::new(LEAST_INTERVAL, Vec::new(), begin).unwrap();
        assert!(metrics.advance_if_due(begin));
        assert!(metrics.advance_if_due(begin + LEAST_INTERVAL * 5 / 4));
        assert_eq!(metrics.wake_at(), begin + LEAST_INTERVAL * 2, "in step");
        let late = begin + LEAST_INTERVAL * 10;
        assert!(metrics.advance_if_due(late));
        assert!(!metrics.advance_if_due(late));
        assert_eq!(metrics.wake_at(), late + LEAST_INTERVAL);
    }

    #[test]
    fn unknown_interfaces_and_short_intervals_are_refused() {
        let request = |text: &str| serde_json::from_str(text).unwrap();
        let now = Instant::now();
        let error = Metrics::new(
            LEAST_INTERVAL,
            request(r#"[{"host":"w1","interfaces":["no0"]}]"#),
            now,
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "w1: no interface no0");
        assert!(Metrics::new(Duration::ZERO, Vec::new(), now).is_err());
    }
}
