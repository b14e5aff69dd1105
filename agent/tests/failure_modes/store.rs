//! An API server that holds one shadow and no more, and that an agent may die with.

use std::sync::{Arc, Mutex};

use brupop_agent::shadow::Seen;
use brupop_api::crds::{MESSAGE_MAX, is_boot_id};
use brupop_api::printable::is_printable;
use brupop_api::{BottlerocketShadow, BottlerocketShadowStatus};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use json_patch::{Patch, PatchOperation};
use kube::Resource as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

/// When an agent that writes is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    Before,
    /// The write is stored, and the agent hears no answer.
    After,
}

/// The only object there is.
pub struct Store {
    pub shadow: Value,
    pub sender: watch::Sender<Seen>,
    /// Statuses in the order in which they were stored.
    pub statuses: Vec<Value>,
    /// This many writes go well; with the next one the agent dies.
    pub fuse: Option<(usize, Death)>,
    pub died: watch::Sender<bool>,
}

impl Store {
    /// Makes a store with an Idle shadow.
    pub fn new() -> Self {
        let shadow = json!({
            "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
            "metadata": {"name": "brs-node-0", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"state": "Idle"},
        });
        let (sender, died) = (watch::Sender::new(None), watch::Sender::new(false));
        Self {
            shadow,
            sender,
            statuses: vec![],
            fuse: None,
            died,
        }
    }

    /// Another revision, for those who watch.
    pub fn tell(&mut self) {
        let revision: u64 = self.shadow["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        self.shadow["metadata"]["resourceVersion"] = json!((revision + 1).to_string());
        self.show();
    }

    pub fn show(&self) {
        let shadow: BottlerocketShadow = serde_json::from_value(self.shadow.clone()).unwrap();
        self.sender.send_replace(Some(Arc::new(shadow)));
    }

    /// Whether this write kills the agent.
    fn burns(&mut self, death: Death) -> bool {
        match &mut self.fuse {
            Some((0, when)) if *when == death => {
                self.died.send_replace(true);
                true
            }
            Some((left, _)) if death == Death::After => {
                *left = left.saturating_sub(1);
                false
            }
            _ => false,
        }
    }

    /// A patch of the status: all of it, or nothing.
    fn patch(&mut self, patch: &[u8]) -> Result<(), String> {
        let Patch(mut operations) =
            serde_json::from_slice(patch).map_err(|error| error.to_string())?;
        // To an API server, what is absent is null.
        operations.retain(|operation| {
            !matches!(operation, PatchOperation::Test(test)
                if test.value.is_null() && self.shadow.pointer(test.path.as_str()).is_none())
        });
        let patch = Patch(operations);
        let mut patched = self.shadow.clone();
        json_patch::patch(&mut patched, &patch).map_err(|error| error.to_string())?;
        let status: BottlerocketShadowStatus =
            serde_json::from_value(patched["status"].clone()).unwrap();
        within_the_schema(&status)?;
        self.shadow["status"] = patched["status"].clone();
        self.statuses.push(self.shadow["status"].clone());
        self.tell();
        Ok(())
    }
}

/// Refuses texts that the schema refuses, as the API server does.
fn within_the_schema(status: &BottlerocketShadowStatus) -> Result<(), String> {
    let message = status.message.as_deref().unwrap_or_default();
    let boot_ids = [&status.boot_id, &status.reboot_claimed_boot_id];
    let sound = message.len() <= MESSAGE_MAX && is_printable(message);
    if sound
        && boot_ids
            .into_iter()
            .flatten()
            .all(|boot_id| is_boot_id(boot_id))
    {
        return Ok(());
    }
    Err(format!("status in body should match: {status:?}"))
}

/// Answers each request for the object.
pub async fn answer(
    store: Arc<Mutex<Store>>,
    request: Request<Body>,
) -> Result<Response<Body>, kube::Error> {
    if request.method() == Method::PATCH {
        if store.lock().unwrap().burns(Death::Before) {
            std::future::pending::<()>().await;
        }
        let patch = request.into_body().collect().await?.to_bytes();
        let stored = store.lock().unwrap().patch(&patch);
        if let Err(message) = stored {
            let refusal = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": "Invalid", "code": 422});
            return Ok(json_response(422, &refusal));
        }
        if store.lock().unwrap().burns(Death::After) {
            std::future::pending::<()>().await;
        }
    }
    let shadow = store.lock().unwrap().shadow.clone();
    Ok(json_response(200, &shadow))
}

fn json_response(code: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string().into_bytes()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response
}
