//! Writes that kube does not make as they are needed here: their answers are read as [`Item`]s, so that no field of an answer
//! makes a write look like a failure.

use brupop_api::Item;
use brupop_api::item::Readable;
use kube::api::PostParams;
use kube::core::request::Request;
use kube::{Client, Error, Resource, Result};
use serde::Serialize;

/// Creates an object in a namespace.
///
/// # Errors
/// The API server refuses it, or cannot be reached.
pub async fn create<T>(client: &Client, namespace: &str, object: &impl Serialize) -> Result<Item<T>>
where
    T: Readable,
    T::Kind: Resource<DynamicType = ()>,
{
    let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
    let request = collection::<T>(namespace).create(&PostParams::default(), body);
    client.request(request.map_err(Error::BuildRequest)?).await
}

/// Puts an object in the place of the one of this name, if that still has the object's resource version.
///
/// # Errors
/// The API server refuses it, or cannot be reached.
pub async fn replace<T>(
    client: &Client,
    namespace: &str,
    name: &str,
    object: &impl Serialize,
) -> Result<Item<T>>
where
    T: Readable,
    T::Kind: Resource<DynamicType = ()>,
{
    let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
    let request = collection::<T>(namespace).replace(name, &PostParams::default(), body);
    client.request(request.map_err(Error::BuildRequest)?).await
}

fn collection<T>(namespace: &str) -> Request
where
    T: Readable,
    T::Kind: Resource<DynamicType = ()>,
{
    Request::new(T::Kind::url_path(&(), Some(namespace)))
}
