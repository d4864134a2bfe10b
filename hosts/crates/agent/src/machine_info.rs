// SPDX-License-Identifier: Apache-2.0
//! The description of a machine, from which the controller decides whether an experiment can run on it.

use crate::AgentError;
use crate::command::tool;
use crate::machine_lock;
use crate::memory;
use crate::spool;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fs;

/// Bits of an effective capability set (capability(7)).
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;

/// Programs that the agent or its jobs start, and their purpose.
const TOOLS: [&str; 4] = ["ip", "ethtool", "nft", "sha256sum"];

/// Of `ip -json address show`.
#[derive(Debug, Deserialize)]
struct Interface {
    ifname: String,
    #[serde(default)]
    address: String,
    mtu: u32,
    flags: Vec<String>,
    addr_info: Vec<Address>,
}

#[derive(Debug, Deserialize)]
struct Address {
    #[serde(default)]
    local: String,
    prefixlen: u8,
}

/// `CLOCK_REALTIME` in nanoseconds.
pub fn clock_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The answer to `describe`. `groups`: whether jobs have control groups, and whether those bound memory.
pub fn describe(groups: Option<bool>) -> Result<Map<String, Value>, AgentError> {
    let system = rustix::system::uname();
    let capabilities = effective_capabilities();
    let has = |bit: u32| capabilities & (1 << bit) != 0;
    let missing: Vec<&str> = TOOLS
        .into_iter()
        .filter(|name| tool(name, &["--version"], "").is_err_and(|error| is_absent(&error)))
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
        "may_configure": has(CAP_NET_ADMIN),
        "may_capture": has(CAP_NET_RAW),
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
    match described {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}

fn is_absent(error: &AgentError) -> bool {
    matches!(error, AgentError::Start { .. })
}

fn interfaces() -> Result<Map<String, Value>, AgentError> {
    let found: Vec<Interface> =
        serde_json::from_str(&tool("ip", &["-json", "address", "show"], "")?)?;
    Ok(found
        .into_iter()
        .map(|interface| {
            let addresses: Vec<String> = interface
                .addr_info
                .iter()
                .map(|held| format!("{}/{}", held.local, held.prefixlen))
                .collect();
            let fields = json!({
                "mac": interface.address,
                "mtu": interface.mtu,
                "up": interface.flags.iter().any(|flag| flag == "UP"),
                "carrier": interface.flags.iter().any(|flag| flag == "LOWER_UP"),
                "addresses": addresses,
            });
            (interface.ifname, fields)
        })
        .collect())
}

fn effective_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
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
