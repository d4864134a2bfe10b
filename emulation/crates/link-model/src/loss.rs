// SPDX-License-Identifier: Apache-2.0
//! Loss of packets on their way into the link: what the queue never sees.

use crate::bounds::probability;
use crate::{ConfigError, SplitMix64};
use serde::{Deserialize, Serialize};

/// Which packets are lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LossSettings {
    /// Each for itself.
    Bernoulli {
        /// Of one packet's loss.
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
        #[serde(default)]
        loss_good: f64,
        /// Probability of loss in the bad state.
        #[serde(default = "certain")]
        loss_bad: f64,
    },
    /// As recorded, a packet after the other, from the begin again after the end.
    Trace {
        /// Whether each packet is lost.
        lost: Vec<bool>,
    },
}

fn certain() -> f64 {
    1.0
}

impl LossSettings {
    /// Whether packets can be lost by these settings.
    ///
    /// # Errors
    /// The first probability that is none, or an empty trace.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::Bernoulli { probability: p } => probability("loss.probability", *p),
            Self::GilbertElliott {
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
            Self::Trace { lost } if lost.is_empty() => Err(ConfigError::NoLossTrace),
            Self::Trace { .. } => Ok(()),
        }
    }
}

/// Decides packet by packet.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    settings: Option<LossSettings>,
    random: SplitMix64,
    /// State of the Markov chain.
    bad: bool,
    /// Of the recorded losses.
    next: usize,
}

impl Loss {
    /// None: nothing is lost.
    pub(crate) fn new(settings: Option<LossSettings>, random: SplitMix64) -> Self {
        Self {
            settings,
            random,
            bad: false,
            next: 0,
        }
    }

    /// Lose by other settings from now on, which begin anew.
    pub(crate) fn change(&mut self, settings: LossSettings) {
        self.settings = Some(settings);
        self.bad = false;
        self.next = 0;
    }

    /// Whether the next packet is lost; `traced`: with this probability, whatever the settings.
    pub(crate) fn loses(&mut self, traced: Option<f64>) -> bool {
        if let Some(probability) = traced {
            return self.random.chance(probability);
        }
        match &self.settings {
            None => false,
            Some(LossSettings::Bernoulli { probability }) => self.random.chance(*probability),
            Some(LossSettings::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_good,
                loss_bad,
            }) => {
                let (probability, leave) = if self.bad {
                    (*loss_bad, *bad_to_good)
                } else {
                    (*loss_good, *good_to_bad)
                };
                let lost = self.random.chance(probability);
                self.bad ^= self.random.chance(leave);
                lost
            }
            Some(LossSettings::Trace { lost }) => {
                let is_lost = lost[self.next];
                self.next = (self.next + 1) % lost.len();
                is_lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u32 = 400_000;

    fn losses(settings: LossSettings) -> Vec<bool> {
        let mut loss = Loss::new(Some(settings), SplitMix64::new(1, 0));
        (0..COUNT).map(|_| loss.loses(None)).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|&&lost| lost).count() as f64 / lost.len() as f64
    }

    #[test]
    fn independent_losses_are_as_frequent_as_asked_for_and_independent() {
        let lost = losses(LossSettings::Bernoulli { probability: 0.1 });
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
        let settings = |loss_bad| LossSettings::GilbertElliott {
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
        let lost = losses(LossSettings::Trace {
            lost: vec![false, true, true],
        });
        assert_eq!(lost[..7], [false, true, true, false, true, true, false]);
    }

    #[test]
    fn a_trace_of_conditions_overrides_the_settings() {
        let mut loss = Loss::new(None, SplitMix64::new(1, 0));
        assert!(loss.loses(Some(1.0)) && !loss.loses(None));
    }
}
