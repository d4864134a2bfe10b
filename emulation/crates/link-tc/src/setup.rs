// SPDX-License-Identifier: Apache-2.0
//! Set, read back, undo: `ip -batch`, `tc -batch`, `tc qdisc show`.

use crate::config::{Batches, Expected, Settings};
use crate::error::TcError;
use crate::readback::first_difference;
use crate::request::Change;
use atoll_netio::interface::{Interface, UnusableInterface};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The interfaces must be up, carry whole packets, and hand them over one by one.
pub(crate) fn check_interfaces(settings: &Settings) -> Result<(), UnusableInterface> {
    for name in &settings.interfaces {
        Interface::find_usable(name, settings.mtu)?;
    }
    Ok(())
}

/// Settings that hold as long as this lives.
#[derive(Debug)]
pub(crate) struct Applied<'a> {
    undo: &'a Batches,
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        undo(self.undo);
    }
}

/// Apply the settings and see whether the kernel took them; what a job that was killed left is removed
/// before. Nothing is left when it fails.
pub(crate) fn apply(settings: &Settings) -> Result<Applied<'_>, TcError> {
    undo(&settings.undo);
    let applied = Applied {
        undo: &settings.undo,
    };
    batch("ip", &settings.setup.ip)?;
    batch("tc", &settings.setup.tc)?;
    require(&settings.expect)?;
    Ok(applied)
}

/// Change settings of interfaces that were set up.
pub(crate) fn change(change: &Change) -> Result<(), TcError> {
    batch("tc", &change.tc)?;
    require(&change.expect)
}

fn require(expected: &[Expected]) -> Result<(), TcError> {
    let shown = tool("tc", &["-r", "-j", "qdisc", "show"], "")?;
    let shown: Vec<Value> =
        serde_json::from_slice(&shown.stdout).map_err(|error| TcError::Tool {
            tool: "tc",
            message: format!("`tc -r -j qdisc show` printed no list: {error}"),
        })?;
    match first_difference(expected, &shown) {
        Some(difference) => Err(TcError::NotTaken(difference)),
        None => Ok(()),
    }
}

/// Every step is tried; settings that were never made cannot be removed.
fn undo(batches: &Batches) {
    for (name, lines) in [("tc", &batches.tc), ("ip", &batches.ip)] {
        if !lines.is_empty() {
            let _ = tool(name, &["-force", "-batch", "-"], &text(lines));
        }
    }
}

fn batch(name: &'static str, lines: &[String]) -> Result<(), TcError> {
    if lines.is_empty() {
        return Ok(());
    }
    let output = tool(name, &["-batch", "-"], &text(lines))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let (message, line) = parse_refusal(&said, lines);
    Err(match line {
        Some(line) => TcError::Refused {
            tool: name,
            line: line.clone(),
            message,
        },
        None => TcError::Tool {
            tool: name,
            message,
        },
    })
}

/// The words of a batch that failed, and the line they are about: `Command failed -:3` follows them.
fn parse_refusal<'a>(said: &str, lines: &'a [String]) -> (String, Option<&'a String>) {
    let mut failed = None;
    let mut words = Vec::new();
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("Command failed -:") {
            Some(number) => failed = number.parse::<usize>().ok(),
            None => words.push(line),
        }
    }
    let line = failed.and_then(|number| lines.get(number.checked_sub(1)?));
    (words.join("; "), line)
}

fn text(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

fn tool(name: &'static str, arguments: &[&str], input: &str) -> Result<Output, TcError> {
    let failed = |source| TcError::Start { tool: name, source };
    let mut command = Command::new(name);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Not to be ended by the signals that are blocked here, but to die with this process.
    atoll_netio::process::configure_child(&mut command, None).map_err(failed)?;
    let mut child = command.spawn().map_err(failed)?;
    let mut stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // From a thread of its own: a tool that stops at a line reads no further.
        scope.spawn(move || stdin.as_mut().map(|pipe| pipe.write_all(input.as_bytes())));
        child.wait_with_output()
    });
    output.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_line_is_quoted_with_what_was_said_of_it() {
        let lines = ["qdisc add dev a root tbf", "qdisc add dev a root netem"].map(str::to_owned);
        let said = "Error: Specified qdisc kind is unknown.\nCommand failed -:2\n";
        let (message, line) = parse_refusal(said, &lines);
        assert_eq!(message, "Error: Specified qdisc kind is unknown.");
        assert_eq!(line, Some(&lines[1]));
        assert_eq!(
            parse_refusal("out of memory", &lines),
            ("out of memory".to_owned(), None)
        );
    }

    #[test]
    fn a_tool_that_reads_nothing_still_ends() {
        let long = "x\n".repeat(1 << 20);
        assert!(!tool("false", &[], &long).unwrap().status.success());
    }
}
