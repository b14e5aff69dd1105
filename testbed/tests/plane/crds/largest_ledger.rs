//! Measures the largest ledger as the API server stores it: the largest that the schema takes, with the record of
//! who wrote which field. (Versions that a person names are left out.)

use anyhow::{Result, ensure};
use brupop_api::BottlerocketFleet;
use brupop_api::crds::{
    CONDITIONS_MAX, COUNTER_MAX, DONE_POOLS_MAX, DONE_VERSIONS_MAX, FAILED_NODES_MAX, MESSAGE_MAX,
    NAME_MAX, POOL_NAME_MAX, SLOTS_MAX, TIME_MAX, UID_MAX, VARIANT_MAX, VERSION_MAX,
    VERSION_RECORDS_MAX, WORD_MAX,
};
use brupop_api::names::{CONDITIONS_MANAGER, FLEET};
use http::Method;
use kube::Client;
use kube::Resource as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Map, Value as Json, json};

use crate::raw;

/// etcd refuses larger requests (`--max-request-bytes`).
const ETCD_MAX: usize = 1_572_864;
/// No more is stored than this.
const MOST: usize = 1_258_000;

/// Begins with this, and is as long as it may be.
fn longest(text: &str, most: usize) -> String {
    format!("{text}{}", "n".repeat(most - text.len()))
}

/// A text for people, as long as it may be: its limit counts characters, and each of these has four bytes.
fn sentence(most: usize) -> String {
    "🦀".repeat(most)
}

fn time() -> String {
    format!(
        "2026-01-01T00:00:00.{}Z",
        "0".repeat(TIME_MAX - "2026-01-01T00:00:00.Z".len())
    )
}

fn version(number: usize) -> String {
    longest(&format!("1.0.{number}-"), VERSION_MAX)
}

/// Returns what the reconciler patches.
fn kept() -> Json {
    let time = time();
    let name = |number: usize| longest(&format!("brs-{number:03}"), NAME_MAX);
    let slot = json!({"uid": "u".repeat(UID_MAX), "attempt": COUNTER_MAX, "since": time, "version": version(0),
        "variant": longest("aws-k8s-1.36-", VARIANT_MAX), "lost": true, "counted": true, "pool": longest("", POOL_NAME_MAX)});
    let slots =
        (0..usize::try_from(SLOTS_MAX).unwrap_or_default()).map(|n| (name(n), slot.clone()));
    let variant = longest("aws-k8s-1.36-", VARIANT_MAX);
    let failure = |n| json!({"node": name(n), "at": time, "reason": longest("W", WORD_MAX)});
    let record = |n| {
        json!({
            "version": version(n), "variant": variant, "reportedAt": time, "haltedAt": time,
            "failures": (0..FAILED_NODES_MAX).map(failure).collect::<Vec<_>>(), "succeeded": COUNTER_MAX,
        })
    };
    let done = |n| {
        json!({
            "pool": longest(&format!("p{}", n / DONE_VERSIONS_MAX), POOL_NAME_MAX), "version": version(n % DONE_VERSIONS_MAX),
            "since": time,
        })
    };
    json!({
        "term": COUNTER_MAX, "lastFinished": time, "slots": slots.collect::<Map<_, _>>(),
        "versions": (0..VERSION_RECORDS_MAX).map(record).collect::<Vec<_>>(),
        "donePools": (0..DONE_POOLS_MAX * DONE_VERSIONS_MAX).map(done).collect::<Vec<_>>(),
    })
}

/// Returns what the reconciler applies.
fn shown() -> Json {
    let condition = |n: u8| {
        json!({"type": char::from(b'A' + n).to_string().repeat(WORD_MAX), "status": "Unknown",
            "reason": longest("W", WORD_MAX), "message": sentence(MESSAGE_MAX),
            "observedGeneration": COUNTER_MAX, "lastTransitionTime": time()})
    };
    json!({
        "nodes": COUNTER_MAX, "updatedNodes": COUNTER_MAX, "updatingNodes": COUNTER_MAX, "pendingNodes": COUNTER_MAX,
        "blockedNodes": COUNTER_MAX, "notOfferedNodes": COUNTER_MAX, "lockedNodes": COUNTER_MAX,
        "unavailableLimit": COUNTER_MAX, "notOptedInNodes": COUNTER_MAX,
        "haltedVersions": (0..VERSION_RECORDS_MAX).map(version).collect::<Vec<_>>(), "observedGeneration": COUNTER_MAX,
        "conditions": (0..u8::try_from(CONDITIONS_MAX).unwrap_or_default()).map(condition).collect::<Vec<_>>(),
    })
}

/// Stores it as the reconciler writes it, and reads its size.
pub async fn stays_below_what_etcd_takes(client: &Client) -> Result<()> {
    let path = BottlerocketFleet::url_path(&(), Some("default"));
    let with = |field: &str, value: Json| {
        json!({"apiVersion": BottlerocketFleet::api_version(&()), "kind": "BottlerocketFleet",
            "metadata": {"name": FLEET}, field: value})
    };
    raw::request(client, Method::POST, &path, &with("spec", json!({}))).await?;
    let path = format!("{path}/{FLEET}/status");
    let (kept, shown) = (kept(), shown());
    raw::request(
        client,
        Method::PATCH,
        &path,
        &json!([{"op": "add", "path": "/status", "value": kept}]),
    )
    .await?;
    let kind = ApiResource::erase::<BottlerocketFleet>(&());
    let fleets = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &kind);
    let apply = PatchParams::apply(CONDITIONS_MANAGER).force();
    fleets
        .patch_status(FLEET, &apply, &Patch::Apply(with("status", shown.clone())))
        .await?;

    let stored = raw::request(client, Method::GET, &path, &Json::Null).await?;
    for (field, wanted) in kept
        .as_object()
        .into_iter()
        .chain(shown.as_object())
        .flatten()
    {
        ensure!(
            stored["status"][field] == *wanted,
            "{field} is not stored as it was written"
        );
    }
    let bytes = stored.to_string().len();
    let notes = stored["metadata"]["managedFields"].to_string().len();
    println!("{bytes} bytes, of which {notes} in managedFields");
    ensure!(
        bytes < MOST && MOST < ETCD_MAX * 4 / 5,
        "{bytes} bytes are stored"
    );
    Ok(())
}
