//! Nodes of which the API server takes no change. Pure: the clock is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

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
    /// A change of the Node of this shadow was denied.
    pub(super) fn denied(&mut self, shadow: &str, why: &str, now: Duration) {
        let until = now + HOLDS_FOR;
        let denial =
            self.0.entry(shadow.to_owned()).or_insert(Denial { times: 0, why: String::new(), until });
        *denial = Denial { times: denial.times.saturating_add(1), why: why.to_owned(), until };
    }

    /// A change of it was made.
    pub(super) fn resolved(&mut self, shadow: &str) {
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
    fn nothing_is_kept_of_nodes_that_are_gone() {
        let mut denials = Denials::default();
        (0..3).for_each(|_| denials.denied("brs-n", "frozen", Duration::ZERO));
        assert!(denials.hold(Duration::ZERO, |_| false).0.is_empty());
        assert!(held(&mut denials, 0).is_empty());
    }
}
