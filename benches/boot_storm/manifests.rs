//! The cluster that is served: one pool whose config comes to some 440 KB.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

/// A real cluster's MachineConfig; measured where it lies beside the crate, else one like it is made.
const REAL_MACHINE_CONFIG: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/conformance/rendered/rendered-master-aws.yaml");
const MACHINE_CONFIG: &str = "rendered-master-aws";

/// What comes to some 440 KB.
pub(crate) const FILES: usize = 40;
pub(crate) const LINES_A_FILE: usize = 46;

/// What a data URL leaves as it is (RFC 3986, unreserved characters).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Writes the pool, its MachineConfig and the ControllerConfig as manifests into `directory`.
pub(crate) fn write(directory: &Path) -> Result<()> {
    fs::create_dir(directory)?;
    let machine_config = directory.join("machine-config.yaml");
    if Path::new(REAL_MACHINE_CONFIG).exists() {
        fs::copy(REAL_MACHINE_CONFIG, machine_config).context(REAL_MACHINE_CONFIG)?;
    } else {
        let made = made_machine_config(MACHINE_CONFIG, FILES, LINES_A_FILE);
        fs::write(machine_config, made.to_string())?;
    }
    fs::write(directory.join("pool.yaml"), pool().to_string())?;
    fs::write(directory.join("controller-config.yaml"), controller_config().to_string())?;
    Ok(())
}

fn pool() -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "master"},
        "spec": {"configuration": {"name": MACHINE_CONFIG}},
        "status": {
            "configuration": {"name": MACHINE_CONFIG},
            "machineCount": 3,
            "updatedMachineCount": 3,
        },
    })
}

fn controller_config() -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller"},
        "spec": {"clusterDNSIP": "10.3.0.10"},
    })
}

/// A MachineConfig of so many files, each of some 240 bytes a line.
pub(crate) fn made_machine_config(name: &str, files: usize, lines: usize) -> Value {
    let files: Vec<Value> = (0..files).map(|index| file(index, lines)).collect();
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {
            "osImageURL": "quay.io/example/os@sha256:".to_owned() + &"0".repeat(64),
            "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}},
        },
    })
}

/// A script, because scripts and unit files are what a real config consists of: every sixth
/// character needs an escape, which is what the size on the wire depends on.
fn file(index: usize, lines: usize) -> Value {
    let mut script = String::from("#!/bin/bash\nset -euo pipefail\n");
    for line in 0..lines {
        // Writing to a String can't fail.
        let _ = writeln!(script, "if [[ -f /etc/sysconfig/unit-{index}-{line} ]]; then exit 0; fi");
    }
    json!({
        "path": format!("/usr/local/bin/script-{index}.sh"),
        "mode": 0o755,
        "overwrite": true,
        "contents": {"source": format!("data:,{}", utf8_percent_encode(&script, ENCODED))},
    })
}
