//! Which versions pools allow, and since when two nodes at a time have named each: as what they run, or would be updated to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value as Json;

use crate::checker::json::text;

/// This many nodes have to name a version before it grows old.
const WITNESSES: usize = 2;
/// Revisions may be read so much later than the leader has read them, because etcd stood still between.
const LATE: Duration = Duration::from_secs(6);

/// What was named so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions {
    named: BTreeMap<String, BTreeSet<String>>,
    since: BTreeMap<String, Duration>,
}

impl Versions {
    /// A shadow is written, or deleted.
    pub(crate) fn shadow(&mut self, name: &str, after: Option<&Json>, now: Duration) {
        let Some(after) = after else {
            self.named.remove(name);
            return;
        };
        let versions = ["/status/current_version", "/status/target_version"].map(|it| text(after, it));
        let versions = versions.into_iter().filter(|version| !version.is_empty()).map(str::to_owned);
        let versions: BTreeSet<String> = versions.collect();
        self.named.insert(name.to_owned(), versions.clone());
        for version in versions {
            let witnesses = self.named.values().filter(|named| named.contains(&version)).count();
            if witnesses >= WITNESSES {
                self.since.entry(version).or_insert(now);
            }
        }
    }

    /// Why a pool with this spec does not allow this version: the rule, and what it says.
    pub(crate) fn why_not(
        &self,
        spec: &Json,
        version: &str,
        asked_for: bool,
        now: Duration,
    ) -> Option<(&'static str, String)> {
        let [at_least, below] = ["/versions/atLeast", "/versions/below"].map(|bound| text(spec, bound));
        let vetoed = (!at_least.is_empty() && numbers(version) < numbers(at_least))
            || (!below.is_empty() && numbers(version) >= numbers(below));
        if vetoed {
            let said = format!("which is for versions from {at_least:?} to below {below:?}");
            return Some(("version", said));
        }
        // Where nothing has to ripen, a leader does not ask who has named it.
        let least =
            text(spec, "/versions/minAge").strip_suffix('s')?.parse().ok().filter(|least| *least > 0)?;
        let age = self.since.get(version).map(|since| now.saturating_sub(*since));
        let ripe = age.is_some_and(|age| age + LATE >= Duration::from_secs(least));
        let said = || format!("where versions ripen for {least} s; this one has for {age:?}");
        (!ripe && !asked_for).then(|| ("age", said()))
    }
}

/// What a release's versions are ordered by.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shadow(runs: &str, wants: &str) -> Json {
        json!({"status": {"current_version": runs, "target_version": wants}})
    }

    #[test]
    fn a_range_is_in_the_order_of_numbers() {
        let allowed = |spec: Json, version: &str| {
            let spec = json!({"versions": spec});
            Versions::default().why_not(&spec, version, true, Duration::ZERO).is_none()
        };
        assert!(allowed(json!({}), "1.9.0"));
        assert!(allowed(json!({"atLeast": "1.9.0"}), "1.10.0"));
        assert!(allowed(json!({"atLeast": "1.9.0"}), "1.9.0"));
        assert!(!allowed(json!({"atLeast": "1.10.0"}), "1.9.0"));
        assert!(allowed(json!({"below": "1.10.0"}), "1.9.0"));
        assert!(!allowed(json!({"below": "1.10.0"}), "1.10.0"));
    }

    #[test]
    fn a_version_is_as_old_as_two_nodes_say() {
        let (mut versions, at) = (Versions::default(), Duration::from_secs);
        let spec = json!({"versions": {"minAge": "30s"}});
        let young = |versions: &Versions, now, asked| versions.why_not(&spec, "2", asked, at(now)).is_some();
        versions.shadow("a", Some(&shadow("1", "2")), at(1));
        versions.shadow("a", Some(&shadow("2", "")), at(50));
        assert!(young(&versions, 100, false), "one node alone makes nothing old");
        versions.shadow("b", Some(&shadow("1", "2")), at(100));
        assert!(young(&versions, 123, false));
        assert!(!young(&versions, 123, true), "somebody asked for it");
        assert!(!young(&versions, 124, false), "it may have been read late");
        assert!(versions.why_not(&json!({"versions": {"minAge": "0s"}}), "3", false, at(100)).is_none());
        versions.shadow("b", None, at(125));
        assert!(!young(&versions, 126, false), "it has been named long enough");
    }
}
