//! The hosts' own account of their boots, against what was granted.

use std::collections::BTreeMap;

use brupop_testbed::host::Ended;

use super::Violation;
use super::objects::{Grant, Objects};

/// Each reboot that a host was asked for was granted from that very boot, and claimed, and there is one for an attempt.
/// `hosts`: the boots of each node that have ended, in order.
pub(crate) fn check(hosts: &[(String, Vec<Ended>)], objects: &Objects) -> Vec<Violation> {
    let mut found = vec![];
    let mut used: BTreeMap<(&str, u64, u32), &str> = BTreeMap::new();
    for (node, boots) in hosts {
        for boot in boots.iter().filter(|boot| boot.requested) {
            let is_for = |grant: &&Grant| grant.node == *node && grant.boot_id == boot.boot_id;
            let Some(grant) = objects.grants.iter().find(is_for) else {
                found.push(Violation::new(
                    "reboot",
                    format!("{node} was rebooted from {} without a grant", boot.boot_id),
                ));
                continue;
            };
            if !objects
                .claims
                .contains(&(node.clone(), boot.boot_id.clone()))
            {
                found.push(Violation::new(
                    "reboot",
                    format!("{node} was rebooted from {} without a claim", boot.boot_id),
                ));
            }
            let attempt = (grant.shadow_uid.as_str(), grant.attempt, grant.history);
            if let Some(first) = used.insert(attempt, &boot.boot_id) {
                let what = format!(
                    "{node} was rebooted for {attempt:?} from {first} and from {}",
                    boot.boot_id
                );
                found.push(Violation::new("reboot", what));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reboots_are_granted_claimed_and_single() {
        let grant = |boot: &str| Grant {
            node: "n".to_owned(),
            boot_id: boot.to_owned(),
            shadow_uid: "u".to_owned(),
            attempt: 1,
            history: 0,
        };
        let objects = Objects {
            grants: [grant("a"), grant("b")].into(),
            claims: [("n".to_owned(), "a".to_owned())].into(),
            ..Objects::default()
        };
        let boot = |id: &str, requested| Ended {
            boot_id: id.to_owned(),
            requested,
        };
        let count = |boots: &[Ended]| check(&[("n".to_owned(), boots.to_vec())], &objects).len();
        assert_eq!(count(&[boot("a", true), boot("c", false)]), 0);
        assert_eq!(count(&[boot("c", true)]), 1, "no grant");
        assert_eq!(count(&[boot("b", true)]), 1, "no claim");
        assert_eq!(
            count(&[boot("a", true), boot("b", true)]),
            2,
            "twice, and no claim"
        );
        let again = Grant {
            history: 1,
            ..grant("b")
        };
        let restored = Objects {
            grants: [grant("a"), again].into(),
            claims: ["a", "b"]
                .map(|boot| ("n".to_owned(), boot.to_owned()))
                .into(),
            ..Objects::default()
        };
        let boots = [boot("a", true), boot("b", true)];
        assert_eq!(
            check(&[("n".to_owned(), boots.to_vec())], &restored),
            [],
            "the attempt came again"
        );
    }
}
