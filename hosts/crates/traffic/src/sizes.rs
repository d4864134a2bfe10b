// SPDX-License-Identifier: Apache-2.0
//! A flow-size distribution as a configuration names it: `"published"`, or its knots.

use atoll_flow_sizes::{Distribution, Knot};
use clap::ValueEnum;
use serde::Deserialize;

/// `flow_sizes` of a configuration; [`FlowSizes::resolve`] makes a distribution of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected the name of a distribution, or {kind: curve|steps, knots: [[10^-9, bytes], ..]}"
)]
pub enum FlowSizes {
    /// A built-in one.
    Named(String),
    /// One that was read from a file.
    Knots(Table),
}

/// Knots: cumulative probability in 10^-9, size in bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Table {
    /// The logarithm of the size is linear between knots.
    Curve {
        /// From probability 0 to 1.
        knots: Vec<(u64, u64)>,
    },
    /// Only these sizes.
    Steps {
        /// Up to probability 1.
        knots: Vec<(u64, u64)>,
    },
}

/// The bytes that the sizes of a distribution include.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Counts {
    /// TCP payload: what a client asks for.
    #[default]
    Payload,
    /// IP bytes of the flow from server to client, as flow records have them.
    Ip,
}

impl Counts {
    /// The TCP payload of a flow of `size_bytes`.
    pub const fn payload_bytes(self, size_bytes: u64) -> u64 {
        match self {
            Self::Payload => size_bytes,
            Self::Ip => atoll_flow_sizes::payload_bytes(size_bytes),
        }
    }
}

impl FlowSizes {
    /// The distribution.
    ///
    /// # Errors
    /// One line: there is none of that name, or the knots are none of a distribution.
    pub fn resolve(&self) -> Result<Distribution, String> {
        let knots = |pairs: &[(u64, u64)]| {
            let knot = |&(probability_e9, size_bytes)| Knot {
                probability_e9,
                size_bytes,
            };
            pairs.iter().map(knot).collect()
        };
        let found = match self {
            Self::Named(name) => {
                return name
                    .parse()
                    .map_err(|error: atoll_flow_sizes::UnknownDistribution| error.to_string());
            }
            Self::Knots(Table::Curve { knots: pairs }) => Distribution::curve(knots(pairs)),
            Self::Knots(Table::Steps { knots: pairs }) => Distribution::steps(knots(pairs)),
        };
        found.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::said;

    #[test]
    fn published_is_the_same_for_those_who_plan() {
        let knots: Vec<Table> = said("flow-sizes", "published");
        let published = FlowSizes::Named("published".into());
        assert_eq!(
            FlowSizes::Knots(knots[0].clone()).resolve(),
            published.resolve()
        );
    }

    #[test]
    fn names_and_knots_are_distributions_and_anything_else_is_refused() {
        let read = |text: &str| serde_json::from_str::<FlowSizes>(text);
        assert_eq!(
            read("\"published\"").unwrap().resolve(),
            Ok(Distribution::published())
        );
        let fixed = read(r#"{"kind":"steps","knots":[[1000000000,10000]]}"#)
            .unwrap()
            .resolve()
            .unwrap();
        assert_eq!(fixed.quantile(77), 10_000);
        let curve = read(r#"{"kind":"curve","knots":[[0,100],[1000000000,10000]]}"#)
            .unwrap()
            .resolve()
            .unwrap();
        assert_eq!(curve.quantile(1 << 63), 1000);
        let bad = read(r#"{"kind":"curve","knots":[[5,100]]}"#).unwrap();
        assert!(
            bad.resolve()
                .unwrap_err()
                .starts_with("curve: the first point")
        );
        assert!(read(r#"{"kind":"curve","knots":[[5,-1]]}"#).is_err());
        assert!(read(r#"{"kind":"steps","knots":[],"surprise":1}"#).is_err());
        assert!(read("7").is_err());
    }
}
