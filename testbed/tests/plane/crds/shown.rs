//! The columns that people see.

use super::Half::{FleetSpec, ShadowSpec};
use super::{Objects, TIME, condition};
use crate::raw;
use anyhow::{Context as _, Result, ensure};
use brupop_testbed::ControlPlane;
use http::Method;
use serde_json::json;

pub async fn kubectl_shows_the_columns(control_plane: &ControlPlane) -> Result<()> {
    let client = control_plane.client();
    let mut objects = Objects {
        client: &client,
        made: 2000,
    };
    let (path, mut shadow) = objects
        .make(
            ShadowSpec,
            &json!({"state": "RebootedIntoUpdate", "version": "1.20.0"}),
        )
        .await?;
    shadow["status"] = json!({
        "current_state": "StagedAndPerformedUpdate", "current_version": "1.19.4", "target_version": "1.20.1",
        "crash_count": 3, "pool": "canary",
        "conditions": [condition(0), {"type": "Progressing", "status": "True", "reason": "Draining", "message": "", "lastTransitionTime": TIME}],
    });
    raw::request(&client, Method::PUT, &format!("{path}/status"), &shadow).await?;
    let (path, mut fleet) = objects.make(FleetSpec, &json!({"paused": true})).await?;
    fleet["status"] = json!({
        "nodes": 9, "updatedNodes": 6, "updatingNodes": 2, "pendingNodes": 1, "blockedNodes": 0, "unavailableLimit": 4, "haltedVersions": ["1.20.1", "1.21.0"],
    });
    raw::request(&client, Method::PUT, &format!("{path}/status"), &fleet).await?;
    let expected = [
        (
            "get brs object-2001",
            "NAME|STATE|VERSION|TARGET STATE|TARGET VERSION|REASON",
            "object-2001|StagedAndPerformedUpdate|1.19.4|RebootedIntoUpdate|1.20.1|Draining",
        ),
        (
            "get brs object-2001 -o wide",
            "NAME|STATE|VERSION|TARGET STATE|TARGET VERSION|REASON|POOL|CRASH COUNT|AGE",
            "object-2001|StagedAndPerformedUpdate|1.19.4|RebootedIntoUpdate|1.20.1|Draining|canary|3",
        ),
        (
            "get brf fleet -n object-2002",
            "NAME|NODES|UPDATED|UPDATING|PENDING|BLOCKED|HALTED|PAUSED|ENFORCED|OTHER OPERATOR|AGE",
            r#"fleet|9|6|2|1|0|["1.20.1","1.21.0"]|true"#,
        ),
    ];
    for (command, head, line) in expected {
        let table = control_plane.kubectl(command.split(' ')).await?;
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| {
                line.split("   ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        let [found, cells] = &rows[..] else {
            anyhow::bail!("{table}")
        };
        // An age changes from one look to the next.
        let cells = match found.last() {
            Some(&"AGE") => cells.split_last().context("no cells")?.1,
            _ => &cells[..],
        };
        ensure!(
            found.join("|") == head && cells.join("|") == line,
            "{table}"
        );
    }
    Ok(())
}
