// SPDX-License-Identifier: Apache-2.0
//! The messages of this program are those of `tests/data/contract/tc.jsonl`, which Python's tests read too.

use crate::config::{Config, Request};
use crate::report::{
    DelayFigures, DirectionFigures, ENGINE_ONLY, Figures, MeasuredDirection, Measurement,
};
use atoll_contract_examples::examples;
use atoll_link_report::{ClassSums, Directions, Line, LinkAnswer};
use atoll_measures::Histogram;
use serde_json::Value;
use std::collections::BTreeMap;

#[test]
fn what_is_planned_is_understood() {
    let input = examples("tc", "keeper");
    let link = Config::parse(&input[0].to_string()).unwrap();
    assert!(link.link.is_some());
    assert_eq!(link.interfaces, ["sat-w", "sat-i"]);
    let delay = Config::parse(&input[1].to_string()).unwrap();
    assert!(delay.delay.is_some());
    let request: Request = serde_json::from_value(input[2].clone()).unwrap();
    assert!(matches!(request, Request::Mark { id: 1 }));
    let request: Request = serde_json::from_value(input[3].clone()).unwrap();
    assert!(matches!(request, Request::Set(_)));
}

#[test]
fn what_is_said_has_the_shape_of_the_examples() {
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
    let classes = BTreeMap::from([101, 102, 103].map(|vlan| (vlan, ClassSums::default())));
    let delay = DelayFigures {
        classes,
        unknown_vlan_packets: 0,
        overloaded: false,
    };
    let (id, t_ns) = (1, 1);
    let mark = |measurement| Line::Mark {
        id,
        t_ns,
        measurement,
    };
    let lines = [
        Line::Ready,
        Line::Counters {
            t_ns,
            counters: Figures::Link(Box::new(counters)),
        },
        mark(Measurement::Link(Box::new(measured))),
        mark(Measurement::Delay(delay)),
        Line::Set(LinkAnswer::new(2, t_ns, Ok::<(), String>(()))),
        Line::TraceStart(LinkAnswer::new(3, t_ns, Err(ENGINE_ONLY))),
    ];
    let written = lines.map(|line| serde_json::to_value(line).unwrap());
    let shapes = |lines: &[Value]| lines.iter().map(shape).collect::<Vec<_>>();
    assert_eq!(shapes(&written), shapes(&examples("tc", "tc")));
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
