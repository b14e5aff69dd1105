//! The webhook, its configuration and its Secret.

use super::*;

/// The webhook, its configuration and its Secret.
pub async fn webhook(bed: &Bed) -> Result<Vec<Row>> {
    const CONFIGURATIONS: &str =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let name = (bed.named)("brupop-webhook");
    let path = format!("{CONFIGURATIONS}/{name}");
    let rule = Policy("webhook-ca-bundle");
    let change = |says, operations: Json, verdict| {
        (
            says,
            Webhook,
            Method::PATCH,
            path.clone(),
            operations,
            verdict,
        )
    };
    let set = |says, at: &str, value: Json| {
        change(
            says,
            json!([{"op": "add", "path": at, "value": value}]),
            rule,
        )
    };
    let remove = |says, at: &str| change(says, json!([{"op": "remove", "path": at}]), rule);
    let everything = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]);
    let copy = json!([{"op": "copy", "from": "/webhooks/0", "path": "/webhooks/-"},
        {"op": "replace", "path": "/webhooks/2/name", "value": "more.brupop.bottlerocket.aws"}]);
    let moved = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/service"},
        {"op": "add", "path": "/webhooks/0/clientConfig/url", "value": "https://elsewhere.example.org/"}]);
    let own = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]);
    let caught =
        json!([own[0], {"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    let new = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "new"}, "webhooks": []});
    let certificates = (bed.named)("brupop-webhook-certificates");
    let secret = format!(
        "/api/v1/namespaces/{}/secrets/{certificates}",
        bed.namespace
    );
    let stored = bed.must(Method::GET, &secret, &Json::Null).await?;
    let put = |says, patch: &Json, verdict| {
        let mut changed = stored.clone();
        json_patch::merge(&mut changed, patch);
        (says, Webhook, Method::PUT, secret.clone(), changed, verdict)
    };
    let record = |version: &str| {
        json!([{"manager": "m", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {}}}, "time": "9999-12-31T23:59:59-23:59"}])
    };
    let late = json!([{"op": "replace", "path": "/metadata/managedFields",
        "value": record("admissionregistration.k8s.io/v1")}]);
    let beside = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}});
    let late_secret = json!({"metadata": {"managedFields": record("v1")}});
    Ok(vec![
        change("its caBundle", own, Allowed),
        change("its caBundle and one thing more", caught, rule),
        change("another entry", copy, rule),
        change("another server", moved, rule),
        remove("no entry any more", "/webhooks/0"),
        remove("no entries at all", "/webhooks"),
        remove("no condition", "/webhooks/0/matchConditions"),
        set(
            "another name",
            "/webhooks/0/name",
            json!("other.brupop.bottlerocket.aws"),
        ),
        set(
            "another Service",
            "/webhooks/0/clientConfig/service/name",
            json!("elsewhere"),
        ),
        set("mildness", "/webhooks/0/failurePolicy", json!("Ignore")),
        set("all that is written", "/webhooks/0/rules", everything),
        set(
            "never",
            "/webhooks/0/matchConditions/0/expression",
            json!("1 > 2"),
        ),
        set("a label", "/metadata/labels/x", json!("y")),
        change(
            "times that nobody can take back",
            late,
            Policy("webhook-managed-fields"),
        ),
        (
            "its end",
            Webhook,
            Method::DELETE,
            path.clone(),
            Json::Null,
            rule,
        ),
        (
            "a new one",
            Webhook,
            Method::POST,
            CONFIGURATIONS.to_owned(),
            new,
            rule,
        ),
        (
            "its Secret",
            Webhook,
            Method::GET,
            secret.clone(),
            Json::Null,
            Allowed,
        ),
        put("its data", &json!({"data": {"x": "eA=="}}), Allowed),
        put(
            "an immutable one",
            &json!({"immutable": true}),
            Policy("webhook-secret"),
        ),
        put("a label and an annotation of it", &beside, Allowed),
        put(
            "a finalizer of it",
            &json!({"metadata": {"finalizers": ["a.b/c"]}}),
            Policy("webhook-secret"),
        ),
        put(
            "times in it that nobody can take back",
            &late_secret,
            Policy("webhook-managed-fields"),
        ),
    ])
}
