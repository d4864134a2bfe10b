// SPDX-License-Identifier: Apache-2.0
//! The description of a machine, from which the controller decides whether an experiment can run on it.

use crate::AgentError;
use crate::command::run_tool;
use crate::host_config::InterfaceState;
use crate::machine_lock;
use crate::memory;
use crate::spool;
use rustix::thread::{CapabilitySet, capabilities};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::fs;

/// Programs that the agent or its jobs start, and their purpose.
const TOOLS: [&str; 4] = ["ip", "ethtool", "nft", "sha256sum"];

/// `CLOCK_REALTIME` in nanoseconds.
pub fn clock_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The answer to `describe`. `groups`: whether jobs have control groups, and whether those bound memory.
pub fn describe(groups: Option<bool>) -> Result<Map<String, Value>, AgentError> {
    let system = rustix::system::uname();
    let has = |capability| capabilities(None).is_ok_and(|held| held.effective.contains(capability));
    let missing: Vec<&str> = TOOLS
        .into_iter()
        .filter(|name| {
            matches!(
                run_tool(name, &["--version"], ""),
                Err(AgentError::Start { .. })
            )
        })
        .collect();
    // Without `ip` there is no list of interfaces; its absence is reported instead.
    let interfaces = if missing.contains(&"ip") {
        Map::new()
    } else {
        interfaces()?
    };
    let described = json!({
        "hostname": system.nodename().to_string_lossy(),
        "kernel": system.release().to_string_lossy(),
        "user": rustix::process::geteuid().as_raw(),
        "cpus": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_bytes": memory::total_bytes(),
        "may_configure": has(CapabilitySet::NET_ADMIN),
        "may_capture": has(CapabilitySet::NET_RAW),
        "missing_tools": missing,
        "congestion_controls": congestion_controls(),
        "claimed_by": machine_lock::holder(),
        "limits": {
            "memory": if groups == Some(true) { "cgroup" } else { "rlimit" },
            "leftovers": if groups.is_some() { "cgroup" } else { "subreaper" },
        },
        "free_bytes": spool::free_bytes()?,
        "interfaces": interfaces,
    });
    Ok(object(described))
}

/// The fields of a JSON object.
pub fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn interfaces() -> Result<Map<String, Value>, AgentError> {
    let interfaces = run_tool("ip", &["-json", "address", "show"], "")?;
    let interfaces: Vec<InterfaceState> = serde_json::from_str(&interfaces)?;
    let fields = |interface: InterfaceState| {
        let fields = json!({
            "mac": interface.mac,
            "mtu": interface.mtu,
            "up": interface.has_flag("UP"),
            "carrier": interface.has_flag("LOWER_UP"),
            "addresses": interface.addresses().collect::<Vec<_>>(),
        });
        (interface.name, fields)
    };
    Ok(interfaces.into_iter().map(fields).collect())
}

/// Those of the running kernel; one that is a module not loaded yet is not among them.
fn congestion_controls() -> Vec<String> {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_describes_itself() {
        let described = describe(None).unwrap();
        assert_eq!(described["interfaces"]["lo"]["mac"], "00:00:00:00:00:00");
        assert!(described["memory_bytes"].as_u64().unwrap() > 1 << 20);
        assert!(clock_ns() > 1_700_000_000_000_000_000);
    }
}
