// SPDX-License-Identifier: Apache-2.0
//! Standard output of a job, written by a thread of its own: a reader that stalls must not stall the link.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Lines that may wait for the reader before counters, which are sums and come again, are left out.
const BACKLOG_MAX: usize = 1000;

/// Lines on their way to standard output.
#[derive(Debug)]
pub(crate) struct Output {
    sender: Sender<String>,
    backlog: Arc<AtomicUsize>,
    writer: JoinHandle<()>,
}

impl Output {
    /// Start the writer.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, lines) = channel::<String>();
        let backlog = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&backlog);
        let writer = Builder::new().name("output".to_owned()).spawn(move || {
            let mut stdout = io::stdout().lock();
            for line in lines {
                // A reader that is gone has also closed our standard input, which ends the link.
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

    /// A line that the reader waits for.
    pub(crate) fn line(&self, line: String) {
        self.backlog.fetch_add(1, Ordering::Relaxed);
        // Fails when the reader is gone: see above.
        let _ = self.sender.send(line);
    }

    /// A line that may be left out when the reader does not keep up.
    pub(crate) fn repeatable_line(&self, line: String) {
        if self.backlog.load(Ordering::Relaxed) < BACKLOG_MAX {
            self.line(line);
        }
    }

    /// Wait until everything is written.
    pub(crate) fn finish(self) {
        drop(self.sender);
        // The writer has nothing to panic about; if it did, it said so on standard error.
        let _ = self.writer.join();
    }
}
