// SPDX-License-Identifier: Apache-2.0
//! Standard output of a job: JSON lines, at once or by a thread of their own.

use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Lines that may wait for the reader before repeatable ones are left out.
const BACKLOG_MAX: usize = 1000;

/// Print `message` as one line of JSON. Waits for the reader: a job whose data path must not wait uses [`Output`].
///
/// # Errors
/// If standard output is closed.
pub fn print(message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

/// Write a line for people to standard error. A closed standard error is ignored.
pub fn log_line(message: &str) {
    let _ = writeln!(io::stderr(), "atoll-host: {message}");
}

/// Standard output by way of a thread: a reader that stalls does not stall the data path.
#[derive(Debug)]
pub struct Output {
    sender: Sender<String>,
    backlog: Arc<AtomicUsize>,
    writer: JoinHandle<()>,
}

impl Output {
    /// Start the writer. Signals that it is not to receive must be blocked before.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start() -> io::Result<Self> {
        let (sender, lines) = channel::<String>();
        let backlog = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&backlog);
        let writer = Builder::new().name("output".to_owned()).spawn(move || {
            let mut stdout = io::stdout().lock();
            for line in lines {
                // A reader that is gone has also closed our standard input, which ends the job.
                if writeln!(stdout, "{line}")
                    .and_then(|()| stdout.flush())
                    .is_err()
                {
                    return;
                }
                waiting.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        Ok(Self {
            sender,
            backlog,
            writer,
        })
    }

    /// Write a line that the reader waits for.
    pub fn line(&self, message: &impl Serialize) {
        // Fails for maps with keys other than strings and numbers, which no message has.
        let line = serde_json::to_string(message).unwrap_or_default();
        self.backlog.fetch_add(1, Ordering::Relaxed);
        // Fails when the reader is gone: see above.
        let _ = self.sender.send(line);
    }

    /// Write a line that is left out when the reader does not keep up: counters, which are sums and come again.
    pub fn repeatable_line(&self, message: &impl Serialize) {
        if self.backlog.load(Ordering::Relaxed) < BACKLOG_MAX {
            self.line(message);
        }
    }

    /// Wait until everything is written.
    pub fn finish(self) {
        drop(self.sender);
        // If the writer panicked, it said so on standard error.
        let _ = self.writer.join();
    }
}
