//! Tables of the specs' fields, with the spec that introduced each.
//!
//! One table for spec 3 and one for spec 2, used in both directions. Parsing drops fields that the declared spec lacks,
//! as Ignition ignores unknown keys ([`super::normalise`]). Writing refuses fields that the requested spec lacks, or
//! drops them if they have no effect ([`super::downgrade`]). The table of spec 3 also defines how lists are merged
//! ([`super::merge()`]).
//!
//! Sources: the pages "Configuration Specification v2.0.0" to "v3.6.0", "Upgrading Configs", and for merging the types
//! of Ignition's config package.

pub(super) mod spec2;
pub(super) mod spec3;

/// A spec as (major, minor). It includes 2.0 and 2.1, which are read but never served.
pub(super) type Spec = (u8, u8);

/// Type of a value.
pub(super) enum Shape {
    Text,
    Integer,
    Flag,
    Object(&'static [Field]),
    List(&'static Shape),
}

/// A field of an object.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// First spec with the field.
    pub(super) since: Spec,
    pub(super) shape: Shape,
    pub(super) idle: Idle,
    /// Rule for merging a list; ignored for other shapes.
    pub(super) merge: Merge,
    /// True if the list shares its keys with the other lists of its object that have this flag: an item replaces one
    /// with the same key in another list of an earlier config.
    pub(super) shares_keys: bool,
    /// Member without which an item of a later config removes the earlier item with its key.
    pub(super) removes_without: Option<&'static str>,
}

/// Rule for merging the list of a later config into that of an earlier one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    /// Merges items with the same key into one, at the earlier one's position, and appends the others. The key is the
    /// first of these members that is set; for lists of texts, the text.
    ByKey(&'static [&'static str]),
    /// Appends every item.
    Append,
}

/// Value of a field that means the same as its absence, so that older specs can omit it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// No value is idle: presence has a meaning.
    Never,
    True,
    False,
    /// All values are idle: the reference server omits the field.
    Always,
}

impl Field {
    /// Sets the spec that introduced the field.
    const fn since(self, since: Spec) -> Self {
        Self { since, ..self }
    }

    /// Sets the value that older specs can omit.
    const fn idle(self, idle: Idle) -> Self {
        Self { idle, ..self }
    }

    /// Merges the list's items by the first of these members that is set.
    const fn by(self, members: &'static [&'static str]) -> Self {
        Self { merge: Merge::ByKey(members), ..self }
    }

    /// Merges the list by appending its items.
    const fn appended(self) -> Self {
        Self { merge: Merge::Append, ..self }
    }

    /// Shares the list's keys with other lists of its object.
    const fn sharing_keys(self) -> Self {
        Self { shares_keys: true, ..self }
    }

    /// Makes an item without `member` remove an earlier one.
    const fn removing_without(self, member: &'static str) -> Self {
        Self { removes_without: Some(member), ..self }
    }
}

/// The field with this name, in any case as Ignition reads it; the exact one is preferred.
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
