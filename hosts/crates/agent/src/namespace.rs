// SPDX-License-Identifier: Apache-2.0
//! Doing something inside a network namespace.
//!
//! A short-lived thread enters it: `/proc/sys/net` shows the namespace of the thread that opens it,
//! and programs the thread starts inherit it, so reading and writing sysctls costs no process at
//! all (fork and exec are what is dear under virtual time) and the main thread never leaves home.

use crate::AgentError;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// A network namespace held open, or the agent's own.
#[derive(Debug)]
pub struct Namespace(Option<(PathBuf, File)>);

impl Namespace {
    /// Open the namespace at `path`, for instance `/proc/123/ns/net`; `None` is the agent's own.
    pub fn open(path: Option<&Path>) -> Result<Self, AgentError> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let file = File::open(path).map_err(AgentError::file(&path.to_string_lossy()))?;
        Ok(Self(Some((path.to_owned(), file))))
    }

    /// Run `work` on a thread inside the namespace and return its result.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, AgentError> + Send,
    ) -> Result<T, AgentError> {
        let Some((path, file)) = &self.0 else {
            return work();
        };
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|errno| AgentError::file(&path.to_string_lossy())(errno.into()))?;
                work()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Run a tool to its end with `input`; what it printed, or what it complained about.
pub fn tool(program: &str, arguments: &[&str], input: &str) -> Result<String, AgentError> {
    let start = |source| AgentError::Start {
        program: program.to_owned(),
        source,
    };
    let mut child = Command::new(program)
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

    #[test]
    fn a_path_that_is_no_namespace_is_named() {
        let namespace = Namespace::open(Some(Path::new("/proc/self/stat"))).unwrap();
        let error = namespace.run(|| Ok(())).unwrap_err();
        assert!(
            error.to_string().starts_with("/proc/self/stat: "),
            "{error}"
        );
    }
}
