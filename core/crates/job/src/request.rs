// SPDX-License-Identifier: Apache-2.0
//! Reading requests: lines that are JSON objects with `op`, the operation, and `id`, which the answer repeats.

use crate::clock::real_time_ns;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A line that is no request of this program.
#[derive(Debug, Clone, PartialEq)]
pub struct NotUnderstood {
    /// The operation; none: the line has none.
    pub op: Option<Value>,
    /// The id to answer; none: the line has none.
    pub id: Option<Value>,
    reason: String,
}

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = &self.reason;
        let line = match &self.op {
            Some(op) => format!("request `{}` is not understood: {reason}", text(op)),
            None => format!("not a request: {reason}"),
        };
        f.write_str(&line.replace(char::is_control, "\u{fffd}"))
    }
}

impl std::error::Error for NotUnderstood {}

impl NotUnderstood {
    /// The answer of a job; none if the line has no operation or no id.
    #[must_use]
    pub fn refusal(&self, t_ns: u64) -> Option<Refusal> {
        Some(Refusal {
            op: text(self.op.as_ref()?),
            id: self.id.clone()?,
            t_ns,
            ok: false,
            error: self.to_string(),
        })
    }
}

/// Read a request.
///
/// # Errors
/// The line is no request of this program.
pub fn request<R: DeserializeOwned>(line: &[u8]) -> Result<R, NotUnderstood> {
    let message: Value = serde_json::from_slice(line).map_err(|error| NotUnderstood {
        op: None,
        id: None,
        reason: error.to_string(),
    })?;
    R::deserialize(&message).map_err(|error| NotUnderstood {
        op: message.get("op").cloned(),
        id: message.get("id").cloned(),
        reason: error.to_string(),
    })
}

/// A job's answer to a request that it does not understand.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refusal {
    #[serde(rename = "type")]
    op: String,
    id: Value,
    t_ns: u64,
    ok: bool,
    error: String,
}

/// Read a line of standard input. One that is no request, and that nobody waits for, is reported on standard error.
pub(crate) fn request_or_refusal<R: DeserializeOwned>(line: &str) -> Option<Result<R, Refusal>> {
    let error = match request(line.as_bytes()) {
        Ok(request) => return Some(Ok(request)),
        Err(error) => error,
    };
    let refusal = error.refusal(real_time_ns());
    if refusal.is_none() {
        crate::log_line(&format!("request ignored: {error}: {line}"));
    }
    refusal.map(Err)
}

/// The requests of a job that takes none.
#[derive(Debug)]
pub(crate) enum NoRequest {}

impl<'de> Deserialize<'de> for NoRequest {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("this program takes no requests"))
    }
}

/// An operation as text, also where it is none.
fn text(op: &Value) -> String {
    op.as_str().map_or_else(|| op.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
    enum Request {
        Mark { id: u64 },
    }

    fn answer(line: &str) -> Value {
        let refusal = request_or_refusal::<Request>(line).unwrap().unwrap_err();
        let mut answer = serde_json::to_value(refusal).unwrap();
        assert!(answer["t_ns"].take().is_u64());
        assert_eq!(answer["ok"], false);
        answer
    }

    #[test]
    fn a_request_is_read() {
        let Request::Mark { id } = request(br#"{"op":"mark","id":7}"#).unwrap();
        assert_eq!(id, 7);
    }

    #[test]
    fn a_request_that_is_not_understood_is_answered_with_operation_id_and_reason() {
        let unknown = answer(r#"{"op":"jump","id":8}"#);
        assert_eq!(
            (&unknown["type"], &unknown["id"]),
            (&"jump".into(), &8.into())
        );
        assert_eq!(
            unknown["error"],
            "request `jump` is not understood: unknown variant `jump`, expected `mark`"
        );
        let more = answer(r#"{"op":"mark","id":8,"at":1}"#);
        assert!(
            more["error"]
                .as_str()
                .unwrap()
                .contains("unknown field `at`")
        );
        assert_eq!(answer(r#"{"op":"mark","id":"m1"}"#)["id"], "m1");
        assert_eq!(answer(r#"{"op":["mark"],"id":-1}"#)["type"], r#"["mark"]"#);
        let split = answer(r#"{"op":"ma\nrk","id":8}"#);
        assert_eq!(split["type"], "ma\nrk");
        assert!(!split["error"].as_str().unwrap().contains('\n'));
    }

    #[test]
    fn a_line_without_operation_or_id_has_no_answer() {
        for line in ["", "nonsense", "[]", r#"{"op":"mark"}"#, r#"{"id":1}"#] {
            assert!(request_or_refusal::<Request>(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_job_without_requests_refuses_them() {
        let error = request::<NoRequest>(br#"{"op":"mark","id":7}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "request `mark` is not understood: this program takes no requests"
        );
    }
}
