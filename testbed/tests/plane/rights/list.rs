//! What was answered, as lines that people read: `agent  patch  bottlerocketshadows.… in our namespace`.

use super::questions::{Object, Place, Question};
use std::collections::{BTreeMap, BTreeSet};

type Verbs = BTreeSet<&'static str>;

/// One line for each object, with the verbs that are allowed; in order.
pub fn lines(who: &str, allowed: &BTreeSet<Question>) -> BTreeSet<String> {
    let mut resources = BTreeMap::<(String, String, &str), Verbs>::new();
    let mut paths = BTreeMap::<&str, Verbs>::new();
    for question in allowed {
        match &question.object {
            Object::Path(path) => drop(paths.entry(path).or_default().insert(question.verb)),
            Object::Resource { group, resource, place, name } => {
                if name.is_empty() || !is_allowed(allowed, question, *place, "") {
                    let object =
                        (full_name(group, resource), wording(allowed, question, *place, name), name.as_str());
                    resources.entry(object).or_default().insert(question.verb);
                }
            }
        }
    }
    let resources = resources.into_iter().map(|((resource, place, name), verbs)| {
        let named = if name.is_empty() { String::new() } else { format!(" named {name}") };
        line(who, &verbs, &format!("{resource}{named} {place}"))
    });
    let paths = families(&paths).into_iter().map(|(path, verbs)| line(who, &verbs, &path));
    resources.chain(paths).collect()
}

/// Lines of a list as [`lines`] writes them; comments and widths are for people.
pub fn read(text: &str) -> BTreeSet<String> {
    let entries = text.lines().filter(|line| !line.starts_with('#'));
    entries
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty())
        .collect()
}

/// What has to be added to the list and removed from it, line by line.
pub fn differences(listed: &BTreeSet<String>, found: &BTreeSet<String>) -> Vec<String> {
    let add = found.difference(listed).map(|line| format!("+ {line}"));
    let remove = listed.difference(found).map(|line| format!("- {line}"));
    remove.chain(add).collect()
}

fn line(who: &str, verbs: &Verbs, what: &str) -> String {
    let verbs = verbs.iter().copied().collect::<Vec<_>>().join(",");
    format!("{who} {verbs} {what}").trim_end().to_owned()
}

fn full_name(group: &str, resource: &str) -> String {
    let (resource, sub) =
        resource.split_once('/').map_or((resource, String::new()), |(r, s)| (r, format!("/{s}")));
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    format!("{resource}{group}{sub}")
}

/// Is the same allowed there, of that name?
fn is_allowed(allowed: &BTreeSet<Question>, question: &Question, place: Place, name: &str) -> bool {
    let Object::Resource { group, resource, .. } = &question.object else { return false };
    let (group, resource, name) = (group.clone(), resource.clone(), name.to_owned());
    allowed
        .contains(&Question { object: Object::Resource { group, resource, place, name }, ..question.clone() })
}

/// Where it is allowed, in words; the same words for all places if it is everywhere.
fn wording(allowed: &BTreeSet<Question>, question: &Question, place: Place, name: &str) -> String {
    let everywhere = Place::NAMESPACED.into_iter().all(|place| is_allowed(allowed, question, place, name));
    match place {
        Place::Cluster => "",
        _ if everywhere => "in every namespace",
        Place::Ours => "in our namespace",
        Place::KubeSystem => "in kube-system",
        Place::Another => "in another namespace",
        Place::All => "in all namespaces at once",
    }
    .to_owned()
}

/// Paths below the same first segment that all allow the same are one: `/apis/*`.
fn families(paths: &BTreeMap<&str, Verbs>) -> BTreeMap<String, Verbs> {
    let family = |path: &str| {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        if path.trim_start_matches('/').contains('/') { format!("/{first}/*") } else { path.to_owned() }
    };
    let mut families = BTreeMap::<String, BTreeSet<Verbs>>::new();
    for (path, verbs) in paths {
        families.entry(family(path)).or_default().insert(verbs.clone());
    }
    let name = |path: &str| if families[&family(path)].len() == 1 { family(path) } else { path.to_owned() };
    paths.iter().map(|(path, verbs)| (name(path), verbs.clone())).collect()
}
