// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod block_code;
mod coefficients;
mod elimination;
mod errors;
mod generation_decoder;
mod generation_encoder;
mod header;
mod recoder;
mod reed_solomon;
mod repetition;
mod sliding_window;
mod spare;
mod symbol;

pub use block_code::{BlockCode, BlockDecoder, BlockEncoder, Progress};
pub use errors::{CodeError, HeaderError};
pub use generation_decoder::{GenerationDecoder, Rlnc};
pub use generation_encoder::GenerationEncoder;
pub use header::{Header, VERSION};
pub use recoder::Recoder;
pub use reed_solomon::ReedSolomon;
pub use repetition::Repetition;
pub use sliding_window::{WindowDecoder, WindowEncoder};

/// The largest number of packets of a generation.
pub const MOST_SOURCES: u16 = 1024;

/// The longest packet, in bytes; IPv4 has no longer ones.
pub const LONGEST_PACKET: usize = u16::MAX as usize;
