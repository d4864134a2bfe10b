// SPDX-License-Identifier: Apache-2.0
//! The messages of this program are those of `tests/data/contract/tc.jsonl`, which Python's tests read too.

use crate::config::{Config, Counted};
use crate::report::{
    ClassFigures, DelayFigures, DirectionFigures, ENGINE_ONLY, Figures, MeasuredDirection,
    Measurement, Reporter,
};
use crate::request::Request;
use atoll_contract_examples::examples;
use atoll_link_report::{Directions, Op};
use atoll_measures::Histogram;
use serde_json::Value;
use std::collections::BTreeMap;

#[test]
fn what_is_planned_is_understood() {
    let input = examples("tc", "keeper");
    let link = Config::parse(&input[0].to_string()).unwrap();
    assert!(matches!(link.counted, Counted::Link(_)));
    assert_eq!(link.settings.interfaces, ["sat-w", "sat-i"]);
    let delay = Config::parse(&input[1].to_string()).unwrap();
    assert!(matches!(delay.counted, Counted::Delay(_)));
    let request: Request = serde_json::from_value(input[2].clone()).unwrap();
    assert!(matches!(request, Request::Mark { id: 1 }));
    let request: Request = serde_json::from_value(input[3].clone()).unwrap();
    assert!(matches!(request, Request::Set(_)));
}

#[test]
fn what_is_said_has_the_shape_of_the_examples() {
    let mut said = Vec::new();
    let mut reporter = Reporter::new(&mut said);
    let figures = DirectionFigures {
        dropped_queue_bytes: Some(0),
        dropped_loss_bytes: Some(0),
        ..DirectionFigures::default()
    };
    let counters = Directions {
        to_island: figures,
        to_world: figures,
    };
    let mut sojourns = Histogram::default();
    sojourns.record(0);
    let measured = Directions {
        to_island: MeasuredDirection::new(figures, sojourns.clone()),
        to_world: MeasuredDirection::new(figures, sojourns),
    };
    reporter.ready().unwrap();
    reporter
        .counters(Figures::Link(Box::new(counters)))
        .unwrap();
    reporter
        .mark(1, Measurement::Link(Box::new(measured)))
        .unwrap();
    let classes = BTreeMap::from([101, 102, 103].map(|vlan| (vlan, ClassFigures::default())));
    let delay = DelayFigures {
        classes,
        unknown_vlan_packets: 0,
        overloaded: false,
    };
    reporter.mark(1, Measurement::Delay(delay)).unwrap();
    reporter.answer(Op::Set, 2, Ok(())).unwrap();
    let refused = Err(ENGINE_ONLY.to_owned());
    reporter.answer(Op::TraceStart, 3, refused).unwrap();
    let said: Vec<Value> = said
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let shapes = |lines: &[Value]| lines.iter().map(shape).collect::<Vec<_>>();
    assert_eq!(shapes(&said), shapes(&examples("tc", "tc")));
}

/// Names and types; numbers, truths and lists as such.
fn shape(message: &Value) -> Value {
    match message {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), shape(value)))
            .collect(),
        Value::Number(_) => Value::from(0),
        Value::Bool(_) => Value::from(false),
        Value::Array(_) => Value::Array(Vec::new()),
        other => other.clone(),
    }
}
