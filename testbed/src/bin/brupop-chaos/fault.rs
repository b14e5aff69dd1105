//! What can be done to a cluster and to the operator on it.

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

/// How the operator is set, as far as that varies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Number of nodes that may be updated at once.
    pub(crate) limit: usize,
    /// After how many failures a version is halted: one that no node has reached, and any other.
    pub(crate) failures: [u64; 2],
    /// Time for which a node is out of load balancers before its drain, in seconds.
    pub(crate) exclusion: u64,
    #[serde(default)]
    pub(crate) pools: bool,
}

/// A fault, and when it comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Milliseconds after the start.
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
    /// A pod of ours is deleted; its controller makes another one.
    DeletePod { process: Process },
    /// A program of the control plane is killed, and started again.
    KillPlane { program: String, ms: u64 },
    /// A program of the control plane stands still.
    FreezePlane { program: String, ms: u64 },
    /// A snapshot of etcd is made, and etcd restored from it so much later; and the control plane's programs start again.
    Restore { ms: u64 },
    /// What a process says to the API server, or hears from it, is slow or lost.
    Network {
        process: Process,
        weather: Weather,
        ms: u64,
    },
    /// The API server reaches no webhook.
    WebhookUnreachable { ms: u64 },
    /// A host answers a call wrongly, or not.
    HostAnswers {
        node: usize,
        call: Call,
        answer: Answer,
        ms: u64,
    },
    /// A host's command is started, and fails.
    CommandFails {
        node: usize,
        command: Command,
        ms: u64,
    },
    /// A host's command is started and ends, and the host never says so.
    CommandHangs {
        node: usize,
        command: Command,
        ms: u64,
    },
    /// A command that a host starts takes that much longer, and keeps the host's API locked.
    CommandLasts {
        node: usize,
        command: Command,
        ms: u64,
    },
    /// A host falls back when it boots.
    FallsBack { node: usize, ms: u64 },
    /// A host says that it reboots, and does not.
    RebootIgnored { node: usize, ms: u64 },
    /// A host that goes down does not come back.
    StaysDown { node: usize, ms: u64 },
    /// No host that goes down comes back.
    NobodyReturns { ms: u64 },
    /// A host reboots by itself.
    Reboots { node: usize },
    /// A host's API is started again.
    ApiRestarts { node: usize, ms: u64 },
    /// The API server answers what our programs ask with 429.
    Throttled { ms: u64 },
    /// A webhook of a tenant's is to be asked about what our programs write, and nobody answers: the API server says 500.
    Refused { ms: u64 },
    /// A Node is deleted, and made again under the same name.
    Recreate { node: usize },
    /// A Node is deleted, and added later under the same name.
    Leave { node: usize, ms: u64 },
    /// A person changes a setting of one component, whose pods are replaced.
    Configure {
        component: String,
        setting: String,
        value: String,
    },
    /// A person gives a node the label of another pool, and later that of its own.
    Relabel { node: usize, pool: String, ms: u64 },
    /// A person changes a pool, and later changes it back.
    Pool {
        pool: String,
        change: PoolChange,
        ms: u64,
    },
    /// A person cordons a node, and later uncordons it.
    Cordon { node: usize, ms: u64 },
    /// A person uncordons a node, no matter who cordoned it.
    Uncordon { node: usize },
    /// A person cordons a node and evicts its pods, and later uncordons it.
    Drain { node: usize, ms: u64 },
    /// A person pauses a node.
    PauseNode { node: usize, ms: u64 },
    /// A person pauses the fleet.
    PauseFleet { ms: u64 },
    /// A person resumes the versions that are halted.
    ResumeVersions,
    /// A person deletes the fleet, and with it the ledger.
    DeleteFleet,
    /// A person takes the opt-in label away, and gives it back.
    Unlabel { node: usize, ms: u64 },
    /// A person asks for the update of a node.
    UpdateNow { node: usize, ms: u64 },
    /// A person writes into the status of a shadow.
    EditStatus { node: usize, status: Json },
    /// A person writes into the spec of a shadow.
    EditSpec { node: usize, spec: Json },
    /// A person deletes a shadow.
    DeleteShadow { node: usize },
    /// A budget allows no disruption.
    CloseBudget { workload: String, ms: u64 },
    /// A workload has one more budget, which may be too long to be read. Kubernetes evicts no pod of two budgets.
    AnotherBudget {
        workload: String,
        unreadable: bool,
        ms: u64,
    },
    /// A workload is scaled to as many replicas, and later back.
    Scale {
        workload: String,
        replicas: usize,
        ms: u64,
    },
    /// A workload gets a version whose pods never become Ready, and later its own again.
    BadRollOut { workload: String, ms: u64 },
    /// Some pods of a workload with a budget are not Ready.
    Unhealthy {
        workload: String,
        pods: usize,
        ms: u64,
    },
    /// A pod on a node is being deleted, and a finalizer keeps it.
    StuckPod { node: usize, ms: u64 },
    /// A host's API takes connections, and answers nothing.
    ApiHangs { node: usize, ms: u64 },
    /// A Node is deleted as soon as its update is over, as an autoscaler does with an empty one, and added later.
    RemovedWhenUpdated { node: usize, ms: u64 },
    /// Times in the ledger and of a node are an hour ahead, as a leader with such a clock writes them.
    ClockAhead { node: usize },
    /// A pod without a controller runs on a node.
    UnmanagedPod { node: usize, ms: u64 },
    /// A Node that is not being updated has a marker that nobody can read.
    UnreadableMarker { node: usize, ms: u64 },
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

/// What a person does to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PoolChange {
    Limit(u8),
    Paused,
    Frozen,
    /// Its only window is open half a day from now.
    Closed,
    /// Its window is open in every second minute.
    Alternates,
    Deleted,
    /// It selects all nodes, before all others.
    TakesAll,
}

impl Fault {
    /// After how many milliseconds it is taken back. An API that is started again comes back by itself.
    pub(crate) fn lasts(&self) -> Option<u64> {
        let json = self.json();
        json["ms"]
            .as_u64()
            .filter(|_| !matches!(self, Self::ApiRestarts { .. }))
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

    /// Its kind and what it is made on: taking back one of several is taking back all.
    pub(crate) fn subject(&self) -> String {
        let json = self.json();
        ["fault", "node", "workload", "pool"]
            .map(|field| json[field].to_string())
            .concat()
    }

    fn json(&self) -> Json {
        serde_json::to_value(self).unwrap_or_default()
    }
}
