//! Declarations of the specs' fields, with the spec that introduced each.
//!
//! One for spec 3 ([`super::spec3`]) and one for spec 2 ([`super::spec2`]), used in both directions. Parsing drops fields
//! that the declared spec lacks, as Ignition ignores unknown keys ([`super::normalise`]). Writing refuses fields that the
//! requested spec lacks, or drops them if they have no effect ([`super::downgrade`]). The declaration of spec 3 also
//! defines how lists are merged ([`super::merge()`]).
//!
//! Sources: the pages "Configuration Specification v2.0.0" to "v3.6.0", "Upgrading Configs", and for merging the types
//! of Ignition's config package.

use serde::Serialize;
use serde::de::DeserializeOwned;

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
    pub(super) shape: &'static Shape,
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
    /// A field of every spec.
    pub(super) const fn new(name: &'static str, shape: &'static Shape) -> Self {
        Self {
            name,
            since: (2, 0),
            shape,
            idle: Idle::Never,
            merge: Merge::ByKey(&[]),
            shares_keys: false,
            removes_without: None,
        }
    }
}

/// The field with this name, in any case as Ignition reads it; the exact one is preferred.
pub(super) fn known<'a>(fields: &'a [Field], name: &str) -> Option<&'a Field> {
    let exact = fields.iter().find(|field| field.name == name);
    exact.or_else(|| fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)))
}

/// A type that holds a value of a config.
pub(super) trait Shaped {
    const SHAPE: &'static Shape;
}

impl Shaped for String {
    const SHAPE: &'static Shape = &Shape::Text;
}

impl Shaped for i64 {
    const SHAPE: &'static Shape = &Shape::Integer;
}

impl Shaped for bool {
    const SHAPE: &'static Shape = &Shape::Flag;
}

impl<T: Shaped> Shaped for Option<T> {
    const SHAPE: &'static Shape = T::SHAPE;
}

impl<T: Shaped> Shaped for Vec<T> {
    const SHAPE: &'static Shape = &Shape::List(T::SHAPE);
}

/// Returns `true` for a default value, which means the same as absence and is not written.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Converts an object to that of another spec. Fields of the same name keep their values, others are dropped. Defaults
/// are not written, so that an empty text, `false` or 0 of spec 2 becomes an absent value of spec 3, and an absent one
/// the default.
pub(super) fn converted<T: DeserializeOwned>(object: impl Serialize) -> serde_json::Result<T> {
    serde_json::from_value(serde_json::to_value(object)?)
}

/// Declares the objects of a spec: a type for each, and its fields. The field in parentheses is always written, the
/// others only if they differ from the default. After a field's type are its shape if it is not the type's, its name if
/// it is written differently, and the members of [`Field`] that differ from those of [`Field::new`]. Of the arrays
/// below, the first item is used: what is given, or else what follows from the field.
macro_rules! objects {
    (($vis:vis) $($(#[$meta:meta])* $name:ident($($required:ident: $required_type:ty)?) {$(
        $(#[$doc:meta])*
        $field:ident: $type:ty $(as $shape:ident)? $(= $key:literal)? $([$($member:ident: $value:expr),*])?,
    )*})*) => {$(
        $(#[$meta])*
        // The names are the spec's.
        #[allow(clippy::struct_field_names)]
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        $vis struct $name {
            $($vis $required: $required_type,)?
            $(
                $(#[$doc])*
                #[serde(skip_serializing_if = "is_default" $(, rename = $key)?)]
                $vis $field: $type,
            )*
        }

        impl Shaped for $name {
            const SHAPE: &'static Shape = &Shape::Object(&[
                $(Field::new(stringify!($required), <$required_type as Shaped>::SHAPE),)?
                $(Field {
                    $($($member: $value,)*)?
                    ..Field::new(
                        [$($key,)? stringify!($field)][0],
                        [$($shape,)? <$type as Shaped>::SHAPE][0],
                    )
                },)*
            ]);
        }
    )*};
}
pub(super) use objects;
