// SPDX-License-Identifier: Apache-2.0
//! Loss of packets: at the receiver, after they have used the link, or at the input of the queue, which never sees them.

use crate::range_checks::probability;
use crate::{ConfigError, SplitMix64};

/// Which packets are lost, and where.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LossSettings {
    /// Which packets.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub kind: LossKind,
    /// Seen from the transmitter.
    #[cfg_attr(feature = "serde", serde(rename = "where", default))]
    pub place: LossPlace,
}

/// Where a link loses packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum LossPlace {
    /// At the receiver, as noise and interference do: a lost packet has been serialised.
    #[default]
    After,
    /// At the input of the queue: a lost packet takes neither room nor time.
    Before,
}

/// Which packets are lost.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum LossKind {
    /// Each for itself.
    Bernoulli {
        /// Of one packet's loss.
        probability: f64,
    },
    /// Each bit for itself; a packet with a wrong bit is lost.
    BitError {
        /// Of one bit being wrong; the bits are those of the bytes for which a packet counts.
        probability: f64,
    },
    /// In bursts: a Markov chain of two states that moves after each packet (Gilbert 1960, Elliott 1963).
    /// It begins in the good one.
    GilbertElliott {
        /// Probability of moving from the good state to the bad one.
        good_to_bad: f64,
        /// Probability of moving back: bursts last 1 / `bad_to_good` packets in the mean.
        bad_to_good: f64,
        /// Probability of loss in the good state.
        #[cfg_attr(feature = "serde", serde(default))]
        loss_good: f64,
        /// Probability of loss in the bad state.
        #[cfg_attr(feature = "serde", serde(default = "probability_one"))]
        loss_bad: f64,
    },
    /// As recorded, a packet after the other, from the begin again after the end.
    Trace {
        /// Whether each packet is lost.
        lost: Vec<bool>,
    },
}

#[cfg(feature = "serde")]
fn probability_one() -> f64 {
    1.0
}

impl LossSettings {
    /// Whether packets can be lost by these settings.
    ///
    /// # Errors
    /// The first probability that is none, or an empty trace.
    pub fn check(&self) -> Result<(), ConfigError> {
        match &self.kind {
            LossKind::Bernoulli { probability: p } | LossKind::BitError { probability: p } => {
                probability("loss.probability", *p)
            }
            LossKind::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_good,
                loss_bad,
            } => {
                probability("loss.good_to_bad", *good_to_bad)?;
                probability("loss.bad_to_good", *bad_to_good)?;
                probability("loss.loss_good", *loss_good)?;
                probability("loss.loss_bad", *loss_bad)
            }
            LossKind::Trace { lost } if lost.is_empty() => Err(ConfigError::NoLossTrace),
            LossKind::Trace { .. } => Ok(()),
        }
    }
}

/// Decides packet by packet at one place.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    place: LossPlace,
    kind: Option<LossKind>,
    random: SplitMix64,
    /// State of the Markov chain.
    bad: bool,
    /// Of the recorded losses.
    next: usize,
}

impl Loss {
    /// The losses of `settings` that happen at `place`; None: nothing is lost.
    pub(crate) fn new(
        place: LossPlace,
        settings: Option<&LossSettings>,
        random: SplitMix64,
    ) -> Self {
        let mut loss = Self {
            place,
            kind: None,
            random,
            bad: false,
            next: 0,
        };
        loss.change(settings);
        loss
    }

    /// Lose by these settings from now on; from their beginning, if they are others.
    pub(crate) fn change(&mut self, settings: Option<&LossSettings>) {
        let own_settings = settings.filter(|settings| settings.place == self.place);
        let kind = own_settings.map(|settings| settings.kind.clone());
        if kind != self.kind {
            self.kind = kind;
            self.bad = false;
            self.next = 0;
        }
    }

    /// Whether anything is lost here.
    pub(crate) fn is_set(&self) -> bool {
        self.kind.is_some()
    }

    /// Whether the next packet is lost, which counts for `bytes`; `traced`: with this probability, whatever the settings.
    pub(crate) fn loses(&mut self, traced: Option<f64>, bytes: u32) -> bool {
        if let Some(probability) = traced {
            return self.random.chance(probability);
        }
        match &self.kind {
            None => false,
            Some(LossKind::Bernoulli { probability }) => self.random.chance(*probability),
            Some(LossKind::BitError { probability }) => {
                let probability = wrong_bit(*probability, bytes);
                self.random.chance(probability)
            }
            Some(LossKind::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_good,
                loss_bad,
            }) => {
                let (probability, leave_probability) = if self.bad {
                    (*loss_bad, *bad_to_good)
                } else {
                    (*loss_good, *good_to_bad)
                };
                let lost = self.random.chance(probability);
                self.bad ^= self.random.chance(leave_probability);
                lost
            }
            Some(LossKind::Trace { lost }) => {
                let is_lost = lost[self.next];
                self.next = (self.next + 1) % lost.len();
                is_lost
            }
        }
    }
}

/// The probability that one of the bits of so many bytes is wrong: 1 - (1 - p)^(8 bytes), also where p is tiny.
fn wrong_bit(probability: f64, bytes: u32) -> f64 {
    -libm::expm1(8.0 * f64::from(bytes) * libm::log1p(-probability))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u32 = 400_000;

    fn losses_of(kind: LossKind, bytes: u32) -> Vec<bool> {
        let place = LossPlace::After;
        let settings = LossSettings { kind, place };
        let mut loss = Loss::new(place, Some(&settings), SplitMix64::new(1, 0));
        (0..COUNT).map(|_| loss.loses(None, bytes)).collect()
    }

    fn losses(kind: LossKind) -> Vec<bool> {
        losses_of(kind, 1500)
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|&&lost| lost).count() as f64 / lost.len() as f64
    }

    #[test]
    fn independent_losses_are_as_frequent_as_asked_for_and_independent() {
        let lost = losses(LossKind::Bernoulli { probability: 0.1 });
        assert!((share(&lost) - 0.1).abs() < 0.003);
        let after_loss: Vec<bool> = lost
            .windows(2)
            .filter(|pair| pair[0])
            .map(|pair| pair[1])
            .collect();
        assert!((share(&after_loss) - 0.1).abs() < 0.01);
    }

    #[test]
    fn bursts_are_as_frequent_and_as_long_as_the_chain_says() {
        let (good_to_bad, bad_to_good) = (0.01, 0.2);
        let settings = |loss_bad| LossKind::GilbertElliott {
            good_to_bad,
            bad_to_good,
            loss_good: 0.0,
            loss_bad,
        };
        let stationary = good_to_bad / (good_to_bad + bad_to_good);
        let lost = losses(settings(1.0));
        assert!((share(&lost) - stationary).abs() < 0.003);
        let begun = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let burst = share(&lost) * f64::from(COUNT) / begun as f64;
        assert!(
            (burst - 1.0 / bad_to_good).abs() < 0.2,
            "mean burst {burst}"
        );
        assert!((share(&losses(settings(0.5))) - stationary / 2.0).abs() < 0.003);
    }

    #[test]
    fn recorded_losses_are_repeated() {
        let lost = losses(LossKind::Trace {
            lost: vec![false, true, true],
        });
        assert_eq!(lost[..7], [false, true, true, false, true, true, false]);
    }

    #[test]
    fn a_trace_of_conditions_overrides_the_settings() {
        let mut loss = Loss::new(LossPlace::After, None, SplitMix64::new(1, 0));
        assert!(loss.loses(Some(1.0), 1500) && !loss.loses(None, 1500));
    }

    #[test]
    fn a_bit_error_rate_of_1e_7_loses_0_12_percent_of_1500_bytes_and_more_of_longer_packets() {
        for (bytes, percent) in [(40, 0.0032), (1500, 0.11993), (9000, 0.71742)] {
            assert!((100.0 * wrong_bit(1e-7, bytes) - percent).abs() < 1e-5);
        }
        assert_eq!((wrong_bit(0.0, 1500), wrong_bit(1.0, 1)), (0.0, 1.0));
        let lost = losses_of(LossKind::BitError { probability: 1e-5 }, 1500);
        assert!((share(&lost) - 0.11308).abs() < 0.003);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn settings_are_read_as_written_and_unknown_keys_refused() {
        let parse = serde_json::from_str::<LossSettings>;
        let kind = LossKind::BitError { probability: 1e-7 };
        let written = r#"{"kind":"bit-error","probability":1e-7}"#;
        let place = LossPlace::After;
        assert_eq!(parse(written).unwrap(), LossSettings { kind, place });
        let before = r#"{"kind":"trace","lost":[true],"where":"before"}"#;
        assert_eq!(parse(before).unwrap().place, LossPlace::Before);
        let unknown = r#"{"kind":"trace","lost":[true],"were":"before"}"#;
        assert!(parse(unknown).unwrap_err().to_string().contains("were"));
    }
}
