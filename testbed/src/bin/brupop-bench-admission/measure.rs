//! Takes the times: every variant in turn, in small portions, so that whatever else the machine does hits all alike.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;

use crate::cluster::Cluster;
use crate::variants::{Hook, Variant};
use crate::waits::Wait;

/// Patches of one turn in the first part, one after the other.
const PORTION: usize = 20;
/// Patches of each agent in one turn of the second part.
const PARALLEL_PORTION: usize = 5;
/// Turns in the first part for one in the second.
const TURNS: u32 = 4;
/// Turns before any time is taken.
const WARM_UP: u32 = 2;

/// The patches of a variant, in one of the two parts.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// By turn.
    turns: Vec<Vec<Duration>>,
    /// In which all of them were done.
    pub took: Duration,
}

/// All times.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// One after the other.
    pub alone: BTreeMap<Variant, Times>,
    /// [`PARALLEL`] at a time.
    pub parallel: BTreeMap<Variant, Times>,
}

impl Times {
    /// How many.
    pub fn count(&self) -> usize {
        self.turns.iter().map(Vec::len).sum()
    }

    /// The time that so many percent of all patches stay below.
    pub fn percentile(&self, percent: usize) -> Duration {
        percentile(self.turns.concat(), percent)
    }

    /// The median of each turn.
    pub fn medians(&self) -> impl Iterator<Item = Duration> {
        self.turns.iter().map(|turn| percentile(turn.clone(), 50))
    }

    fn add(&mut self, turn: Vec<Duration>, took: Duration) {
        self.turns.push(turn);
        self.took += took;
    }
}

impl Measured {
    /// All patches of a variant.
    pub fn patches(&self, variant: Variant) -> usize {
        [&self.alone, &self.parallel]
            .into_iter()
            .filter_map(|part| part.get(&variant))
            .map(Times::count)
            .sum()
    }
}

/// The nearest rank.
fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).copied().unwrap_or_default()
}

/// Measures all variants, in so many rounds.
///
/// # Errors
/// A patch is refused.
pub async fn all(cluster: &Cluster, rounds: u32) -> Result<Measured> {
    let mut measured = Measured::default();
    let mut reports = 0;
    for round in 0..WARM_UP + rounds {
        for variant in order(round) {
            let (turn, took) = alone(cluster, variant, reports).await?;
            if round >= WARM_UP {
                measured.alone.entry(variant).or_default().add(turn, took);
            }
        }
        reports += PORTION;
    }
    for round in 0..WARM_UP + rounds.div_ceil(TURNS) {
        for variant in order(round) {
            let (turn, took) = in_parallel(cluster, variant, reports).await?;
            if round >= WARM_UP {
                measured.parallel.entry(variant).or_default().add(turn, took);
            }
        }
        reports += PARALLEL_PORTION;
    }
    Ok(measured)
}

/// Another one begins each time, and the way round changes, so that nobody always comes after the same one.
fn order(round: u32) -> Vec<Variant> {
    let mut order = Variant::ALL.to_vec();
    let first = usize::try_from(round).unwrap_or(0) % order.len();
    order.rotate_left(first);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

async fn alone(cluster: &Cluster, variant: Variant, reports: usize) -> Result<(Vec<Duration>, Duration)> {
    let began = Instant::now();
    let mut times = Vec::new();
    if let Some(agent) = cluster.agents(variant).first() {
        for n in reports..reports + PORTION {
            times.push(agent.report(n).await?);
        }
    }
    Ok((times, began.elapsed()))
}

async fn in_parallel(
    cluster: &Cluster,
    variant: Variant,
    reports: usize,
) -> Result<(Vec<Duration>, Duration)> {
    let began = Instant::now();
    let agents = cluster.agents(variant).iter();
    let times = try_join_all(agents.map(async |agent| {
        let mut times = Vec::new();
        for n in reports..reports + PARALLEL_PORTION {
            times.push(agent.report(n).await?);
        }
        anyhow::Ok(times)
    }));
    Ok((times.await?.concat(), began.elapsed()))
}

/// Every patch was reviewed by whom it should be.
///
/// # Errors
/// A webhook was asked too rarely.
pub fn check(measured: &Measured, waits: &BTreeMap<Hook, Wait>) -> Result<()> {
    for (hook, wait) in waits {
        let asked = Variant::ALL.into_iter().filter(|variant| variant.gates().0 == Some(*hook));
        let patches: usize = asked.map(|variant| measured.patches(variant)).sum();
        let enough = usize::try_from(wait.reviews)? >= patches;
        ensure!(enough, "{hook:?}: {patches} patches, {} reviews", wait.reviews);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(times.clone(), 50), Duration::from_millis(100));
        assert_eq!(percentile(times.clone(), 99), Duration::from_millis(198));
        assert_eq!(percentile(times[..1].to_vec(), 50), Duration::from_millis(200));
        assert_eq!(percentile(vec![], 50), Duration::ZERO);
    }

    #[test]
    fn variants_take_turns_at_going_first_and_last() {
        let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
        for round in 0..10 {
            let order = order(round);
            assert_eq!(order.len(), 5);
            *first.entry(order[0]).or_insert(0) += 1;
            *last.entry(order[4]).or_insert(0) += 1;
        }
        assert!(Variant::ALL.iter().all(|variant| (first[variant], last[variant]) == (2, 2)));
    }
}
