// SPDX-License-Identifier: Apache-2.0
//! Tests: configurations, requests and lines are those of `tests/data/contract`, which the Python side's
//! tests read too.

use crate::config::{DelayChange, DelayConfig, LinkChange, LinkConfig, Request};
use crate::delay::DelayProgram;
use crate::emulator::Emulator;
use crate::link::LinkProgram;
use atoll_contract_examples::examples;
use atoll_frame_engine::{Arrival, FrameOutput, FrameProgram, Now, Received};
use atoll_headers::VlanTag;
use atoll_link_model::{LossKind, LossPlace};
use serde_json::Value;

fn text(line: &impl serde::Serialize) -> String {
    serde_json::to_string(line).unwrap()
}

/// Names and types, whatever the figures and however long the lists.
fn shape(message: &Value) -> Value {
    match message {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| (name.clone(), shape(field)))
            .collect(),
        Value::Array(_) => "list".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "bool".into(),
        Value::String(_) | Value::Null => message.clone(),
    }
}

fn at(monotonic_ns: u64, real_time_ns: u64) -> Now {
    Now {
        monotonic_ns,
        real_time_ns,
        cpu_ns: 0,
    }
}

/// All kinds of lines of a program that has passed a frame.
fn lines<P: FrameProgram>(mut program: P, vlan: Option<VlanTag>) -> Vec<Value> {
    let received = Received {
        real_time_ns: 0,
        wire_bytes: 60,
        frame: &[0; 60],
        vlan,
        checksum_missing: false,
    };
    let mut out = FrameOutput::default();
    let arrival = Arrival {
        port: 0,
        now_ns: 1,
        stamped: true,
        received: &received,
    };
    program.on_frame(&arrival, &mut out);
    program.on_wake(u64::MAX, &mut out);
    let [outgoing] = &out.take()[..] else {
        panic!("one frame in, one frame out");
    };
    program.on_sent(outgoing, outgoing.scheduled_ns + 1);
    let mark = atoll_job::request(br#"{"op":"mark","id":7}"#).unwrap();
    let lines = [
        program.ready(),
        program.counters(at(2, 1)),
        program.on_request(mark, at(2, 1), &mut out),
        program.done(at(2, 1)),
    ];
    lines
        .iter()
        .map(|line| serde_json::from_str(&text(line)).unwrap())
        .collect()
}

fn assert_same_shapes(said: &[Value], topic: &str, sender: &str) {
    let said: Vec<Value> = said.iter().map(shape).collect();
    let known: Vec<Value> = examples(topic, sender).iter().map(shape).collect();
    assert_eq!(said, known);
}

#[test]
fn a_link_says_what_the_contract_says() {
    let input = examples("link", "keeper");
    let config = LinkConfig::parse(&input[0].to_string()).unwrap();
    let request: Request<LinkChange> = serde_json::from_value(input[1].clone()).unwrap();
    assert_eq!(request, Request::Mark { id: 7 });
    assert_same_shapes(
        &lines(Emulator(LinkProgram::new(&config, 0).unwrap()), None),
        "link",
        "link",
    );
}

#[test]
fn a_link_with_a_queue_of_low_priority_says_what_the_contract_says() {
    let input = examples("link-low-priority", "keeper");
    let config = LinkConfig::parse(&input[0].to_string()).unwrap();
    let said = lines(Emulator(LinkProgram::new(&config, 0).unwrap()), None);
    assert_same_shapes(&said, "link-low-priority", "link");
}

#[test]
fn an_impaired_link_is_understood_to_the_last_key() {
    let input = examples("link-impaired", "keeper");
    let config = LinkConfig::parse(&input[0].to_string()).unwrap();
    let settings = &config.to_island;
    assert!(settings.jitter.is_some() && settings.loss.is_some() && settings.aqm.is_some());
    let losses = [settings, &config.to_world].map(|each| each.loss.clone().unwrap());
    assert_eq!(losses[0].place, LossPlace::Before);
    let probability = 1e-7;
    assert_eq!(losses[1].kind, LossKind::BitError { probability });
    assert_eq!(losses[1].place, LossPlace::After);
    assert_eq!(
        (settings.trace.len(), settings.queue_packets),
        (4, Some(100))
    );
    let low_priority = settings
        .low_priority
        .map(|low| (low.queue_bytes, low.queue_packets));
    assert_eq!(low_priority, Some((200_000, Some(50))));
    let mut program = Emulator(LinkProgram::new(&config, 0).unwrap());
    let request = atoll_job::request(input[1].to_string().as_bytes()).unwrap();
    let line = program.on_request(request, at(1, 2), &mut FrameOutput::default());
    let expected = r#"{"type":"trace-start","id":8,"t_ns":2,"ok":true}"#;
    assert_eq!(text(&line), expected);
}

#[test]
fn a_running_link_answers_what_the_contract_says() {
    let config = LinkConfig::parse(&examples("link", "keeper")[0].to_string()).unwrap();
    let mut program = Emulator(LinkProgram::new(&config, 0).unwrap());
    let asked = examples("link-control", "keeper");
    let answers = examples("link-control", "link");
    assert_eq!(asked.len(), answers.len());
    for (line, answer) in asked.iter().zip(answers) {
        let t_ns = answer["t_ns"].as_u64().unwrap();
        let said = match atoll_job::request(line.to_string().as_bytes()) {
            Ok(request) => {
                let mut out = FrameOutput::default();
                text(&program.on_request(request, at(1, t_ns), &mut out))
            }
            Err(error) => text(&error.refusal(t_ns).unwrap()),
        };
        assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), answer);
    }
    assert_eq!(
        program.shortest_delay_ns(),
        250_000_000,
        "the other direction's"
    );
}

#[test]
fn a_delay_box_says_what_the_contract_says() {
    let input = examples("delay", "keeper");
    let config = DelayConfig::parse(&input[0].to_string()).unwrap();
    let request: Request<DelayChange> = serde_json::from_value(input[1].clone()).unwrap();
    assert_eq!(request, Request::Mark { id: 7 });
    let vlan = VlanTag {
        control: 101,
        protocol: 0x8100,
    };
    assert_same_shapes(
        &lines(Emulator(DelayProgram::new(&config).unwrap()), Some(vlan)),
        "delay",
        "delay",
    );
}
