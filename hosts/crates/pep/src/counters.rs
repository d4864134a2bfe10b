// SPDX-License-Identifier: Apache-2.0
//! What the proxy counts, and the lines that it prints (docs/contracts.md, "pep").

use atoll_measures::sums;
use serde::Serialize;

/// Sums since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sums {
    pub connections: u64,
    pub refused_connections: u64,
    pub unreachable_connections: u64,
    pub unanswered_connections: u64,
    pub unaccepted_connections: u64,
    pub evicted_connections: u64,
    pub ignored_syns: u64,
    pub to_island_bytes: u64,
    pub to_world_bytes: u64,
    pub client_first_ends: u64,
    pub server_first_ends: u64,
    pub client_resets: u64,
    pub server_resets: u64,
    pub client_vanished_ends: u64,
    pub server_vanished_ends: u64,
    pub own_resets: u64,
    pub multiplexed_connections: u64,
    pub multiplex_losses: u64,
}

sums!(Sums {
    connections,
    refused_connections,
    unreachable_connections,
    unanswered_connections,
    unaccepted_connections,
    evicted_connections,
    ignored_syns,
    to_island_bytes,
    to_world_bytes,
    client_first_ends,
    server_first_ends,
    client_resets,
    server_resets,
    client_vanished_ends,
    server_vanished_ends,
    own_resets,
    multiplexed_connections,
    multiplex_losses,
});

/// Current values, and the largest of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Present {
    pub open_connections: u64,
    pub pending_connections: u64,
    pub pending_of_a_server: u64,
    pub held_bytes: u64,
    pub held_max_bytes: u64,
    pub buffered_bytes: u64,
    pub buffered_max_bytes: u64,
    pub world_rtt_median_ns: Option<u64>,
    pub world_rtt_max_ns: Option<u64>,
    pub island_rtt_median_ns: Option<u64>,
    pub island_rtt_max_ns: Option<u64>,
    pub multiplexes: u64,
    pub multiplex_rtt_ns: Option<u64>,
    pub pipes: u64,
    pub memory_bytes: u64,
}

/// Both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    pub sums: Sums,
    #[serde(flatten)]
    pub present: Present,
}

/// A line of output that is no answer to a request other than `mark`.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Message {
    Ready,
    Counters {
        t_ns: u64,
        #[serde(flatten)]
        figures: Figures,
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

/// The middle and the largest of some numbers; none of none.
pub(crate) fn median_and_max(numbers: &mut [u64]) -> Option<(u64, u64)> {
    let max = *numbers.iter().max()?;
    let middle = numbers.len() / 2;
    let (_, median, _) = numbers.select_nth_unstable(middle);
    Some((*median, max))
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
            Message::Ready,
            Message::Counters { t_ns: 1, figures },
            Message::Mark {
                id: 7,
                t_ns: 1,
                figures,
            },
            Message::Done { t_ns: 1, figures },
        ];
        let known = examples("pep", "pep");
        assert_eq!(said.len(), known.len());
        for (said, known) in said.iter().zip(known) {
            let said = serde_json::to_value(said).unwrap();
            assert_eq!((&said["type"], keys(&said)), (&known["type"], keys(&known)));
        }
    }

    #[test]
    fn the_median_is_one_of_the_numbers() {
        assert_eq!(median_and_max(&mut []), None);
        assert_eq!(median_and_max(&mut [9, 1, 5]), Some((5, 9)));
        assert_eq!(median_and_max(&mut [4, 1]), Some((4, 4)));
    }
}
