//! A config in memory: parsed and valid, ready to be edited and to be said in any spec.

use serde::Serialize;
use serde_json::Value;

use super::conform::conform;
use super::error::{At, Error};
use super::fields::{self, Spec};
use super::fit::fit;
use super::lift;
use super::lower;
use super::rules;
use super::spec2;
use super::spec3::Body;
use super::version::{SpecVersion, Triple};

/// A valid Ignition config, held in the newest spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The spec that it was written in.
    pub(super) declared: SpecVersion,
    pub(super) body: Body,
}

impl Config {
    /// An empty config.
    #[must_use]
    pub fn empty() -> Self {
        Self { declared: SpecVersion::NEWEST, body: Body::default() }
    }

    /// Reads a config of spec 2.0.0, 2.1.0, 2.2.0 or 3.0.0 to 3.6.0 and checks it by the rules of that spec.
    ///
    /// As Ignition does, it ignores fields that the declared spec does not have, and takes `null` for absence.
    /// A spec 2 config is lifted to spec 3, which fails where spec 3 has no words for it.
    pub fn parse(json: &str) -> Result<Self, Error> {
        let value: Value = serde_json::from_str(json)?;
        let spec = declared(&value)?;
        if let (2, _) = spec {
            let value = conform(value, &fields::spec2::CONFIG, spec, &At::ROOT)?;
            let config: spec2::Body = serde_json::from_value(value)?;
            rules::spec2::check(&config, spec)?;
            let body = lift::to_spec3(config, spec)?;
            rules::check(&body, SpecVersion::V3_0.number())?;
            return Ok(Self { declared: SpecVersion::V2_2, body });
        }
        let value = conform(value, &fields::spec3::CONFIG, spec, &At::ROOT)?;
        let body: Body = serde_json::from_value(value)?;
        rules::check(&body, spec)?;
        let declared = SpecVersion::spec_3(spec.1.into()).unwrap_or(SpecVersion::NEWEST);
        Ok(Self { declared, body })
    }

    /// The spec that the config was written in, 2.2 also for 2.0 and 2.1.
    #[must_use]
    pub fn declared(&self) -> SpecVersion {
        self.declared
    }

    /// Says the config in the spec `to`, as it is with its edits.
    ///
    /// Fails if it is no longer valid (two files with one path, say) or says what `to` has no words for.
    pub fn lower(mut self, to: SpecVersion) -> Result<Lowered, Error> {
        lower::settle_special_modes(&mut self, to)?;
        if to == SpecVersion::V2_2 {
            // Spec 2.2 knows nothing that 3.0 does not, so what 3.0 refuses is refused by its spec 3 name.
            rules::check(&self.body, SpecVersion::V3_0.number())?;
            fit_body(&self.body, SpecVersion::V2_2)?;
            let config = lower::to_spec2(self.body)?;
            rules::spec2::check(&config, to.number())?;
            return Ok(Lowered(serde_json::to_value(config)?));
        }
        rules::check(&self.body, to.number())?;
        self.body.ignition.version = to.into();
        Ok(Lowered(fit_body(&self.body, to)?))
    }
}

/// A config in the spec that it was lowered to, to be serialized.
///
/// What says no more than its absence is left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Lowered(Value);

/// The body with what `to` knows, an error if that is not all it says.
fn fit_body(body: &Body, to: SpecVersion) -> Result<Value, Error> {
    let mut value = serde_json::to_value(body)?;
    fit(&mut value, &fields::spec3::CONFIG, to, &At::ROOT)?;
    Ok(value)
}

/// The spec in `ignition.version`: only an exact released version will do.
fn declared(config: &Value) -> Result<Spec, Error> {
    let member = |value: &Value, name: &str| {
        let members = value.as_object()?;
        let any_case = || {
            members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        members.get(name).or_else(any_case).cloned()
    };
    let version = member(config, "ignition").and_then(|ignition| member(&ignition, "version"));
    let found = version.as_ref().and_then(Value::as_str).unwrap_or_default();
    match Triple::read(found) {
        Some(Triple { major: 2, minor: minor @ 0..=2, patch: 0, plain: true }) => {
            Ok((2, minor as u8))
        }
        Some(Triple { major: 3, minor: minor @ 0..=6, patch: 0, plain: true }) => {
            Ok((3, minor as u8))
        }
        _ => Err(Error::UnknownVersion { found: found.to_owned() }),
    }
}
