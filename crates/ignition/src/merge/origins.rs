//! Origins of merged values: the config that each comes from, and the configs that it overrides.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::super::fields::{Field, Merge, Shape};
use super::super::spec3;
use super::node::{Key, Node, names};

/// Origin of a list's item (a file, a unit, a drop-in, a key of a user), or of a value outside of lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The list, such as `storage.files` or `systemd.units.dropins`, or the value, such as `ignition.timeouts.httpTotal`.
    pub place: String,
    /// Key of the item in the list, after the keys of the items around it: for a drop-in the names of its unit and its
    /// own. Empty for a value outside of lists.
    pub keys: Vec<String>,
    /// Members of the item, each with its config.
    pub members: Vec<Member>,
    /// Numbers of the configs whose values are overridden.
    pub covered: BTreeSet<usize>,
}

/// A member of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name such as `contents.source`; empty for an item that is a text, and for a value outside of lists.
    pub name: String,
    /// Number of the config, in the order of merging.
    pub config: usize,
}

impl Origin {
    /// An item without members yet.
    fn new(place: &str, keys: &[String]) -> Self {
        let (place, keys) = (place.to_owned(), keys.to_vec());
        Self { place, keys, members: Vec::new(), covered: BTreeSet::new() }
    }

    /// Numbers of all configs that contribute to the item.
    pub fn configs(&self) -> BTreeSet<usize> {
        self.members.iter().map(|member| member.config).collect()
    }
}

/// An item with its identity in other configs. In lists that share keys, it can be in another list there.
struct IdentifiedOrigin {
    id: (String, Vec<String>),
    /// Member that identifies the item. Every config that sets a member of the item sets this one too.
    key: Option<&'static str>,
    origin: Origin,
}

pub(super) fn origins(root: &Node<'_>, parts: &[&Value]) -> Vec<Origin> {
    let found = found_in(root);
    let places: HashMap<_, _> =
        found.iter().enumerate().map(|(i, found)| (found.id.clone(), i)).collect();
    let mut origins: Vec<_> = found.into_iter().map(|found| found.origin).collect();
    for (config, part) in parts.iter().enumerate() {
        for IdentifiedOrigin { id, key, origin } in found_in(&Node::new(part, config)) {
            let Some(merged) = places.get(&id).and_then(|place| origins.get_mut(*place)) else {
                continue;
            };
            let stays = |member: &Member| {
                key == Some(member.name.as_str()) || merged.members.contains(member)
            };
            if merged.place != origin.place || !origin.members.iter().all(stays) {
                merged.covered.insert(config);
            }
        }
    }
    origins
}

fn found_in(root: &Node<'_>) -> Vec<IdentifiedOrigin> {
    let mut found = Vec::new();
    let nowhere = WalkPosition { list: "", id: "", keys: &[], item: None, path: "" };
    look(root, spec3::CONFIG, &nowhere, &mut found);
    found
}

/// Position of the walk.
#[derive(Clone, Copy)]
struct WalkPosition<'a> {
    /// List of the innermost item, empty outside of lists.
    list: &'a str,
    /// The list, with one name for all lists that share keys.
    id: &'a str,
    keys: &'a [String],
    /// Index of the innermost item among the found ones.
    item: Option<usize>,
    /// Members from the item to the position.
    path: &'a str,
}

fn look(
    node: &Node<'_>,
    shape: &Shape,
    spot: &WalkPosition<'_>,
    found: &mut Vec<IdentifiedOrigin>,
) {
    match (node, shape) {
        (Node::Object(members), Shape::Object(fields)) => {
            for (name, member) in members {
                let Some(field) = fields.iter().find(|field| field.name == *name) else { continue };
                let path = joined(spot.path, name);
                let spot = WalkPosition { path: &path, ..*spot };
                match (member, field.shape) {
                    (Node::List(items), Shape::List(shape)) => {
                        look_at_items(items, (field, shape), &spot, found);
                    }
                    (member, shape) => look(member, shape, &spot, found),
                }
            }
        }
        (Node::Leaf(value, config), _) if value.as_str() != Some("") => add(*config, spot, found),
        _ => {}
    }
}

fn look_at_items(
    items: &[Node<'_>],
    (field, shape): (&Field, &Shape),
    spot: &WalkPosition<'_>,
    found: &mut Vec<IdentifiedOrigin>,
) {
    if field.merge == Merge::Append {
        for item in items {
            look(item, shape, spot, found);
        }
        return;
    }
    let place = joined(spot.list, spot.path);
    let id = match spot.path.rsplit_once('.') {
        Some((parent, _)) if field.shares_keys => joined(spot.id, parent),
        _ if field.shares_keys => spot.id.to_owned(),
        _ => joined(spot.id, spot.path),
    };
    for item in items {
        let (key, name) = item.key(names(field));
        let mut keys = spot.keys.to_vec();
        keys.push(match key {
            Key::None => String::new(),
            Key::Number(number) => number.to_string(),
            Key::Text(text) => text.to_owned(),
        });
        let at = found.len();
        found.push(IdentifiedOrigin {
            id: (id.clone(), keys.clone()),
            key: name,
            origin: Origin::new(&place, &keys),
        });
        let spot = WalkPosition { list: &place, id: &id, keys: &keys, item: Some(at), path: "" };
        look(item, shape, &spot, found);
        let members = &mut found[at].origin.members;
        if members.len() > 1 {
            members.retain(|member| name != Some(member.name.as_str()));
        }
    }
}

/// Records a value of a config, for the innermost item or outside of lists.
fn add(config: usize, spot: &WalkPosition<'_>, found: &mut Vec<IdentifiedOrigin>) {
    let Some(item) = spot.item else {
        let mut origin = Origin::new(spot.path, &[]);
        origin.members.push(Member { name: String::new(), config });
        found.push(IdentifiedOrigin { id: (spot.path.to_owned(), Vec::new()), key: None, origin });
        return;
    };
    let member = Member { name: spot.path.to_owned(), config };
    let members = &mut found[item].origin.members;
    if !members.contains(&member) {
        members.push(member);
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
