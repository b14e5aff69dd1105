//! Requests in plain JSON, for what no typed client would send.

use http::Method;
use kube::Client;
use serde_json::Value as Json;

/// Sends `body` (null: none) and returns what is answered. The body of a PATCH is a JSON patch if it is a list, else a
/// merge patch.
pub async fn request(client: &Client, method: Method, path: &str, body: &Json) -> Result<Json, kube::Error> {
    let kind = match (&method, body) {
        (&Method::PATCH, Json::Array(_)) => "application/json-patch+json",
        (&Method::PATCH, _) => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(if body.is_null() { vec![] } else { body.to_string().into_bytes() });
    client.request(request.map_err(kube::Error::HttpError)?).await
}
