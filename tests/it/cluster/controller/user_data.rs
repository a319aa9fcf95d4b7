//! User data of every kind: what follows the bundle, and what is left alone.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{
    ControlledCluster, ROTATE, USER_DATA_NAMESPACE, ca, secrets, trusted, user_data,
    user_data_config, value,
};
use crate::support::stopwatch::{HURRY, Stopwatch};
use crate::support::wait_until;

/// An authority in each way that a config of Ignition may hold it.
fn sources(pem: &str) -> [(&'static str, Value); 3] {
    let plain =
        percent_encoding::percent_encode(pem.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
    let gzip = {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(pem.as_bytes()).expect("memory");
        BASE64.encode(encoder.finish().expect("memory"))
    };
    [
        ("plain", json!({"source": format!("data:,{plain}")})),
        ("base64", json!({"source": format!("data:;base64,{}", BASE64.encode(pem))})),
        ("gzip", json!({"source": format!("data:;base64,{gzip}"), "compression": "gzip"})),
    ]
}

/// Makes user data that follows the bundle, in every way and many of one; their names.
fn make_followed(site: &ControlledCluster) -> Vec<String> {
    let sources = sources(&site.newest());
    let mut followed = Vec::new();
    for (kind, source) in &sources {
        for version in ["2.2.0", "3.1.0", "3.4.0"] {
            // Spec 2 has no compression, so that no machine boots from it.
            if *kind == "gzip" && version == "2.2.0" {
                continue;
            }
            let name = format!("{kind}-{}-user-data", version.replace('.', "-"));
            let text = user_data_config(version, source).to_string();
            site.make_user_data(&name, text.as_bytes());
            followed.push(name);
        }
    }
    for number in 0..190 {
        let name = format!("many-{number}-user-data");
        site.make_user_data(&name, user_data_config("3.1.0", &sources[1].1).to_string().as_bytes());
        followed.push(name);
    }
    followed
}

/// The versions of all that there is beside machine sets, by name.
fn versions(site: &ControlledCluster) -> BTreeMap<String, String> {
    let list = site.cluster.get(&secrets(USER_DATA_NAMESPACE)).expect("a list");
    let items = list["items"].as_array().expect("items").iter();
    let field =
        |secret: &Value, key: &str| secret["metadata"][key].as_str().expect("a string").to_owned();
    items.map(|it| (field(it, "name"), field(it, "resourceVersion"))).collect()
}

#[test]
fn user_data_of_every_kind_follows_the_bundle_or_is_left_alone() {
    let site = ControlledCluster::new();
    let controller = site.start_settled(&[]);
    let followed = make_followed(&site);
    let alone: BTreeMap<&str, &[u8]> = [
        ("cloud-init-user-data", &b"#cloud-config\npackages: [x]\n"[..]),
        ("windows-user-data", b"<powershell>\nWrite-Host x\n</powershell>\n"),
        ("array-user-data", b"[1, 2]"),
        ("broken-user-data", b"{\"ignition\": "),
        ("no-authority-user-data", b"{\"ignition\": {\"version\": \"3.1.0\"}}"),
    ]
    .into();
    for (name, text) in &alone {
        site.make_user_data(name, text);
    }
    site.make_user_data("unrelated", b"{}");
    // A line for each reason names the Secrets.
    let named = |name: &str| {
        let log = controller.log();
        let lines = log.lines().filter(|line| line.contains("does not update user data"));
        lines.filter(|line| line.contains(name)).count()
    };
    wait_until("what is not updated to be told", || alone.keys().all(|name| named(name) > 0));
    site.settled();
    let before = versions(&site);

    let bundle_before = site.bundle();
    site.cluster.patch(&ca(), &json!({"metadata": {"annotations": {ROTATE: "now"}}}));
    wait_until("a new bundle", || site.bundle() != bundle_before);
    let changed = Stopwatch::start();
    let is_followed = || {
        let after = versions(&site);
        followed.iter().all(|name| after[name] != before[name])
    };
    wait_until("all to follow", is_followed);
    changed.within(HURRY * Duration::from_secs(2), format!("{} secrets", followed.len()));

    site.settled();
    let bundle = site.bundle();
    for name in &followed {
        let text = site.user_data(name);
        assert_eq!(trusted(&text), bundle.as_bytes(), "{name}");
        let config: Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(config["x-unknown"]["kept"], json!([1, 2, 3]), "{name}");
    }
    for name in alone.keys().chain([&"unrelated"]) {
        assert_eq!(versions(&site)[*name], before[*name], "{name} is not updated");
    }
    let reported: Vec<_> = alone.keys().map(|name| named(name)).collect();
    assert_eq!(reported, vec![1; alone.len()], "each is told once");
    let secret = site.object(&user_data(&followed[0]));
    assert_eq!(value(&secret, "other"), b"stays");
}
