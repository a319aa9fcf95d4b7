//! What cannot be written, watched or understood: it is told, and holds up nothing else.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use super::{
    ACCOUNT, ControlledCluster, ROTATE, USER_DATA_NAMESPACE, bundle, ca, serving, trusted,
    user_data, user_data_config,
};
use crate::support::cluster::NAMESPACE;
use crate::support::in_repository;
use crate::support::stopwatch::Stopwatch;
use crate::support::{wait_for, wait_until};

#[test]
fn a_secret_that_cannot_be_written_holds_up_no_other() {
    let site = ControlledCluster::new();
    let controller = site.start_settled(&[]);
    let source = json!({"source": format!("data:;base64,{}", BASE64.encode(site.newest()))});
    let text = user_data_config("3.1.0", &source).to_string();
    for name in ["rejected-user-data", "worker-user-data"] {
        site.make_user_data(name, text.as_bytes());
    }
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let policy = json!({
        "metadata": {"name": "reject"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                "resources": ["secrets"], "resourceNames": ["rejected-user-data"],
            }]},
            "validations": [{"expression": "false", "message": "not now"}],
        },
    });
    site.cluster.create(policies, &policy);
    let binding = json!({
        "metadata": {"name": "reject"},
        "spec": {"policyName": "reject", "validationActions": ["Deny"]},
    });
    site.cluster.create(bindings, &binding);
    let path = user_data("rejected-user-data");
    let mut tries = 0;
    wait_until("the policy to be in force", || {
        tries += 1;
        let change = json!({"metadata": {"labels": {"try": tries.to_string()}}});
        let answer = site.cluster.request("PATCH", &path, "application/merge-patch+json", &change);
        answer.status == 422
    });
    let before = site.bundle();
    site.cluster.patch(&ca(), &json!({"metadata": {"annotations": {ROTATE: "now"}}}));
    wait_until("a new bundle", || site.bundle() != before);
    let is_followed = |name: &str| trusted(&site.user_data(name)) == site.bundle().as_bytes();
    wait_until("the others to follow", || is_followed("worker-user-data"));
    wait_until("the refusal to be told", || controller.log().contains("not now"));
    let pair = || site.serial(&serving());
    let chain = || String::from_utf8(pair()).expect("text").matches("BEGIN").count();
    wait_until("the serving certificate, which does not wait either", || chain() == 2);
    assert!(!is_followed("rejected-user-data"));

    site.cluster.delete(&format!("{bindings}/reject"));
    wait_until("the last one to follow", || is_followed("rejected-user-data"));
    site.settled();
}

#[test]
fn a_forbidden_watch_is_reported_at_once_and_recovers() {
    let site = ControlledCluster::new();
    let bindings =
        "/apis/rbac.authorization.k8s.io/v1/namespaces/openshift-machine-api/rolebindings";
    site.cluster.delete(&format!("{bindings}/{ACCOUNT}"));
    wait_until("the right to be gone", || {
        !site.cluster.may(ACCOUNT, "list", "/secrets", USER_DATA_NAMESPACE)
    });
    let controller = site.start(&[]);
    wait_until("the controller to be active", || controller.is_active());
    let active = Stopwatch::start();
    // Other watches may have failures of their own, while the API server starts.
    let lines = |what: &str| -> Vec<String> {
        let object = "object=Secret openshift-machine-api/*";
        let log = controller.log();
        let own = log.lines().filter(|line| line.contains(what) && line.contains(object));
        own.map(str::to_owned).collect()
    };
    let reported = || lines("cannot watch the object, retrying");
    wait_until("the log to tell", || !reported().is_empty());
    wait_until("the metric", || controller.watch_failures() > 0);
    let named = "Secret openshift-machine-api/*: cannot be watched: secrets is forbidden";
    let readiness = wait_for("readiness to tell", || {
        let (status, lines) = controller.readiness();
        (status == 503 && lines.contains("certificates: ")).then_some(lines)
    });
    active.within(Duration::from_secs(5), "what is forbidden");
    assert!(readiness.lines().any(|line| line.starts_with(named)), "{readiness}");
    for wanted in ["ERROR", "object=Secret ", "forbidden"] {
        assert!(reported()[0].contains(wanted), "{wanted} in {:?}", reported());
    }

    // It is told once, however often it fails; and one that waits for its turn is ready.
    let standby = site.start(&[]);
    wait_until("another try", || controller.watch_failures() > 1);
    assert_eq!(reported().len(), 1, "{:?}", reported());
    let ready = (200, String::new());
    wait_until("the other one to be ready", || standby.readiness() == ready);
    assert!(!standby.is_active());

    site.cluster.apply(&["-k", in_repository("deploy/controller").to_str().expect("text")]);
    wait_until("it to heal", || controller.readiness() == ready);
    wait_until("the log to tell", || lines("watch works again").len() == 1);
    site.object(&user_data("worker-user-data-managed"));
}

#[test]
fn what_is_not_understood_is_reported_and_nothing_is_written_over_it() {
    let site = ControlledCluster::new();
    let map = json!({
        "metadata": {"name": "machine-config-server-ca"},
        "data": {"ca-bundel.crt": "a slip of a hand"},
    });
    site.cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map);
    let before = site.object(&bundle());
    let controller = site.start(&[]);
    let reason = format!(
        "certificates: ConfigMap {NAMESPACE}/machine-config-server-ca: has no key ca-bundle.crt\n"
    );
    wait_until("readiness to tell", || controller.readiness() == (503, reason.clone()));
    assert_eq!(site.object(&bundle()), before);
    assert!(site.cluster.get(&ca()).is_none(), "nothing else is made either");
    site.certs(&["check"]).refused(&["no key ca-bundle.crt"]);

    site.cluster.patch(&bundle(), &json!({"data": {"ca-bundel.crt": null, "ca-bundle.crt": ""}}));
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    wait_until("it to be ready", || controller.readiness().0 == 200);
}
