//! May this pool be stored? The answer is the reconciler's own: its parser says whether the rules can be understood.
//!
//! People write pools, so this only helps them: if the webhook is away, a pool is stored all the same, and one that cannot be
//! understood holds its nodes.

use crate::metrics::Metrics;
use crate::review::{self, ReviewError};
use brupop_api::crds::{MESSAGE_MAX, NAME_MAX};
use brupop_api::pool::BottlerocketPoolSpec;
use brupop_api::printable::printable;
use brupop_core::rules::Rules;
use serde::Deserialize;
use serde_json::Value;

/// The request of an `AdmissionReview` of a pool.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolRequest {
    uid: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    object: Option<ReviewedPool>,
    #[serde(default)]
    old_object: Option<ReviewedPool>,
}

#[derive(Deserialize)]
struct ReviewedPool {
    #[serde(default)]
    spec: Value,
}

/// Answers one review of a pool, and logs a refusal. Pools of other namespaces than `ours` are read by nobody.
///
/// # Errors
/// The bytes are no review.
pub fn answer(body: &[u8], ours: &str, metrics: &Metrics) -> Result<Vec<u8>, ReviewError> {
    let answered = review::parse(body, |request: &PoolRequest| &request.uid).and_then(|request| {
        let refusal = refusal(&request, ours);
        if let Some(why) = &refusal {
            let pool = printable(&request.name, NAME_MAX);
            tracing::info!(pool = pool.as_ref(), why, "refused");
        }
        Ok(review::response(&request.uid, refusal, [])?)
    });
    review::note_unreadable(&answered, body, metrics);
    answered
}

/// Returns why this pool is refused. One that stays as it was is not: its labels may be changed, whatever an earlier release
/// has let pass.
fn refusal(request: &PoolRequest, ours: &str) -> Option<String> {
    let new = &request.object.as_ref()?.spec;
    if request
        .old_object
        .as_ref()
        .is_some_and(|old| old.spec == *new)
    {
        return None;
    }
    if request.namespace != ours {
        return Some(format!(
            "the reconciler reads BottlerocketPools in the namespace {ours} only: create this one there"
        ));
    }
    // Whatever the schema accepts can be parsed.
    let spec = BottlerocketPoolSpec::deserialize(new).ok()?;
    let invalid = Rules::of(&spec).err()?;
    Some(printable(&invalid, MESSAGE_MAX).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn review(new: &Value, old: Option<&Value>) -> Value {
        review_in("updates", new, old)
    }

    fn review_in(namespace: &str, new: &Value, old: Option<&Value>) -> Value {
        let request = json!({"uid": "u-1", "name": "web", "namespace": namespace, "operation": "CREATE",
            "object": {"metadata": {"name": "web"}, "spec": new}, "oldObject": old.map(|spec| json!({"spec": spec}))});
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let bytes = answer(body.to_string().as_bytes(), "updates", &Metrics::default()).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn a_pool_is_understood_or_refused_with_a_remedy() {
        let window = |schedule: &str| json!({"nodeSelector": {}, "windows": [{"schedule": schedule, "duration": "4h"}]});
        let good = review(&window("0 2 * * SAT"), None);
        assert_eq!(
            (&good["response"]["allowed"], &good["response"]["uid"]),
            (&json!(true), &json!("u-1"))
        );
        let bad = review(&window("0 2 * *"), None);
        let says = bad["response"]["status"]["message"].as_str().unwrap();
        assert!(
            says.starts_with("spec.windows[0].schedule: it has 4 fields")
                && says.contains("0 2 * * SAT"),
            "{says}"
        );
        assert_eq!(
            (
                &bad["response"]["allowed"],
                &bad["response"]["status"]["code"]
            ),
            (&json!(false), &json!(403))
        );
        let hostile = review(&window("\u{1b}[2J 2 * * *"), None);
        assert!(
            !hostile["response"]["status"]["message"]
                .as_str()
                .unwrap()
                .contains('\u{1b}')
        );
        let gate = |query: &str| {
            let prometheus = json!({"source": "main", "query": query});
            json!({"nodeSelector": {}, "gates": [{"name": "quiet", "prometheus": prometheus}]})
        };
        assert_eq!(
            review(&gate("up == 0"), None)["response"]["allowed"],
            json!(true)
        );
        let asks_nothing = review(&gate(" "), None);
        let says = asks_nothing["response"]["status"]["message"]
            .as_str()
            .unwrap();
        assert!(
            says.starts_with("spec.gates[0].prometheus.query: write an expression of PromQL"),
            "{says}"
        );
    }

    #[test]
    fn pool_of_another_namespace_is_refused_with_ours() {
        let answer = review_in("default", &json!({"nodeSelector": {}}), None);
        let says = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(says.contains("in the namespace updates only"), "{says}");
    }

    #[test]
    fn what_stays_as_it_was_is_not_refused() {
        let bad = json!({"nodeSelector": {}, "maxUnavailable": 0});
        assert_eq!(review(&bad, Some(&bad))["response"]["allowed"], json!(true));
        assert_eq!(
            review(&bad, Some(&json!({"nodeSelector": {}})))["response"]["allowed"],
            json!(false)
        );
    }
}
