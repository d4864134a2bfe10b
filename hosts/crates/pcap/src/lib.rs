// SPDX-License-Identifier: Apache-2.0
//! Captures to fixed-size packet records: `atoll-host pcap records IN [OUT] [--side PREFIX] [--without PREFIX]`.
//!
//! One pass, one record a packet, memory per flow and not per packet. A frame goes
//! [`reader`] (file format) -> [`packet`] (headers) -> [`flows`] (which connection, which bytes
//! are new, by [`byte_ranges`]) -> [`record`] (64 bytes).
//! [`senders`] keeps the MAC addresses of each IPv4 address.

mod byte_ranges;
mod error;
mod flows;
mod packet;
mod reader;
mod record;
mod record_writer;
mod senders;

pub use error::PcapError;
pub use record::{RECORD_BYTES, Record};
pub use record_writer::{Networks, Prefix, Summary, count_records, write_records};

use std::path::Path;

const USAGE: &str = "usage: atoll-host pcap records IN.pcap[.zst] [OUT.bin] [--side 10.20.0.0/16] [--without 192.168.10.0/24]

Writes one 64-byte record for each IPv4 packet of a capture (docs/contracts.md, \"flows and pcap\"); without OUT.bin it only counts;
--side is the island's prefix: packets to it have to_island = 1;
--without is the network of in-band control: packets between two of its addresses are left out.

Example: atoll-host pcap records island.pcap.zst island.bin --side 10.20.0.0/16";

/// `atoll-host pcap`: the last line of standard output is a summary as JSON.
///
/// # Errors
/// A message for the user. `OUT` is as before then.
pub fn run(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["--help" | "-h"] | ["records", "--help" | "-h"] = arguments[..] {
        println!("{USAGE}");
        return Ok(());
    }
    let ["records", ref words @ ..] = arguments[..] else {
        return Err(USAGE.into());
    };
    let mut networks = Networks::default();
    let mut files = Vec::new();
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let network = match word {
            "--side" => &mut networks.island,
            "--without" => &mut networks.control,
            option if option.starts_with("--") => return Err(USAGE.into()),
            file => {
                files.push(Path::new(file));
                continue;
            }
        };
        let prefix = words.next().ok_or(USAGE)?.parse()?;
        if network.replace(prefix).is_some() {
            return Err(USAGE.into());
        }
    }
    let summary = match files[..] {
        [input] => count_records(input, networks)?,
        [input, output] => write_records(input, output, networks)?,
        _ => return Err(USAGE.into()),
    };
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}
