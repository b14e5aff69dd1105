//! Answers of the simulated kubelets to API servers.

use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;

/// An answer with a text of ours.
pub(super) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}
