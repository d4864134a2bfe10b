// SPDX-License-Identifier: Apache-2.0
//! Captures to fixed-size packet records: `atoll-host pcap records IN [OUT] [--side PREFIX] [--without PREFIX]`.
//! Captures of other formats, or by another clock, to pcap: `atoll-host pcap convert IN OUT [--clock CLOCK]`.
//!
//! One pass, one record a packet, memory per flow and not per packet. A frame goes
//! [`reader`] (file format, [`pcapng`] another one) -> [`packet`] (headers) -> [`flows`] (which connection, which bytes
//! are new, by [`byte_ranges`]) -> [`record`] (64 bytes).
//! [`senders`] keeps the MAC addresses of each IPv4 address.

mod byte_ranges;
mod convert;
mod flows;
mod input;
mod packet;
mod pcapng;
mod reader;
mod record;
mod record_writer;
mod senders;

pub use convert::{Clock, Converted, convert};
pub use record::{RECORD_BYTES, Record};
pub use record_writer::{Networks, Summary, count_records, write_records};

use atoll_headers::Prefix;
use clap::Subcommand;
use std::io;
use std::path::PathBuf;

/// `atoll-host pcap`.
#[derive(Subcommand)]
pub enum PcapTool {
    /// Write a 64-byte record for each IPv4 packet of a capture, and a summary as JSON (docs/contracts.md, "flows and pcap")
    #[command(
        after_help = "Example: atoll-host pcap records island.pcap.zst island.bin --side 10.20.0.0/16"
    )]
    Records {
        /// The capture, pcap or pcapng, plain or compressed by zstd or gzip
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// Where the records go; without it, packets are only counted
        #[arg(value_name = "OUT.bin")]
        output: Option<PathBuf>,
        /// The island's prefix: packets to it have `to_island` = 1
        #[arg(long, value_name = "PREFIX")]
        side: Option<Prefix>,
        /// The network of in-band control: packets between two of its addresses are left out
        #[arg(long, value_name = "PREFIX")]
        without: Option<Prefix>,
    },
    /// Write a capture as pcap with nanoseconds, and a summary as JSON
    Convert {
        /// The capture, pcap or pcapng, plain or compressed by zstd or gzip
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// Where the pcap file goes
        #[arg(value_name = "OUT.pcap")]
        output: PathBuf,
        /// The clock of IN, to be corrected: it was OFFSET ahead at SINCE, and fast by DRIFT
        #[arg(
            long,
            value_name = "OFFSET_NS,DRIFT_PPB,SINCE_NS",
            allow_hyphen_values = true
        )]
        clock: Option<Clock>,
    },
}

/// Run the tool: the last line of standard output is a summary as JSON.
///
/// # Errors
/// A message for the user. `OUT.bin` is as before then.
pub fn run(tool: &PcapTool) -> Result<(), Box<dyn std::error::Error>> {
    let summary = match tool {
        PcapTool::Records {
            input,
            output,
            side,
            without,
        } => {
            let networks = Networks {
                island: *side,
                control: *without,
            };
            serde_json::to_string(&match output {
                None => count_records(input, networks)?,
                Some(output) => write_records(input, output, networks)?,
            })?
        }
        PcapTool::Convert {
            input,
            output,
            clock,
        } => serde_json::to_string(&convert(input, output, clock.unwrap_or_default())?)?,
    };
    println!("{summary}");
    Ok(())
}

/// For `map_err`: the failure of an operation on a file, in one line.
fn failed_on(path: &str) -> impl FnOnce(io::Error) -> String {
    move |error| format!("{path}: {error}")
}
