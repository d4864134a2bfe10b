// SPDX-License-Identifier: Apache-2.0
//! Island channels against servers true and false.

use crate::job::{Job, false_server, is_reset, rows_of, scratch, server, succeeds};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

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
fn channels_fetch_the_flows_their_seed_draws() {
    let (serving, address) = server("reno");
    let (done, rows) = fetch(address, "drawn", 300);
    drop(serving);
    let sizes = atoll_flow_sizes::Distribution::published();
    for row in &rows {
        let number = |column: usize| row[column].parse::<u64>().unwrap();
        let flow = atoll_flow_sizes::draw(&sizes, 1, number(0), number(1), 1);
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
    let thinking = json!({"kind": "constant", "mean_ns": 100_000_000});
    let several = succeeds(|| {
        let rows = fetch_at(address, "thinks", &thinking);
        for pair in rows.windows(2).filter(|pair| pair[0][0] == pair[1][0]) {
            let (ended, began): (i64, i64) =
                (pair[0][8].parse().unwrap(), pair[1][5].parse().unwrap());
            assert!(began - ended >= 99_000_000, "{pair:?}");
        }
        rows.len() > 6
    });
    assert!(several, "each channel has a flow every 100 ms");
}

#[test]
fn an_open_loop_begins_flows_when_its_seed_says_whatever_became_of_those_before() {
    // Accepts and never answers: no flow ever ends.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mean_ns = 50_000_000;
    let pace = json!({"kind": "poisson", "mean_ns": mean_ns});
    let lag = |row: &Vec<String>| {
        let number = |column: usize| row[column].parse::<u64>().unwrap();
        let waits = (0..=number(1))
            .map(|flow| atoll_flow_sizes::exponential_ns(mean_ns, 1, number(0), flow));
        number(5) - waits.sum::<u64>()
    };
    let on_time = succeeds(|| {
        let rows = fetch_at(silent.local_addr().unwrap(), "open", &pace);
        assert!(rows.iter().all(|row| row[9] == "cut"), "{rows:?}");
        assert!(rows.len() < 90, "60 are expected: {rows:?}");
        // Each as long after the start as it was due, or later where this machine was busy.
        let start = rows.iter().map(lag).min().unwrap_or(0);
        let mut late: Vec<u64> = rows.iter().map(|row| lag(row) - start).collect();
        late.sort_unstable();
        eprintln!("late, ns: {late:?}");
        rows.len() >= 30 && late[late.len() / 2] < 200_000_000
    });
    assert!(on_time);
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

#[test]
fn a_server_that_has_vanished_is_given_up_and_counted_and_the_channel_goes_on() {
    // The connection stays open and carries no data, as if a box had disappeared without closing it.
    let vanished = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let log = scratch("vanished");
    let config = json!({
        "seed": 1, "channels": [0], "servers": [vanished.local_addr().unwrap()], "flow_sizes": "published",
        "start_at_ns": 0, "duration_ns": 0, "congestion_control": "reno", "flow_log": log,
        "silence_ns": 1_000_000_000,
    });
    let mut job = Job::start("load", &config);
    while job.next_of("counters")["flows_failed"].as_u64().unwrap() < 2 {}
    let done = job.stop();
    let rows = rows_of(&log);
    assert!(
        rows[..2]
            .iter()
            .all(|row| row[9] == "failed:ETIMEDOUT" && !row[6].is_empty()),
        "{rows:?}"
    );
    assert_eq!(
        (&rows[0][1], &rows[1][1]),
        (&"0".to_owned(), &"1".to_owned())
    );
    assert_eq!(done["flows_silent"], done["flows_failed"]);
    // The kernel would repeat the end of a connection that is closed for minutes.
    assert!(is_reset(vanished.accept().unwrap().0));
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
