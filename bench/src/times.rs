//! How long the cases take, for the table of `make bench`.

use std::time::{Duration, Instant};

use brupop_bench_cases::fleet::POOLS;
use brupop_bench_cases::{CASES, Driver, Part, pass, worst_pass};
use serde_json::{Value, json};

/// How many times are taken of each, of which the median counts.
const TIMES: usize = 31;
/// How long each of them is at least, so that the clock is fine enough.
const LONG_ENOUGH: Duration = Duration::from_millis(1);

/// As `brupop-bench --take-over` reads them.
pub fn figures() -> Value {
    let millis = |pools| {
        let parts = [Part::Observe, Part::Decide, Part::SayWhy];
        parts.map(|part| median(&mut |drive| pass(part, pools, drive))).iter().sum::<Duration>().as_secs_f64()
            * 1e3
    };
    let note = format!("sum of three medians of {TIMES}");
    let what = "a pass over 5,000 nodes: observe, decide, say why";
    let mut figures = vec![
        figure(what, millis(0), "ms", Some(5.0), &note),
        figure(&format!("{what}, {POOLS} pools"), millis(POOLS), "ms", Some(5.0), &note),
    ];
    figures.push(figure(
        "worst pass by anybody's objects",
        worst(),
        "ms",
        Some(10.0),
        "longest part, median of 3",
    ));
    let note = format!("median of {TIMES}");
    for (case, what, aim) in [
        ("verdict-report", "webhook: a status patch, from bytes to bytes", Some(50.0)),
        ("verdict-refusal", "webhook: a refusal, from bytes to bytes", None),
        ("agent-reports", "agent: a step that reports", None),
    ] {
        let run = CASES.into_iter().find(|(name, _)| *name == case).map(|(_, run)| run);
        figures.extend(
            run.map(|run| {
                figure(what, median(&mut |drive| run(drive)).as_secs_f64() * 1e6, "µs", aim, &note)
            }),
        );
    }
    Value::Array(figures)
}

/// How long the longest part of the worst pass takes.
fn worst() -> f64 {
    let longest = || {
        let mut longest = Duration::ZERO;
        worst_pass(&mut |once| longest = longest.max(time(once, 1)));
        longest
    };
    let mut times = [longest(), longest(), longest()];
    times.sort_unstable();
    times[1].as_secs_f64() * 1e3
}

fn figure(what: &str, value: f64, unit: &str, aim: Option<f64>, note: &str) -> Value {
    json!({"figure": what, "value": value, "unit": unit, "aim": aim, "met": aim.map(|aim| value <= aim), "note": note})
}

fn median(case: &mut dyn FnMut(Driver<'_>)) -> Duration {
    let mut times = vec![];
    case(&mut |once| {
        let mut often = 1;
        while time(once, often) * often < LONG_ENOUGH {
            often *= 2;
        }
        times = (0..TIMES).map(|_| time(once, often)).collect();
    });
    times.sort_unstable();
    times.get(TIMES / 2).copied().unwrap_or_default()
}

/// How long each took, of so many.
fn time(once: &mut dyn FnMut(), often: u32) -> Duration {
    let began = Instant::now();
    (0..often).for_each(|_| once());
    began.elapsed() / often
}
