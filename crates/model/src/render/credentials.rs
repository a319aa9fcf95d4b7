//! Registry credentials in a machine's config.

use ignition::Config;
use ignition::contents::Contents;

use crate::registry_credentials::{self, Credentials, Unmergeable, merged_file};

/// Adds registry credentials to the existing file, or appends a file. An up-to-date file stays the same, byte for byte:
/// machine-config-daemon compares it with the MachineConfig's.
pub(super) fn add_credentials(
    config: &mut Config,
    credentials: &Credentials,
) -> Result<(), Unmergeable> {
    let present = match config.file_contents(registry_credentials::PATH) {
        None | Some(Contents::Nothing) => None,
        Some(Contents::Bytes(bytes)) => Some(bytes),
        Some(Contents::Elsewhere(_)) => return Err(Unmergeable::Elsewhere),
        Some(Contents::Unreadable(_)) => return Err(Unmergeable::Unreadable),
    };
    if let Some(file) = merged_file(present.as_deref(), credentials)? {
        config.set_private_file(registry_credentials::PATH, &file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ignition::{Form, SpecVersion, data_url};
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{ServingMode, SharedInputs};
    use crate::objects::MachineConfig;
    use crate::registry_credentials::Entries;
    use crate::render::compact::CompressedContents;
    use crate::render::select::PoolInputs;
    use crate::render::steps::{ENCAPSULATED, render};

    const SECRET: &str = "c2VjcmV0OnBhc3N3b3Jk";
    const CONTENT: &str = "/etc/mcs-machine-config-content.json";

    fn credentials(registries: &[&str]) -> Credentials {
        let entry = |name: &&str| ((*name).to_owned(), json!({"auth": SECRET}));
        let auths: serde_json::Map<_, _> = registries.iter().map(entry).collect();
        Entries::parse(json!({"auths": auths}).to_string().as_bytes()).unwrap().good
    }

    fn pool(config: &Value, credentials: Option<Credentials>) -> PoolInputs {
        let config = json!({"metadata": {"name": "rendered"}, "spec": {"config": config}});
        PoolInputs {
            mode: ServingMode::Manifests,
            machine_config: Arc::new(serde_json::from_value::<MachineConfig>(config).unwrap()),
            configuration: "rendered".to_owned(),
            image: None,
            credentials: credentials.map(Arc::new),
            shared: Arc::new(SharedInputs::default()),
        }
    }

    fn files(pool: &PoolInputs, version: SpecVersion, form: Form) -> Vec<Value> {
        let bytes = render(pool, version, form, &CompressedContents::default()).unwrap();
        let config: Value = serde_json::from_slice(&bytes).unwrap();
        config["storage"]["files"].as_array().unwrap().clone()
    }

    /// Contents of a file on the machine's disk.
    fn contents(file: &Value) -> String {
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/x", "contents": file["contents"]},
        ]}});
        let config = Config::parse(&config.to_string()).unwrap();
        let Some(Contents::Bytes(bytes)) = config.file_contents("/x") else { panic!("{file}") };
        String::from_utf8(bytes).unwrap()
    }

    fn file_at<'a>(files: &'a [Value], path: &str) -> &'a Value {
        files.iter().find(|file| file["path"] == path).unwrap()
    }

    fn own_file(file: &Value) -> Value {
        json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}})
    }

    #[test]
    fn the_file_is_the_last_but_one_and_in_no_copy_of_the_machine_config() {
        let plain = json!({"ignition": {"version": "3.4.0"}});
        let with = pool(&plain, Some(credentials(&["quay.io"])));
        let without = pool(&plain, None);
        for version in SpecVersion::ALL {
            for form in Form::ALL {
                let files = files(&with, version, form);
                let paths: Vec<_> =
                    files.iter().map(|file| file["path"].as_str().unwrap()).collect();
                assert_eq!(
                    paths[paths.len() - 2..],
                    [registry_credentials::PATH, ENCAPSULATED],
                    "{version}"
                );
                let file = file_at(&files, registry_credentials::PATH);
                assert_eq!(file["mode"], 0o600, "{version}");
                let expected = json!({"auths": {"quay.io": {"auth": SECRET}}}).to_string();
                assert_eq!(contents(file), expected, "{version}");
                let others = files.iter().filter(|file| file["path"] != registry_credentials::PATH);
                assert!(!others.map(contents).any(|text| text.contains(SECRET)), "{version}");
                let rest: Vec<_> = files
                    .iter()
                    .filter(|f| f["path"] != registry_credentials::PATH)
                    .cloned()
                    .collect();
                assert_eq!(rest, self::files(&without, version, form), "{version}");
            }
        }
    }

    #[test]
    fn a_file_of_the_machine_configs_own_is_added_to_where_credentials_are_given_and_else_untouched()
     {
        let own = json!({"auths": {"own.example": {"auth": "b3duOnA="}, "quay.io": {"auth": "b2xkOnA="}}});
        let sources = [
            json!({"source": data_url::encode(own.to_string().as_bytes())}),
            json!({"source": GZIPPED, "compression": "gzip"}),
        ];
        for source in sources {
            let file = json!({
                "path": registry_credentials::PATH, "overwrite": true, "mode": 0o644,
                "user": {"name": "root"}, "contents": source,
            });
            let config = own_file(&file);
            for form in Form::ALL {
                let served = files(&pool(&config, None), SpecVersion::V3_4, form);
                let served = file_at(&served, registry_credentials::PATH);
                if form == Form::Plain {
                    assert_eq!(*served, file);
                }
                assert_eq!(contents(served), own.to_string());

                let secret = credentials(&["quay.io", "new.example"]);
                let served = files(&pool(&config, Some(secret)), SpecVersion::V3_4, form);
                assert_eq!(
                    served.iter().filter(|f| f["path"] == registry_credentials::PATH).count(),
                    1
                );
                let served = file_at(&served, registry_credentials::PATH);
                let merged: Value = serde_json::from_str(&contents(served)).unwrap();
                let expected = json!({"auths": {
                    "own.example": {"auth": "b3duOnA="},
                    "quay.io": {"auth": SECRET},
                    "new.example": {"auth": SECRET},
                }});
                assert_eq!(merged, expected);
                assert_eq!((&served["mode"], &served["user"]), (&json!(0o600), &file["user"]));
            }
        }
        // An unchanged file is served as it was read, also in spec 2.
        let old = json!({"ignition": {"version": "2.2.0"}, "storage": {"files": [{
            "filesystem": "root", "path": registry_credentials::PATH,
            "contents": {"source": data_url::encode(own.to_string().as_bytes())}, "mode": 0o600,
        }]}});
        let secret = credentials(&["new.example"]);
        let served = files(&pool(&old, Some(secret)), SpecVersion::V2_2, Form::Plain);
        let served = contents(file_at(&served, registry_credentials::PATH));
        assert!(served.contains("own.example") && served.contains("new.example"), "{served}");
        let content =
            files(&pool(&old, Some(credentials(&["new.example"]))), SpecVersion::V3_4, Form::Plain);
        assert!(!contents(file_at(&content, CONTENT)).contains("new.example"));
    }

    const GZIPPED: &str = "data:;base64,H4sIAAAAAAACA6tWSiwtyShWsqpWyi/P00utSMwtyEkFcUHiSlZKScYpp\
                           f55jrZKtTpKhaWJlXqZ+ciyRhXZENnaWgBsBAeISwAAAA==";

    #[test]
    fn a_file_that_says_the_same_already_stays_byte_for_byte() {
        let text = format!("{{ \"auths\" : {{\"quay.io\": {{\"auth\": \"{SECRET}\"}}}}}}\n");
        let file = json!({"path": registry_credentials::PATH, "mode": 0o644, "contents": {
            "source": data_url::encode(text.as_bytes()),
        }});
        let served = files(
            &pool(&own_file(&file), Some(credentials(&["quay.io"]))),
            SpecVersion::V3_4,
            Form::Plain,
        );
        assert_eq!(*file_at(&served, registry_credentials::PATH), file);
    }

    #[test]
    fn a_file_that_cannot_be_added_to_is_refused_by_name() {
        for (contents, reported) in [
            (
                json!({"contents": {"source": "https://vault.example/SECRET"}}),
                "its contents are not in the config",
            ),
            (json!({"append": [{"source": "data:,SECRET"}]}), "its contents are not in the config"),
            (json!({"contents": {"source": "data:,SECRET"}}), "not JSON (line 1, column 1)"),
            (
                json!({"contents": {"source": "data:,SECRET", "compression": "gzip"}}),
                "its contents cannot be read",
            ),
        ] {
            let mut file = contents;
            file["path"] = registry_credentials::PATH.into();
            let pool = pool(&own_file(&file), Some(credentials(&["quay.io"])));
            let (form, compressed) = (Form::Plain, CompressedContents::default());
            let error = render(&pool, SpecVersion::V3_4, form, &compressed).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "MachineConfig rendered: /var/lib/kubelet/config.json: {reported}, so that \
                        registry credentials cannot be added"
                )
            );
        }
    }

    #[test]
    fn what_image_credential_providers_read_passes_through() {
        let provider = |path: &str| {
            json!({"path": path, "mode": 0o644, "overwrite": true,
                   "contents": {"source": "data:,kind%3A%20CredentialProviderConfig%0A"}})
        };
        let own = [
            provider("/etc/kubernetes/credential-providers/ecr-credential-provider.yaml"),
            provider("/etc/kubernetes/credential-providers/acr-credential-provider.yaml"),
            provider("/usr/libexec/kubelet-image-credential-provider-plugins/helper"),
        ];
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": own}});
        let with = pool(&config, Some(credentials(&["quay.io"])));
        let served = files(&with, SpecVersion::V3_4, Form::Plain);
        assert_eq!(served[..3], own);
    }
}
