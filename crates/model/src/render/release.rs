//! Pools whose configs a cluster's release cannot take.
//!
//! Source: OCPBUGS-90256. The machine config operator of OpenShift 4.22 and earlier does not parse spec 3.6.

use ignition::{Config, SpecVersion};

use super::select::select;
use crate::inputs::{Inputs, Problem};

/// First release, major and minor, whose operator takes spec 3.6.
const TAKES_SPEC_3_6: (u32, u32) = (4, 23);

/// A warning for each pool with a config of spec 3.6, if the ControllerConfig names a release that cannot take it.
pub fn too_new_for_release(inputs: &Inputs) -> Vec<Problem> {
    let release = inputs.shared.controller_config.as_ref().and_then(|it| it.metadata.release());
    let Some(release) = release.filter(|release| is_before(release, TAKES_SPEC_3_6)) else {
        return Vec::new();
    };
    let warning = |pool: &String| {
        let selected = select(inputs, pool).ok()?;
        let config = Config::parse(&selected.machine_config.ignition()?).ok()?;
        let declared = config.declared();
        let reason = format!(
            "MachineConfig {} has spec {declared}, which the machine config operator of OpenShift {release} cannot read; \
             4.23 and later can. Write it in spec 3.5.0",
            selected.configuration
        );
        (declared >= SpecVersion::V3_6).then(|| Problem {
            place: format!("MachineConfigPool {pool}"),
            reason,
            outline: None,
            is_partial: true,
        })
    };
    inputs.pools.keys().filter_map(warning).collect()
}

/// Returns true if `release`, like 4.22.3, is one before `first`. Other texts are no such release.
fn is_before(release: &str, first: (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let release = numbers.next().flatten().zip(numbers.next().flatten());
    release.is_some_and(|release| release < first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_before_are_known_by_their_numbers() {
        for (release, expected) in [
            ("4.22.0", true),
            ("4.22.11-x86_64", true),
            ("4.9.50", true),
            ("3.11", true),
            ("4.23.0-ec.1", false),
            ("4.100.0", false),
            ("5.0.0", false),
            ("", false),
            ("nightly", false),
        ] {
            assert_eq!(is_before(release, TAKES_SPEC_3_6), expected, "{release:?}");
        }
    }
}
