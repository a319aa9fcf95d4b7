//! Rules about the machine that boots, regardless of its token: the oldest Ignition of a pool, the port without TLS, and
//! whether it needs approval.
//!
//! A machine that breaks a rule is held with 503, so that it boots as soon as an administrator has changed the rule.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::approval::APPROVAL_ANNOTATION;
use super::proof::Refusal;
use crate::ignition_version::IgnitionVersion;
use crate::objects::MachineConfigPool;

/// Annotation of a pool with the oldest Ignition that its machines should have; `off` for any.
pub const MIN_IGNITION_ANNOTATION: &str = "machine-config-server.io/min-ignition-version";
/// Annotation of a pool that is `closed` on the port without TLS, or `open`.
pub const PLAIN_PORT_ANNOTATION: &str = "machine-config-server.io/plain-port";

/// Oldest Ignition that machines should have, and what happens to those with an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinIgnition {
    /// Oldest version.
    pub version: IgnitionVersion,
    /// True if machines with an older one get no config.
    pub is_held: bool,
}

impl FromStr for MinIgnition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (version, action) = text.split_once(':').unwrap_or((text, "warn"));
        let is_held = match action {
            "warn" => false,
            "hold" => true,
            _ => return Err(format!("{action:?}: expected warn or hold")),
        };
        Ok(Self { version: version.parse()?, is_held })
    }
}

impl fmt::Display for MinIgnition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = if self.is_held { "hold" } else { "warn" };
        write!(f, "{}:{action}", self.version)
    }
}

/// Rule that a machine breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenRule {
    /// Its Ignition is older than the pool's oldest.
    OldIgnition {
        /// True if it gets no config.
        is_held: bool,
    },
    /// It came by the port without TLS, on which the pool is closed.
    PlainPort,
}

impl BrokenRule {
    /// The refusal, unless the rule only warns.
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Self::OldIgnition { is_held: true } => Some(Refusal::OldIgnition),
            Self::OldIgnition { is_held: false } => None,
            Self::PlainPort => Some(Refusal::PoolPlainPort),
        }
    }
}

/// Rules of all pools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootRules {
    default: Option<MinIgnition>,
    pools: BTreeMap<String, PoolRules>,
}

/// Rules of one pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolRules {
    /// Oldest Ignition that its machines should have.
    pub min_ignition: Option<MinIgnition>,
    /// True if it is closed on the port without TLS.
    pub is_plain_port_closed: bool,
    /// True if its machines need approval.
    pub needs_approval: bool,
}

impl BootRules {
    /// Reads the pools' annotations, with `default` as the oldest Ignition of pools without one. Returns a line for each
    /// annotation that is not understood.
    ///
    /// Such an annotation changes no pool's oldest Ignition from `before`, closes the port without TLS, and requires
    /// approval.
    pub fn read(
        pools: &BTreeMap<String, Arc<MachineConfigPool>>,
        default: Option<MinIgnition>,
        before: &Self,
    ) -> (Self, Vec<String>) {
        let (mut rules, mut faults) = (Self { default, pools: BTreeMap::new() }, Vec::new());
        for (name, pool) in pools {
            let mut fault = |annotation, error: String| {
                faults.push(format!("pool {name}: {annotation}: {error}"));
            };
            let min_ignition = match pool.annotation(MIN_IGNITION_ANNOTATION) {
                None => default,
                Some("off") => None,
                Some(text) => match text.parse() {
                    Ok(min_ignition) => Some(min_ignition),
                    Err(error) => {
                        fault(MIN_IGNITION_ANNOTATION, error);
                        before.pools.get(name).map_or(default, |before| before.min_ignition)
                    }
                },
            };
            let mut is_strict = |annotation, value: Option<&str>, [off, on]: [&str; 2]| match value
            {
                None => false,
                Some(value) if value == off || value == on => value == on,
                Some(value) => {
                    fault(annotation, format!("{value:?}: expected {off} or {on}"));
                    true
                }
            };
            let value = pool.annotation(PLAIN_PORT_ANNOTATION);
            let is_plain_port_closed = is_strict(PLAIN_PORT_ANNOTATION, value, ["open", "closed"]);
            let value = pool.annotation_or_empty(APPROVAL_ANNOTATION);
            let needs_approval = is_strict(APPROVAL_ANNOTATION, value, ["off", "required"]);
            let own = PoolRules { min_ignition, is_plain_port_closed, needs_approval };
            rules.pools.insert(name.clone(), own);
        }
        (rules, faults)
    }

    /// Rules of a pool.
    pub fn of(&self, pool: &str) -> PoolRules {
        let general = PoolRules { min_ignition: self.default, ..PoolRules::default() };
        self.pools.get(pool).copied().unwrap_or(general)
    }

    /// True if machines of any pool need approval.
    pub fn any_needs_approval(&self) -> bool {
        self.pools.values().any(|pool| pool.needs_approval)
    }
}

impl PoolRules {
    /// Rule that a request breaks. Only Ignition is judged by its version, because people use other programs.
    pub(super) fn broken_by(self, is_private: bool, user_agent: &str) -> Option<BrokenRule> {
        if self.is_plain_port_closed && !is_private {
            return Some(BrokenRule::PlainPort);
        }
        let min = self.min_ignition?;
        let version = IgnitionVersion::of_user_agent(user_agent)?;
        (version < min.version).then_some(BrokenRule::OldIgnition { is_held: min.is_held })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pools(annotations: &[(&str, &str)]) -> BTreeMap<String, Arc<MachineConfigPool>> {
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let pool = json!({"metadata": {"name": "worker", "annotations": annotations}});
        let pool = serde_json::from_value(pool).unwrap();
        [("worker".to_owned(), Arc::new(pool))].into()
    }

    fn broken(rules: &BootRules, user_agent: &str, is_private: bool) -> Option<BrokenRule> {
        rules.of("worker").broken_by(is_private, user_agent)
    }

    #[test]
    fn an_old_ignition_is_held_or_a_warning_and_other_programs_have_none() {
        let flag = Some("2.14.0".parse().unwrap());
        for (annotation, held) in
            [(None, Some(false)), (Some("2.14.0:hold"), Some(true)), (Some("off"), None)]
        {
            let annotations: Vec<_> =
                annotation.into_iter().map(|text| (MIN_IGNITION_ANNOTATION, text)).collect();
            let (rules, faults) =
                BootRules::read(&pools(&annotations), flag, &BootRules::default());
            assert!(faults.is_empty(), "{faults:?}");
            let expected = held.map(|is_held| BrokenRule::OldIgnition { is_held });
            assert_eq!(broken(&rules, "Ignition/2.9.0", true), expected, "{annotation:?}");
            for fine in ["Ignition/2.14.0", "Ignition/2.20.1", "curl/7.0.0", ""] {
                assert_eq!(broken(&rules, fine, true), None, "{fine}");
            }
        }
    }

    #[test]
    fn a_pool_is_closed_on_the_port_without_tls_alone() {
        let (rules, _) = BootRules::read(
            &pools(&[(PLAIN_PORT_ANNOTATION, "closed")]),
            None,
            &BootRules::default(),
        );
        assert_eq!(broken(&rules, "Ignition/2.14.0", false), Some(BrokenRule::PlainPort));
        assert_eq!(broken(&rules, "Ignition/2.14.0", true), None);
    }

    #[test]
    fn machines_of_a_pool_need_approval_if_it_says_so() {
        for (value, is_needed) in [("required", true), ("off", false), ("", true)] {
            let pools = pools(&[(APPROVAL_ANNOTATION, value)]);
            let (rules, faults) = BootRules::read(&pools, None, &BootRules::default());
            assert_eq!(faults.len(), usize::from(value.is_empty()));
            assert_eq!(broken(&rules, "Ignition/2.14.0", true), None);
            assert_eq!(rules.of("worker").needs_approval, is_needed, "{value:?}");
            assert_eq!(rules.any_needs_approval(), is_needed);
            assert!(!rules.of("infra").needs_approval);
        }
    }

    #[test]
    fn what_is_not_understood_is_reported_keeps_the_version_and_is_strict_otherwise() {
        let typo = [
            (MIN_IGNITION_ANNOTATION, "2.14"),
            (PLAIN_PORT_ANNOTATION, "close"),
            (APPROVAL_ANNOTATION, "Required"),
        ];
        let (before, _) = BootRules::read(
            &pools(&[(MIN_IGNITION_ANNOTATION, "2.10.0:hold")]),
            None,
            &BootRules::default(),
        );
        let (rules, faults) = BootRules::read(&pools(&typo), None, &before);
        let (rules, before) = (rules.of("worker"), before.of("worker"));
        assert_eq!(rules.min_ignition, before.min_ignition);
        assert!(rules.is_plain_port_closed && rules.needs_approval);
        assert_eq!(
            faults,
            [
                "pool worker: machine-config-server.io/min-ignition-version: \"2.14\": expected \
                 MAJOR.MINOR.PATCH, such as 2.14.0",
                "pool worker: machine-config-server.io/plain-port: \"close\": expected open or closed",
                "pool worker: machine-config-server.io/approval: \"Required\": expected off or required",
            ]
        );
    }
}
