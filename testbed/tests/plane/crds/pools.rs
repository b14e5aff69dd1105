//! What the definition of pools lets through, refuses and fills in.

use super::Half::{PoolSpec, PoolStatus};
use super::{Objects, Row, TIME, conditions, rows};
use crate::raw;
use anyhow::{Result, ensure};
use brupop_api::{BottlerocketPool, crds, definitions};
use http::Method;
use kube::Client;
use kube::Resource as _;
use serde_json::{Map, Value as Json, json};

type Told = (&'static str, Json, Result<(), &'static str>);

/// Labels of this number.
fn labels(count: usize) -> Json {
    Json::Object((0..count).map(|n| (format!("l{n}"), json!("v"))).collect::<Map<_, _>>())
}

fn selectors() -> Vec<Told> {
    let meets = |key: &str, operator: &str, values: Json| json!({"nodeSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
    let with = |labels: Json| json!({"nodeSelector": {"matchLabels": labels}});
    let values = |count: usize| (0..count).map(|n| format!("v{n}")).collect::<Json>();
    let expressions = |count: usize| json!({"nodeSelector": {"matchExpressions": vec![json!({"key": "a", "operator": "Exists"}); count]}});
    vec![
        ("no selector", json!({"nodeSelector": null}), Err("spec.nodeSelector: Required value")),
        ("sixteen labels", with(labels(16)), Ok(())),
        ("seventeen labels", with(labels(17)), Err("spec.nodeSelector.matchLabels: Too many")),
        ("a label without a value", with(json!({"a": ""})), Ok(())),
        ("a label's value of 64 characters", with(json!({"a": "v".repeat(64)})), Err("Too long")),
        ("a label's value with a blank", with(json!({"a": "b c"})), Err("write letters, digits, -, _ and .")),
        ("sixteen requirements", expressions(16), Ok(())),
        ("seventeen requirements", expressions(17), Err("spec.nodeSelector.matchExpressions: Too many")),
        ("one of 32 values", meets("example.org/a", "In", values(32)), Ok(())),
        ("one of 33 values", meets("a", "In", values(33)), Err("values: Too many")),
        ("a value twice", meets("a", "NotIn", json!(["b", "b"])), Err("values[1]: Duplicate value")),
        ("In without values", meets("a", "In", json!([])), Err("In and NotIn need values")),
        ("DoesNotExist with values", meets("a", "DoesNotExist", json!(["b"])), Err("In and NotIn need")),
        ("DoesNotExist", meets("a", "DoesNotExist", json!([])), Ok(())),
        ("an operator of affinity", meets("a", "Gt", json!(["1"])), Err("operator: Unsupported value")),
        ("a key that is no label", meets("a b", "Exists", json!([])), Err("write the key of a label")),
        ("no key", meets("", "Exists", json!([])), Err("write the key of a label, such as")),
    ]
}

fn limits() -> Vec<Told> {
    let most = |value: Json| json!({"maxUnavailable": value});
    let hint = "spec.maxUnavailable: Invalid value: \"";
    let says = "write a number from 1, such as 2, or a percentage";
    let version = |field: &str, value: &str| json!({"versions": {field: value}});
    vec![
        ("one at a time", most(json!(1)), Ok(())),
        ("as many as count", most(json!(100_000)), Ok(())),
        ("more than count", most(json!(100_001)), Err(says)),
        ("none at a time", most(json!(0)), Err(says)),
        ("fewer than none", most(json!(-1)), Err(says)),
        ("1%", most(json!("1%")), Ok(())),
        ("100%", most(json!("100%")), Ok(())),
        ("0%", most(json!("0%")), Err(says)),
        ("101%", most(json!("101%")), Err(hint)),
        ("a number in quotation marks", most(json!("2")), Err(says)),
        ("a part of one", most(json!(0.5)), Err("spec.maxUnavailable")),
        ("the highest priority", json!({"priority": 1000}), Ok(())),
        ("a higher one", json!({"priority": 1001}), Err("spec.priority")),
        ("a priority below zero", json!({"priority": -1}), Err("spec.priority")),
        ("a pause", json!({"paused": true}), Ok(())),
        ("a pause in words", json!({"paused": "yes"}), Err("spec.paused")),
        ("versions between two", json!({"versions": {"atLeast": "1.20.0", "below": "2.0.0"}}), Ok(())),
        ("a version of two numbers", version("atLeast", "1.20"), Err("write a semantic version")),
        ("a version with a v", version("below", "v2.0.0"), Err("write a semantic version, such as 1.20.0")),
    ]
}

fn times() -> Vec<Told> {
    let window = |schedule: &str, duration: &str, zone: &str| json!({"windows": [{"schedule": schedule, "duration": duration, "timeZone": zone}]});
    let night = json!({"schedule": "0 2 * * *", "duration": "4h"});
    let freeze = |name: &str, start: &str, end: &str| json!({"name": name, "start": start, "end": end});
    let freezes = |all: Json| json!({"freezes": all});
    let year = |name: &str| freeze(name, TIME, "2027-01-01T00:00:00Z");
    let many = |count: usize| freezes((0..count).map(|n| year(&format!("f{n}"))).collect());
    let (early, late) = ("2026-12-20T00:00:00+01:00", "2026-12-19T23:30:00Z");
    let order = "start comes before end";
    vec![
        ("a window", window("0 2 * * SAT", "1h30m", "Europe/Berlin"), Ok(())),
        ("sixteen windows", json!({"windows": vec![&night; 16]}), Ok(())),
        ("seventeen windows", json!({"windows": vec![&night; 17]}), Err("spec.windows: Too many")),
        ("a window that never opens", json!({"windows": [{"duration": "4h"}]}), Err("windows[0].schedule")),
        ("a window without end", json!({"windows": [{"schedule": "@daily"}]}), Err("windows[0].duration")),
        ("a word for a schedule", window("@daily", "4h", "UTC"), Err("write five fields")),
        ("a schedule of four fields", window("0 2 * *", "4h", "UTC"), Err("write five fields (minute hour")),
        ("a schedule with seconds", window("*/2 * * * * * *", "168h", "UTC"), Err("write five fields")),
        ("a schedule in two lines", window("0 2 * *\n*", "4h", "UTC"), Err("write five fields")),
        ("a schedule of 129 characters", window(&"0".repeat(129), "4h", "UTC"), Err("schedule: Too long")),
        ("a duration in days", window("0 2 * * *", "1d", "UTC"), Err("such as 24h or 1h30m")),
        ("a duration backwards", window("0 2 * * *", "30m1h", "UTC"), Err("hours, minutes and seconds")),
        ("no duration", window("0 2 * * *", "", "UTC"), Err("spec.windows[0].duration")),
        ("an offset for a zone", window("0 2 * * *", "4h", "+01:00"), Err("a name of the IANA database")),
        ("no zone", window("0 2 * * *", "4h", ""), Err("spec.windows[0].timeZone")),
        ("a freeze", freezes(json!([freeze("xmas", early, "2027-01-07T00:00:00+01:00")])), Ok(())),
        // As texts they would be the other way round.
        ("a freeze of half an hour, in two zones", freezes(json!([freeze("x", early, late)])), Ok(())),
        ("the same backwards", freezes(json!([freeze("x", late, early)])), Err(order)),
        ("a freeze of no time", freezes(json!([freeze("x", TIME, TIME)])), Err(order)),
        ("from a day", freezes(json!([freeze("x", "2026-01-01", TIME)])), Err("a time with its offset")),
        ("to midnight of nowhere", freezes(json!([freeze("x", TIME, "2027-01-01T00:00:00")])), Err("a time")),
        (
            "from a 30th of February",
            freezes(json!([freeze("x", "2026-02-30T00:00:00Z", TIME)])),
            Err("a time with its offset"),
        ),
        ("a freeze of two words", freezes(json!([year("the holidays")])), Err("letters, digits, -, _ and .")),
        ("a freeze without end", freezes(json!([{"name": "x", "start": TIME}])), Err("[0].end: Required")),
        ("a freeze without name", freezes(json!([year("")])), Err("spec.freezes[0].name")),
        ("two freezes of one name", freezes(json!([year("x"), year("x")])), Err("freezes[1]: Duplicate")),
        ("sixteen freezes", many(16), Ok(())),
        ("seventeen freezes", many(17), Err("spec.freezes: Too many")),
    ]
}

fn order() -> Vec<Told> {
    let after =
        |pools: &[&str]| json!({"after": pools.iter().map(|pool| json!({"pool": pool})).collect::<Vec<_>>()});
    let many = |count: usize| json!({"after": (0..count).map(|n| json!({"pool": format!("p{n}")})).collect::<Vec<_>>()});
    let soak = |soak: &str| json!({"after": [{"pool": "canary", "soak": soak}]});
    vec![
        ("after the canary", soak("24h"), Ok(())),
        ("after eight", many(8), Ok(())),
        ("after nine", many(9), Err("spec.after: Too many")),
        ("after one twice", after(&["a", "a"]), Err("spec.after[1]: Duplicate value")),
        ("after nobody", after(&[""]), Err("spec.after[0].pool")),
        ("after 64 characters", after(&["abcdefgh".repeat(8).as_str()]), Err("spec.after[0].pool: Too long")),
        ("after a name in capitals", after(&["Canary"]), Err("write the name of a pool")),
        ("a soak in days", soak("1d"), Err("write hours, minutes and seconds, such as 24h or 1h30m")),
    ]
}

fn waits() -> Vec<Told> {
    let topology = |key: &str, mode: &str| json!({"topology": {"topologyKey": key, "mode": mode}});
    let age = |age: &str| json!({"versions": {"minAge": age}});
    vec![
        ("racks apart", topology("example.org/rack", "OneAtATime"), Ok(())),
        ("racks in a mode of their own", topology("rack", "Apart"), Err("mode: Unsupported value")),
        ("a topology of no label", topology("a b", "Spread"), Err("such as example.org/rack")),
        ("three days old", age("72h"), Ok(())),
        ("three days old, in days", age("3d"), Err("write hours, minutes and seconds, such as 24h or 1h30m")),
        ("a drain of minutes", json!({"drain": {"timeout": "30m", "loadBalancerDelay": "90s"}}), Ok(())),
        ("a drain that respects pods", json!({"drain": {"respectDoNotDisrupt": true}}), Ok(())),
        ("a drain without unit", json!({"drain": {"timeout": "300"}}), Err("such as 24h or 1h30m")),
        ("a delay below zero", json!({"drain": {"loadBalancerDelay": "-1s"}}), Err("loadBalancerDelay")),
        ("a soak", json!({"soak": {"readyFor": "1h30m", "workloadsTimeout": "0s"}}), Ok(())),
        ("a soak in words", json!({"soak": {"readyFor": "long"}}), Err("such as 24h or 1h30m")),
        ("workloads for ever", json!({"soak": {"workloadsTimeout": ""}}), Err("spec.soak.workloadsTimeout")),
    ]
}

fn halts() -> Vec<Told> {
    let threshold = |failures: Json| json!({"failureThreshold": {"unproven": failures}});
    let halt = |n: usize| json!({"version": format!("1.0.{n}"), "haltedAt": TIME});
    let lifted = |count: usize| json!({"acknowledgedHalts": (0..count).map(halt).collect::<Vec<_>>()});
    let no_day = json!({"acknowledgedHalts": [{"version": "1.0.1", "haltedAt": "2026-02-30T00:00:00Z"}]});
    vec![
        ("a failure that passes", threshold(json!(8)), Ok(())),
        ("more than are noted", threshold(json!(9)), Err("spec.failureThreshold.unproven")),
        ("a halt before anything fails", threshold(json!(0)), Err("spec.failureThreshold.unproven")),
        ("sixteen halts to lift", lifted(16), Ok(())),
        ("seventeen", lifted(17), Err("spec.acknowledgedHalts: Too many")),
        ("on a 30th of February", no_day, Err("a time with its offset")),
        ("a halt twice", json!({"acknowledgedHalts": [halt(1), halt(1)]}), Err("[1]: Duplicate")),
    ]
}

fn gates() -> Vec<Told> {
    let asks = |name: &str, source: &str, query: &str| json!({"name": name, "type": "Prometheus", "prometheus": {"source": source, "query": query}});
    let one = |name: &str, source: &str, query: &str| json!({"gates": [asks(name, source, query)]});
    let many = |count: usize| json!({"gates": (0..count).map(|n| asks(&format!("g{n}"), "main", "up == 0")).collect::<Vec<_>>()});
    let mut requires = asks("quiet", "main", r#"ALERTS{alertstate="firing"}"#);
    requires["prometheus"]["requires"] = json!(r#"ALERTS{alertname="Watchdog"}"#);
    let mut empty = requires.clone();
    empty["prometheus"]["requires"] = json!("");
    let (longest, label) = ("x".repeat(crds::QUERY_MAX), "a".repeat(64));
    vec![
        ("a gate with what it requires", json!({"gates": [requires]}), Ok(())),
        ("four gates", many(crds::GATES_MAX), Ok(())),
        ("five gates", many(crds::GATES_MAX + 1), Err("spec.gates: Too many")),
        (
            "two gates of one name",
            json!({"gates": [asks("a", "main", "up"), asks("a", "main", "down")]}),
            Err("spec.gates[1]: Duplicate value"),
        ),
        ("a gate without name", one("", "main", "up"), Err("spec.gates[0].name")),
        ("a gate of 64 characters", one(&label, "main", "up"), Err("spec.gates[0].name: Too long")),
        ("a gate in capitals", one("Quiet", "main", "up"), Err("write a name of letters in lower case")),
        ("another type", json!({"gates": [{"name": "a", "type": "Datadog"}]}), Err("type: Unsupported")),
        ("asks nothing", json!({"gates": [{"name": "a", "type": "Prometheus"}]}), Err("needs prometheus")),
        ("a source by its address", one("a", "https://prometheus:9090", "up"), Err("write a name")),
        ("a source in another folder", one("a", "../main", "up"), Err("digits and -, such as main")),
        ("no expression", one("a", "main", ""), Err("spec.gates[0].prometheus.query")),
        ("the longest expression", one("a", "main", &longest), Ok(())),
        ("a longer one", one("a", "main", &format!("{longest}x")), Err("prometheus.query: Too long")),
        ("what it requires is empty", json!({"gates": [empty]}), Err("spec.gates[0].prometheus.requires")),
    ]
}

fn statuses() -> Vec<Told> {
    let halts = |count: usize| json!({"halts": (0..count).map(|n| json!({"version": format!("1.0.{n}"), "haltedAt": TIME})).collect::<Vec<_>>()});
    let versions = |count: usize| json!({"versions": (0..count).map(|n| json!({"version": format!("1.0.{n}"), "nodes": 1})).collect::<Vec<_>>()});
    let one = json!({"version": "1.0.0", "nodes": 1});
    let window = |start: &str| json!({"nextWindow": {"start": start, "end": TIME}});
    vec![
        ("eight versions", versions(crds::POOL_VERSIONS_MAX), Ok(())),
        ("nine versions", versions(crds::POOL_VERSIONS_MAX + 1), Err("status.versions: Too many")),
        ("one version twice", json!({"versions": [one, one]}), Err("status.versions[1]: Duplicate value")),
        ("eight halts", halts(crds::POOL_HALTS_MAX), Ok(())),
        ("nine halts", halts(crds::POOL_HALTS_MAX + 1), Err("status.halts: Too many")),
        ("eight conditions", conditions(8), Ok(())),
        ("nine conditions", conditions(9), Err("status.conditions: Too many")),
        ("a window", window(TIME), Ok(())),
        ("a window at a word", window("soon"), Err("status.nextWindow.start")),
        ("fewer nodes than none", json!({"nodes": -1}), Err("status.nodes")),
    ]
}

/// All of them.
pub fn all() -> Vec<Row> {
    let specs = [selectors(), limits(), times(), order(), waits(), halts(), gates()].concat();
    [rows(PoolSpec, specs), rows(PoolStatus, statuses())].concat()
}

/// What people do not write is in what they read; so `null` means what nothing means.
pub async fn defaults_appear(client: &Client) -> Result<()> {
    let mut objects = Objects { client, made: 3000 };
    let expected = json!({"nodeSelector": {}, "priority": 0, "paused": false, "maxUnavailable": 1,
        "topology": {"topologyKey": "topology.kubernetes.io/zone", "mode": "Spread"},
        "failureThreshold": {"unproven": 1, "proven": 2},
        "drain": {"timeout": "15m", "loadBalancerDelay": "0s", "respectDoNotDisrupt": false},
        "soak": {"readyFor": "1m", "workloadsTimeout": "15m"}});
    for spec in [
        json!({"nodeSelector": {}}),
        json!({"nodeSelector": {}, "priority": null, "paused": null, "maxUnavailable": null, "windows": null,
            "topology": {"mode": null}, "drain": null, "soak": {}, "failureThreshold": {"proven": null}}),
    ] {
        let (_, stored) = objects.make(PoolSpec, &spec).await?;
        ensure!(stored["spec"] == expected, "{spec} is stored as {}", stored["spec"]);
    }
    let lists = json!({"nodeSelector": {}, "windows": [{"schedule": "0 2 * * *", "duration": "4h"}],
        "after": [{"pool": "canary"}]});
    let (_, stored) = objects.make(PoolSpec, &lists).await?;
    ensure!(stored["spec"]["windows"][0]["timeZone"] == "UTC", "{stored}");
    ensure!(stored["spec"]["after"][0]["soak"] == "0s", "{stored}");
    Ok(())
}

/// Pools' names stand in slots, and in what other pools come after.
pub async fn names_are_held_to_their_rules(client: &Client) -> Result<()> {
    let path = &BottlerocketPool::url_path(&(), Some("default"));
    let make = async |name: &str, after: &str| {
        let pool = json!({"apiVersion": BottlerocketPool::api_version(&()), "kind": "BottlerocketPool",
            "metadata": {"name": name}, "spec": {"nodeSelector": {}, "after": [{"pool": after}]}});
        raw::request(client, Method::POST, path, &pool).await.err().map(|error| error.to_string())
    };
    let longest = "p".repeat(crds::POOL_NAME_MAX);
    ensure!(make(&longest, "canary").await.is_none(), "a name of 63 characters was refused");
    for (name, after, sentence) in [
        (format!("{longest}p"), "canary", "the name of a pool has at most 63 characters"),
        (
            "default".to_owned(),
            "web",
            "the pool default is that of the reconciler's settings: choose another name",
        ),
        ("web".to_owned(), "web", "a pool does not come after itself: name another pool in spec.after"),
    ] {
        let said = make(&name, after).await.unwrap_or_default();
        ensure!(said.contains(sentence), "{name} after {after}: {said:?}");
    }
    Ok(())
}

/// `kubectl explain` has a sentence for each field.
pub fn every_field_is_described() -> Result<()> {
    fn undescribed(path: &str, schema: &Json, found: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let has_words = field["description"].as_str().is_some_and(|text| text.len() > 3);
            undescribed(&path, field, found);
            undescribed(&path, &field["items"], found);
            undescribed(&path, &field["additionalProperties"], found);
            if !has_words {
                found.push(path);
            }
        }
    }
    let mut found = vec![];
    for definition in definitions::all() {
        let definition = serde_json::to_value(&definition)?;
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            for half in ["spec", "status"] {
                let schema = &version["schema"]["openAPIV3Schema"]["properties"][half];
                ensure!(!schema["properties"].is_null(), "{kind} has no {half}");
                undescribed(&format!("{kind}.{half}"), schema, &mut found);
            }
        }
    }
    ensure!(found.is_empty(), "nobody says what these are: {found:?}");
    Ok(())
}
