//! The figures, as a table that can be pasted into the documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use brupop_testbed::figures::Figure;

use crate::measure::{Measured, Times};
use crate::variants::{Hook, PARALLEL, Variant};
use crate::waits::Wait;

/// Our webhook should stay within these factors of one that does nothing: alone, and with many patches at once.
const AIM_ALONE: f64 = 1.05;
const AIM_PARALLEL: f64 = 1.1;

/// What was measured, how patches came, and the aim for our webhook to one that does nothing.
fn parts(measured: &Measured) -> [(String, &BTreeMap<Variant, Times>, f64); 2] {
    [
        ("one after the other".to_owned(), &measured.alone, AIM_ALONE),
        (format!("{PARALLEL} in parallel"), &measured.parallel, AIM_PARALLEL),
    ]
}

/// The tables of both parts, and how our webhook compares with the one that does nothing.
pub fn render(measured: &Measured, waits: &BTreeMap<Hook, Wait>) -> String {
    let mut text = String::new();
    for (how, part, aim) in parts(measured) {
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "| {how} | patches | p50 | p99 | patches/s | p50 to bare |\n|---|---|---|---|---|---|"
        );
        let bare = part.get(&Variant::Bare).map(|times| times.percentile(50));
        for (variant, times) in part {
            let (p50, p99) = (times.percentile(50), times.percentile(99));
            let _ = writeln!(
                text,
                "| {} | {} | {} ms | {} ms | {:.0} | {:.2} |",
                says(*variant),
                times.count(),
                millis(p50),
                millis(p99),
                per_second(times),
                bare.map_or(f64::NAN, |bare| p50.as_secs_f64() / bare.as_secs_f64()),
            );
        }
        if let (Some(other), Some(ours)) = (part.get(&Variant::DoNothing), part.get(&Variant::Webhook)) {
            let _ = writeln!(text, "\n{}\n", compare(other, ours, aim));
        }
    }
    for (hook, wait) in waits {
        let mean = millis(wait.mean());
        let _ = writeln!(text, "The API server waited {mean} ms on average for {}.", name(*hook));
    }
    text
}

/// For the table of `make bench`.
pub fn figures(measured: &Measured) -> Vec<Figure> {
    let mut figures = vec![];
    for (how, part, aim) in parts(measured) {
        let p50 = |variant| part.get(&variant).map_or(f64::NAN, |times| times.percentile(50).as_secs_f64());
        let ratio = p50(Variant::Webhook) / p50(Variant::DoNothing);
        let what = format!("admission: our webhook to one that does nothing, patches {how}");
        figures.push(Figure::new(what, ratio, "").aim(aim).note("medians"));
        let ratio = p50(Variant::Both) / p50(Variant::Bare);
        let what = format!("admission: webhook and policies to neither, patches {how}");
        figures.push(Figure::new(what, ratio, "").note("medians"));
    }
    figures
}

/// Ours to the other one at the median, and how much that varies from turn to turn.
fn compare(other: &Times, ours: &Times, aim: f64) -> String {
    let ratio = ours.percentile(50).as_secs_f64() / other.percentile(50).as_secs_f64();
    let mut turns: Vec<f64> = ours
        .medians()
        .zip(other.medians())
        .map(|(ours, other)| ours.as_secs_f64() / other.as_secs_f64())
        .collect();
    turns.sort_by(f64::total_cmp);
    let (low, high) = (turns.get(turns.len() / 4), turns.get(turns.len() * 3 / 4));
    format!(
        "Our webhook to the one that does nothing, at the median: {ratio:.2} (in half of the turns between {:.2} and \
         {:.2}); the aim is {aim:.2} at most: {}.",
        low.unwrap_or(&f64::NAN),
        high.unwrap_or(&f64::NAN),
        if ratio <= aim { "reached" } else { "missed" },
    )
}

fn per_second(times: &Times) -> f64 {
    u32::try_from(times.count()).map_or(f64::NAN, f64::from) / times.took.as_secs_f64()
}

fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}

fn says(variant: Variant) -> &'static str {
    match variant {
        Variant::Bare => "neither webhook nor policies",
        Variant::Policies => "policies alone",
        Variant::DoNothing => "a webhook that does nothing",
        Variant::Webhook => "our webhook alone",
        Variant::Both => "our webhook and policies",
    }
}

fn name(hook: Hook) -> &'static str {
    match hook {
        Hook::DoNothing => "the webhook that does nothing",
        Hook::Ours => "our webhook",
    }
}
