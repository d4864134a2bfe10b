// SPDX-License-Identifier: Apache-2.0
//! Starting programs, and running tools to their end.

use crate::AgentError;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

/// Where Debian keeps `ip`, `ethtool` and `nft`, and where a plain user's PATH, or that of
/// a command run over SSH, does not look.
const SYSTEM_DIRECTORIES: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// A command whose program is looked for on PATH and in the system directories.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut path =
        env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    path.push(":");
    path.push(SYSTEM_DIRECTORIES);
    let mut command = Command::new(program);
    command.env("PATH", path);
    command
}

/// Run a tool to its end with `input`; what it printed, or what it complained about.
pub fn tool(program: &str, arguments: &[&str], input: &str) -> Result<String, AgentError> {
    let start = |source| AgentError::Start {
        program: program.to_owned(),
        source,
    };
    let mut child = command(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let mut stdin = child.stdin.take();
    let output = thread::scope(|scope| {
        // From a thread of its own: a tool that answers before it has read everything blocks nobody.
        scope.spawn(move || stdin.as_mut().map(|pipe| pipe.write_all(input.as_bytes())));
        child.wait_with_output()
    })
    .map_err(start)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(AgentError::Tool {
        tool: program.to_owned(),
        message: one_line(&String::from_utf8_lossy(&output.stderr)),
    })
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
        assert_eq!(tool("cat", &[], &long).unwrap(), long);
    }

    #[test]
    fn a_failing_tool_is_quoted_on_one_line() {
        let error = tool("sh", &["-c", "echo no >&2; echo '  way' >&2; exit 3"], "").unwrap_err();
        assert_eq!(error.to_string(), "sh: no; way");
        let error = tool("no-such-tool-here", &[], "").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot start no-such-tool-here: ")
        );
    }
}
