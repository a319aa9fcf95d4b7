//! Kernel arguments that Ignition sets.

use super::*;

fn pool_with(annotation: &Value) -> MachineConfigPool {
    let role = "machineconfiguration.openshift.io/role";
    let pool = json!({
        "metadata": {"name": "worker", "annotations": {KERNEL_ARGUMENTS_ANNOTATION: annotation}},
        "spec": {"machineConfigSelector": {"matchLabels": {role: "worker"}}},
    });
    serde_json::from_value(pool).unwrap()
}

/// MachineConfigs of workers in this order, each with entries for Ignition and for machine-config-daemon.
fn parsed(configs: &[(&[&str], &[&str])]) -> Vec<ParsedMachineConfig> {
    let names = ["50-a", "60-b", "70-c"];
    let config = |(name, (own, arguments)): (&str, &(&[&str], &[&str]))| {
        let config = json!({
            "ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": own},
        });
        let config = (!own.is_empty()).then_some(config);
        let spec = json!({"config": config, "kernelArguments": arguments});
        ParsedMachineConfig::new(&machine_config(name, "worker", &spec))
    };
    names.into_iter().zip(configs).map(config).collect()
}

fn merged_for_ignition(sources: &[ParsedMachineConfig]) -> Result<MachineConfig, Unmergeable> {
    merge("worker", &sources.iter().collect::<Vec<_>>(), None, ArgumentSetter::Ignition)
}

fn ignition_of(merged: &MachineConfig) -> Value {
    serde_json::from_str(&merged.ignition().unwrap()).unwrap()
}

#[test]
fn ignition_gets_each_entry_once_and_nothing_is_left_for_the_daemon() {
    let should_exist = |configs| {
        let merged = merged_for_ignition(&parsed(configs)).unwrap();
        assert_eq!(merged.spec.kernel_arguments, Some(Vec::new()));
        ignition_of(&merged)["kernelArguments"]["shouldExist"].clone()
    };
    for (configs, expected) in [
        (&[(&[][..], &["quiet", "console=ttyS0"][..])][..], json!(["quiet", "console=ttyS0"])),
        // Those of Ignition configs come first, as the daemon's come after Ignition's.
        (&[(&[], &["a"]), (&["own"], &["b"])], json!(["own", "a", "b"])),
        (&[(&["a", "b"], &["a", "c"])], json!(["a", "b", "c"])),
        // The kernel takes the last console, and so does a machine with the daemon.
        (
            &[(&[], &["console=tty0", "console=ttyS0"]), (&[], &["console=tty0"])],
            json!(["console=ttyS0", "console=tty0"]),
        ),
        (&[(&[], &["quiet", "quiet"])], json!(["quiet"])),
        // Quotes are the kernel's, and an entry of several arguments stays one.
        (
            &[(&[], &[r#"dyndbg="file a.c +p; func b +p""#, " hugepagesz=1G hugepages=4\n", ""])],
            json!([r#"dyndbg="file a.c +p; func b +p""#, "hugepagesz=1G hugepages=4"]),
        ),
        (&[(&[], &["hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=4"])], {
            json!(["hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=4"])
        }),
        (&[(&[], &[])], Value::Null),
    ] {
        assert_eq!(should_exist(configs), expected, "{configs:?}");
    }
}

#[test]
fn arguments_that_ignition_cannot_set_as_the_daemon_does_are_refused() {
    let refused = |configs: &[(&[&str], &[&str])]| {
        merged_for_ignition(&parsed(configs)).unwrap_err().to_string()
    };
    let paired = |names: &str, argument: &str| {
        format!(
            "MachineConfigs {names}: spec.kernelArguments: {argument} is repeated, and Ignition sets it once: \
             write each size of huge pages and its number as one entry, such as \"hugepagesz=1G hugepages=4\""
        )
    };
    let in_one = ["hugepagesz=2M", "hugepages=4", "hugepagesz=1G", "hugepages=4"];
    assert_eq!(refused(&[(&[], &in_one)]), paired("50-a", "hugepages=4"));
    let in_two = [(&[][..], &in_one[2..]), (&[], &["hugepagesz=1G", "hugepages=8"])];
    assert_eq!(refused(&in_two), paired("50-a, 60-b", "hugepagesz=1G"));
    assert_eq!(
        refused(&[(&[], &["quiet", "a\nb"])]),
        "MachineConfig 50-a: spec.kernelArguments[1]: it has a control character, such as the end of a line"
    );
}

#[test]
fn an_argument_that_an_ignition_config_removes_is_set_as_by_the_daemon_and_a_conflict_names_others()
{
    let removes = json!({
        "ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldNotExist": ["quiet", "splash"]},
    });
    let sources = |more: &[Arc<MachineConfig>]| -> Vec<_> {
        let adds = json!({"kernelArguments": ["quiet"]});
        let both = [
            machine_config("40-adds", "worker", &adds),
            machine_config("50-removes", "worker", &json!({"config": removes})),
        ];
        both.iter().chain(more).map(ParsedMachineConfig::new).collect()
    };
    let merged = merged_for_ignition(&sources(&[])).unwrap();
    assert_eq!(
        ignition_of(&merged)["kernelArguments"],
        json!({"shouldExist": ["quiet"], "shouldNotExist": ["splash"]})
    );
    let without_contents = file("60-file", json!({"path": "/a"}));
    let error = merged_for_ignition(&sources(&[without_contents])).unwrap_err().to_string();
    assert!(error.starts_with("MachineConfigs 60-file: file /a has no contents"), "{error}");
}

#[test]
fn the_origin_of_an_argument_is_its_machine_config_regardless_of_who_sets_it() {
    let parsed = parsed(&[(&["own"], &["quiet"]), (&[], &["quiet", "psi=1"])]);
    let sources: Vec<_> = parsed.iter().collect();
    let of = |setter| -> Vec<String> {
        let origins = origins(&sources, setter).unwrap().into_iter();
        let origins = origins.filter(|it| it.place.to_lowercase().contains("kernelarguments"));
        origins
            .map(|it| format!("{} {} {}", it.place, it.keys[0], it.members[0].machine_config))
            .collect()
    };
    assert_eq!(
        of(ArgumentSetter::Ignition),
        [
            "kernelArguments.shouldExist own 50-a",
            "kernelArguments.shouldExist quiet 60-b",
            "kernelArguments.shouldExist psi=1 60-b",
        ]
    );
    assert_eq!(
        of(ArgumentSetter::Daemon),
        [
            "kernelArguments.shouldExist own 50-a",
            "spec.kernelArguments quiet 50-a",
            "spec.kernelArguments quiet 60-b",
            "spec.kernelArguments psi=1 60-b",
        ]
    );
}

#[test]
fn the_annotation_of_a_pool_decides_and_a_change_of_it_merges_the_pool_again() {
    let spec = json!({"kernelArguments": ["quiet"]});
    let configs: BTreeMap<_, _> =
        [("50-a".to_owned(), machine_config("50-a", "worker", &spec))].into();
    let mut merged = MergedPools::default();
    let mut become_ = |annotation: Value| {
        update(&mut merged, &[pool_with(&annotation)], &configs, None);
        let outcome = merged.get("worker").unwrap();
        let outcome = outcome.map(|it| (it.name().to_owned(), json!(it.spec.kernel_arguments)));
        (outcome.map_err(ToString::to_string), merged.merges())
    };
    let by_daemon = become_(Value::Null);
    assert_eq!(by_daemon.0.as_ref().unwrap().1, json!(["quiet"]));
    let by_ignition = become_(json!("ignition"));
    assert_eq!(by_ignition.0.as_ref().unwrap().1, json!([]));
    assert_eq!(become_(json!("ignition")), by_ignition, "it is not merged again");
    for (annotation, shown) in
        [(json!("Ignition"), "\"Ignition\""), (json!(""), "\"\""), (json!(true), "\"\"")]
    {
        let reason = become_(annotation).0.unwrap_err();
        let key = "machine-config-server.io/kernel-arguments";
        assert_eq!(reason, format!("{key}: {shown}: expected machine-config-daemon or ignition"));
    }
    assert_eq!(become_(json!("machine-config-daemon")).0, by_daemon.0, "by default, and by name");
    assert_eq!(become_(json!("ignition")).0, by_ignition.0);
}

#[test]
fn an_annotation_is_unused_on_a_config_that_still_has_arguments_for_the_daemon() {
    let with =
        |arguments: Value| machine_config("m", "worker", &json!({"kernelArguments": arguments}));
    let rendered = "machine-config-server.io/kernel-arguments: no effect: MachineConfig m was not rendered by it: \
                    it works where this program renders the pool";
    for (annotation, arguments, expected) in [
        (json!("ignition"), json!(["quiet"]), Some(rendered)),
        (json!("ignition"), json!([]), None),
        (json!("ignition"), Value::Null, None),
        (json!("machine-config-daemon"), json!(["quiet"]), None),
        (Value::Null, json!(["quiet"]), None),
        (
            json!("no"),
            json!([]),
            Some(
                "machine-config-server.io/kernel-arguments: \"no\": expected machine-config-daemon or ignition",
            ),
        ),
    ] {
        let unused = unused_setter(&pool_with(&annotation), &with(arguments));
        assert_eq!(unused.as_deref(), expected, "{annotation}");
    }
}
