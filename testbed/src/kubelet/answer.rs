//! What kubelets answer.

use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::Bytes;

/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// An answer with a text of ours.
pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}
