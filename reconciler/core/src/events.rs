//! The words of Events about updates, and of some log lines. Pure.

use brupop_api::facts::ShadowFacts;
use brupop_api::names;
use brupop_api::printable::printable;
use brupop_api::shadow::Failures;
use jiff::{SignedDuration, Timestamp, Unit};

use crate::decide::{Abort, Halted, Milestone, Reason};
use crate::drain::PodKey;
use crate::facts::NodeView;
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
    fn new(view: &NodeView<'_>, reason: &'static str, warning: bool, note: String) -> Self {
        let attempt = view.shadow.and_then(|shadow| shadow.spec.attempt).unwrap_or(0);
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

/// The Event of this milestone.
pub fn of_milestone(view: &NodeView<'_>, milestone: Milestone) -> Option<EventText> {
    let shadow = view.shadow?;
    let version = shadow.spec.version.unwrap_or("its new version");
    let current = shadow.status.current_version.unwrap_or("an unknown version");
    let (reason, warning, note) = match milestone {
        Milestone::Started => {
            let to = shadow.update().unwrap_or(version);
            ("UpdateStarted", false, format!("the update from {current} to {to} begins"))
        }
        Milestone::Adopted => {
            ("UpdateAdopted", false, format!("an update to {version} that was in progress is taken over"))
        }
        Milestone::Cordoned => ("Cordoned", false, cordoned(view, version)),
        Milestone::CordonedAgain => {
            let note = format!(
                "somebody uncordoned the node during its drain for {version}, so pods may have come: it is drained again; \
                 to keep it in service, annotate it with {}=true",
                names::PAUSE_ANNOTATION
            );
            ("CordonedAgain", true, note)
        }
        Milestone::PodsLeft => ("PodsLeft", true, of_left(view.pods.returning)),
        Milestone::Drained => ("Drained", false, "all pods that had to move have left the node".to_owned()),
        Milestone::RebootGranted => {
            ("RebootGranted", false, format!("the node is drained; its host may reboot into {version}"))
        }
        Milestone::ReturnedToService => (
            "ReturnedToService",
            false,
            "the changes that were made to the node for its update are undone".to_owned(),
        ),
        Milestone::Updated => ("Updated", false, format!("the node runs {version}")),
        Milestone::Aborted(why) => {
            let (left, why) = (left_behind(&shadow, why), Reason::Aborting(why).message());
            ("UpdateAborted", true, format!("{why} ({current}, wanted {version}){left}"))
        }
    };
    Some(EventText::new(view, reason, warning, note))
}

/// Why the node is cordoned, and whether it stays so.
fn cordoned(view: &NodeView<'_>, version: &str) -> String {
    let is_persons = view.node.is_some_and(|node| {
        node.unschedulable && node.marker.is_none_or(|marker| marker.cordoned_at.is_none())
    });
    let stays = if is_persons { "; it was cordoned before, and stays cordoned" } else { "" };
    format!("the node is cordoned, to be drained for {version}{stays}")
}

/// What becomes of pods of these workloads, which came back each time that they were evicted.
pub fn of_left(owners: &[String]) -> String {
    format!(
        "pods of {} came back each time they were evicted: they stay until the host reboots",
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
            "; its agent is gone and cannot undo anything: if {version} was activated, it stays so, and the host's next \
             reboot will boot it"
        ),
        _ if why == Abort::NotLabelled => String::new(),
        _ => "; its agent undoes its changes to the host".to_owned(),
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
        note: format!(
            "no further node is updated to these versions, because too many nodes failed to reach them: {note}"
        ),
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
            "labelled {label}={}, because it runs Bottlerocket (AUTO_LABEL); to opt it out: kubectl label node {node} \
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
pub fn of_refusal(view: &NodeView<'_>, pod: &PodKey, why: &str) -> EventText {
    let note = format!("{}/{} is not evicted: {why}", pod.namespace, pod.name);
    EventText::new(view, "DrainBlocked", true, note)
}

/// The Event of a node whose reason becomes this one without a write of ours; `None` for most reasons.
pub fn of_reason(view: &NodeView<'_>, reason: &Reason<'_>) -> Option<EventText> {
    let (word, warning) = match reason {
        Reason::Rebooting => ("Rebooting", false),
        Reason::RebootOverdue => ("RebootOverdue", true),
        _ => return None,
    };
    Some(EventText::new(view, word, warning, reason.message().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::NodeFacts;
    use crate::fixtures;
    use brupop_api::Marker;
    use brupop_api::facts::{SpecFacts, StatusFacts};
    use brupop_api::printable::is_printable;

    fn view() -> NodeView<'static> {
        NodeView {
            node: Some(fixtures::NODE),
            shadow: Some(ShadowFacts {
                name: "brs-n",
                uid: "u",
                generation: 1,
                spec: SpecFacts { version: Some("2.0.0"), attempt: Some(4), ..SpecFacts::default() },
                status: StatusFacts {
                    current_version: Some("1.0.0"),
                    attempt: Some(4),
                    ..StatusFacts::default()
                },
            }),
            ..fixtures::nothing("brs-n")
        }
    }

    #[test]
    fn each_milestone_has_its_word() {
        for (milestone, word, warning) in [
            (Milestone::Started, "UpdateStarted", false),
            (Milestone::Adopted, "UpdateAdopted", false),
            (Milestone::Cordoned, "Cordoned", false),
            (Milestone::CordonedAgain, "CordonedAgain", true),
            (Milestone::PodsLeft, "PodsLeft", true),
            (Milestone::Drained, "Drained", false),
            (Milestone::RebootGranted, "RebootGranted", false),
            (Milestone::ReturnedToService, "ReturnedToService", false),
            (Milestone::Updated, "Updated", false),
            (Milestone::Aborted(Abort::FellBack), "UpdateAborted", true),
        ] {
            let event = of_milestone(&view(), milestone).unwrap();
            assert_eq!((event.reason, event.warning), (word, warning), "{milestone:?}");
            assert_eq!(event.action, "UpdateAttempt4");
        }
    }

    #[test]
    fn a_cordon_says_whether_it_stays() {
        let then = || Some("2026-11-21T04:00:00Z".to_owned());
        let excluded = Marker { excluded_at: then(), ..Marker::default() };
        let adopted = Marker { cordoned_at: then(), ..Marker::default() };
        for (marker, unschedulable, end) in [
            (None, false, "emptied for 2.0.0"),
            (Some(&excluded), false, "emptied for 2.0.0"),
            (None, true, "stays so after"),
            (Some(&adopted), true, "emptied for 2.0.0"),
        ] {
            let mut view = view();
            view.node = Some(NodeFacts { unschedulable, marker, ..fixtures::NODE });
            let event = of_milestone(&view, Milestone::Cordoned).unwrap();
            assert!(event.note.ends_with(end), "{marker:?} {unschedulable}: {}", event.note);
        }
    }

    #[test]
    fn what_is_left_on_the_host_is_told_by_who_could_undo_it() {
        let note = |why, attempt, current: &'static str| {
            let mut view = view();
            let shadow = view.shadow.as_mut().unwrap();
            shadow.status.attempt = attempt;
            shadow.status.current_version = Some(current);
            of_milestone(&view, Milestone::Aborted(why)).unwrap().note
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
        let mut view = view();
        let shadow = view.shadow.as_mut().unwrap();
        (shadow.status.current_version, shadow.spec.version) = (Some(hostile), Some(hostile));
        let pod = PodKey { namespace: "shop".into(), name: hostile.into(), uid: "u".into() };
        let halted = Halted { version: hostile, why: hostile.to_owned() };
        for event in [
            of_milestone(&view, Milestone::Started).unwrap(),
            of_milestone(&view, Milestone::Cordoned).unwrap(),
            of_milestone(&view, Milestone::Updated).unwrap(),
            of_milestone(&view, Milestone::Aborted(Abort::StepFailed)).unwrap(),
            of_refusal(&view, &pod, hostile),
            of_no_opt_in(hostile),
            of_halts(&[halted]).unwrap(),
        ] {
            let (note, action) = (event.printable_note(), event.printable_action());
            assert!(note.contains(shown) && is_printable(&note) && is_printable(&action), "{note:?}");
        }
        let long = of_refusal(&view, &pod, &"é\n".repeat(5000));
        assert!((1000..=1024).contains(&long.printable_note().len()));
    }

    #[test]
    fn a_refused_eviction_is_told_in_the_budgets_words() {
        let pod = PodKey { namespace: "shop".into(), name: "cart-1".into(), uid: "u".into() };
        let why = "The disruption budget cart needs 6 healthy pods and has 6 currently";
        let event = of_refusal(&view(), &pod, why);
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
        let of = |reason| of_reason(&view(), &reason).map(|event| (event.reason, event.warning));
        assert_eq!(of(Reason::Rebooting), Some(("Rebooting", false)));
        assert_eq!(of(Reason::RebootOverdue), Some(("RebootOverdue", true)));
        assert_eq!(of(Reason::Draining), None);
    }
}
