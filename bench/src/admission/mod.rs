//! What admission costs an agent's status patch: every variant in turn, in small portions, so that whatever else the
//! machine does hits all alike.

mod agent;
mod variants;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use brupop_testbed::median;
use futures::future::try_join_all;

use variants::{Variant, Variants};

use crate::say;
use crate::table::Figure;

/// Patches in flight in the second part, each of another agent.
const PARALLEL: usize = 32;
/// Patches of each agent in one turn: of the first part, one after the other; and of the second.
const PORTION: usize = 20;
const PARALLEL_PORTION: usize = 5;
/// Turns in the first part for one in the second.
const TURNS: u32 = 4;
/// Turns before any time is taken.
const WARM_UP: u32 = 2;

type Times = BTreeMap<Variant, Vec<Duration>>;

/// Measures patches of agents with and without webhook and policies, in this number of rounds.
pub async fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let variants = Variants::start().await?;
    say("one patch after the other");
    let alone = turns(&variants, rounds, 1, PORTION).await?;
    say(&format!("{PARALLEL} patches in parallel"));
    let parallel = turns(&variants, rounds.div_ceil(TURNS), PARALLEL, PARALLEL_PORTION).await?;

    let mut figures = vec![];
    for (how, times) in
        [("one after the other".to_owned(), &alone), (format!("{PARALLEL} in parallel"), &parallel)]
    {
        let p50 = |variant| {
            let times = times.get(&variant).and_then(|times| median(times.iter().copied()));
            times.map_or(f64::NAN, |time| time.as_secs_f64())
        };
        let (shipped, bare) = (p50(Variant::Shipped), p50(Variant::Bare));
        let what = format!("a patch with webhook and policies to one with neither, {how}");
        let note = format!("medians of {:.2} and {:.2} ms", shipped * 1e3, bare * 1e3);
        figures.push(Figure::new(what, shipped / bare, "").note(note));
    }
    Ok(figures)
}

/// Lets each variant's first agents patch in turn.
async fn turns(variants: &Variants, rounds: u32, agents: usize, portion: usize) -> Result<Times> {
    let (mut all, mut reports) = (Times::new(), 0);
    for round in 0..WARM_UP + rounds {
        let mut order = Variant::ALL;
        // Nobody always comes after the same one.
        if round % 2 == 1 {
            order.reverse();
        }
        for variant in order {
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
