//! Decides if a machine boots straight into a layered image of its pool.

use crate::inputs::Layering;
use crate::objects::MachineConfigPool;

/// Pull spec of the layered image for a new machine of `pool` that is served the MachineConfig `configuration`; `None`
/// if it starts with the MachineConfig's own image.
///
/// That is the pool's MachineOSConfig's current image, once
/// - a build of that MachineOSConfig and this very machine config has succeeded, and
/// - a machine of the pool runs it already, which proves that it boots, and
/// - it is not in the cluster's own registry, whose name a machine cannot resolve before it is part
///   of the cluster: such a machine changes over to the image afterwards.
pub(super) fn layered_image(
    layering: &Layering,
    pool: &MachineConfigPool,
    configuration: &str,
) -> Option<String> {
    let os_config = layering
        .os_configs
        .values()
        .find(|config| config.spec.machine_config_pool.name == pool.name())?;
    let image = &os_config.status.current_image_pull_spec;
    if image.is_empty() || pool.status.updated_machine_count == 0 {
        return None;
    }
    let build = layering.os_builds.values().find(|build| {
        build.spec.machine_os_config.name == os_config.metadata.name
            && build.spec.machine_config.name == configuration
    })?;
    let is_internal = layering.registry_hosts.iter().any(|host| is_in_registry(image, host));
    (build.has_succeeded() && !is_internal).then(|| image.clone())
}

/// Returns `true` if a pull spec names an image in the registry `host`, which can have a port.
fn is_in_registry(image: &str, host: &str) -> bool {
    image.strip_prefix(host).is_some_and(|rest| rest.starts_with(['/', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Object;
    use serde_json::{Value, json};

    const IMAGE: &str = "quay.io/example/os@sha256:0";

    fn layering(objects: &[Value]) -> Layering {
        let mut layering = Layering::default();
        for object in objects {
            layering.add(&Object::from_value(object.clone()).unwrap().unwrap());
        }
        layering
    }

    fn os_config(image: &str) -> Value {
        json!({
            "kind": "MachineOSConfig",
            "metadata": {"name": "c"},
            "spec": {"machineConfigPool": {"name": "worker"}},
            "status": {"currentImagePullSpec": image},
        })
    }

    fn build(succeeded: &str) -> Value {
        json!({
            "kind": "MachineOSBuild",
            "metadata": {"name": "b"},
            "spec": {"machineConfig": {"name": "new"}, "machineOSConfig": {"name": "c"}},
            "status": {"conditions": [
                {"type": "Building", "status": "False"}, {"type": "Succeeded", "status": succeeded},
            ]},
        })
    }

    fn service(namespace: &str, ports: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "registry", "namespace": namespace},
            "spec": {"ports": ports},
        })
    }

    fn pool(name: &str, updated: u32) -> MachineConfigPool {
        let pool = json!({"metadata": {"name": name}, "status": {"updatedMachineCount": updated}});
        serde_json::from_value(pool).unwrap()
    }

    #[test]
    fn the_image_of_a_build_that_succeeded_is_taken() {
        let layering = layering(&[os_config(IMAGE), build("True")]);
        assert_eq!(layered_image(&layering, &pool("worker", 1), "new").as_deref(), Some(IMAGE));
        for (pool, configuration, why) in [
            (pool("worker", 0), "new", "no machine runs it yet"),
            (pool("worker", 1), "old", "the build is of another config"),
            (pool("infra", 1), "new", "the pool has no MachineOSConfig"),
        ] {
            assert_eq!(layered_image(&layering, &pool, configuration), None, "{why}");
        }
    }

    #[test]
    fn an_image_that_is_not_ready_is_not_taken() {
        for objects in [
            vec![os_config(IMAGE)],
            vec![os_config(""), build("True")],
            vec![os_config(IMAGE), build("False")],
            vec![build("True")],
        ] {
            assert_eq!(layered_image(&layering(&objects), &pool("worker", 1), "new"), None);
        }
    }

    #[test]
    fn an_image_in_the_clusters_own_registry_is_not_taken() {
        let route = json!({
            "apiVersion": "route.openshift.io/v1", "kind": "Route",
            "metadata": {"name": "default-route", "namespace": "openshift-image-registry"},
            "spec": {"host": "registry.apps.example.com"},
        });
        let other = service("elsewhere", &json!([{"port": 5000}]));
        let own = service("openshift-image-registry", &json!([{"port": 5000}, {"port": 6000}]));
        for (image, is_taken) in [
            ("registry.openshift-image-registry.svc:5000/ns/os:latest", false),
            ("registry.apps.example.com/ns/os:latest", false),
            ("registry.apps.example.com:443/ns/os:latest", false),
            ("registry.apps.example.company/ns/os:latest", true),
            ("registry.openshift-image-registry.svc:50001/ns/os:latest", true),
            ("registry.elsewhere.svc:5000/ns/os:latest", true),
        ] {
            let objects =
                [os_config(image), build("True"), own.clone(), other.clone(), route.clone()];
            let found = layered_image(&layering(&objects), &pool("worker", 1), "new");
            assert_eq!(found.is_some(), is_taken, "{image}");
        }
        let without_ports = service("openshift-image-registry", &json!([]));
        let image = "registry.openshift-image-registry.svc:5000/ns/os:latest";
        let objects = [os_config(image), build("True"), without_ports];
        assert_eq!(layered_image(&layering(&objects), &pool("worker", 1), "new"), None);
    }
}
