//! Tree of merged values, which borrows from the configs and records the config of each value.

use std::collections::{HashMap, HashSet};
use std::mem;

use serde_json::{Map, Value};

use super::super::fields::{Field, Merge, Shape};

/// A value of the merged config.
#[derive(Clone, Debug)]
pub(super) enum Node<'a> {
    /// A value from one config, with the config's number.
    Whole(&'a Value, usize),
    /// An object from several configs.
    Object(Members<'a>),
    /// A list from several configs.
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

    /// Merges the value of a later config at this place.
    pub(super) fn merge(&mut self, later: &'a Value, config: usize, shape: &Shape) {
        *self = match (shape, later) {
            (Shape::Object(fields), Value::Object(later)) => {
                let members = mem::replace(self, Self::EMPTY).into_members();
                Node::Object(merge_members(members, later, config, fields))
            }
            _ => Node::Whole(later, config),
        };
    }

    fn merge_member(&mut self, later: &'a Value, config: usize, field: &Field) {
        match (field.shape, later) {
            (Shape::List(shape), Value::Array(later)) => {
                let items = mem::replace(self, Self::EMPTY).into_items();
                *self = Node::List(merge_items(items, later, config, (field, shape)));
            }
            (shape, later) => self.merge(later, config, shape),
        }
    }

    fn into_members(self) -> Members<'a> {
        match self {
            Node::Object(members) => members,
            Node::Whole(Value::Object(members), config) => {
                let members = members.iter();
                members.map(|(name, value)| (name.as_str(), Node::Whole(value, config))).collect()
            }
            Node::Whole(..) | Node::List(_) => Vec::new(),
        }
    }

    fn into_items(self) -> Vec<Self> {
        match self {
            Node::List(items) => items,
            Node::Whole(Value::Array(items), config) => {
                items.iter().map(|item| Node::Whole(item, config)).collect()
            }
            Node::Whole(..) | Node::Object(_) => Vec::new(),
        }
    }

    /// Calls `show` for each member of an object.
    pub(super) fn each_member(&self, mut show: impl FnMut(&'a str, &Self)) {
        match self {
            Node::Object(members) => members.iter().for_each(|(name, node)| show(name, node)),
            Node::Whole(Value::Object(members), config) => {
                for (name, value) in members {
                    show(name, &Node::Whole(value, *config));
                }
            }
            Node::Whole(..) | Node::List(_) => {}
        }
    }

    /// Calls `show` for each item of a list.
    pub(super) fn each_item(&self, mut show: impl FnMut(&Self)) {
        match self {
            Node::List(items) => items.iter().for_each(show),
            Node::Whole(Value::Array(items), config) => {
                for item in items {
                    show(&Node::Whole(item, *config));
                }
            }
            Node::Whole(..) | Node::Object(_) => {}
        }
    }

    /// The key of an item, and its name among `names`.
    pub(super) fn key(&self, names: &[&'static str]) -> (Key<'a>, Option<&'static str>) {
        if let Node::Whole(Value::String(text), _) = self {
            return (Key::Text(text), None);
        }
        let says = |name: &&'static str| match self.value(name)? {
            Value::String(text) if !text.is_empty() => Some((Key::Text(text), Some(*name))),
            Value::Number(number) => {
                let number = number.as_i64().filter(|number| *number != 0)?;
                Some((Key::Number(number), Some(*name)))
            }
            _ => None,
        };
        names.iter().find_map(says).unwrap_or((Key::None, None))
    }

    /// A member from one config.
    fn value(&self, name: &str) -> Option<&'a Value> {
        match self {
            Node::Whole(value, _) => value.get(name),
            Node::Object(members) => match members.iter().find(|(member, _)| *member == name)? {
                (_, Node::Whole(value, _)) => Some(value),
                _ => None,
            },
            Node::List(_) => None,
        }
    }

    pub(super) fn to_value(&self) -> Value {
        match self {
            Node::Whole(value, _) => (*value).clone(),
            Node::Object(members) => {
                let members = members.iter();
                let members = members.map(|(name, node)| ((*name).to_owned(), node.to_value()));
                Value::Object(members.collect())
            }
            Node::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
        }
    }
}

fn merge_members<'a>(
    mut members: Members<'a>,
    later: &'a Map<String, Value>,
    config: usize,
    fields: &[Field],
) -> Members<'a> {
    remove_replaced(&mut members, later, fields);
    for (name, value) in later {
        let Some(field) = fields.iter().find(|field| field.name == name) else { continue };
        match members.iter_mut().find(|(member, _)| member == name) {
            Some((_, node)) => node.merge_member(value, config, field),
            None => members.push((name, Node::Whole(value, config))),
        }
    }
    members
}

/// Removes items whose key is in another list of the later config, among lists that share keys: a file that becomes a
/// link.
fn remove_replaced(members: &mut Members<'_>, later: &Map<String, Value>, fields: &[Field]) {
    for (name, node) in members {
        let sharing = fields.iter().filter(|field| field.shares_keys);
        let Some(field) = sharing.clone().find(|field| field.name == *name) else { continue };
        let others = sharing.filter(|other| other.name != *name);
        let keys: HashSet<_> = others
            .flat_map(|other| later.get(other.name).into_iter().flat_map(|list| keys(list, other)))
            .collect();
        if !keys.is_empty() {
            let mut items = mem::replace(node, Node::EMPTY).into_items();
            items.retain(|item| !keys.contains(&item.key(names(field)).0));
            *node = Node::List(items);
        }
    }
}

fn keys<'a>(list: &'a Value, field: &Field) -> impl Iterator<Item = Key<'a>> {
    let items = list.as_array().into_iter().flatten();
    items.map(|item| Node::Whole(item, 0).key(names(field)).0)
}

/// Members that identify the items of a list.
pub(super) fn names(field: &Field) -> &'static [&'static str] {
    match field.merge {
        Merge::ByKey(names) => names,
        Merge::Append => &[],
    }
}

/// Merges the items of a list; `shape` is that of an item.
fn merge_items<'a>(
    mut items: Vec<Node<'a>>,
    later: &'a [Value],
    config: usize,
    (field, shape): (&Field, &Shape),
) -> Vec<Node<'a>> {
    if field.merge == Merge::Append {
        items.extend(later.iter().map(|item| Node::Whole(item, config)));
        return items;
    }
    let names = names(field);
    let earlier = items.iter().enumerate().map(|(place, item)| (item.key(names).0, place));
    let earlier: HashMap<_, _> = earlier.collect();
    let mut removed = HashSet::new();
    for value in later {
        let item = Node::Whole(value, config);
        let key = item.key(names).0;
        match earlier.get(&key) {
            None => items.push(item),
            Some(_) if field.removes_without.is_some_and(|name| value.get(name).is_none()) => {
                removed.insert(key);
            }
            Some(place) => items[*place].merge(value, config, shape),
        }
    }
    if !removed.is_empty() {
        items.retain(|item| !removed.contains(&item.key(names).0));
    }
    items
}
