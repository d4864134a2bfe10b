// SPDX-License-Identifier: Apache-2.0
//! Requests, their answers, and the lines with counters, one line of JSON each (docs/contracts.md, "pep").

use crate::config::{Change, Side};
use atoll_measures::sums;
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// End a measurement, begin the next one.
    Mark { id: u64 },
    /// Change settings.
    Set(Change),
    /// Reset the connections of a pair, or all.
    Reset { id: u64, pair: Option<usize> },
    /// List those that hold the most bytes.
    Connections { id: u64, limit: usize },
}

/// An answer to any request but a mark.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    /// The operation that was requested.
    #[serde(rename = "type")]
    pub op: String,
    pub id: u64,
    pub t_ns: u64,
    pub ok: bool,
    #[serde(flatten)]
    pub content: Content,
}

/// The rest of an answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Content {
    Nothing {},
    Error { error: String },
    Ended { connections: usize },
    Connections { connections: Vec<ListedConnection> },
}

/// A connection.
#[derive(Debug, Serialize)]
pub(crate) struct ListedConnection {
    pub client: SocketAddrV4,
    pub server: SocketAddrV4,
    pub pair: usize,
    pub client_side: Side,
    pub state: &'static str,
    pub to_island_bytes: u64,
    pub to_world_bytes: u64,
    pub held_bytes: u64,
    pub world_rtt_ns: Option<u64>,
    pub island_rtt_ns: Option<u64>,
    pub age_ns: u64,
}

sums! {
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
}

/// Current values, and the largest of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CurrentValues {
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
    pub current: CurrentValues,
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
    use crate::config::Mode;
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

    #[test]
    fn requests_of_the_contract_are_understood() {
        let read: Vec<Option<Request>> = examples("pep-control", "keeper")
            .iter()
            .map(|line| atoll_job::request(line.to_string().as_bytes()).ok())
            .collect();
        let limit = 100;
        let set = |change| Some(Request::Set(change));
        let none = Change::default();
        let reset = |id, pair| Some(Request::Reset { id, pair });
        let expected = [
            Some(Request::Mark { id: 7 }),
            set(Change {
                id: 9,
                mode: Some(Mode::Early),
                ..none
            }),
            reset(10, Some(0)),
            reset(12, None),
            Some(Request::Connections { id: 11, limit }),
            None, // a mode that does not exist
            reset(14, Some(2)),
            set(Change {
                id: 15,
                admit: Some(false),
                ..none
            }),
            set(Change {
                id: 16,
                learned_for_ns: Some(60_000_000_000),
                handshake_ns: Some(30_000_000_000),
                pending_max: Some(100),
                silence_ns: Some(60_000_000_000),
                flush_ns: Some(5_000_000_000),
                ..none
            }),
            set(Change {
                id: 17,
                silence_ns: Some(1),
                ..none
            }),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn answers_are_those_of_the_contract() {
        let listed = ListedConnection {
            client: "10.20.0.1:4000".parse().unwrap(),
            server: "10.10.0.1:80".parse().unwrap(),
            pair: 0,
            client_side: Side::Island,
            state: "open",
            to_island_bytes: 100_000,
            to_world_bytes: 8,
            held_bytes: 2896,
            world_rtt_ns: Some(5_100_000),
            island_rtt_ns: None,
            age_ns: 1_500_000_000,
        };
        let mut known = examples("pep-control", "pep");
        known.remove(3); // to a request that is not understood
        let contents = [
            Content::Nothing {},
            Content::Ended { connections: 12 },
            Content::Connections {
                connections: vec![listed],
            },
            Content::Error {
                error: known[3]["error"].as_str().unwrap().to_owned(),
            },
        ];
        assert_eq!(contents.len(), known.len());
        for (content, known) in contents.into_iter().zip(known) {
            let answer = Answer {
                op: known["type"].as_str().unwrap().to_owned(),
                id: known["id"].as_u64().unwrap(),
                t_ns: known["t_ns"].as_u64().unwrap(),
                ok: !matches!(content, Content::Error { .. }),
                content,
            };
            assert_eq!(serde_json::to_value(answer).unwrap(), known);
        }
    }
}
