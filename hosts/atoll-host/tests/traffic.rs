// SPDX-License-Identifier: Apache-2.0
//! The traffic jobs as processes on loopback, with clients and servers that misbehave.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

/// A running job; killed if a test fails before its end.
struct Job {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Job {
    fn start(subcommand: &str, config: &Value) -> Self {
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
    fn next(&mut self) -> Value {
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
    fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let message = self.next();
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// End its input; its last message. It must exit with 0.
    fn stop(mut self) -> Value {
        self.input = None;
        let done = self.next_of("done");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        done
    }

    /// Its exit code and standard error, when it ends by itself.
    fn failure(mut self) -> (Option<i32>, String) {
        let errors = self.errors();
        (self.child.wait().unwrap().code(), errors)
    }

    fn errors(&mut self) -> String {
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
fn server(congestion_control: &str) -> (Job, SocketAddr) {
    let mut job = Job::start(
        "serve",
        &json!({"listen": "127.0.0.1:0", "congestion_control": congestion_control}),
    );
    let address = job.next()["listen"].as_str().unwrap().parse().unwrap();
    (job, address)
}

fn request(address: SocketAddr, bytes: u64) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&bytes.to_be_bytes()).unwrap();
    stream
}

/// The rows of a flow log, without its header.
fn rows_of(log: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(log).unwrap();
    std::fs::remove_file(log).unwrap();
    text.lines()
        .skip(1)
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect()
}

/// How many bytes come before the end of the stream.
fn received(mut stream: TcpStream) -> u64 {
    std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("atoll-traffic-{}-{name}", std::process::id()))
}

/// Run channels 0 to 2 against `server` until `done_after` flows are logged; `done` and the log's rows.
fn fetch(server: SocketAddr, name: &str, flows: usize) -> (Value, Vec<Vec<String>>) {
    let log = scratch(name);
    let config = json!({
        "seed": 1, "channels": [0, 1, 2], "servers": [server], "flow_sizes": "published", "start_at_ns": 0,
        "duration_ns": 0, "congestion_control": "reno", "flow_log": log,
    });
    let mut job = Job::start("load", &config);
    loop {
        let counters = job.next_of("counters");
        let ended = counters["flows_completed"].as_u64().unwrap()
            + counters["flows_failed"].as_u64().unwrap();
        if ended >= flows as u64 {
            break;
        }
    }
    (job.stop(), rows_of(&log))
}

/// Run channels 3 and 4 against `server` for 1.5 s at a pace; the log's rows in the order of their channel and flow.
fn fetch_at(server: SocketAddr, name: &str, pace: &Value) -> Vec<Vec<String>> {
    let log = scratch(name);
    let config = json!({
        "seed": 1, "channels": [3, 4], "servers": [server], "start_at_ns": 0, "duration_ns": 1_500_000_000,
        "flow_sizes": {"kind": "steps", "knots": [[500_000_000, 100], [1_000_000_000, 20_000]]}, "pace": pace,
        "congestion_control": "reno", "flow_log": log,
    });
    let mut job = Job::start("load", &config);
    assert_eq!(job.next_of("done")["flows_failed"], 0);
    let mut rows = rows_of(&log);
    rows.sort_by_key(|row| {
        let number = |column: usize| row[column].parse::<u64>().unwrap();
        (number(0), number(1))
    });
    assert!(
        rows.iter()
            .all(|row| ["100", "20000"].contains(&row[3].as_str()))
    );
    rows
}

#[test]
fn every_size_arrives_whole_and_ends_with_the_end_of_the_stream() {
    let (job, address) = server("reno");
    let sizes = [0, 1, 8, 1_000, 262_144, 262_145, 5_000_000];
    for size in sizes {
        assert_eq!(received(request(address, size)), size);
    }
    let done = job.stop();
    assert_eq!(done["connections"], sizes.len());
    assert_eq!(done["sent_bytes"], sizes.iter().sum::<u64>());
}

#[test]
fn clients_that_misbehave_disturb_nobody() {
    let (job, address) = server("reno");
    let silent = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&[0, 0, 0]).unwrap();
    let mut gone = TcpStream::connect(address).unwrap();
    gone.write_all(&[1]).unwrap();
    drop(gone);
    // Wants gigabytes, takes none, leaves with data unread: a reset.
    drop(request(address, 10_000_000_000));
    // Wants gigabytes and never reads.
    let stalled = request(address, 10_000_000_000);
    // Says more than it should.
    let mut chatty = request(address, 100_000);
    chatty.write_all(&[7; 10_000]).unwrap();
    assert_eq!(received(chatty), 100_000);
    assert_eq!(received(request(address, 50_000)), 50_000);
    half.write_all(&[0, 0, 0, 0, 9]).unwrap();
    assert_eq!(received(half), 9);
    drop((silent, stalled));
    assert_eq!(job.stop()["connections"], 7);
}

#[test]
fn a_thousand_connections_are_served_at_once() {
    let (job, address) = server("reno");
    let mut waiting: Vec<TcpStream> = (0..1000)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for stream in waiting.iter_mut().rev() {
        stream.write_all(&3_000_u64.to_be_bytes()).unwrap();
    }
    assert_eq!(waiting.into_iter().map(received).sum::<u64>(), 3_000_000);
    assert_eq!(job.stop()["connections"], 1000);
}

#[test]
fn what_cannot_be_is_one_line_and_an_exit_code() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    for (subcommand, config, code, says) in [
        (
            "serve",
            json!({"listen": address, "congestion_control": "reno"}),
            1,
            format!("cannot listen on {address}: "),
        ),
        (
            "serve",
            json!({"listen": "127.0.0.1:0", "congestion_control": "vegan"}),
            2,
            "control 'vegan'".into(),
        ),
        (
            "serve",
            json!({"listen": "here", "congestion_control": "reno"}),
            2,
            "configuration: ".into(),
        ),
        (
            "transfer",
            json!({"role": "watch"}),
            2,
            "unknown variant `watch`".into(),
        ),
        ("ping", json!({}), 2, "missing field `targets`".into()),
        (
            "load",
            json!({
                "seed": 1, "channels": [0], "servers": [address], "flow_sizes": "published", "start_at_ns": 0,
                "duration_ns": 0, "congestion_control": "reno", "flow_log": "/no/such/directory/flows.csv",
            }),
            1,
            "cannot create flow log /no/such/directory/flows.csv: ".into(),
        ),
    ] {
        let (found, errors) = Job::start(subcommand, &config).failure();
        assert_eq!(found, Some(code), "{subcommand}: {errors}");
        assert!(
            errors.starts_with("atoll-host: ") && errors.contains(&says),
            "{errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn channels_fetch_the_flows_their_seed_draws() {
    let (serving, address) = server("reno");
    let (done, rows) = fetch(address, "drawn", 300);
    drop(serving);
    let sizes = flow_sizes::Distribution::published();
    for row in &rows {
        let number = |column: usize| row[column].parse::<u64>().unwrap();
        let flow = flow_sizes::draw(&sizes, 1, number(0), number(1), 1);
        assert_eq!(number(3), flow.size_bytes, "{row:?}");
        assert!(["completed", "cut"].contains(&row[9].as_str()), "{row:?}");
        if row[9] == "completed" {
            assert_eq!(row[3], row[4], "{row:?}");
            assert!(
                number(5) <= number(6) && number(6) <= number(7) && number(7) <= number(8),
                "{row:?}"
            );
        }
    }
    for channel in ["0", "1", "2"] {
        let flows: Vec<u64> = rows
            .iter()
            .filter(|row| row[0] == channel)
            .map(|row| row[1].parse().unwrap())
            .collect();
        assert_eq!(
            flows,
            (0..flows.len() as u64).collect::<Vec<_>>(),
            "no flow is left out or repeated"
        );
    }
    let bytes: u64 = rows.iter().map(|row| row[4].parse::<u64>().unwrap()).sum();
    assert_eq!(done["received_bytes"], bytes);
    assert_eq!(done["channels_served"], 3);
    assert_eq!(done["flows_failed"], 0);
}

#[test]
fn a_channel_thinks_between_its_flows() {
    let (_serving, address) = server("reno");
    let rows = fetch_at(
        address,
        "thinks",
        &json!({"kind": "constant", "mean_ns": 100_000_000}),
    );
    assert!(rows.len() > 6, "{rows:?}");
    for pair in rows.windows(2).filter(|pair| pair[0][0] == pair[1][0]) {
        let (ended, began): (i64, i64) = (pair[0][8].parse().unwrap(), pair[1][5].parse().unwrap());
        assert!(began - ended >= 99_000_000, "{pair:?}");
    }
}

#[test]
fn an_open_loop_begins_flows_when_its_seed_says_whatever_became_of_those_before() {
    // Accepts and never answers: no flow ever ends.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mean_ns = 50_000_000;
    let rows = fetch_at(
        silent.local_addr().unwrap(),
        "open",
        &json!({"kind": "poisson", "mean_ns": mean_ns}),
    );
    assert!(rows.iter().all(|row| row[9] == "cut"), "{rows:?}");
    let lag = |row: &Vec<String>| {
        let number = |column: usize| row[column].parse::<u64>().unwrap();
        let waits =
            (0..=number(1)).map(|flow| flow_sizes::exponential_ns(mean_ns, 1, number(0), flow));
        number(5) - waits.sum::<u64>()
    };
    // Each as long after the start as it was due, or later where this machine was busy.
    let start = rows.iter().map(lag).min().unwrap();
    let mut late: Vec<u64> = rows.iter().map(|row| lag(row) - start).collect();
    assert!((30..90).contains(&rows.len()), "60 are expected: {rows:?}");
    late.sort_unstable();
    assert!(late[late.len() / 2] < 20_000_000, "{late:?}");
}

#[test]
fn no_connection_is_sent_faster_than_the_write_rate() {
    let mut job = Job::start(
        "serve",
        &json!({"listen": "127.0.0.1:0", "congestion_control": "reno", "write_rate_bit_s": 8_000_000}),
    );
    let address: SocketAddr = job.next()["listen"].as_str().unwrap().parse().unwrap();
    let begun = std::time::Instant::now();
    let waiting = [request(address, 500_000), request(address, 500_000)];
    assert_eq!(waiting.map(received), [500_000, 500_000]);
    // Half a second each, at the same time; what TCP may send before pacing begins is little.
    let seconds = begun.elapsed().as_secs_f64();
    assert!((0.3..5.0).contains(&seconds), "{seconds}");
    assert_eq!(job.stop()["connections"], 2);
}

#[test]
fn an_absent_server_is_logged_and_not_hammered() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let (done, rows) = fetch(closed, "absent", 6);
    assert!(
        rows.iter()
            .all(|row| row[9] == "failed:ECONNREFUSED" && row[6].is_empty()),
        "{rows:?}"
    );
    assert_eq!(done["flows_failed"], rows.len());
    // At most one attempt at once, then after 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 s, then every 5 s: far below this
    // for any run that ends within the test's time.
    assert!(rows.len() <= 3 * 20, "{}", rows.len());
}

/// A server that sends `answer` to whoever connects and closes.
fn false_server(answer: Vec<u8>) -> SocketAddr {
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

#[test]
fn servers_that_send_too_little_or_too_much_are_found_out() {
    let (_, rows) = fetch(false_server(vec![0; 3]), "little", 3);
    assert!(
        rows.iter()
            .any(|row| row[9] == "failed:ENODATA" && row[4] == "3"),
        "{rows:?}"
    );
    let (_, rows) = fetch(false_server(vec![0; 100_000]), "much", 3);
    assert!(rows.iter().any(|row| row[9] == "failed:EPROTO"), "{rows:?}");
}

#[test]
fn a_transfer_is_timed_by_its_receiver() {
    let send = json!({"role": "send", "listen": "127.0.0.1:0", "size_bytes": 20_000_000, "congestion_control": "reno"});
    let mut sender = Job::start("transfer", &send);
    let address = sender.next()["listen"].clone();
    let receive =
        json!({"role": "receive", "connect": address, "size_bytes": 20_000_000, "start_at_ns": 0});
    let mut receiver = Job::start("transfer", &receive);
    let done = receiver.next_of("done");
    assert_eq!(
        (&done["complete"], &done["received_bytes"]),
        (&json!(true), &json!(20_000_000))
    );
    let instants = ["start_ns", "first_byte_ns", "end_ns"].map(|name| done[name].as_i64().unwrap());
    assert!(instants.is_sorted());
    let seconds = (instants[2] - instants[0]) as f64 / 1e9;
    assert!((done["seconds"].as_f64().unwrap() - seconds).abs() < 1e-9);
    assert!((done["rate_bit_s"].as_f64().unwrap() * seconds / 160e6 - 1.0).abs() < 1e-9);
    assert_eq!(
        sender.next_of("done"),
        json!({"type": "done", "sent_bytes": 20_000_000, "complete": true})
    );
}

#[test]
fn a_transfer_that_breaks_off_says_how_far_it_got_and_fails() {
    let address = false_server(vec![]);
    let receive =
        json!({"role": "receive", "connect": address, "size_bytes": 1000, "start_at_ns": 0});
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let short = json!({"role": "receive", "connect": listener.local_addr().unwrap(), "size_bytes": 1000, "start_at_ns": 0});
    let mut receiver = Job::start("transfer", &short);
    listener.accept().unwrap().0.write_all(&[0; 10]).unwrap();
    assert_eq!(receiver.next_of("done")["received_bytes"], 10);
    let (code, errors) = receiver.failure();
    assert_eq!(code, Some(1));
    assert_eq!(
        errors,
        "atoll-host: transfer broken off after 10 of 1000 bytes received: the sender closed too early\n"
    );

    // Nobody speaks: told to stop, it says so and exits with 0.
    let mut waiting = Job::start("transfer", &receive);
    waiting.next_of("progress");
    assert_eq!(waiting.stop()["complete"], false);
}

#[test]
fn sigterm_ends_a_job_as_the_end_of_input_does() {
    let (mut job, _) = server("reno");
    let pid = job.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(job.next_of("done")["connections"], 0);
    assert_eq!(job.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_udp_stream_arrives_as_it_was_sent() {
    let mut receiver = Job::start(
        "udp",
        &json!({"role": "receive", "listen": "127.0.0.1:0", "each": true}),
    );
    let address = receiver.next()["listen"].clone();
    let mut sender = Job::start(
        "udp",
        &json!({
            "role": "send", "connect": address, "rate_bit_s": 1_200_000, "payload_bytes": 1472, "start_at_ns": 0,
            "duration_ns": 200_000_000,
        }),
    );
    let sent = sender.next_of("done");
    // 20 packets in 200 ms; fewer if this machine held the sender up.
    let packets = sent["sent_packets"].as_u64().unwrap();
    assert!((2..=20).contains(&packets), "{sent}");
    assert_eq!(sent["sent_bytes"], packets * 1500);
    for seq in 0..packets {
        let each = receiver.next_of("packet");
        assert_eq!(
            (each["seq"].as_u64(), each["bytes"].as_u64()),
            (Some(seq), Some(1500))
        );
        assert!(each["received_ns"].as_i64() >= each["sent_ns"].as_i64());
    }
    let done = receiver.stop();
    assert_eq!(done["packets"], packets);
    assert_eq!(
        (&done["lost_packets"], &done["reordered_packets"]),
        (&json!(0), &json!(0))
    );
}

#[test]
fn a_udp_stream_that_would_be_fragmented_is_bad_configuration() {
    let (code, errors) = Job::start(
        "udp",
        &json!({
            "role": "send", "connect": "127.0.0.1:9", "rate_bit_s": 1000, "payload_bytes": 1473, "start_at_ns": 0,
            "duration_ns": 0,
        }),
    )
    .failure();
    assert_eq!(code, Some(2));
    assert!(errors.contains("payload_bytes"), "{errors}");
}
