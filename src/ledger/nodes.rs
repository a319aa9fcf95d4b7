//! The nodes of a cluster, by their addresses.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use time::OffsetDateTime;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// When it joined.
    pub created: OffsetDateTime,
    /// Its addresses, inside and outside.
    pub addresses: Vec<IpAddr>,
}

/// The nodes that there are.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    by_name: BTreeMap<String, Node>,
    by_address: HashMap<IpAddr, String>,
}

impl Nodes {
    /// Adds a node, or what has changed of it.
    pub fn add(&mut self, node: Node) {
        self.remove(&node.name);
        for address in &node.addresses {
            self.by_address.insert(address.to_canonical(), node.name.clone());
        }
        self.by_name.insert(node.name.clone(), node);
    }

    /// Removes the node of this name.
    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        self.by_address.retain(|_, owner| owner != name);
    }

    /// The node that has this address.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Option<&Node> {
        self.by_name.get(self.by_address.get(&address.to_canonical())?)
    }
}
