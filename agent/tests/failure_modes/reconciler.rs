//! The test plays the reconciler.

use brupop_api::{BottlerocketShadowStatus, State};
use serde_json::json;
use tokio::time::timeout;

use crate::solo::{DEADLINE, NEW, STAGED, Solo};

impl Solo {
    /// The first attempt is over, and the second one leads to a reboot. Returns the status after it.
    pub async fn second_attempt(&self) -> BottlerocketShadowStatus {
        self.spec(&json!({"state": "Idle"}));
        self.until_at(1, State::Idle).await;
        self.stage(2);
        self.until_at(2, STAGED).await;
        self.grant();
        self.until_at(2, State::RebootedIntoUpdate).await
    }

    /// Plays the reconciler, and starts the agent again whenever it has died, until the update is over.
    pub async fn update(&mut self) {
        let (mut seen, mut died) = {
            let store = self.store.lock().unwrap();
            (store.sender.subscribe(), store.died.subscribe())
        };
        while !self.react() {
            if self.has_died() {
                self.start();
            }
            let news = async {
                tokio::select! {
                    changed = seen.changed() => changed.is_ok(),
                    changed = died.changed() => changed.is_ok(),
                }
            };
            assert_eq!(
                timeout(DEADLINE, news).await,
                Ok(true),
                "{:#?} {:?}",
                self.status(),
                self.actions()
            );
        }
    }

    /// Plays the reconciler until the update is over.
    pub async fn reconcile(&self) {
        let mut seen = self.store.lock().unwrap().sender.subscribe();
        while !self.react() && seen.changed().await.is_ok() {}
    }

    /// Returns what the reconciler does next; true when the update is over.
    fn react(&self) -> bool {
        let status = self.status();
        let goal = self.store.lock().unwrap().shadow["spec"]["state"].clone();
        let reached = status.attempt == Some(1)
            && status
                .current_state
                .is_some_and(|state| goal == state.as_str());
        match goal.as_str() {
            Some("Idle") if reached => return status.current_version.as_deref() == Some(NEW),
            Some("Idle")
                if status.attempt.is_none() && status.target_version.as_deref() == Some(NEW) =>
            {
                self.stage(1);
            }
            Some("StagedAndPerformedUpdate") if reached => self.grant(),
            Some("RebootedIntoUpdate") if reached => {
                self.spec(&json!({"state": "MonitoringUpdate"}));
            }
            Some("MonitoringUpdate") if reached => self.spec(&json!({"state": "Idle"})),
            _ => {}
        }
        false
    }
}
