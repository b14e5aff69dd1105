//! Where the time of a node goes: its moments in order, and how long each came after the one before.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use brupop_testbed::figures::median;
use jiff::{SignedDuration, Timestamp};

use crate::moments::Moment;

/// When a node's spec first changed.
fn began(moments: &[Moment]) -> Option<Timestamp> {
    moments.iter().find(|moment| moment.what.starts_with("spec: ")).map(|moment| moment.at)
}

/// When the slot of its update was given back: the last that happens of it.
fn ended(moments: &[Moment]) -> Option<Timestamp> {
    moments.iter().rfind(|moment| moment.what.starts_with("ledger: slot given back")).map(|moment| moment.at)
}

fn millis(time: SignedDuration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The moments that at least half of the nodes have, each at its median since the node's own first change of its spec.
pub fn render(nodes: &BTreeMap<String, Vec<Moment>>) -> String {
    let mut times: BTreeMap<(&str, usize), Vec<(SignedDuration, SignedDuration)>> = BTreeMap::new();
    for moments in nodes.values() {
        let Some((began, ended)) = began(moments).zip(ended(moments)) else { continue };
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for moment in moments.iter().filter(|moment| moment.matters && !moment.what.contains(" GET ")) {
            // The ledger's slot comes before the spec.
            if moment.at + SignedDuration::from_millis(500) < began || moment.at > ended {
                continue;
            }
            let nth = seen.entry(&moment.what).or_default();
            *nth += 1;
            times
                .entry((&moment.what, *nth))
                .or_default()
                .push((moment.at.duration_since(began), moment.took));
        }
    }
    let most = times.values().map(Vec::len).max().unwrap_or(0);
    let mut rows: Vec<_> = times
        .into_iter()
        .filter(|(_, times)| times.len() * 2 >= most)
        .map(|((what, nth), times)| {
            let (at, took): (Vec<_>, Vec<_>) = times.into_iter().unzip();
            (median(at).unwrap_or_default(), median(took).unwrap_or_default(), what, nth)
        })
        .collect();
    rows.sort_by_key(|(at, ..)| *at);
    let mut text = "Where the time of a node goes (medians, ms; since its spec first changed; until it was answered; since the \
                    answer before)\n      at    took   waited\n"
        .to_owned();
    let mut before: Option<SignedDuration> = None;
    for (at, took, what, nth) in rows {
        let waited = before.map_or(SignedDuration::ZERO, |before| at - before);
        let again = if nth > 1 { format!(" ({nth})") } else { String::new() };
        // Writing to a String does not fail.
        let _ =
            writeln!(text, "{:8.1} {:7.1} {:8.1}  {what}{again}", millis(at), millis(took), millis(waited));
        before = Some(before.unwrap_or(SignedDuration::MIN).max(at + took));
    }
    text
}

/// All moments of one node: the one in the middle, by the time until its slot was given back.
pub fn timeline(nodes: &BTreeMap<String, Vec<Moment>>) -> String {
    let mut all: Vec<_> = nodes
        .iter()
        .filter_map(|(node, moments)| {
            let (began, ended) = (began(moments)?, ended(moments)?);
            Some((ended.duration_since(began), began, ended, node, moments))
        })
        .collect();
    all.sort_by_key(|(took, ..)| *took);
    let mut text = String::new();
    if let Some((_, began, ended, node, moments)) = all.get(all.len() / 2) {
        let second = SignedDuration::from_secs(1);
        let _ = writeln!(
            text,
            "All that happened to {node} (ms; since its spec first changed; until it was answered)"
        );
        for moment in
            moments.iter().filter(|moment| moment.at + second > *began && moment.at < *ended + second)
        {
            let at = moment.at.duration_since(*began);
            let _ = writeln!(text, "{:8.1} {:7.1}  {}", millis(at), millis(moment.took), moment.what);
        }
    }
    text
}
