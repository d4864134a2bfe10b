// SPDX-License-Identifier: Apache-2.0
//! Set, read back, undo: `ip -batch`, `tc -batch`, `tc qdisc show`.

use crate::config::{Change, Config, Expected};
use crate::error::TcError;
use serde_json::Value;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// Times that undoing is attempted, as a tool may fail where the kernel is short of memory.
const UNDO_ATTEMPTS: usize = 3;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(100);

/// The kernel keeps times in ticks of 64 ns, shares in 32 bits, rates in bytes; a setting that it did not
/// take is further off.
const TOLERANCE: f64 = 0.002;
/// Shares are multiples of 2^-32.
const SHARE_STEP: f64 = 2.4e-10;
/// The kernel keeps times in ticks of 64 ns, and tc prints whole microseconds, both rounded down.
const TIME_STEP_S: f64 = 1.1e-6;

/// Apply the settings and see whether the kernel took them. After a failure [`undo`] removes those that it took.
pub(crate) fn apply(config: &Config) -> Result<(), TcError> {
    batch("ip", &config.setup.ip)?;
    batch("tc", &config.setup.tc)?;
    require(&config.expect)
}

/// Change settings of interfaces that were set up.
pub(crate) fn change(change: &Change) -> Result<(), TcError> {
    batch("tc", &change.tc)?;
    require(&change.expect)
}

/// Remove the settings, also those that a job that was killed left.
///
/// # Errors
/// The queueing disciplines that are still there after several attempts.
pub(crate) fn undo(config: &Config) -> Result<(), TcError> {
    let mut outcome = undo_once(config);
    for _ in 1..UNDO_ATTEMPTS {
        if outcome.is_ok() {
            break;
        }
        thread::sleep(ATTEMPT_INTERVAL);
        outcome = undo_once(config);
    }
    outcome
}

/// Every step is tried. Settings that were never made cannot be removed: the kernel says what is left.
fn undo_once(config: &Config) -> Result<(), TcError> {
    let mut messages = Vec::new();
    for (name, lines) in [("tc", &config.undo.tc), ("ip", &config.undo.ip)] {
        if !lines.is_empty() {
            let output = tool(name, &["-force", "-batch", "-"], &text(lines))?;
            let (message, _) = parse_refusal(&String::from_utf8_lossy(&output.stderr), lines);
            messages.extend((!message.is_empty()).then_some(message));
        }
    }
    let leftovers: Vec<String> = disciplines()?
        .iter()
        .filter_map(|shown| leftover(config, shown))
        .collect();
    if leftovers.is_empty() {
        return Ok(());
    }
    Err(TcError::Failed(format!(
        "settings are not undone: {} ({}); the next link or delay box on this machine tries again before it begins",
        leftovers.join(", "),
        messages.join("; ")
    )))
}

/// A queueing discipline as text, if it is one of the settings, or on a device that they make.
fn leftover(config: &Config, shown: &Value) -> Option<String> {
    let [dev, handle, kind] =
        ["dev", "handle", "kind"].map(|key| shown[key].as_str().unwrap_or(""));
    let is_there_before = config.interfaces.iter().any(|name| name == dev);
    let is_own = config
        .expect
        .iter()
        .any(|one| one.dev == dev && (one.handle == handle || !is_there_before));
    (is_own || (is_there_before && kind == "clsact")).then(|| format!("{kind} on {dev}"))
}

fn require(expected: &[Expected]) -> Result<(), TcError> {
    match first_difference(expected, &disciplines()?) {
        Some(difference) => Err(TcError::Failed(difference)),
        None => Ok(()),
    }
}

fn disciplines() -> Result<Vec<Value>, TcError> {
    let shown = tool("tc", &["-r", "-j", "qdisc", "show"], "")?;
    serde_json::from_slice(&shown.stdout).map_err(|error| {
        TcError::Failed(format!(
            "tc: `tc -r -j qdisc show` printed no list: {error}"
        ))
    })
}

fn batch(name: &str, lines: &[String]) -> Result<(), TcError> {
    if lines.is_empty() {
        return Ok(());
    }
    let output = tool(name, &["-batch", "-"], &text(lines))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let (message, line) = parse_refusal(&errors, lines);
    Err(TcError::Failed(match line {
        Some(line) => format!("{name} refused '{line}': {message}"),
        None => format!("{name}: {message}"),
    }))
}

/// The message of a batch that failed, and the line that it is about: `Command failed -:3` follows it.
fn parse_refusal<'a>(output: &str, lines: &'a [String]) -> (String, Option<&'a String>) {
    let mut failed = None;
    let mut messages = Vec::new();
    for line in output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        match line.strip_prefix("Command failed -:") {
            Some(number) => failed = number.parse::<usize>().ok(),
            None => messages.push(line),
        }
    }
    let line = failed.and_then(|number| lines.get(number.checked_sub(1)?));
    (messages.join("; "), line)
}

fn text(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

fn tool(name: &str, arguments: &[&str], input: &str) -> Result<Output, TcError> {
    let failed = |error: io::Error| {
        TcError::Failed(format!("cannot start {name}: {error} (package iproute2)"))
    };
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

/// The first expectation that is not met, as a message.
fn first_difference(expected: &[Expected], shown: &[Value]) -> Option<String> {
    expected.iter().find_map(|expected| {
        let name = format!("{} on '{}'", expected.kind, expected.dev);
        let qdisc = shown.iter().find(|shown| {
            shown["dev"] == expected.dev.as_str() && shown["handle"] == expected.handle.as_str()
        });
        let Some(qdisc) = qdisc else {
            return Some(format!("the kernel did not keep {name}: it is missing"));
        };
        if qdisc["kind"] != expected.kind.as_str() {
            return Some(format!(
                "the kernel did not keep {name}: it has {} instead",
                qdisc["kind"]
            ));
        }
        difference(&expected.options, &qdisc["options"], "")
            .map(|difference| format!("the kernel did not keep {name}: {difference}"))
    })
}

/// Every number, text and member of `expected` must be in `shown`, which may have more; a member that is null must not.
fn difference(expected: &Value, shown: &Value, path: &str) -> Option<String> {
    let same = match (expected, shown) {
        (Value::Object(expected), _) => {
            return expected.iter().find_map(|(name, expected)| {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                difference(expected, &shown[name], &path)
            });
        }
        (Value::Number(expected), Value::Number(shown)) => {
            match (expected.as_f64(), shown.as_f64()) {
                (Some(expected), Some(shown)) => {
                    let is_time = path.starts_with("delay.");
                    let step = if is_time { TIME_STEP_S } else { SHARE_STEP };
                    (expected - shown).abs() <= (TOLERANCE * expected.abs()).max(step)
                }
                _ => false,
            }
        }
        (Value::Number(expected), Value::String(shown)) => same_ticks(expected.as_u64(), shown),
        _ => expected == shown,
    };
    (!same).then(|| format!("{path} is {shown}, requested {expected}"))
}

/// Whether ticks, which tc writes in hexadecimal, are as many as expected or, rounded down twice, one less.
fn same_ticks(expected: Option<u64>, shown: &str) -> bool {
    let shown = u64::from_str_radix(shown, 16).ok();
    expected
        .zip(shown)
        .is_some_and(|(expected, shown)| shown <= expected && expected <= shown + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let example = &examples("tc", "keeper")[0];
        let config = Config::parse(&example.to_string()).unwrap();
        let left = |dev: &str, handle: &str, kind: &str| {
            leftover(
                &config,
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

    fn shown() -> Vec<Value> {
        // As iproute2 6.1 prints it.
        serde_json::from_str(
            r#"[{"kind":"netem","handle":"1:","dev":"sat-i","root":true,"refcnt":2,"options":{"limit":200000,"delay":{"delay":0.02,"jitter":0,"correlation":0},"ecn":false,"gap":0}},
                {"kind":"tbf","handle":"1:","dev":"ifb-to-island","root":true,"refcnt":2,"options":{"rate":2000000,"burst":1538,"burst_raw":"2eff","lat":49231,"limit":100000}}]"#,
        )
        .unwrap()
    }

    fn expected(dev: &str, kind: &str, options: Value) -> Vec<Expected> {
        vec![Expected {
            dev: dev.to_owned(),
            handle: "1:".to_owned(),
            kind: kind.to_owned(),
            options,
        }]
    }

    #[test]
    fn applied_settings_differ_by_rounding_alone() {
        let wanted = expected(
            "ifb-to-island",
            "tbf",
            json!({"rate":2_000_000,"burst_raw":0x2eff,"limit":100_000}),
        );
        assert_eq!(first_difference(&wanted, &shown()), None);
        let wanted = expected(
            "sat-i",
            "netem",
            json!({"delay":{"delay":0.02,"jitter":0.0}}),
        );
        assert_eq!(first_difference(&wanted, &shown()), None);
    }

    #[test]
    fn a_bucket_is_compared_by_its_ticks_of_which_the_kernel_may_drop_one() {
        for ticks in [0x2eff, 0x2f00] {
            let wanted = expected("ifb-to-island", "tbf", json!({"burst_raw":ticks}));
            assert_eq!(first_difference(&wanted, &shown()), None);
        }
    }

    #[test]
    fn a_setting_that_was_not_applied_is_named() {
        let cases = [
            (
                expected("sat-i", "netem", json!({"delay":{"delay":0.25}})),
                "delay.delay is 0.02, requested 0.25",
            ),
            (
                expected("sat-i", "netem", json!({"delay":{"jitter":0.001}})),
                "delay.jitter is 0, requested 0.001",
            ),
            (
                expected("sat-i", "netem", json!({"loss-random":{"loss":0.1}})),
                "loss-random.loss is null, requested 0.1",
            ),
            (
                expected("sat-i", "netem", json!({"loss-random":null,"ecn":null})),
                "ecn is false, requested null",
            ),
            (
                expected("ifb-to-island", "tbf", json!({"burst_raw":0x2efe})),
                "burst_raw is \"2eff\", requested 12030",
            ),
            (
                expected("ifb-to-island", "tbf", json!({"burst_raw":0x2f01})),
                "burst_raw is \"2eff\", requested 12033",
            ),
            (
                expected("sat-i", "tbf", json!({})),
                "it has \"netem\" instead",
            ),
            (
                expected("sat-w", "netem", json!({})),
                "netem on 'sat-w': it is missing",
            ),
        ];
        for (wanted, words) in cases {
            let difference = first_difference(&wanted, &shown()).unwrap();
            assert!(difference.contains(words), "{difference}");
        }
    }
}
