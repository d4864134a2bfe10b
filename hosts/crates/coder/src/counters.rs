// SPDX-License-Identifier: Apache-2.0
//! What a coder counts, and the lines that it prints (docs/contracts.md, "coder").

use atoll_measures::sums;
use serde::Serialize;

sums! {
    /// Sums of what came from the other coder.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub(crate) struct DecoderSums {
        pub(crate) arrived_source_packets: u64,
        pub(crate) arrived_repair_packets: u64,
        pub(crate) useful_repair_packets: u64,
        pub(crate) recovered_packets: u64,
        pub(crate) recovery_delay_ns: u64,
        pub(crate) complete_generations: u64,
        pub(crate) lost_generations: u64,
        pub(crate) lost_packets: u64,
        pub(crate) late_packets: u64,
        pub(crate) malformed_packets: u64,
        /// Lost in the tunnel, by the numbers of those that arrived: only with feedback, as are their bursts.
        pub(crate) missing_source_packets: u64,
        pub(crate) bursts_of_1: u64,
        pub(crate) bursts_of_2: u64,
        pub(crate) bursts_of_3_to_4: u64,
        pub(crate) bursts_of_5_to_8: u64,
        pub(crate) longer_bursts: u64,
    }
}

sums! {
    /// Sums since the start.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub(crate) struct Sums {
        pub(crate) source_packets: u64,
        pub(crate) source_bytes: u64,
        pub(crate) uncoded_packets: u64,
        pub(crate) repair_packets: u64,
        pub(crate) repair_bytes: u64,
        pub(crate) dropped_repair_packets: u64,
        pub(crate) encoded_generations: u64,
        pub(crate) useless_repair_packets: u64,
        pub(crate) sent_reports: u64,
        pub(crate) arrived_reports: u64,
        pub(crate) redundancy_changes: u64,
        pub(crate) fallbacks: u64,
        /// Packets that waited for those before them, the sum of their times, and packets that were not waited for any longer.
        pub(crate) held_packets: u64,
        pub(crate) held_ns: u64,
        pub(crate) given_up_packets: u64,
        #[serde(flatten)]
        pub(crate) decoded: DecoderSums,
        pub(crate) other_version_packets: u64,
        pub(crate) oversize_packets: u64,
        pub(crate) unsent_packets: u64,
        pub(crate) unread_packets: u64,
        pub(crate) ignored_frames: u64,
        /// CPU time of the program.
        pub(crate) cpu_ns: u64,
    }
}

/// Current values, and the largest of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CurrentValues {
    pub(crate) waiting_repair_packets: u64,
    pub(crate) waiting_repair_bytes: u64,
    pub(crate) open_generations: u64,
    pub(crate) rank_deficit: u64,
    pub(crate) redundancy: u64,
    pub(crate) fallback: u64,
    pub(crate) queueing_delay_ns: u64,
    pub(crate) report_rtt_ns: u64,
    pub(crate) recovery_delay_max_ns: u64,
    /// Packets that wait for those before them.
    pub(crate) packets_on_hold: u64,
}

/// Both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    pub(crate) sums: Sums,
    #[serde(flatten)]
    pub(crate) current: CurrentValues,
}

/// A line of output.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Line {
    Ready,
    Counters {
        t_ns: u64,
        #[serde(flatten)]
        figures: Figures,
        /// Why it cannot do its work.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    Mark {
        id: u64,
        t_ns: u64,
        #[serde(flatten)]
        figures: Figures,
    },
    Done {
        t_ns: u64,
        #[serde(flatten)]
        figures: Figures,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_contract_examples::examples;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn keys(message: &Value) -> BTreeSet<String> {
        message.as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn lines_have_the_keys_of_the_contract() {
        let figures = Figures::default();
        let said = [
            Line::Ready,
            Line::Counters {
                t_ns: 1,
                figures,
                error: None,
            },
            Line::Counters {
                t_ns: 1,
                figures,
                error: Some(String::new()),
            },
            Line::Mark {
                id: 7,
                t_ns: 1,
                figures,
            },
            Line::Done { t_ns: 1, figures },
        ];
        let mut known = examples("coder", "coder");
        known.retain(|line| line["type"] != "reset"); // to a request that is not understood
        assert_eq!(said.len(), known.len());
        for (said, known) in said.iter().zip(known) {
            let said = serde_json::to_value(said).unwrap();
            assert_eq!((&said["type"], keys(&said)), (&known["type"], keys(&known)));
        }
    }
}
