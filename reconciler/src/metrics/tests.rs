use kube::Resource as _;

use super::*;
use brupop_api::printable::is_printable;
use brupop_api::{BottlerocketShadow, Item};
use brupop_core::decide::Reason;
use brupop_core::facts::{FleetFacts, NodeView, PoolFacts};
use brupop_core::pool::{Owner, Pool};
use brupop_core::rules::GateState;
use jiff::SignedDuration;
use serde_json::json;

const NOW: &str = "2026-11-21T04:00:00Z";

/// Returns what is told now.
fn told(metrics: &Metrics, cluster: &Cluster, watch_failures: u64) -> String {
    metrics.render(Some(cluster), watch_failures)
}

/// The metrics of a process that leads.
fn leading() -> Metrics {
    let metrics = Metrics::default();
    metrics.passed(Some(Series::default()));
    metrics
}

#[track_caller]
fn has_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(
            text.lines().any(|found| found == *line),
            "{line} is not in\n{text}"
        );
    }
}

/// A shadow that says this beside its wanted state.
#[allow(
    clippy::needless_pass_by_value,
    reason = "it is written where it is used"
)]
fn shadow(more: serde_json::Value) -> Arc<Item<BottlerocketShadow>> {
    let mut shadow = json!({
        "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow", "metadata": {},
        "spec": {"state": "Idle"},
    });
    json_patch::merge(&mut shadow, &more);
    Arc::new(serde_json::from_value(shadow).unwrap())
}

fn cluster(hosts: impl IntoIterator<Item = (&'static str, String)>) -> Cluster {
    let mut cluster = Cluster::default();
    for (number, (state, version)) in hosts.into_iter().enumerate() {
        let status = json!({"current_state": state, "current_version": version});
        cluster.record(&number.to_string()).shadow = Some(shadow(json!({"status": status})));
    }
    cluster
}

#[test]
fn hosts_are_counted_as_upstreams_users_know_it() {
    let hosts = [
        ("Idle", "1.0.0"),
        ("Idle", "1.1.0"),
        ("MonitoringUpdate", "1.1.0"),
        ("Dreaming", "1.1.0"),
    ];
    let mut cluster = cluster(hosts.map(|(state, version)| (state, version.to_owned())));
    for (name, stalled) in [("web", "True"), ("db", "False")] {
        let condition = json!({"type": "Stalled", "status": stalled, "reason": "WaitingForPool", "message": "",
            "lastTransitionTime": NOW});
        let pool =
            json!({"metadata": {"name": name}, "spec": {}, "status": {"conditions": [condition]}});
        let pool = serde_json::from_value::<Item<Pool>>(pool).unwrap();
        cluster.pools.insert(name.to_owned(), pool.body.unwrap());
    }
    let metrics = Metrics::default();
    let mut gauges = Series::default();
    let halted = VersionRecord {
        version: "1.1.0".to_owned(),
        variant: "aws".to_owned(),
        ..VersionRecord::default()
    };
    gauges.tell_halts(&[&halted]);
    gauges.tell_gates([("web", "no-critical", GateState::Closed)].into_iter());
    gauges.set("brupop_slots_limit", &[], 3);
    gauges.skip("Pod", 1);
    metrics.passed(Some(gauges));
    metrics.count(
        "brupop_writes",
        &[("object", "ledger"), ("result", "written")],
    );
    let text = told(&metrics, &cluster, 5);
    let lines = [
        "brupop_leader 1",
        r#"brupop_hosts_state{state="Idle"} 2"#,
        r#"brupop_hosts_state{state="MonitoringUpdate"} 1"#,
        r#"brupop_hosts_state{state="ErrorReset"} 0"#,
        r#"brupop_hosts_version{bottlerocket_version="1.1.0"} 2"#,
        r#"brupop_gate_state{pool="web",gate="no-critical",state="Closed"} 1"#,
        r#"brupop_gate_state{pool="web",gate="no-critical",state="Open"} 0"#,
        r#"brupop_gate_state{pool="web",gate="no-critical",state="Unknown"} 0"#,
        r#"brupop_pool_stalled{pool="web",reason="WaitingForPool"} 1"#,
        "brupop_slots_in_use 0",
        "brupop_slots_limit 3",
        r#"brupop_skipped_objects{kind="Pod"} 1"#,
        "brupop_halted_versions 1",
        r#"brupop_version_halted{bottlerocket_version="1.1.0",bottlerocket_variant="aws"} 1"#,
        "brupop_watch_failures_total 5",
        r#"brupop_writes_total{object="ledger",result="written"} 1"#,
    ];
    has_lines(&text, &lines);
    assert_eq!(text.matches("\nbrupop_pool_stalled{").count(), 1, "{text}");
    let built = concat!(
        "brupop_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"} 1"
    );
    has_lines(&text, &[built]);
}

#[test]
fn failures_are_counted_by_node_and_by_version() {
    let mut cluster = cluster([]);
    for (name, count, reason) in [
        ("a", 1, "FellBack"),
        ("b", 3, "FellBack"),
        ("c", 1, "DrainTimedOut"),
    ] {
        let failures = json!({"count": count, "at": "2026-11-21T04:00:00Z", "reason": reason});
        cluster.record(name).shadow = Some(shadow(json!({"spec": {"last_failure": failures}})));
    }
    cluster.record("d").shadow = Some(shadow(json!({})));
    let failure = |node| json!({"node": node, "at": "2026-11-21T04:00:00Z", "reason": "FellBack"});
    let ledger = json!({"metadata": {"name": "fleet"}, "spec": {}, "status": {"versions": [
        {"version": "1.20.0", "variant": "aws", "failures": [failure("a"), failure("b")]},
        {"version": "1.20.1", "variant": "aws", "succeeded": 1},
    ]}});
    cluster.fleet = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
    let text = told(&leading(), &cluster, 0);
    let lines = [
        r#"brupop_nodes_failed{reason="FellBack"} 2"#,
        r#"brupop_nodes_failed{reason="DrainTimedOut"} 1"#,
        r#"brupop_version_failures{bottlerocket_version="1.20.0",bottlerocket_variant="aws"} 2"#,
        r#"brupop_version_failures{bottlerocket_version="1.20.1",bottlerocket_variant="aws"} 0"#,
    ];
    has_lines(&text, &lines);
    assert_eq!(text.matches("\nbrupop_nodes_failed{").count(), 2, "{text}");
}

#[test]
fn without_the_lead_no_gauge_tells_of_hosts() {
    let metrics = leading();
    metrics.passed(None);
    let text = told(&metrics, &cluster([("Idle", "1.0.0".to_owned())]), 0);
    assert!(
        text.contains("brupop_leader 0\n") && !text.contains("brupop_hosts"),
        "{text}"
    );
    assert!(!text.contains("brupop_nodes_reason"), "{text}");
}

#[test]
fn versions_do_not_grow_without_bound() {
    let metrics = leading();
    let made_up = (0..100).map(|n| ("Idle", format!("1.0.{n}")));
    let fleet = (0..3).flat_map(|n| [("Idle", format!("9.0.{n}")), ("Idle", format!("9.0.{n}"))]);
    let text = told(&metrics, &cluster(made_up.chain(fleet)), 0);
    let hosts = |version: &str, hosts: u8| {
        let line = format!("brupop_hosts_version{{bottlerocket_version=\"{version}\"}} {hosts}\n");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    };
    for (version, number) in [("9.0.0", 2), ("9.0.2", 2), ("1.0.0", 1), ("other", 71)] {
        hosts(version, number);
    }
    assert_eq!(
        text.matches("\nbrupop_hosts_version{").count(),
        MAX_VERSIONS + 1,
        "{text}"
    );
}

#[test]
fn labels_are_printable_whatever_agents_say() {
    let hostile = [
        "1.0.0\u{1b}[2J\n\"} 1\nbrupop_leader 7",
        "\u{202e}",
        &"9".repeat(5000),
    ];
    let cluster = cluster(hostile.map(|version| ("Idle", version.to_owned())));
    let text = told(&leading(), &cluster, 0);
    assert!(
        text.contains(r#"{bottlerocket_version="\\u{202e}"} 1"#),
        "{text}"
    );
    assert!(
        text.contains(r#"{bottlerocket_version="1.0.0\\u{1b}[2J\\n\"} 1\\nbrupop_leader 7"} 1"#),
        "{text}"
    );
    assert!(
        text.lines()
            .all(|line| is_printable(line) && line.len() < 200),
        "{text}"
    );
    assert_eq!(text.matches("\nbrupop_leader ").count(), 1, "{text}");
}

#[test]
fn updates_are_told_before_the_first_one() {
    let metrics = Metrics::default();
    let text = metrics.render(None, 0);
    let lines = [
        r#"brupop_updates_total{result="Updated"} 0"#,
        r#"brupop_updates_total{result="FellBack"} 0"#,
        "brupop_update_duration_seconds_count 0",
        r#"brupop_update_phase_duration_seconds_count{phase="waiting"} 0"#,
        r#"brupop_update_phase_duration_seconds_count{phase="soaking"} 0"#,
    ];
    has_lines(&text, &lines);
    let minutes = SignedDuration::from_mins;
    for ended in [
        Ended::Update {
            result: "Updated",
            took: Some(minutes(6)),
        },
        Ended::Update {
            result: "FellBack",
            took: None,
        },
        Ended::Phase(Phase::Draining, minutes(2)),
        Ended::Phase(Phase::Draining, minutes(3)),
    ] {
        metrics.ended(&ended);
    }
    let text = metrics.render(None, 0);
    let lines = [
        r#"brupop_updates_total{result="Updated"} 1"#,
        r#"brupop_updates_total{result="FellBack"} 1"#,
        r#"brupop_updates_total{result="GivenUp"} 0"#,
        "brupop_update_duration_seconds_sum 360.0",
        r#"brupop_update_duration_seconds_bucket{le="300.0"} 0"#,
        r#"brupop_update_duration_seconds_bucket{le="600.0"} 1"#,
        r#"brupop_update_phase_duration_seconds_sum{phase="draining"} 300.0"#,
        r#"brupop_update_phase_duration_seconds_bucket{le="120.0",phase="draining"} 1"#,
        r#"brupop_update_phase_duration_seconds_count{phase="rebooting"} 0"#,
    ];
    has_lines(&text, &lines);
}

/// Shadows whose hosts have known of an update since these times.
fn behind(names: impl IntoIterator<Item = (String, String)>) -> Cluster {
    let mut cluster = Cluster::default();
    for (name, since) in names {
        let known = json!({"type": "UpdateAvailable", "status": "True", "reason": "TargetDiffers", "message": "m",
            "lastTransitionTime": since});
        let waits = json!({"type": "Progressing", "status": "False", "reason": "LimitReached", "message": "m",
            "lastTransitionTime": NOW});
        let behind = shadow(
            json!({"metadata": {"name": name, "uid": name, "generation": 1}, "status": {
            "current_version": "1.19.4", "target_version": "1.20.0", "conditions": [waits, known]}}),
        );
        cluster.record(&name).shadow = Some(behind);
    }
    cluster
}

fn views(cluster: &Cluster) -> Vec<NodeView<'_>> {
    let views = cluster.records.keys().map(|name| NodeView {
        shadow: cluster
            .shadow(name)
            .and_then(brupop_api::shadow::ShadowFacts::of),
        ..NodeView::nothing(name)
    });
    views.collect()
}

#[test]
fn pools_that_come_and_go_share_a_counter() {
    let metrics = Metrics::default();
    for number in 0..60 {
        let pool = format!("pool-{number:02}");
        metrics.ended(&Ended::WithoutWorkloads(pool));
    }
    let text = told(&metrics, &Cluster::default(), 0);
    for line in [r#"{pool="pool-49"} 1"#, r#"{pool="other"} 10"#] {
        let line = format!("brupop_updated_without_workloads_total{line}");
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn pools_do_not_grow_without_bound() {
    let names: Vec<_> = (0..60).map(|number| format!("pool-{number:02}")).collect();
    let pools = names.iter().map(|name| PoolFacts {
        name,
        ..PoolFacts::DEFAULT
    });
    let pools: Vec<_> = pools.collect();
    let fleet = FleetFacts {
        pools: &pools,
        ..FleetFacts::EXAMPLE
    };
    // The later the pool by its name, the longer its update has been known.
    let known = (0..60).map(|number| format!("2026-11-21T03:{:02}:00Z", 59 - number));
    let cluster = behind(names.iter().cloned().zip(known));
    let mut views = views(&cluster);
    for (index, view) in views.iter_mut().enumerate() {
        view.owner = Owner::Pool(index);
    }
    let reason = Reason::LimitReached;
    let nodes = views.iter().map(|view| (view, &reason));
    let mut gauges = Series::default();
    gauges.count_nodes(&cluster, &fleet, nodes, NOW.parse().unwrap());
    let metrics = Metrics::default();
    metrics.passed(Some(gauges));
    let text = told(&metrics, &Cluster::default(), 0);
    let lines = [
        r#"brupop_nodes{pool="pool-49",reason="LimitReached",bottlerocket_version="1.19.4"} 1"#,
        r#"brupop_nodes{pool="other",reason="LimitReached",bottlerocket_version="1.19.4"} 10"#,
        r#"brupop_nodes_reason{reason="LimitReached"} 60"#,
        r#"brupop_oldest_waiting_update_seconds{pool="pool-00",reason="LimitReached"} 60"#,
        r#"brupop_oldest_waiting_update_seconds{pool="other",reason="LimitReached"} 3600"#,
    ];
    has_lines(&text, &lines);
    for metric in ["\nbrupop_nodes{", "\nbrupop_oldest_waiting_update_seconds{"] {
        assert_eq!(text.matches(metric).count(), 51, "{text}");
    }
    metrics.passed(Some(Series::default()));
    let text = told(&metrics, &Cluster::default(), 0);
    assert!(!text.contains("pool-49"), "it is gone:\n{text}");
}

#[test]
fn a_pass_counts_who_waits_and_since_when() {
    let known = [("brs-a", 10), ("brs-b", 5), ("brs-c", 20), ("brs-d", 1)];
    let known = known.map(|(name, minute)| (name.into(), format!("2026-11-21T03:{minute:02}:00Z")));
    let cluster = behind(known);
    let mut views = views(&cluster);
    (views[3].time.slot_overdue, views[3].time.slot_seconds) = (true, Some(90));
    let reasons = [
        Reason::LimitReached,
        Reason::LimitReached,
        Reason::NodePaused,
        Reason::Rebooting,
    ];
    let (mut gauges, nodes) = (Series::default(), views.iter().zip(&reasons));
    gauges.count_nodes(&cluster, &FleetFacts::EXAMPLE, nodes, NOW.parse().unwrap());
    let metrics = Metrics::default();
    metrics.passed(Some(gauges));
    let text = told(&metrics, &cluster, 0);
    let lines = [
        r#"brupop_nodes{pool="default",reason="LimitReached",bottlerocket_version="1.19.4"} 2"#,
        r#"brupop_nodes{pool="default",reason="Rebooting",bottlerocket_version="1.19.4"} 1"#,
        r#"brupop_nodes_reason{reason="NodePaused"} 1"#,
        r#"brupop_nodes_reason{reason="Draining"} 0"#,
        r#"brupop_oldest_waiting_update_seconds{pool="default",reason="LimitReached"} 3300"#,
        r#"brupop_oldest_waiting_update_seconds{pool="default",reason="NodePaused"} 2400"#,
        r#"brupop_slots_overdue{reason="Rebooting"} 1"#,
        "brupop_oldest_slot_seconds 90",
        "brupop_denied_nodes_out_of_service 0",
    ];
    has_lines(&text, &lines);
    // A moving node does not wait, however long its update has been known.
    let waits = "\nbrupop_oldest_waiting_update_seconds{";
    assert_eq!(text.matches(waits).count(), 2, "{text}");
}
