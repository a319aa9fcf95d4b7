//! Names in the certificates that the reference's controller issues.
//!
//! It replaces a serving pair when the annotation of its names and this list differ as sets, regardless of the
//! certificate itself (openshift/library-go, `pkg/operator/certrotation/target.go`, `missingHostnames`). The list is
//! machine-config-operator's, `pkg/controller/certrotation`, `hostnames.go` and `certrotation_controller.go`. Names
//! keep the spelling of the objects, which it compares. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeSet;

use serde_json::Value;

/// Platforms by the type in an Infrastructure, with the field of their addresses.
const PLATFORMS: [(&str, &str); 5] = [
    ("BareMetal", "baremetal"),
    ("Nutanix", "nutanix"),
    ("OpenStack", "openstack"),
    ("VSphere", "vsphere"),
    ("oVirt", "ovirt"),
];

/// Names of the API server inside the cluster that the reference's controller knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceNames {
    /// Host of the internal URL.
    api: String,
    /// Internal addresses of the platform.
    addresses: Vec<String>,
    /// Address in the Cluster of Azure Red Hat OpenShift, empty if it has none.
    aro: Option<String>,
}

impl ReferenceNames {
    /// Reads an Infrastructure, and the Cluster of Azure Red Hat OpenShift if there is one. `None` without an internal
    /// URL: the reference's controller has no list then, and issues nothing.
    pub(in crate::certificates) fn read(
        infrastructure: &Value,
        aro: Option<&Value>,
    ) -> Option<Self> {
        let status = &infrastructure["status"];
        let uri: http::Uri = status["apiServerInternalURI"].as_str()?.parse().ok()?;
        let api = uri.host()?;
        let bare = api.strip_prefix('[').and_then(|api| api.strip_suffix(']'));
        let platform = &status["platformStatus"];
        let type_ = platform["type"].as_str();
        let field = PLATFORMS.iter().find(|(name, _)| type_ == Some(name)).map(|(_, field)| field);
        let addresses = field.and_then(|field| platform[field]["apiServerInternalIPs"].as_array());
        let addresses = addresses.into_iter().flatten().filter_map(Value::as_str);
        let aro = aro.filter(|_| is_azure(infrastructure));
        Some(Self {
            api: bare.unwrap_or(api).to_owned(),
            addresses: addresses.map(str::to_owned).collect(),
            aro: aro.map(|aro| aro_address(aro).to_owned()),
        })
    }

    pub(in crate::certificates) fn serving(&self) -> BTreeSet<&str> {
        let Self { api, addresses, aro } = self;
        [api].into_iter().chain(addresses).chain(aro).map(String::as_str).collect()
    }

    pub(in crate::certificates) fn release_image(&self) -> BTreeSet<&str> {
        let own = [&self.api[..], "localhost", "127.0.0.1", "::1"];
        own.into_iter().chain(self.addresses.iter().map(String::as_str)).collect()
    }
}

/// Returns `true` if there may be a Cluster of Azure Red Hat OpenShift.
pub(in crate::certificates) fn is_azure(infrastructure: &Value) -> bool {
    infrastructure["status"]["platformStatus"]["type"] == "Azure"
}

/// Internal address of the API server in the Cluster of Azure Red Hat OpenShift.
pub(in crate::certificates) fn aro_address(aro: &Value) -> &str {
    aro["spec"]["apiIntIP"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const API: &str = "api-int.c.example.com";

    fn read(platform: &Value, aro: Option<&Value>) -> Option<ReferenceNames> {
        let status = json!({
            "apiServerInternalURI": format!("https://{API}:6443"),
            "platformStatus": platform,
        });
        ReferenceNames::read(&json!({"status": status}), aro)
    }

    #[test]
    fn each_platform_has_the_names_that_the_reference_gives_it() {
        let two = json!({
            "apiServerInternalIPs": ["192.0.2.5", "2001:db8::5"],
            "apiServerInternalIP": "192.0.2.9",
            "ingressIPs": ["192.0.2.6"],
            "cloudLoadBalancerConfig": {"clusterHosted": {"apiIntLoadBalancerIPs": ["192.0.2.7"]}},
        });
        let aro = json!({"spec": {"apiIntIP": "192.0.2.8"}});
        let both: &[&str] = &["192.0.2.5", "2001:db8::5"];
        // The type, the field, and the addresses among the names.
        let cases: [(&str, &str, &[&str]); 17] = [
            ("BareMetal", "baremetal", both),
            ("Nutanix", "nutanix", both),
            ("OpenStack", "openstack", both),
            ("VSphere", "vsphere", both),
            ("oVirt", "ovirt", both),
            // The field is the type's, not any that is there.
            ("BareMetal", "vsphere", &[]),
            ("Ovirt", "ovirt", &[]),
            // Load balancers of the cloud are none of its names.
            ("AWS", "aws", &[]),
            ("GCP", "gcp", &[]),
            ("IBMCloud", "ibmcloud", &[]),
            ("PowerVS", "powervs", &[]),
            ("KubeVirt", "kubevirt", &[]),
            ("EquinixMetal", "equinixMetal", &[]),
            ("External", "external", &[]),
            ("None", "none", &[]),
            ("Azure", "azure", &["192.0.2.8"]),
            ("", "baremetal", &[]),
        ];
        for (type_, field, addresses) in cases {
            let names = read(&json!({"type": type_, field: two}), Some(&aro)).unwrap();
            let mut expected: BTreeSet<_> = addresses.iter().copied().chain([API]).collect();
            assert_eq!(names.serving(), expected, "{type_}");
            // A registry in the cluster has no name in Azure's own network.
            expected.remove("192.0.2.8");
            expected.extend(["localhost", "127.0.0.1", "::1"]);
            assert_eq!(names.release_image(), expected, "{type_}");
        }
        let azure = json!({"type": "Azure"});
        assert_eq!(read(&azure, None).unwrap().serving(), [API].into());
        let empty = json!({"spec": {}});
        assert_eq!(read(&azure, Some(&empty)).unwrap().serving(), ["", API].into());
        for none in [
            json!(null),
            json!({"type": "BareMetal"}),
            json!({"type": "BareMetal", "baremetal": null}),
        ] {
            assert_eq!(read(&none, None).unwrap().serving(), [API].into(), "{none}");
        }
    }

    #[test]
    fn names_keep_their_spelling() {
        let names = |uri: &str, address: &str| {
            let object = json!({"status": {
                "apiServerInternalURI": uri,
                "platformStatus": {"type": "BareMetal", "baremetal": {"apiServerInternalIPs": [address]}},
            }});
            let names = ReferenceNames::read(&object, None).unwrap();
            names.serving().into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let upper = names("https://API-int.example.com:6443", "2001:DB8::5");
        assert_eq!(upper, ["2001:DB8::5", "API-int.example.com"]);
        assert_eq!(names("https://[2001:db8::1]:6443", ""), ["", "2001:db8::1"]);
    }

    #[test]
    fn without_an_internal_url_there_is_no_list() {
        for status in [json!(null), json!({}), json!({"apiServerInternalURI": ""})] {
            assert_eq!(ReferenceNames::read(&json!({"status": status}), None), None, "{status}");
        }
    }
}
