// SPDX-License-Identifier: Apache-2.0
//! UDP, both ends.

use crate::job::{Job, succeeds};
use serde_json::json;

#[test]
fn a_udp_stream_arrives_as_it_was_sent() {
    // 20 packets in 200 ms; fewer if this machine held the sender up.
    assert!(succeeds(|| packets_of_a_stream() >= 2));
}

/// How many packets a stream of 200 ms has, all of which arrive.
fn packets_of_a_stream() -> u64 {
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
    let packets = sent["sent_packets"].as_u64().unwrap();
    assert!(packets <= 20, "{sent}");
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
    packets
}

#[test]
fn a_udp_stream_that_would_be_fragmented_is_bad_configuration() {
    let (code, errors) = Job::start(
        "udp",
        &json!({
            "role": "send", "connect": "127.0.0.1:9", "rate_bit_s": 1000, "payload_bytes": 9189, "start_at_ns": 0,
            "duration_ns": 0,
        }),
    )
    .failure();
    assert_eq!(code, Some(2));
    assert!(errors.contains("payload_bytes"), "{errors}");
}

#[test]
fn flows_of_drawn_sizes_do_not_exceed_their_rate_and_arrive() {
    assert!(succeeds(drawn_flows_arrive));
}

/// A busy machine sends less, never more, and packets are lost where it stalls and their receiver's buffer is full.
fn drawn_flows_arrive() -> bool {
    let mut receiver = Job::start(
        "udp",
        &json!({"role": "receive", "listen": "127.0.0.1:0", "each": false}),
    );
    let address = receiver.next()["listen"].clone();
    let mut sender = Job::start(
        "udp",
        &json!({
            "role": "send", "connect": address, "rate_bit_s": 8_000_000, "payload_bytes": 1172, "start_at_ns": 0,
            "duration_ns": 1_000_000_000,
            "flows": {"flow_sizes": {"kind": "steps", "knots": [[1_000_000_000, 10_000]]}, "seed": 1, "parallel": 5},
        }),
    );
    let sent = sender.next_of("done");
    let done = receiver.stop();
    let bytes = sent["sent_bytes"].as_u64().unwrap();
    assert!(bytes <= 1_003_000, "{sent}");
    let flows = sent["flows_completed"].as_u64().unwrap();
    assert!(
        ((bytes / 10_000).saturating_sub(5)..=bytes / 10_000).contains(&flows),
        "{sent}"
    );
    eprintln!("sent: {sent}, received: {done}");
    flows > 10
        && (flows..=flows + 5).contains(&done["streams"].as_u64().unwrap())
        && done["packets"] == sent["sent_packets"]
        && done["bytes"] == sent["sent_bytes"]
        && done["jitter_max_ns"].as_u64().unwrap() > 0
}
