// SPDX-License-Identifier: Apache-2.0
//! Captures to fixed-size packet records: `atoll-host pcap records IN OUT [--side PREFIX]`.
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
pub use record_writer::{Done, Prefix, write_records};

use std::path::Path;

const USAGE: &str = "usage: atoll-host pcap records IN.pcap[.zst] OUT.bin [--side 10.20.0.0/16]

Writes one 64-byte record for each IPv4 packet of a capture (docs/contracts.md, \"flows and pcap\");
--side is the island's prefix: packets to it have to_island = 1.

Example: atoll-host pcap records island.pcap.zst island.bin --side 10.20.0.0/16";

/// `atoll-host pcap`: the last line of standard output is a summary as JSON.
///
/// # Errors
/// A message for the user. `OUT` is removed then.
pub fn run(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (input, output, side) = match words[..] {
        ["records", input, output] => (input, output, None),
        ["records", input, output, "--side", side] | ["records", "--side", side, input, output] => {
            (input, output, Some(side.parse::<Prefix>()?))
        }
        ["--help" | "-h"] | ["records", "--help" | "-h"] => {
            println!("{USAGE}");
            return Ok(());
        }
        _ => return Err(USAGE.into()),
    };
    let done = write_records(Path::new(input), Path::new(output), side)?;
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}
