//! The generated definitions on the real API server: what they let through and what they refuse. That each field has its
//! bounds is in the webhook's test of the manifests; here is each pattern and each rule.

mod largest_ledger;
mod pools;
mod shown;
mod texts;

use crate::{custom_resources, raw};
use Half::{FleetSpec, FleetStatus, PoolSpec, PoolStatus, ShadowSpec, ShadowStatus};
use anyhow::{Result, ensure};
use brupop_api::{BottlerocketFleet, BottlerocketPool, BottlerocketShadow, names};
use brupop_testbed::{ControlPlane, Options};
use http::Method;
use kube::{Client, Resource};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// What a row is about.
#[derive(Clone, Copy, Debug)]
enum Half {
    ShadowSpec,
    ShadowStatus,
    FleetSpec,
    FleetStatus,
    PoolSpec,
    PoolStatus,
}

/// (what it says, spec or status before, the same half after; accepted, or what the refusal says)
type Row = (&'static str, Half, Json, Json, Result<(), &'static str>);

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

fn with_condition(field: &str, value: &str) -> Json {
    let mut condition = condition(0);
    condition[field] = json!(value);
    json!({"conditions": [condition]})
}

fn limits_of_specs() -> Vec<Row> {
    let failures = json!({"last_failure": {"count": 1, "at": TIME, "reason": "FellBack"}});
    let all = json!({"state": "StagedAndPerformedUpdate", "version": "1.20.0-rc.1+aws", "attempt": 1,
        "leader_term": 1, "baseline_boot_id": "b", "state_transition_timestamp": TIME});
    let huge = format!("1.0.0-{}", "a".repeat(1_400_000));
    let shadow_specs = [
        ("all of it", all, Ok(())),
        (
            "a version of 1.4 MB",
            json!({"version": huge}),
            Err("spec.version: Too long"),
        ),
        (
            "a version with a v",
            json!({"version": "v1.20.0"}),
            Err("spec.version in body should match"),
        ),
        (
            "a version and more",
            json!({"version": "1.20.0\nx"}),
            Err("spec.version in body should match"),
        ),
        (
            "a state that is reported only",
            json!({"state": "ErrorReset"}),
            Err("not something to reach"),
        ),
        ("no state", json!({"state": null}), Err("spec.state")),
        (
            "an attempt beyond what JSON counts",
            json!({"attempt": 1_u64 << 53}),
            Err("spec.attempt"),
        ),
        (
            "no time",
            json!({"state_transition_timestamp": "yesterday"}),
            Err("state_transition_timestamp"),
        ),
        ("a failure", failures, Ok(())),
    ];
    rows(ShadowSpec, shadow_specs.into())
}

fn limits_of_statuses() -> Vec<Row> {
    let shadow_statuses = [
        ("conditions alone", conditions(8), Ok(())),
        (
            "a type of two words",
            with_condition("type", "not moving"),
            Err("conditions[0].type: Invalid"),
        ),
        (
            "a failure, a problem and a staged image",
            json!({"current_state": "ErrorReset", "crash_count": 1, "state_transition_failure_timestamp": TIME,
                "problem": "HostUnreachable", "staged": {"version": "1.20.0", "at": TIME}}),
            Ok(()),
        ),
    ];
    rows(ShadowStatus, shadow_statuses.into())
}

fn limits_of_fleets() -> Vec<Row> {
    let halt = |version: &str, variant: &str, at: &str| json!({"version": version, "variant": variant, "haltedAt": at});
    let said = |halts: Json| json!({"resumedVersions": halts});
    let resumed = |count| {
        said(
            (0..count)
                .map(|n| halt(&format!("1.0.{n}"), "aws", TIME))
                .collect(),
        )
    };
    let fleet_specs = [
        ("64 versions to resume", resumed(64), Ok(())),
        (
            "65 versions to resume",
            resumed(65),
            Err("spec.resumedVersions: Too many"),
        ),
        (
            "two variants of a version",
            said(json!([
                halt("1.0.0", "aws", TIME),
                halt("1.0.0", "metal", TIME)
            ])),
            Ok(()),
        ),
        (
            "a version twice",
            said(json!([
                halt("1.0.0", "aws", TIME),
                halt("1.0.0", "aws", TIME)
            ])),
            Err("Duplicate value"),
        ),
        (
            "a halt of no version",
            said(json!([halt("*", "aws", TIME)])),
            Err("a semantic version, such as 1.20.0"),
        ),
        (
            "a version that ends a quotation",
            said(json!([halt("1.0.0-'", "aws", TIME)])),
            Err("[0].version"),
        ),
        (
            "a variant that is none",
            said(json!([halt("1.0.0", "a b", TIME)])),
            Err("write a variant of Bottlerocket"),
        ),
        (
            "a halt at a word",
            said(json!([halt("1.0.0", "aws", "now")])),
            Err("write a time with its offset"),
        ),
        ("a ceiling", json!({"maxUnavailable": 3}), Ok(())),
        ("a tenth", json!({"maxUnavailable": "10%"}), Ok(())),
        (
            "a ceiling of none",
            json!({"maxUnavailable": 0}),
            Err("write a number from 1"),
        ),
        (
            "a ceiling in words",
            json!({"maxUnavailable": "unlimited"}),
            Err("write a number from 1"),
        ),
        (
            "failures as many as a record keeps",
            json!({"failureThreshold": {"unproven": 8, "proven": 8}}),
            Ok(()),
        ),
        (
            "failures as many as a record does not keep",
            json!({"failureThreshold": {"proven": 9}}),
            Err("spec.failureThreshold.proven"),
        ),
        (
            "no failure",
            json!({"failureThreshold": {"unproven": 0}}),
            Err("spec.failureThreshold.unproven"),
        ),
    ];
    // All that a ledger holds is in the largest one.
    [rows(FleetSpec, fleet_specs.into()), words_of_ledgers()].concat()
}

/// A person pastes them, and shells complete them.
fn words_of_ledgers() -> Vec<Row> {
    let slot = json!({"uid": "u", "attempt": 1});
    let slots = |key: &str| json!({"slots": {key: slot}});
    let versions = |version: &str| json!({"versions": [{"version": version, "variant": "aws"}]});
    let done =
        |pool: &str| json!({"donePools": [{"pool": pool, "version": "1.20.0", "since": TIME}]});
    let name = Err("each key is the name of an object");
    let ledgers = vec![
        ("versions", versions("1.20.0-rc.1+build"), Ok(())),
        (
            "a version that is a command",
            versions("$(touch x)"),
            Err("versions[0].version"),
        ),
        ("a slot", slots("brs-node-0.example.org"), Ok(())),
        ("a slot of an option", slots("--kubeconfig"), name),
        ("a slot of nobody", slots(""), name),
        ("a slot of two words", slots("brs-a b"), name),
        ("a pool that is done", done("web"), Ok(())),
        (
            "a pool that is a command",
            done(";touch x"),
            Err("donePools[0].pool"),
        ),
    ];
    rows(FleetStatus, ledgers)
}

fn rows(half: Half, rows: Vec<(&'static str, Json, Result<(), &'static str>)>) -> Vec<Row> {
    let whole = |(says, after, expected)| (says, half, json!({}), after, expected);
    rows.into_iter().map(whole).collect()
}

/// What never falls: terms and attempts, no matter who writes.
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
        let of = move |number: Json| json!({field: number});
        [
            (
                "set for the first time",
                half,
                json!({}),
                of(json!(0)),
                Ok(()),
            ),
            ("grows", half, of(json!(7)), of(json!(9)), Ok(())),
            ("stays", half, of(json!(7)), of(json!(7)), Ok(())),
            ("falls", half, of(json!(7)), of(json!(6)), Err(refusal)),
            (
                "is removed",
                half,
                of(json!(7)),
                of(Json::Null),
                Err(refusal),
            ),
        ]
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
        match (answer, expected) {
            (Ok(stored), Ok(())) => {
                ensure!(
                    holds(&stored[name], &object[name]),
                    "accepted, and yet not stored: {stored:.400}"
                );
                Ok(())
            }
            (Err(kube::Error::Api(status)), Err(refusal))
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
    let rows = [
        limits_of_specs(),
        limits_of_statuses(),
        limits_of_fleets(),
        one_way(),
        texts::rows(),
    ];
    let table = [rows.concat(), pools::all()].concat();
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

#[tokio::test(flavor = "multi_thread")]
async fn the_generated_definitions_hold_what_they_promise() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    let warnings = custom_resources::install(&control_plane).await?;
    assert_eq!(warnings, "");
    let client = control_plane.client();
    every_row_holds(&client).await?;
    pools::defaults_appear(&client).await?;
    pools::names_are_held_to_their_rules(&client).await?;
    shown::upstreams_objects_are_accepted(&client).await?;
    shown::kubectl_shows_the_columns(&control_plane).await?;
    largest_ledger::stays_below_what_etcd_takes(&client).await
}
