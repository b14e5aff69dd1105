//! `kubectl brupop` on a real control plane: what it shows and writes, and which rights people need for it.

mod person;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::{FLEET, PAUSE_ANNOTATION, UPDATE_NOW_ANNOTATION};
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::NEW;
use brupop_testbed::fleet::Records as _;
use brupop_testbed::history::Seen;
use brupop_testbed::host::Faults;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::{Value as Json, json};

use person::{Person, program};

#[tokio::test(flavor = "multi_thread")]
async fn people_see_and_steer_a_fleet_as_far_as_their_roles_go() -> Result<()> {
    let mut fleet = Fleet::quick(3, &[]).await?;
    let reader = Person::with(&fleet, "reader", Some("brupop-viewer")).await?;
    let operator = Person::with(&fleet, "operator", Some("brupop-operator")).await?;
    let admin = Person {
        kubeconfig: fleet.control_plane.kubeconfig(),
    };
    let elsewhere = ["there is no operator in the namespace nosuch; there is one in"];
    admin.is_refused("status -n nosuch", &elsewhere).await?;

    a_reader_sees_and_changes_nothing(&fleet, &reader).await?;
    let nobody = Person::with(&fleet, "nobody", None).await?;
    let rights = [
        "you may not get bottlerocketfleets",
        "ClusterRole brupop-viewer gives this right",
    ];
    nobody.is_refused("status", &rights).await?;
    // The rights of Kubernetes' own roles, as docs/reference.md says.
    let viewer = Person::with(&fleet, "viewer", Some("view")).await?;
    let events_too = "create rolebinding viewer -n default --clusterrole=view --user=viewer";
    fleet.kubectl(events_too).await?;
    let why = viewer.says("why node-0", &["node-0: NoUpdate"]).await?;
    ensure!(!why.contains("Not shown"), "{why}");
    let editor = Person::with(&fleet, "editor", Some("edit")).await?;
    the_plan_is_made_in_the_pod(&fleet, &editor).await?;

    a_fleet_is_paused_once(&fleet, &operator).await?;

    // No host boots the new version, and one node is left out.
    a_node_is_paused_once(&fleet, &admin).await?;
    fleet.set_faults(&Faults {
        bad_images: [NEW.to_owned()].into(),
        ..Faults::default()
    });
    fleet.publish(NEW)?;
    fleet
        .until_node("node-2", "is left alone", |seen| {
            seen.reason == "NodePaused"
        })
        .await?;
    for node in ["node-0", "node-1"] {
        fleet
            .until_node(node, "is held back", |seen| seen.reason == "FleetPaused")
            .await?;
    }
    let why = [
        "node-1: FleetPaused",
        "--context testbed resume`",
        "update to 1.20.0",
    ];
    reader.says("why node-1", &why).await?;
    let status: Json = reader.says_json("status").await?;
    let waiting = |number: usize| {
        (
            &status["waiting"][number]["reason"],
            &status["waiting"][number]["nodes"],
        )
    };
    ensure!(
        waiting(0) == (&json!("FleetPaused"), &json!(["node-0", "node-1"])),
        "{status}"
    );
    ensure!(
        waiting(1) == (&json!("NodePaused"), &json!(["node-2"])),
        "{status}"
    );
    operator.says("resume", &["no longer paused"]).await?;

    a_halted_version_is_seen_and_resumed(&fleet, &reader, &operator).await?;
    an_update_is_asked_for(&fleet, &admin).await?;
    what_happened_is_told(&fleet, &admin).await?;
    fleet.check()
}

async fn a_reader_sees_and_changes_nothing(fleet: &Fleet, reader: &Person) -> Result<()> {
    let all = "3 of 3 nodes up to date, 0 moving, 0 waiting; 0 of 1 slots in use";
    await_until("all is up to date", async || {
        reader.says("status", &[all]).await.ok()
    })
    .await?;
    let json: Json = reader.says_json("status").await?;
    ensure!(
        json["updatedNodes"] == 3 && json["each"][0]["version"] == "1.19.4",
        "{json}"
    );
    let why = reader
        .says(
            "why node-0",
            &[
                "node-0: NoUpdate",
                "1.19.4",
                "Not shown:  you may not list events",
            ],
        )
        .await?;
    ensure!(why.contains("ClusterRole view gives this right"), "{why}");
    reader
        .says("history -o yaml", &["versions:", "you may not list events"])
        .await?;
    let mut audit = fleet.control_plane.audit().from_now();
    let (pause, node) = (
        "patch bottlerocketfleets.brupop.bottlerocket.aws",
        "you may not get nodes",
    );
    reader
        .is_refused(
            "pause",
            &[
                "you may not",
                pause,
                "ClusterRole brupop-operator gives this right",
            ],
        )
        .await?;
    reader
        .is_refused("pause node-0", &[node, "none of the operator's roles"])
        .await?;
    reader
        .is_refused(
            "plan",
            &[
                "the plan could not be made",
                "User \"reader\" cannot get resource \"deployments\"",
            ],
        )
        .await?;
    reader
        .says("why node-9", &["the node has no shadow", node])
        .await?;
    let asked = audit.read()?;
    let refused = asked
        .iter()
        .filter(|event| event.user.username == "reader" && event.verb == "patch");
    ensure!(refused.map(Event::code).eq([403]), "{asked:#?}");
    Ok(())
}

async fn the_plan_is_made_in_the_pod(fleet: &Fleet, editor: &Person) -> Result<()> {
    let mut audit = fleet.control_plane.audit().from_now();
    let plan: Json = editor.says_json("plan").await?;
    ensure!(
        plan["nodes"]
            .as_array()
            .is_some_and(|nodes| nodes.len() == 3),
        "{plan}"
    );
    let asked = audit.wait_for("the command", |event| {
        event.object.resource == "pods" && event.object.subresource == "exec"
    });
    let asked = asked.await?.request_uri;
    let words = "command=%2Fbrupop-reconciler&command=plan";
    ensure!(
        asked.contains(words) && asked.contains("container=reconciler"),
        "{asked}"
    );

    // The same without the plugin.
    let kubectl = async |words: &str| {
        fleet
            .control_plane
            .kubectl(["-n", NAMESPACE].into_iter().chain(words.split(' ')))
            .await
    };
    let plan = kubectl("exec deploy/brupop-reconciler -- /brupop-reconciler plan").await?;
    ensure!(plan.contains("\"inUse\": 0"), "{plan}");
    for (of, started) in [
        ("deploy/brupop-reconciler", "reconciler started"),
        ("deploy/brupop-webhook", "webhook started"),
        ("daemonset/brupop-agent", "agent started"),
    ] {
        let log = kubectl(&format!("logs {of}")).await?;
        ensure!(log.contains(started), "{of}: {log}");
    }
    Ok(())
}

async fn a_fleet_is_paused_once(fleet: &Fleet, operator: &Person) -> Result<()> {
    let mut audit = fleet.control_plane.audit().from_now();
    operator.says("pause", &["the fleet is paused"]).await?;
    let paused = fleet.ledger().get(FLEET).await?;
    // By the name from which Flux takes nothing away at its next sync; `make neighbours` shows that.
    let managers = paused.metadata.managed_fields.iter().flatten();
    let by_plugin = managers.filter(|entry| entry.manager.as_deref() == Some("brupop-cli"));
    ensure!(
        paused.spec.paused && by_plugin.count() == 1,
        "{:?}",
        paused.metadata.managed_fields
    );
    let done: Json = operator.says_json("pause").await?;
    ensure!(done[0]["changed"] == false, "{done}");
    let asked = audit.read()?;
    let written = asked
        .iter()
        .filter(|event| event.user.username == "operator" && event.verb == "patch");
    ensure!(written.count() == 1, "{asked:#?}");
    Ok(())
}

async fn annotation(fleet: &Fleet, node: &str, key: &str) -> Result<Option<String>> {
    Ok(Api::<Node>::all(fleet.client())
        .get(node)
        .await?
        .annotations()
        .get(key)
        .cloned())
}

async fn a_node_is_paused_once(fleet: &Fleet, admin: &Person) -> Result<()> {
    admin
        .says("pause node-2", &["the node node-2 is paused"])
        .await?;
    let several = ["the node node-2 is paused already"];
    let missing = ["there is no Node node-9"];
    admin.says("pause node/node-2 node-2", &several).await?;
    admin.is_refused("pause node-9 node-2", &missing).await?;
    ensure!(
        annotation(fleet, "node-2", PAUSE_ANNOTATION)
            .await?
            .as_deref()
            == Some("true")
    );
    admin
        .is_refused("pause node-9", &["there is no Node node-9"])
        .await
}

async fn a_halted_version_is_seen_and_resumed(
    fleet: &Fleet,
    reader: &Person,
    operator: &Person,
) -> Result<()> {
    operator
        .is_refused(
            "resume --version 9.9.9",
            &["the version 9.9.9 is not halted"],
        )
        .await?;
    let second = await_until(
        "one node is held back by the failure of another",
        async || {
            let history = fleet.history();
            let waits = |seen: &Seen| seen.reason == "VersionHalted" && seen.crashes == 0;
            history
                .now()
                .find(|(_, seen)| waits(seen))
                .map(|(node, _)| node.to_owned())
        },
    );
    let second = second.await?;
    let status = fleet.until_no_slot_is_taken().await?;
    let at = status.record(NEW).halted_at.context("no halt")?;
    reader
        .says(
            "status",
            &[
                "1.20.0 for aws-k8s-1.36-amd64",
                "--context testbed resume --version 1.20.0`",
            ],
        )
        .await?;
    reader
        .says(
            &format!("why {second}"),
            &["VersionHalted", "resume the version"],
        )
        .await?;

    fleet.set_faults(&Faults::default());
    operator
        .says(
            "resume --version 1.20.0",
            &["1.20.0 for aws-k8s-1.36-amd64 is resumed"],
        )
        .await?;
    let spec = fleet.ledger().get(FLEET).await?.spec;
    let resumed: Vec<_> = spec
        .resumed_versions
        .iter()
        .map(|it| (it.version.as_str(), it.halted_at.as_str()))
        .collect();
    ensure!(resumed == [(NEW, at.as_str())], "{resumed:?}");
    fleet
        .until_node(&second, "is updated", |seen| {
            seen.runs(NEW) && seen.reason == "NoUpdate"
        })
        .await
}

async fn an_update_is_asked_for(fleet: &Fleet, admin: &Person) -> Result<()> {
    admin
        .says(
            "update-now node-2",
            &["the update of the node node-2 is requested"],
        )
        .await?;
    admin
        .says("update-now node-2", &["is requested already"])
        .await?;
    let cancelled = ["no longer requested"];
    admin.says("update-now node-2 --cancel", &cancelled).await?;
    let asked = ["the update of the node node-2 is requested"];
    admin.says("update-now node-2", &asked).await?;
    ensure!(
        annotation(fleet, "node-2", UPDATE_NOW_ANNOTATION)
            .await?
            .as_deref()
            == Some("true")
    );
    admin.says("why node-2", &["node-2: NodePaused"]).await?;
    admin.says("resume node-2", &["no longer paused"]).await?;
    fleet.until_runs("node-2", NEW).await?;
    fleet.until_no_slot_is_taken().await?;
    ensure!(
        annotation(fleet, "node-2", UPDATE_NOW_ANNOTATION)
            .await?
            .is_none(),
        "the request ends with its update"
    );
    ensure!(
        annotation(fleet, "node-2", PAUSE_ANNOTATION)
            .await?
            .is_none()
    );
    Ok(())
}

async fn what_happened_is_told(fleet: &Fleet, admin: &Person) -> Result<()> {
    fleet
        .wait_for_event("node-2", "Updated", "the node runs 1.20.0")
        .await?;
    admin
        .says(
            "history",
            &["FellBack", "VersionHalted", "UpdateAborted", "Updated"],
        )
        .await?;
    admin
        .says("why node-2", &["UpdateStarted", "Updated"])
        .await?;
    // kubectl finds the program by its name, and asks another one what can follow.
    let programs = program()?.parent().context("no folder")?.to_owned();
    let own = fleet.control_plane.dir().join("completes");
    std::fs::create_dir(&own)?;
    let script = own.join("kubectl_complete-brupop");
    std::fs::write(
        &script,
        admin
            .says("completion", &["kubectl-brupop __complete"])
            .await?,
    )?;
    std::fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    let path = format!("PATH=$PATH:{}:{}", programs.display(), own.display());
    fleet
        .paste(&format!("{path} kubectl brupop status"))
        .await?;
    for (words, offered) in [
        ("pause --po", "--pool*:4"),
        ("hist", "history*:4"),
        ("why ''", "node-0*node-2*:4"),
        ("why brs", ":4"),
    ] {
        let told =
            format!("export {path}; told=$(kubectl __complete brupop {words}); echo \"$told\" >&2");
        fleet
            .paste(&format!(
                "{told}; case $told in {offered}) ;; *) exit 1 ;; esac"
            ))
            .await?;
    }
    Ok(())
}
