use serde_json::{Value, json};

use super::super::*;
use crate::cluster::{Cluster, Watched as _};
use crate::rules::Policy;
use crate::tests::world::{NOW, known, node, observe_knowing, pool, put_agent, put_ledger, shadow};
use brupop_api::{Problem, names};

const VARIANT: &str = "aws-k8s-1.36";
const LOCKED: &str =
    "the host does not choose 1.1.0: settings.updates.version-lock may hold it back";

/// A node, as its kubelet and its agent report it.
#[derive(Clone, Copy)]
struct Host {
    runs: &'static str,
    wants: Option<&'static str>,
    variant: &'static str,
    problem: Option<Problem>,
    boot_id: &'static str,
    /// Whether the node and its agent are Ready.
    ready: [bool; 2],
}

/// On 1.0.0, with no update that its host names.
const OLD: Host = Host {
    runs: "1.0.0",
    wants: None,
    variant: VARIANT,
    problem: None,
    boot_id: "boot-1",
    ready: [true; 2],
};
const NEW: Host = Host {
    runs: "1.1.0",
    ..OLD
};
const PENDING: Host = Host {
    wants: Some("1.1.0"),
    ..OLD
};
const LOCKED_TO_OLD: Host = Host {
    problem: Some(Problem::NoUpdateChosen),
    ..OLD
};

/// `Updated`, the figures and the sentence of a fleet of these nodes, in a pool with these versions.
fn updated(hosts: &[Host], versions: &Value, ledger: Value) -> (String, [u64; 6], String) {
    let mut cluster = Cluster::default();
    pool("web", json!({"nodeSelector": {}, "versions": versions})).put(&mut cluster);
    for (number, host) in hosts.iter().enumerate() {
        let name = format!("node-{number}");
        let Host {
            runs,
            wants,
            variant,
            problem,
            boot_id,
            ready: [node_ready, agent_ready],
        } = host;
        let image = format!("Bottlerocket OS {runs} ({variant})");
        let ready =
            json!([{"type": "Ready", "status": if *node_ready { "True" } else { "False" }}]);
        node(
            &name,
            json!({"status": {"nodeInfo": {"osImage": image}, "conditions": ready}}),
        )
        .put(&mut cluster);
        let status = json!({"current_version": runs, "target_version": wants, "current_state": "Idle", "boot_id": boot_id,
            "problem": problem, "message": problem.map(|_| LOCKED)});
        shadow(&names::shadow_name(&name), json!({"state": "Idle"}), status).put(&mut cluster);
        put_agent(&mut cluster, &name, *agent_ready, None);
    }
    put_ledger(&mut cluster, json!({}), ledger);
    let policy = Policy::default();
    let known = known(&cluster);
    let observed = observe_knowing(&cluster, &known, &policy, NOW);
    let decisions = observed.decide().nodes;
    let progress = Progress::of_fleet(&observed, &decisions);
    let NodeCounts {
        nodes,
        updated_nodes,
        pending_nodes,
        not_offered_nodes,
        locked_nodes,
        ..
    } = progress.counts;
    let condition = progress.updated_condition("no node is opted in");
    let of_pool = pools(&observed, &decisions, |_| Ok(()), false)
        .pop()
        .unwrap();
    assert_eq!(of_pool.conditions[2], condition);
    let figures = [
        nodes,
        updated_nodes,
        pending_nodes,
        not_offered_nodes,
        locked_nodes,
        progress.unknown,
    ];
    (
        format!("{:?}/{}", condition.status, condition.reason),
        figures,
        condition.message,
    )
}

#[test]
fn who_is_behind() {
    let rebooted = Host {
        boot_id: "boot-0",
        ..OLD
    };
    let fails = Host {
        problem: Some(Problem::RefreshFailed),
        ..OLD
    };
    let failed_before = Host {
        problem: Some(Problem::StepFailed),
        ..OLD
    };
    let other = Host {
        variant: "aws-k8s-1.36-nvidia",
        ..OLD
    };
    let later = Host {
        runs: "1.2.0",
        ..OLD
    };
    let no_version = Host {
        runs: "next",
        ..OLD
    };
    let (any, least) = (json!({}), json!({"atLeast": "1.1.0"}));
    let below = json!({"below": "1.1.0"});
    let none = json!({});
    let halted = |variant: &str| json!({"versions": [{"version": "1.1.0", "variant": variant, "haltedAt": NOW}]});
    let (its, nvidia) = (halted(VARIANT), halted("aws-k8s-1.36-nvidia"));
    let (yes, no) = ("False/NotOffered", "True/NoUpdate");
    for (what, hosts, versions, ledger, expected) in [
        ("it runs what others run", &[NEW, NEW][..], &any, &none, no),
        ("it runs an older version", &[NEW, OLD], &any, &none, yes),
        (
            "after an attempt that failed",
            &[NEW, failed_before],
            &any,
            &none,
            yes,
        ),
        (
            "its variant has no newer version",
            &[NEW, other],
            &any,
            &none,
            no,
        ),
        (
            "what the other runs is no version",
            &[no_version, OLD],
            &any,
            &none,
            no,
        ),
        (
            "its pool refuses the newer one",
            &[NEW, OLD],
            &below,
            &none,
            no,
        ),
        (
            "its pool refuses the newest one",
            &[later, NEW, OLD],
            &json!({"below": "1.2.0"}),
            &none,
            yes,
        ),
        ("the newer one is halted", &[NEW, OLD], &any, &its, no),
        (
            "it is halted for another variant",
            &[NEW, OLD],
            &any,
            &nvidia,
            yes,
        ),
        (
            "no node runs what its pool asks for",
            &[OLD, OLD],
            &least,
            &none,
            yes,
        ),
        (
            "one of two runs what its pool asks for",
            &[NEW, OLD],
            &least,
            &none,
            yes,
        ),
        (
            "its look failed",
            &[NEW, fails],
            &any,
            &none,
            "Unknown/NotReported",
        ),
        (
            "a download ahead failed",
            &[
                OLD,
                Host {
                    problem: Some(Problem::PrefetchFailed),
                    ..OLD
                },
            ],
            &any,
            &none,
            no,
        ),
        (
            "it names an update, and is silent",
            &[
                NEW,
                Host {
                    problem: Some(Problem::HostUnreachable),
                    ..PENDING
                },
            ],
            &any,
            &none,
            "False/UpdatesPending",
        ),
        (
            "it has not reported in this boot",
            &[OLD, rebooted],
            &any,
            &none,
            "Unknown/NotReported",
        ),
        (
            "it is not Ready",
            &[
                NEW,
                Host {
                    ready: [false, true],
                    ..OLD
                },
            ],
            &least,
            &none,
            "Unknown/NotReported",
        ),
        (
            "its agent is silent",
            &[
                NEW,
                Host {
                    ready: [true, false],
                    ..OLD
                },
            ],
            &any,
            &none,
            "Unknown/NotReported",
        ),
        ("it is locked", &[NEW, LOCKED_TO_OLD], &any, &none, no),
        (
            "it is locked below what its pool asks for",
            &[NEW, LOCKED_TO_OLD],
            &least,
            &none,
            "False/NoUpdateChosen",
        ),
    ] {
        let (condition, _, sentence) = updated(hosts, versions, ledger.clone());
        assert_eq!(condition, expected, "{what}: {sentence}");
    }
    let (_, figures, _) = updated(&[NEW, LOCKED_TO_OLD], &any, none.clone());
    assert_eq!(figures, [2, 1, 0, 0, 1, 0], "a locked one is counted apart");
    let (.., sentence) = updated(&[NEW, LOCKED_TO_OLD], &least, none.clone());
    assert_eq!(
        sentence,
        format!("node-1: the host chooses no update, although one is available: \"{LOCKED}\"")
    );
    let (.., sentence) = updated(&[OLD, OLD], &least, none);
    assert!(
        sentence.starts_with("node-0: the host is not offered a version that its pool asks for")
    );
}
