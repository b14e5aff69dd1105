//! One step of an agent: from the host's answers and its shadow to what it does next.

use std::hint::black_box;

use brupop_agent_core::answer::{UpdateStatus, parse_os};
use brupop_agent_core::step::{
    BegunCommand, Command, HostFacts, Prefetch, Step, StepMemory, Updates, step,
};
use brupop_api::BottlerocketShadow;
use brupop_api::facts::ShadowFacts;
use serde_json::{Value, json};

use crate::review;

const OS: &str = r#"{"arch":"x86_64","build_id":"5ed15786","pretty_name":"Bottlerocket OS 1.26.0 (aws-k8s-1.36)",
    "variant_id":"aws-k8s-1.36","version_id":"1.26.0"}"#;

/// A host and its shadow.
pub struct Agent {
    shadow: BottlerocketShadow,
    /// The same as it was read.
    read: Value,
    /// `GET /updates/status`.
    status: Vec<u8>,
    memory: StepMemory,
}

impl Agent {
    /// There is an update, and it is not its turn.
    pub fn that_waits() -> Self {
        let mut shadow = review::shadow();
        shadow["spec"]["state"] = json!("Idle");
        Self::with(
            shadow,
            &status("Available", &Value::Null, "refresh"),
            StepMemory::default(),
        )
    }

    /// Its host has activated the image that it staged.
    pub fn that_reports() -> Self {
        let mut shadow = review::shadow();
        shadow["status"]["staged"] =
            json!({"version": "1.27.1", "at": "2026-11-20T09:15:01.123456789Z"});
        let image = json!({"image": image("1.27.1"), "next_to_boot": true});
        let asked = BegunCommand {
            command: Command::Activate,
            before: Some("2026-11-20T09:15:01.123456789Z".parse().expect("a time")),
            is_first_look: false,
        };
        let memory = StepMemory {
            asked: Some(asked),
            began: Some(7),
            refreshed: Some(7),
            prefetch: Prefetch::Off,
            ..StepMemory::default()
        };
        Self::with(shadow, &status("Ready", &image, "activate"), memory)
    }

    fn with(read: Value, status: &Value, memory: StepMemory) -> Self {
        let shadow = serde_json::from_value(read.clone()).expect("a shadow");
        Self {
            shadow,
            read,
            status: status.to_string().into_bytes(),
            memory,
        }
    }

    /// Returns what it sends to the API server now, if anything.
    pub fn step(&self) -> Option<Vec<u8>> {
        let version = parse_os(black_box(OS.as_bytes())).expect("what runs");
        let status = UpdateStatus::parse(black_box(&self.status)).expect("a status");
        let host = HostFacts {
            boot_id: review::BOOT,
            version: &version,
            updates: Updates::Known(status.facts()),
            now: "2026-11-20T09:15:03Z",
        };
        let facts = ShadowFacts::of(black_box(&self.shadow)).expect("a shadow that can be read");
        match step(&host, &facts, &self.memory).0 {
            Step::Report(write) => {
                let patch = write.patch(&self.read);
                Some(serde_json::to_vec(&patch).expect("a patch"))
            }
            Step::Wait => None,
            other => unreachable!("{other:?}"),
        }
    }
}

fn image(version: &str) -> Value {
    json!({"arch": "x86_64", "version": version, "variant": "aws-k8s-1.36"})
}

/// The status document after this command has succeeded.
fn status(state: &str, staged: &Value, command: &str) -> Value {
    json!({
        "update_state": state,
        "available_updates": ["1.27.1", "1.27.0", "1.26.0", "1.25.0"],
        "chosen_update": image("1.27.1"),
        "active_partition": {"image": image("1.26.0"), "next_to_boot": staged.is_null()},
        "staging_partition": staged,
        "most_recent_command": {"cmd_type": command, "cmd_status": "Success",
            "timestamp": "2026-11-20T09:15:02.123456789Z", "exit_status": 0, "stderr": ""},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waits_and_one_reports_the_state_that_it_has_reached() {
        assert_eq!(Agent::that_waits().step(), None);
        let patch: Value = serde_json::from_slice(&Agent::that_reports().step().unwrap()).unwrap();
        let sets = |operation: &&Value| {
            operation["path"] == "/status/current_state" && operation["op"] != "test"
        };
        let set = patch.as_array().unwrap().iter().find(sets).unwrap();
        assert_eq!(set["value"], "StagedAndPerformedUpdate");
    }
}
