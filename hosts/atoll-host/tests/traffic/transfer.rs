// SPDX-License-Identifier: Apache-2.0
//! The large transfer, both ends.

use crate::job::{Job, false_server};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    // Instants are of the real-time clock, seconds of the monotonic one, which is read a moment later.
    let seconds = done["seconds"].as_f64().unwrap();
    assert!((seconds - (instants[2] - instants[0]) as f64 / 1e9).abs() < 0.05);
    assert!((done["rate_bit_s"].as_f64().unwrap() * seconds / 160e6 - 1.0).abs() < 1e-9);
    let report = sender.next_of("done");
    assert_eq!(
        (&report["complete"], &report["sent_bytes"]),
        (&json!(true), &json!(20_000_000))
    );
    let written_s = report["seconds"].as_f64().unwrap();
    assert!(0.0 < written_s && written_s < seconds + 0.05);
}

#[test]
fn repeated_transfers_begin_at_their_instants_and_skip_those_during_another() {
    // 60 kB at 240 kbit/s take 1.3 s, as the third chunk of 20 kB leaves two intervals after the first one.
    let send = json!({
        "role": "send", "listen": "127.0.0.1:0", "size_bytes": 60_000, "congestion_control": "reno", "repeats": true,
        "write_rate_bit_s": 240_000, "write_chunk_bytes": 20_000,
    });
    let mut sender = Job::start("transfer", &send);
    let address = sender.next()["listen"].clone();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let start_at_ns = i64::try_from(since_1970.as_nanos()).unwrap();
    let receive = json!({
        "role": "receive", "connect": address, "size_bytes": 60_000, "start_at_ns": start_at_ns, "every_ns": 1_000_000_000,
        "quiet": true,
    });
    let mut receiver = Job::start("transfer", &receive);
    assert_eq!(receiver.next()["type"], "ready");
    let [first, second] = [receiver.next(), receiver.next()];
    assert_eq!(
        (&first["type"], &second["type"]),
        (&json!("done"), &json!("done"))
    );
    assert_eq!(
        (&first["complete"], &second["complete"]),
        (&json!(true), &json!(true))
    );
    let between_ns = second["start_ns"].as_i64().unwrap() - first["start_ns"].as_i64().unwrap();
    let starts = between_ns as f64 / 1e9;
    assert!(
        starts > 1.5 && (starts - starts.round()).abs() < 0.2,
        "{starts}"
    );
    drop(receiver);
    assert!(sender.stop()["sent_bytes"].as_u64().unwrap() >= 120_000);
}

/// At once, and not when its pause between chunks is over: until then it would ask again and again.
#[test]
fn a_sender_ends_with_its_receiver_in_a_pause_too() {
    let send = json!({
        "role": "send", "listen": "127.0.0.1:0", "size_bytes": 300_000, "congestion_control": "reno",
        "write_rate_bit_s": 40_000, "write_chunk_bytes": 100_000,
    });
    let mut sender = Job::start("transfer", &send);
    let address: SocketAddr = sender.next()["listen"].as_str().unwrap().parse().unwrap();
    let begun = Instant::now();
    let mut receiver = TcpStream::connect(address).unwrap();
    receiver.read_exact(&mut [0]).unwrap();
    drop(receiver); // a reset, as there is more to read
    assert_eq!(sender.next_of("done")["complete"], false);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(sender.failure().0, Some(1));
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

    // No peer sends anything: on SIGTERM it reports that and exits with 0.
    let mut waiting = Job::start("transfer", &receive);
    waiting.next_of("progress");
    assert_eq!(waiting.stop()["complete"], false);
}
