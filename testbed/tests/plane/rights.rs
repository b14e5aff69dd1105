//! Tests that `docs/rights.txt` lists all rights of the three accounts and of people with our roles.

use crate::raw;
use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{NAMESPACE, apply_overlay};
use brupop_testbed::{ControlPlane, Options};
use http::Method;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rights.txt");
/// Anyone who has a token: an account of our namespace to which nobody gave anything.
const EVERYBODY: &str = "everybody";
/// People to whom these roles of ours were given in our namespace.
const PEOPLE: [&str; 3] = ["viewer", "operator", "pool-editor"];
/// Namespaces in which rights are asked for, with their names in the list. What holds in all of them was given for the whole cluster.
const NAMESPACES: [(&str, &str); 3] = [
    (NAMESPACE, "in our namespace"),
    ("kube-system", "in kube-system"),
    ("another", "in another namespace"),
];
/// A verb, and on what: a resource, with a name if the rule has one, or a URL.
type Right = (String, String);

/// The rights that one rule gives.
fn rights(rule: &Json) -> Vec<Right> {
    let texts = |field: &str| -> Vec<String> {
        let list = rule[field].as_array().into_iter().flatten();
        list.filter_map(Json::as_str).map(str::to_owned).collect()
    };
    let mut objects = texts("nonResourceURLs");
    for group in texts("apiGroups") {
        let group = if group.is_empty() {
            group
        } else {
            format!(".{group}")
        };
        for resource in texts("resources") {
            let (resource, sub) = resource
                .split_once('/')
                .map_or((&*resource, ""), |(of, sub)| (of, sub));
            let name = format!(
                "{resource}{group}{}{sub}",
                if sub.is_empty() { "" } else { "/" }
            );
            let named = texts("resourceNames")
                .into_iter()
                .map(|only| format!("{name} named {only}"));
            let named: Vec<_> = named.collect();
            objects.extend(if named.is_empty() { vec![name] } else { named });
        }
    }
    let each = texts("verbs")
        .into_iter()
        .map(|verb| objects.iter().map(move |on| (verb.clone(), on.clone())));
    each.flatten().collect()
}

/// Returns what the API server says that the account may do, by place.
async fn allowed(
    control_plane: &ControlPlane,
    account: &str,
) -> Result<BTreeSet<(Right, &'static str)>> {
    const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let client = control_plane
        .client_for_token(&control_plane.token(NAMESPACE, account).await?)
        .await?;
    let mut places = BTreeMap::<Right, Vec<&'static str>>::new();
    for (namespace, place) in NAMESPACES {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
        });
        let status = raw::request(&client, Method::POST, PATH, &review).await?["status"].take();
        ensure!(
            status["incomplete"] == false,
            "{account} in {namespace}: {status}"
        );
        let rules = ["resourceRules", "nonResourceRules"].map(|rules| status[rules].as_array());
        for right in rules
            .into_iter()
            .flatten()
            .flatten()
            .flat_map(rights)
            .collect::<BTreeSet<_>>()
        {
            places.entry(right).or_default().push(place);
        }
    }
    let by_place = places.into_iter().flat_map(|(right, places)| {
        let everywhere = if right.1.starts_with('/') {
            ""
        } else {
            "cluster-wide"
        };
        let places = if places.len() == NAMESPACES.len() {
            vec![everywhere]
        } else {
            places
        };
        places.into_iter().map(move |place| (right.clone(), place))
    });
    Ok(by_place.collect())
}

/// One line for each object and place, with all verbs.
fn lines(who: &str, rights: &BTreeSet<(Right, &str)>) -> BTreeSet<String> {
    let mut verbs = BTreeMap::<_, Vec<&str>>::new();
    for ((verb, on), place) in rights {
        verbs.entry((on, place)).or_default().push(verb);
    }
    let line =
        |((on, place), verbs): ((_, _), Vec<_>)| format!("{who} {} {on} {place}", verbs.join(","));
    verbs
        .into_iter()
        .map(|entry| line(entry).trim_end().to_owned())
        .collect()
}

/// Lines of a list as [`lines`] writes them; comments and widths are for people.
fn read(text: &str) -> BTreeSet<String> {
    let entries = text.lines().filter(|line| !line.starts_with('#'));
    let entries = entries.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    entries.filter(|line| !line.is_empty()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_may_do_only_what_is_listed() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    apply_overlay(&control_plane, "default").await?;
    control_plane
        .kubectl(["create", "serviceaccount", EVERYBODY, "-n", NAMESPACE])
        .await?;
    for role in PEOPLE {
        let name = format!("brupop-{role}");
        control_plane
            .kubectl(["create", "serviceaccount", &name, "-n", NAMESPACE])
            .await?;
        let (role, bearer) = (
            format!("--clusterrole={name}"),
            format!("--serviceaccount={NAMESPACE}:{name}"),
        );
        control_plane
            .kubectl([
                "create",
                "rolebinding",
                &name,
                "-n",
                NAMESPACE,
                &role,
                &bearer,
            ])
            .await?;
    }

    // Each of the others is in the same groups, and may do this, too.
    let everybody = allowed(&control_plane, EVERYBODY).await?;
    let mut found = lines(EVERYBODY, &everybody);
    for account in ["agent", "reconciler", "webhook"].into_iter().chain(PEOPLE) {
        let all = allowed(&control_plane, &format!("brupop-{account}")).await?;
        found.extend(lines(
            account,
            &all.difference(&everybody).cloned().collect(),
        ));
    }

    let listed = read(&std::fs::read_to_string(LIST).context(LIST)?);
    let add = found.difference(&listed).map(|line| format!("+ {line}"));
    let remove = listed.difference(&found).map(|line| format!("- {line}"));
    let wrong: Vec<_> = remove.chain(add).collect();
    ensure!(
        wrong.is_empty(),
        "docs/rights.txt is not what the API server says:\n{}",
        wrong.join("\n")
    );
    Ok(())
}
