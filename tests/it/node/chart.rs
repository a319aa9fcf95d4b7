//! The chart takes over what kustomize made, is upgraded and rolled back, and no machine notices.

use serde_json::{Value, json};

use super::boots::gone;
use super::site::NodeWithFolders;
use super::storm::Storm;

const RELEASE: &str = "mcs";

fn values(annotations: &Value) -> Value {
    json!({
        "server": {
            "apiServerUrl": "https://api-int.prod.example.com:6443", "podAnnotations": annotations,
        },
    })
}

#[test]
fn no_boot_fails_while_the_chart_takes_over_is_upgraded_and_rolled_back() {
    let site = NodeWithFolders::kubernetes();
    let through = |what: &str, change: &dyn Fn()| {
        let before = site.pods();
        let storm = Storm::start(&site);
        change();
        site.rolled_out("deployment/machine-config-server");
        let after = site.pods();
        let replaced: Vec<_> = before.into_iter().filter(|pod| !after.contains(pod)).collect();
        gone(&site, &replaced);
        storm.end(what);
        replaced.len()
    };
    through("the take-over", &|| {
        let flags = ["install", RELEASE, "--take-ownership", "--force-conflicts"];
        site.helm(&flags, &values(&json!({})));
    });
    let replaced = through("an upgrade", &|| {
        site.helm(&["upgrade", RELEASE], &values(&json!({"example.com/round": "2"})));
    });
    assert_eq!(replaced, 2, "nothing was rolled out");
    let replaced = through("the way back", &|| {
        let helm = std::env::var("HELM").expect("HELM: run tests/run");
        site.node.run(&[&helm, "rollback", RELEASE, "1", "--namespace", "default"]);
    });
    assert_eq!(replaced, 2, "nothing was rolled back");
}
