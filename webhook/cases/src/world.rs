//! The names and UIDs that a table of cases cannot know beforehand.

/// One of the nodes that the rows are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// The node of most rows.
    First,
    Second,
    /// A node that was deleted and made again under the same name.
    Again,
    /// The node with the longest name for which there can be a shadow: 249 characters.
    Longest,
}

/// A Node, as far as a shadow knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub uid: String,
}

/// The setting in which rows are tried: on paper or on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    pub namespace: String,
    /// The nodes, in the order of [`Host`].
    pub nodes: [Node; 4],
    /// UID of the Node that [`Host::Again`] was before.
    pub former_uid: String,
}

impl World {
    /// The names of the nodes, in the order of [`Host`].
    pub fn node_names() -> [String; 4] {
        let longest = format!("{}.n", "n".repeat(247));
        [
            "node-0".to_owned(),
            "node-1".to_owned(),
            "node-again".to_owned(),
            longest,
        ]
    }

    /// A world for unit tests, in the default namespace, with made-up UIDs.
    pub fn on_paper() -> Self {
        let mut number = 0;
        let nodes = Self::node_names().map(|name| {
            number += 1;
            Node {
                name,
                uid: format!("00000000-0000-4000-8000-00000000000{number}"),
            }
        });
        Self {
            namespace: "brupop-bottlerocket-aws".to_owned(),
            nodes,
            former_uid: "00000000-0000-4000-8000-00000000000f".to_owned(),
        }
    }

    /// The Node of this host.
    pub fn node(&self, host: Host) -> &Node {
        &self.nodes[host as usize]
    }
}
