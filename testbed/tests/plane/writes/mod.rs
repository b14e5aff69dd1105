//! The interpreter of writes against the real API server: what [`brupop_apply::apply`] makes of a typed object is
//! what the server makes of the JSON patch. The model checker rests on this.

mod arbitrary;
mod objects;

use crate::{custom_resources, raw};
use anyhow::{Context as _, Result, bail, ensure};
use arbitrary::{Case, Expected, Kind};
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Field, Object, State, Write, names};
use brupop_apply::{Fields, apply};
use brupop_testbed::{ControlPlane, Options};
use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::Resource as _;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "fleet";
/// Cases of each kind of write, unless `PROPTEST_CASES` asks for more.
const CASES: u32 = 120;

/// The objects of one kind, spoken to in plain JSON.
struct Server {
    client: Client,
    kind: Kind,
}

/// An object as read, its path, and whether it is written through `/status`.
#[derive(Debug)]
struct Found {
    path: String,
    json: Json,
}

impl Server {
    fn new(client: Client, kind: Kind) -> Self {
        Self { client, kind }
    }

    async fn request(&self, method: Method, path: &str, body: &Json) -> Result<Json, kube::Error> {
        raw::request(&self.client, method, path, body).await
    }

    /// The path to the objects of this kind, and a new name there. There is one fleet in a namespace, so that is new.
    async fn place(&self) -> Result<(String, String)> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("object-{}", MADE.fetch_add(1, Ordering::Relaxed));
        Ok(match self.kind {
            Kind::Node => ("/api/v1/nodes".to_owned(), name),
            Kind::Fleet => {
                let namespace =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                self.request(Method::POST, "/api/v1/namespaces", &namespace)
                    .await?;
                (
                    BottlerocketFleet::url_path(&(), Some(&name)),
                    names::FLEET.to_owned(),
                )
            }
            Kind::ShadowSpec | Kind::ShadowStatus => {
                (BottlerocketShadow::url_path(&(), Some("default")), name)
            }
        })
    }

    /// Makes an object of this content.
    async fn make(&self, content: &Json) -> Result<Found> {
        let (collection, name) = self.place().await?;
        let (api_version, kind) = match self.kind {
            Kind::Node => ("v1".into(), "Node"),
            Kind::Fleet => (BottlerocketFleet::api_version(&()), "BottlerocketFleet"),
            Kind::ShadowSpec | Kind::ShadowStatus => {
                (BottlerocketShadow::api_version(&()), "BottlerocketShadow")
            }
        };
        let bare = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": content["spec"]});
        let json = self.request(Method::POST, &collection, &bare).await?;
        self.put(
            &Found {
                path: format!("{collection}/{name}"),
                json,
            },
            content,
        )
        .await
    }

    /// Gives an object this content.
    async fn put(&self, found: &Found, content: &Json) -> Result<Found> {
        let path = &found.path;
        let mut json = found.json.clone();
        json["spec"] = content["spec"].clone();
        for half in ["labels", "annotations"] {
            json["metadata"][half] = content["metadata"][half].clone();
        }
        let mut json = self.request(Method::PUT, path, &json).await?;
        if self.kind != Kind::Node && json.get("status") != content.get("status") {
            json["status"] = content["status"].clone();
            if content.get("status").is_none() {
                json.as_object_mut().context("an object")?.remove("status");
            }
            json = self
                .request(Method::PUT, &format!("{path}/status"), &json)
                .await?;
        }
        Ok(Found {
            path: path.clone(),
            json,
        })
    }

    /// Returns what is stored after the write; `None` if the server refuses, in which case nothing has changed.
    async fn write(&self, write: &Write<'_>, read: &Json, now: &Found) -> Result<Option<Json>> {
        let sub = if matches!(write.object, Object::ShadowStatus(_) | Object::Ledger) {
            "/status"
        } else {
            ""
        };
        let patch = serde_json::to_value(write.patch(read))?;
        match self
            .request(Method::PATCH, &format!("{}{sub}", now.path), &patch)
            .await
        {
            Ok(stored) => Ok(Some(stored)),
            Err(kube::Error::Api(status)) if status.code == 422 => {
                let stored = self.request(Method::GET, &now.path, &Json::Null).await?;
                ensure!(stored == now.json, "refused, and yet changed: {stored}");
                Ok(None)
            }
            Err(error) => bail!("{patch}: {error}"),
        }
    }
}

fn object(kind: Kind) -> Object<&'static str> {
    match kind {
        Kind::ShadowSpec => Object::ShadowSpec(NAME),
        Kind::ShadowStatus => Object::ShadowStatus(NAME),
        Kind::Node => Object::Node(NAME),
        Kind::Fleet => Object::Ledger,
    }
}

/// Returns what a write is about, by meaning.
fn content(object: &impl Serialize) -> Result<Json> {
    let json = serde_json::to_value(object)?;
    let metadata = |key: &str| json.pointer(&format!("/metadata/{key}")).cloned();
    Ok(json!({
        "labels": metadata("labels"), "annotations": metadata("annotations"),
        "spec": json["spec"], "status": json.get("status"),
    }))
}

/// Returns what the schemas' rules say beside the tests of a write.
fn schema_allows(before: &impl Serialize, after: &impl Serialize) -> Result<bool> {
    let (before, after) = (content(before)?, content(after)?);
    let falls = |half: &str, field: &str| {
        before[half][field]
            .as_u64()
            .is_some_and(|old| after[half][field].as_u64().is_none_or(|new| new < old))
    };
    Ok(after["spec"]["state"] != json!(State::ErrorReset)
        && !falls("spec", "attempt")
        && !falls("spec", "leader_term")
        && !falls("status", "term"))
}

/// Returns what the interpreter makes of it; `None` if it refuses.
fn interpreted<T: Fields + Clone + Serialize>(write: &Write<'_>, now: &T) -> Result<Option<Json>> {
    let mut after = now.clone();
    if apply(write, &mut after).is_err() || !schema_allows(now, &after)? {
        return Ok(None);
    }
    content(&after).map(Some)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Written,
    Refused,
    /// Only because something beside the tested fields had changed.
    WrittenOnceReadAgain,
}

/// One case: server and interpreter agree.
async fn agree<T>(server: &Server, case: &Case) -> Result<Outcome>
where
    T: Fields + Clone + Serialize + DeserializeOwned,
{
    let read = server.make(&case.read).await?;
    let now = match &case.stored {
        Some(content) => server.put(&read, content).await?,
        None => Found {
            path: read.path.clone(),
            json: read.json.clone(),
        },
    };
    let (typed_read, typed_now): (T, T) = (
        serde_json::from_value(read.json.clone())?,
        serde_json::from_value(now.json.clone())?,
    );
    let test = |(field, expected): &(Field<'static>, Expected)| {
        let value = match expected {
            Expected::AsRead => typed_read.get(*field),
            Expected::AsStored => typed_now.get(*field),
            Expected::Guess(value) => Some(value.clone()),
        };
        Ok((
            *field,
            value.with_context(|| format!("{field:?} of {:?}", server.kind))?,
        ))
    };
    let write = Write {
        object: object(server.kind),
        tests: case.tests.iter().map(test).collect::<Result<_>>()?,
        sets: case.sets.clone(),
    };
    let quoted = |found: &Found, typed: &T| -> Result<Json> {
        Ok(if case.typed {
            serde_json::to_value(typed)?
        } else {
            found.json.clone()
        })
    };
    let (quoted_read, quoted_now) = (quoted(&read, &typed_read)?, quoted(&now, &typed_now)?);
    let stored = |json: Json| content(&serde_json::from_value::<T>(json)?);
    let expected = interpreted(&write, &typed_now)?;
    let found = server
        .write(&write, &quoted_read, &now)
        .await?
        .map(stored)
        .transpose()?;
    let context = || {
        format!(
            "{write:?}\nread {}\nnow {}\npatch {}",
            read.json,
            now.json,
            json!(write.patch(&quoted_read))
        )
    };
    match (&expected, &found) {
        (None, None) => Ok(Outcome::Refused),
        (Some(_), None) if now.json != read.json => {
            let found = server
                .write(&write, &quoted_now, &now)
                .await?
                .map(stored)
                .transpose()?;
            ensure!(
                found == expected,
                "read again: {found:?}, not {expected:?}\n{}",
                context()
            );
            Ok(Outcome::WrittenOnceReadAgain)
        }
        _ => {
            ensure!(
                found == expected,
                "stored {found:?}\ninterpreted {expected:?}\n{}",
                context()
            );
            Ok(Outcome::Written)
        }
    }
}

fn property(runtime: &tokio::runtime::Runtime, server: &Server) -> Result<()> {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    config.max_shrink_time = 20_000;
    config.source_file = Some(file!());
    config.failure_persistence = Some(Box::new(FileFailurePersistence::WithSource("regressions")));
    let cases = config.cases;
    let outcomes = RefCell::new(BTreeMap::<Outcome, u32>::new());
    let ran = TestRunner::new(config).run(&arbitrary::case(server.kind), |case| {
        let outcome = runtime.block_on(async {
            match server.kind {
                Kind::Node => agree::<Node>(server, &case).await,
                Kind::Fleet => agree::<BottlerocketFleet>(server, &case).await,
                Kind::ShadowSpec | Kind::ShadowStatus => {
                    agree::<BottlerocketShadow>(server, &case).await
                }
            }
        });
        *outcomes
            .borrow_mut()
            .entry(outcome.map_err(|e| TestCaseError::fail(format!("{e:#}")))?)
            .or_default() += 1;
        Ok(())
    });
    ran.map_err(|error| anyhow::anyhow!("{:?}: {error}", server.kind))?;
    let outcomes = outcomes.into_inner();
    println!("{:?}: {outcomes:?}", server.kind);
    for outcome in [Outcome::Written, Outcome::Refused] {
        let times = outcomes.get(&outcome).copied().unwrap_or(0);
        ensure!(
            times >= cases / 20,
            "{:?}: {outcome:?} {times} times in {cases}: too few to tell",
            server.kind
        );
    }
    Ok(())
}

#[test]
fn the_write_interpreter_agrees_with_the_api_server() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let control_plane = runtime.block_on(ControlPlane::start(Options::API))?;
    runtime.block_on(custom_resources::install(&control_plane))?;
    let client = control_plane.client();
    for kind in [
        Kind::ShadowSpec,
        Kind::ShadowStatus,
        Kind::Node,
        Kind::Fleet,
    ] {
        property(&runtime, &Server::new(client.clone(), kind))?;
    }
    Ok(())
}
