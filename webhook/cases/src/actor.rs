//! The requester, as the API server describes it.

use crate::world::{Host, World};
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The agent on the first node, by the token of its pod.
    Agent,
    /// The agent on the second node.
    OtherAgent,
    /// The agent on the node with the longest name.
    LongestAgent,
    /// The agents' account, by a token that is bound to nothing.
    Unbound,
    /// The agents' account, by a token that is bound to a Secret.
    SecretBound,
    /// The agents' account, by a token that is bound to the first Node, and to no pod.
    NodeBound,
    /// The agents' account, by the token of a pod on the first node that has been deleted.
    DeletedPod,
    /// The agents' account, by a token that is bound to a Node that was deleted and made again since.
    FormerNodeBound,
    /// The agents' account, by the token of a pod on a Node that was deleted and made again, taken before that.
    FormerNode,
    /// The agents' account, by the token of a pod on a Node that was deleted and made again, taken after that.
    NewNode,
    /// An account and a pod of the agents' names in another namespace, on the first node.
    Elsewhere,
    /// A person who may do everything, and impersonates the agent on the first node with all that its token tells.
    Impersonator,
    /// That person, with two node names.
    ImpersonatorOfTwo,
    /// That person, without what a token tells.
    ImpersonatorOfTheAccount,
    /// The reconciler, by the token of its pod.
    Reconciler,
    /// The webhook, by the token of its pod.
    Webhook,
    /// Another account of the operator's namespace, to which somebody gave the agents' role.
    Stray,
    /// A person who may do everything.
    Admin,
}

/// The objects that a token is bound to, as the API server names them.
const CLAIMS: [&str; 4] = ["node-name", "node-uid", "pod-name", "pod-uid"];

impl Actor {
    /// Those whose token the API server itself does not know any more, once its cache has gone.
    pub const GONE: [Self; 2] = [Self::DeletedPod, Self::FormerNodeBound];

    /// The account of the operator's namespace that the API server takes the actor for.
    pub fn account(self) -> Option<&'static str> {
        match self {
            Self::Reconciler => Some("brupop-reconciler"),
            Self::Webhook => Some("brupop-webhook"),
            Self::Stray => Some("stray"),
            Self::Admin | Self::Elsewhere => None,
            _ => Some("brupop-agent"),
        }
    }

    fn is_of_the_former_node(self) -> bool {
        matches!(self, Self::FormerNode | Self::FormerNodeBound)
    }

    /// The rule by which the webhook allows what this actor may do.
    pub(crate) fn allowing_rule(self) -> &'static str {
        match self {
            Self::Reconciler => "reconciler-steer",
            Self::Admin | Self::Elsewhere => "outsider",
            _ => "agent-report",
        }
    }

    /// `userInfo` of a review.
    pub(crate) fn user_info(self, world: &World) -> Value {
        let namespace = if self == Self::Elsewhere {
            "elsewhere"
        } else {
            &world.namespace
        };
        let Some(account) = self
            .account()
            .or((self == Self::Elsewhere).then_some("brupop-agent"))
        else {
            return json!({"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]});
        };
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let username = format!("system:serviceaccount:{namespace}:{account}");
        let uid = format!("{account}-uid");
        json!({"username": username, "uid": uid, "groups": groups, "extra": self.extra(world)})
    }

    /// Returns what the API server tells of the actor's token, or what is said by impersonation.
    pub fn extra(self, world: &World) -> Map<String, Value> {
        let host = match self {
            Self::OtherAgent | Self::Reconciler | Self::Webhook => Host::Second,
            Self::LongestAgent => Host::Longest,
            Self::FormerNodeBound | Self::FormerNode | Self::NewNode => Host::Again,
            _ => Host::First,
        };
        let node = world.node(host);
        let uid = if self.is_of_the_former_node() {
            &world.former_uid
        } else {
            &node.uid
        };
        let values = |claim: &str| match claim {
            "node-name" if self == Self::ImpersonatorOfTwo => {
                json!([node.name, world.node(Host::Second).name])
            }
            "node-name" => json!([node.name]),
            "node-uid" => json!([uid]),
            "pod-name" => json!([format!("{}-pod", self.account().unwrap_or("brupop-agent"))]),
            _ => json!(["00000000-0000-4000-8000-0000000000aa"]),
        };
        let told: &[&str] = match self {
            Self::Unbound
            | Self::SecretBound
            | Self::Stray
            | Self::Admin
            | Self::ImpersonatorOfTheAccount => &[],
            Self::NodeBound | Self::FormerNodeBound => &CLAIMS[..2],
            _ => &CLAIMS,
        };
        told.iter()
            .map(|claim| {
                (
                    format!("authentication.kubernetes.io/{claim}"),
                    values(claim),
                )
            })
            .collect()
    }
}
