//! What must be so before updates start, and is checked again and again: that our admission rules are in force (see
//! [`admission_probe`](crate::admission_probe)), and that no other operator is here. Two operators would cordon, drain and
//! reboot the same nodes, and act on the same shadows.
//!
//! The `DaemonSet` of upstream's operator has the name of ours and is replaced when ours is applied; its Deployments are not.

use std::collections::BTreeSet;
use std::time::Duration;

use brupop_api::Item;
use brupop_api::item::IdentityOnly;
use brupop_runtime::errors::describe;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use kube::{Client, Error};

/// What a check found.
pub trait Finding {
    /// Is it as it must be?
    ///
    /// # Errors
    /// What was found instead, in a sentence.
    fn holds(&self) -> Result<(), String>;

    /// Does it say too little? Then the finding before stays valid for a while.
    fn is_unknown(&self) -> bool;
}

/// Wait after a check that failed; doubled with each further one, up to the interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// For so many intervals a finding stays valid if later ones get no answer.
const STANDS_FOR: u32 = 3;

/// A check that is made again and again; instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug)]
pub struct Check {
    interval: Duration,
    /// What was found, and when; `None` (it does not hold) before the first.
    found: Option<(Result<(), String>, Duration)>,
    next: Duration,
    retry: Duration,
    called: bool,
    /// How many have begun.
    begun: usize,
}

impl Check {
    /// Nothing is known yet, and the first check is due.
    pub fn new(interval: Duration) -> Self {
        Self { interval, found: None, next: Duration::ZERO, retry: FIRST_RETRY, called: false, begun: 0 }
    }

    /// When the next is due; `None` while one is under way.
    pub fn due(&self) -> Option<Duration> {
        (!self.called).then_some(self.next)
    }

    /// A check begins. Returns its number.
    pub fn begin(&mut self) -> usize {
        self.called = true;
        self.begun += 1;
        self.begun
    }

    /// A check ended. Returns whether the result differs from the one before.
    pub fn found(&mut self, finding: &impl Finding, now: Duration) -> bool {
        self.called = false;
        let result = finding.holds();
        let proven = result.is_ok();
        let wait = if proven { self.interval } else { self.retry.min(self.interval) };
        self.retry = if proven { FIRST_RETRY } else { self.retry.saturating_mul(2).min(self.interval) };
        self.next = now + wait;
        if let Some((Ok(()), at)) = &self.found
            && finding.is_unknown()
            && now < *at + self.interval * STANDS_FOR
        {
            return false;
        }
        let before = self.found.replace((result, now));
        before.map(|(result, _)| result) != self.found.as_ref().map(|(result, _)| result.clone())
    }

    /// Is it as it must be?
    ///
    /// # Errors
    /// Why that is not known, or what was seen instead.
    pub fn holds(&self) -> Result<(), &str> {
        match &self.found {
            None => Err("not tried out yet"),
            Some((result, _)) => result.as_ref().map(|&()| ()).map_err(String::as_str),
        }
    }

    /// Is the result of a check known, whatever it is?
    pub fn is_known(&self) -> bool {
        self.found.is_some()
    }
}

/// Where upstream's manifests put it. Its Helm chart may put it elsewhere.
const NAMESPACE: &str = "brupop-bottlerocket-aws";
/// Upstream's Deployments (1.x). The role of the reconciler lists them, too.
const DEPLOYMENTS: [&str; 2] = ["brupop-controller-deployment", "brupop-apiserver"];

/// What was seen of upstream's operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherOperator {
    /// Its Deployments, as `<namespace>/<name>`.
    found: Vec<String>,
    /// Why it is not known whether one of them is here, if that is so.
    unknown: Option<String>,
}

/// Asks for upstream's Deployments, in our namespace and in upstream's own.
pub async fn look_for_other_operator(client: Client, namespace: String) -> OtherOperator {
    let mut looked = OtherOperator::default();
    for namespace in BTreeSet::from([namespace.as_str(), NAMESPACE]) {
        let deployments = Api::<Item<IdentityOnly<Deployment>>>::namespaced(client.clone(), namespace);
        for name in DEPLOYMENTS {
            match deployments.get(name).await {
                Ok(_) => looked.found.push(format!("{namespace}/{name}")),
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => looked.unknown = Some(describe(&error)),
            }
        }
    }
    looked
}

impl Finding for OtherOperator {
    fn holds(&self) -> Result<(), String> {
        if !self.found.is_empty() {
            let found = self.found.join(", ");
            return Err(format!(
                "upstream's operator is installed, too (Deployments {found}), and two operators would reboot the same \
                 nodes: take one of them away, as docs/from-upstream.md says"
            ));
        }
        match &self.unknown {
            Some(why) => Err(format!("it is not known whether upstream's operator is installed, too: {why}")),
            None => Ok(()),
        }
    }

    fn is_unknown(&self) -> bool {
        self.found.is_empty() && self.unknown.is_some()
    }
}

#[cfg(test)]
mod tests;
