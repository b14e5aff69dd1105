//! What admission costs an agent's status patch: every variant in turn, in small portions, so that whatever else the
//! machine does hits all alike.

mod agent;
pub mod do_nothing;
mod variants;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use brupop_testbed::median;
use futures::future::try_join_all;

pub use variants::{Variant, Variants};

use crate::say;
use crate::table::{Figure, number};

/// Patches in flight in the second part, each of another agent.
pub const PARALLEL: usize = 32;
/// Patches of each agent in one turn: of the first part, one after the other; and of the second.
const PORTION: usize = 20;
const PARALLEL_PORTION: usize = 5;
/// Turns in the first part for one in the second.
const TURNS: u32 = 4;
/// Turns before any time is taken.
const WARM_UP: u32 = 2;
/// Our webhook should stay within these factors of one that does nothing: alone, and with many patches at once.
const AIM_ALONE: f64 = 1.05;
const AIM_PARALLEL: f64 = 1.1;

type Times = BTreeMap<Variant, Vec<Duration>>;

/// Measures patches of agents with and without webhook and policies, in this number of rounds.
pub async fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let variants = Variants::start().await?;
    say("one patch after the other");
    let alone = turns(&variants, rounds, 1, PORTION).await?;
    say(&format!("{PARALLEL} patches in parallel"));
    let parallel = turns(&variants, rounds.div_ceil(TURNS), PARALLEL, PARALLEL_PORTION).await?;

    let patches = |asked: &[Variant]| {
        let times = asked.iter().flat_map(|variant| [alone.get(variant), parallel.get(variant)]);
        number(times.flatten().map(Vec::len).sum())
    };
    let [of_other, of_ours] = variants.reviews().await?;
    let all_reviewed =
        of_other >= patches(&[Variant::DoNothing]) && of_ours >= patches(&[Variant::Webhook, Variant::Both]);
    ensure!(all_reviewed, "patches were not reviewed: {of_other} and {of_ours} reviews");

    let mut figures = vec![];
    for (how, times, aim) in [
        ("one after the other".to_owned(), &alone, AIM_ALONE),
        (format!("{PARALLEL} in parallel"), &parallel, AIM_PARALLEL),
    ] {
        let p50 = |variant| {
            let times = times.get(&variant).and_then(|times| median(times.iter().copied()));
            times.map_or(f64::NAN, |time| time.as_secs_f64())
        };
        let (ours, other) = (p50(Variant::Webhook), p50(Variant::DoNothing));
        let (both, bare) = (p50(Variant::Both), p50(Variant::Bare));
        let note = |a: f64, b: f64| format!("medians of {:.2} and {:.2} ms", a * 1e3, b * 1e3);
        figures.extend([
            Figure::new(
                format!("a patch with our webhook to one with a webhook that does nothing, {how}"),
                ours / other,
                "",
            )
            .aim(aim)
            .note(note(ours, other)),
            Figure::new(
                format!("a patch with webhook and policies to one with neither, {how}"),
                both / bare,
                "",
            )
            .note(note(both, bare)),
        ]);
    }
    Ok(figures)
}

/// Lets each variant's first agents patch in turn.
async fn turns(variants: &Variants, rounds: u32, agents: usize, portion: usize) -> Result<Times> {
    let (mut all, mut reports) = (Times::new(), 0);
    for round in 0..WARM_UP + rounds {
        for variant in order(round) {
            let agents = variants.agents(variant).iter().take(agents);
            let times = try_join_all(agents.map(async |agent| {
                let mut times = vec![];
                for n in reports..reports + portion {
                    times.push(agent.report(n).await?);
                }
                anyhow::Ok(times)
            }));
            let times = times.await?.concat();
            if round >= WARM_UP {
                all.entry(variant).or_default().extend(times);
            }
        }
        reports += portion;
    }
    Ok(all)
}

/// Another one begins each time, and the way round changes, so that nobody always comes after the same one.
fn order(round: u32) -> Vec<Variant> {
    let mut order = Variant::ALL.to_vec();
    let first = usize::try_from(round / 2).unwrap_or(0) % order.len();
    order.rotate_left(first);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_begins_and_ends_as_many_rounds() {
        let orders: Vec<_> = (0..8).map(order).collect();
        for variant in Variant::ALL {
            let first = orders.iter().filter(|order| order.first() == Some(&variant)).count();
            let last = orders.iter().filter(|order| order.last() == Some(&variant)).count();
            assert_eq!((first, last), (2, 2), "{variant:?}");
        }
    }
}
