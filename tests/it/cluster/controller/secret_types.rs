//! The component that keeps the controller's account to the types of secrets that it makes.

use super::*;
use crate::support::cluster::overlay;

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
fn the_controllers_account_makes_no_secret_that_is_filled_with_somebodys_token() {
    let site = Site::new();
    let by = site.cluster.kubeconfig_of(ACCOUNT, NAMESPACE, site.cluster.address());
    let create = |name: &str, namespace: &str, type_: &str| {
        site.cluster.kubectl_by(&by, &["create", "-f", "-"], &secret(name, namespace, type_))
    };
    // Without the component its rights admit it: that is what it is for.
    create("before", NAMESPACE, ACCOUNT_TOKEN).expect("a right to create");
    let mine = overlay("deploy/controller", &["deploy/components/secret-types"]);
    site.cluster.apply(&["-k", mine.path().to_str().expect("text")]);
    let mut number = 0;
    let said = wait_for("the policy to be in force", || {
        number += 1;
        create(&format!("early-{number}"), NAMESPACE, ACCOUNT_TOKEN).err()
    });
    let words = "makes secrets of types Opaque and kubernetes.io/tls alone, and none of type \
                 kubernetes.io/service-account-token";
    assert!(said.contains("Forbidden") && said.contains(words), "{said}");

    for namespace in [NAMESPACE, USER_DATA_NAMESPACE] {
        for (type_, is_admitted) in [
            (ACCOUNT_TOKEN, false),
            ("kubernetes.io/dockerconfigjson", false),
            ("example.com/own", false),
            ("kubernetes.io/tls", true),
            ("Opaque", true),
        ] {
            let name =
                format!("by-controller-{}", type_.rsplit('/').next().unwrap().to_lowercase());
            let answer = create(&name, namespace, type_);
            assert_eq!(answer.is_ok(), is_admitted, "{namespace} {type_}: {answer:?}");
            // Who may do everything may do this too.
            if !is_admitted {
                site.cluster.create(&secrets(namespace), &secret(&name, namespace, type_));
            }
        }
    }

    // One that an administrator has made is not made another account's.
    let name = "by-controller-service-account-token";
    let mut other = secret(name, USER_DATA_NAMESPACE, ACCOUNT_TOKEN);
    other["metadata"]["annotations"]["kubernetes.io/service-account.name"] = json!("other");
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let said = site.cluster.kubectl_by(&by, &apply, &other).expect_err("a refusal");
    assert!(said.contains(words), "{said}");

    // Its own work goes on: all that it makes where there is nothing, and what it changes later.
    site.cluster.delete(&format!("{}/by-controller-tls", secrets(NAMESPACE)));
    let _controller = site.start(&["--access", "audit"]);
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    for name in ["machine-config-server-access", "machine-config-server-tokens"] {
        let secret = site.object(&format!("{}/{name}", secrets(NAMESPACE)));
        assert_eq!(secret["type"], "Opaque");
    }
    wait_for("user data with a token", || {
        let text = String::from_utf8(site.user_data("worker-user-data-managed")).expect("text");
        text.contains("Bearer").then_some(())
    });
    site.rotate("again");
}
