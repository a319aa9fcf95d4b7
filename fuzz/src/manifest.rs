//! Manifests in JSON and YAML: what is read can be written, and is read the same again.

use ignition::Config;
use machine_config_server::source::manifest;
use model::objects::Object;

/// Judges one input.
pub fn run(data: &[u8]) {
    let _ = manifest::may_be_manifest(data);
    let objects = match manifest::parse(data) {
        Ok(objects) => objects,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    for object in &objects {
        let Object::MachineConfig(config) = object else { continue };
        let _ = config.ignition().map(|text| Config::parse(&text));
        let written = serde_json::to_vec(&**config).expect("JSON");
        let again = manifest::parse(&written).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&written));
        });
        let [Object::MachineConfig(again)] = &again[..] else { panic!("{again:?}") };
        assert_eq!(serde_json::to_vec(&**again).expect("JSON"), written);
    }
}
