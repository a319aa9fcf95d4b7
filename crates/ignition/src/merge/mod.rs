//! Merges configs as Ignition does: those that a config names in `ignition.config.merge`, those that a pool's
//! MachineConfigs have.
//!
//! A later config is merged into the earlier ones member by member: what it says replaces what they say, what it leaves
//! out stays. Lists are merged as [`super::fields`] tells. The result points into the configs, so that nothing large is
//! copied before it is known to stay, and each value knows its config: [`Merged::origins`] tells where everything is
//! from.
//!
//! Two valid configs may make an invalid one (partitions that overlap, say), so what is merged is checked.
//!
//! Source: Ignition's package `config/merge`.

mod files;
mod node;
mod origins;
mod place;

use std::collections::BTreeSet;

use serde_json::Value;

use self::node::Node;
use super::config::Config;
use super::error::Error;
use super::fields;
use super::lower;
use super::spec3::Body;
use super::version::SpecVersion;

pub use self::origins::{Member, Origin};

/// A config that can be merged with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    declared: SpecVersion,
    value: Value,
    /// The same as spec 3.6 has it, where that differs from `value`.
    newest: Option<Value>,
}

impl Part {
    /// A config with its edits.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let works = config.declared >= SpecVersion::V3_6;
        let newest = if works || !lower::has_special_modes(&config.body) {
            None
        } else {
            let mut body = config.body.clone();
            lower::settle_special_modes(&mut body, config.declared, SpecVersion::V3_6)?;
            Some(without_version(&body)?)
        };
        Ok(Self { declared: config.declared, value: without_version(&config.body)?, newest })
    }

    fn said_in(&self, spec: SpecVersion) -> &Value {
        self.newest.as_ref().filter(|_| spec >= SpecVersion::V3_6).unwrap_or(&self.value)
    }
}

fn without_version(body: &Body) -> Result<Value, Error> {
    let mut value = serde_json::to_value(body)?;
    if let Some(ignition) = value.get_mut("ignition").and_then(Value::as_object_mut) {
        ignition.shift_remove("version");
    }
    Ok(value)
}

/// Configs merged into one, which is made by [`Self::config`].
#[derive(Debug)]
pub struct Merged<'a> {
    spec: SpecVersion,
    parts: Vec<&'a Value>,
    root: Node<'a>,
}

/// Merges configs, each one into those before it.
///
/// The result is in the newest spec that one of them was written in, and in `at_least` if all are older.
#[must_use]
pub fn merge<'a>(parts: &[&'a Part], at_least: SpecVersion) -> Merged<'a> {
    let spec = parts.iter().map(|part| part.declared).fold(at_least, SpecVersion::max);
    let parts: Vec<_> = parts.iter().map(|part| part.said_in(spec)).collect();
    let mut root = Node::EMPTY;
    for (config, part) in parts.iter().copied().enumerate() {
        root.merge(part, config, &fields::spec3::CONFIG);
    }
    Merged { spec, parts, root }
}

impl Merged<'_> {
    /// The merged config, which may not be valid.
    pub fn config(&self) -> Result<Config, Error> {
        Ok(Config { declared: self.spec, body: serde_json::from_value(self.root.to_value())? })
    }

    /// What each value comes from, by the places of the configs in what was merged.
    #[must_use]
    pub fn origins(&self) -> Vec<Origin> {
        origins::origins(&self.root, &self.parts)
    }

    /// The configs that what is at a place comes from.
    ///
    /// A place is written as errors have it, `storage.files[3].path`.
    #[must_use]
    pub fn said_by(&self, place: &str) -> BTreeSet<usize> {
        place::said_by(&self.root, place)
    }

    /// The configs that an error at a place has to do with. One config alone is valid, so these are those that what is
    /// at the place comes from, or else what is around it, until they are several.
    #[must_use]
    pub fn concerned(&self, place: &str) -> BTreeSet<usize> {
        place::concerned(&self.root, place)
    }
}

#[cfg(test)]
mod tests;
