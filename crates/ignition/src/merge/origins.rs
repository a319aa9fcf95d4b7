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
    /// Numbers of all configs that contribute to the item.
    #[must_use]
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
        for IdentifiedOrigin { id, key, origin } in found_in(&Node::Whole(part, config)) {
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
    let mut walk = OriginWalk { found: Vec::new() };
    let nowhere = WalkPosition { list: "", id: "", keys: &[], item: None, path: "" };
    walk.look(root, spec3::CONFIG, &nowhere);
    walk.found
}

struct OriginWalk {
    found: Vec<IdentifiedOrigin>,
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

impl OriginWalk {
    fn look(&mut self, node: &Node<'_>, shape: &Shape, spot: &WalkPosition<'_>) {
        let Shape::Object(fields) = shape else {
            if let Node::Whole(value, config) = node
                && value.as_str() != Some("")
            {
                self.add(*config, spot);
            }
            return;
        };
        node.each_member(|name, member| {
            let Some(field) = fields.iter().find(|field| field.name == name) else { return };
            let path = joined(spot.path, name);
            let spot = WalkPosition { path: &path, ..*spot };
            match field.shape {
                Shape::List(item) => self.look_at_items(member, (field, item), &spot),
                shape => self.look(member, shape, &spot),
            }
        });
    }

    fn look_at_items(
        &mut self,
        list: &Node<'_>,
        (field, shape): (&Field, &Shape),
        spot: &WalkPosition<'_>,
    ) {
        if field.merge == Merge::Append {
            list.each_item(|item| self.look(item, shape, spot));
            return;
        }
        let place = joined(spot.list, spot.path);
        let id = match spot.path.rsplit_once('.') {
            Some((parent, _)) if field.shares_keys => joined(spot.id, parent),
            _ if field.shares_keys => spot.id.to_owned(),
            _ => joined(spot.id, spot.path),
        };
        list.each_item(|item| {
            let (key, name) = item.key(names(field));
            let mut keys = spot.keys.to_vec();
            keys.push(match key {
                Key::None => String::new(),
                Key::Number(number) => number.to_string(),
                Key::Text(text) => text.to_owned(),
            });
            let at = self.found.len();
            let origin = Origin {
                place: place.clone(),
                keys: keys.clone(),
                members: Vec::new(),
                covered: BTreeSet::new(),
            };
            self.found.push(IdentifiedOrigin { id: (id.clone(), keys.clone()), key: name, origin });
            let spot =
                WalkPosition { list: &place, id: &id, keys: &keys, item: Some(at), path: "" };
            self.look(item, shape, &spot);
            let members = &mut self.found[at].origin.members;
            if members.len() > 1 {
                members.retain(|member| name != Some(member.name.as_str()));
            }
        });
    }

    /// Records a value of a config, for the innermost item or outside of lists.
    fn add(&mut self, config: usize, spot: &WalkPosition<'_>) {
        let Some(item) = spot.item else {
            let place = spot.path.to_owned();
            let members = vec![Member { name: String::new(), config }];
            let origin = Origin {
                place: place.clone(),
                keys: Vec::new(),
                members,
                covered: BTreeSet::new(),
            };
            self.found.push(IdentifiedOrigin { id: (place, Vec::new()), key: None, origin });
            return;
        };
        let member = Member { name: spot.path.to_owned(), config };
        let members = &mut self.found[item].origin.members;
        if !members.contains(&member) {
            members.push(member);
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
