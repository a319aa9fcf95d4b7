//! The Ignition specs that can be served, and the parser of versions.
//!
//! Two places carry versions: `ignition.version` in a config and the `version` parameter of an Accept header. Both are
//! semantic versions and both are read by [`SemanticVersion::read`]; each caller decides which of them it accepts.
//!
//! The crate semver is not used because it refuses leading zeros, which Ignition's library accepts.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

/// An Ignition spec that a config can be served in.
///
/// The order is the order of publication. Each spec after 3.0 can express all that its predecessor can.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::IntoStaticStr,
)]
pub enum SpecVersion {
    /// 2.2.0, read by Ignition 0.x.
    #[strum(serialize = "2.2.0")]
    V2_2,
    /// 3.0.0, the first without file systems by name.
    #[strum(serialize = "3.0.0")]
    V3_0,
    /// 3.1.0: HTTP headers, proxies, mount options.
    #[strum(serialize = "3.1.0")]
    V3_1,
    /// 3.2.0: LUKS, resized partitions, removed users.
    #[strum(serialize = "3.2.0")]
    V3_2,
    /// 3.3.0: kernel arguments, the format `none`.
    #[strum(serialize = "3.3.0")]
    V3_3,
    /// 3.4.0: Tang advertisements, LUKS discards, S3 ARNs.
    #[strum(serialize = "3.4.0")]
    V3_4,
    /// 3.5.0: LUKS keys in IBM crypto cards.
    #[strum(serialize = "3.5.0")]
    V3_5,
    /// 3.6.0: working setuid, setgid and sticky bits, any Clevis pin.
    #[strum(serialize = "3.6.0")]
    V3_6,
}

impl SpecVersion {
    /// Every spec, oldest first.
    pub const ALL: [Self; 8] = [
        Self::V2_2,
        Self::V3_0,
        Self::V3_1,
        Self::V3_2,
        Self::V3_3,
        Self::V3_4,
        Self::V3_5,
        Self::V3_6,
    ];

    /// The spec that configs are held and edited in.
    pub const NEWEST: Self = Self::V3_6;

    /// The version as in `ignition.version`, such as `3.4.0`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Parses a spec as people write it, `3.4` or `3.4.0`.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|spec| {
            let name = spec.as_str();
            name == text || name.strip_suffix(".0") == Some(text)
        })
    }

    /// The position in [`Self::ALL`], for arrays with one slot a spec.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns `true` if every Ignition that requests this spec accepts data URLs with `compression`.
    ///
    /// All specs have the field, but Ignition refused it with a data URL before its release 2.3.0, the first that reads
    /// 3.1.
    pub fn has_compressed_data(self) -> bool {
        self >= Self::V3_1
    }

    /// Major and minor version.
    pub(super) const fn number(self) -> (u8, u8) {
        match self {
            Self::V2_2 => (2, 2),
            spec_3 => (3, spec_3 as u8 - Self::V3_0 as u8),
        }
    }

    /// The oldest spec that can express all of the spec `number`: 2.2 for 2.0.
    pub(super) fn holding(number: (u8, u8)) -> Self {
        Self::ALL.into_iter().find(|spec| spec.number() >= number).unwrap_or(Self::NEWEST)
    }

    /// The spec 3.`minor`, or the newest one if that is later.
    pub(super) fn spec_3(minor: u64) -> Self {
        let minor = usize::try_from(minor).unwrap_or(usize::MAX);
        Self::ALL[1..].get(minor).copied().unwrap_or(Self::NEWEST)
    }
}

/// Serializes as in `ignition.version`.
impl Serialize for SpecVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SpecVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let found = Self::ALL.into_iter().find(|version| version.as_str() == text);
        found.ok_or_else(|| D::Error::custom("no Ignition spec that is served"))
    }
}

/// The three numbers of a semantic version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SemanticVersion {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) patch: u64,
    /// True if neither a pre-release nor build metadata follows the numbers.
    pub(super) plain: bool,
}

impl SemanticVersion {
    /// Parses `MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]`, with leading zeros allowed.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (rest, build) = text.split_once('+').unwrap_or((text, ""));
        let (numbers, pre_release) = rest.split_once('-').unwrap_or((rest, ""));
        let identifier =
            |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-');
        if !identifier(build) || !identifier(pre_release) {
            return None;
        }
        let mut parts = numbers.splitn(3, '.').map(number);
        Some(Self {
            major: parts.next()??,
            minor: parts.next()??,
            patch: parts.next()??,
            plain: build.is_empty() && pre_release.is_empty(),
        })
    }
}

/// Parses digits; `u64::from_str` would accept a sign too.
fn number(digits: &str) -> Option<u64> {
    let value = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    i64::try_from(value).is_ok().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_knows_its_place_and_its_text() {
        for (position, version) in SpecVersion::ALL.into_iter().enumerate() {
            assert_eq!(version.index(), position);
            let triple = SemanticVersion::read(version.as_str()).unwrap();
            assert!(triple.plain && triple.patch == 0);
            if triple.major == 3 {
                assert_eq!(SpecVersion::spec_3(triple.minor), version);
            }
        }
        assert_eq!(SpecVersion::read("3.4"), Some(SpecVersion::V3_4));
        assert_eq!(SpecVersion::read("2.2.0"), Some(SpecVersion::V2_2));
        assert_eq!(SpecVersion::read("3"), None);
        assert_eq!(SpecVersion::spec_3(7), SpecVersion::NEWEST);
        assert_eq!(SpecVersion::holding((2, 0)), SpecVersion::V2_2);
        assert_eq!(SpecVersion::holding((3, 4)), SpecVersion::V3_4);
        assert!(SpecVersion::ALL.is_sorted());
    }

    #[test]
    fn a_version_has_three_numbers_and_perhaps_a_suffix() {
        let read = |text| SemanticVersion::read(text).map(|t| (t.major, t.minor, t.patch, t.plain));
        assert_eq!(read("03.4.0"), Some((3, 4, 0, true)));
        assert_eq!(read("3.4.0-experimental"), Some((3, 4, 0, false)));
        assert_eq!(read("3.4.0-a-b+c.d"), Some((3, 4, 0, false)));
        for bad in [
            "",
            "3",
            "3.4",
            "3.4.",
            "3.4.0.0",
            "v3.4.0",
            "-1.0.0",
            "+3.4.0",
            "3.4.0-_",
            " 3.4.0",
            "3.4.99999999999999999999",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
