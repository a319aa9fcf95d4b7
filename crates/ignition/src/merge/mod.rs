//! Merges configs as Ignition does: those in `ignition.config.merge`, and those of a pool's MachineConfigs.
//!
//! A later config is merged into the earlier ones member by member: members that it sets replace theirs, others stay.
//! [`super::spec3`] defines how lists are merged. The result borrows from the configs, so that only values of the
//! result are copied. Each value knows its config, for [`Merged::origins`].
//!
//! Two valid configs can make an invalid one (partitions that overlap, say), so the result is checked.
//!
//! Source: Ignition's package `config/merge`.

mod node;
mod origins;

use serde_json::Value;

use self::node::Node;
use super::config::Config;
use super::error::Error;
use super::lower;
use super::spec3::{self, Body};
use super::version::SpecVersion;

pub use self::origins::{Member, Origin};

/// A config that can be merged with others.
#[derive(Clone, Debug, PartialEq)]
pub struct MergeInput {
    declared: SpecVersion,
    value: Value,
    /// The value in spec 3.6, if it differs from `value`.
    newest: Option<Value>,
}

impl MergeInput {
    /// Takes a config with its edits.
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

    fn value_in(&self, spec: SpecVersion) -> &Value {
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

/// Merged configs; [`Self::config`] copies the result.
#[derive(Debug)]
pub struct Merged<'a> {
    spec: SpecVersion,
    parts: Vec<&'a Value>,
    root: Node<'a>,
}

/// Merges configs, each one into those before it.
///
/// The result is in the newest spec of the configs, or in `at_least` if all are older.
pub fn merge<'a>(parts: &[&'a MergeInput], at_least: SpecVersion) -> Merged<'a> {
    let spec = parts.iter().map(|part| part.declared).fold(at_least, SpecVersion::max);
    let parts: Vec<_> = parts.iter().map(|part| part.value_in(spec)).collect();
    let mut root = Node::EMPTY;
    for (config, part) in parts.iter().copied().enumerate() {
        root.merge(Node::new(part, config), spec3::CONFIG);
    }
    Merged { spec, parts, root }
}

impl Merged<'_> {
    /// The merged config, which may not be valid.
    pub fn config(&self) -> Result<Config, Error> {
        Ok(Config { declared: self.spec, body: serde_json::from_value(self.root.to_value())? })
    }

    /// Origins of all values; configs are numbered in the order of merging.
    pub fn origins(&self) -> Vec<Origin> {
        origins::origins(&self.root, &self.parts)
    }
}

#[cfg(test)]
mod tests;
