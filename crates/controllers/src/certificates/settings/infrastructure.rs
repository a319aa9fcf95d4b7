//! Names of the API server inside the cluster, which are also the machine config server's.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use kubernetes::write::{Malformed, ObjectName, expect_mapping};
use model::objects::ObjectKind;
use pki::Host;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::certificates::reference::names::{ReferenceNames, aro_address, is_azure};

/// Names of the server in `infrastructures.config.openshift.io/cluster`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Infrastructure {
    /// Every name and address, the main one first.
    pub hosts: Vec<Host>,
    pub pointer_host: Option<Host>,
    /// Names that the reference's controller knows, `None` if it knows too little to issue anything.
    pub reference_names: Option<ReferenceNames>,
}

/// Platforms whose machines cannot rely on a name before they are configured, so that their pointer configs have the
/// address, as with the reference.
const BY_ADDRESS: [&str; 4] = ["baremetal", "openstack", "ovirt", "vsphere"];

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(rename = "apiServerInternalURI")]
    internal_uri: Option<String>,
    /// Fields of the platforms by their names, next to the platform's `type`.
    platform_status: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
struct Platform {
    #[serde(rename = "apiServerInternalIP")]
    address: Option<String>,
    #[serde(rename = "apiServerInternalIPs")]
    addresses: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
struct ClusterHosted {
    #[serde(rename = "apiIntLoadBalancerIPs")]
    addresses: Option<Vec<String>>,
}

impl Infrastructure {
    /// Reads the object, without its metadata, and the Cluster of Azure Red Hat OpenShift if there is one. Absent and
    /// empty fields are skipped; malformed ones are an error, because a missing name would be missing in certificates.
    pub fn read(object: &Value, aro: Option<&Value>) -> Result<Self, Malformed> {
        let status: Status = decode("status", &object["status"])?;
        let name = match status.internal_uri.as_deref() {
            None | Some("") => None,
            Some(uri) => Some(uri_host(uri)?),
        };
        let mut addresses = Vec::new();
        let mut first_of_platform = None;
        for (platform, details) in status.platform_status.unwrap_or_default() {
            if platform == "type" {
                continue;
            }
            let found = addresses_of(&format!("status.platformStatus.{platform}"), &details)?;
            if BY_ADDRESS.contains(&platform.as_str()) {
                first_of_platform = first_of_platform.or(found.first().cloned());
            }
            addresses.extend(found);
        }
        if let Some(aro) = aro.filter(|_| is_azure(object)).map(aro_address)
            && !aro.is_empty()
        {
            addresses.push(host(aro)?);
        }
        let pointer_host = first_of_platform.or_else(|| name.clone());
        let mut hosts: Vec<Host> = Vec::new();
        for host in name.into_iter().chain(addresses) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        Ok(Self { hosts, pointer_host, reference_names: ReferenceNames::read(object, aro) })
    }

    pub(in crate::certificates) fn object() -> ObjectName {
        ObjectName::new(ObjectKind::INFRASTRUCTURE, "", "cluster")
    }
}

fn malformed(reason: impl Into<String>) -> Malformed {
    Infrastructure::object().malformed(reason)
}

/// Decodes a field; an absent one is the default.
fn decode<T: Default + DeserializeOwned>(place: &str, value: &Value) -> Result<T, Malformed> {
    expect_mapping(&Infrastructure::object(), place, value)?;
    let decoded: Option<T> = serde_json::from_value(value.clone())
        .map_err(|error| malformed(format!("{place}: {error}")))?;
    Ok(decoded.unwrap_or_default())
}

fn addresses_of(place: &str, details: &Value) -> Result<Vec<Host>, Malformed> {
    let platform: Platform = decode(place, details)?;
    let place = format!("{place}.cloudLoadBalancerConfig");
    let balancer = &details["cloudLoadBalancerConfig"];
    expect_mapping(&Infrastructure::object(), &place, balancer)?;
    let hosted: ClusterHosted =
        decode(&format!("{place}.clusterHosted"), &balancer["clusterHosted"])?;
    // The list comes first: the single address of older releases is its first entry.
    let many = [platform.addresses, hosted.addresses].into_iter().flatten().flatten();
    let all = many.chain(platform.address).filter(|address| !address.is_empty());
    all.map(|address| host(&address)).collect()
}

fn uri_host(uri: &str) -> Result<Host, Malformed> {
    let parsed: Option<http::Uri> = uri.parse().ok();
    let name = parsed.as_ref().and_then(http::Uri::host);
    host(
        name.ok_or_else(|| {
            malformed(format!("status.apiServerInternalURI: {uri:?} names no host"))
        })?,
    )
}

pub(in crate::certificates) fn host(text: &str) -> Result<Host, Malformed> {
    text.parse().map_err(|error| malformed(format!("{error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(platform: &Value) -> (Vec<String>, String) {
        let read = Infrastructure::read(
            &json!({"status": {
                "apiServerInternalURI": "https://api-int.c.example.com:6443",
                "platformStatus": platform,
            }}),
            None,
        );
        let read = read.unwrap();
        let hosts = read.hosts.iter().map(Host::to_string).collect();
        (hosts, read.pointer_host.unwrap().to_string())
    }

    #[test]
    fn every_platforms_addresses_are_found() {
        let name = "api-int.c.example.com";
        for platform in ["baremetal", "openstack", "ovirt", "vsphere"] {
            let details = json!({"apiServerInternalIPs": ["192.0.2.5", "2001:db8::5"],
                                 "apiServerInternalIP": "192.0.2.5"});
            let (hosts, pointer) = read(&json!({"type": "X", platform: details}));
            assert_eq!(hosts, [name, "192.0.2.5", "[2001:db8::5]"]);
            assert_eq!(pointer, "192.0.2.5", "{platform}");
        }
        let (hosts, pointer) = read(&json!({"nutanix": {"apiServerInternalIPs": ["192.0.2.5"]}}));
        assert_eq!((hosts.len(), pointer.as_str()), (2, name));
        let balancer = json!({"cloudLoadBalancerConfig": {"clusterHosted": {
            "apiIntLoadBalancerIPs": ["192.0.2.7"]}}});
        let (hosts, pointer) = read(&json!({"aws": balancer}));
        assert_eq!(hosts, [name, "192.0.2.7"]);
        assert_eq!(pointer, name);
        let azure = json!({"status": {"platformStatus": {"type": "Azure", "azure": {}}}});
        let aro = json!({"spec": {"apiIntIP": "192.0.2.8"}});
        let read_with = |object| Infrastructure::read(object, Some(&aro)).unwrap().hosts;
        assert_eq!(read_with(&azure), ["192.0.2.8".parse().unwrap()]);
        assert_eq!(read_with(&json!({"status": {"platformStatus": {"type": "AWS"}}})), []);
        let only_v6 = json!({"apiServerInternalIPs": ["2001:db8::5"]});
        assert_eq!(read(&json!({"baremetal": only_v6})).1, "[2001:db8::5]");
    }

    #[test]
    fn what_says_nothing_has_no_names() {
        for object in [
            json!({}),
            json!({"status": null}),
            json!({"status": {"apiServerInternalURI": "", "platformStatus": null}}),
            json!({"status": {"platformStatus": {"type": "None", "aws": null}}}),
            json!({"status": {"platformStatus": {"baremetal": {
                "apiServerInternalIP": "", "apiServerInternalIPs": [],
                "cloudLoadBalancerConfig": {"dnsType": "PlatformDefault", "clusterHosted": null}}}}}),
        ] {
            let read = Infrastructure::read(&object, None).unwrap();
            assert_eq!(read, Infrastructure::default(), "{object}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_an_error() {
        let platform = |details: Value| json!({"status": {"platformStatus": {"aws": details}}});
        for (object, reason) in [
            (json!({"status": "x"}), "status is not a mapping"),
            (json!({"status": []}), "status is not a mapping"),
            (json!({"status": {"apiServerInternalURI": 1}}), "invalid type: integer"),
            (json!({"status": {"apiServerInternalURI": "/path"}}), "names no host"),
            (json!({"status": {"apiServerInternalURI": "https://a_b-.c:6443"}}), "DNS name"),
            (json!({"status": {"platformStatus": []}}), "invalid type: sequence"),
            (platform(json!("x")), "status.platformStatus.aws is not a mapping"),
            (platform(json!(["x"])), "status.platformStatus.aws is not a mapping"),
            (
                platform(json!({"cloudLoadBalancerConfig": []})),
                "cloudLoadBalancerConfig is not a mapping",
            ),
            (platform(json!({"apiServerInternalIP": 1})), "invalid type: integer"),
            (platform(json!({"apiServerInternalIPs": "192.0.2.5"})), "invalid type: string"),
            (platform(json!({"apiServerInternalIPs": ["192.0.2.5", "1.2.3"]})), "DNS name"),
            (
                platform(json!({"cloudLoadBalancerConfig": {"clusterHosted": 1}})),
                "clusterHosted is not a mapping",
            ),
        ] {
            let error = Infrastructure::read(&object, None).unwrap_err().to_string();
            assert!(error.starts_with("Infrastructure cluster: "), "{error}");
            assert!(error.contains(reason), "{object}: {error}");
        }
    }
}
