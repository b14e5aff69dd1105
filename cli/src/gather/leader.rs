//! Which reconciler leads.

use brupop_api::crds::{MESSAGE_MAX, NAME_MAX};
use brupop_api::{Item, names};
use brupop_core::objects::LeaseRecord;
use brupop_runtime::errors::describe;
use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::{OperatorApi, get};
use crate::Error;
use crate::leads::Leads;
use crate::objects::ReconcilerPod;
use crate::words::shown;

impl OperatorApi {
    /// The pod that leads. The Lease is believed only if a reconciler's pod has the name that it holds: who has a
    /// reconciler's token can write any, and a command is run in this pod with the rights of the caller.
    pub async fn leader(&self) -> Result<String, Error> {
        let lease = self.lease().await?;
        if let Some(warning) = Leads::of(lease.as_ref(), self.time().await).warning() {
            return Err(Error::NoLeader(warning));
        }
        let missing =
            || Error::Missing("reconciler that leads: look at the reconciler's pods".to_owned());
        let holder = lease.and_then(|lease| lease.holder).ok_or_else(missing)?;
        let pod = if names::is_object_name(&holder) {
            get(&self.ours::<Item<ReconcilerPod>>(), &holder).await?
        } else {
            None
        };
        match pod.and_then(|pod| pod.body.ok()) {
            Some(ReconcilerPod { is_one: true }) => Ok(holder),
            _ => Err(Error::NoReconciler(shown(&holder, NAME_MAX))),
        }
    }

    async fn lease(&self) -> Result<Option<LeaseRecord>, Error> {
        self.read(names::LEASE).await
    }

    /// Does a reconciler lead, by the clock of the API server? Whatever else was asked for is answered all the same.
    pub async fn leads(&self) -> Leads {
        match self.lease().await {
            Ok(lease) => Leads::of(lease.as_ref(), self.time().await),
            Err(error) => Leads::NotKnown(shown(&describe(&error), MESSAGE_MAX)),
        }
    }

    /// The time of the API server, from the head of an answer; our own, if that has none.
    async fn time(&self) -> Timestamp {
        let told = async || {
            let request = http::Request::get("/version")
                .body(kube::client::Body::empty())
                .ok()?;
            let answer = self.client.send(request).await.ok()?;
            let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
            Some(rfc2822::parse(date).ok()?.timestamp())
        };
        told().await.unwrap_or_else(Timestamp::now)
    }
}
