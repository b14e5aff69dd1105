//! Counts requests to the API server, by verb and by what was answered: a layer around the client.

use std::borrow::Cow;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tower::{Layer, Service};

/// The code of a request that got no answer: none came in time, there was no connection, or the caller gave up.
const NO_ANSWER: &str = "none";

/// Requests to the API server by verb and by the code of the answer. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct ApiRequests(pub(crate) Family<[(&'static str, Cow<'static, str>); 2], Counter>);

impl<S> Layer<S> for ApiRequests {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting {
            inner,
            requests: self.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Counting<S> {
    inner: S,
    requests: ApiRequests,
}

impl<S, B, R> Service<Request<B>> for Counting<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let verb = verb(request.method(), request.uri());
        let mut pending = Pending {
            requests: self.requests.clone(),
            verb,
            code: NO_ANSWER.into(),
        };
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            if let Ok(response) = &answer {
                pending.answered(response.status());
            }
            answer
        }
        .boxed()
    }
}

/// A request that is counted when this is dropped, so also if nobody waits for its answer any more.
struct Pending {
    requests: ApiRequests,
    verb: &'static str,
    code: Cow<'static, str>,
}

impl Pending {
    fn answered(&mut self, status: StatusCode) {
        self.code = status.as_str().to_owned().into();
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let labels = [("verb", self.verb.into()), ("code", self.code.clone())];
        self.requests.0.get_or_create(&labels).inc();
    }
}

/// The verb of a request, as Kubernetes calls it.
fn verb(method: &Method, uri: &Uri) -> &'static str {
    match *method {
        Method::GET if is_watch(uri) => "watch",
        Method::GET if names_collection(uri.path()) => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

fn is_watch(uri: &Uri) -> bool {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    parameters.any(|parameter| ["watch=true", "watch=1"].contains(&parameter))
}

/// Whether this is the path of all objects of a resource, in a namespace or in all of them.
fn names_collection(path: &str) -> bool {
    let path: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    let (["api", _, resource @ ..] | ["apis", _, _, resource @ ..]) = path.as_slice() else {
        return false;
    };
    matches!(resource, [_] | ["namespaces", _, _])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceExt as _;

    fn counted(requests: &ApiRequests, verb: &'static str, code: &str) -> u64 {
        let answered = [("verb", verb.into()), ("code", code.to_owned().into())];
        requests.0.get(&answered).map_or(0, |counter| counter.get())
    }

    #[test]
    fn verbs_are_those_of_kubernetes() {
        for row in "
            GET /api/v1/nodes list
            GET /api/v1/nodes?limit=500 list
            GET /api/v1/nodes?allowWatchBookmarks=true&watch=true watch
            GET /api/v1/nodes/n get
            GET /api/v1/namespaces list
            GET /api/v1/namespaces/ns get
            GET /api/v1/namespaces/ns/pods list
            GET /api/v1/namespaces/ns/pods/p get
            GET /apis/brupop.bottlerocket.aws/v2/namespaces/ns/bottlerocketfleets list
            GET /apis/brupop.bottlerocket.aws/v2/namespaces/ns/bottlerocketfleets/fleet get
            GET /version get
            POST /api/v1/namespaces/ns/pods/p/eviction create
            PUT /apis/coordination.k8s.io/v1/namespaces/ns/leases/l update
            PATCH /apis/brupop.bottlerocket.aws/v2/namespaces/ns/bottlerocketfleets/fleet/status patch
            DELETE /api/v1/namespaces/ns/pods/p delete
            OPTIONS /api/v1/nodes other"
            .trim()
            .lines()
        {
            let [method, uri, expected] = row.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("{row}")
            };
            assert_eq!(verb(&method.parse().unwrap(), &uri.parse().unwrap()), expected, "{row}");
        }
    }

    #[tokio::test]
    async fn what_gets_no_answer_is_counted_too() {
        let requests = ApiRequests::default();
        let fails =
            tower::service_fn(|_: Request<()>| async { Err::<Response<()>, _>("no connection") });
        let request = || Request::get("/api/v1/nodes").body(()).unwrap();
        assert!(requests.layer(fails).oneshot(request()).await.is_err());
        assert_eq!(counted(&requests, "list", NO_ANSWER), 1);
        let never =
            tower::service_fn(|_: Request<()>| std::future::pending::<Result<Response<()>, ()>>());
        // Nobody waits any longer.
        let asked = requests.layer(never).oneshot(request());
        assert!(asked.now_or_never().is_none());
        assert_eq!(counted(&requests, "list", NO_ANSWER), 2);
    }
}
