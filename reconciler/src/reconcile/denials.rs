//! Nodes of which the API server takes no change. Pure: the clock is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use super::requests::Key;
use crate::apply::{Call, Outcome};

/// So many denials in a row are no accident.
const IN_A_ROW: u32 = 3;
/// For so long after the last denial no update of the node begins.
const HOLDS_FOR: Duration = Duration::from_mins(5);

/// The denials of changes of Nodes, by name of the shadow.
#[derive(Debug, Default)]
pub(super) struct Denials(BTreeMap<String, Denial>);

#[derive(Debug)]
struct Denial {
    times: u32,
    why: String,
    until: Duration,
}

impl Denials {
    /// What became of a call. A grant has the key of its shadow, and changes the Node first.
    pub(super) fn answered(&mut self, key: &Key, call: &Call, outcome: &Outcome, now: Duration) {
        let (Key::Node(shadow) | Key::Shadow(shadow)) = key else { return };
        match outcome {
            Outcome::NodeDenied(why) => self.denied(shadow, why, now),
            Outcome::Written(_) if call.changes_node() => self.resolved(shadow),
            _ => {}
        }
    }

    /// A change of the Node of this shadow was denied.
    fn denied(&mut self, shadow: &str, why: &str, now: Duration) {
        let until = now + HOLDS_FOR;
        let denial =
            self.0.entry(shadow.to_owned()).or_insert(Denial { times: 0, why: String::new(), until });
        *denial = Denial { times: denial.times.saturating_add(1), why: why.to_owned(), until };
    }

    /// A change of it was made.
    fn resolved(&mut self, shadow: &str) {
        self.0.remove(shadow);
    }

    /// The nodes of which no change is taken now, and why not; and when the first of these denials is forgotten.
    pub(super) fn hold(
        &mut self,
        now: Duration,
        mut known: impl FnMut(&str) -> bool,
    ) -> (BTreeMap<String, String>, Option<Duration>) {
        self.0.retain(|shadow, denial| now < denial.until && known(shadow));
        let holding = || self.0.iter().filter(|(_, denial)| denial.times >= IN_A_ROW);
        let reasons = holding().map(|(shadow, denial)| (shadow.clone(), denial.why.clone())).collect();
        (reasons, holding().map(|(_, denial)| denial.until).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::Confirm;

    fn held(denials: &mut Denials, seconds: u64) -> Vec<String> {
        denials.hold(Duration::from_secs(seconds), |_| true).0.into_values().collect()
    }

    #[test]
    fn three_in_a_row_hold_a_node_for_a_while() {
        let mut denials = Denials::default();
        let second = Duration::from_secs(1);
        for times in 1..=3 {
            assert!(held(&mut denials, 0).is_empty(), "{times}");
            denials.denied("brs-n", "frozen", second);
        }
        assert_eq!(held(&mut denials, 300), ["frozen"]);
        assert!(held(&mut denials, 301).is_empty());
        denials.denied("brs-n", "frozen", second);
        denials.denied("brs-n", "frozen", second);
        denials.resolved("brs-n");
        denials.denied("brs-n", "frozen", second);
        assert!(held(&mut denials, 2).is_empty(), "one in a row");
    }

    #[test]
    fn a_node_denied_within_a_grant_is_booked_as_any_other() {
        let patch = || json_patch::Patch(vec![]);
        let confirm = || Confirm { node: "n".into(), patch: patch(), marker: None };
        let grant = Call::Grant { confirm: confirm(), name: "brs-n".into(), patch: patch() };
        let (of_node, of_shadow) = (Key::Node("brs-n".into()), Key::Shadow("brs-n".into()));
        let steer = Call::PatchShadow { name: "brs-n".into(), patch: patch() };
        let frozen = Outcome::NodeDenied("frozen".into());
        let mut denials = Denials::default();
        denials.answered(&of_node, &Call::ConfirmDrained(confirm()), &frozen, Duration::ZERO);
        denials.answered(&of_shadow, &grant, &frozen, Duration::ZERO);
        assert!(held(&mut denials, 0).is_empty());
        denials.answered(&of_shadow, &grant, &frozen, Duration::ZERO);
        assert_eq!(held(&mut denials, 0), ["frozen"]);
        denials.answered(&of_shadow, &steer, &Outcome::Written(None), Duration::ZERO);
        denials.answered(&of_shadow, &grant, &Outcome::Refused(String::new()), Duration::ZERO);
        assert_eq!(held(&mut denials, 0), ["frozen"], "neither has changed the Node");
        denials.answered(&of_shadow, &grant, &Outcome::Written(None), Duration::ZERO);
        assert!(held(&mut denials, 0).is_empty());
        (0..3).for_each(|_| {
            denials.answered(&of_shadow, &grant, &Outcome::Denied("the shadow".into()), Duration::ZERO);
        });
        assert!(held(&mut denials, 0).is_empty(), "that is no change of the Node");
    }

    #[test]
    fn nothing_is_kept_of_nodes_that_are_gone() {
        let mut denials = Denials::default();
        (0..3).for_each(|_| denials.denied("brs-n", "frozen", Duration::ZERO));
        assert!(denials.hold(Duration::ZERO, |_| false).0.is_empty());
        assert!(held(&mut denials, 0).is_empty());
    }
}
