//! Registries with authentication, by the keys of openstack-helm's specification.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Helm, RELEASE_NAMESPACE, of_kind, rendered};
use crate::support::cluster::overlay;
use crate::support::in_repository;
use crate::support::manifests::yaml_documents;

const USER: &str = "machine-config-server";
const SECRET: &str = "machine-config-server-oci-image-registry";

/// Values with a login, and `registry` in place of what else is said of the registry.
fn with_credential(registry: &Value) -> Value {
    let mut registry = registry.clone();
    registry["auth"] = json!({"enabled": true, USER: {"username": "puller", "password": "pass"}});
    json!({"endpoints": {"oci_image_registry": registry}})
}

/// What a secret has kubelet say: to which registry, and which user and password.
fn credential(secret: &Value) -> (String, String) {
    assert_eq!(secret["type"], "kubernetes.io/dockerconfigjson");
    let data = secret["data"].as_object().expect("data");
    assert_eq!(data.keys().collect::<Vec<_>>(), [".dockerconfigjson"]);
    let decoded = |value: &Value| STANDARD.decode(value.as_str().expect("text")).expect("base64");
    let config = decoded(&data[".dockerconfigjson"]);
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let auths = config["auths"].as_object().expect("auths");
    let [(address, auth)] = &auths.iter().collect::<Vec<_>>()[..] else { panic!("{config}") };
    assert_eq!(config, json!({"auths": {address.as_str(): {"auth": auth["auth"]}}}));
    ((*address).clone(), String::from_utf8(decoded(&auth["auth"])).expect("UTF-8"))
}

fn pull_secrets(objects: &[Value]) -> Vec<&Value> {
    let accounts = of_kind(objects, "ServiceAccount");
    assert!(!accounts.is_empty());
    accounts.into_iter().map(|account| &account["imagePullSecrets"]).collect()
}

#[test]
fn a_registry_is_called_what_images_call_it() {
    let port = |port: Value| json!({"registry": {"default": port}});
    for (registry, address) in [
        (json!({"hosts": {"default": "r.example.com"}}), "r.example.com"),
        (
            json!({"hosts": {"default": "r.example.com"}, "port": port(json!(5000))}),
            "r.example.com:5000",
        ),
        (
            json!({"hosts": {"default": "r.example.com"}, "port": port(Value::Null)}),
            "r.example.com",
        ),
        (json!({"hosts": {"default": "192.0.2.7"}, "port": port(json!(5000))}), "192.0.2.7:5000"),
        (json!({"port": port(json!(5000))}), "localhost:5000"),
        // The name in place of the Service's.
        (
            json!({"hosts": {"default": "r"}, "host_fqdn_override": {"default": "r.example.com"},
                   "port": port(json!(5000))}),
            "r.example.com:5000",
        ),
        (
            json!({"hosts": {"default": "192.0.2.7"},
                   "host_fqdn_override": {"default": {"host": "r.example.com"}}}),
            "r.example.com",
        ),
        // A Service, in its namespace and in the release's.
        (
            json!({"hosts": {"default": "registry"}, "namespace": "images", "port": port(json!(80))}),
            "registry.images.svc.cluster.local:80",
        ),
        (
            json!({"hosts": {"default": "registry"}, "namespace": null}),
            &format!("registry.{RELEASE_NAMESPACE}.svc.cluster.local"),
        ),
        (
            json!({"hosts": {"internal": "a.example.com", "default": "b.example.com"},
                   "port": {"registry": {"internal": 1, "default": 2}}}),
            "a.example.com:1",
        ),
        // What is absent is as if it were null.
        (
            json!({"hosts": {"default": "r.example.com"}, "port": null, "host_fqdn_override": null}),
            "r.example.com",
        ),
        (
            json!({"hosts": {"default": "r.example.com"}, "port": {"registry": null}, "name": null}),
            "r.example.com",
        ),
    ] {
        let objects = rendered(&with_credential(&registry));
        let objects = objects.unwrap_or_else(|error| panic!("{registry}: {error}"));
        let [secret] = of_kind(&objects, "Secret")[..] else { panic!("{registry}") };
        assert_eq!(credential(secret), (address.to_owned(), "puller:pass".into()), "{registry}");
    }
    let mut values = with_credential(&json!({"hosts": {"default": "registry"}}));
    values["endpoints"]["cluster_domain_suffix"] = json!("example.org");
    let objects = rendered(&values).expect("objects");
    let address = credential(of_kind(&objects, "Secret")[0]).0;
    assert_eq!(address, "registry.oci-image-registry.svc.example.org");
}

#[test]
fn user_and_password_are_passed_on_as_they_are() {
    for (user, password) in [
        ("a\"quoted\" user", "pa'ss\"wo\\rd"),
        ("$HOME ${x} `id`", "$(id) %s %d {{ .Values }}"),
        ("Jürgen 用户", "пароль\u{1f511}"),
        ("robot$project+name", "a:b:c"),
        ("123456", "1e6"),
        ("<html>&", " spaces \t and\nlines "),
    ] {
        let mut values = with_credential(&json!({}));
        values["endpoints"]["oci_image_registry"]["auth"][USER] =
            json!({"username": user, "password": password});
        let objects = rendered(&values).unwrap_or_else(|error| panic!("{user}: {error}"));
        let secret = of_kind(&objects, "Secret")[0];
        assert_eq!(credential(secret).1, format!("{user}:{password}"));
    }
}

#[test]
fn a_credential_that_cannot_be_is_refused_without_telling_it() {
    let key = "endpoints.oci_image_registry.auth.machine-config-server";
    for (credential, said) in [
        (json!(null), format!("{key}.username is missing")),
        (json!({"username": "u"}), format!("{key}.password is missing")),
        (json!({"password": "hidden"}), format!("{key}.username is missing")),
        (json!({"username": "u", "password": ""}), format!("{key}.password is missing")),
        (json!({"username": "u:hidden", "password": "p"}), format!("{key}.username has a colon")),
    ] {
        let mut values = with_credential(&json!({}));
        values["endpoints"]["oci_image_registry"]["auth"][USER] = credential.clone();
        let error = rendered(&values).expect_err("a fault");
        assert!(error.contains(&said), "{credential}: {error}");
        assert!(!error.contains("hidden"), "{error}");
    }
    let error = rendered(&with_credential(&json!({"hosts": null}))).expect_err("a fault");
    assert!(error.contains("endpoints.oci_image_registry.hosts.default"), "{error}");
}

#[test]
fn the_secret_is_there_with_both_switches_and_accounts_name_it_with_the_first() {
    let all = json!({"controller": {"enabled": true}, "nodeCa": {"enabled": true}});
    for (enabled, manifest, secrets, named) in [
        (None, None, 0, false),
        (Some(false), Some(true), 0, false),
        (Some(false), Some(false), 0, false),
        (Some(true), Some(false), 0, true),
        (Some(true), Some(true), 2, true),
        (Some(true), None, 2, true),
    ] {
        let mut values = all.clone();
        values["endpoints"] = with_credential(&json!({}))["endpoints"].take();
        match enabled {
            Some(enabled) => {
                values["endpoints"]["oci_image_registry"]["auth"]["enabled"] = json!(enabled);
            }
            None => values["endpoints"] = json!({}),
        }
        if let Some(manifest) = manifest {
            values["manifests"] = json!({"secret_registry": manifest});
        }
        let objects = rendered(&values).expect("objects");
        let made = of_kind(&objects, "Secret");
        assert_eq!(made.len(), secrets, "{values}");
        let accounts = pull_secrets(&objects);
        assert_eq!(accounts.len(), 3);
        let expected = if named { json!([{"name": SECRET}]) } else { Value::Null };
        assert!(accounts.iter().all(|it| **it == expected), "{values}: {accounts:?}");
        // One in each namespace that has an account which names it.
        for secret in made {
            assert_eq!(secret["metadata"]["name"], SECRET);
            let namespace = &secret["metadata"]["namespace"];
            let accounts = of_kind(&objects, "ServiceAccount");
            assert!(accounts.iter().any(|it| it["metadata"]["namespace"] == *namespace));
        }
    }
}

#[test]
fn whatever_is_enabled_alone_has_its_secret() {
    let namespace = "openshift-machine-config-operator";
    for (part, namespace) in [
        ("server", namespace),
        ("controller", namespace),
        ("issuer", namespace),
        ("nodeCa", "machine-config-server-node-ca"),
    ] {
        let mut values = with_credential(&json!({}));
        values["server"] = json!({"enabled": false});
        values[part] = json!({"enabled": true});
        let objects = rendered(&values).expect("objects");
        let [secret] = of_kind(&objects, "Secret")[..] else { panic!("{part}: one secret") };
        assert_eq!(secret["metadata"]["namespace"], namespace, "{part}");
        assert_eq!(pull_secrets(&objects), [&json!([{"name": SECRET}])], "{part}");
    }
}

#[test]
fn the_secret_may_be_named_and_may_be_there_already() {
    let mut values = with_credential(&json!({}));
    values["secrets"] = json!({"oci_image_registry": {USER: "other-name"}});
    let objects = rendered(&values).expect("objects");
    assert_eq!(of_kind(&objects, "Secret")[0]["metadata"]["name"], "other-name");
    assert_eq!(pull_secrets(&objects), [&json!([{"name": "other-name"}])]);

    let objects = rendered(&json!({"image": {"pullSecrets": ["mine"]}})).expect("objects");
    assert!(of_kind(&objects, "Secret").is_empty());
    assert_eq!(pull_secrets(&objects), [&json!([{"name": "mine"}])]);

    let mut both = with_credential(&json!({}));
    both["image"] = json!({"pullSecrets": ["mine", SECRET]});
    let objects = rendered(&both).expect("objects");
    assert_eq!(pull_secrets(&objects), [&json!([{"name": SECRET}, {"name": "mine"}])]);
}

#[test]
fn absent_values_are_those_of_the_specification() {
    for values in [
        json!({"endpoints": null, "secrets": null, "manifests": null}),
        json!({"endpoints": {"oci_image_registry": null}, "manifests": {"secret_registry": null}}),
        json!({"endpoints": {"oci_image_registry": {"auth": null}}}),
        json!({"endpoints": {"oci_image_registry": {"auth": {"enabled": null}}}}),
        json!({"image": {"pullSecrets": null}}),
    ] {
        let objects = rendered(&values).unwrap_or_else(|error| panic!("{values}: {error}"));
        assert!(of_kind(&objects, "Secret").is_empty(), "{values}");
        assert_eq!(pull_secrets(&objects), [&Value::Null], "{values}");
    }
    // The switch for the manifest and the secret's name have defaults where there is a login.
    let mut values = with_credential(&json!({}));
    values["secrets"] = Value::Null;
    values["manifests"] = Value::Null;
    let objects = rendered(&values).expect("objects");
    assert_eq!(of_kind(&objects, "Secret")[0]["metadata"]["name"], SECRET);
    assert_eq!(pull_secrets(&objects), [&json!([{"name": SECRET}])]);
}

#[test]
fn other_charts_make_their_secret_with_the_library() {
    let helm = Helm::new();
    let directory = tempfile::tempdir().expect("a temporary folder");
    let library = in_repository("deploy/chart/machine-config-server-library");
    let write = |name: &str, text: &str| {
        let file = directory.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
    };
    let dependency = json!({
        "name": "machine-config-server-library", "version": "0.1.0",
        "repository": format!("file://{}", library.display()),
    });
    let chart = json!({"apiVersion": "v2", "name": "web", "version": "1.0.0", "dependencies": [dependency]});
    write("Chart.yaml", &chart.to_string());
    write(
        "templates/all.yaml",
        "{{ include \"machine-config-server.manifests.secret_registry\" \
         (dict \"envAll\" . \"registryUser\" .Chart.Name) }}\n\
         ---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: web\n\
         {{ include \"machine-config-server.snippets.image_pull_secrets\" \
         (dict \"envAll\" . \"registryUser\" .Chart.Name) }}\n",
    );
    write("values.yaml", "{}\n");
    helm.say(&["dependency", "update", directory.path().to_str().expect("text")]);

    // Nothing is said of registries.
    let objects = helm.template(directory.path(), &json!({}), &[]).expect("objects");
    assert!(of_kind(&objects, "Secret").is_empty());
    assert_eq!(pull_secrets(&objects), [&Value::Null]);

    let registry = json!({
        "auth": {"enabled": true, "web": {"username": "u", "password": "p"}},
        "hosts": {"default": "r.example.com"}, "port": {"registry": {"default": 5000}},
    });
    let mut values = json!({
        "endpoints": {"oci_image_registry": registry},
        "secrets": {"oci_image_registry": {"web": "web-key"}},
        "manifests": {"secret_registry": true},
    });
    let objects = helm.template(directory.path(), &values, &[]).expect("objects");
    let [secret] = of_kind(&objects, "Secret")[..] else { panic!("{objects:?}") };
    assert_eq!(secret["metadata"]["name"], "web-key");
    assert_eq!(secret["metadata"]["namespace"], RELEASE_NAMESPACE);
    assert_eq!(credential(secret), ("r.example.com:5000".into(), "u:p".into()));
    assert_eq!(pull_secrets(&objects), [&json!([{"name": "web-key"}])]);

    // Without a schema of its own, it is the template that minds a number.
    values["endpoints"]["oci_image_registry"]["auth"]["web"]["password"] = json!(1_234_567);
    let error = helm.template(directory.path(), &values, &[]).expect_err("a fault");
    assert!(error.contains("auth.web.password is not a text"), "{error}");
    assert!(!error.contains("1234567") && !error.contains("1.234567"), "{error}");
}

#[test]
fn kustomize_follows_a_secret_that_an_overlay_generates() {
    let mine = overlay("deploy/kubernetes", &["deploy/components/image-pull-secret"]);
    let file = mine.path().join("kustomization.yaml");
    let text = fs::read_to_string(&file).expect("the overlay");
    let mut kustomization: Value = serde_json::from_str(&text).expect("JSON");
    kustomization["secretGenerator"] = json!([{
        "name": SECRET, "namespace": "openshift-machine-config-operator",
        "type": "kubernetes.io/dockerconfigjson", "files": [".dockerconfigjson=login.json"],
    }]);
    fs::write(&file, kustomization.to_string()).expect("a file");
    let auth = STANDARD.encode("u:p");
    let config = json!({"auths": {"r.example.com:5000": {"auth": auth}}});
    fs::write(mine.path().join("login.json"), config.to_string()).expect("a file");
    let objects = yaml_documents(&crate::support::cluster::kustomize(mine.path()));
    let [secret] = of_kind(&objects, "Secret")[..] else { panic!("one secret") };
    assert_eq!(credential(secret), ("r.example.com:5000".into(), "u:p".into()));
    let name = &secret["metadata"]["name"];
    assert_ne!(*name, SECRET, "it has a name by its content");
    assert_eq!(pull_secrets(&objects), [&json!([{"name": name}])]);
}
