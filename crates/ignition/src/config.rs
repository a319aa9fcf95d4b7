//! A config in memory: parsed, valid, and ready to be edited and written in any spec.

use serde::Serialize;
use serde_json::Value;

use super::downgrade::downgrade;
use super::error::{Error, FieldPath};
use super::fields::{Shape, Spec};
use super::go_json;
use super::lift;
use super::lower;
use super::normalise::{normalise, type_of};
use super::rules;
use super::spec2;
use super::spec3::{self, Body};
use super::version::{SemanticVersion, SpecVersion};

/// A valid Ignition config, held in the newest spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Spec that it was written in.
    pub(super) declared: SpecVersion,
    pub(super) body: Body,
}

impl Config {
    /// A config that sets nothing.
    pub fn empty() -> Self {
        Self { declared: SpecVersion::NEWEST, body: Body::default() }
    }

    /// Reads a config of spec 2.0.0, 2.1.0, 2.2.0 or 3.0.0 to 3.6.0 and checks it by the rules of that spec.
    ///
    /// As Ignition does, it ignores fields that the declared spec does not have, and takes `null` for absence. A spec 2
    /// config is lifted to spec 3, which fails if spec 3 cannot express it.
    pub fn parse(json: &str) -> Result<Self, Error> {
        let (spec, value) = normalised(serde_json::from_str(json)?)?;
        let declared = SpecVersion::holding(spec);
        let mut body: Body = if declared == SpecVersion::V2_2 {
            let config = serde_json::from_value(value)?;
            rules::spec2::check(&config, spec)?;
            lift::to_spec3(config, spec)?
        } else {
            serde_json::from_value(value)?
        };
        rules::check(&body, spec.max(SpecVersion::V3_0.number()))?;
        lower::leave_out_advertisements(&mut body, declared);
        Ok(Self { declared, body })
    }

    /// The spec of a config, 2.2 also for 2.0 and 2.1, and its fields as they are written: valid, with only those that
    /// the spec has, under their exact names.
    ///
    /// It reads the bytes as Ignition does, which accepts some texts that other parsers refuse.
    pub fn fields(bytes: &[u8]) -> Result<(SpecVersion, Value), Error> {
        let (spec, value) = normalised(go_json::read(bytes)?)?;
        let declared = SpecVersion::holding(spec);
        if declared == SpecVersion::V2_2 {
            rules::spec2::check(&serde_json::from_value(value.clone())?, spec)?;
        } else {
            rules::check(&serde_json::from_value(value.clone())?, spec)?;
        }
        Ok((declared, value))
    }

    /// The spec that the config was written in, 2.2 also for 2.0 and 2.1.
    pub fn declared(&self) -> SpecVersion {
        self.declared
    }

    /// The config's contents in the newest spec.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Checks the edited config by the rules of its spec.
    pub fn check(&self) -> Result<(), Error> {
        rules::check(&self.body, self.declared.max(SpecVersion::V3_0).number())
    }

    /// The config as JSON in the spec that it was written in, 3.0 for spec 2, valid or not.
    pub fn write(&mut self) -> Result<String, Error> {
        self.body.ignition.version = self.declared.max(SpecVersion::V3_0).into();
        Ok(serde_json::to_string(&self.body)?)
    }

    /// Converts the edited config to the spec `to`.
    ///
    /// Fails if it is no longer valid (two files with one path, say), or if `to` cannot express it.
    pub fn lower(mut self, to: SpecVersion) -> Result<LoweredConfig, Error> {
        lower::settle_special_modes(&mut self.body, self.declared, to)?;
        lower::leave_out_advertisements(&mut self.body, to);
        if to == SpecVersion::V2_2 {
            // Every field of spec 2.2 is in 3.0, so a refusal by 3.0 names the field as spec 3 does.
            rules::check(&self.body, SpecVersion::V3_0.number())?;
            // The conversion drops what this refuses.
            downgrade_body(&self.body, SpecVersion::V2_2)?;
            // A config of spec 2 is written as it was.
            if self.declared >= SpecVersion::V3_0 {
                lower::set_default_modes(&mut self.body);
            }
            let config = lower::to_spec2(self.body)?;
            rules::spec2::check(&config, to.number())?;
            return Ok(LoweredConfig(serde_json::to_value(config)?));
        }
        rules::check(&self.body, to.number())?;
        self.body.ignition.version = to.into();
        Ok(LoweredConfig(downgrade_body(&self.body, to)?))
    }
}

/// A config in the spec that it was lowered to, for serialization. Fields that mean the same as their absence are
/// omitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct LoweredConfig(pub(super) Value);

/// The body without fields that `to` lacks; an error if one of them has an effect.
fn downgrade_body(body: &Body, to: SpecVersion) -> Result<Value, Error> {
    let mut value = serde_json::to_value(body)?;
    downgrade(&mut value, spec3::CONFIG, to, &FieldPath::ROOT)?;
    Ok(value)
}

/// The spec of a config, and the config in the shape of that spec.
fn normalised(config: Value) -> Result<(Spec, Value), Error> {
    let (spec, shape) = declared(&config)?;
    Ok((spec, normalise(config, shape, spec, &FieldPath::ROOT)?))
}

/// The spec in `ignition.version`, and the shape of its configs. It must be an exact released version.
pub(super) fn declared(config: &Value) -> Result<(Spec, &'static Shape), Error> {
    if !config.is_object() {
        return Err(Error::NoObject);
    }
    let version = member(config, "ignition").and_then(|ignition| member(ignition, "version"));
    let found = match version {
        None | Some(Value::Null) => return Err(Error::NoVersion),
        Some(Value::String(found)) if found.is_empty() => return Err(Error::NoVersion),
        Some(Value::String(found)) => found,
        Some(other) => {
            let path = "ignition.version".to_owned();
            return Err(Error::WrongType { path, wanted: "a string", found: type_of(other) });
        }
    };
    let released =
        SemanticVersion::read(found).filter(|version| version.plain && version.patch == 0);
    let spec = released.and_then(|version| {
        Some((u8::try_from(version.major).ok()?, u8::try_from(version.minor).ok()?))
    });
    match spec {
        Some(spec @ (2, 0..=2)) => Ok((spec, spec2::CONFIG)),
        Some(spec @ (3, 0..=6)) => Ok((spec, spec3::CONFIG)),
        _ => Err(Error::UnknownVersion { found: found.clone() }),
    }
}

/// A member of an object, by its name in any case; the exact one is preferred.
pub(super) fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let members = value.as_object()?;
    let any_case = || members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    members.get(name).or_else(|| any_case().map(|(_, value)| value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(config: &Value) -> Config {
        Config::parse(&config.to_string()).unwrap()
    }

    fn lowered(config: &Value, to: SpecVersion) -> Result<Value, String> {
        parsed(config).lower(to).map(|lowered| lowered.0).map_err(|error| error.to_string())
    }

    #[test]
    fn only_released_versions_are_read() {
        for version in ["2.0.0", "2.1.0", "2.2.0", "3.0.0", "3.3.0", "3.6.0", "03.1.0"] {
            parsed(&json!({"ignition": {"version": version}}));
        }
        for version in [
            "1.0.0",
            "2.3.0",
            "2.4.0",
            "3.7.0",
            "3.1.1",
            "3.4.0-experimental",
            "3.4.0+x",
            "3.4",
            "4.0.0",
        ] {
            let error =
                Config::parse(&json!({"ignition": {"version": version}}).to_string()).unwrap_err();
            assert!(
                matches!(error, Error::UnknownVersion { found } if found == version),
                "{version}"
            );
        }
        for (config, reason) in [
            ("null", "is not an Ignition config"),
            ("[]", "is not an Ignition config"),
            ("{}", "ignition.version: is missing; it says the Ignition spec, such as \"3.4.0\""),
            (r#"{"ignition": 1}"#, "ignition.version: is missing"),
            (r#"{"ignition": {"version": ""}}"#, "ignition.version: is missing"),
            (r#"{"ignition": {"version": null}}"#, "ignition.version: is missing"),
            (
                r#"{"ignition": {"version": 3.2}}"#,
                "ignition.version: a number with a fraction or exponent where the spec has a string",
            ),
        ] {
            let error = Config::parse(config).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{config}: {error}");
        }
        assert!(matches!(Config::parse(""), Err(Error::Json(_))));
        assert!(matches!(Config::parse("#cloud-config"), Err(Error::Json(_))));
    }

    #[test]
    fn an_empty_config_can_be_said_in_every_spec() {
        for to in SpecVersion::ALL {
            let lowered = Config::empty().lower(to).unwrap();
            assert_eq!(json!(lowered), json!({"ignition": {"version": to.as_str()}}));
        }
    }

    #[test]
    fn a_config_knows_which_spec_it_was_written_in() {
        assert_eq!(
            parsed(&json!({"ignition": {"version": "2.0.0"}})).declared(),
            SpecVersion::V2_2
        );
        assert_eq!(
            parsed(&json!({"ignition": {"version": "3.3.0"}})).declared(),
            SpecVersion::V3_3
        );
    }

    #[test]
    fn what_is_no_longer_valid_is_refused() {
        let mut config = parsed(&json!({"ignition": {"version": "3.1.0"}}));
        config.append_file("/a", b"1");
        config.append_file("/a", b"2");
        let error = config.lower(SpecVersion::V3_1).unwrap_err();
        assert_eq!(error.to_string(), "storage.files[1]: appears twice");
    }

    #[test]
    fn special_modes_only_reach_the_specs_that_mean_the_same_by_them() {
        let config = |version| {
            json!({
                "ignition": {"version": version},
                "storage": {"directories": [{"path": "/a", "mode": 0o1777}]},
            })
        };
        let mode = |version, to| {
            lowered(&config(version), to)
                .map(|config| config["storage"]["directories"][0]["mode"].clone())
        };
        let refused = |to, needs| {
            Err(format!(
                "storage.directories[0].mode: cannot be expressed in spec {to}, it needs {needs}"
            ))
        };
        assert_eq!(mode("3.4.0", SpecVersion::V3_4), Ok(json!(0o1777)));
        assert_eq!(mode("3.4.0", SpecVersion::V3_5), Ok(json!(0o1777)));
        assert_eq!(mode("3.4.0", SpecVersion::V3_6), Ok(json!(0o777)), "it had no effect");
        assert_eq!(mode("3.4.0", SpecVersion::V3_3), refused("3.3.0", "3.4.0"));
        assert_eq!(mode("3.6.0", SpecVersion::V3_6), Ok(json!(0o1777)));
        assert_eq!(mode("3.6.0", SpecVersion::V3_5), refused("3.5.0", "3.6.0"));
    }

    #[test]
    fn an_advertisement_is_left_out_below_3_5() {
        let tang = json!({"url": "http://t", "thumbprint": "x", "advertisement": "{}"});
        let config = json!({
            "ignition": {"version": "3.5.0"},
            "storage": {"luks": [{"name": "a", "device": "/dev/a", "clevis": {"tang": [tang]}}]},
        });
        let pointer = "/storage/luks/0/clevis/tang/0/advertisement";
        let has = |to| lowered(&config, to).unwrap().pointer(pointer).is_some();
        assert!(has(SpecVersion::V3_6) && has(SpecVersion::V3_5));
        assert!(!has(SpecVersion::V3_4) && !has(SpecVersion::V3_2));
    }

    #[test]
    fn what_an_older_spec_cannot_say_is_named() {
        for (to, section, message) in [
            (
                SpecVersion::V3_5,
                json!({"storage": {"luks": [{"name": "a", "device": "/a", "clevis": {"custom": {"pin": "x", "config": "{}"}}}]}}),
                "storage.luks[0].clevis.custom.pin: \"x\" needs spec 3.6",
            ),
            (
                SpecVersion::V3_3,
                json!({"storage": {"files": [{"path": "/a", "contents": {"source": "arn:aws:s3:::b/k"}}]}}),
                "storage.files[0].contents.source: the scheme arn needs spec 3.4",
            ),
            (
                SpecVersion::V3_2,
                json!({"storage": {"filesystems": [{"device": "/a", "format": "none"}]}}),
                "storage.filesystems[0].format: none needs spec 3.3",
            ),
            (
                SpecVersion::V3_1,
                json!({"storage": {"files": [{"path": "/a", "contents": {"source": "gs://b/k"}}]}}),
                "storage.files[0].contents.source: the scheme gs needs spec 3.2",
            ),
            (
                SpecVersion::V3_0,
                json!({"storage": {"files": [{"path": "/a", "contents": {"source": "http://h", "verification": {"hash": format!("sha256-{}", "0".repeat(64))}}}]}}),
                "storage.files[0].contents.verification.hash: sha256 needs spec 3.1",
            ),
            (
                SpecVersion::V3_0,
                json!({"ignition": {"version": "3.6.0", "proxy": {"httpProxy": "http://p"}}}),
                "ignition.proxy: cannot be expressed in spec 3.0.0, it needs 3.1.0",
            ),
            (
                SpecVersion::V2_2,
                json!({"storage": {"luks": [{"name": "a", "device": "/a"}]}}),
                "storage.luks: cannot be expressed in spec 2.2.0, it needs 3.2.0",
            ),
            (
                SpecVersion::V2_2,
                json!({"storage": {"disks": [{"device": "/a", "partitions": [{"number": 1, "sizeMiB": 1}]}]}}),
                "storage.disks[0].partitions[0].sizeMiB: cannot be expressed in spec 2.2.0, it needs 3.0.0",
            ),
            (
                SpecVersion::V2_2,
                json!({"storage": {"filesystems": [{"device": "/a"}]}}),
                "storage.filesystems[0].mount.format: \"\" is not a file system that Ignition makes",
            ),
        ] {
            let mut config = json!({"ignition": {"version": "3.6.0"}});
            config.as_object_mut().unwrap().extend(section.as_object().unwrap().clone());
            assert_eq!(lowered(&config, to), Err(message.to_owned()));
        }
    }
}
