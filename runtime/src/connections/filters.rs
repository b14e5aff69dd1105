//! Filters that all ports share: who is let in, reading a body, and how a refusal is answered.

use super::room::Permit;
use crate::authorizer::Authorizer;
use futures::{Stream, TryStreamExt as _};
use http::StatusCode;
use http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use std::pin::pin;
use std::sync::Arc;
use warp::filters::BoxedFilter;
use warp::reply::{Reply as _, Response, with_status};
use warp::{Buf, Filter, Rejection};

pub type Pages = BoxedFilter<(Response,)>;

/// The reason why a request is refused.
#[derive(Debug)]
struct ErrorPage {
    status: StatusCode,
    says: &'static str,
}

impl warp::reject::Reject for ErrorPage {}

/// Answers refusals; warp answers its own.
pub(super) fn with_refusals(pages: Pages) -> Pages {
    let answer = |rejection: Rejection| async move {
        let Some(ErrorPage { status, says }) = rejection.find() else {
            return Err(rejection);
        };
        let mut response = with_status(*says, *status).into_response();
        if *status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Ok(response)
    };
    pages.recover(answer).unify().boxed()
}

pub fn reads() -> impl Filter<Extract = (), Error = Rejection> + Copy {
    warp::get().or(warp::head()).unify()
}

/// Requests of callers whom the authorizer lets in; of all, if there is none. The others learn nothing but a sentence for the
/// status that they are answered with.
pub fn admitted(
    authorizer: Option<Arc<Authorizer>>,
    says: fn(StatusCode) -> &'static str,
) -> impl Filter<Extract = (), Error = Rejection> + Clone {
    let admit = move |headers: HeaderMap, permit: Arc<Permit>| {
        let authorizer = authorizer.clone();
        async move {
            if let Some(authorizer) = authorizer {
                let admitted = authorizer.admit(headers).await;
                admitted.map_err(|status| {
                    Rejection::from(ErrorPage {
                        status,
                        says: says(status),
                    })
                })?;
            }
            permit.answer();
            Ok::<_, Rejection>(())
        }
    };
    let headers = warp::header::headers_cloned().and(warp::ext::get());
    headers.and_then(admit).untuple_one()
}

/// The body of a request, in memory of its own. One that announces no length is refused, for there is nothing to believe then,
/// and so is one of more than this many bytes; neither is read.
pub fn body(longest: u64) -> impl Filter<Extract = (Vec<u8>,), Error = Rejection> + Copy {
    warp::body::content_length_limit(longest)
        .and(warp::header("content-length"))
        .and(warp::ext::get())
        .and(warp::body::stream())
        .and_then(|length, permit: Arc<Permit>, body| async move {
            permit.wait(length);
            let gathered = gather(length, body).await;
            permit.answer();
            let broken = ErrorPage {
                status: StatusCode::BAD_REQUEST,
                says: "the body broke off\n",
            };
            gathered.map_err(|_| Rejection::from(broken))
        })
}

/// Copies a body of this length into memory of its own, frame by frame. A frame of one byte keeps the whole buffer that it was
/// read into, so a body that is sent in small pieces would take thousands of times its length.
async fn gather<E>(
    length: usize,
    body: impl Stream<Item = Result<impl Buf, E>>,
) -> Result<Vec<u8>, E> {
    let (mut body, mut whole) = (pin!(body), Vec::with_capacity(length));
    while let Some(mut frame) = body.try_next().await? {
        while frame.has_remaining() {
            let part = frame.chunk();
            whole.extend_from_slice(part);
            frame.advance(part.len());
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, stream};
    use hyper::body::Bytes;

    #[test]
    fn no_frame_of_a_body_is_kept() {
        // A frame is asked for only when the last one has been copied: then nobody else may hold on to the buffer.
        let frames = stream::unfold(
            (Bytes::from(vec![b'x'; 8192]), 0),
            |(buffer, sent)| async move {
                assert!(buffer.is_unique(), "the frame before number {sent} is kept");
                let frame = buffer.slice(sent..=sent);
                (sent < 100).then_some((Ok::<_, ()>(frame), (buffer, sent + 1)))
            },
        );
        assert_eq!(
            gather(100, frames).now_or_never(),
            Some(Ok(vec![b'x'; 100]))
        );
    }

    #[test]
    fn a_body_that_breaks_off_is_an_error() {
        let frames = stream::iter([Ok(Bytes::from("a")), Err("gone")]);
        assert_eq!(gather(2, frames).now_or_never(), Some(Err("gone")));
    }
}
