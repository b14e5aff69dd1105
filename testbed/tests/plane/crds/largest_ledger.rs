//! How large the ledger can become, as the API server stores it: with what it notes of who wrote which field.

use anyhow::{Result, ensure};
use brupop_api::BottlerocketFleet;
use brupop_api::crds::{
    CONDITIONS_MAX, COUNTER_MAX, DONE_POOLS_MAX, FAILED_NODES_MAX, HALT_REASON_MAX, MESSAGE_MAX, NAME_MAX,
    POOL_NAME_MAX, POOL_RECORDS_MAX, SEEN_MAX, SLOTS_MAX, TIME_MAX, UID_MAX, VARIANT_MAX, VARIANTS_MAX,
    VERSION_MAX, VERSION_RECORDS_MAX, WORD_MAX,
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

/// How long the texts of a ledger are, and how many there are.
struct Texts {
    says: &'static str,
    /// What stands before and after the number that makes a name unique.
    name: (&'static str, &'static str),
    uid: usize,
    time: String,
    /// Makes the nth version.
    version: fn(usize) -> String,
    versions: usize,
    failures: usize,
    /// How many pools each version notes.
    pools: usize,
    sentence: String,
    word: usize,
    variant: usize,
    conditions: usize,
    /// Every number.
    number: u64,
    /// Slots note all that they can note.
    noted: bool,
    /// No more is stored than this.
    most_kilobytes: usize,
}

impl Texts {
    /// A name of this number; in the worst case as long as a name can be.
    fn name(&self, number: usize) -> String {
        let (before, after) = self.name;
        let name = format!("{before}{number:03}{after}");
        if after.is_empty() { format!("{name}{}", "n".repeat(NAME_MAX - name.len())) } else { name }
    }

    /// What the reconciler patches.
    fn kept(&self) -> Json {
        let mut slot = json!({"uid": "u".repeat(self.uid), "attempt": self.number, "since": self.time,
            "version": (self.version)(0)});
        if self.noted {
            (slot["lost"], slot["counted"]) = (json!(true), json!(true));
            slot["pool"] = json!("p".repeat(POOL_NAME_MAX));
        }
        let slots = (0..usize::try_from(SLOTS_MAX).unwrap_or_default()).map(|n| (self.name(n), slot.clone()));
        let variant = |n: usize| cut(&format!("aws-k8s-1.{n}-{}", "v".repeat(self.variant)), self.variant);
        let failure = |n| json!({"node": self.name(n), "at": self.time, "reason": "W".repeat(self.word), "variant": variant(n)});
        let variants: Vec<_> = (0..self.failures.min(VARIANTS_MAX)).map(variant).collect();
        let done = |n| {
            let pool = cut(&format!("p{n}{}", "p".repeat(POOL_NAME_MAX)), POOL_NAME_MAX);
            (pool, json!({"since": self.time, "longestSeconds": self.number}))
        };
        let record = json!({
            "firstSeen": self.time,
            "failures": (0..self.failures).map(failure).collect::<Vec<_>>(),
            "succeeded": self.number, "provenVariants": variants,
            "halted": {"at": self.time, "reason": cut(&self.sentence, HALT_REASON_MAX), "variants": variants},
            "donePools": (0..self.pools).map(done).collect::<Map<_, _>>(),
        });
        let versions = (0..self.versions).map(|n| ((self.version)(n), record.clone()));
        let of_pools = (0..self.pools.min(POOL_RECORDS_MAX))
            .map(|n| (format!("{}/{}", "p".repeat(POOL_NAME_MAX), (self.version)(n)), record.clone()));
        let seen = (0..self.versions.min(SEEN_MAX)).map(|n| ((self.version)(n), json!(self.time)));
        json!({
            "term": self.number, "lastFinished": self.time,
            "slots": slots.collect::<Map<_, _>>(), "versions": versions.collect::<Map<_, _>>(),
            "seen": seen.collect::<Map<_, _>>(), "poolVersions": of_pools.collect::<Map<_, _>>(),
        })
    }

    /// What the reconciler applies.
    fn shown(&self) -> Json {
        let condition = |n: usize| {
            let letter = char::from(b'A' + u8::try_from(n).unwrap_or_default());
            json!({"type": letter.to_string().repeat(self.word), "status": "Unknown",
                "reason": "W".repeat(self.word), "message": cut(&self.sentence, MESSAGE_MAX),
                "observedGeneration": self.number, "lastTransitionTime": self.time})
        };
        json!({
            "limit": self.number, "halted": cut(&self.sentence, MESSAGE_MAX), "observedGeneration": self.number,
            "counts": {"nodes": self.number, "inUse": self.number, "updated": self.number, "pending": self.number, "notOptedIn": self.number},
            "conditions": (0..self.conditions).map(condition).collect::<Vec<_>>(),
        })
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// A full ledger as fleets have it, and the largest that the schema takes. (Versions that a person names are left out.)
fn ledgers() -> [Texts; 2] {
    let sentence = "2 nodes failed to reach it (FellBack): ip-10-0-101-017.eu-central-1.compute.internal";
    let fraction = "0".repeat(TIME_MAX - "2026-01-01T00:00:00.Z".len());
    [
        Texts {
            says: "realistic",
            name: ("brs-ip-10-0-101-", ".eu-central-1.compute.internal"),
            uid: "00000000-0000-4000-8000-000000000000".len(),
            time: "2026-01-01T00:00:00.000Z".to_owned(),
            version: |n| format!("1.{n}.0"),
            versions: 12,
            failures: 2,
            pools: 2,
            sentence: sentence.to_owned(),
            word: "AdmissionEnforced".len(),
            variant: "aws-k8s-1.36".len(),
            conditions: 6,
            number: 7,
            noted: false,
            most_kilobytes: 200,
        },
        Texts {
            says: "worst",
            name: ("brs-", ""),
            uid: UID_MAX,
            time: format!("2026-01-01T00:00:00.{fraction}Z"),
            version: |n| cut(&format!("1.0.{n}-{}", "v".repeat(VERSION_MAX)), VERSION_MAX),
            versions: VERSION_RECORDS_MAX,
            pools: DONE_POOLS_MAX,
            failures: FAILED_NODES_MAX,
            sentence: "🦀".repeat(MESSAGE_MAX),
            word: WORD_MAX,
            variant: VARIANT_MAX,
            conditions: CONDITIONS_MAX,
            number: COUNTER_MAX,
            noted: true,
            most_kilobytes: 1258,
        },
    ]
}

/// Stores each of them in a fleet of its own, as the reconciler writes it, and reads its size.
pub async fn stays_below_what_etcd_takes(client: &Client) -> Result<()> {
    for texts in ledgers() {
        let says = texts.says;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": says}});
        raw::request(client, Method::POST, "/api/v1/namespaces", &namespace).await?;
        let path = BottlerocketFleet::url_path(&(), Some(says));
        let kind = json!({"apiVersion": BottlerocketFleet::api_version(&()), "kind": "BottlerocketFleet",
            "metadata": {"name": FLEET}});
        let with = |field: &str, value: Json| {
            let mut object = kind.clone();
            object[field] = value;
            object
        };
        raw::request(client, Method::POST, &path, &with("spec", json!({}))).await?;
        let path = format!("{path}/{FLEET}/status");
        let kept = texts.kept();
        raw::request(client, Method::PATCH, &path, &json!([{"op": "add", "path": "/status", "value": kept}]))
            .await?;
        let shown = texts.shown();
        let fleets = Api::<DynamicObject>::namespaced_with(
            client.clone(),
            says,
            &ApiResource::erase::<BottlerocketFleet>(&()),
        );
        let apply = PatchParams::apply(CONDITIONS_MANAGER).force();
        fleets.patch_status(FLEET, &apply, &Patch::Apply(with("status", shown.clone()))).await?;

        let stored = raw::request(client, Method::GET, &path, &Json::Null).await?;
        for (field, wanted) in kept.as_object().into_iter().chain(shown.as_object()).flatten() {
            ensure!(stored["status"][field] == *wanted, "{says}: {field} is not stored as it was written");
        }
        let bytes = stored.to_string().len();
        let notes = stored["metadata"]["managedFields"].to_string().len();
        println!("{says}: {bytes} bytes, of which {notes} in managedFields");
        let most = texts.most_kilobytes * 1000;
        ensure!(bytes < most && most < ETCD_MAX * 4 / 5, "{says}: {bytes} bytes are stored");
    }
    Ok(())
}
