//! The words of Events about updates, and of some log lines. Pure.

use brupop_api::facts::ShadowFacts;
use brupop_api::printable::printable;
use brupop_api::shadow::Failures;
use brupop_api::{Object, State, names};
use jiff::{SignedDuration, Timestamp, Unit};

use crate::decide::{Abort, Decision, Effect, Halted, Reason};
use crate::drain::PodKey;
use crate::facts::Situation;
use crate::observe::back_off;

/// The action in Events about opting in.
const AUTO_LABEL: &str = "AutoLabel";
/// Longest `note` that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;
/// Longest `action` that it takes.
const MAX_ACTION: usize = 128;

/// What an Event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    /// `reason`: a stable word.
    pub reason: &'static str,
    /// Is it of the type Warning?
    pub warning: bool,
    /// `note`: a sentence.
    pub note: String,
    /// `action`: what was being done. It names the attempt, so that the Events of two attempts are not merged into one.
    pub action: String,
}

impl EventText {
    fn new(situation: &Situation<'_>, reason: &'static str, warning: bool, note: String) -> Self {
        let attempt = situation.shadow.and_then(|shadow| shadow.spec.attempt).unwrap_or(0);
        Self { reason, warning, note, action: format!("UpdateAttempt{attempt}") }
    }

    /// The note as it is published: it may quote agents, hosts and API servers.
    pub fn printable_note(&self) -> String {
        printable(&self.note, MAX_NOTE).into_owned()
    }

    /// The action as it is published.
    pub fn printable_action(&self) -> String {
        printable(&self.action, MAX_ACTION).into_owned()
    }
}

/// The Event to publish once this decision was carried out; `None` for steps that need none.
pub fn of_effect(situation: &Situation<'_>, decision: &Decision<'_>) -> Option<EventText> {
    let event = |reason, note: String| Some(EventText::new(situation, reason, false, note));
    let shadow = situation.shadow?;
    let version = shadow.spec.version.unwrap_or("its new version");
    let current = shadow.status.current_version.unwrap_or("an unknown version");
    let object = match decision.effect.as_ref()? {
        Effect::ConfirmDrained(_) => return event("Drained", "no pod is left that had to move".to_owned()),
        Effect::Grant { .. } => {
            return event("RebootGranted", format!("the node is empty; its host may reboot into {version}"));
        }
        Effect::Write(write) => write.object,
        Effect::CreateShadow { .. } | Effect::DeleteShadow { .. } | Effect::Evict | Effect::Delete => {
            return None;
        }
    };
    match (object, decision.reason) {
        (Object::ShadowSpec(_), Reason::Starting(to)) if shadow.spec.state == State::Idle => {
            event("UpdateStarted", format!("the update from {current} to {to} begins"))
        }
        (Object::ShadowSpec(_), Reason::Starting(to)) => {
            event("UpdateAdopted", format!("an update to {to} that was under way is taken over"))
        }
        (Object::Node(_), Reason::Cordoning) => cordoned(situation, version),
        (Object::Node(_), Reason::Draining) if !situation.pods.returning.is_empty() => {
            Some(EventText::new(situation, "PodsLeft", true, of_left(situation.pods.returning)))
        }
        (Object::Node(_), Reason::ReturningToService) => {
            event("ReturnedToService", "what was changed on the node for its update is undone".to_owned())
        }
        (Object::ShadowSpec(_), Reason::Finishing) => event("Updated", format!("the node runs {version}")),
        (Object::ShadowSpec(_), Reason::Aborting(why)) => {
            let left = left_behind(&shadow, why);
            let note = format!("{} ({current}, wanted {version}){left}", decision.reason.message());
            Some(EventText::new(situation, "UpdateAborted", true, note))
        }
        _ => None,
    }
}

/// The Event of a cordon. If somebody uncordoned the node in mid-drain, it says what becomes of that.
fn cordoned(situation: &Situation<'_>, version: &str) -> Option<EventText> {
    let node = situation.node?;
    let is_ours = node.marker.is_some_and(|marker| marker.cordoned_at.is_some());
    let drains = node.marker.is_some_and(|marker| marker.drain_started_at.is_some());
    let (word, sentence) = match (drains, node.unschedulable) {
        (true, false) => (
            "CordonedAgain",
            format!(
                "somebody uncordoned it while it was emptied for {version}, so pods may have come: it is emptied anew; \
                 to leave it in service, annotate it with {}=true",
                names::PAUSE_ANNOTATION
            ),
        ),
        // It was cordoned, and gets our taint, too, now that there is another node.
        (true, true) => return None,
        (false, true) if !is_ours => {
            ("Cordoned", format!("to be emptied for {version}; it was cordoned before, and stays so after"))
        }
        (false, _) => ("Cordoned", format!("to be emptied for {version}")),
    };
    Some(EventText::new(situation, word, drains, sentence))
}

/// What becomes of pods of these workloads, which came back each time that they were evicted.
pub fn of_left(owners: &[String]) -> String {
    format!(
        "pods of {} came back each time that they were evicted: they stay, and go down with the host",
        owners.join(", ")
    )
}

/// What an attempt that is given up leaves on the host, as the end of a sentence; empty if nothing.
fn left_behind(shadow: &ShadowFacts<'_>, why: Abort) -> String {
    let (status, spec) = (&shadow.status, &shadow.spec);
    match spec.version {
        _ if status.attempt != spec.attempt => String::new(),
        // It runs what it booted into, and nothing is undone.
        _ if why == Abort::FellBack || spec.version == status.current_version => String::new(),
        // The DaemonSet's pod went with the label.
        Some(version) if why == Abort::NotLabelled => format!(
            "; its agent is gone and undoes nothing: if {version} was activated, it stays so, and the host's next \
             reboot is into it"
        ),
        _ if why == Abort::NotLabelled => String::new(),
        _ => "; its agent undoes what it did".to_owned(),
    }
}

/// How the node failed, and until when it backs off, as a part of a sentence; `None` if the time cannot be read.
pub fn of_failures(failures: &Failures, base: SignedDuration, uid: &str) -> Option<String> {
    let failed_at: Timestamp = failures.at.parse().ok()?;
    let until = failed_at.checked_add(back_off(base, failures.count, uid)).ok()?;
    let until = until.round(Unit::Second).unwrap_or(until);
    let times = if failures.count == 1 { "once".to_owned() } else { format!("{} times", failures.count) };
    Some(format!(
        "it failed {times}, the last time at {} ({}), and waits until {until}",
        failures.at, failures.reason
    ))
}

/// The Event for versions that are halted now; `None` if there are none.
pub fn of_halts(halted: &[Halted<'_>]) -> Option<EventText> {
    let each = halted.iter().map(|halted| format!("{}: {}", halted.version, halted.why));
    let note = each.collect::<Vec<_>>().join("; ");
    let action = halted.first()?.version;
    Some(EventText {
        reason: "VersionHalted",
        warning: true,
        note: format!("no further node is updated to what too many nodes failed to reach: {note}"),
        action: format!("Update to {action}"),
    })
}

/// The Event of the fleet when another operator is found, which this sentence names.
pub fn of_other_operator(why: &str) -> EventText {
    EventText {
        reason: "OtherOperator",
        warning: true,
        note: format!("no update starts: {why}"),
        action: "LookAround".to_owned(),
    }
}

/// The Event of the node of this name, when the reconciler has opted it in (`AUTO_LABEL`).
pub fn of_opt_in(node: &str) -> EventText {
    let label = names::UPDATER_INTERFACE_LABEL;
    EventText {
        reason: "OptedIn",
        warning: false,
        note: format!(
            "labelled {label}={}, for it runs Bottlerocket (AUTO_LABEL); to leave it out: kubectl label node {node} \
             {label}={} --overwrite",
            names::UPDATER_INTERFACE_VERSION,
            names::LEFT_OUT
        ),
        action: AUTO_LABEL.to_owned(),
    }
}

/// The Event of a node that could not be opted in. `why` is the answer of the API server, or the error on the way to
/// it.
pub fn of_no_opt_in(why: &str) -> EventText {
    let ours = ["ValidatingAdmissionPolicy", names::LABEL_RULE].iter().all(|part| why.contains(part));
    let note = if ours {
        "AUTO_LABEL is true, but the policy does not let the reconciler label nodes: apply an overlay with the component \
         auto-label, or set AUTO_LABEL to false"
            .to_owned()
    } else {
        format!("AUTO_LABEL is true, but this node could not be labelled: {why}")
    };
    EventText { reason: "NotOptedIn", warning: true, note, action: AUTO_LABEL.to_owned() }
}

/// The Event of a drain that is held up: which eviction is refused, and in which words.
pub fn of_refusal(situation: &Situation<'_>, pod: &PodKey, why: &str) -> EventText {
    let note = format!("{}/{} is not evicted: {why}", pod.namespace, pod.name);
    EventText::new(situation, "DrainBlocked", true, note)
}

/// The Event of a node whose reason becomes this one without a write of ours; `None` for most reasons.
pub fn of_reason(situation: &Situation<'_>, reason: &Reason<'_>) -> Option<EventText> {
    let (word, warning) = match reason {
        Reason::Rebooting => ("Rebooting", false),
        Reason::RebootOverdue => ("RebootOverdue", true),
        _ => return None,
    };
    Some(EventText::new(situation, word, warning, reason.message().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Evicted, NodeFacts, PodFacts, TimeFacts};
    use crate::fixtures;
    use brupop_api::facts::{SpecFacts, StatusFacts};
    use brupop_api::printable::is_printable;
    use brupop_api::{Marker, Write};

    fn situation(state: State) -> Situation<'static> {
        Situation {
            shadow_name: "brs-n",
            node: Some(fixtures::NODE),
            shadow: Some(ShadowFacts {
                name: "brs-n",
                uid: "u",
                generation: 1,
                spec: SpecFacts { state, version: Some("2.0.0"), attempt: Some(4), ..SpecFacts::default() },
                status: StatusFacts {
                    current_version: Some("1.0.0"),
                    attempt: Some(4),
                    ..StatusFacts::default()
                },
            }),
            owner_uid: None,
            pods: PodFacts::default(),
            denied: None,
            evicted: Evicted::Back,
            time: TimeFacts::default(),
        }
    }

    #[test]
    fn each_step_is_told_by_a_stable_word() {
        let spec =
            || Effect::Write(Write { object: Object::ShadowSpec("brs-n"), tests: vec![], sets: vec![] });
        let node = || Effect::Write(Write { object: Object::Node("n"), tests: vec![], sets: vec![] });
        let write = |object| Write { object, tests: vec![], sets: vec![] };
        let confirm = || write(Object::Node("n"));
        let drained = Effect::ConfirmDrained(confirm());
        let granted = Effect::Grant { confirm: confirm(), grant: write(Object::ShadowSpec("brs-n")) };
        for (state, effect, reason, word, warning) in [
            (State::Idle, spec(), Reason::Starting("2.0.0"), "UpdateStarted", false),
            (State::RebootedIntoUpdate, spec(), Reason::Starting("2.0.0"), "UpdateAdopted", false),
            (State::StagedAndPerformedUpdate, node(), Reason::Cordoning, "Cordoned", false),
            (State::StagedAndPerformedUpdate, drained, Reason::Draining, "Drained", false),
            (State::StagedAndPerformedUpdate, granted, Reason::Draining, "RebootGranted", false),
            (State::RebootedIntoUpdate, node(), Reason::ReturningToService, "ReturnedToService", false),
            (State::MonitoringUpdate, spec(), Reason::Finishing, "Updated", false),
            (State::RebootedIntoUpdate, spec(), Reason::Aborting(Abort::FellBack), "UpdateAborted", true),
        ] {
            let event = of_effect(&situation(state), &Decision { effect: Some(effect), reason }).unwrap();
            assert_eq!((event.reason, event.warning), (word, warning), "{reason:?}");
            assert_eq!(event.action, "UpdateAttempt4");
        }
        let waiting = Decision { effect: None, reason: Reason::Staging("2.0.0") };
        assert_eq!(of_effect(&situation(State::StagedAndPerformedUpdate), &waiting), None);
        let withdrawn = Decision { effect: Some(spec()), reason: Reason::Draining };
        assert_eq!(of_effect(&situation(State::RebootedIntoUpdate), &withdrawn), None);
        let evicting = Decision { effect: Some(Effect::Evict), reason: Reason::Draining };
        assert_eq!(of_effect(&situation(State::StagedAndPerformedUpdate), &evicting), None);
    }

    #[test]
    fn a_cordon_is_told_apart_from_one_that_somebody_had_undone() {
        let then = || Some("2026-11-21T04:00:00Z".to_owned());
        let excluded = Marker { excluded_at: then(), ..Marker::default() };
        let adopted = Marker { cordoned_at: then(), ..Marker::default() };
        let draining = Marker { drain_started_at: then(), ..Marker::default() };
        for (marker, unschedulable, expected) in [
            (None, false, Some(("Cordoned", false, "emptied for 2.0.0"))),
            (Some(&excluded), false, Some(("Cordoned", false, "emptied for 2.0.0"))),
            (None, true, Some(("Cordoned", false, "stays so after"))),
            (Some(&adopted), true, Some(("Cordoned", false, "emptied for 2.0.0"))),
            (Some(&draining), false, Some(("CordonedAgain", true, "brupop.bottlerocket.aws/pause=true"))),
            (Some(&draining), true, None),
        ] {
            let mut situation = situation(State::StagedAndPerformedUpdate);
            situation.node = Some(NodeFacts { unschedulable, marker, ..fixtures::NODE });
            let write = Write { object: Object::Node("n"), tests: vec![], sets: vec![] };
            let decision = Decision { effect: Some(Effect::Write(write)), reason: Reason::Cordoning };
            let event = of_effect(&situation, &decision);
            assert_eq!(
                event.as_ref().map(|event| (event.reason, event.warning)),
                expected.map(|(reason, warning, _)| (reason, warning)),
                "{marker:?} {unschedulable}"
            );
            assert!(
                event.is_none_or(|event| expected.is_some_and(|(_, _, note)| event.note.ends_with(note)))
            );
        }
    }

    #[test]
    fn what_is_left_on_the_host_is_told_by_who_could_undo_it() {
        let note = |why, attempt, current: &'static str| {
            let mut situation = situation(State::StagedAndPerformedUpdate);
            let shadow = situation.shadow.as_mut().unwrap();
            shadow.status.attempt = attempt;
            shadow.status.current_version = Some(current);
            let write = Write { object: Object::ShadowSpec("brs-n"), tests: vec![], sets: vec![] };
            let decision = Decision { effect: Some(Effect::Write(write)), reason: Reason::Aborting(why) };
            of_effect(&situation, &decision).unwrap().note
        };
        let undone = "its agent undoes what it did";
        assert!(note(Abort::NodePaused, Some(4), "1.0.0").ends_with(undone));
        let stays = note(Abort::NotLabelled, Some(4), "1.0.0");
        assert!(stays.contains("if 2.0.0 was activated, it stays so") && !stays.contains(undone), "{stays}");
        for note in [
            note(Abort::DeadlineExceeded, Some(3), "1.0.0"),
            note(Abort::NotLabelled, Some(3), "1.0.0"),
            note(Abort::NotLabelled, Some(4), "2.0.0"),
        ] {
            assert!(note.ends_with("wanted 2.0.0)"), "{note}");
        }
    }

    #[test]
    fn events_are_printable_whatever_is_quoted() {
        let hostile = "1.0.0\u{1b}[2J\nUpdated: \u{9b}\u{202e}";
        let shown = r"1.0.0\u{1b}[2J\nUpdated: \u{9b}\u{202e}";
        let mut situation = situation(State::Idle);
        let shadow = situation.shadow.as_mut().unwrap();
        (shadow.status.current_version, shadow.spec.version) = (Some(hostile), Some(hostile));
        let decision = |object, reason| {
            let write = Write { object, tests: vec![], sets: vec![] };
            Decision { effect: Some(Effect::Write(write)), reason }
        };
        let pod = PodKey { namespace: "shop".into(), name: hostile.into(), uid: "u".into() };
        let halted = Halted { version: hostile, why: hostile.to_owned() };
        for event in [
            of_effect(&situation, &decision(Object::ShadowSpec("brs-n"), Reason::Starting(hostile))).unwrap(),
            of_effect(&situation, &decision(Object::Node("n"), Reason::Cordoning)).unwrap(),
            of_effect(&situation, &decision(Object::ShadowSpec("brs-n"), Reason::Finishing)).unwrap(),
            of_effect(
                &situation,
                &decision(Object::ShadowSpec("brs-n"), Reason::Aborting(Abort::StepFailed)),
            )
            .unwrap(),
            of_refusal(&situation, &pod, hostile),
            of_no_opt_in(hostile),
            of_halts(&[halted]).unwrap(),
        ] {
            let (note, action) = (event.printable_note(), event.printable_action());
            assert!(note.contains(shown) && is_printable(&note) && is_printable(&action), "{note:?}");
        }
        let long = of_refusal(&situation, &pod, &"é\n".repeat(5000));
        assert!((1000..=1024).contains(&long.printable_note().len()));
    }

    #[test]
    fn a_refused_eviction_is_told_in_the_budgets_words() {
        let pod = PodKey { namespace: "shop".into(), name: "cart-1".into(), uid: "u".into() };
        let why = "The disruption budget cart needs 6 healthy pods and has 6 currently";
        let event = of_refusal(&situation(State::StagedAndPerformedUpdate), &pod, why);
        assert_eq!((event.reason, event.warning), ("DrainBlocked", true));
        assert_eq!(event.note, format!("shop/cart-1 is not evicted: {why}"));
        assert_eq!(event.action, "UpdateAttempt4");
    }

    #[test]
    fn who_cannot_be_opted_in_says_what_to_do() {
        let denied = |rule: &str| {
            of_no_opt_in(&format!("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {rule}: x"))
        };
        let (ours, theirs) = (denied("reconciler-node-labels"), denied("nodes-are-frozen"));
        assert!(ours.note.contains("component auto-label"), "{}", ours.note);
        assert!(
            theirs.note.contains("nodes-are-frozen") && !theirs.note.contains("component"),
            "{}",
            theirs.note
        );
        assert_eq!(ours, of_no_opt_in("ValidatingAdmissionPolicy … reconciler-node-labels of another node"));
        assert!((1000..=1024).contains(&of_no_opt_in(&"long".repeat(1000)).printable_note().len()));
        let leave_out = "kubectl label node n-1 bottlerocket.aws/updater-interface-version=none --overwrite";
        assert!(of_opt_in("n-1").note.ends_with(leave_out), "{}", of_opt_in("n-1").note);
    }

    #[test]
    fn a_node_that_backs_off_says_why_and_until_when() {
        let failures = |count| Failures {
            count,
            attempt: 7,
            at: "2026-11-21T04:00:00.250Z".into(),
            reason: "FellBack".into(),
        };
        let event = |count| of_failures(&failures(count), SignedDuration::from_mins(2), "");
        let once = "it failed once, the last time at 2026-11-21T04:00:00.250Z (FellBack), and waits until ";
        let end = event(1).unwrap().strip_prefix(once).unwrap().parse::<Timestamp>().unwrap();
        let least = "2026-11-21T04:02:00Z".parse().unwrap();
        assert!(end >= least && end <= least + SignedDuration::from_secs(16), "{end}");
        assert!(event(2).unwrap().starts_with("it failed 2 times, "));
        assert_eq!(of_failures(&Failures::default(), SignedDuration::from_mins(2), ""), None, "no time");
    }

    #[test]
    fn a_reboot_that_is_overdue_is_a_warning() {
        let of = |reason| {
            of_reason(&situation(State::RebootedIntoUpdate), &reason)
                .map(|event| (event.reason, event.warning))
        };
        assert_eq!(of(Reason::Rebooting), Some(("Rebooting", false)));
        assert_eq!(of(Reason::RebootOverdue), Some(("RebootOverdue", true)));
        assert_eq!(of(Reason::Draining), None);
    }
}
