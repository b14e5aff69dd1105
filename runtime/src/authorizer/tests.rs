use super::*;
use http::{HeaderValue, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Plays the API server: knows `good` and `poor`, of which only `good` may get /metrics. Never answers about `silent…`.
#[derive(Clone)]
struct ApiServer {
    reviews: Arc<AtomicUsize>,
    away: Arc<AtomicBool>,
    /// One answer may be given for each.
    turns: Arc<Semaphore>,
}

impl ApiServer {
    fn start() -> (Self, Client) {
        let turns = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let server = Self {
            reviews: Arc::default(),
            away: Arc::default(),
            turns,
        };
        let answering = server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = answering.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        (server, Client::new(service, "default"))
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let _turn = self.turns.acquire().await.unwrap();
        let token_review = request.uri().path() == "/apis/authentication.k8s.io/v1/tokenreviews";
        let asked: Value =
            serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
        let respond = |code, body: &Value| {
            let response = Response::builder().status(code);
            response.body(body.to_string().into_bytes().into()).unwrap()
        };
        if self.away.load(Ordering::SeqCst) {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                "message": "away", "reason": "InternalError"});
            return respond(500, &status);
        }
        let status = if token_review {
            self.reviews.fetch_add(1, Ordering::SeqCst);
            match asked["spec"]["token"].as_str() {
                Some(token @ ("good" | "poor")) => {
                    let user = json!({"username": token, "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}});
                    json!({"authenticated": true, "user": user})
                }
                Some(token) if token.starts_with("silent") => std::future::pending().await,
                _ => json!({"error": "invalid bearer token"}),
            }
        } else {
            let user = &asked["spec"]["user"];
            let spec = json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                "user": user, "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}});
            assert_eq!(asked["spec"], spec);
            json!({"allowed": user == "good"})
        };
        let mut answer = asked;
        answer["status"] = status;
        respond(201, &answer)
    }

    fn asked(&self) -> usize {
        self.reviews.load(Ordering::SeqCst)
    }
}

fn with(authorization: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(authorization))])
}

fn authorizer(requirement: Requirement) -> (ApiServer, Arc<Authorizer>) {
    let (server, client) = ApiServer::start();
    let authorizer = Authorizer::new(client, requirement, Refusals::default());
    (server, authorizer)
}

#[tokio::test]
async fn callers_are_let_in_by_their_tokens() {
    let (server, authorizer) = authorizer(Requirement::Get("/metrics"));
    let unauthenticated = Err(StatusCode::UNAUTHORIZED);
    let mut twice = with("Bearer poor");
    twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer good"));
    for (headers, expected) in [
        (with("Bearer good"), Ok(())),
        (with("bearer good"), Ok(())),
        (with("Bearer poor"), Err(StatusCode::FORBIDDEN)),
        (with("Bearer made-up"), unauthenticated),
        (with("Bearer "), unauthenticated),
        (with("Basic good"), unauthenticated),
        (with("good"), unauthenticated),
        (HeaderMap::new(), unauthenticated),
        (twice, unauthenticated),
    ] {
        let admitted = authorizer.admit(headers.clone()).await;
        assert_eq!(admitted, expected, "{headers:?}");
    }
    let once = "each token once, and nobody about what is no token";
    assert_eq!(server.asked(), 3, "{once}");
    let refusals = &authorizer.refusals.0;
    let refused = |reason| refusals.get_or_create(&[("reason", reason)]).get();
    let counts = ["unauthenticated", "forbidden", "unavailable"].map(refused);
    assert_eq!(counts, [6, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn known_answers_hold_without_the_api_server() {
    let (server, authorizer) = authorizer(Requirement::Get("/metrics"));
    let come = async |authorization| authorizer.admit(with(authorization)).await;
    assert_eq!(come("Bearer good").await, Ok(()));
    server.away.store(true, Ordering::SeqCst);
    assert_eq!(come("Bearer good").await, Ok(()));
    assert_eq!(come("Bearer poor").await, TRY_AGAIN);
    tokio::time::advance(Duration::from_mins(1)).await;
    let expired = come("Bearer good").await;
    assert_eq!(expired, TRY_AGAIN, "its answer has expired");
    server.away.store(false, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(1)).await;
    let again = come("Bearer good").await;
    assert_eq!(again, Ok(()), "a known one is soon asked about again");
    assert_eq!(come("Bearer poor").await, Err(StatusCode::FORBIDDEN));
}

#[tokio::test(start_paused = true)]
async fn a_silent_api_server_holds_nobody_for_long() {
    let (server, authorizer) = authorizer(Requirement::Get("/metrics"));
    server.turns.forget_permits(usize::MAX);
    let began = Instant::now();
    // Those with the same token share a review; the others wait for a turn.
    let came: Vec<_> = (0..50)
        .map(|number| {
            let authorizer = Arc::clone(&authorizer);
            let token = format!("token-{}", number / 2);
            tokio::spawn(async move { authorizer.judge(token).await })
        })
        .collect();
    for came in came {
        assert_eq!(came.await.unwrap(), TRY_AGAIN);
    }
    assert!(began.elapsed() <= REVIEW_TIMEOUT + Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn made_up_tokens_keep_nobody_out_who_was_let_in() {
    let (server, authorizer) = authorizer(Requirement::Token);
    assert_eq!(authorizer.admit(with("Bearer good")).await, Ok(()));
    tokio::time::advance(Duration::from_mins(1)).await;
    let made_up: Vec<_> = (0..2000)
        .map(|number| {
            let authorizer = Arc::clone(&authorizer);
            tokio::spawn(async move { authorizer.judge(format!("silent-{number}")).await })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(authorizer.reviews.available_permits(), 0);
    assert_eq!(authorizer.admit(with("Bearer good")).await, Ok(()));
    for made_up in made_up {
        assert_eq!(made_up.await.unwrap(), TRY_AGAIN);
    }
    assert_eq!(server.asked(), 2 + REVIEWS_MAX);
}
