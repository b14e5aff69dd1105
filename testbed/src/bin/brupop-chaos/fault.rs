//! The faults of a cluster and of the operator on it.

use brupop_testbed::gateways::Weather;
use brupop_testbed::host::{Answer, Call, Command};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// All that a run depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) steps: Vec<Step>,
}

/// The settings of the operator that vary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Number of nodes that may be updated at once.
    pub(crate) limit: usize,
    /// After how many failures a version is halted: one that no node has reached, and any other.
    pub(crate) failures: [u64; 2],
    /// Time for which a node is out of load balancers before its drain, in seconds.
    pub(crate) exclusion: u64,
}

/// A fault, and when it comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Time after the start, in milliseconds.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) fault: Fault,
}

/// A fault. One with `ms` is taken back after that number of milliseconds; nodes are numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// Every repository has a new release; a bad one comes up on no host.
    Publish { version: String, bad: bool },
    /// A process is killed (SIGKILL); its kubelet starts it again.
    Kill { process: Process },
    /// A process stands still (SIGSTOP, SIGCONT).
    Freeze { process: Process, ms: u64 },
    /// A person changes the reconciler's limit, and its pods are replaced.
    Limit { limit: usize },
    /// A program of the control plane is killed, and started again; or it stands still.
    Plane {
        program: String,
        killed: bool,
        ms: u64,
    },
    /// A snapshot of etcd is made, and etcd restored from it so much later; and the control plane's programs start again.
    Restore { ms: u64 },
    /// Messages between a process and the API server are slow or lost.
    Network {
        process: Process,
        weather: Weather,
        ms: u64,
    },
    /// The API server reaches no webhook.
    WebhookUnreachable { ms: u64 },
    /// A webhook of a tenant's is to be asked about what our programs write, and nobody answers: the API server says 500.
    Refused { ms: u64 },
    /// A host answers a call wrongly, or not.
    HostAnswers {
        node: usize,
        call: Call,
        answer: Answer,
        ms: u64,
    },
    /// A host's command is started and fails, or ends without the host ever saying so.
    CommandFails {
        node: usize,
        command: Command,
        silently: bool,
        ms: u64,
    },
    /// A host says that it reboots, and does not.
    RebootIgnored { node: usize, ms: u64 },
    /// A host that goes down does not come back.
    StaysDown { node: usize, ms: u64 },
    /// A host reboots by itself.
    Reboots { node: usize },
    /// A Node is deleted, and later added under the same name.
    Leave { node: usize, ms: u64 },
    /// A person takes the opt-in label away, and gives it back.
    Unlabel { node: usize, ms: u64 },
    /// A person writes into the spec or status of a shadow.
    Edit { node: usize, patch: Json },
    /// A person deletes a shadow.
    DeleteShadow { node: usize },
    /// A person deletes the fleet, and with it the ledger.
    DeleteFleet,
    /// A person cordons a node, and later uncordons it.
    Cordon { node: usize, ms: u64 },
    /// A person uncordons a node, no matter who cordoned it.
    Uncordon { node: usize },
    /// A budget allows no disruption.
    CloseBudget { workload: String, ms: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Process {
    /// The reconciler that holds the Lease.
    Leader,
    Reconciler(usize),
    Webhook(usize),
    /// The agent on a node.
    Agent(usize),
}

impl Fault {
    /// After how many milliseconds it is taken back.
    pub(crate) fn lasts(&self) -> Option<u64> {
        self.json()["ms"].as_u64()
    }

    /// The node that it is of, if it is of one.
    pub(crate) fn node(&self) -> Option<usize> {
        let json = self.json();
        let node = json
            .get("node")
            .or_else(|| json.pointer("/process/agent"))?;
        node.as_u64().and_then(|node| usize::try_from(node).ok())
    }

    /// The word for its kind, as in a schedule.
    pub(crate) fn kind(&self) -> String {
        self.json()["fault"].as_str().unwrap_or_default().to_owned()
    }

    fn json(&self) -> Json {
        serde_json::to_value(self).unwrap_or_default()
    }
}
