// SPDX-License-Identifier: Apache-2.0
//! The bytes that the sizes of drawn flows include, and the flows a seed draws, printed to compare a run's flow log with.

use crate::job::failed;
use atoll_flow_sizes::{Distribution, draw};
use clap::{Parser, ValueEnum};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::io::{self, BufWriter, Write};

/// The bytes that the sizes of a distribution include.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CountedBytes {
    /// TCP payload: the bytes that a client requests.
    #[default]
    Payload,
    /// IP bytes of the flow from server to client, as flow records have them.
    Ip,
}

impl CountedBytes {
    /// The TCP payload of a flow of `size_bytes`.
    pub const fn payload_bytes(self, size_bytes: u64) -> u64 {
        match self {
            Self::Payload => size_bytes,
            Self::Ip => atoll_flow_sizes::payload_bytes(size_bytes),
        }
    }
}

/// `flow_sizes` of a job's configuration: an error names the setting.
///
/// # Errors
/// Those of the distribution.
pub fn flow_sizes<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    T::deserialize(deserializer)
        .map_err(|error| D::Error::custom(format_args!("flow_sizes: {error}")))
}

/// Print the flows a seed draws as CSV: channel, flow, `server_index`, `size_bytes`
#[derive(Parser, Debug)]
#[command(after_help = "Example: atoll-host flows --seed 1 --channel 0 --count 10 --servers 6")]
pub struct FlowsArguments {
    /// Seed of the experiment
    #[arg(long)]
    seed: u64,
    /// Channel number
    #[arg(long)]
    channel: u64,
    /// How many flows, from flow 0 on
    #[arg(long)]
    count: u64,
    /// How many servers there are to choose from
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    servers: u32,
    /// Flow-size distribution: its name, or as JSON in a job's configuration
    #[arg(long, default_value = "published", value_parser = distribution)]
    sizes: Distribution,
    /// The meaning of those sizes; the payload that a client requests is printed
    #[arg(long, value_enum, default_value_t)]
    counts: CountedBytes,
}

fn distribution(text: &str) -> serde_json::Result<Distribution> {
    let description = if text.starts_with('{') {
        serde_json::from_str(text)?
    } else {
        Value::from(text)
    };
    serde_json::from_value(description)
}

/// Run the tool.
///
/// # Errors
/// If standard output cannot be written. That its reader went away is none.
pub fn flows(arguments: &FlowsArguments) -> io::Result<()> {
    match print(arguments, BufWriter::new(io::stdout().lock())) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(failed("write the flows")(error))
        }
        _ => Ok(()),
    }
}

fn print(arguments: &FlowsArguments, mut output: impl Write) -> io::Result<()> {
    let FlowsArguments {
        seed,
        channel,
        count,
        servers,
        sizes,
        counts,
    } = arguments;
    writeln!(output, "channel,flow,server_index,size_bytes")?;
    for number in 0..*count {
        let flow = draw(sizes, *seed, *channel, number, *servers as usize);
        writeln!(
            output,
            "{channel},{number},{},{}",
            flow.server,
            counts.payload_bytes(flow.size_bytes)
        )?;
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::contract_messages;

    #[test]
    fn published_is_the_same_for_those_who_plan() {
        let distributions: Vec<Distribution> = contract_messages("flow-sizes", "published");
        assert_eq!(distributions[0], Distribution::published());
    }

    #[test]
    fn flows_are_printed_as_csv() {
        let line = "atoll-host --seed 1 --channel 0 --count 2 --servers 6";
        let arguments = FlowsArguments::try_parse_from(line.split(' ')).unwrap();
        let mut output = Vec::new();
        print(&arguments, &mut output).unwrap();
        assert_eq!(
            output,
            b"channel,flow,server_index,size_bytes\n0,0,5,250\n0,1,3,124\n"
        );
    }

    #[test]
    fn of_ip_bytes_the_payload_is_printed() {
        let line = "atoll-host --seed 1 --channel 1 --count 1 --servers 6 --counts ip";
        let mut output = Vec::new();
        print(
            &FlowsArguments::try_parse_from(line.split(' ')).unwrap(),
            &mut output,
        )
        .unwrap();
        assert_eq!(
            output,
            b"channel,flow,server_index,size_bytes\n1,0,4,338\n" // 606 less 268
        );
    }

    #[test]
    fn an_unknown_distribution_and_no_servers_are_refused() {
        for line in [
            "--seed 1 --channel 0 --count 2 --servers 0",
            "--seed 1 --channel 0 --count 2 --servers 1 --sizes x",
            "--seed 1 --channel 0 --count 2 --servers 1 --sizes {}",
        ] {
            assert!(
                FlowsArguments::try_parse_from(std::iter::once("flows").chain(line.split(' ')))
                    .is_err(),
                "{line}"
            );
        }
    }
}
