//! What a person does about a reason, with the commands for this node.

use brupop_api::crds::is_version;
use brupop_api::names::{DEFAULT_NAMESPACE, is_object_name};

use super::{Abort, Reason, TooManyFailures};

/// Stands between the sentence of a reason and its remedy.
pub const TO_GO_ON: &str = "; to go on: ";

/// What a remedy is about.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    pub node: &'a str,
    /// The pool that steers the node; empty if none does.
    pub pool: &'a str,
    /// The version that the host would update to; empty if there is none.
    pub version: &'a str,
    /// The operator's namespace.
    pub namespace: &'a str,
    /// The word of the node's last failure since its last success.
    pub failure: Option<&'a str>,
}

impl Reason<'_> {
    /// What a person does about it, with commands that can be pasted; empty if nobody has to do anything.
    pub fn remedy(&self, named: &Named<'_>) -> String {
        let cause = match self {
            Self::Aborting(abort) => abort.remedy(),
            Self::BackingOff => named
                .failure
                .and_then(Abort::of_word)
                .map_or("", Abort::remedy),
            _ => "",
        };
        let named = match self {
            // It is another version that has to be resumed.
            Self::VersionHalted(TooManyFailures::NoRoom) => &Named {
                version: "",
                ..*named
            },
            _ => named,
        };
        match (cause, self.advice()) {
            (cause, "") => cause.to_owned(),
            ("", advice) => named.put_into(advice),
            (cause, advice) => format!("{cause}; {}", named.put_into(advice)),
        }
    }
}

impl Named<'_> {
    /// The advice with commands about this node. A name that is none is left for people to fill in.
    fn put_into(&self, advice: &str) -> String {
        let name = |name: &str, left_open: &str| {
            let name = if is_object_name(name) {
                name
            } else {
                left_open
            };
            name.to_owned()
        };
        let namespace = name(self.namespace, "NAMESPACE");
        let version = if is_version(self.version) {
            self.version
        } else {
            "VERSION"
        };
        let advice = advice
            .replace("{node}", &name(self.node, "NODE"))
            .replace("{pool}", &name(self.pool, "POOL"))
            .replace("{version}", version)
            .replace("{namespace}", &namespace);
        let commands = advice.split('`').map(|part| {
            let is_ours = part.starts_with("kubectl brupop ") && namespace != DEFAULT_NAMESPACE;
            if is_ours {
                format!("{part} -n {namespace}")
            } else {
                part.to_owned()
            }
        });
        commands.collect::<Vec<_>>().join("`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_name_the_node_its_pool_and_the_namespace() {
        let named = Named {
            node: "node-0",
            pool: "web",
            version: "1.20.0",
            namespace: "ns",
            failure: Some("NotReady"),
        };
        let remedy = |word: &str, named| Reason::of_word(word).unwrap().remedy(named);
        for (word, command) in [
            (
                "NodePaused",
                "resume it: `kubectl brupop resume node-0 -n ns`",
            ),
            (
                "PoolPaused",
                "resume it: `kubectl brupop resume --pool web -n ns`",
            ),
            (
                "VersionHalted",
                "resume the version: `kubectl brupop resume --version 1.20.0 -n ns`",
            ),
            (
                "RebootOverdue",
                "delete its Node: `kubectl delete node node-0`",
            ),
            ("BackingOff", "look at the node; "),
            ("Staging", ""),
        ] {
            assert!(remedy(word, &named).contains(command), "{word}");
        }
        assert_eq!(remedy("Staging", &named), "");
        let no_room = Reason::VersionHalted(TooManyFailures::NoRoom).remedy(&named);
        assert!(no_room.contains("--version VERSION"), "{no_room}");
        let foreign = Named {
            node: "$(id)",
            namespace: DEFAULT_NAMESPACE,
            ..named
        };
        assert_eq!(
            remedy("NodePaused", &foreign),
            "resume it: `kubectl brupop resume NODE`"
        );
    }

    /// A condition's message has 1,024 bytes, and a remedy is never cut.
    #[test]
    fn remedies_are_short_sentences_of_their_own() {
        let (node, namespace) = ("n".repeat(249), "s".repeat(63));
        let named = Named {
            node: &node,
            pool: &node,
            version: "1.20.0",
            namespace: &namespace,
            failure: Some("FellBack"),
        };
        for word in Reason::WORDS {
            let remedy = Reason::of_word(word).unwrap().remedy(&named);
            let commands = remedy.matches('`').count();
            assert!(remedy.len() < 700 && commands.is_multiple_of(2), "{remedy}");
            assert!(
                !remedy.ends_with('.') && !remedy.contains(['{', '}']) && !remedy.contains("  "),
                "{remedy}"
            );
        }
    }
}
