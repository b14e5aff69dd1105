//! Tests of values of a pool that are refused.

use super::*;
use crate::tests::world::{read, rows, with};
use serde_json::{Value, json};

pub(crate) fn spec(more: &Value) -> BottlerocketPoolSpec {
    read(with(json!({"nodeSelector": {}}), more))
}

#[test]
fn what_is_not_understood_is_named_with_a_remedy() {
    const SCHEDULE: &str = "spec.windows[1].schedule";
    const QUERY: &str = "spec.gates[0].prometheus.query";
    let window = |schedule: &str, duration: &str, zone: &str| {
        json!({"windows": [{"schedule": "0 2 * * *", "duration": "1h"},
            {"schedule": schedule, "duration": duration, "timeZone": zone}]})
    };
    let fires = |schedule: &str| window(schedule, "4h", "UTC");
    let asks = |query: &str| {
        let prometheus = json!({"source": "main", "query": query});
        json!({"gates": [{"name": "quiet", "prometheus": prometheus}]})
    };
    let of_versions =
        |at_least: &str, below: &str| json!({"versions": {"atLeast": at_least, "below": below}});
    let frozen =
        json!({"freezes": [{"name": "x", "start": "soon", "end": "2026-12-20T00:00:00Z"}]});
    for (bad, field, hint) in rows! {
        fires("0 2 * *"), SCHEDULE => "0 2 * * SAT";
        fires("0 0 2 * * SAT *"), SCHEDULE => "write five fields (minute hour day";
        fires("0 25 * * *"), SCHEDULE => "minute hour day month weekday";
        fires("0 25 * * *"), SCHEDULE => "number out of bounds: write five fields";
        fires("0 2 30 2 *"), SCHEDULE => "never fires";
        window("0 2 * * *", "4", "UTC"), "spec.windows[1].duration" => "such as 24h";
        window("0 2 * * *", "0h", "UTC"), "spec.windows[1].duration" => "such as 24h";
        window("0 2 * * *", "169h", "UTC"), "spec.windows[1].duration" => "from 1s up to 168h";
        json!({"versions": {"minAge": "2161h"}}), "spec.versions.minAge" => "up to 2160h";
        json!({"versions": {"minAge": "-1h"}}), "spec.versions.minAge" => "such as 24h";
        json!({"dependsOn": [{"pool": "a", "soak": "soon"}]}), "spec.dependsOn[0].soak" => "up to 2160h";
        json!({"drain": {"timeout": "0s"}}), "spec.drain.timeout" => "from 1s up to 168h";
        json!({"drain": {"loadBalancerDelay": "169h"}}), "spec.drain.loadBalancerDelay" => "up to 168h";
        json!({"verify": {"readyFor": "1"}}), "spec.verify.readyFor" => "such as 24h or 1h30m";
        json!({"verify": {"workloadsTimeout": "8d"}}), "spec.verify.workloadsTimeout" => "up to 168h";
        asks(" \n"), QUERY => "PromQL";
        window("0 2 * * *", "4h", "Berlin"), "spec.windows[1].timeZone" => "Europe/Berlin";
        json!({"maxUnavailable": 0}), "spec.maxUnavailable" => "from 1";
        json!({"maxUnavailable": "unlimited"}), "spec.maxUnavailable" => "100%";
        json!({"versions": {"atLeast": "1.20"}}), "spec.versions.atLeast" => "1.20.0";
        of_versions("1.21.0", "1.20.0"), "spec.versions" => "no version is at least 1.21.0 and below 1.20.0";
        of_versions("1.20.0", "1.20.0"), "spec.versions" => "no version";
        frozen, "spec.freezes[0].start" => "2026-12-20T00:00:00+01:00";
    } {
        let sentence = Rules::of(&spec(&bad)).unwrap_err();
        let is_named = sentence.starts_with(&format!("{field}: "));
        assert!(is_named && sentence.contains(hint), "{sentence}");
    }
}
