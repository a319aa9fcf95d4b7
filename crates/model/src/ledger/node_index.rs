//! The nodes of a cluster, indexed by address.

use core::net::IpAddr;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;

use super::join_requests::JoinRequests;

/// A machine that has joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Value of `metadata.name`.
    pub name: String,
    /// Time of joining, `metadata.creationTimestamp`.
    pub created: OffsetDateTime,
    /// Internal and external addresses.
    pub addresses: Vec<IpAddr>,
}

/// Reason why no machine can join by the bootstrap token that machines get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, strum::VariantArray)]
pub enum TokenProblem {
    /// The API server does not know it.
    #[error("the API server refuses the bootstrap token that machines get: Unauthorized")]
    Refused,
    /// Its account has no right to ask for a certificate.
    #[error(
        "the account of the bootstrap token that machines get is not allowed to create CertificateSigningRequests"
    )]
    NotAllowed,
}

impl TokenProblem {
    /// Next step of an administrator.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Refused => {
                "make Secret node-bootstrapper-token again, and have the servers mount it"
            }
            Self::NotAllowed => {
                "bind the account of the bootstrap token to ClusterRole system:node-bootstrapper"
            }
        }
    }
}

/// All nodes of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    by_name: BTreeMap<String, Node>,
    by_address: HashMap<IpAddr, String>,
    joining: JoinRequests,
    token_problem: Option<TokenProblem>,
}

impl Nodes {
    /// Adds or updates a node.
    pub fn add(&mut self, node: Node) {
        self.remove(&node.name);
        for address in &node.addresses {
            self.by_address.insert(address.to_canonical(), node.name.clone());
        }
        self.by_name.insert(node.name.clone(), node);
    }

    /// Removes the node with this name.
    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        self.by_address.retain(|_, owner| owner != name);
    }

    /// The node with this address.
    pub fn at(&self, address: IpAddr) -> Option<&Node> {
        self.by_name.get(self.by_address.get(&address.to_canonical())?)
    }

    /// False if no machine can join by the token that machines get.
    pub(super) fn can_join(&self) -> bool {
        self.token_problem.is_none()
    }

    /// Describes what is known of machines that have not joined: why none can, and who asked to since a time.
    pub(super) fn joining(
        &self,
        since: OffsetDateTime,
        now: OffsetDateTime,
    ) -> impl Iterator<Item = String> {
        let asked = self.joining.words(since, |name| self.by_name.contains_key(name), now);
        self.token_problem.map(|problem| problem.to_string()).into_iter().chain(asked)
    }
}

/// The nodes as last observed, shared by the watch and its readers.
#[derive(Debug, Clone, Default)]
pub struct NodeIndex(Arc<Mutex<NodeIndexState>>);

#[derive(Debug, Default)]
struct NodeIndexState {
    nodes: Nodes,
    are_known: bool,
    changes: u64,
}

impl NodeIndex {
    /// Replaces all nodes, and leaves who asks to join and why none can.
    pub fn set(&self, nodes: Nodes) {
        let mut seen = self.seen();
        seen.changes += 1;
        let Nodes { joining, token_problem, .. } = std::mem::take(&mut seen.nodes);
        seen.nodes = Nodes { joining, token_problem, ..nodes };
        seen.are_known = true;
    }

    /// Changes why no machine can join by the token that machines get; `None` if they can.
    pub fn set_token_problem(&self, problem: Option<TokenProblem>) {
        let mut seen = self.seen();
        if seen.nodes.token_problem != problem {
            seen.changes += 1;
            seen.nodes.token_problem = problem;
        }
    }

    /// True if no machine can join by the token that machines get.
    pub fn has_token_problem(&self) -> bool {
        !self.seen().nodes.can_join()
    }

    /// Changes who asks to join.
    pub fn change_joining(&self, change: impl FnOnce(&mut JoinRequests)) {
        let mut seen = self.seen();
        seen.changes += 1;
        change(&mut seen.nodes.joining);
    }

    /// Applies a change, if the nodes were observed.
    pub fn change(&self, change: impl FnOnce(&mut Nodes)) {
        let mut seen = self.seen();
        seen.changes += 1;
        if seen.are_known {
            change(&mut seen.nodes);
        }
    }

    /// Passes the observed nodes to `at`; `None` without a cluster, or before the first observation.
    pub fn look<T>(&self, at: impl FnOnce(Option<&Nodes>) -> T) -> T {
        let seen = self.seen();
        at(seen.are_known.then_some(&seen.nodes))
    }

    /// A counter of changes.
    pub fn changes(&self) -> u64 {
        self.seen().changes
    }

    fn seen(&self) -> MutexGuard<'_, NodeIndexState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, addresses: &[&str]) -> Node {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Node { name: name.to_owned(), created: OffsetDateTime::UNIX_EPOCH, addresses }
    }

    #[test]
    fn a_node_is_found_by_each_of_the_addresses_that_it_has_now() {
        let mut nodes = Nodes::default();
        nodes.add(node("a", &["192.0.2.1", "2001:db8::1"]));
        nodes.add(node("b", &["::ffff:192.0.2.2"]));
        let at = |nodes: &Nodes, address: &str| {
            nodes.at(address.parse().unwrap()).map(|node| node.name.clone())
        };
        assert_eq!(at(&nodes, "2001:db8::1").as_deref(), Some("a"));
        assert_eq!(at(&nodes, "192.0.2.2").as_deref(), Some("b"));
        // Another node gets its address before it reports a new one.
        nodes.add(node("c", &["192.0.2.1"]));
        nodes.add(node("a", &["192.0.2.3"]));
        assert_eq!(at(&nodes, "192.0.2.1").as_deref(), Some("c"));
        assert_eq!(at(&nodes, "192.0.2.3").as_deref(), Some("a"));
        nodes.remove("c");
        assert_eq!(at(&nodes, "192.0.2.1"), None);
    }

    #[test]
    fn no_change_is_taken_for_all_nodes() {
        let index = NodeIndex::default();
        index.change(|nodes| nodes.add(node("a", &["192.0.2.1"])));
        assert!(index.look(|nodes| nodes.is_none()));
        index.set(Nodes::default());
        index.change(|nodes| nodes.add(node("a", &["192.0.2.1"])));
        assert!(index.look(|nodes| nodes.unwrap().at("192.0.2.1".parse().unwrap()).is_some()));
    }
}
