use super::*;
use http_body_util::Full;
use hyper::body::Bytes;
use kube::client::Body;
use kube::core::Status;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn finding(webhook: &Finding) -> Finding {
    admission([webhook, &Finding::Holds, &Finding::Holds])
}

/// The finding about a rule that refuses nothing.
fn allowed() -> Finding {
    Finding::Fails(ALLOWED.to_owned())
}

fn failure(finding: Finding) -> String {
    match finding {
        Finding::Fails(why) => why,
        other => panic!("{other:?}"),
    }
}

/// When the next is due; `None` while one is under way.
fn due(check: &Check) -> Option<Duration> {
    (!check.called).then_some(check.next)
}

/// Begins a check, however early.
fn begin(check: &mut Check) -> Option<usize> {
    check.begin(Duration::MAX, &mut Wake::default())
}

#[test]
fn shut_until_proven_and_whenever_disproven() {
    let mut admission = Check::new(s(60));
    assert!(admission.holds().is_err());
    assert_eq!(due(&admission), Some(s(0)));
    begin(&mut admission);
    assert_eq!(due(&admission), None);
    assert!(admission.found(finding(&Finding::Holds), s(1)));
    assert_eq!((admission.holds(), due(&admission)), (Ok(()), Some(s(61))));
    assert!(!admission.found(finding(&Finding::Holds), s(61)));
    assert!(admission.found(finding(&allowed()), s(121)));
    assert!(admission.holds().unwrap_err().contains("was allowed"));
    assert_eq!(due(&admission), Some(s(122)), "tried again soon");
}

#[test]
fn a_doubt_counts_while_no_check_is_made() {
    let mut admission = Check::new(s(60));
    let doubt = |admission: &mut Check, why: &str, second| {
        admission.doubt(why.into(), s(second));
        admission.holds().err().map(str::to_owned)
    };
    let is = |why: &str| Some(why.to_owned());
    assert_eq!(doubt(&mut admission, "a", 1), is("a"));
    assert_eq!(due(&admission), Some(s(0)));
    assert_eq!(
        doubt(&mut admission, "b", 60),
        is("a"),
        "not a sentence for each request"
    );
    assert_eq!(doubt(&mut admission, "b", 61), is("b"));
    begin(&mut admission);
    admission.found(finding(&Finding::Holds), s(62));
    assert_eq!(doubt(&mut admission, "c", 181), None, "a check may begin");
    assert_eq!(doubt(&mut admission, "d", 182), is("d"));
    begin(&mut admission);
    assert_eq!(doubt(&mut admission, "e", 500), is("d"), "one is under way");
}

#[test]
fn a_proof_outlasts_a_missing_answer() {
    let mut admission = Check::new(s(60));
    let unknown = finding(&Finding::Unknown("timeout".into()));
    admission.found(finding(&Finding::Holds), s(0));
    assert!(!admission.found(unknown.clone(), s(179)));
    assert_eq!(admission.holds(), Ok(()));
    assert!(admission.found(unknown.clone(), s(180)));
    assert!(admission.holds().unwrap_err().contains("timeout"));
}

#[test]
fn an_operator_found_counts_before_all_is_known() {
    let unknown = || Some("timeout".to_owned());
    assert_eq!(other_operator(&[], None), Finding::Holds);
    let both = other_operator(&["a/brupop-apiserver".to_owned()], unknown());
    let Finding::Fails(why) = both else {
        panic!("{both:?}")
    };
    assert!(
        why.contains("a/brupop-apiserver") && why.contains("docs/migrating.md"),
        "{why}"
    );
    let silent = other_operator(&[], unknown());
    assert!(matches!(silent, Finding::Unknown(why) if why.contains("too: timeout")));
}

#[test]
fn only_a_refusal_of_our_own_rule_counts() {
    let status = |code, message: &str| {
        let message = message.into();
        let status = Status {
            code,
            message,
            ..Status::default()
        };
        Error::Api(status.boxed())
    };
    let webhook = |error| refusal(error, is_our_webhook);
    let denied = |by: &str, rule: &str| {
        let says = "denied the request:";
        status(
            403,
            &format!(r#"admission webhook "{by}" {says} {rule} (status.message): x"#),
        )
    };
    let policy = |rule: &str| {
        let who = "ValidatingAdmissionPolicy 'p' with binding 'b'";
        let message = format!(r#"nodes "n" is forbidden: {who} denied request: {rule}: x"#);
        refusal(status(403, &message), is_our_policy)
    };
    let (ours, theirs) = ("shadows.brupop.bottlerocket.aws", "no-dry-runs.example.org");
    let down = "failed calling webhook: connection refused";
    for (found, expected) in [
        (webhook(denied(ours, "reconciler-check")), "holds"),
        (webhook(denied(ours, "agent-own-fields")), "fails"),
        (webhook(denied(theirs, "ask the platform team")), "fails"),
        (webhook(status(403, "User cannot patch resource")), "fails"),
        (webhook(status(500, down)), "fails"),
        (webhook(status(404, "not found")), "unknown"),
        (webhook(status(429, "too many requests")), "unknown"),
        (policy("reconciler-node-annotations"), "holds"),
        // Somebody's mutation has added a label to the dry run.
        (policy("reconciler-node-labels"), "holds"),
        (policy("reconciler-own-fields"), "holds"),
        (policy("nodes-are-frozen"), "fails"),
    ] {
        let is = match found {
            Finding::Holds => "holds",
            Finding::Fails(_) => "fails",
            Finding::Unknown(_) => "unknown",
        };
        assert_eq!(is, expected, "{found:?}");
    }
}

#[tokio::test]
async fn one_odd_object_says_nothing_of_the_rules() {
    let odd = (422, "the cost limit is exceeded");
    let refusal = (
        400,
        "denied request: reconciler-x by ValidatingAdmissionPolicy",
    );
    let (nobody, busy) = ((200, ""), (503, "busy"));
    for (answers, expected) in [
        ([odd, refusal, nobody], Finding::Holds),
        ([odd, nobody, refusal], allowed()),
        ([odd, busy, odd], Finding::Fails(odd.1.to_owned())),
    ] {
        let answers = Arc::new(Mutex::new(answers.into_iter()));
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let (code, message) = answers.lock().unwrap().next().unwrap();
            let status =
                json!({"kind": "Status", "status": "Failure", "code": code, "message": message});
            let answer = Full::<Bytes>::from(status.to_string());
            let answer = http::Response::builder().status(code).body(answer);
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        let nodes = ["a", "b", "c"].map(str::to_owned);
        let write = |node: &str| HttpRequest::new("/nodes").get(node, &GetParams::default());
        let client = Client::new(service, "ns");
        assert_eq!(probe(&client, &nodes, write, is_our_policy).await, expected);
    }
}

#[test]
fn other_nodes_are_tried_each_time() {
    let nodes = ["a", "b", "c", "d", "e", "f"];
    assert_eq!(spread(&nodes, 0), ["a", "c", "e"]);
    assert_eq!(spread(&nodes, 7), ["b", "d", "f"]);
    assert_eq!(spread(&nodes[..2], 1), ["b", "a"]);
    assert_eq!(spread(&[], 1), [""; 0]);
}

#[test]
fn bad_news_of_one_half_is_enough() {
    let nothing = || Finding::Unknown("timeout".into());
    for (webhook, policy, unknown) in [
        (nothing(), nothing(), true),
        (Finding::Holds, nothing(), true),
        (nothing(), Finding::Holds, true),
        (allowed(), nothing(), false),
        (nothing(), allowed(), false),
        (Finding::Holds, allowed(), false),
        (Finding::Holds, Finding::Holds, false),
    ] {
        for found in [
            [&webhook, &policy, &Finding::Holds],
            [&webhook, &Finding::Holds, &policy],
        ] {
            let finding = admission(found);
            let is_unknown = matches!(finding, Finding::Unknown(_));
            assert_eq!(is_unknown, unknown, "{finding:?}");
        }
    }
}

#[test]
fn a_ca_bundle_of_somebody_else_is_named() {
    let answer = "failed calling webhook \"w\": tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let says = |answer: &str| failure(finding(&Finding::Fails(answer.into())));
    let said = says(answer);
    assert!(
        said.contains("remove the annotation cert-manager.io/inject-ca-from"),
        "{said}"
    );
    assert!(said.ends_with(answer), "{said}");
    let said = says("failed calling webhook \"w\": connection refused");
    assert!(!said.contains("caBundle"), "{said}");
}
