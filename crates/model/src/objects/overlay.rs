//! The overlay of a machine: an Ignition config that is merged into its pool's.

use ignition::Config;
use ignition::spec3::{Body, Ignition, IgnitionConfig, Passwd, Security, Storage, Timeouts};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Maximum size of an overlay in bytes of JSON.
pub const MAX_OVERLAY_BYTES: usize = 256 << 10;

/// An Ignition config of any spec, valid on its own, kept as text: most overlays are rendered once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay(Box<str>);

impl Overlay {
    /// Checks a config, and keeps its text.
    ///
    /// # Errors
    /// It is invalid, too large, or sets something that a single machine cannot have. One line.
    pub fn new(text: String) -> Result<Self, String> {
        if text.len() > MAX_OVERLAY_BYTES {
            return Err(format!("more than {} KiB", MAX_OVERLAY_BYTES >> 10));
        }
        let config = Config::parse(&text).map_err(|error| error.to_string())?;
        if let Some(section) = foreign_section(config.body()) {
            return Err(format!(
                "{section}: an overlay can only have files, directories, links, units, kernel arguments and a proxy"
            ));
        }
        Ok(Self(text.into()))
    }

    /// The config's JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Overlay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let config = Value::deserialize(deserializer)?;
        Self::new(config.to_string()).map_err(D::Error::custom)
    }
}

/// A section that belongs to the pool: it is about disks and users, or has the machine fetch other configs.
fn foreign_section(body: &Body) -> Option<&'static str> {
    let Body { ignition, passwd, storage, .. } = body;
    let Ignition { config, security, timeouts, .. } = ignition;
    let Storage { disks, filesystems, luks, raid, .. } = storage;
    let sections = [
        ("ignition.config", *config == IgnitionConfig::default()),
        ("ignition.security", *security == Security::default()),
        ("ignition.timeouts", *timeouts == Timeouts::default()),
        ("passwd", *passwd == Passwd::default()),
        ("storage.disks", disks.is_empty()),
        ("storage.filesystems", filesystems.is_empty()),
        ("storage.luks", luks.is_empty()),
        ("storage.raid", raid.is_empty()),
    ];
    sections.into_iter().find(|(_, is_absent)| !is_absent).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use ignition::SpecVersion;
    use serde_json::json;

    use super::*;

    fn refused(config: &Value) -> String {
        Overlay::new(config.to_string()).unwrap_err()
    }

    #[test]
    fn an_overlay_is_a_valid_config_of_any_spec() {
        for version in SpecVersion::ALL {
            Overlay::new(json!({"ignition": {"version": version.as_str()}}).to_string()).unwrap();
        }
        let with = |more: Value| {
            let mut config = json!({"ignition": {"version": "3.4.0"}});
            for (name, value) in more.as_object().unwrap() {
                config[name] = value.clone();
            }
            config
        };
        for (config, reason) in [
            (json!({}), "ignition.version"),
            (json!({"ignition": {"version": "3.9.0"}}), "3.9.0"),
            (with(json!({"storage": {"files": [{"path": "relative"}]}})), "storage.files[0].path"),
            (
                with(json!({"passwd": {"users": [{"name": "core"}]}})),
                "passwd: an overlay can only have files",
            ),
            (with(json!({"storage": {"disks": [{"device": "/dev/vda"}]}})), "storage.disks: "),
            (
                json!({"ignition": {"version": "3.4.0", "config": {"merge": [{"source": "https://a"}]}}}),
                "ignition.config: ",
            ),
        ] {
            let error = refused(&config);
            assert!(error.contains(reason), "{error} is not about {reason}");
            assert_eq!(error.lines().count(), 1);
        }
        let large = "x".repeat(MAX_OVERLAY_BYTES);
        let large = json!([{"path": "/a", "contents": {"source": format!("data:,{large}")}}]);
        assert_eq!(refused(&with(json!({"storage": {"files": large}}))), "more than 256 KiB");
    }
}
