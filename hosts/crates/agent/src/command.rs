// SPDX-License-Identifier: Apache-2.0
//! Commands: starting programs, and running tools to their end.

use crate::AgentError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// The directories of `ip`, `ethtool` and `nft` on Debian, which the PATH of a plain user, or of
/// a command run over SSH, may not contain.
const SYSTEM_DIRECTORIES: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Time limit of a tool; successful ones take much less.
pub const TOOL_LIMIT: Duration = Duration::from_secs(20);

/// A command whose program is searched on PATH and in the system directories.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut path =
        env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    path.push(":");
    path.push(SYSTEM_DIRECTORIES);
    let mut command = Command::new(program);
    command.env("PATH", path);
    command
}

/// Run a tool to its end with `input`; returns its output, or its error message. It is killed after the time limit.
pub fn run_tool(program: &str, arguments: &[&str], input: &str) -> Result<String, AgentError> {
    run_tool_within(TOOL_LIMIT, program, arguments, input)
}

/// Input and output are files in memory: nothing waits at a pipe that a descendant of the tool holds open.
fn run_tool_within(
    limit: Duration,
    program: &str,
    arguments: &[&str],
    input: &str,
) -> Result<String, AgentError> {
    let start = |source| AgentError::Start {
        program: program.to_owned(),
        source,
    };
    let (mut stdin, mut stdout, mut stderr) = (memory_file()?, memory_file()?, memory_file()?);
    stdin.write_all(input.as_bytes())?;
    stdin.rewind()?;
    let mut child = command(program)
        .args(arguments)
        .process_group(0)
        .stdin(stdin)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()
        .map_err(start)?;
    let pid = Pid::from_child(&child);
    let in_time = ends_within(pid, limit);
    // Before its number is free: with what it has started.
    kill_process_group(pid, Signal::KILL).ok();
    let status = child.wait()?;
    let tool_error = |message| {
        Err(AgentError::Tool {
            tool: program.to_owned(),
            message,
        })
    };
    if !in_time? {
        return tool_error(format!(
            "killed, because it had not ended after {} s",
            limit.as_secs_f64()
        ));
    }
    if status.success() {
        return Ok(read_text(&mut stdout)?);
    }
    tool_error(one_line(&read_text(&mut stderr)?))
}

fn memory_file() -> io::Result<File> {
    Ok(memfd_create("tool", MemfdFlags::CLOEXEC)?.into())
}

fn read_text(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn ends_within(pid: Pid, limit: Duration) -> io::Result<bool> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let end = Instant::now() + limit;
    loop {
        let remaining = end.saturating_duration_since(Instant::now());
        let remaining = Timespec::try_from(remaining).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&remaining)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        "failed without a message".to_owned()
    } else {
        lines.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_gets_its_input_and_gives_its_output() {
        let long = "line\n".repeat(100_000); // more than a pipe holds, both ways
        assert_eq!(run_tool("cat", &[], &long).unwrap(), long);
    }

    #[test]
    fn a_tool_that_does_not_end_is_killed_with_what_it_started_and_named() {
        let begun = Instant::now();
        let script = "sleep 1000 & echo $! >&2; sleep 1000";
        let limit = Duration::from_millis(200);
        let error = run_tool_within(limit, "sh", &["-c", script], "").unwrap_err();
        assert_eq!(
            error.to_string(),
            "sh: killed, because it had not ended after 0.2 s"
        );
        assert!(begun.elapsed() < Duration::from_secs(100));
    }

    #[test]
    fn a_tool_that_has_ended_is_not_waited_for_by_its_children() {
        let begun = Instant::now();
        let printed = run_tool("sh", &["-c", "sleep 1000 & echo done"], "").unwrap();
        assert_eq!(printed, "done\n");
        assert!(begun.elapsed() < TOOL_LIMIT);
    }

    #[test]
    fn a_failing_tool_is_quoted_on_one_line() {
        let error =
            run_tool("sh", &["-c", "echo no >&2; echo '  way' >&2; exit 3"], "").unwrap_err();
        assert_eq!(error.to_string(), "sh: no; way");
        let error = run_tool("no-such-tool-here", &[], "").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot start no-such-tool-here: ")
        );
    }
}
