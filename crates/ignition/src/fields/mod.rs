//! Which fields the specs have, and since when.
//!
//! One table for spec 3 and one for spec 2, read in both directions: on the way in, what the declared spec does not
//! know is dropped, as Ignition ignores unknown keys ([`super::normalise`]); on the way out, what the spec asked for
//! does not know is refused by name, or dropped where it says nothing ([`super::downgrade`]). The table of spec 3 also
//! has how lists are merged ([`super::merge()`]).
//!
//! Sources: the pages "Configuration Specification v2.0.0" to "v3.6.0", "Upgrading Configs", and for merging the types
//! of Ignition's config package.

pub(super) mod spec2;
pub(super) mod spec3;

/// A spec as (major, minor), with the two that are read but never served: 2.0 and 2.1.
pub(super) type Spec = (u8, u8);

/// What may stand at a place.
pub(super) enum Shape {
    Text,
    Integer,
    Flag,
    Object(&'static [Field]),
    List(&'static Shape),
}

/// One field of an object.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// The first spec that has it.
    pub(super) since: Spec,
    pub(super) shape: Shape,
    pub(super) idle: Idle,
    /// How a list is merged; of no meaning elsewhere.
    pub(super) merge: Merge,
    /// True if the list has its keys in common with the others of its object that say so: what has a key in one of them
    /// takes the place of what an earlier config has by it in another.
    pub(super) shares_keys: bool,
    /// The member without which an item of a later config removes the earlier one of its key.
    pub(super) removes_without: Option<&'static str>,
}

/// How the list of a later config is merged into that of an earlier one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    /// Items with the same key are merged into one, at the earlier one's place; the others are appended. The key is the
    /// first of these members that says something, for lists of texts the text itself.
    ByKey(&'static [&'static str]),
    /// Every item is appended.
    Append,
}

/// The value at which a field says no more than its absence, so that an older spec can do without it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// None: its presence says something.
    Never,
    True,
    False,
    /// Whatever its value, the reference server leaves it out.
    Always,
}

impl Field {
    /// This field, which only came with `since`.
    const fn since(self, since: Spec) -> Self {
        Self { since, ..self }
    }

    /// This field, which an older spec can do without when it is `idle`.
    const fn idle(self, idle: Idle) -> Self {
        Self { idle, ..self }
    }

    /// This list, whose items are known by the first of these members that says something.
    const fn by(self, members: &'static [&'static str]) -> Self {
        Self { merge: Merge::ByKey(members), ..self }
    }

    /// This list, whose items have no keys.
    const fn appended(self) -> Self {
        Self { merge: Merge::Append, ..self }
    }

    /// This list, which shares its keys with others of its object.
    const fn sharing_keys(self) -> Self {
        Self { shares_keys: true, ..self }
    }

    /// This list, in which an item without `member` removes an earlier one.
    const fn removing_without(self, member: &'static str) -> Self {
        Self { removes_without: Some(member), ..self }
    }
}

/// The field that a member of an object is: by its name, or by that in another case, as Ignition reads it.
pub(super) fn known<'a>(fields: &'a [Field], name: &str) -> Option<&'a Field> {
    let exact = fields.iter().find(|field| field.name == name);
    exact.or_else(|| fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)))
}

const fn field(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        since: (2, 0),
        shape,
        idle: Idle::Never,
        merge: Merge::ByKey(&[]),
        shares_keys: false,
        removes_without: None,
    }
}

const fn text(name: &'static str) -> Field {
    field(name, Shape::Text)
}

const fn integer(name: &'static str) -> Field {
    field(name, Shape::Integer)
}

const fn flag(name: &'static str) -> Field {
    field(name, Shape::Flag)
}

const fn texts(name: &'static str) -> Field {
    field(name, Shape::List(&Shape::Text))
}

const fn object(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Shape::Object(fields))
}

const fn objects(name: &'static str, item: &'static Shape) -> Field {
    field(name, Shape::List(item))
}
