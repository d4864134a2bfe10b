// SPDX-License-Identifier: Apache-2.0
//! Readback of settings: `tc -r -j qdisc show` compared with the expected configuration. Pure.

use crate::config::Expected;
use serde_json::Value;

/// The kernel keeps times in ticks of 64 ns, shares in 32 bits, rates in bytes; a setting that it did not
/// take is further off.
const TOLERANCE: f64 = 0.002;
/// Shares are multiples of 2^-32.
const LEAST: f64 = 2.4e-10;

/// The first thing that is not as it was to be, in words.
pub(crate) fn first_difference(expected: &[Expected], shown: &[Value]) -> Option<String> {
    expected.iter().find_map(|wanted| {
        let name = format!("{} on '{}'", wanted.kind, wanted.dev);
        let found = shown.iter().find(|held| {
            held["dev"] == wanted.dev.as_str() && held["handle"] == wanted.handle.as_str()
        });
        let Some(found) = found else {
            return Some(format!("the kernel did not keep {name}: it is missing"));
        };
        if found["kind"] != wanted.kind.as_str() {
            return Some(format!(
                "the kernel did not keep {name}: it has {} instead",
                found["kind"]
            ));
        }
        difference(&wanted.options, &found["options"], "")
            .map(|difference| format!("the kernel did not keep {name}: {difference}"))
    })
}

/// Every number, text and member of `wanted` must be in `held`, which may have more; a member that is null must not.
fn difference(wanted: &Value, held: &Value, path: &str) -> Option<String> {
    let same = match (wanted, held) {
        (Value::Object(wanted), _) => {
            return wanted.iter().find_map(|(name, wanted)| {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                difference(wanted, &held[name], &path)
            });
        }
        (Value::Number(wanted), Value::Number(held)) => match (wanted.as_f64(), held.as_f64()) {
            (Some(wanted), Some(held)) => {
                (wanted - held).abs() <= (TOLERANCE * wanted.abs()).max(LEAST)
            }
            _ => false,
        },
        (Value::Number(wanted), Value::String(held)) => same_ticks(wanted.as_u64(), held),
        _ => wanted == held,
    };
    (!same).then(|| format!("{path} is {held}, requested {wanted}"))
}

/// Whether ticks, which tc writes in hexadecimal, are as many as were asked for or, rounded down twice, one less.
fn same_ticks(wanted: Option<u64>, held: &str) -> bool {
    let held = u64::from_str_radix(held, 16).ok();
    wanted
        .zip(held)
        .is_some_and(|(wanted, held)| held <= wanted && wanted <= held + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown() -> Vec<Value> {
        // As iproute2 6.1 prints it.
        serde_json::from_str(
            r#"[{"kind":"netem","handle":"1:","dev":"sat-i","root":true,"refcnt":2,"options":{"limit":200000,"delay":{"delay":0.02,"jitter":0,"correlation":0},"ecn":false,"gap":0}},
                {"kind":"tbf","handle":"1:","dev":"ifb-to-island","root":true,"refcnt":2,"options":{"rate":2000000,"burst":1538,"burst_raw":"2eff","lat":49231,"limit":100000}}]"#,
        )
        .unwrap()
    }

    fn expected(dev: &str, kind: &str, options: Value) -> Vec<Expected> {
        vec![Expected {
            dev: dev.to_owned(),
            handle: "1:".to_owned(),
            kind: kind.to_owned(),
            options,
        }]
    }

    #[test]
    fn applied_settings_differ_by_rounding_alone() {
        let wanted = expected(
            "ifb-to-island",
            "tbf",
            json!({"rate":2_000_000,"burst_raw":0x2eff,"limit":100_000}),
        );
        assert_eq!(first_difference(&wanted, &shown()), None);
        let wanted = expected(
            "sat-i",
            "netem",
            json!({"delay":{"delay":0.02,"jitter":0.0}}),
        );
        assert_eq!(first_difference(&wanted, &shown()), None);
    }

    #[test]
    fn a_bucket_is_compared_by_its_ticks_of_which_the_kernel_may_drop_one() {
        for ticks in [0x2eff, 0x2f00] {
            let wanted = expected("ifb-to-island", "tbf", json!({"burst_raw":ticks}));
            assert_eq!(first_difference(&wanted, &shown()), None);
        }
    }

    #[test]
    fn a_setting_that_was_not_applied_is_named() {
        let cases = [
            (
                expected("sat-i", "netem", json!({"delay":{"delay":0.25}})),
                "delay.delay is 0.02, requested 0.25",
            ),
            (
                expected("sat-i", "netem", json!({"delay":{"jitter":0.001}})),
                "delay.jitter is 0, requested 0.001",
            ),
            (
                expected("sat-i", "netem", json!({"loss-random":{"loss":0.1}})),
                "loss-random.loss is null, requested 0.1",
            ),
            (
                expected("sat-i", "netem", json!({"loss-random":null,"ecn":null})),
                "ecn is false, requested null",
            ),
            (
                expected("ifb-to-island", "tbf", json!({"burst_raw":0x2efe})),
                "burst_raw is \"2eff\", requested 12030",
            ),
            (
                expected("ifb-to-island", "tbf", json!({"burst_raw":0x2f01})),
                "burst_raw is \"2eff\", requested 12033",
            ),
            (
                expected("sat-i", "tbf", json!({})),
                "it has \"netem\" instead",
            ),
            (
                expected("sat-w", "netem", json!({})),
                "netem on 'sat-w': it is missing",
            ),
        ];
        for (wanted, words) in cases {
            let difference = first_difference(&wanted, &shown()).unwrap();
            assert!(difference.contains(words), "{difference}");
        }
    }
}
