use super::*;

#[test]
fn a_drained_node_stays_cordoned_until_its_reboot_is_granted() {
    let grants = |seconds: u64| {
        let history = [
            slots(&one()),
            free(),
            marked(CORDONED),
            marked(MARKED),
            ("minions/n", node(Some(MARKED), false)),
        ];
        rules(&after(seconds, history).take(put(
            9,
            SHADOW,
            shadow("RebootedIntoUpdate", 1, Some("b")),
        )))
    };
    assert_eq!(grants(20), [""; 0], "somebody uncordoned it a moment ago");
    assert_eq!(grants(21), ["drain"]);
}

#[test]
fn only_pods_that_a_drain_awaits_must_be_gone() {
    let with = |field: &str, key: &str| {
        let mut pod = pod("ReplicaSet");
        pod["metadata"][field] = json!({key: "x"});
        pod
    };
    let component = "brupop.bottlerocket.aws/component";
    for (key, pod, bound_late, expected) in [
        ("pods/shop/a", pod("ReplicaSet"), false, vec!["drain"]),
        ("pods/shop/a", pod("ReplicaSet"), true, vec![]),
        ("pods/shop/a", pod("DaemonSet"), false, vec![]),
        (
            "pods/shop/a",
            with("annotations", "kubernetes.io/config.mirror"),
            false,
            vec![],
        ),
        (
            "pods/shop/a",
            with("labels", component),
            false,
            vec!["drain"],
        ),
        (
            "pods/brupop-bottlerocket-aws/a",
            with("labels", component),
            false,
            vec![],
        ),
    ] {
        let pods = || Some((key, pod.clone()));
        let history = [slots(&one()), free()]
            .into_iter()
            .chain(pods().filter(|_| !bound_late))
            .chain([marked(CORDONED), marked(MARKED)])
            .chain(pods().filter(|_| bound_late))
            .chain([granted()]);
        assert_eq!(violated(history), expected, "{key} {pod} {bound_late}");
    }
}

#[test]
fn late_pods_that_tolerate_the_cordon_may_stay() {
    const LISTED: &str =
        r#"{"shadow_uid":"u","attempt":1,"cordoned_at":"t","operator_pods":["w"]}"#;
    let mut tolerant = pod("ReplicaSet");
    tolerant["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    for (pod, seconds, expected) in [
        (&tolerant, 40, vec!["drain"]),
        (&tolerant, 41, vec![]),
        (&pod("ReplicaSet"), 41, vec!["drain"]),
    ] {
        let mut objects = after(seconds, [slots(&one()), free(), marked(CORDONED)]);
        let later = [("pods/shop/a", pod.clone()), marked(LISTED), marked(MARKED)];
        for (number, (key, object)) in (4..).zip(later) {
            assert_eq!(objects.take(put(number, key, object)), []);
        }
        let granted = shadow("RebootedIntoUpdate", 1, Some("b"));
        assert_eq!(
            rules(&objects.take(put(7, SHADOW, granted))),
            expected,
            "{seconds}"
        );
    }
}

#[test]
fn cordons_go_with_the_markers_word() {
    let (ours, theirs, free) = (
        node(Some(MARKED), true),
        node(None, true),
        node(None, false),
    );
    let mut excluded = free.clone();
    excluded["metadata"]["labels"] =
        json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
    for (before, after, odd) in [
        (&ours, &free, false),
        (&free, &ours, false),
        (&free, &excluded, true),
        (&excluded, &free, true),
        (&theirs, &free, true),
        (&free, &theirs, true),
    ] {
        assert_eq!(odd_cordon(before, after).is_some(), odd, "{before} {after}");
    }
}
