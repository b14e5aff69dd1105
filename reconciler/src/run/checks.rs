//! Checks that must hold before updates start, and are repeated: that our admission rules are in force, as dry-run
//! writes prove that only they refuse; and that no other operator is here. Two operators would cordon, drain and reboot the
//! same nodes, and act on the same shadows. If a pool wants it, also: that pods may be deleted.
//!
//! The `DaemonSet` of upstream's operator has the name of ours and is replaced when ours is applied; its Deployments are not.

use std::collections::BTreeSet;
use std::time::Duration;

use brupop_api::BottlerocketShadow;
use brupop_api::names;
use brupop_api::names::admission_check::{NODE_ANNOTATION, WEBHOOK_RULE};
use brupop_runtime::errors::{describe, status_message};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, GetParams, Patch, PatchParams, PostParams};
use kube::core::Request as HttpRequest;
use kube::core::request::Error as RequestError;
use kube::{Client, Error, Resource as _};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::run::{Leading, Pass, Reconciler, Wake};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is as it must be.
    Holds,
    /// It is not. Says in a sentence what was found instead.
    Fails(String),
    /// There is no answer that says more, so the finding before stays valid for a while. Says why.
    Unknown(String),
}

/// Wait after a check that failed; doubled with each further one, up to the interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// For this many intervals a finding stays valid if later ones get no answer.
const STANDS_FOR: u32 = 3;

/// Number of unanswered checks after which nobody waits for an answer.
const TRIES: usize = 6;

/// A check that is made again and again; instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub struct Check {
    interval: Duration,
    /// The last result, and its time; `None` (it does not hold) before the first.
    found: Option<(Result<(), String>, Duration)>,
    next: Duration,
    retry: Duration,
    called: bool,
    begun: usize,
    answered: bool,
}

impl Check {
    /// Nothing is known yet, and the first check is due.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            retry: FIRST_RETRY,
            ..Self::default()
        }
    }

    /// Begins a check, if it is due; if it will be, the loop wakes then. Returns its number.
    pub fn begin(&mut self, now: Duration, wake: &mut Wake) -> Option<usize> {
        if self.called {
            return None;
        }
        if now < self.next {
            wake.by(self.next);
            return None;
        }
        self.called = true;
        self.begun += 1;
        Some(self.begun)
    }

    /// A check ended. Returns whether the result differs from the one before.
    pub fn found(&mut self, finding: Finding, now: Duration) -> bool {
        self.called = false;
        let is_unknown = matches!(finding, Finding::Unknown(_));
        self.answered |= !is_unknown;
        let result = match finding {
            Finding::Holds => Ok(()),
            Finding::Fails(why) | Finding::Unknown(why) => Err(why),
        };
        if result.is_ok() {
            (self.next, self.retry) = (now + self.interval, FIRST_RETRY);
        } else {
            self.next = now + self.retry.min(self.interval);
            self.retry = self.retry.saturating_mul(2).min(self.interval);
        }
        if let Some((Ok(()), at)) = &self.found
            && is_unknown
            && now < *at + self.interval * STANDS_FOR
        {
            return false;
        }
        let is_news = self.found.as_ref().map(|(before, _)| before) != Some(&result);
        self.found = Some((result, now));
        is_news
    }

    /// Something else showed that it does not hold, while no check can be made: before the first, or when one has been due for
    /// an interval. Of several such sentences one in an interval counts. The next check is due as before.
    pub fn doubt(&mut self, why: String, now: Duration) {
        let found = self.found.as_ref();
        let is_stale = found.is_none_or(|(_, at)| now >= *at + self.interval);
        let none_is_made = self.begun == 0 || (!self.called && now >= self.next + self.interval);
        if none_is_made && is_stale {
            self.found = Some((Err(why), now));
        }
    }

    /// Whether it is as it must be.
    ///
    /// # Errors
    /// Why that is not known, or what was seen instead.
    pub fn holds(&self) -> Result<(), &str> {
        match &self.found {
            None => Err("not tried out yet"),
            Some((result, _)) => result.as_ref().map(|&()| ()).map_err(String::as_str),
        }
    }

    /// Whether the API server has answered a check, or has left [`TRIES`] of them without an answer.
    pub fn is_answered(&self) -> bool {
        self.answered || (self.begun > TRIES && !self.called)
    }

    /// Returns what is known of it, by a check or by a doubt, if anything is.
    pub fn known(&self) -> Option<Result<(), &str>> {
        self.found.as_ref().map(|_| self.holds())
    }
}

/// The namespace of upstream's manifests. Its Helm chart may use another.
const NAMESPACE: &str = "brupop-bottlerocket-aws";
/// Upstream's Deployments (1.x). The role of the reconciler lists them, too.
const DEPLOYMENTS: [&str; 2] = ["brupop-controller-deployment", "brupop-apiserver"];

/// Asks for upstream's Deployments, in our namespace and in upstream's own.
pub async fn look_for_other_operator(client: Client, namespace: String) -> Finding {
    let (mut found, mut unknown) = (vec![], None);
    for namespace in BTreeSet::from([namespace.as_str(), NAMESPACE]) {
        let deployments = HttpRequest::new(Deployment::url_path(&(), Some(namespace)));
        for name in DEPLOYMENTS {
            let request = deployments.get(name, &GetParams::default());
            match made(&client, request).await {
                Ok(()) => found.push(format!("{namespace}/{name}")),
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => unknown = Some(describe(&error)),
            }
        }
    }
    other_operator(&found, unknown)
}

/// Returns what these Deployments of upstream's operator mean, and an answer that is missing (`unknown` says why).
fn other_operator(found: &[String], unknown: Option<String>) -> Finding {
    match (found, unknown) {
        ([], None) => Finding::Holds,
        ([], Some(why)) => Finding::Unknown(format!(
            "it is not known whether upstream's operator is installed, too: {why}"
        )),
        (found, _) => Finding::Fails(format!(
            "upstream's operator is installed, too (Deployments {}), and two operators would reboot the same nodes: \
             remove one of them (docs/migrating.md)",
            found.join(", ")
        )),
    }
}

/// Asks whether this account may delete pods in all namespaces, as the component force-drain lets it.
pub async fn ask_for_force(client: Client) -> Finding {
    let attributes = ResourceAttributes {
        verb: Some("delete".to_owned()),
        resource: Some("pods".to_owned()),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews = Api::<SelfSubjectAccessReview>::all(client);
    let answer = reviews.create(&PostParams::default(), &review).await;
    match answer.map(|review| review.status.is_some_and(|status| status.allowed)) {
        Ok(true) => Finding::Holds,
        Ok(false) => Finding::Fails("the reconciler may not delete pods".to_owned()),
        Err(error) => Finding::Unknown(describe(&error)),
    }
}

/// The most objects on which the writes are tried, as long as the answers say nothing about our rules.
const TRIED_ON: usize = 3;

/// Part of the API server's answer if it does not trust the webhook's certificate.
const UNTRUSTED: &str = "x509: ";
/// The finding about a rule that refuses nothing.
const ALLOWED: &str = "the request was allowed";

/// Returns what the answers to the dry-run writes mean: the one that only the webhook refuses, and those that only the policy
/// refuses, on a shadow and on a Node.
fn admission([webhook, shadow, node]: [&Finding; 3]) -> Finding {
    let sentence = |rule: &str, found: &Finding| match found {
        Finding::Holds => None,
        Finding::Fails(what) if what.contains(UNTRUSTED) => Some(format!(
            "{rule} was not asked, because caBundle does not fit its certificate (if another tool writes caBundle, let it leave \
             that out: without the component cert-manager, remove the annotation cert-manager.io/inject-ca-from from the \
             ValidatingWebhookConfiguration): {what}"
        )),
        Finding::Fails(what) => Some(format!("{rule} did not refuse the dry run: {what}")),
        Finding::Unknown(why) => Some(format!("it is not known whether {rule} is enforced: {why}")),
    };
    let policy_for = |kind| format!("the ValidatingAdmissionPolicy of the reconciler, for {kind},");
    let missing = [
        sentence("the validating webhook", webhook),
        sentence(&policy_for("shadows"), shadow),
        sentence(&policy_for("Nodes"), node),
    ];
    let missing: Vec<String> = missing.into_iter().flatten().collect();
    let mut all = [webhook, shadow, node].into_iter();
    if missing.is_empty() {
        Finding::Holds
    } else if all.any(|found| matches!(found, Finding::Fails(_))) {
        Finding::Fails(missing.join("; "))
    } else {
        // An answer is missing, while the others show no rule to be out of force.
        Finding::Unknown(missing.join("; "))
    }
}

/// Makes the dry-run writes on the shadows and the Nodes of these names, in their order, until an answer says something
/// about our rules. An object may be such that no write of it gets as far as them: a stolen node sees to that for its own. It
/// could also hold what a write sets, which would then change nothing; so that is a number that nobody foresees.
pub async fn try_out_admission(client: Client, namespace: String, nodes: Vec<String>) -> Finding {
    let value = format!("refuse {:016x}", fastrand::u64(..));
    let nothing = json!({"status": {}});
    let message = json!({"status": {"message": value}});
    let annotation = json!({"metadata": {"annotations": {NODE_ANNOTATION: value}}});
    let (shadows, all) = (
        BottlerocketShadow::url_path(&(), Some(&namespace)),
        Node::url_path(&(), None),
    );
    let on_shadow = |body: Value| {
        let shadows = HttpRequest::new(shadows.clone());
        let body = Patch::Merge(body);
        move |node: &str| {
            shadows.patch_subresource("status", &names::shadow_name(node), &dry_run(), &body)
        }
    };
    let all = HttpRequest::new(all);
    let annotation = Patch::Merge(annotation);
    let on_node = |node: &str| all.patch(node, &dry_run(), &annotation);
    let (webhook, shadow, node) = tokio::join!(
        probe(&client, &nodes, on_shadow(nothing), is_our_webhook),
        probe(&client, &nodes, on_shadow(message), is_our_policy),
        probe(&client, &nodes, on_node, is_our_policy),
    );
    admission([&webhook, &shadow, &node])
}

fn dry_run() -> PatchParams {
    PatchParams {
        dry_run: true,
        ..PatchParams::default()
    }
}

/// Makes this write on one node after the other. Returns the first answer that is our rule's refusal, or that shows it not to be in
/// force; else the first of the others, for those after it are most likely the same.
async fn probe(
    client: &Client,
    nodes: &[String],
    write: impl Fn(&str) -> Result<http::Request<Vec<u8>>, RequestError>,
    is_ours: fn(&str) -> bool,
) -> Finding {
    let mut other = None;
    for node in nodes {
        let answer = made(client, write(node)).await;
        match answer.map_err(|error| refusal(error, is_ours)) {
            Ok(()) => return Finding::Fails(ALLOWED.to_owned()),
            Err(Finding::Holds) => return Finding::Holds,
            Err(found) => drop(other.get_or_insert(found)),
        }
    }
    other.unwrap_or_else(|| Finding::Unknown("there is no node for the dry runs".to_owned()))
}

/// Makes a request of whose answer only the status counts.
async fn made(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, RequestError>,
) -> Result<(), Error> {
    let request = request.map_err(Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await.map(drop)
}

/// Nodes to try the writes on: a few, from all over the list, and others each time.
pub fn spread(nodes: &[&str], number: usize) -> Vec<String> {
    let tried = nodes.len().min(TRIED_ON);
    (0..tried)
        .map(|nth| nodes[(number + nth * nodes.len() / tried) % nodes.len()].to_owned())
        .collect()
}

/// `admission webhook "<name>" denied the request: <rule> (<field>): …`
fn is_our_webhook(message: &str) -> bool {
    let mut parts = ["admission webhook", "denied", WEBHOOK_RULE].into_iter();
    parts.all(|part| message.contains(part))
}

/// `… ValidatingAdmissionPolicy '<name>' with binding '<name>' denied request: <rule>: …`, whichever of our rules it is: other
/// people's admission may have changed more of the object.
fn is_our_policy(message: &str) -> bool {
    let mut parts = ["ValidatingAdmissionPolicy", "denied request: reconciler-"].into_iter();
    parts.all(|part| message.contains(part))
}

/// What this refusal shows: the rule is in force if it is that of our rule, and not if anything else refuses the request.
fn refusal(error: Error, is_ours: fn(&str) -> bool) -> Finding {
    match error {
        Error::Api(status) => match status.code {
            400..500 if is_ours(&status.message) => Finding::Holds,
            // The object is gone, or the server is too busy: this says nothing about the rule.
            404 | 429 | 503 | 504 => Finding::Unknown(status_message(&status).into_owned()),
            // This includes 500, "failed calling webhook": no write gets past it, but then no write of an update would,
            // either.
            _ => Finding::Fails(status_message(&status).into_owned()),
        },
        error => Finding::Unknown(describe(&error)),
    }
}

impl Reconciler {
    /// Starts the checks that are due: dry runs on nodes with a shadow, which prove our admission rules to be in force, and a
    /// look for another operator.
    pub(super) fn check(&mut self, pass: &mut Pass<'_>) {
        let (client, namespace) = (self.api.client.clone(), self.api.namespace.clone());
        let nodes = pass.cluster.normal_nodes();
        if !nodes.is_empty() {
            let (client, namespace) = (client.clone(), namespace.clone());
            let tried = |number| try_out_admission(client, namespace, spread(&nodes, number));
            self.begin(pass, "admission", |it| &mut it.admission, tried);
        }
        let looked = |_| look_for_other_operator(client, namespace);
        self.begin(pass, "other operator", |it| &mut it.alone, looked);
    }

    /// Asks from time to time, if a pool wants it, whether pods may be deleted. Returns whether there is an answer, or nobody
    /// needs one: a new leader must not give a drain up that it may end by force.
    pub(crate) fn knows_right_to_force(&mut self, pass: &mut Pass<'_>) -> bool {
        if !pass.cluster.wants_force() {
            return true;
        }
        let client = self.api.client.clone();
        let asked = |_| ask_for_force(client);
        self.begin(pass, "right to delete pods", |it| &mut it.may_force, asked);
        self.leading.may_force.is_answered()
    }

    /// Makes this check, which has a number, if it is due.
    fn begin<F: Future<Output = Finding> + Send + 'static>(
        &mut self,
        pass: &mut Pass<'_>,
        check: &'static str,
        of: fn(&mut Leading) -> &mut Check,
        make: impl FnOnce(usize) -> F,
    ) {
        let now = self.now();
        let Some(number) = of(&mut self.leading).begin(now, &mut pass.wake) else {
            return;
        };
        self.start(make(number), move |this, finding| {
            let (now, known) = (this.now(), of(&mut this.leading));
            match (known.found(finding, now), known.holds()) {
                (false, _) => {}
                (true, Ok(())) => tracing::info!(check, "the check holds"),
                (true, Err(why)) => tracing::warn!(check, why, "the check does not hold"),
            }
        });
    }
}

#[cfg(test)]
mod tests;
