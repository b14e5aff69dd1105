//! Why an update is given up, and which of these reasons are failures.

use std::borrow::Cow;
use std::fmt;

use super::text;

/// Whose failure it is that an update is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// People or new releases cause it, and nobody has failed.
    NoFailure,
    OfNode,
    /// The node's, because of its pods.
    OfDrain,
    /// The version's as well: it was seen on Nodes, which no agent can write.
    OfVersion,
}

words! {
/// Why an update is given up. The texts end a sentence.
Abort: Blame {
    "It counts against the version" {
        FellBack: OfVersion =>
            "the host came back with a version other than the wanted one",
            "look at the host's console; if somebody deactivated the image, and the version is halted, run the command that \
             the fleet's condition Halted ends with";
        NotReady: OfVersion => "the node was not Ready with the new version", "look at the node";
    }
    "The node failed" {
        StepFailed: OfNode =>
            "the agent could not complete the step; status.message says why",
            "repair what status.message of the shadow names";
        DeadlineExceeded: OfNode =>
            "the step took longer than it may",
            "look at the agent's log and the host's network";
        DrainBlocked: OfDrain =>
            "a budget allowed none of the disruptions that its drain needs",
            "scale the workload up, change the budget, or give its pods more time (spec.drain.timeout of the pool)";
        DrainTimedOut: OfDrain =>
            "the node could not be emptied in time",
            "repair what keeps the pod, or give it more time (spec.drain.timeout of the pool)";
        NodeChangesDenied: OfNode =>
            "the API server refuses changes of the Node or its shadow",
            "change the rule or quota, repair the webhook or the field, or remove labels and annotations, as the answer says";
        NotBottlerocket: OfNode =>
            "the host came back, and its Node's OS image names no version of Bottlerocket",
            "look at the host";
        RebootedByItself: OfNode =>
            "the host rebooted before its update was ready",
            "if it happens again, look at the host's console";
    }
    "Nobody failed" {
        CannotDrain: NoFailure =>
            "pods appeared that make the drain impossible",
            "delete the pod, remove its finalizer, or repair what is named";
        NoInPlaceUpdates: NoFailure =>
            "the host's image has no in-place updates",
            "replace the node to update it, and remove its label";
        VersionHalted: NoFailure =>
            "too many other nodes failed to reach the version",
            "see the fleet's condition Halted";
        OtherTarget: NoFailure => "the host would now update to another version, or to none";
        NodePaused: NoFailure => "a person paused this node";
        NotLabelled: NoFailure => "the node lost its opt-in label";
        PoolClosed: NoFailure =>
            "before the node was cordoned, its pool or the fleet no longer allowed the update, or another node of the control \
             plane went out of service; its image is kept";
    }
}}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl Abort {
    /// What a person does about it; empty if nobody has to do anything.
    pub fn remedy(self) -> &'static str {
        self.advice()
    }

    /// Why an update was given up, as a message tells it that names the word in brackets.
    pub fn told_by(message: &str) -> Option<Self> {
        let (_, rest) = message.split_once("given up (")?;
        Self::of_word(rest.split_once(')')?.0)
    }

    /// Whether it counts as a failure of the node, so that the node backs off. A reboot that nobody granted does: otherwise a
    /// host that crashes whenever it stages would do so every minute.
    pub fn is_failure(self) -> bool {
        self.kind() != Blame::NoFailure
    }

    /// Whether the failure of this reason is one of a drain.
    pub fn is_of_drain(reason: &str) -> bool {
        Self::of_word(reason).is_some_and(|it| it.kind() == Blame::OfDrain)
    }

    /// Whether the failure of this reason counts against a version.
    pub fn is_corroborated(reason: &str) -> bool {
        Self::of_word(reason).is_some_and(|it| it.kind() == Blame::OfVersion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadlines::sentences::given_up_text;
    use crate::decide::Reason;
    use crate::tests::world::at;

    /// A new leader reads from the condition why an update was given up, whether that was the last word or the back-off is.
    #[test]
    fn messages_tell_why_an_update_was_given_up() {
        for word in Abort::WORDS {
            let why = Abort::of_word(word).unwrap();
            let aborting = Reason::Aborting(why).message();
            let told = format!("({why:?}): {why}");
            let waits = given_up_text("1.20.0", Some(&told), at("2026-11-21T04:00:00Z")).unwrap();
            let waits = format!("{}; {waits}", Reason::BackingOff.message());
            assert_eq!(
                [Abort::told_by(&aborting), Abort::told_by(&waits)],
                [Some(why); 2]
            );
        }
        let nobody_knows = given_up_text("1.20.0", None, at("2026-11-21T04:00:00Z")).unwrap();
        assert_eq!(
            [Abort::told_by(&nobody_knows), Abort::told_by("")],
            [None; 2]
        );
    }
}
