// SPDX-License-Identifier: Apache-2.0
//! Departures by the kernel: frames are given to `fq` shortly before they leave, each with its instant.
//!
//! `fq` (`net/sched/sch_fq.c` of Linux) is configured to take all frames for one flow (`orphan_mask 0`), which it sends in
//! order of their instants, and to let its timer be exact.

use atoll_measures::Count;
use atoll_netio::interface::Interface;
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::process::{Command, Stdio};

const HANDLE: &str = "f9:";
/// The limits are a gigabit of minimum-size frames for 50 ms.
const FQ: &str = "fq limit 100000 flow_limit 100000 orphan_mask 0 timer_slack 0 horizon 10s";

/// `fq` at the root of an interface, as long as this lives.
#[derive(Debug)]
pub(crate) struct FairQueue {
    interface: Interface,
}

impl FairQueue {
    /// Install it, in place of the present discipline.
    ///
    /// # Errors
    /// The error of tc: the kernel has no `fq`, or the user may not change it.
    pub(crate) fn install(interface: &Interface) -> io::Result<Self> {
        let name = &interface.name;
        tc(&format!(
            "qdisc replace dev {name} root handle {HANDLE} {FQ}"
        ))?;
        let installed = Self {
            interface: interface.clone(),
        };
        let qdiscs_json = tc(&format!("-j qdisc show dev {name} root"))?;
        let is_ours = |qdisc: &Value| {
            let options = &qdisc["options"];
            qdisc["kind"] == "fq" && options["orphan_mask"] == 0
        };
        let qdiscs: Vec<Value> = serde_json::from_slice(&qdiscs_json)?;
        if qdiscs.iter().any(is_ours) {
            return Ok(installed);
        }
        Err(io::Error::other(format!(
            "tc set fq on '{name}', but does not show it"
        )))
    }
}

impl Drop for FairQueue {
    fn drop(&mut self) {
        // Fails when the interface is gone, and with it the queueing discipline.
        let _ = tc(&format!("qdisc del dev {} root", self.interface.name));
    }
}

/// The output of tc; an error with its message. Names of interfaces have no spaces.
fn tc(arguments: &str) -> io::Result<Vec<u8>> {
    let output = Command::new("tc")
        .args(arguments.split(' '))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            io::Error::other(format!("cannot start tc: {error} (package iproute2)"))
        })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    Err(io::Error::other(format!("tc: {}", lines.join("; "))))
}

/// Frames of one direction or class that the kernel has and that have not left yet.
#[derive(Debug, Default)]
pub struct KernelPaced {
    /// Instant of departure and bytes, in order.
    frames: VecDeque<(u64, u32)>,
    count: Count,
}

impl KernelPaced {
    /// A frame was given to the kernel, to leave at `departure_ns`.
    #[inline]
    pub fn push(&mut self, departure_ns: u64, bytes: u32) {
        self.frames.push_back((departure_ns, bytes));
        self.count.record(bytes);
    }

    /// The packets that have not left at `now`, which never decreases from call to call.
    pub fn held(&mut self, now: u64) -> Count {
        while let Some(&(_, bytes)) = self.frames.front().filter(|(instant, _)| *instant <= now) {
            self.frames.pop_front();
            self.count.remove(bytes);
        }
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_passed_to_the_kernel_is_held_until_it_leaves() {
        let mut kernel_paced = KernelPaced::default();
        for (departure_ns, bytes) in [(10, 100), (20, 200), (20, 300)] {
            kernel_paced.push(departure_ns, bytes);
        }
        let mut held = |now| {
            let count = kernel_paced.held(now);
            (count.packets, count.bytes)
        };
        assert_eq!(held(9), (3, 600));
        assert_eq!(held(10), (2, 500));
        assert_eq!(held(20), (0, 0));
    }

    #[test]
    fn what_tc_complains_of_is_passed_on_in_one_line() {
        let missing = Interface {
            name: "no-such-if".to_owned(),
            index: 0,
        };
        let error = FairQueue::install(&missing).unwrap_err().to_string();
        assert!(
            error.contains("no-such-if") && !error.contains('\n'),
            "{error}"
        );
    }
}
