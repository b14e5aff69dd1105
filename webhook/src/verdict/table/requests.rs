//! Everything about a request but the agent's fields: who asks, by which operation, of which object.

use super::*;
use Rule::*;

/// (what it says, a merge patch of the request, the rule)
type Row = (&'static str, Value, Rule);

fn run(request: &Value, rows: Vec<Row>) {
    for (says, change, expected) in rows {
        check(says, changed(request, &change), expected);
    }
}

fn claims(change: &Value) -> Value {
    let keyed: serde_json::Map<_, _> = change
        .as_object()
        .unwrap()
        .iter()
        .map(|(claim, value)| (format!("authentication.kubernetes.io/{claim}"), value.clone()))
        .collect();
    json!({"userInfo": {"extra": keyed}})
}

fn both(change: &Value) -> Value {
    json!({"object": change, "oldObject": change})
}

fn owners(owners: &Value) -> Value {
    both(&json!({"metadata": {"ownerReferences": owners}}))
}

fn report() -> Value {
    let (spec, status) = (json!({"state": "Idle"}), json!({"current_state": "Idle"}));
    update(
        AGENT,
        "status",
        &shadow(&spec, &status),
        &shadow(&spec, &changed(&status, &json!({"message": "m"}))),
    )
}

#[test]
fn an_agent_is_its_token() {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "nu"});
    let with = |change: Value| json!([changed(&owner, &change)]);
    run(
        &report(),
        vec![
            ("the token of its pod", json!({}), AgentReport),
            ("a dry run is judged alike", json!({"dryRun": true}), AgentReport),
            (
                "an account with a prefix",
                json!({"userInfo": {"username": "system:serviceaccount:ns:team-brupop-agent-2"}}),
                AgentReport,
            ),
            ("a token bound to nothing", json!({"userInfo": {"extra": null}}), AgentIdentity),
            (
                "a token bound to a Secret",
                claims(&json!({"node-name": null, "node-uid": null, "pod-name": null, "pod-uid": null})),
                AgentIdentity,
            ),
            (
                "a token bound to a Node without a pod",
                claims(&json!({"pod-name": null, "pod-uid": null})),
                AgentIdentity,
            ),
            (
                "a token bound to a pod without a Node",
                claims(&json!({"node-name": null, "node-uid": null})),
                AgentIdentity,
            ),
            ("two node names", claims(&json!({"node-name": ["n", "m"]})), AgentIdentity),
            ("two node UIDs", claims(&json!({"node-uid": ["nu", "mu"]})), AgentIdentity),
            ("two pod names", claims(&json!({"pod-name": ["p", "q"]})), AgentIdentity),
            ("an empty node name", claims(&json!({"node-name": [""]})), AgentIdentity),
            ("no value at all", claims(&json!({"pod-uid": []})), AgentIdentity),
            ("another node", claims(&json!({"node-name": ["m"], "node-uid": ["mu"]})), AgentOwnNode),
            ("a node whose name begins alike", claims(&json!({"node-name": ["n2"]})), AgentOwnNode),
            ("a node whose name ours begins with", json!({"name": "brs-n2"}), AgentOwnNode),
            ("a Node re-created under the same name", claims(&json!({"node-uid": ["nu2"]})), AgentNodeUid),
            (
                "a shadow of the Node that had this name before",
                owners(&with(json!({"uid": "nu0"}))),
                AgentNodeUid,
            ),
            ("a shadow without owner", owners(&Value::Null), AgentNodeUid),
            ("a shadow with no owners", owners(&json!([])), AgentNodeUid),
            (
                "a shadow with two owners",
                owners(&json!([owner, {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "cu"}])),
                AgentNodeUid,
            ),
            ("an owner of another kind", owners(&with(json!({"kind": "Pod"}))), AgentNodeUid),
            ("an owner of another API", owners(&with(json!({"apiVersion": "example.com/v1"}))), AgentNodeUid),
            ("an owner of another name", owners(&with(json!({"name": "m"}))), AgentNodeUid),
            ("no old object", json!({"oldObject": null}), AgentNodeUid),
            (
                "the longest legal name",
                changed(
                    &changed(
                        &claims(&json!({"node-name": ["n".repeat(249)]})),
                        &json!({"name": format!("brs-{}", "n".repeat(249))}),
                    ),
                    &owners(&with(json!({"name": "n".repeat(249)}))),
                ),
                AgentReport,
            ),
        ],
    );
}

#[test]
fn an_agent_updates_the_status_and_nothing_else() {
    let managers = |count: usize| {
        let entries: Vec<_> =
            (0..count).map(|n| json!({"manager": format!("m{n}"), "operation": "Apply"})).collect();
        json!({"metadata": {"managedFields": entries}})
    };
    run(
        &report(),
        vec![
            ("the object itself", json!({"subResource": null}), AgentStatusOnly),
            ("another sub-resource", json!({"subResource": "scale"}), AgentStatusOnly),
            (
                "creation",
                json!({"operation": "CREATE", "subResource": null, "oldObject": null}),
                AgentStatusOnly,
            ),
            (
                "creation by applying a status",
                json!({"operation": "CREATE", "oldObject": null}),
                AgentStatusOnly,
            ),
            (
                "deletion",
                json!({"operation": "DELETE", "subResource": null, "object": null}),
                AgentStatusOnly,
            ),
            ("connecting", json!({"operation": "CONNECT", "subResource": "status"}), AgentStatusOnly),
            (
                "a spec in the same patch",
                json!({"object": {"spec": {"state": "MonitoringUpdate"}}}),
                AgentOwnFields,
            ),
            (
                "a grant in the same patch",
                json!({"object": {"spec": {"reboot_from_boot_id": "b1"}}}),
                AgentOwnFields,
            ),
            (
                "a finalizer in the same patch",
                json!({"object": {"metadata": {"finalizers": ["a/b"]}}}),
                AgentOwnFields,
            ),
            (
                "a label in the same patch",
                json!({"object": {"metadata": {"labels": {"a": "b"}}}}),
                AgentOwnFields,
            ),
            (
                "an owner in the same patch",
                json!({"object": {"metadata": {"ownerReferences": null}}}),
                AgentOwnFields,
            ),
            ("a field beside spec and status", json!({"object": {"data": {"a": "b"}}}), AgentOwnFields),
            (
                "the whole status removed, with what the reconciler said in it",
                json!({"object": {"status": null}, "oldObject": {"status": {"conditions": [1]}}}),
                AgentOwnFields,
            ),
            ("a status that is a list", json!({"object": {"status": [1]}}), AgentOwnFields),
            ("no new object", json!({"object": null}), AgentOwnFields),
            (
                "what the API server counts itself",
                json!({"object": {"metadata": {"resourceVersion": "11", "managedFields": []}}}),
                AgentReport,
            ),
            ("sixteen field managers", json!({"object": managers(16)}), AgentReport),
            ("one field manager too many", json!({"object": managers(17)}), AgentManagedFields),
            (
                "too many, but not by this write",
                json!({"object": managers(20), "oldObject": managers(20)}),
                AgentReport,
            ),
        ],
    );
}

#[test]
fn nobody_else() {
    run(
        &report(),
        vec![
            ("the webhook's own account", json!({"userInfo": {"username": WEBHOOK}}), WebhookNothing),
            (
                "the default account of our namespace",
                json!({"userInfo": {"username": "system:serviceaccount:ns:default"}}),
                UnknownAccount,
            ),
            (
                "an agent of another namespace is not asked about",
                json!({"userInfo": {"username": "system:serviceaccount:ns2:brupop-agent"}}),
                Outsider,
            ),
            ("nor is a person", json!({"userInfo": {"username": "admin", "extra": null}}), Outsider),
            ("nor is nobody", json!({"userInfo": {"username": null}}), Outsider),
            (
                "another version",
                json!({"kind": {"version": "v1"}, "resource": {"version": "v1"}}),
                UnknownKind,
            ),
            (
                "another kind",
                json!({"kind": {"kind": "BottlerocketFleet"}, "resource": {"resource": "bottlerocketfleets"}}),
                UnknownKind,
            ),
            ("another group", json!({"kind": {"group": "example.com"}}), UnknownKind),
            (
                "another version, by the reconciler",
                json!({"userInfo": {"username": RECONCILER}, "kind": {"version": "v3"}}),
                UnknownKind,
            ),
            (
                "another version, by the webhook",
                json!({"userInfo": {"username": WEBHOOK}, "kind": {"version": "v3"}}),
                UnknownKind,
            ),
        ],
    );
}

#[test]
fn the_reconciler_steers_by_the_spec() {
    let spec = json!({"state": "Idle", "attempt": 7});
    let object = shadow(&spec, &json!({"current_state": "Idle"}));
    let to = |state: &str| json!({"object": {"spec": {"state": state}}});
    run(
        &update(RECONCILER, "", &object, &object),
        vec![
            ("nothing", json!({}), ReconcilerSteer),
            (
                "the first step",
                json!({"object": {"spec": {"state": "StagedAndPerformedUpdate", "attempt": 8}}}),
                ReconcilerSteer,
            ),
            ("the first step of no new attempt", to("StagedAndPerformedUpdate"), ReconcilerAttempt),
            ("a label", json!({"object": {"metadata": {"labels": {"a": "b"}}}}), ReconcilerMetadata),
            (
                "its failures",
                json!({"object": {"spec": {"failures": {"count": 1, "at": "2026-01-01T00:00:00Z", "reason": "FellBack"}}}}),
                ReconcilerSteer,
            ),
            ("a reboot without staging", to("RebootedIntoUpdate"), ReconcilerTransition),
            ("success without an update", to("MonitoringUpdate"), ReconcilerTransition),
            ("a state that is reported, not reached", to("ErrorReset"), ReconcilerTransition),
            ("a state that is not", to("Done"), Unreadable),
            (
                "from what cannot be read back to Idle",
                json!({"oldObject": {"spec": {"state": "StagedUpdate"}}}),
                ReconcilerSteer,
            ),
            (
                "from what cannot be read onwards",
                changed(&to("MonitoringUpdate"), &json!({"oldObject": {"spec": {"state": "StagedUpdate"}}})),
                ReconcilerTransition,
            ),
            (
                "another owner",
                json!({"object": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "nu2"}]}}}),
                ReconcilerOwner,
            ),
            ("no owner", json!({"object": {"metadata": {"ownerReferences": null}}}), ReconcilerOwner),
            ("deletion", json!({"operation": "DELETE", "object": null}), ReconcilerSteer),
            ("connecting", json!({"operation": "CONNECT"}), UnknownRequest),
            ("another sub-resource", json!({"subResource": "scale"}), UnknownRequest),
            (
                "a status created",
                json!({"operation": "CREATE", "subResource": "status", "oldObject": null}),
                UnknownRequest,
            ),
        ],
    );
}

#[test]
fn the_reconciler_creates_shadows_for_nodes() {
    let object = shadow(&json!({"state": "Idle"}), &Value::Null);
    let create = changed(
        &update(RECONCILER, "", &object, &object),
        &json!({"operation": "CREATE", "oldObject": null}),
    );
    run(
        &create,
        vec![
            ("Idle, owned by its Node", json!({}), ReconcilerSteer),
            (
                "at a later attempt, created again",
                json!({"object": {"spec": {"attempt": 8, "leader_term": 3}}}),
                ReconcilerSteer,
            ),
            ("named after another node", json!({"name": "brs-m"}), ReconcilerCreate),
            ("named like no shadow", json!({"name": "n"}), ReconcilerCreate),
            ("a generated name", json!({"name": "brs-nx7f2"}), ReconcilerCreate),
            ("without owner", json!({"object": {"metadata": {"ownerReferences": null}}}), ReconcilerCreate),
            (
                "owned by a pod",
                json!({"object": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "n", "uid": "nu"}]}}}),
                ReconcilerCreate,
            ),
            (
                "owned by a Node without UID",
                json!({"object": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": ""}]}}}),
                ReconcilerCreate,
            ),
            (
                "on its way already",
                json!({"object": {"spec": {"state": "StagedAndPerformedUpdate"}}}),
                ReconcilerCreate,
            ),
        ],
    );
}

#[test]
fn the_reconciler_writes_conditions_and_its_canary_is_refused() {
    let object = shadow(&json!({"state": "Idle"}), &json!({"current_state": "Idle"}));
    let condition = json!([{"type": "Progressing", "status": "False", "reason": "NoUpdate", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let canary =
        json!({"object": {"status": {"message": brupop_api::names::canary::STATUS_MESSAGE}}, "dryRun": true});
    run(
        &update(RECONCILER, "status", &object, &object),
        vec![
            ("nothing", json!({}), ReconcilerConditions),
            ("a condition", json!({"object": {"status": {"conditions": condition}}}), ReconcilerConditions),
            (
                "a condition where there is no status yet",
                json!({"oldObject": {"status": null}, "object": {"status": {"current_state": null, "conditions": condition}}}),
                ReconcilerConditions,
            ),
            ("the canary", canary, ReconcilerConditionsOnly),
            (
                "a state in an agent's place",
                json!({"object": {"status": {"current_state": "ErrorReset"}}}),
                ReconcilerConditionsOnly,
            ),
            (
                "a claim in an agent's place",
                json!({"object": {"status": {"reboot_requested": "b1"}}}),
                ReconcilerConditionsOnly,
            ),
            ("the status removed", json!({"object": {"status": null}}), ReconcilerConditionsOnly),
            (
                "a spec through the status",
                json!({"object": {"spec": {"attempt": 9}}}),
                ReconcilerConditionsOnly,
            ),
            (
                "a finalizer through the status",
                json!({"object": {"metadata": {"finalizers": ["a/b"]}}}),
                ReconcilerConditionsOnly,
            ),
        ],
    );
}
