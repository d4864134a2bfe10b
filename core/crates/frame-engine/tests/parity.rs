// SPDX-License-Identifier: Apache-2.0
//! The engine serves programs without delay that emit frames of their own: without sockets, and between real interfaces.

#[path = "../examples/parity/main.rs"]
mod parity;

use atoll_frame_engine::{Arrival, FrameOutput, FrameProgram, Now, Received};
use atoll_netio::interface::Interface;
use atoll_netio::packet_socket::PacketSocket;
use parity::program::{Line, Parity, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

const MS: u64 = 1_000_000;

/// A frame of type "local experiment 2" whose content is `byte`, `bytes` times.
fn frame(byte: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 2, 0x88, 0xb6]);
    frame.resize(14 + bytes, byte);
    frame
}

fn arrive(program: &mut Parity, port: usize, now_ns: u64, frame: &[u8], out: &mut FrameOutput<()>) {
    let received = Received::whole(frame, 0);
    let arrival = Arrival {
        port,
        now_ns,
        stamped: true,
        received: &received,
    };
    program.on_frame(&arrival, out);
}

#[test]
fn a_group_is_followed_by_its_parity() {
    let (mut program, mut out) = (Parity::new(2, 5 * MS), FrameOutput::default());
    arrive(&mut program, 0, 0, &frame(0x0f, 50), &mut out);
    arrive(&mut program, 1, 0, &frame(9, 46), &mut out);
    arrive(&mut program, 0, 1, &frame(0xff, 60), &mut out);
    let sent = out.take();
    let ports: Vec<usize> = sent.iter().map(|outgoing| outgoing.port).collect();
    assert_eq!(ports, [1, 0, 1, 1]);
    let parity = &sent[3].frame[14..];
    assert_eq!(parity, [&[0xf0; 50][..], &[0xff; 10]].concat());
    assert_eq!(program.next_wake(), None);
}

#[test]
fn a_cut_frame_is_not_sent_on() {
    let (mut program, mut out) = (Parity::new(2, 5 * MS), FrameOutput::default());
    let received = Received {
        real_time_ns: 0,
        wire_bytes: 9014,
        frame: &frame(7, 1900),
        vlan: None,
        checksum_missing: false,
    };
    let arrival = Arrival {
        port: 0,
        now_ns: MS,
        stamped: true,
        received: &received,
    };
    program.on_frame(&arrival, &mut out);
    assert!(out.take().is_empty());
    assert_eq!(program.next_wake(), None);
}

#[test]
fn an_incomplete_group_has_its_parity_when_its_time_is_over() {
    let (mut program, mut out) = (Parity::new(9, 5 * MS), FrameOutput::default());
    arrive(&mut program, 0, MS, &frame(7, 46), &mut out);
    out.take();
    assert_eq!(program.next_wake(), Some(6 * MS));
    program.on_wake(6 * MS - 1, &mut out);
    assert!(out.take().is_empty());
    program.on_wake(6 * MS, &mut out);
    assert_eq!(out.take().len(), 1);
    arrive(&mut program, 0, 7 * MS, &frame(7, 46), &mut out);
    let now = Now {
        monotonic_ns: 8 * MS,
        real_time_ns: 1,
        cpu_ns: 1,
    };
    program.on_request(Request::Group { frames: 1 }, now, &mut out);
    assert_eq!(out.take().len(), 2, "a request emits, too");
}

/// The example as a job, in a process of its own.
struct Job {
    process: Child,
    input: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Job {
    fn start(config: &Value) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "job", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take(), process.stdout.take().unwrap());
        let mut job = Self {
            process,
            input,
            lines: BufReader::new(output).lines(),
        };
        job.ask(config);
        assert_eq!(job.line("ready"), json!({"type": "ready"}));
        job
    }

    fn ask(&mut self, request: &Value) {
        writeln!(self.input.as_ref().unwrap(), "{request}").unwrap();
    }

    /// The next line of that type. What the test harness of the other process prints is skipped.
    fn line(&mut self, kind: &str) -> Value {
        loop {
            let line = self.lines.next().expect("the job has ended").unwrap();
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if line["type"] == kind {
                return line;
            }
        }
    }

    fn done(mut self) -> Value {
        self.input = None;
        let done = self.line("done");
        assert!(self.process.wait().unwrap().success());
        done
    }
}

#[test]
#[ignore = "not a test: the job of another one"]
fn job() {
    parity::main().unwrap();
}

/// A socket on an interface, with frames of this test's types only.
fn port(name: &str) -> PacketSocket {
    PacketSocket::open(&Interface::find(name).unwrap(), 2000).unwrap()
}

/// `count` frames that arrive within two seconds; fewer if there are no more.
fn receive(socket: &mut PacketSocket, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let limit = Timespec {
        tv_sec: 2,
        tv_nsec: 0,
    };
    while frames.len() < count {
        if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)).unwrap() == 0 {
            break;
        }
        socket.receive(64, |received| {
            if matches!(received.frame[12..14], [0x88, 0xb5 | 0xb6]) {
                frames.push(received.frame.to_vec());
            }
        });
    }
    frames
}

fn send(socket: &PacketSocket, frames: &[Vec<u8>]) {
    let mut rest = frames;
    while !rest.is_empty() {
        let sent = socket.send(rest.iter().map(Vec::as_slice)).unwrap();
        rest = &rest[sent..];
    }
}

/// Run the rest of a test in a network namespace of its own with two pairs of interfaces, `left - in` and `out - right`
/// of MTU 1560. True in there; the other process has then nothing left to do.
fn in_namespace(test: &str) -> bool {
    const INSIDE: &str = "ATOLL_TEST_NAMESPACE";
    const NAMESPACE: [&str; 4] = ["--user", "--map-root-user", "--net", "--"];
    const SCRIPT: &str = r#"set -e
        ip link add left mtu 1500 type veth peer name in mtu 1500
        ip link add out mtu 1560 type veth peer name right mtu 1560
        for name in left in out right; do
            ethtool -K $name tso off gso off gro off > /dev/null
            ip link set $name addrgenmode none up
        done
        exec "$0" --exact "$1" --nocapture"#;
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut allowed = Command::new("unshare");
    if !allowed
        .args(NAMESPACE)
        .arg("true")
        .status()
        .unwrap()
        .success()
    {
        eprintln!("skipped: this machine allows no namespaces");
        return false;
    }
    let status = Command::new("unshare")
        .args(NAMESPACE)
        .args(["sh", "-c", SCRIPT])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(INSIDE, "yes")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .status()
        .unwrap();
    assert!(status.success(), "in its namespace, {test} {status}");
    false
}

#[test]
fn parity_passes_real_interfaces() {
    if !in_namespace("parity_passes_real_interfaces") {
        return;
    }
    for polling_ns in [None, Some(2 * MS)] {
        let (mut left, mut right) = (port("left"), port("right"));
        let ports = json!([{"interface": "in", "mtu": 1500}, {"interface": "out", "mtu": 1560}]);
        let config =
            json!({"ports": ports, "group": 4, "flush_ns": 500 * MS, "polling_ns": polling_ns});
        let mut job = Job::start(&config);

        let plain: Vec<Vec<u8>> = (0..200).map(|number| frame(number, 1500)).collect();
        send(&left, &plain);
        let coded = receive(&mut right, 250);
        assert_eq!(coded.len(), 250, "polling {polling_ns:?}");
        for (group, passed) in plain.chunks(4).zip(coded.chunks(5)) {
            assert_eq!(passed[..4], *group);
            let sum = group.iter().fold(0, |sum, frame| sum ^ frame[20]);
            assert_eq!(passed[4][14..], vec![sum; 1500]);
        }
        // One frame alone: its parity comes by the timer.
        send(&left, &[frame(1, 100)]);
        assert_eq!(receive(&mut right, 2).len(), 2);
        job.ask(&json!({"op": "group", "frames": 1}));
        assert_eq!(job.line("group")["frames"], 1);
        send(&left, &[frame(2, 100)]);
        assert_eq!(receive(&mut right, 2)[1][14..], [2; 100]);
        // A frame that the wider port takes does not fit through the other one: cut when it is sent on, or refused.
        send(&right, &[frame(3, 100), frame(4, 1560)]);
        assert_eq!(receive(&mut left, 1), [frame(3, 100)]);
        let done = job.done();
        assert_eq!(
            (&done["arrived"], &done["parity"]),
            (&json!(204), &json!(52))
        );
        assert_eq!((&done["sent"], &done["lost"]), (&json!(255), &json!(1)));
    }
}

#[test]
fn frames_beyond_the_mtu_of_a_port_are_lost_although_its_interface_would_take_them() {
    const NAME: &str =
        "frames_beyond_the_mtu_of_a_port_are_lost_although_its_interface_would_take_them";
    if !in_namespace(NAME) {
        return;
    }
    let (left, mut right) = (port("left"), port("right"));
    let ports = json!([{"interface": "in", "mtu": 1500}, {"interface": "out", "mtu": 1400}]);
    let mut job = Job::start(&json!({"ports": ports, "group": 100, "flush_ns": 50 * MS}));
    // In the middle of a batch, and alone.
    send(
        &left,
        &[1400, 1401, 1400, 1500].map(|bytes| frame(5, bytes)),
    );
    assert_eq!(receive(&mut right, 2), [frame(5, 1400), frame(5, 1400)]);
    job.ask(&json!({"op": "group", "frames": 100}));
    job.line("group");
    let done = job.done();
    // The parity is as long as the longest frame, and lost as well.
    assert_eq!(
        (&done["arrived"], &done["sent"], &done["lost"]),
        (&json!(4), &json!(2), &json!(3))
    );
}

#[test]
fn lines_are_those_of_a_job() {
    let line = serde_json::to_string(&Line::Ready).unwrap();
    assert_eq!(line, r#"{"type":"ready"}"#);
}
