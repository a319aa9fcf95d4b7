//! Size of MachineConfigs, which the API server stores up to a bound.
//!
//! Source: etcd takes requests of at most 1.5 MiB (`--max-request-bytes`), and OpenShift does not raise it.

use model::objects::MachineConfig;

/// Maximum size of a stored MachineConfig, in bytes of its JSON. What the API server adds is a few hundred bytes.
pub const MAX_STORED_BYTES: usize = 1_572_864;
/// Part of the maximum from which on the size is reported, in percent.
const NEAR_PERCENT: usize = 80;

/// Size of a MachineConfig that an administrator must know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LargeConfig {
    /// The API server refuses it.
    #[error(
        "it has {0} bytes, and the API server stores at most {MAX_STORED_BYTES}: have machines fetch large files, by a \
         URL in contents.source"
    )]
    TooLarge(usize),
    /// It is stored, and one that is a fifth larger is not.
    #[error(
        "it has {0} of the {MAX_STORED_BYTES} bytes that the API server stores: have machines fetch large files, by a \
         URL in contents.source, before it grows"
    )]
    Near(usize),
}

impl LargeConfig {
    /// Judges a MachineConfig; `None` if its size is of no concern.
    pub fn of(config: &MachineConfig) -> Option<Self> {
        // An Ignition config takes nearly all of it, and most are far smaller.
        let config_bytes = config.ignition().map_or(0, |text| text.len());
        if config_bytes < MAX_STORED_BYTES / 2 {
            return None;
        }
        // Without a size, there is nothing to judge; what cannot be written is refused elsewhere.
        Self::of_bytes(serde_json::to_vec(config).ok()?.len())
    }

    fn of_bytes(bytes: usize) -> Option<Self> {
        if bytes > MAX_STORED_BYTES {
            return Some(Self::TooLarge(bytes));
        }
        (bytes * 100 >= MAX_STORED_BYTES * NEAR_PERCENT).then_some(Self::Near(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_reported_from_four_fifths_of_the_bound_on() {
        for (bytes, expected) in [
            (1_000_000, None),
            (1_258_291, None),
            (1_258_292, Some(LargeConfig::Near(1_258_292))),
            (1_572_864, Some(LargeConfig::Near(1_572_864))),
            (1_572_865, Some(LargeConfig::TooLarge(1_572_865))),
        ] {
            assert_eq!(LargeConfig::of_bytes(bytes), expected, "{bytes}");
        }
    }
}
