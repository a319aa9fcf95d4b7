//! Detects parts of objects that are not read: misspelt kinds, versions and fields, above all.

use serde_json::{Map, Value};

use super::kind::ObjectKind;

/// Fields of a kind's objects that are read.
struct ReadFields {
    kind: &'static ObjectKind,
    /// Versions besides the kind's own that are read alike.
    other_versions: &'static [&'static str],
    /// All its fields except `apiVersion`, `kind` and `metadata`; empty if field names are free.
    top: &'static [&'static str],
    /// Paths below these that are read, and some that people set next to them. Objects of a cluster have many more.
    fields: &'static [&'static str],
}

const READ: [ReadFields; 13] = [
    ReadFields::of(ObjectKind::MACHINE_CONFIG_POOL).fields(&[
        "metadata.annotations",
        "spec.configuration.name",
        "spec.machineConfigSelector.matchExpressions.key",
        "spec.machineConfigSelector.matchExpressions.operator",
        "spec.machineConfigSelector.matchExpressions.values",
        "spec.machineConfigSelector.matchLabels",
        "spec.maxUnavailable",
        "spec.nodeSelector",
        "spec.paused",
        "status.configuration.name",
        "status.updatedMachineCount",
    ]),
    ReadFields::of(ObjectKind::MACHINE_CONFIG).fields(&["metadata.annotations", "metadata.labels"]),
    ReadFields::of(ObjectKind::CONTROLLER_CONFIG).fields(&[
        "metadata.annotations",
        "spec.baseOSContainerImage",
        "spec.baseOSExtensionsContainerImage",
        "spec.cloudProviderCAData",
        "spec.kubeAPIServerServingCAData",
    ]),
    ReadFields::of(ObjectKind::MACHINE_OS_CONFIG)
        .other_versions(&["v1alpha1"])
        .fields(&["spec.machineConfigPool.name", "status.currentImagePullSpec"]),
    ReadFields::of(ObjectKind::MACHINE_OS_BUILD).other_versions(&["v1alpha1"]).fields(&[
        "spec.machineConfig.name",
        "spec.machineOSConfig.name",
        "status.conditions.status",
        "status.conditions.type",
    ]),
    ReadFields::of(ObjectKind::API_SERVER).fields(&[
        "spec.tlsSecurityProfile.custom.ciphers",
        "spec.tlsSecurityProfile.custom.minTLSVersion",
        "spec.tlsSecurityProfile.type",
    ]),
    ReadFields::of(ObjectKind::IMAGE).fields(&["spec.additionalTrustedCA.name"]),
    ReadFields::of(ObjectKind::ROUTE).fields(&["spec.host"]),
    ReadFields::of(ObjectKind::SERVICE).fields(&["spec.ports.port"]),
    ReadFields::of(ObjectKind::CONFIG_MAP).top(&["binaryData", "data", "immutable"]),
    ReadFields::of(ObjectKind::SECRET).top(&["data", "immutable", "stringData", "type"]),
    ReadFields::of(ObjectKind::FIRST_BOOT_MACHINE).fields(&[
        "metadata.annotations",
        "spec.addresses",
        "spec.pool",
        "spec.replaces",
    ]),
    ReadFields::of(ObjectKind::KUBECONFIG).top(&[]),
];

const EVERYWHERE: [&str; 2] = ["metadata.name", "metadata.namespace"];

impl ReadFields {
    const fn of(kind: &'static ObjectKind) -> Self {
        Self { kind, other_versions: &[], top: &["spec", "status"], fields: &[] }
    }

    const fn other_versions(self, other_versions: &'static [&'static str]) -> Self {
        Self { other_versions, ..self }
    }

    const fn top(self, top: &'static [&'static str]) -> Self {
        Self { top, ..self }
    }

    const fn fields(self, fields: &'static [&'static str]) -> Self {
        Self { fields, ..self }
    }
}

/// Reason why an object of this kind is read differently from its `apiVersion`, if it is. In another group, the kind
/// can be a different one of the same name.
pub fn unread_version(kind: &str, api_version: &str) -> Option<String> {
    let ReadFields { kind, other_versions, .. } =
        READ.iter().find(|known| known.kind.name == kind)?;
    let version = kind.version_in(api_version)?;
    if api_version.is_empty() || version == kind.version || other_versions.contains(&version) {
        return None;
    }
    let becomes = if kind.group.is_empty() { "so the object is not read" } else { "read as v1" };
    Some(format!("{api_version} is unknown, {becomes}"))
}

/// Reason why an object is not read, if its kind is misspelt.
pub fn unread_kind(kind: &str, api_version: &str) -> Option<String> {
    let mut kinds = READ.iter().map(|known| known.kind);
    if kinds.clone().any(|known| known.name == kind) {
        return None;
    }
    let is_meant = |known: &&ObjectKind| {
        known.version_in(api_version).is_some_and(|version| !version.is_empty())
            && is_misspelt(kind, known.name)
    };
    let meant = kinds.find(is_meant)?.name;
    Some(format!("{kind} is unknown, so the object is not read; did you mean {meant}?"))
}

/// Fields of an object that certainly have no effect: those next to `spec`, and misspelt ones. One line each.
pub fn unread_fields(object: &Map<String, Value>) -> Vec<String> {
    let text = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (name, api_version) = (text("kind"), text("apiVersion"));
    let is_of = |ReadFields { kind, .. }: &&ReadFields| {
        kind.name == name && (api_version.is_empty() || kind.version_in(api_version).is_some())
    };
    let Some(read) = READ.iter().find(is_of).filter(|read| !read.top.is_empty()) else {
        return Vec::new();
    };
    let top: Vec<&str> =
        ["apiVersion", "kind", "metadata"].iter().chain(read.top).copied().collect();
    let fields: Vec<&str> = EVERYWHERE.iter().chain(read.fields).copied().collect();
    let mut lines = Vec::new();
    // Null means absence.
    for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        if top.contains(&&**name) {
            misspelt(value, &below(&fields, name), name, &mut lines);
        } else {
            lines.push(unknown(name, top.iter().find(|top| is_misspelt(name, top)).copied()));
        }
    }
    lines
}

/// The rest of the paths that begin with a field.
fn below<'a>(paths: &[&'a str], field: &str) -> Vec<&'a str> {
    let parts = paths.iter().filter_map(|path| path.split_once('.'));
    parts.filter(|(head, _)| *head == field).map(|(_, rest)| rest).collect()
}

/// Finds fields below `place` that are misspelt names in `paths`.
fn misspelt(value: &Value, paths: &[&str], place: &str, lines: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                misspelt(item, paths, &format!("{place}[{index}]"), lines);
            }
        }
        Value::Object(members) if !paths.is_empty() => {
            let heads: Vec<_> =
                paths.iter().map(|path| path.split('.').next().unwrap_or_default()).collect();
            for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                let place = format!("{place}.{name}");
                if heads.contains(&&**name) {
                    misspelt(value, &below(paths, name), &place, lines);
                } else if let Some(meant) = heads.iter().find(|head| is_misspelt(name, head)) {
                    lines.push(unknown(&place, Some(meant)));
                }
            }
        }
        _ => {}
    }
}

fn unknown(place: &str, meant: Option<&str>) -> String {
    let hint = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    format!("{place}: unknown field, ignored{hint}")
}

/// Returns `true` if two words differ only in case, or in one letter: added, missing, replaced, or swapped with the
/// next.
pub fn is_misspelt(word: &str, meant: &str) -> bool {
    let [a, b] = [word, meant].map(str::to_ascii_lowercase);
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let ([x, rest_a @ ..], [y, rest_b @ ..]) = (a, b)
        && x == y
    {
        (a, b) = (rest_a, rest_b);
    }
    while let ([rest_a @ .., x], [rest_b @ .., y]) = (a, b)
        && x == y
    {
        (a, b) = (rest_a, rest_b);
    }
    word != meant
        && match (a, b) {
            ([] | [_], [] | [_]) => true,
            ([first, second], [x, y]) => (first, second) == (y, x),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(object: Value) -> Vec<String> {
        let Value::Object(object) = object else { panic!("an object") };
        unread_fields(&object)
    }

    #[test]
    fn a_word_is_misspelt_by_case_or_one_letter() {
        let near =
            ["Paused", "pausd", "pauseed", "pased", "puased", "paucsed", "paused_", "PAUSED"];
        for word in near {
            assert!(is_misspelt(word, "paused") && is_misspelt("paused", word), "{word}");
        }
        for word in ["paused", "pause_d_", "spaued", "pau", "", "unpaused"] {
            assert!(!is_misspelt(word, "paused") && !is_misspelt("paused", word), "{word}");
        }
        assert!(is_misspelt("sepc", "spec") && is_misspelt("", "a") && !is_misspelt("", ""));
    }

    #[test]
    fn fields_that_were_misspelt_are_named_with_what_was_meant() {
        let api = "machineconfiguration.openshift.io/v1";
        let pool = json!({
            "apiVersion": api, "kind": "MachineConfigPool",
            "metadata": {"name": "worker", "annotatons": {"a": "b"}, "label": {}, "names": null},
            "specs": {}, "status": {"updatedmachineCount": 1, "machineCount": 2},
            "spec": {"pausd": true, "configuration": {"nane": "a", "source": []}, "else": 1},
        });
        assert_eq!(
            lines(pool),
            [
                "metadata.annotatons: unknown field, ignored; did you mean annotations?",
                "specs: unknown field, ignored; did you mean spec?",
                "status.updatedmachineCount: unknown field, ignored; did you mean updatedMachineCount?",
                "spec.pausd: unknown field, ignored; did you mean paused?",
                "spec.configuration.nane: unknown field, ignored; did you mean name?",
            ]
        );
        for (object, line) in [
            (
                json!({"apiVersion": api, "kind": "ControllerConfig",
                    "spec": {"kubeAPIServerServingCAdata": ""}}),
                "spec.kubeAPIServerServingCAdata: unknown field, ignored; did you mean kubeAPIServerServingCAData?",
            ),
            (
                json!({"apiversion": api, "kind": "MachineConfig", "spec": {}}),
                "apiversion: unknown field, ignored; did you mean apiVersion?",
            ),
            (
                json!({"apiVersion": api, "kind": "MachineConfig", "sepc": {}}),
                "sepc: unknown field, ignored; did you mean spec?",
            ),
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap", "spec": {}, "data": {"spce": ""}}),
                "spec: unknown field, ignored",
            ),
            (
                json!({"apiVersion": api, "kind": "MachineOSBuild",
                    "status": {"conditions": [{"type": ""}, {"Type": ""}]}}),
                "status.conditions[1].Type: unknown field, ignored; did you mean type?",
            ),
        ] {
            assert_eq!(lines(object), [line]);
        }
    }

    #[test]
    fn fields_of_other_api_groups_are_not_reported() {
        for object in [
            json!({"apiVersion": "image.openshift.io/v1", "kind": "Image", "dockerImageLayers": []}),
            json!({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "specs": {}}),
            json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "current-context": "a"}),
            json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": {}}),
        ] {
            assert_eq!(lines(object), Vec::<String>::new());
        }
    }

    #[test]
    fn kinds_that_were_misspelt_are_named_in_their_own_group() {
        let api = "machineconfiguration.openshift.io/v1";
        let reported = "MachineConfigPol is unknown, so the object is not read; did you mean \
            MachineConfigPool?";
        assert_eq!(unread_kind("MachineConfigPol", api).as_deref(), Some(reported));
        for (kind, api) in
            [("machineConfig", api), ("configmap", "v1"), ("Rout", "route.openshift.io/v1")]
        {
            assert!(unread_kind(kind, api).is_some(), "{kind}");
        }
        for (kind, api) in [
            ("MachineConfig", api),
            ("MachineConfigNode", api),
            ("KubeletConfig", api),
            ("MachineConfigPol", "example.com/v1"),
            ("Images", "image.openshift.io/v1"),
            ("Services", "apps/v1"),
            ("ServiceAccount", "v1"),
            ("Pod", "v1"),
            ("MachineConfigPol", ""),
        ] {
            assert_eq!(unread_kind(kind, api), None, "{kind}");
        }
    }
}
