//! Requests in plain JSON, for what no typed client would send.

use http::Method;
use kube::Client;
use serde_json::Value as Json;

/// Sends `body` (null: none) and returns what is answered. The body of a PATCH is a JSON patch if it is a list, else a
/// merge patch.
pub async fn request(
    client: &Client,
    method: Method,
    path: &str,
    body: &Json,
) -> Result<Json, kube::Error> {
    let kind = content_type(&method, body);
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind);
    client
        .request(request.body(bytes(body)).map_err(kube::Error::HttpError)?)
        .await
}

/// Returns what the API server is told of a body.
pub fn content_type(method: &Method, body: &Json) -> &'static str {
    match (method, body) {
        (&Method::PATCH, Json::Array(_)) => "application/json-patch+json",
        (&Method::PATCH, _) => "application/merge-patch+json",
        _ => "application/json",
    }
}

pub fn bytes(body: &Json) -> Vec<u8> {
    if body.is_null() {
        vec![]
    } else {
        body.to_string().into_bytes()
    }
}
