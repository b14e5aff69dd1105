//! Measures the time of a pass and of a verdict, without a cluster.

use std::time::{Duration, Instant};

use brupop_bench_cases::fleet::POOLS;
use brupop_bench_cases::{Driver, pass, verdict};
use brupop_testbed::median;

use crate::table::Figure;

/// Number of runs of each case; the median counts.
const TIMES: usize = 31;
/// Shortest duration of each, so that the clock is fine enough.
const LONG_ENOUGH: Duration = Duration::from_millis(1);

/// Measures a pass of the reconciler, and a verdict of the webhook.
pub fn measure() -> Vec<Figure> {
    let millis = |pools| {
        let time = typical(&mut |drive| pass(pools, drive));
        time.as_secs_f64() * 1e3
    };
    let micros = |is_agent| typical(&mut |drive| verdict(is_agent, drive)).as_secs_f64() * 1e6;
    let what = "a pass over 5,000 nodes: observe, decide, say why";
    vec![
        Figure::new(what, millis(0), "ms").aim(5.0),
        Figure::new(format!("{what}, {POOLS} pools"), millis(POOLS), "ms").aim(5.0),
        Figure::new(
            "webhook: a status patch, from bytes to bytes",
            micros(true),
            "µs",
        )
        .aim(50.0),
        Figure::new(
            "webhook: a refusal, from bytes to bytes",
            micros(false),
            "µs",
        ),
    ]
}

fn typical(case: &mut dyn FnMut(Driver<'_>)) -> Duration {
    let mut times = vec![];
    case(&mut |once| {
        let mut often = 1;
        while time(once, often) * often < LONG_ENOUGH {
            often *= 2;
        }
        times = (0..TIMES).map(|_| time(once, often)).collect();
    });
    median(times).unwrap_or_default()
}

/// The time of one of this number of runs.
fn time(once: &mut dyn FnMut(), often: u32) -> Duration {
    let began = Instant::now();
    (0..often).for_each(|_| once());
    began.elapsed() / often
}
