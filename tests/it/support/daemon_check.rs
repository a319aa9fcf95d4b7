//! The comparison of a node's disk with its MachineConfig that machine-config-daemon makes after a boot, by the rules of
//! its `pkg/daemon/on_disk_validation.go`: it knows the MachineConfig alone, and finds a drift in what that has.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;

/// Files that its other parts keep, which are not compared.
const IGNORED: [&str; 3] = [
    "/etc/kubernetes/kubelet-ca.crt",
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    "/etc/mco/internal-registry-pull-secret.json",
];
/// Mode of files without one, and of units.
const DEFAULT_MODE: u64 = 0o644;

/// The first difference of a disk from a MachineConfig's Ignition config of spec 3.
pub(crate) fn drift(root: &Path, config: &Value) -> Option<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let files = list(&config["storage"]["files"]);
    let mut files = files.iter().filter(|file| !IGNORED.contains(&text(&file["path"])));
    let of_files = files.find_map(|file| file_drift(root, file));
    let units = list(&config["systemd"]["units"]);
    of_files.or_else(|| units.iter().find_map(|unit| unit_drift(root, unit)))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn file_drift(root: &Path, file: &Value) -> Option<String> {
    if file["append"].as_array().is_some_and(|parts| !parts.is_empty()) {
        return Some(format!("{}: append is not supported", file["path"]));
    }
    let bytes = ignition::data_url::decode(text(&file["contents"]["source"])).unwrap_or_default();
    let contents = if file["contents"]["compression"] == "gzip" {
        let mut unpacked = Vec::new();
        GzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).expect("gzip");
        unpacked
    } else {
        bytes
    };
    let mode = file["mode"].as_u64().unwrap_or(DEFAULT_MODE);
    differs(root, text(&file["path"]), &contents, mode)
}

fn unit_drift(root: &Path, unit: &Value) -> Option<String> {
    let path = format!("/etc/systemd/system/{}", text(&unit["name"]));
    for dropin in unit["dropins"].as_array().into_iter().flatten() {
        let path = format!("{path}.d/{}", text(&dropin["name"]));
        let contents = text(&dropin["contents"]);
        let is_absent = !root.join(&path[1..]).exists();
        if !(contents.is_empty() && is_absent) {
            let found = differs(root, &path, contents.as_bytes(), DEFAULT_MODE);
            if found.is_some() {
                return found;
            }
        }
    }
    if text(&unit["contents"]).is_empty() {
        return None;
    }
    let on_disk = root.join(&path[1..]);
    if unit["mask"] == true {
        let target = fs::read_link(&on_disk).ok();
        let is_masked = target.is_some_and(|target| target == Path::new("/dev/null"));
        return (!is_masked).then(|| format!("{path}: it is not masked"));
    }
    differs(root, &path, text(&unit["contents"]).as_bytes(), DEFAULT_MODE).or_else(|| {
        let expected = unit["enabled"].as_bool()?;
        let is_enabled = presets(root).contains(&format!("enable {}", text(&unit["name"])));
        (expected != is_enabled).then(|| format!("{path}: enabled is {is_enabled}"))
    })
}

/// What systemd makes of units at its first start.
fn presets(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("etc/systemd/system-preset/20-ignition.preset"));
    text.unwrap_or_default().lines().map(str::to_owned).collect()
}

fn differs(root: &Path, path: &str, contents: &[u8], mode: u64) -> Option<String> {
    let on_disk = root.join(&path[1..]);
    // A link is another kind of file, whatever it leads to.
    let found = match fs::symlink_metadata(&on_disk) {
        Ok(found) if found.is_file() => u64::from(found.permissions().mode() & 0o7777),
        Ok(_) => return Some(format!("{path}: it is no file")),
        Err(error) => return Some(format!("{path}: {error}")),
    };
    if found != mode {
        return Some(format!("{path}: mode {found:o}, expected {mode:o}"));
    }
    let is_same = fs::read(&on_disk).is_ok_and(|present| present == contents);
    (!is_same).then(|| format!("{path}: content mismatch"))
}
