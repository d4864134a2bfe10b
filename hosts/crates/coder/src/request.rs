// SPDX-License-Identifier: Apache-2.0
//! Requests, one line of JSON each (docs/contracts.md, "coder").

use serde::Deserialize;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// End a measurement, begin the next one.
    Mark { id: u64 },
    /// One that coders do not know, which is answered.
    #[serde(skip)]
    Mistaken { op: String, id: u64, error: String },
}

/// Parse a request.
///
/// # Errors
/// The line is no request and has no id to answer.
pub(crate) fn parse(line: &str) -> serde_json::Result<Request> {
    atoll_job::request(line, |op, id, error| Request::Mistaken { op, id, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_not_known_is_answered_if_it_has_an_id() {
        assert_eq!(
            parse(r#"{"op":"mark","id":7}"#).unwrap(),
            Request::Mark { id: 7 }
        );
        let mistaken = parse(r#"{"op":"reset","id":8,"pair":0}"#).unwrap();
        assert!(matches!(mistaken, Request::Mistaken { op, id: 8, .. } if op == "reset"));
        assert!(parse(r#"{"op":"mark"}"#).is_err());
    }
}
