use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use kube::client::Body;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const US: &str = "us";
const OURS: Duration = Duration::from_secs(15);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn read(spec: &Value) -> Item<LeaseRecord> {
    let metadata = json!({"name": "l", "uid": "u", "resourceVersion": "7", "finalizers": ["x/y"],
        "ownerReferences": [{}], "managedFields": [{"time": "10000-01-01T23:58:59Z"}]});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// A Lease with this holder, known since this instant.
fn held_by(holder: Option<&str>, since: Instant) -> KnownLease {
    KnownLease {
        lease: Some(read(&json!({"holderIdentity": holder}))),
        ..KnownLease::new(since)
    }
}

#[test]
fn when_the_lease_is_written() {
    let start = Instant::now();
    let renewed = KnownLease {
        renewed: Some(start + seconds(100)),
        ..held_by(Some(US), start)
    };
    let failed = KnownLease {
        not_before: start + seconds(20),
        ..held_by(Some("other"), start)
    };
    let asks_for = |seconds| {
        let spec = json!({"holderIdentity": "other", "leaseDurationSeconds": seconds});
        KnownLease {
            lease: Some(read(&spec)),
            ..KnownLease::new(start)
        }
    };
    for (what, lease, expected) in [
        ("none yet", KnownLease::new(start), 0),
        ("released", held_by(Some(""), start), 0),
        ("no holder", held_by(None, start), 0),
        ("another's", held_by(Some("other"), start), 15),
        ("our last call failed", failed, 20),
        ("ours", renewed, 105),
        ("ours, before a restart", held_by(Some(US), start), 0),
        ("another's of a minute", asks_for(60), 60),
        ("another's for ever", asks_for(2_147_483_647), 300),
        ("another's of no length", asks_for(-1), 15),
    ] {
        let at = lease.write_at(&election(US, OURS));
        assert_eq!(at, start + seconds(expected), "{what}");
    }
}

proptest! {
    /// Whatever the instants: who renewed at `renewed` has stopped before anyone who saw that renewal, which is
    /// later than it was sent, takes over.
    #[test]
    fn a_leader_stops_before_its_successor_begins(
        duration in 3_u64..300,
        renewed in 0_u64..1_000_000,
        delay in 0_u64..100_000,
        not_before in 0_u64..2_000_000,
    ) {
        let (start, duration) = (Instant::now(), seconds(duration));
        let renewed = start + seconds(renewed);
        let leader = KnownLease { renewed: Some(renewed), ..held_by(Some(US), start) };
        let stops = leader.leads_until(&election(US, duration)).unwrap();
        let heir = KnownLease {
            not_before: start + seconds(not_before),
            ..held_by(Some(US), renewed + seconds(delay))
        };
        prop_assert!(heir.write_at(&election("heir", duration)) > stops);
    }
}

#[test]
fn a_replacement_carries_nothing_planted() {
    let planted = json!({"holderIdentity": "other", "leaseTransitions": 3, "strategy": "x"});
    let known = KnownLease {
        lease: Some(read(&planted)),
        ..KnownLease::new(Instant::now())
    };
    let next = |is_held| known.next(&election(US, OURS), is_held, Timestamp::UNIX_EPOCH);
    let lease = json!(next(true));
    assert_eq!(
        lease["metadata"],
        json!({"name": "l", "uid": "u", "resourceVersion": "7"})
    );
    let kept = ["holderIdentity", "leaseTransitions"].map(|field| lease["spec"][field].clone());
    assert_eq!(
        (kept, lease["spec"].get("strategy")),
        ([json!("us"), json!(4)], None)
    );
    assert_eq!(next(false).spec.unwrap().holder_identity, None);
}

/// Plays an API server with one Lease, of which it stores what is put with the version that it has.
pub(crate) fn api_server(lease: Arc<Mutex<Value>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let lease = Arc::clone(&lease);
        async move {
            if let Some(answer) = watched(request.uri().clone()).await {
                return Ok::<_, Infallible>(answer);
            }
            let is_list = !request.uri().path().ends_with("/l");
            let put = request.method() == Method::PUT;
            let sent = request.into_body().collect().await.unwrap().to_bytes();
            let mut stored = lease.lock().unwrap();
            let version = stored["metadata"]["resourceVersion"].clone();
            let metadata = json!({"resourceVersion": version});
            let list = json!({"kind": "LeaseList", "items": [*stored], "metadata": metadata});
            let conflict =
                json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"});
            let mut code = 200;
            let answer = if put {
                let sent: Value = serde_json::from_slice(&sent).unwrap();
                if sent["metadata"]["resourceVersion"] == version {
                    let next = version.as_str().unwrap().parse::<u64>().unwrap() + 1;
                    *stored = sent;
                    stored["metadata"]["resourceVersion"] = json!(next.to_string());
                    stored.clone()
                } else {
                    code = 409;
                    conflict
                }
            } else if is_list {
                list
            } else {
                stored.clone()
            };
            let answer = Full::<Bytes>::from(answer.to_string());
            Ok(Response::builder().status(code).body(answer).unwrap())
        }
    });
    Client::new(service, "ns")
}

/// The answer to a watch, which brings nothing, and does not begin with objects.
pub(crate) async fn watched(uri: Uri) -> Option<Response<Full<Bytes>>> {
    let query = uri.query().filter(|it| it.contains("watch=true"))?;
    if !query.contains("sendInitialEvents") {
        std::future::pending::<()>().await;
    }
    let refusal = json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid"});
    let answer = Response::builder().status(422);
    Some(answer.body(Full::from(refusal.to_string())).unwrap())
}

/// A Lease in this version, whose holder is gone.
pub(crate) fn of_another(version: &str) -> Value {
    let metadata = json!({"name": "l", "uid": "u", "resourceVersion": version});
    json!({"metadata": metadata, "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 1}})
}

/// Returns how this candidate competes for that Lease.
pub(crate) fn election(us: &str, duration: Duration) -> Election {
    let (namespace, lease, us) = ("ns".to_owned(), "l".to_owned(), us.to_owned());
    Election {
        namespace,
        lease,
        us,
        duration,
    }
}

const FOREVER: Duration = Duration::from_hours(1);

/// A restored etcd has the Lease in a version that is older than what every candidate knows, and no watch says so.
#[tokio::test(start_paused = true)]
async fn somebody_leads_after_etcd_was_restored() {
    let lease = Arc::new(Mutex::new(of_another("1000")));
    let (_trigger, shutdown) = Shutdown::by_hand();
    let (sender, mut elected) = watch::channel(None);
    let (heartbeat, client) = (Heartbeat::new(FOREVER), api_server(Arc::clone(&lease)));
    let running = tokio::spawn(run(election(US, OURS), client, shutdown, heartbeat, sender));
    let leads = async |elected: &mut Elected| {
        let limit = Duration::from_mins(2);
        timeout(limit, elected.wait_for(Option::is_some))
            .await
            .is_ok_and(|leads| leads.is_ok())
    };
    assert!(leads(&mut elected).await);
    *lease.lock().unwrap() = of_another("7");
    timeout(Duration::from_mins(1), elected.wait_for(Option::is_none))
        .await
        .unwrap()
        .unwrap();
    assert!(leads(&mut elected).await, "{}", lease.lock().unwrap());
    running.abort();
}

/// A process that no longer leads sends no decision from before its loop was held up.
#[tokio::test(start_paused = true)]
async fn what_is_under_way_goes_on_only_while_this_process_leads() {
    let (sender, elected) = watch::channel(Some(Instant::now() + seconds(10)));
    let mut sent = 0;
    let mut calls = Box::pin(futures::stream::poll_fn(|_| {
        sent += 1;
        Poll::Ready(Some(()))
    }));
    assert_eq!(next_while_leading(&elected, &mut calls).await, Some(()));
    tokio::time::advance(seconds(10)).await;
    assert_eq!(next_while_leading(&elected, &mut calls).await, None);
    sender.send_replace(Some(Instant::now() + seconds(10)));
    assert_eq!(next_while_leading(&elected, &mut calls).await, Some(()));
    sender.send_replace(None);
    assert_eq!(next_while_leading(&elected, &mut calls).await, None);
    drop(calls);
    assert_eq!(sent, 2);
}
