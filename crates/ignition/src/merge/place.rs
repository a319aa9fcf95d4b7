//! Finds the configs from which the value at a place comes, for errors.

use std::collections::BTreeSet;

use super::node::Node;

pub(super) fn said_by(root: &Node<'_>, place: &str) -> BTreeSet<usize> {
    way(root, place).last().map(configs).unwrap_or_default()
}

pub(super) fn concerned(root: &Node<'_>, place: &str) -> BTreeSet<usize> {
    // From the innermost value outwards, until there are several configs; otherwise the only one.
    let mut found = BTreeSet::new();
    for node in way(root, place).iter().rev() {
        found = configs(node);
        if found.len() > 1 {
            break;
        }
    }
    found
}

/// The nodes on the path to a place, from the root, as far as they exist.
fn way<'a>(root: &Node<'a>, place: &str) -> Vec<Node<'a>> {
    let mut nodes = vec![root.clone()];
    for step in place.split(['.', '[']).filter(|step| !step.is_empty()) {
        let Some(next) = nodes.last().and_then(|node| child(node, step)) else { break };
        nodes.push(next);
    }
    nodes
}

/// The member with this name, or the item at `N]`.
fn child<'a>(node: &Node<'a>, step: &str) -> Option<Node<'a>> {
    let mut found = None;
    if let Some(number) = step.strip_suffix(']') {
        let mut left: usize = number.parse().ok()?;
        node.each_item(|item| {
            if left == 0 {
                found.get_or_insert_with(|| item.clone());
            }
            left = left.saturating_sub(1);
        });
    } else {
        node.each_member(|name, member| {
            if name == step {
                found = Some(member.clone());
            }
        });
    }
    found
}

/// Numbers of all configs that contribute to a node.
fn configs(node: &Node<'_>) -> BTreeSet<usize> {
    match node {
        Node::Whole(_, config) => [*config].into(),
        Node::Object(members) => members.iter().flat_map(|(_, node)| configs(node)).collect(),
        Node::List(items) => items.iter().flat_map(configs).collect(),
    }
}
