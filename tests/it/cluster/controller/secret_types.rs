//! The component that keeps the controller's account to the types and names of secrets that it writes.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{ACCOUNT, ControlledCluster, USER_DATA_NAMESPACE, secrets};
use crate::support::cluster::NAMESPACE;
use crate::support::{wait_for, wait_until};

const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// A secret that the API server would take from an administrator. One of `ACCOUNT_TOKEN` is filled with the
/// token of the account that it names.
fn secret(name: &str, namespace: &str, type_: &str) -> Value {
    let data = match type_ {
        "kubernetes.io/tls" => json!({"tls.crt": "", "tls.key": ""}),
        "kubernetes.io/dockerconfigjson" => {
            json!({".dockerconfigjson": BASE64.encode(r#"{"auths":{}}"#)})
        }
        _ => json!({}),
    };
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": type_, "data": data,
        "metadata": {
            "name": name, "namespace": namespace,
            "annotations": {"kubernetes.io/service-account.name": ACCOUNT},
        },
    })
}

#[test]
fn the_controllers_account_cannot_obtain_a_service_accounts_token() {
    let site = ControlledCluster::new();
    let by = site.cluster.kubeconfig_of(ACCOUNT, NAMESPACE, site.cluster.address());
    let create = |name: &str, namespace: &str, type_: &str| {
        site.cluster.kubectl_by(&by, &["create", "-f", "-"], &secret(name, namespace, type_))
    };
    // Without the component its rights admit it: that is what it is for.
    create("before", NAMESPACE, ACCOUNT_TOKEN).expect("a right to create");
    site.cluster.apply_overlay("deploy/controller", &["deploy/components/secret-types"]);
    let mut number = 0;
    let said = wait_for("the policy to be in force", || {
        number += 1;
        create(&format!("early-{number}"), NAMESPACE, ACCOUNT_TOKEN).err()
    });
    let words = "makes secrets of types Opaque and kubernetes.io/tls alone, and none of type \
                 kubernetes.io/service-account-token";
    assert!(said.contains("Forbidden") && said.contains(words), "{said}");

    the_account_makes_two_types_alone(&site, &create);

    // One that an administrator has made is not made another account's.
    let name = "by-controller-service-account-token-user-data";
    let mut other = secret(name, USER_DATA_NAMESPACE, ACCOUNT_TOKEN);
    other["metadata"]["annotations"]["kubernetes.io/service-account.name"] = json!("other");
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let said = site.cluster.kubectl_by(&by, &apply, &other).expect_err("a refusal");
    assert!(said.contains(words), "{said}");

    the_account_writes_only_its_names(&site, &by);
    its_own_work_continues(&site);
}

/// `create` does it as the account: a name, a namespace, a type.
fn the_account_makes_two_types_alone(
    site: &ControlledCluster,
    create: &dyn Fn(&str, &str, &str) -> Result<String, String>,
) {
    for namespace in [NAMESPACE, USER_DATA_NAMESPACE] {
        for (type_, is_admitted) in [
            (ACCOUNT_TOKEN, false),
            ("kubernetes.io/dockerconfigjson", false),
            ("example.com/own", false),
            ("kubernetes.io/tls", true),
            ("Opaque", true),
        ] {
            let kind = type_.rsplit('/').next().expect("a part").to_lowercase();
            let name = if namespace == NAMESPACE {
                "internal-release-image-tls".to_owned()
            } else {
                format!("by-controller-{kind}-user-data")
            };
            let answer = create(&name, namespace, type_);
            assert_eq!(answer.is_ok(), is_admitted, "{namespace} {type_}: {answer:?}");
            // Who may do everything may do this too.
            if !is_admitted {
                site.cluster.create(&secrets(namespace), &secret(&name, namespace, type_));
            }
            if namespace == NAMESPACE {
                site.cluster.delete(&format!("{}/{name}", secrets(namespace)));
            }
        }
    }
}

/// All that the controller makes where there is nothing, and what it changes later.
fn its_own_work_continues(site: &ControlledCluster) {
    let _controller = site.start_settled(&["--access", "audit"]);
    for name in ["machine-config-server-access", "machine-config-server-tokens"] {
        let secret = site.object(&format!("{}/{name}", secrets(NAMESPACE)));
        assert_eq!(secret["type"], "Opaque");
    }
    wait_until("user data with a token", || {
        let text = String::from_utf8(site.user_data("worker-user-data-managed")).expect("text");
        text.contains("Bearer")
    });
    site.rotate("again");
}

/// Cloud credentials are Opaque secrets beside the user data, and the account's role lets it patch all of them.
fn the_account_writes_only_its_names(site: &ControlledCluster, by: &Path) {
    let credentials = "aws-cloud-credentials";
    site.cluster
        .create(&secrets(USER_DATA_NAMESPACE), &secret(credentials, USER_DATA_NAMESPACE, "Opaque"));
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let create = ["create", "-f", "-"];
    for (arguments, namespace, name, is_admitted) in [
        (&apply[..], USER_DATA_NAMESPACE, credentials, false),
        (&apply, USER_DATA_NAMESPACE, "worker-user-data-managed-token", false),
        (&apply, USER_DATA_NAMESPACE, "user-data", false),
        (&apply, USER_DATA_NAMESPACE, "machine-config-server-tls", false),
        (&apply, USER_DATA_NAMESPACE, "new-user-data", true),
        (&apply, USER_DATA_NAMESPACE, "new-user-data-managed", true),
        (&create, NAMESPACE, "pull-secret", false),
        (&create, NAMESPACE, "worker-user-data", false),
        (&create, NAMESPACE, "internal-release-image-tls", true),
    ] {
        let mut secret = secret(name, namespace, "Opaque");
        secret["metadata"]["labels"] = json!({"written-by": "the-controllers-account"});
        let answer = site.cluster.kubectl_by(by, arguments, &secret);
        assert_eq!(answer.is_ok(), is_admitted, "{namespace}/{name}: {answer:?}");
        if let Err(said) = answer {
            let words = format!("and not secret {namespace}/{name}");
            assert!(said.contains(&words), "{namespace}/{name}: {said}");
        }
    }
    let kept = site.object(&format!("{}/{credentials}", secrets(USER_DATA_NAMESPACE)));
    assert!(kept["metadata"]["labels"].is_null(), "{kept}");
    site.cluster.delete(&format!("{}/internal-release-image-tls", secrets(NAMESPACE)));
}
