//! Kernel arguments of a machine, by who sets them.

use serde::{Deserialize, Serialize};

/// Kernel arguments that a machine gets. machine-config-daemon sets those of the MachineConfig; a machine without it
/// ignores them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KernelArguments {
    /// Entries of `kernelArguments.shouldExist` of the Ignition config.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignition: Vec<String>,
    /// Entries of `spec.kernelArguments` of the MachineConfig.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machine_config_daemon: Vec<String>,
}

const IGNITION: &str = "Ignition";
const DAEMON: &str = "machine-config-daemon, if the machine has it";

impl KernelArguments {
    /// All of them.
    pub fn all(&self) -> Vec<&str> {
        self.ignition.iter().chain(&self.machine_config_daemon).map(String::as_str).collect()
    }

    /// The arguments with who sets them, for people; `None` without arguments.
    pub fn in_words(&self) -> Option<String> {
        let lists = [(&self.ignition, IGNITION), (&self.machine_config_daemon, DAEMON)];
        let said = lists.iter().filter(|(list, _)| !list.is_empty());
        let said = said.map(|(list, setter)| format!("{}, set by {setter}", list.join(" ")));
        Some(said.collect::<Vec<_>>().join("; ")).filter(|said| !said.is_empty())
    }

    /// The setter, or each with its arguments if there are two; `None` without arguments.
    pub fn set_by(&self) -> Option<String> {
        let Self { ignition, machine_config_daemon: daemon } = self;
        match (ignition.is_empty(), daemon.is_empty()) {
            (true, true) => None,
            (false, true) => Some(IGNITION.to_owned()),
            (true, false) => Some(DAEMON.to_owned()),
            (false, false) => {
                Some(format!("{IGNITION}: {}; {DAEMON}: {}", ignition.join(" "), daemon.join(" ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sets_arguments_is_named_with_them_if_there_are_two() {
        let arguments = |ignition: &[&str], daemon: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
            KernelArguments { ignition: owned(ignition), machine_config_daemon: owned(daemon) }
        };
        let daemon = "machine-config-daemon, if the machine has it";
        for (arguments, set_by, in_words) in [
            (arguments(&[], &[]), None, None),
            (
                arguments(&["a", "b c"], &[]),
                Some("Ignition".to_owned()),
                Some("a b c, set by Ignition".to_owned()),
            ),
            (arguments(&[], &["a"]), Some(daemon.to_owned()), Some(format!("a, set by {daemon}"))),
            (
                arguments(&["a", "b c"], &["d"]),
                Some(format!("Ignition: a b c; {daemon}: d")),
                Some(format!("a b c, set by Ignition; d, set by {daemon}")),
            ),
        ] {
            assert_eq!((arguments.set_by(), arguments.in_words()), (set_by, in_words));
        }
        assert_eq!(arguments(&["a"], &["b"]).all(), ["a", "b"]);
    }
}
