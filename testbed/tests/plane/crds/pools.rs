//! What the definition of pools lets through, refuses and fills in.

use super::Half::{PoolSpec, PoolStatus};
use super::{Objects, Row, TIME, conditions, rows};
use crate::raw;
use anyhow::{Result, ensure};
use brupop_api::{BottlerocketPool, crds};
use http::Method;
use kube::Client;
use kube::Resource as _;
use serde_json::{Map, Value as Json, json};

type Told = (&'static str, Json, Result<(), &'static str>);

/// Labels of this number.
fn labels(count: usize) -> Json {
    Json::Object(
        (0..count)
            .map(|n| (format!("l{n}"), json!("v")))
            .collect::<Map<_, _>>(),
    )
}

fn selectors() -> Vec<Told> {
    let meets = |key: &str, operator: &str, values: Json| json!({"nodeSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
    let with = |labels: Json| json!({"nodeSelector": {"matchLabels": labels}});
    let values = |count: usize| (0..count).map(|n| format!("v{n}")).collect::<Json>();
    let expressions = |count: usize| json!({"nodeSelector": {"matchExpressions": vec![json!({"key": "a", "operator": "Exists"}); count]}});
    vec![
        (
            "no selector",
            json!({"nodeSelector": null}),
            Err("spec.nodeSelector: Required value"),
        ),
        ("sixteen labels", with(labels(16)), Ok(())),
        ("a label without a value", with(json!({"a": ""})), Ok(())),
        (
            "a label's value with a blank",
            with(json!({"a": "b c"})),
            Err("write letters, digits, -, _ and ."),
        ),
        (
            "a label whose key is too long",
            with(json!({"a".repeat(318): "b"})),
            Err("write the key of a label"),
        ),
        ("sixteen requirements", expressions(16), Ok(())),
        (
            "one of 32 values",
            meets("example.org/a", "In", values(32)),
            Ok(()),
        ),
        (
            "In without values",
            meets("a", "In", json!([])),
            Err("In and NotIn need values"),
        ),
        (
            "DoesNotExist with values",
            meets("a", "DoesNotExist", json!(["b"])),
            Err("In and NotIn need"),
        ),
        (
            "DoesNotExist",
            meets("a", "DoesNotExist", json!([])),
            Ok(()),
        ),
        (
            "a key that is no label",
            meets("a b", "Exists", json!([])),
            Err("write the key of a label"),
        ),
        (
            "no key",
            meets("", "Exists", json!([])),
            Err("write the key of a label, such as"),
        ),
    ]
}

fn limits() -> Vec<Told> {
    let most = |value: Json| json!({"maxUnavailable": value});
    let says = "write a number from 1, such as 2, or a percentage";
    vec![
        ("one at a time", most(json!(1)), Ok(())),
        ("as many as count", most(json!(100_000)), Ok(())),
        ("more than count", most(json!(100_001)), Err(says)),
        ("none at a time", most(json!(0)), Err(says)),
        ("1%", most(json!("1%")), Ok(())),
        ("100%", most(json!("100%")), Ok(())),
        ("0%", most(json!("0%")), Err(says)),
        (
            "101%",
            most(json!("101%")),
            Err("spec.maxUnavailable: Invalid value: \""),
        ),
        ("a number in quotation marks", most(json!("2")), Err(says)),
        (
            "versions between two",
            json!({"priority": 1000, "paused": true, "versions": {"atLeast": "1.20.0", "below": "2.0.0"}}),
            Ok(()),
        ),
        (
            "a version with a v",
            json!({"versions": {"below": "v2.0.0"}}),
            Err("such as 1.20.0"),
        ),
    ]
}

fn times() -> Vec<Told> {
    let window = |schedule: &str, duration: &str, zone: &str| json!({"windows": [{"schedule": schedule, "duration": duration, "timeZone": zone}]});
    let night = json!({"schedule": "0 2 * * *", "duration": "4h"});
    let freeze =
        |name: &str, start: &str, end: &str| json!({"name": name, "start": start, "end": end});
    let freezes = |all: Json| json!({"freezes": all});
    let year = |name: &str| freeze(name, TIME, "2027-01-01T00:00:00Z");
    let many = |count: usize| freezes((0..count).map(|n| year(&format!("f{n}"))).collect());
    let (early, late) = ("2026-12-20T00:00:00+01:00", "2026-12-19T23:30:00Z");
    let order = "start comes before end";
    vec![
        (
            "a window",
            window("0 2 * * SAT", "1h30m", "Europe/Berlin"),
            Ok(()),
        ),
        (
            "sixteen windows",
            json!({"windows": vec![&night; 16]}),
            Ok(()),
        ),
        (
            "a word for a schedule",
            window("@daily", "4h", "UTC"),
            Err("write five fields"),
        ),
        (
            "a schedule with seconds",
            window("*/2 * * * * * *", "168h", "UTC"),
            Err("write five fields"),
        ),
        (
            "a schedule in two lines",
            window("0 2 * *\n*", "4h", "UTC"),
            Err("write five fields"),
        ),
        (
            "a duration in days",
            window("0 2 * * *", "1d", "UTC"),
            Err("such as 24h or 1h30m"),
        ),
        (
            "a duration backwards",
            window("0 2 * * *", "30m1h", "UTC"),
            Err("hours, minutes and seconds"),
        ),
        (
            "an offset for a zone",
            window("0 2 * * *", "4h", "+01:00"),
            Err("a name of the IANA database"),
        ),
        (
            "a freeze",
            freezes(json!([freeze("xmas", early, "2027-01-07T00:00:00+01:00")])),
            Ok(()),
        ),
        // As texts they would be the other way round.
        (
            "a freeze of half an hour, in two zones",
            freezes(json!([freeze("x", early, late)])),
            Ok(()),
        ),
        (
            "the same backwards",
            freezes(json!([freeze("x", late, early)])),
            Err(order),
        ),
        (
            "a freeze of no time",
            freezes(json!([freeze("x", TIME, TIME)])),
            Err(order),
        ),
        (
            "from a day",
            freezes(json!([freeze("x", "2026-01-01", TIME)])),
            Err("a time with its offset"),
        ),
        (
            "to midnight of nowhere",
            freezes(json!([freeze("x", TIME, "2027-01-01T00:00:00")])),
            Err("a time"),
        ),
        (
            "from a 30th of February",
            freezes(json!([freeze("x", "2026-02-30T00:00:00Z", TIME)])),
            Err("a time with its offset"),
        ),
        (
            "a freeze of two words",
            freezes(json!([year("the holidays")])),
            Err("letters, digits, -, _ and ."),
        ),
        ("sixteen freezes", many(16), Ok(())),
    ]
}

fn waits() -> Vec<Told> {
    let topology = |key: &str| json!({"topology": {"topologyKey": key, "mode": "OneAtATime"}});
    let after: Vec<_> = (0..8)
        .map(|n| json!({"pool": format!("p{n}"), "soak": "24h"}))
        .collect();
    vec![
        ("after eight", json!({"dependsOn": after}), Ok(())),
        (
            "after a name in capitals",
            json!({"dependsOn": [{"pool": "Canary"}]}),
            Err("write the name of a pool"),
        ),
        ("racks apart", topology("example.org/rack"), Ok(())),
        (
            "a topology of no label",
            topology("a b"),
            Err("such as example.org/rack"),
        ),
        (
            "a drain of minutes of versions three days old",
            json!({"versions": {"minAge": "72h"}, "verify": {"readyFor": "1h30m", "workloadsTimeout": "0s"},
                "drain": {"timeout": "30m", "onTimeout": "Force", "loadBalancerDelay": "90s", "respectDoNotDisrupt": true}}),
            Ok(()),
        ),
        (
            "a delay below zero",
            json!({"drain": {"loadBalancerDelay": "-1s"}}),
            Err("loadBalancerDelay"),
        ),
    ]
}

fn gates() -> Vec<Told> {
    let asks = |name: &str, source: &str, query: &str| json!({"name": name, "prometheus": {"source": source, "query": query}});
    let one = |name: &str, source: &str, query: &str| json!({"gates": [asks(name, source, query)]});
    let many = |count: usize| json!({"gates": (0..count).map(|n| asks(&format!("g{n}"), "main", "up == 0")).collect::<Vec<_>>()});
    let mut requires = asks("quiet", "main", r#"ALERTS{alertstate="firing"}"#);
    requires["prometheus"]["requires"] = json!(r#"ALERTS{alertname="Watchdog"}"#);
    let longest = "x".repeat(crds::QUERY_MAX);
    vec![
        (
            "a gate with what it requires",
            json!({"gates": [requires]}),
            Ok(()),
        ),
        ("four gates", many(crds::GATES_MAX), Ok(())),
        (
            "a gate in capitals",
            one("Quiet", "main", "up"),
            Err("write a name of letters in lower case"),
        ),
        (
            "asks nothing",
            json!({"gates": [{"name": "a"}]}),
            Err("spec.gates[0].prometheus: Required"),
        ),
        (
            "a source by its address",
            one("a", "https://prometheus:9090", "up"),
            Err("write a name"),
        ),
        (
            "a source in another folder",
            one("a", "../main", "up"),
            Err("digits and -, such as main"),
        ),
        ("the longest expression", one("a", "main", &longest), Ok(())),
    ]
}

fn status() -> Told {
    let versions: Vec<_> = (0..crds::POOL_VERSIONS_MAX)
        .map(|n| json!({"version": format!("1.0.{n}"), "nodes": 1}))
        .collect();
    let mut all = json!({"versions": versions, "nextWindow": {"start": TIME, "end": TIME}});
    json_patch::merge(&mut all, &conditions(8));
    ("all of a status", all, Ok(()))
}

/// All of them.
pub fn all() -> Vec<Row> {
    let specs = [selectors(), limits(), times(), waits(), gates()].concat();
    [rows(PoolSpec, specs), rows(PoolStatus, vec![status()])].concat()
}

/// What people do not write is in what they read; so `null` means what nothing means.
pub async fn defaults_appear(client: &Client) -> Result<()> {
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
pub async fn names_are_held_to_their_rules(client: &Client) -> Result<()> {
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
