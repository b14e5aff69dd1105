use super::*;
use crate::admission_probe::{self, Met};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn finding(webhook: Met) -> admission_probe::Finding {
    admission_probe::Finding { webhook, policy: Met::Refusal }
}

#[test]
fn shut_until_proven_and_whenever_disproven() {
    let mut admission = Check::new(s(60));
    assert!(admission.holds().is_err());
    assert_eq!(admission.due(), Some(s(0)));
    admission.begin();
    assert_eq!(admission.due(), None);
    assert!(admission.found(&finding(Met::Refusal), s(1)));
    assert_eq!((admission.holds(), admission.due()), (Ok(()), Some(s(61))));
    assert!(!admission.found(&finding(Met::Refusal), s(61)));
    assert!(admission.found(&finding(Met::Nobody), s(121)));
    assert!(admission.holds().unwrap_err().contains("was allowed"));
    assert_eq!(admission.due(), Some(s(122)), "tried again soon");
}

#[test]
fn retries_slow_down_to_the_interval() {
    let mut admission = Check::new(s(10));
    for (now, next) in [(0, 1), (1, 3), (3, 7), (7, 15), (15, 25), (25, 35)] {
        admission.found(&finding(Met::Else("x".into())), s(now));
        assert_eq!(admission.due(), Some(s(next)));
    }
}

#[test]
fn a_proof_outlasts_a_missing_answer() {
    let mut admission = Check::new(s(60));
    let unknown = finding(Met::Nothing("timeout".into()));
    admission.found(&finding(Met::Refusal), s(0));
    assert!(!admission.found(&unknown, s(179)));
    assert_eq!(admission.holds(), Ok(()));
    assert!(admission.found(&unknown, s(180)));
    assert!(admission.holds().unwrap_err().contains("timeout"));
}

#[test]
fn one_half_let_through_shuts_at_once() {
    let mut admission = Check::new(s(60));
    admission.found(&finding(Met::Refusal), s(0));
    let half = admission_probe::Finding { webhook: Met::Nobody, policy: Met::Nothing("timeout".into()) };
    assert!(admission.found(&half, s(60)));
    assert!(admission.holds().unwrap_err().contains("was allowed"));
}

#[test]
fn an_operator_found_counts_before_all_is_known() {
    let looked = |found: &[&str], unknown: Option<&str>| OtherOperator {
        found: found.iter().map(ToString::to_string).collect(),
        unknown: unknown.map(str::to_owned),
    };
    assert_eq!(looked(&[], None).holds(), Ok(()));
    let both = looked(&["a/brupop-apiserver"], Some("timeout"));
    let why = both.holds().unwrap_err();
    assert!(why.contains("a/brupop-apiserver") && why.contains("docs/from-upstream.md"), "{why}");
    assert!(!both.is_unknown());
    let silent = looked(&[], Some("timeout"));
    assert!(silent.is_unknown() && silent.holds().unwrap_err().contains("too: timeout"));
}

#[test]
fn the_role_that_is_shipped_names_them_all() {
    let shipped = include_str!("../../../manifests/reconciler-cluster-role.yaml");
    assert!(shipped.contains(&format!("resourceNames: [{}]", DEPLOYMENTS.join(", "))), "{DEPLOYMENTS:?}");
}
