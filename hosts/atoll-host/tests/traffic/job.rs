// SPDX-License-Identifier: Apache-2.0
//! A job as a process, and what else several tests need.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(100);

/// A running job; killed if a test fails before its end.
pub struct Job {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Job {
    pub fn start(subcommand: &str, config: &Value) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_atoll-host"))
            .arg(subcommand)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        writeln!(input, "{config}").unwrap();
        Self {
            child,
            input: Some(input),
            output,
        }
    }

    /// The next message.
    pub fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(
            !line.is_empty(),
            "no further message; standard error: {}",
            self.errors()
        );
        serde_json::from_str(&line).unwrap()
    }

    /// The next message of a kind; others are skipped.
    pub fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let message = self.next();
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// End its input; its last message. It must exit with 0.
    pub fn stop(mut self) -> Value {
        self.input = None;
        let done = self.next_of("done");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        done
    }

    /// Its exit code and standard error, when it ends by itself.
    pub fn failure(mut self) -> (Option<i32>, String) {
        let errors = self.errors();
        (self.child.wait().unwrap().code(), errors)
    }

    pub fn errors(&mut self) -> String {
        let mut text = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server on a free port, and its address.
pub fn server(congestion_control: &str) -> (Job, SocketAddr) {
    let mut job = Job::start(
        "serve",
        &json!({"listen": "127.0.0.1:0", "congestion_control": congestion_control}),
    );
    let address = job.next()["listen"].as_str().unwrap().parse().unwrap();
    (job, address)
}

pub fn request(address: SocketAddr, bytes: u64) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&bytes.to_be_bytes()).unwrap();
    stream
}

/// Whether it ends by a reset, and not by the end of the stream.
pub fn is_reset(mut stream: TcpStream) -> bool {
    let outcome = std::io::copy(&mut stream, &mut std::io::sink());
    outcome.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// Try something up to five times, until it succeeds: a machine that stalls may prevent it, but not each time.
pub fn succeeds(mut attempt: impl FnMut() -> bool) -> bool {
    (0..5).any(|_| attempt())
}

/// The rows of a flow log, without its header.
pub fn rows_of(log: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(log).unwrap();
    std::fs::remove_file(log).unwrap();
    text.lines()
        .skip(1)
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect()
}

/// How many bytes come before the end of the stream.
pub fn received(mut stream: TcpStream) -> u64 {
    std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
}

pub fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("atoll-traffic-{}-{name}", std::process::id()))
}

/// A server that sends `answer` to each client and closes the connection.
pub fn false_server(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if stream.read_exact(&mut [0; 8]).is_ok() {
                let _ = stream.write_all(&answer);
            }
        }
    });
    address
}
