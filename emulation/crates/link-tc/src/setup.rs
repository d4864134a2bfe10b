// SPDX-License-Identifier: Apache-2.0
//! Set, read back, undo: `ip -batch`, `tc -batch`, `tc qdisc show`.

use crate::config::{Expected, Settings};
use crate::error::TcError;
use crate::readback::first_difference;
use crate::request::Change;
use atoll_netio::interface::{Interface, UnusableInterface};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// The interfaces must be up, carry whole packets, and hand them over one by one.
pub(crate) fn check_interfaces(settings: &Settings) -> Result<(), UnusableInterface> {
    for name in &settings.interfaces {
        Interface::find_usable(name, settings.mtu)?;
    }
    Ok(())
}

/// Times that undoing is attempted, as a tool may fail where the kernel is short of memory.
const UNDO_ATTEMPTS: usize = 3;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// Apply the settings and see whether the kernel took them. After a failure [`undo`] removes those that it took.
pub(crate) fn apply(settings: &Settings) -> Result<(), TcError> {
    batch("ip", &settings.setup.ip)?;
    batch("tc", &settings.setup.tc)?;
    require(&settings.expect)
}

/// Change settings of interfaces that were set up.
pub(crate) fn change(change: &Change) -> Result<(), TcError> {
    batch("tc", &change.tc)?;
    require(&change.expect)
}

/// Remove the settings, also those that a job that was killed left.
///
/// # Errors
/// What is still there after several attempts.
pub(crate) fn undo(settings: &Settings) -> Result<(), TcError> {
    let mut outcome = undo_once(settings);
    for _ in 1..UNDO_ATTEMPTS {
        if outcome.is_ok() {
            break;
        }
        thread::sleep(BETWEEN_ATTEMPTS);
        outcome = undo_once(settings);
    }
    outcome
}

/// Every step is tried. Settings that were never made cannot be removed: the kernel says what is left.
fn undo_once(settings: &Settings) -> Result<(), TcError> {
    let mut said = Vec::new();
    for (name, lines) in [("tc", &settings.undo.tc), ("ip", &settings.undo.ip)] {
        if !lines.is_empty() {
            let output = tool(name, &["-force", "-batch", "-"], &text(lines))?;
            let (message, _) = parse_refusal(&String::from_utf8_lossy(&output.stderr), lines);
            said.extend((!message.is_empty()).then_some(message));
        }
    }
    let left: Vec<String> = disciplines()?
        .iter()
        .filter_map(|shown| left_of(settings, shown))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(TcError::Left {
        what: left.join(", "),
        message: said.join("; "),
    })
}

/// A queueing discipline in words, if it is one of the settings, or on a device that they make.
fn left_of(settings: &Settings, shown: &Value) -> Option<String> {
    let [dev, handle, kind] =
        ["dev", "handle", "kind"].map(|key| shown[key].as_str().unwrap_or(""));
    let is_there_before = settings.interfaces.iter().any(|name| name == dev);
    let is_own = settings
        .expect
        .iter()
        .any(|one| one.dev == dev && (one.handle == handle || !is_there_before));
    (is_own || (is_there_before && kind == "clsact")).then(|| format!("{kind} on {dev}"))
}

fn require(expected: &[Expected]) -> Result<(), TcError> {
    match first_difference(expected, &disciplines()?) {
        Some(difference) => Err(TcError::NotTaken(difference)),
        None => Ok(()),
    }
}

fn disciplines() -> Result<Vec<Value>, TcError> {
    let shown = tool("tc", &["-r", "-j", "qdisc", "show"], "")?;
    serde_json::from_slice(&shown.stdout).map_err(|error| TcError::Tool {
        tool: "tc",
        message: format!("`tc -r -j qdisc show` printed no list: {error}"),
    })
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
    let output = thread::scope(|scope| {
        // From a thread of its own: a tool that stops at a line reads no further.
        scope.spawn(move || stdin.as_mut().map(|pipe| pipe.write_all(input.as_bytes())));
        child.wait_with_output()
    });
    output.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use atoll_contract_examples::examples;
    use serde_json::json;

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
    fn what_is_left_is_of_the_settings_or_on_a_device_that_they_make() {
        let config = &examples("tc", "keeper")[0];
        let settings = Config::parse(&config.to_string()).unwrap().settings;
        let left = |dev: &str, handle: &str, kind: &str| {
            left_of(
                &settings,
                &json!({"dev": dev, "handle": handle, "kind": kind}),
            )
        };
        assert_eq!(left("sat-i", "1:", "netem").unwrap(), "netem on sat-i");
        assert_eq!(left("sat-w", "ffff:", "clsact").unwrap(), "clsact on sat-w");
        let made = left("ifb-to-island", "0:", "pfifo_fast");
        assert_eq!(made.unwrap(), "pfifo_fast on ifb-to-island");
        assert_eq!(left("sat-i", "0:", "fq_codel"), None);
        assert_eq!(left("eth0", "ffff:", "clsact"), None);
    }

    #[test]
    fn a_tool_that_reads_nothing_still_ends() {
        let long = "x\n".repeat(1 << 20);
        assert!(!tool("false", &[], &long).unwrap().status.success());
    }
}
