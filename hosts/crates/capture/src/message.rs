// SPDX-License-Identifier: Apache-2.0
//! Messages of a capture on standard output, one line of JSON each.

use serde::Serialize;

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Frames whose records are in the file.
    pub captured_packets: u64,
    /// Their bytes on the wire, from Ethernet header to the end of the payload.
    pub captured_bytes: u64,
    /// Frames that found the ring full.
    pub dropped_packets: u64,
    /// Of those in the file, frames whose transport checksum their sender left to hardware: on a wire that has none
    /// their receiver discards them as corrupt.
    pub unchecked_packets: u64,
}

/// One line of output.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Message {
    /// The kernel is capturing.
    Ready {
        /// How much of each frame is kept.
        snap_bytes: u16,
        /// The kernel's ring as it is: whole blocks.
        buffer_bytes: u32,
    },
    /// Every second.
    Counters {
        /// `CLOCK_REALTIME`, ns since 1970.
        t_ns: u64,
        #[serde(flatten)]
        tally: Tally,
    },
    /// The last line.
    Done {
        /// `CLOCK_REALTIME`, ns since 1970.
        t_ns: u64,
        #[serde(flatten)]
        tally: Tally,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_contract_examples::examples;

    #[test]
    fn messages_are_those_of_the_contract() {
        let examples = examples("capture", "capture");
        let tally = Tally {
            captured_packets: 20_000,
            captured_bytes: 30_280_000,
            dropped_packets: 0,
            unchecked_packets: 3,
        };
        let t_ns = 1_795_254_138_936_818_342;
        let said = [
            Message::Ready {
                snap_bytes: 96,
                buffer_bytes: 16_777_216,
            },
            Message::Counters { t_ns, tally },
            Message::Done { t_ns, tally },
        ];
        let said: Vec<_> = said
            .iter()
            .map(|message| serde_json::to_value(message).unwrap())
            .collect();
        assert_eq!(said, examples);
    }
}
