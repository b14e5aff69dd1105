//! Says which environment variables are settings, of which program, and in which `ConfigMap` they stand.

/// Variables that the manifests of the pods set, not people.
pub const OF_PODS: [&str; 1] = ["POD_NAME"];
const OF_AGENT: &str = "BOOT_ID_FILE BOTTLEROCKET_API_SOCKET HOST_TIMEOUT POLL_INTERVAL PREFETCH \
    REBOOT_REPEAT_INTERVAL REFRESH_INTERVAL REFUSED_DEADLINE START_JITTER";
const OF_RECONCILER: &str = "AUTO_LABEL BACK_OFF_BASE_SECONDS CHECK_INTERVAL_SECONDS CORDONED_BY_OTHERS_SECONDS \
    DRAIN_DEADLINE_SECONDS EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC GATE_INTERVAL_SECONDS GATE_SOURCES HEALTH_ADDRESS \
    LEASE_DURATION_SECONDS MAX_CONCURRENT_UPDATE METRICS_ADDRESS MIN_NODE_AGE_SECONDS POD_NAME \
    REBOOT_DEADLINE_SECONDS SCHEDULER_CRON_EXPRESSION SCHEDULER_TIME_ZONE SCHEDULER_WINDOW_DURATION \
    SETTLE_DEADLINE_SECONDS SOAK_SECONDS STAGE_DEADLINE_SECONDS WORKLOADS_DEADLINE_SECONDS";
const OF_WEBHOOK: &str = "ADMISSION_ADDRESS CERTIFICATES CERTIFICATE_LIFETIME HEALTH_ADDRESS LINGER_SECONDS \
    METRICS_ADDRESS REQUIRE_CALLER_TOKEN WEBHOOK_CERTIFICATES WEBHOOK_CONFIGURATION WEBHOOK_SERVICE";
crate::words! {
    /// One of the operator's programs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Program {
        /// Reports on a host, and updates it.
        Agent => "agent",
        /// Decides which nodes are updated, and drains them.
        Reconciler => "reconciler",
        /// Admits or refuses writes of what the operator steers by.
        Webhook => "webhook",
    }
}

impl Program {
    /// Returns the variables that it reads, without those of the logs, in the order of the alphabet.
    pub fn settings(self) -> Vec<&'static str> {
        let names = match self {
            Self::Agent => OF_AGENT,
            Self::Reconciler => OF_RECONCILER,
            Self::Webhook => OF_WEBHOOK,
        };
        names.split(' ').collect()
    }

    /// Returns the `ConfigMap` that holds its settings, as it is called before a hash is added to its name.
    pub fn config_map(self) -> &'static str {
        match self {
            Self::Agent => "brupop-agent-configuration",
            Self::Reconciler => "brupop-configuration",
            Self::Webhook => "brupop-webhook-configuration",
        }
    }

    /// Returns whose setting this variable is, if it is another program's and not this one's.
    pub fn misplaced(self, name: &str) -> Option<Self> {
        let reads = |program: &Self| program.settings().contains(&name);
        if reads(&self) || OF_PODS.contains(&name) {
            None
        } else {
            Self::ALL.into_iter().find(reads)
        }
    }
}
