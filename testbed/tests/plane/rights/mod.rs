//! What the three accounts may do, and people with our roles, all of it, is what `docs/rights.txt` says.

mod list;
mod questions;

use crate::raw;
use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{NAMESPACE, apply_overlay};
use brupop_testbed::{ControlPlane, Options};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use kube::Client;
use list::{differences, lines, read};
use questions::{Names, Object, Place, Question};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::time::Instant;

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rights.txt");
/// Anyone who has a token: an account of our namespace to which nobody gave anything.
const EVERYBODY: &str = "everybody";
/// People to whom these roles of ours were given in our namespace.
const PEOPLE: [&str; 3] = ["viewer", "operator", "pool-editor"];
/// A name that no role has.
const OTHER_NAME: &str = "another";
/// Reviews that are asked for at once.
const PARALLEL: usize = 64;

/// Who the API server takes a bearer of the account's token for.
async fn user(control_plane: &ControlPlane, account: &str) -> Result<Json> {
    let client = control_plane.client_for_token(&control_plane.token(NAMESPACE, account).await?).await?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = raw::request(&client, Method::POST, path, &review).await?;
    Ok(answer["status"]["userInfo"].clone())
}

/// The questions that are answered with yes.
async fn allowed(client: &Client, user: &Json, questions: &[Question]) -> Result<BTreeSet<Question>> {
    const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answers = futures::stream::iter(questions).map(async |question| {
        let answer = raw::request(client, Method::POST, PATH, &question.review(user, NAMESPACE)).await?;
        ensure!(answer["status"].get("evaluationError").is_none(), "{question:?}: {answer}");
        let yes = answer["status"]["allowed"].as_bool().context("no answer")?;
        Ok(yes.then(|| question.clone()))
    });
    let answers: Vec<_> = answers.buffer_unordered(PARALLEL).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

/// The names that our roles of this kind speak of, each with the resources of its rule.
async fn names(control_plane: &ControlPlane, kind: &str) -> Result<BTreeSet<(String, String)>> {
    let ours = ["get", kind, "-A", "-l", "app.kubernetes.io/part-of=brupop", "-o", "json"];
    let roles: Json = serde_json::from_str(&control_plane.kubectl(ours).await?)?;
    let roles = roles["items"].as_array().context("no roles")?;
    let granted = roles.iter().flat_map(|role| role["rules"].as_array().into_iter().flatten());
    let texts = |list: &Json| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
    };
    let pairs = granted.flat_map(|rule| {
        let names = texts(&rule["resourceNames"]);
        let of = move |resource: String| names.clone().into_iter().map(move |name| (resource.clone(), name));
        texts(&rule["resources"]).into_iter().flat_map(of)
    });
    Ok(pairs.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_may_do_only_what_is_listed() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    apply_overlay(&control_plane, "default").await?;
    let client = control_plane.client();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": EVERYBODY}});
    raw::request(&client, Method::POST, &path, &account).await?;
    for role in PEOPLE {
        let name = format!("brupop-{role}");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        raw::request(&client, Method::POST, &path, &account).await?;
        let (role, bearer) =
            (format!("--clusterrole={name}"), format!("--serviceaccount={NAMESPACE}:{name}"));
        control_plane.kubectl(["create", "rolebinding", &name, "-n", NAMESPACE, &role, &bearer]).await?;
    }

    let mut names = Names {
        here: names(&control_plane, "roles").await?,
        everywhere: names(&control_plane, "clusterroles").await?,
    };
    names.here.insert(("*".to_owned(), OTHER_NAME.to_owned()));
    let questions = questions::all(&client, &names).await?;
    let began = Instant::now();
    let mut accounts = Vec::new();
    for component in ["agent", "reconciler", "webhook"].into_iter().chain(PEOPLE) {
        let user = user(&control_plane, &format!("brupop-{component}")).await?;
        accounts.push((component, allowed(&client, &user, &questions).await?));
    }
    // What everybody may do, each of them may, for they are in the same groups.
    let in_common =
        questions.iter().filter(|question| accounts.iter().all(|(_, all)| all.contains(question)));
    let in_common: Vec<_> = in_common.cloned().collect();
    let everybody = allowed(&client, &user(&control_plane, EVERYBODY).await?, &in_common).await?;
    let mut found = lines(EVERYBODY, &everybody);
    for (component, all) in &accounts {
        found.extend(lines(component, &all.difference(&everybody).cloned().collect()));
    }
    println!("{} questions about each account, {:.1} s", questions.len(), began.elapsed().as_secs_f32());

    let listed = read(&std::fs::read_to_string(LIST).context(LIST)?);
    let wrong = differences(&listed, &found);
    ensure!(wrong.is_empty(), "docs/rights.txt is not what the API server says:\n{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn differences_are_lines_to_add_and_to_remove() {
    let listed = read("# a comment\n\nagent  get,list  pods  in our namespace\nagent  get  /api/*\n");
    let found = BTreeSet::from(["agent get pods in our namespace".to_owned(), "agent get /api/*".to_owned()]);
    assert_eq!(
        differences(&listed, &found),
        ["- agent get,list pods in our namespace", "+ agent get pods in our namespace"]
    );
}

#[test]
fn rights_are_listed_once_at_their_widest_scope() {
    let may = |verb, place, name: &str| {
        let (group, resource, name) = (String::new(), "pods/log".to_owned(), name.to_owned());
        Question { object: Object::Resource { group, resource, place, name }, verb }
    };
    let everywhere = Place::NAMESPACED.map(|place| may("get", place, ""));
    let mut allowed = BTreeSet::from(everywhere);
    allowed.extend([may("get", Place::Ours, "a"), may("patch", Place::Ours, "a")]);
    let path = |path: &str| Question { object: Object::Path(path.to_owned()), verb: "get" };
    allowed.extend([path("/api"), path("/apis/a"), path("/apis/b")]);
    let expected = [
        "x get /api",
        "x get /apis/*",
        "x get pods/log in every namespace",
        "x patch pods/log named a in our namespace",
    ];
    assert_eq!(lines("x", &allowed), BTreeSet::from(expected.map(str::to_owned)));
}
