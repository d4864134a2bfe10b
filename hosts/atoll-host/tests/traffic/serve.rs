// SPDX-License-Identifier: Apache-2.0
//! World servers, and what all jobs have in common.

use crate::job::{Job, is_reset, received, request, server};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

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
fn no_connection_is_sent_faster_than_the_write_rate() {
    let mut job = Job::start(
        "serve",
        &json!({"listen": "127.0.0.1:0", "congestion_control": "reno", "write_rate_bit_s": 8_000_000}),
    );
    let address: SocketAddr = job.next()["listen"].as_str().unwrap().parse().unwrap();
    let begun = Instant::now();
    let waiting = [request(address, 500_000), request(address, 500_000)];
    assert_eq!(waiting.map(received), [500_000, 500_000]);
    // Half a second each, at the same time; what TCP may send before pacing begins is little. A sender that a busy
    // machine wakes late may catch up by half of each interval (Linux, tcp_update_skb_after_send): a quarter then.
    let seconds = begun.elapsed().as_secs_f64();
    assert!(seconds >= 0.2, "{seconds}");
    assert_eq!(job.stop()["connections"], 2);
}

/// Otherwise the kernel would send what is left for minutes, if a link loses all acknowledgements.
#[test]
fn connections_that_are_open_at_the_end_are_reset_by_every_program() {
    let (job, address) = server("reno");
    let unread = request(address, 10_000_000_000);
    job.stop();
    assert!(is_reset(unread));

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let load = json!({
        "seed": 1, "channels": [0], "servers": [address], "flow_sizes": "published", "start_at_ns": 0,
        "duration_ns": 0, "congestion_control": "reno", "flow_log": "/dev/null", "silence_ns": 60_000_000_000_u64,
    });
    let receive =
        json!({"role": "receive", "connect": address, "size_bytes": 1000, "start_at_ns": 0});
    for (subcommand, config) in [("load", load), ("transfer", receive)] {
        let mut job = Job::start(subcommand, &config);
        let (connection, _) = listener.accept().unwrap();
        job.next_of(if subcommand == "load" {
            "counters"
        } else {
            "progress"
        });
        job.stop();
        assert!(is_reset(connection), "{subcommand}");
    }

    let send = json!({"role": "send", "listen": "127.0.0.1:0", "size_bytes": 1_000_000_000, "congestion_control": "reno"});
    let mut sender = Job::start("transfer", &send);
    let address: SocketAddr = sender.next()["listen"].as_str().unwrap().parse().unwrap();
    let mut unread = TcpStream::connect(address).unwrap();
    unread.read_exact(&mut [0]).unwrap();
    sender.stop();
    assert!(is_reset(unread));
}

#[test]
fn chunks_keep_the_write_rate_by_pauses() {
    let config = json!({
        "listen": "127.0.0.1:0", "congestion_control": "reno", "write_rate_bit_s": 8_000_000, "write_chunk_bytes": 100_000,
    });
    let mut job = Job::start("serve", &config);
    let address: SocketAddr = job.next()["listen"].as_str().unwrap().parse().unwrap();
    let begun = Instant::now();
    let waiting = [request(address, 500_000), request(address, 450_000)];
    drop(request(address, 500_000)); // leaves during a pause
    assert_eq!(waiting.map(received), [500_000, 450_000]);
    // Five chunks of 0.1 s, so four pauses, of both at the same time.
    assert!(begun.elapsed() >= Duration::from_millis(400));
    assert_eq!(job.stop()["connections"], 3);

    let send = json!({
        "role": "send", "listen": "127.0.0.1:0", "size_bytes": 300_000, "congestion_control": "reno",
        "write_rate_bit_s": 8_000_000, "write_chunk_bytes": 100_000,
    });
    let mut sender = Job::start("transfer", &send);
    let address: SocketAddr = sender.next()["listen"].as_str().unwrap().parse().unwrap();
    let begun = Instant::now();
    assert_eq!(received(TcpStream::connect(address).unwrap()), 300_000);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(sender.next_of("done")["complete"], true);
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
