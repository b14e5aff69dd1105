//! The shipped operator in a namespace, everybody who plays a part, and shadows to try the rows on.

use super::tokens::{Cast, cast};
use crate::raw;
use anyhow::{Context as _, Result, bail, ensure};
use brupop_admission_cases::{Actor, Ask, Host, Request, Row, Verdict, World, table};
use brupop_api::BottlerocketShadow;
use brupop_testbed::{ControlPlane, await_until};
use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps a shadow whose owner is not there from the garbage collector.
const KEPT: &str = "testbed.example/kept";

/// The gates that exist, of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gates {
    Both,
    PolicyAlone,
    WebhookAlone,
}

/// The outcome of a request: the answer, or code and message of the refusal.
pub type Answer = Result<Json, (u16, String)>;

pub struct Bed {
    pub cast: Cast,
    /// The shadows as the last row left them.
    known: Mutex<BTreeMap<Host, Json>>,
}

impl Bed {
    /// Awaits that everybody is there.
    pub async fn take_part(
        control_plane: &ControlPlane,
        namespace: &str,
        nodes: &[Node],
    ) -> Result<Self> {
        Ok(Self {
            cast: cast(control_plane, namespace, nodes).await?,
            known: Mutex::default(),
        })
    }

    /// Awaits that the API server's cache has forgotten the tokens of what is gone.
    async fn forgotten(&self) -> Result<()> {
        let shadows = self.shadows_path();
        for actor in Actor::GONE {
            await_until(format!("the end of the token of {actor:?}"), async || {
                let answer = self.get(actor, &shadows).await;
                matches!(answer, Ok(Err((401, _)))).then_some(())
            })
            .await?;
        }
        Ok(())
    }

    fn world(&self) -> &World {
        &self.cast.world
    }

    pub fn namespace(&self) -> &str {
        &self.world().namespace
    }

    pub fn shadow_path(&self, host: Host) -> String {
        let name = &self.world().node(host).name;
        format!("{}/brs-{name}", self.shadows_path())
    }

    fn shadows_path(&self) -> String {
        BottlerocketShadow::url_path(&(), Some(self.namespace()))
    }

    /// Asks in JSON; the body of a PATCH is a JSON patch if it is a list, else a merge patch.
    pub async fn ask(
        &self,
        actor: Actor,
        method: Method,
        path: &str,
        body: &Json,
    ) -> Result<Answer> {
        let asked = Request {
            content_type: raw::content_type(&method, body),
            method,
            path: path.to_owned(),
            body: if body.is_null() {
                String::new()
            } else {
                body.to_string()
            },
        };
        self.send(actor, asked, "testbed").await
    }

    pub async fn get(&self, actor: Actor, path: &str) -> Result<Answer> {
        self.ask(actor, Method::GET, path, &Json::Null).await
    }

    pub async fn patch(&self, actor: Actor, path: &str, body: &Json) -> Result<Answer> {
        self.ask(actor, Method::PATCH, path, body).await
    }

    /// `says` is how the caller calls itself: the audit log keeps it.
    pub async fn send(&self, actor: Actor, asked: Request, says: &str) -> Result<Answer> {
        let caller = &self.cast.callers[&actor];
        let mut request = http::Request::builder()
            .method(asked.method)
            .uri(&asked.path)
            .header("content-type", asked.content_type)
            .header("user-agent", says);
        for (name, value) in &caller.headers {
            request = request.header(name, value);
        }
        let request = request.body(asked.body.into_bytes())?;
        match caller.client.request(request).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(kube::Error::Api(status)) => Ok(Err((status.code, status.message.clone()))),
            Err(error) => Err(error).context(format!("{actor:?}: {}", asked.path)),
        }
    }

    async fn admin(&self, method: Method, path: &str, body: &Json) -> Result<Json> {
        let answer = self.ask(Actor::Admin, method, path, body).await?;
        answer.map_err(|(code, message)| anyhow::anyhow!("{path}: {code} {message}"))
    }

    /// Returns what is stored under this path; null if nothing is.
    async fn stored(&self, path: &str) -> Result<Json> {
        match self.get(Actor::Admin, path).await? {
            Ok(object) => Ok(object),
            Err((404, _)) => Ok(Json::Null),
            Err((code, message)) => bail!("{path}: {code} {message}"),
        }
    }

    async fn delete(&self, path: &str) -> Result<()> {
        let free = json!({"metadata": {"finalizers": null}});
        let answer = self.ask(Actor::Admin, Method::DELETE, path, &Json::Null);
        match answer.await? {
            // It waits for a finalizer that a row has set.
            Ok(object) if object["metadata"].get("finalizers").is_some() => {
                self.admin(Method::PATCH, path, &free).await.map(drop)
            }
            Ok(_) | Err((404, _)) => Ok(()),
            Err((code, message)) => bail!("{path}: {code} {message}"),
        }
    }

    /// Makes the row's shadow again, unless it is there as it should be.
    async fn shadow(&self, row: &Row) -> Result<Json> {
        let mut shadow = row.shadow(self.world());
        if !row.metadata.is_null() {
            shadow["metadata"]["finalizers"] = json!([KEPT]);
        }
        let known = self.known().remove(&row.of);
        if let Some(known) = known.filter(|known| content(known) == content(&shadow)) {
            return Ok(known);
        }
        let path = self.shadow_path(row.of);
        self.delete(&path).await?;
        let mut made = self
            .admin(Method::POST, &self.shadows_path(), &shadow)
            .await?;
        if let Some(status) = shadow.get("status") {
            let status = json!({"status": status});
            made = self
                .admin(Method::PATCH, &format!("{path}/status"), &status)
                .await?;
        }
        Ok(made)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Host, Json>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A shadow that is Idle and known, as in the first row, for single questions.
    pub async fn idle_shadow(&self, host: Host) -> Result<()> {
        let mut row = table().remove(0);
        row.of = host;
        self.known().remove(&host);
        self.shadow(&row).await.map(drop)
    }

    /// The verdict is given, by the one who should, and what is stored afterwards is as it should be.
    async fn check(&self, gates: Gates, row: &Row, verdict: Verdict) -> Result<()> {
        let path = self.shadow_path(row.of);
        let before = if row.ask.creates() {
            self.known().remove(&row.of);
            self.delete(&path).await?;
            Json::Null
        } else {
            self.shadow(row).await?
        };
        let draft = if row.ask.creates() {
            row.shadow(self.world())
        } else {
            before.clone()
        };
        let answer = self
            .send(row.actor, row.request(self.world(), &draft), &row.says)
            .await?;
        if row.ask == Ask::DeleteAll {
            self.known().clear();
        }
        compare(verdict, gates, &answer)?;
        let Ok(answer) = answer else {
            let after = self.stored(&path).await?;
            ensure!(
                content(&after) == content(&before),
                "refused, and yet changed: {after}"
            );
            // Not even written again, unless the garbage collector has come by.
            ensure!(
                after == before || !row.metadata.is_null(),
                "refused, and yet written: {after}"
            );
            self.remember(row, after);
            return Ok(());
        };
        // A created object may have another name than expected.
        let made = answer["metadata"]["name"]
            .as_str()
            .filter(|_| row.ask.creates());
        let path = made.map_or(path, |name| format!("{}/{name}", self.shadows_path()));
        let expected = if row.stores_nothing || row.dry_run {
            before.clone()
        } else {
            row.after(&draft)
                .context("the row cannot tell what is stored")?
        };
        let after = match self.stored(&path).await? {
            // The garbage collector deletes what has an owner that is not there, sometimes before it is read.
            Json::Null if !expected.is_null() && (row.ask.creates() || !row.metadata.is_null()) => {
                answer
            }
            after => after,
        };
        ensure!(
            content(&after) == content(&expected),
            "stored {after}, not {expected}"
        );
        if row.ask.creates() {
            self.delete(&path).await?;
        } else if after == before {
            self.remember(row, after);
        }
        Ok(())
    }

    fn remember(&self, row: &Row, stored: Json) {
        // An object with another owner may be collected at any time.
        if row.metadata.is_null() && !stored.is_null() {
            self.known().insert(row.of, stored);
        }
    }

    /// All rows for the API server: how many, and those that do not hold, by what they say.
    pub async fn check_all(&self, gates: Gates, table: &[Row]) -> (usize, Vec<String>) {
        let rows = table
            .iter()
            .filter(|row| row.is_for_the_api_server())
            .map(|row| (row, row.verdict));
        let setup = format!("{gates:?}");
        let (there, gone): (Vec<_>, Vec<_>) =
            rows.partition(|(row, _)| !Actor::GONE.contains(&row.actor));
        let (here, mut wrong) = self.check_these(&setup, gates, there.into_iter()).await;
        wrong.extend(self.forgotten().await.err().map(|error| error.to_string()));
        let (gone, more) = self.check_these(&setup, gates, gone.into_iter()).await;
        wrong.extend(more);
        (here + gone, wrong)
    }

    /// The rows that RBAC refuses, now that it does not: what is behind it.
    pub async fn check_behind_rbac(&self, gates: Gates, table: &[Row]) -> (usize, Vec<String>) {
        let rows = table
            .iter()
            .filter(|row| row.is_for_the_api_server() && row.verdict == Verdict::ByRbac);
        let behind = rows.filter_map(|row| Some((row, row.behind?)));
        self.check_these(&format!("behind RBAC, {gates:?}"), gates, behind)
            .await
    }

    async fn check_these(
        &self,
        setup: &str,
        gates: Gates,
        rows: impl Iterator<Item = (&Row, Verdict)>,
    ) -> (usize, Vec<String>) {
        let (mut checked, mut wrong) = (0, Vec::new());
        for (row, verdict) in rows {
            checked += 1;
            if let Err(error) = self.check(gates, row, verdict).await {
                let text = format!("{error:#}");
                let end = text.floor_char_boundary(900);
                wrong.push(format!(
                    "{setup}: {:?}: {}: {}",
                    row.actor,
                    row.says,
                    &text[..end]
                ));
            }
        }
        (checked, wrong)
    }
}

/// The answer is the verdict's, with these gates.
fn compare(verdict: Verdict, gates: Gates, answer: &Answer) -> Result<()> {
    match (refusal(verdict, gates), answer) {
        (Some((code, words)), Err((refused, message))) => {
            let fits = *refused == code && words.iter().all(|word| message.contains(word));
            ensure!(fits, "not {code} {words:?}, but {refused}: {message}");
            Ok(())
        }
        (None, Ok(_)) => Ok(()),
        (expected, answer) => bail!("not {expected:?}, but {answer:?}"),
    }
}

/// Code and words of the refusal, if there is one with these gates.
fn refusal(verdict: Verdict, gates: Gates) -> Option<(u16, [&'static str; 2])> {
    const POLICY: &str = "ValidatingAdmissionPolicy '";
    const WEBHOOK: &str =
        "admission webhook \"shadows.brupop.bottlerocket.aws\" denied the request: ";
    match (verdict, gates) {
        (Verdict::ByRbac, _) => Some((403, ["cannot", "User \""])),
        (Verdict::BySchema(words), _) => Some((422, [words, "is invalid"])),
        (Verdict::ByServer(code, words), _) => Some((code, [words, ""])),
        (Verdict::ByPolicy(rule) | Verdict::ByBoth(rule), Gates::Both | Gates::PolicyAlone) => {
            Some((403, [rule, POLICY]))
        }
        (Verdict::ByWebhook(rule), Gates::Both | Gates::WebhookAlone)
        | (Verdict::ByBoth(rule), Gates::WebhookAlone) => Some((403, [rule, WEBHOOK])),
        _ => None,
    }
}

/// Returns what a row can change: not what the API server fills in. Fields that are null, and a status without any, are none.
fn content(object: &Json) -> ([Option<Json>; 4], [Json; 2]) {
    let metadata = |field: &str| object["metadata"].get(field).cloned();
    let half = |name: &str| {
        let mut half = object[name].clone();
        if let Some(fields) = half.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        if half == json!({}) { Json::Null } else { half }
    };
    (
        ["ownerReferences", "labels", "finalizers", "annotations"].map(metadata),
        ["spec", "status"].map(half),
    )
}
