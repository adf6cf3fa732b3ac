//! Random numbers: independent streams, and distributions.

use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution as _, Exp1, LogNormal, Pareto};
use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The generator. The same seed gives the same numbers on every machine.
pub(crate) type Generator = Xoshiro256PlusPlus;

/// A stream for each drawn quantity, so that two policies get the same arrivals and sizes, although one draws more
/// numbers than the other. Differences between them are then visible in fewer runs.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) arrivals: Generator,
    pub(crate) clients: Generator,
    pub(crate) sizes: Generator,
    pub(crate) service: Generator,
    pub(crate) choices: Generator,
}

impl Streams {
    pub(crate) fn new(seed: u64) -> Self {
        let mut all = Generator::seed_from_u64(seed);
        // Each stream begins 2^128 numbers after the previous one.
        let mut next = || {
            let stream = all.clone();
            all.jump();
            stream
        };
        Streams { arrivals: next(), clients: next(), sizes: next(), service: next(), choices: next() }
    }
}

/// Distribution of an amount: bytes, or a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Amount {
    /// Constant.
    Constant(f64),
    /// Exponential, with this mean.
    Exponential(f64),
    /// Uniform between two values.
    Uniform(f64, f64),
    /// P(X > x) = (minimum / x)^alpha; without a mean if alpha is 1 or less.
    Pareto {
        /// The shape.
        alpha: f64,
        /// The minimum.
        minimum: f64,
    },
    /// Lognormal.
    Lognormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Sizes of web files in bytes, from table 1 of "SSL with backend forwarding": a lognormal body up to 10 KiB (mu
    /// 1.16, sigma 0.9, in KiB), and for the rest a Pareto tail up to 2,000 KiB (alpha 1.1).
    Web {
        /// The share of the body, which the paper does not give; it is 0.93 in the model's source, Barford and Crovella
        /// (SIGMETRICS 1998).
        body: f64,
    },
    /// These values in turn.
    Trace(Vec<f64>),
}

const KIB: f64 = 1024.0;
const WEB_BODY: (f64, f64, f64) = (1.16, 0.9, 10.0);
const WEB_TAIL: (f64, f64, f64) = (1.1, 10.0, 2000.0);

impl Amount {
    /// The mistake in the distribution, if any.
    pub(crate) fn mistake(&self) -> Option<String> {
        let (values, all_positive): (Vec<f64>, bool) = match self {
            Amount::Constant(value) => (vec![*value], false),
            Amount::Exponential(mean) => (vec![*mean], true),
            Amount::Uniform(from, to) if from > to => return Some(format!("from {from} to {to}")),
            Amount::Uniform(from, to) => (vec![*from, *to], false),
            Amount::Pareto { alpha, minimum } => (vec![*alpha, *minimum], true),
            Amount::Lognormal { mu, sigma } if !mu.is_finite() => {
                return Some(format!("mu {mu}, sigma {sigma}"));
            }
            Amount::Lognormal { sigma, .. } => (vec![*sigma], true),
            Amount::Web { body } if *body > 1.0 => {
                return Some(format!("a body of {body}, allowed are 0 to 1"));
            }
            Amount::Web { body } => (vec![*body], false),
            Amount::Trace(values) if values.is_empty() => return Some("nothing in it".to_owned()),
            Amount::Trace(values) => (values.clone(), false),
        };
        let is_wrong = |value: &f64| !value.is_finite() || *value < 0.0 || all_positive && *value == 0.0;
        let least = if all_positive { "above 0" } else { "0 or above" };
        values.into_iter().find(is_wrong).map(|value| format!("{value}, allowed is what is {least}"))
    }

    /// The mean; None if it does not exist.
    pub fn mean(&self) -> Option<f64> {
        Some(match self {
            Amount::Constant(value) => *value,
            Amount::Exponential(mean) => *mean,
            Amount::Uniform(from, to) => f64::midpoint(*from, *to),
            Amount::Pareto { alpha, minimum } if *alpha > 1.0 => alpha * minimum / (alpha - 1.0),
            Amount::Pareto { .. } => return None,
            Amount::Lognormal { mu, sigma } => (mu + sigma * sigma / 2.0).exp(),
            Amount::Web { body } => {
                let (alpha, least, most) = WEB_TAIL;
                let tail = alpha / (alpha - 1.0) * least * (1.0 - (least / most).powf(alpha - 1.0))
                    / (1.0 - (least / most).powf(alpha));
                KIB * (body * web_body_mean() + (1.0 - body) * tail)
            }
            Amount::Trace(values) => values.iter().sum::<f64>() / values.len() as f64,
        })
    }
}

/// Mean of a lognormal distribution that is cut off at a limit.
fn web_body_mean() -> f64 {
    use statrs::distribution::{ContinuousCDF, Normal};
    let (mu, sigma, most) = WEB_BODY;
    let normal = Normal::standard();
    let at = (f64::ln(most) - mu) / sigma;
    (mu + sigma * sigma / 2.0).exp() * normal.cdf(at - sigma) / normal.cdf(at)
}

/// Draws amounts.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Constant(f64),
    Exponential(f64),
    Uniform(f64, f64),
    Pareto(Pareto<f64>),
    Lognormal(LogNormal<f64>),
    Web { body: f64, lognormal: LogNormal<f64> },
    Trace { values: Vec<f64>, next: usize },
}

impl Source {
    /// Draws from a valid distribution.
    pub(crate) fn new(amount: &Amount) -> Self {
        let lognormal = |mu, sigma| LogNormal::new(mu, sigma).expect("it has been looked at");
        match amount.clone() {
            Amount::Constant(value) => Source::Constant(value),
            Amount::Exponential(mean) => Source::Exponential(mean),
            Amount::Uniform(from, to) => Source::Uniform(from, to),
            Amount::Pareto { alpha, minimum } => {
                Source::Pareto(Pareto::new(minimum, alpha).expect("it has been looked at"))
            }
            Amount::Lognormal { mu, sigma } => Source::Lognormal(lognormal(mu, sigma)),
            Amount::Web { body } => Source::Web { body, lognormal: lognormal(WEB_BODY.0, WEB_BODY.1) },
            Amount::Trace(values) => Source::Trace { values, next: 0 },
        }
    }

    pub(crate) fn draw(&mut self, random: &mut Generator) -> f64 {
        match self {
            Source::Constant(value) => *value,
            Source::Exponential(mean) => {
                let unit: f64 = Exp1.sample(random);
                unit * *mean
            }
            Source::Uniform(from, to) => *from + random.random::<f64>() * (*to - *from),
            Source::Pareto(pareto) => pareto.sample(random),
            Source::Lognormal(lognormal) => lognormal.sample(random),
            Source::Web { body, lognormal } => {
                let in_body = random.random::<f64>() < *body;
                KIB * if in_body { web_body(lognormal, random) } else { web_tail(random) }
            }
            Source::Trace { values, next } => {
                let value = values[*next];
                *next = (*next + 1) % values.len();
                value
            }
        }
    }
}

fn web_body(lognormal: &LogNormal<f64>, random: &mut Generator) -> f64 {
    loop {
        let size = lognormal.sample(random);
        if size <= WEB_BODY.2 {
            return size;
        }
    }
}

/// The inverse of the bounded Pareto distribution.
fn web_tail(random: &mut Generator) -> f64 {
    let (alpha, least, most) = WEB_TAIL;
    let cut = 1.0 - (least / most).powf(alpha);
    least / (1.0 - random.random::<f64>() * cut).powf(1.0 / alpha)
}

/// Draws clients by Zipf's law with this exponent, the first most often; uniformly with 0.
#[derive(Clone, Debug)]
pub(crate) enum Clients {
    Alike(u32),
    Zipf(rand_distr::Zipf<f64>),
}

impl Clients {
    pub(crate) fn new(count: u32, skew: f64) -> Self {
        match skew {
            0.0 => Clients::Alike(count),
            _ => Clients::Zipf(rand_distr::Zipf::new(count.into(), skew).expect("it has been looked at")),
        }
    }

    pub(crate) fn draw(&self, random: &mut Generator) -> u32 {
        match self {
            Clients::Alike(count) => random.random_range(0..*count),
            Clients::Zipf(zipf) => zipf.sample(random) as u32 - 1,
        }
    }
}

/// Number of requests of a connection: geometric, at least one, with this mean.
pub(crate) fn requests(mean: f64, random: &mut Generator) -> u32 {
    if mean <= 1.0 {
        return 1;
    }
    let uniform: f64 = 1.0 - random.random::<f64>();
    1 + (uniform.ln() / (1.0 - 1.0 / mean).ln()) as u32
}

/// 64 uniform bits.
pub(crate) fn bits(random: &mut Generator) -> u64 {
    random.next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of(amount: &Amount, count: u32) -> f64 {
        let (mut source, mut random) = (Source::new(amount), Generator::seed_from_u64(7));
        (0..count).map(|_| source.draw(&mut random)).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn each_amount_has_the_mean_that_it_says() {
        let amounts = [
            Amount::Constant(3.0),
            Amount::Exponential(5.0),
            Amount::Uniform(1.0, 4.0),
            Amount::Pareto { alpha: 3.0, minimum: 2.0 },
            Amount::Lognormal { mu: 1.0, sigma: 0.5 },
            Amount::Web { body: 0.93 },
            Amount::Trace(vec![1.0, 2.0, 6.0]),
        ];
        for amount in amounts {
            let (said, drawn) = (amount.mean().unwrap(), mean_of(&amount, 3_000_000));
            assert!((said / drawn - 1.0).abs() < 0.02, "{amount:?}: {said}, but {drawn}");
        }
        assert_eq!(Amount::Pareto { alpha: 1.0, minimum: 1.0 }.mean(), None);
    }

    #[test]
    fn what_cannot_be_drawn_is_a_mistake() {
        let wrong = [
            Amount::Constant(-1.0),
            Amount::Exponential(0.0),
            Amount::Uniform(2.0, 1.0),
            Amount::Pareto { alpha: 0.0, minimum: 1.0 },
            Amount::Lognormal { mu: f64::NAN, sigma: 1.0 },
            Amount::Web { body: 1.5 },
            Amount::Trace(Vec::new()),
        ];
        for amount in wrong {
            assert!(amount.mistake().is_some(), "{amount:?}");
        }
        assert_eq!(Amount::Constant(0.0).mistake(), None);
    }

    #[test]
    fn connections_have_the_mean_of_requests() {
        let mut random = Generator::seed_from_u64(7);
        for mean in [1.0, 1.5, 4.0, 20.0] {
            let drawn: u32 = (0..200_000).map(|_| requests(mean, &mut random)).sum();
            let drawn = f64::from(drawn) / 200_000.0;
            assert!((drawn / mean - 1.0).abs() < 0.02, "{mean}, but {drawn}");
        }
    }

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed| {
            let mut streams = Streams::new(seed);
            [
                bits(&mut streams.arrivals),
                bits(&mut streams.clients),
                bits(&mut streams.sizes),
                bits(&mut streams.choices),
            ]
        };
        assert_eq!(first(1), first(1));
        let mut all = [first(1), first(2)].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8);
    }
}
