//! The generated definitions on the real API server: what they let through and what they refuse. That each field has its
//! bounds is in the webhook's test of the manifests; here is each pattern and each rule.

mod largest_ledger;
mod shown;

use crate::{custom_resources, raw};
use Half::{FleetSpec, FleetStatus, PoolSpec, PoolStatus, ShadowSpec, ShadowStatus};
use anyhow::{Context as _, Result, ensure};
use brupop_api::{BottlerocketFleet, BottlerocketPool, BottlerocketShadow, crds, names};
use brupop_testbed::{ControlPlane, Options};
use http::Method;
use kube::{Client, Resource};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The subject of a row.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
enum Half {
    ShadowSpec,
    ShadowStatus,
    FleetSpec,
    FleetStatus,
    PoolSpec,
    PoolStatus,
}

/// A name, spec or status before and after, and [`ACCEPTED`] or a part of the refusal.
type Row = (String, Half, Json, Json, String);

const ACCEPTED: &str = "accepted";
const TIME: &str = "2026-01-01T00:00:00Z";

/// The path to the objects of a kind, and what is the same in all of them.
fn kind<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> (String, Json) {
    let kind = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}});
    (K::url_path(&(), Some(namespace)), kind)
}

fn condition(number: usize) -> Json {
    let name = format!(
        "Type{}",
        char::from(b'A' + u8::try_from(number).unwrap_or_default())
    );
    json!({"type": name, "status": "True", "reason": "Because", "message": "", "lastTransitionTime": TIME})
}

fn conditions(count: usize) -> Json {
    json!({"conditions": (0..count).map(condition).collect::<Vec<_>>()})
}

fn written() -> Result<Vec<Row>> {
    let rows: BTreeMap<Half, Vec<(String, Json, String)>> =
        serde_yaml_ng::from_str(include_str!("rows.yaml")).context("rows.yaml")?;
    let whole = |(half, rows): (Half, Vec<_>)| {
        let row = move |(says, after, expected)| (says, half, json!({}), after, expected);
        rows.into_iter().map(row)
    };
    Ok(rows.into_iter().flat_map(whole).collect())
}

/// Characters that no sentence for people may have: ends of Unicode's ranges of them, and the best known.
const UNPRINTABLE: &str = "\0\u{7}\t\n\r\u{1b}\u{1f}\u{7f}\u{80}\u{85}\u{9b}\u{9f}\u{ad}\u{600}\u{61c}\u{70f}\
    \u{180e}\u{200b}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{2064}\u{2066}\u{206f}\
    \u{feff}\u{fff9}\u{fffb}\u{13430}\u{1d173}\u{e0001}\u{e007f}";

/// Returns what is too long to be read in a file, and what no file may have in it.
fn long_and_unprintable() -> Vec<Row> {
    let versions: Vec<_> = (0..crds::POOL_VERSIONS_MAX)
        .map(|n| json!({"version": format!("1.0.{n}"), "nodes": 1}))
        .collect();
    let mut of_pool = json!({"versions": versions, "nextWindow": {"start": TIME, "end": TIME}});
    json_patch::merge(&mut of_pool, &conditions(8));
    let huge = json!({"version": format!("1.0.0-{}", "a".repeat(1_400_000))});
    let crabs = json!({"message": "🦀".repeat(1024)});
    let longest = "x".repeat(crds::QUERY_MAX);
    let gate =
        json!({"gates": [{"name": "a", "prometheus": {"source": "main", "query": longest}}]});
    let rows = [
        ("conditions alone", ShadowStatus, conditions(8), ACCEPTED),
        ("all of a pool's status", PoolStatus, of_pool, ACCEPTED),
        ("1.4 MB", ShadowSpec, huge, "spec.version: Too long"),
        ("characters of four bytes", ShadowStatus, crabs, ACCEPTED),
        ("the longest expression", PoolSpec, gate, ACCEPTED),
    ];
    let rows = rows.map(|(says, half, after, expected)| {
        let (says, expected) = (says.to_owned(), expected.to_owned());
        (says, half, json!({}), after, expected)
    });
    let unprintable = UNPRINTABLE.chars().map(|character| {
        let after = json!({"message": format!("said{character}allowed")});
        let refusal = "message in body should match".to_owned();
        (
            format!("{character:?}"),
            ShadowStatus,
            json!({}),
            after,
            refusal,
        )
    });
    rows.into_iter().chain(unprintable).collect()
}

/// Returns what never falls: terms and attempts, no matter who writes.
fn one_way() -> Vec<Row> {
    let never = [
        (
            ShadowSpec,
            "leader_term",
            "this write comes from a reconciler that no longer leads",
        ),
        (
            ShadowSpec,
            "attempt",
            "attempt never falls and is never removed",
        ),
        (FleetStatus, "term", "term never falls and is never removed"),
    ];
    let rows = never.into_iter().flat_map(|(half, field, refusal)| {
        [
            ("set for the first time", None, Some(0), ACCEPTED),
            ("grows", Some(7), Some(9), ACCEPTED),
            ("stays", Some(7), Some(7), ACCEPTED),
            ("falls", Some(7), Some(6), refusal),
            ("is removed", Some(7), None, refusal),
        ]
        .map(|(says, before, after, expected)| {
            let before = before.map_or_else(|| json!({}), |number| json!({field: number}));
            let (says, expected) = (format!("{field} {says}"), expected.to_owned());
            (says, half, before, json!({field: after}), expected)
        })
    });
    rows.collect()
}

/// Is all that was sent among what is stored? Defaults may have come to it.
fn holds(stored: &Json, sent: &Json) -> bool {
    match (stored, sent) {
        (Json::Object(stored), Json::Object(sent)) => sent
            .iter()
            .all(|(key, sent)| stored.get(key).is_some_and(|stored| holds(stored, sent))),
        (Json::Array(stored), Json::Array(sent)) => {
            stored.len() == sent.len()
                && stored
                    .iter()
                    .zip(sent)
                    .all(|(stored, sent)| holds(stored, sent))
        }
        _ => stored == sent,
    }
}

struct Objects<'a> {
    client: &'a Client,
    made: usize,
}

impl Objects<'_> {
    async fn make(&mut self, half: Half, spec: &Json) -> Result<(String, Json)> {
        self.made += 1;
        let new = format!("object-{}", self.made);
        let (path, mut object) = match half {
            ShadowSpec | ShadowStatus => kind::<BottlerocketShadow>("default", &new),
            PoolSpec | PoolStatus => kind::<BottlerocketPool>("default", &new),
            // There is one fleet in a namespace.
            FleetSpec | FleetStatus => {
                let namespace =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": new}});
                raw::request(self.client, Method::POST, "/api/v1/namespaces", &namespace).await?;
                kind::<BottlerocketFleet>(&new, names::FLEET)
            }
        };
        object["spec"] = spec.clone();
        object["status"] = json!({"current_state": "Idle", "term": 1});
        let stored = raw::request(self.client, Method::POST, &path, &object).await?;
        // kstatus takes an object without a status for one that is ready.
        let unobserved = (!matches!(half, ShadowSpec | ShadowStatus)).then(|| json!(0));
        ensure!(
            stored.pointer("/status/observedGeneration") == unobserved.as_ref(),
            "{stored}"
        );
        let created = ["current_state", "term"]
            .iter()
            .any(|field| !stored["status"][field].is_null());
        ensure!(!created, "a status was created with its object: {stored}");
        let name = stored["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Ok((format!("{path}/{name}"), stored))
    }

    async fn check(&mut self, row: &Row) -> Result<()> {
        let (_, half, before, after, expected) = row;
        let is_spec = matches!(half, ShadowSpec | FleetSpec | PoolSpec);
        // The least that such an object has.
        let least = match half {
            ShadowSpec | ShadowStatus => json!({"state": "Idle"}),
            FleetSpec | FleetStatus => json!({}),
            PoolSpec | PoolStatus => json!({"nodeSelector": {}}),
        };
        let whole = |change: &Json| {
            let mut whole = if is_spec { least.clone() } else { json!({}) };
            json_patch::merge(&mut whole, change);
            whole
        };
        let idle = if is_spec {
            whole(before)
        } else {
            least.clone()
        };
        let (path, mut object) = self.make(*half, &idle).await?;
        let (path, name) = if is_spec {
            (path, "spec")
        } else {
            (format!("{path}/status"), "status")
        };
        if !is_spec && *before != json!({}) {
            object[name] = before.clone();
            object = raw::request(self.client, Method::PUT, &path, &object).await?;
        }
        object[name] = whole(after);
        let answer = raw::request(self.client, Method::PUT, &path, &object).await;
        match (answer, &**expected) {
            (Ok(stored), ACCEPTED) => {
                ensure!(
                    holds(&stored[name], &object[name]),
                    "accepted, and yet not stored: {stored:.400}"
                );
                Ok(())
            }
            (Err(kube::Error::Api(status)), refusal)
                if status.code == 422 && status.message.contains(refusal) =>
            {
                Ok(())
            }
            (Err(kube::Error::Api(status)), expected) => {
                anyhow::bail!(
                    "expected {expected:?}, got {}: {:.400}",
                    status.code,
                    status.message
                )
            }
            (answer, expected) => {
                anyhow::bail!("expected {expected:?}, got {:.400}", format!("{answer:?}"))
            }
        }
    }
}

async fn every_row_holds(client: &Client) -> Result<()> {
    let mut objects = Objects { client, made: 0 };
    let mut wrong = String::new();
    let table = [written()?, long_and_unprintable(), one_way()].concat();
    for row in &table {
        if let Err(error) = objects.check(row).await {
            writeln!(
                wrong,
                "{:?}, {}, {:.60}: {error:#}",
                row.1,
                row.0,
                row.3.to_string()
            )?;
        }
    }
    println!("{} rows", objects.made);
    ensure!(wrong.is_empty(), "\n{wrong}");
    Ok(())
}

/// Defaults fill absent fields, and `null` means absent.
async fn defaults_appear(client: &Client) -> Result<()> {
    let mut objects = Objects { client, made: 3000 };
    let expected = json!({"nodeSelector": {}, "priority": 1, "paused": false, "maxUnavailable": 1,
        "topology": {"topologyKey": "topology.kubernetes.io/zone", "mode": "Spread"},
        "drain": {"timeout": "15m", "onTimeout": "Abort", "loadBalancerDelay": "0s", "respectDoNotDisrupt": false},
        "verify": {"readyFor": "1m", "workloadsTimeout": "15m"}});
    for spec in [
        json!({"nodeSelector": {}}),
        json!({"nodeSelector": {}, "priority": null, "paused": null, "maxUnavailable": null, "windows": null,
            "topology": {"mode": null}, "drain": null, "verify": {}}),
    ] {
        let (_, stored) = objects.make(PoolSpec, &spec).await?;
        ensure!(
            stored["spec"] == expected,
            "{spec} is stored as {}",
            stored["spec"]
        );
    }
    let lists = json!({"nodeSelector": {}, "windows": [{"schedule": "0 2 * * *", "duration": "4h"}],
        "dependsOn": [{"pool": "canary"}]});
    let (_, stored) = objects.make(PoolSpec, &lists).await?;
    ensure!(
        stored["spec"]["windows"][0]["timeZone"] == "UTC",
        "{stored}"
    );
    ensure!(stored["spec"]["dependsOn"][0]["soak"] == "0s", "{stored}");
    Ok(())
}

/// Pools' names stand in slots, and in what other pools come after.
async fn names_are_held_to_their_rules(client: &Client) -> Result<()> {
    let path = &BottlerocketPool::url_path(&(), Some("default"));
    let make = async |name: &str, after: &str| {
        let pool = json!({"apiVersion": BottlerocketPool::api_version(&()), "kind": "BottlerocketPool",
            "metadata": {"name": name}, "spec": {"nodeSelector": {}, "dependsOn": [{"pool": after}]}});
        raw::request(client, Method::POST, path, &pool)
            .await
            .err()
            .map(|error| error.to_string())
    };
    let longest = "p".repeat(crds::POOL_NAME_MAX);
    ensure!(
        make(&longest, "canary").await.is_none(),
        "a name of 63 characters was refused"
    );
    for (name, after, sentence) in [
        (
            format!("{longest}p"),
            "canary",
            "the name of a pool has at most 63 characters",
        ),
        (
            "default".to_owned(),
            "web",
            "the pool default is that of the reconciler's settings: choose another name",
        ),
        (
            "web".to_owned(),
            "web",
            "a pool does not depend on itself: name another pool in spec.dependsOn",
        ),
    ] {
        let said = make(&name, after).await.unwrap_or_default();
        ensure!(said.contains(sentence), "{name} after {after}: {said:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_generated_definitions_hold_what_they_promise() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    let warnings = custom_resources::install(&control_plane).await?;
    assert_eq!(warnings, "");
    let client = control_plane.client();
    every_row_holds(&client).await?;
    defaults_appear(&client).await?;
    names_are_held_to_their_rules(&client).await?;
    shown::kubectl_shows_the_columns(&control_plane).await?;
    largest_ledger::stays_below_what_etcd_takes(&client).await
}
