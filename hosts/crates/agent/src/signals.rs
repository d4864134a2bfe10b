// SPDX-License-Identifier: Apache-2.0
//! Names of signals, without `SIG`, as in the protocol.

use crate::AgentError;
use rustix::process::Signal;

/// Numbers are those of Linux on x86 and ARM (signal(7)).
const NAMES: [(i32, &str); 16] = [
    (1, "HUP"),
    (2, "INT"),
    (3, "QUIT"),
    (4, "ILL"),
    (5, "TRAP"),
    (6, "ABRT"),
    (7, "BUS"),
    (8, "FPE"),
    (9, "KILL"),
    (11, "SEGV"),
    (13, "PIPE"),
    (14, "ALRM"),
    (15, "TERM"),
    (24, "XCPU"),
    (25, "XFSZ"),
    (31, "SYS"),
];

/// The name of the signal that ended a process; its number where it has none here.
pub fn name(number: i32) -> String {
    NAMES
        .iter()
        .find(|(listed, _)| *listed == number)
        .map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// A signal that a job may be sent.
pub fn parse(name: &str) -> Result<Signal, AgentError> {
    Ok(match name {
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "HUP" => Signal::HUP,
        "KILL" => Signal::KILL,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        _ => {
            return Err(AgentError::Machine(format!(
                "unknown signal {name:?}; known: TERM, INT, HUP, KILL, USR1, USR2"
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_agree_with_the_kernels_numbers() {
        for signal in ["TERM", "INT", "HUP", "KILL"] {
            assert_eq!(name(parse(signal).unwrap().as_raw()), signal);
        }
        assert_eq!(name(64), "64");
        assert!(
            parse("SIGTERM")
                .unwrap_err()
                .to_string()
                .contains("known: TERM")
        );
    }
}
