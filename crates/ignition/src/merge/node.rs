//! Tree of merged values, which borrows from the configs and records the config of each value.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::fields::{Field, Merge, Shape};

/// A value of the merged config.
#[derive(Clone, Debug)]
pub(super) enum Node<'a> {
    /// A text, a number or a flag, with the number of its config.
    Leaf(&'a Value, usize),
    Object(Members<'a>),
    List(Vec<Node<'a>>),
}

type Members<'a> = Vec<(&'a str, Node<'a>)>;

/// Identity of a list's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key<'a> {
    /// The item has no key.
    None,
    Number(i64),
    Text(&'a str),
}

impl<'a> Node<'a> {
    pub(super) const EMPTY: Self = Node::Object(Vec::new());

    /// The tree of a value from one config.
    pub(super) fn new(value: &'a Value, config: usize) -> Self {
        match value {
            Value::Object(members) => {
                let members = members.iter();
                Node::Object(
                    members.map(|(name, value)| (&name[..], Self::new(value, config))).collect(),
                )
            }
            Value::Array(items) => {
                Node::List(items.iter().map(|item| Self::new(item, config)).collect())
            }
            leaf => Node::Leaf(leaf, config),
        }
    }

    /// Merges the value of a later config at this place.
    pub(super) fn merge(&mut self, later: Self, shape: &Shape) {
        match (self, later, shape) {
            (Node::Object(members), Node::Object(later), Shape::Object(fields)) => {
                merge_members(members, later, fields);
            }
            (node, later, _) => *node = later,
        }
    }

    /// The key of an item, and its name among `names`.
    pub(super) fn key(&self, names: &[&'static str]) -> (Key<'a>, Option<&'static str>) {
        if let Node::Leaf(Value::String(text), _) = self {
            return (Key::Text(text), None);
        }
        let says = |name: &&'static str| match self.member(name)? {
            Node::Leaf(Value::String(text), _) if !text.is_empty() => {
                Some((Key::Text(text), Some(*name)))
            }
            Node::Leaf(Value::Number(number), _) => {
                let number = number.as_i64().filter(|number| *number != 0)?;
                Some((Key::Number(number), Some(*name)))
            }
            _ => None,
        };
        names.iter().find_map(says).unwrap_or((Key::None, None))
    }

    fn member(&self, name: &str) -> Option<&Self> {
        let Node::Object(members) = self else { return None };
        members.iter().find(|(member, _)| *member == name).map(|(_, node)| node)
    }

    pub(super) fn to_value(&self) -> Value {
        match self {
            Node::Leaf(value, _) => (*value).clone(),
            Node::Object(members) => {
                let members = members.iter();
                let members = members.map(|(name, node)| ((*name).to_owned(), node.to_value()));
                Value::Object(members.collect())
            }
            Node::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
        }
    }
}

fn merge_members<'a>(members: &mut Members<'a>, later: Members<'a>, fields: &[Field]) {
    remove_replaced(members, &later, fields);
    for (name, value) in later {
        let Some(field) = fields.iter().find(|field| field.name == name) else { continue };
        let earlier = members.iter_mut().find(|(member, _)| *member == name);
        match (earlier, value, field.shape) {
            (None, value, _) => members.push((name, value)),
            (Some((_, Node::List(items))), Node::List(later), Shape::List(shape)) => {
                merge_items(items, later, field, shape);
            }
            (Some((_, node)), value, shape) => node.merge(value, shape),
        }
    }
}

/// Removes items whose key is in another list of the later config, among lists that share keys: a file that becomes a
/// link.
fn remove_replaced(members: &mut Members<'_>, later: &[(&str, Node<'_>)], fields: &[Field]) {
    let sharing = |name: &str| fields.iter().find(|field| field.shares_keys && field.name == name);
    for (name, node) in members {
        let (Some(field), Node::List(items)) = (sharing(name), node) else { continue };
        let mut keys = HashSet::new();
        for (other, list) in later.iter().filter(|(other, _)| other != name) {
            if let (Some(other), Node::List(list)) = (sharing(other), list) {
                keys.extend(list.iter().map(|item| item.key(names(other)).0));
            }
        }
        if !keys.is_empty() {
            items.retain(|item| !keys.contains(&item.key(names(field)).0));
        }
    }
}

/// Members that identify the items of a list.
pub(super) fn names(field: &Field) -> &'static [&'static str] {
    match field.merge {
        Merge::ByKey(names) => names,
        Merge::Append => &[],
    }
}

/// Merges the items of a list; `shape` is that of an item.
fn merge_items<'a>(items: &mut Vec<Node<'a>>, later: Vec<Node<'a>>, field: &Field, shape: &Shape) {
    if field.merge == Merge::Append {
        items.extend(later);
        return;
    }
    let names = names(field);
    let earlier = items.iter().enumerate().map(|(place, item)| (item.key(names).0, place));
    let earlier: HashMap<_, _> = earlier.collect();
    let mut removed = HashSet::new();
    for item in later {
        let key = item.key(names).0;
        match earlier.get(&key) {
            None => items.push(item),
            Some(_) if field.removes_without.is_some_and(|name| item.member(name).is_none()) => {
                removed.insert(key);
            }
            Some(place) => items[*place].merge(item, shape),
        }
    }
    if !removed.is_empty() {
        items.retain(|item| !removed.contains(&item.key(names).0));
    }
}
