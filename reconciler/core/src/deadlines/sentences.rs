//! Until when a node waits, and by which setting, as parts of sentences for people. A sentence stays equal while its wait lasts,
//! so that no condition is written again for it.

use brupop_api::names::DEFAULT_POOL;
use brupop_api::shadow::LastFailure;
use jiff::{SignedDuration, Timestamp, Unit};

use super::{FAILED, OTHER_TARGET_BACK_OFF, back_off};
use crate::facts::PoolFacts;
use crate::times::Ahead;

/// How the node failed, and until when it backs off, as a part of a sentence; `None` if it does so no more, or the time cannot
/// be read.
pub fn back_off_text(
    failures: &LastFailure,
    base: SignedDuration,
    uid: &str,
    ahead: &Ahead,
    now: Timestamp,
) -> Option<String> {
    let since = ahead.read([uid, FAILED], Some(&failures.at), now)?;
    let until = until(since, back_off(base, failures, uid)).filter(|until| *until > now)?;
    let times = if failures.count == 1 {
        "once".to_owned()
    } else {
        format!("{} times", failures.count)
    };
    Some(format!(
        "it failed {times}, the last time at {} ({}: {}), and waits until {until}",
        failures.at, failures.reason, failures.message
    ))
}

/// Why a node waits whose last attempt, begun for this version, has neither failed nor succeeded, and until when, as a part
/// of a sentence.
pub fn given_up_text(version: &str, why: Option<&str>, transition: Timestamp) -> Option<String> {
    let until = until(transition, OTHER_TARGET_BACK_OFF)?;
    let why = why.map(|why| format!(" {why}")).unwrap_or_default();
    Some(format!(
        "the update to {version} was given up{why}; that is no failure, and the node waits until {until}"
    ))
}

/// Until when a node of this pool is monitored at least, which has been so since then, and by which setting, as a part of a
/// sentence; `None` if the pool has no rules.
pub fn verify_text(pool: &PoolFacts<'_>, since: Timestamp) -> Option<String> {
    let until = until(since, pool.rules?.durations.verify)?;
    let setting = setting(pool, "spec.verify.readyFor");
    Some(format!(
        "that ends at {until} at the earliest, and later if node or agent is not Ready meanwhile{setting}"
    ))
}

/// Until when a node of this pool, which has been monitored since then, waits for its workloads at most, and by which setting,
/// as a part of a sentence; `None` if the pool has no rules.
pub fn workloads_text(pool: &PoolFacts<'_>, since: Timestamp) -> Option<String> {
    let durations = pool.rules?.durations;
    let until = until(since, durations.verify + durations.workloads)?;
    let setting = setting(pool, "spec.verify.workloadsTimeout");
    Some(format!(
        "it keeps its slot until {until} at the latest{setting}"
    ))
}

/// Until when a node of this pool is excluded from load balancers before its drain, which has been so since then, and by
/// which setting, as a part of a sentence; `None` if the pool has no rules.
pub fn exclusion_text(pool: &PoolFacts<'_>, since: Timestamp) -> Option<String> {
    let until = until(since, pool.rules?.durations.exclusion)?;
    let setting = setting(pool, "spec.drain.loadBalancerDelay");
    Some(format!("its drain begins at {until}{setting}"))
}

fn until(since: Timestamp, wait: SignedDuration) -> Option<Timestamp> {
    let until = since.checked_add(wait).ok()?;
    Some(until.round(Unit::Second).unwrap_or(until))
}

/// The field that says so, at the end of a sentence; none for the default pool, which has no object.
fn setting(pool: &PoolFacts<'_>, field: &str) -> String {
    if pool.name == DEFAULT_POOL {
        String::new()
    } else {
        format!(" ({field} of the pool {})", pool.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;
    use crate::tests::world::at;

    #[test]
    fn steps_say_until_when_and_by_which_setting() {
        let rules = Rules::default();
        let text = |name, of: fn(&PoolFacts<'_>, Timestamp) -> Option<String>| {
            let pool = PoolFacts {
                name,
                rules: Some(&rules),
                ..PoolFacts::DEFAULT
            };
            of(&pool, at("2026-11-21T04:00:00.250Z")).unwrap()
        };
        let soak = "that ends at 2026-11-21T04:01:00Z at the earliest";
        for (name, setting) in [
            (DEFAULT_POOL, "is not Ready meanwhile"),
            ("web", "(spec.verify.readyFor of the pool web)"),
        ] {
            let text = text(name, verify_text);
            assert!(text.starts_with(soak) && text.ends_with(setting), "{text}");
        }
        assert_eq!(
            text("web", exclusion_text),
            "its drain begins at 2026-11-21T04:00:00Z (spec.drain.loadBalancerDelay of the pool web)"
        );
        assert_eq!(
            text("web", workloads_text),
            "it keeps its slot until 2026-11-21T04:16:00Z at the latest (spec.verify.workloadsTimeout of the pool web)"
        );
        assert_eq!(
            verify_text(&PoolFacts::DEFAULT, at("2026-11-21T04:00:00Z")),
            None,
            "no rules"
        );
    }

    #[test]
    fn a_node_says_until_when_it_waits() {
        let failures = |count| LastFailure {
            count,
            attempt: 7,
            at: "2026-11-21T04:00:00.250Z".into(),
            reason: "FellBack".into(),
            message: "the host came back".into(),
        };
        let now = "2026-11-21T04:01:00Z".parse().unwrap();
        let base = SignedDuration::from_mins(2);
        let text =
            |failures: &LastFailure, now| back_off_text(failures, base, "", Ahead::NONE, now);
        let event = |count| text(&failures(count), now);
        let once = "it failed once, the last time at 2026-11-21T04:00:00.250Z (FellBack: the host came back), and waits until ";
        let once = event(1)
            .unwrap()
            .strip_prefix(once)
            .map(str::to_owned)
            .unwrap();
        let end = once.parse::<Timestamp>().unwrap();
        let least = "2026-11-21T04:02:00Z".parse().unwrap();
        assert!(
            end >= least && end <= least + SignedDuration::from_secs(16),
            "{end}"
        );
        assert!(event(2).unwrap().starts_with("it failed 2 times, "));
        let given_up = |why| given_up_text("1.20.0", why, at("2026-11-21T04:00:00.250Z")).unwrap();
        let end = "; that is no failure, and the node waits until 2026-11-21T04:01:00Z";
        assert_eq!(
            given_up(None),
            format!("the update to 1.20.0 was given up{end}")
        );
        let paused = "the update to 1.20.0 was given up (NodePaused): a person paused this node";
        assert_eq!(
            given_up(Some("(NodePaused): a person paused this node")),
            format!("{paused}{end}")
        );
        assert_eq!(text(&LastFailure::default(), now), None, "no time");
        assert_eq!(
            text(&failures(1), "2026-11-21T04:03:00Z".parse().unwrap()),
            None,
            "it is over"
        );
    }
}
