//! Tests of answers when inputs change.

use std::time::Duration;

use model::inputs::{Layering, Missing, SharedInputs};
use serde_json::{Value, json};

use super::*;

/// A valid config that contains `marker`.
fn good(marker: &str) -> Value {
    let unit = json!({"name": format!("{marker}.service"), "enabled": true});
    json!({"ignition": {"version": "3.4.0"}, "systemd": {"units": [unit]}})
}

fn bad() -> Value {
    json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "a"}]}})
}

/// A pool `worker` that names a configuration, and that with the Ignition config given.
pub(crate) fn inputs(mode: ServingMode, configuration: &str, ignition: &Value) -> Inputs {
    let pool = json!({
        "metadata": {"name": "worker"},
        "status": {"configuration": {"name": configuration}},
    });
    let config = json!({"metadata": {"name": "rendered"}, "spec": {"config": ignition}});
    let config = Arc::new(serde_json::from_value(config).unwrap());
    Inputs {
        mode,
        pools: Arc::new(
            [("worker".to_owned(), Arc::new(serde_json::from_value(pool).unwrap()))].into(),
        ),
        is_partial: false,
        machine_configs: Arc::new([("rendered".to_owned(), config)].into()),
        sources: Arc::default(),
        missing: Missing::default(),
        machines: Arc::default(),
        machine_states: BTreeMap::new(),
        layering: Layering::default(),
        shared: Arc::new(SharedInputs::default()),
        tls_profile: None,
        enforced: BTreeSet::new(),
        live_reads: 0,
        registry_credentials: model::registry_credentials::RegistryCredentials::default(),
        problems: Vec::new(),
        warnings: Vec::new(),
    }
}

fn empty(is_compact: bool) -> Arc<Answers> {
    Arc::new(Answers::new(is_compact, Arc::default()))
}

fn publish(answers: &Answers, inputs: &Inputs) -> bool {
    let is_changed = answers.replace(inputs, SystemTime::UNIX_EPOCH);
    answers.refresh();
    is_changed
}

/// The marker that the pool's machines get, or the reason for none.
async fn marker(answers: &Arc<Answers>, pool: &str) -> Result<String, Refusal> {
    let answer = answers.answer(pool, SpecVersion::V3_4, Form::Plain).await?;
    let config: Value = serde_json::from_slice(&answer.body.to_bytes()).unwrap();
    let unit = config["systemd"]["units"][0]["name"].as_str().unwrap();
    Ok(unit.trim_end_matches(".service").to_owned())
}

#[tokio::test]
async fn nothing_is_answered_before_anything_was_read() {
    let answers = empty(true);
    assert_eq!(marker(&answers, "worker").await, Err(Refusal::NotRead));
    assert_eq!(answers.unready(), ["the inputs have not been read yet"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_answer_is_rendered_for_the_next_client_although_the_first_one_disconnects() {
    let answers = empty(true);
    let inputs = inputs(ServingMode::Manifests, "rendered", &good("one"));
    answers.replace(&inputs, SystemTime::UNIX_EPOCH);
    {
        let mut first = Box::pin(answers.answer("worker", SpecVersion::V3_1, Form::Plain));
        // Mostly pending, and dropped then.
        let _ = futures_util::poll!(first.as_mut());
    }
    let rendered = async {
        while answers.pools()[0].versions != [SpecVersion::V3_1] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), rendered).await.unwrap();
}

#[tokio::test]
async fn a_change_is_served_or_leaves_the_last_good_answer() {
    let manifests = |name, ignition: &Value| inputs(ServingMode::Manifests, name, ignition);
    let one = || Ok("one".to_owned());
    for (after, served, unready) in [
        (manifests("rendered", &good("two")), Ok("two".to_owned()), None),
        (manifests("rendered", &bad()), one(), Some("storage.files[0].path")),
        (manifests("gone", &good("two")), one(), Some("MachineConfig gone not found")),
        // The pool itself has nothing to serve.
        (
            manifests("", &good("two")),
            Err(Refusal::Unselected(SelectError::NoConfiguration)),
            Some("the pool has no rendered config yet"),
        ),
        (
            Inputs { pools: Arc::default(), ..manifests("rendered", &good("two")) },
            Err(Refusal::Unselected(SelectError::UnknownPool)),
            Some("no pool found"),
        ),
    ] {
        let answers = empty(true);
        publish(&answers, &manifests("rendered", &good("one")));
        assert_eq!(marker(&answers, "worker").await, one());
        assert!(answers.unready().is_empty());
        assert!(publish(&answers, &after), "{served:?}");
        assert_eq!(marker(&answers, "worker").await, served);
        let reported = answers.unready();
        match unready {
            None => assert!(reported.is_empty(), "{reported:?}"),
            Some(reason) => {
                assert!(reported.len() == 1 && reported[0].contains(reason), "{reported:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_never_rendered_is_refused_by_its_version_and_by_its_pool() {
    let answers = empty(true);
    publish(&answers, &inputs(ServingMode::Manifests, "rendered", &bad()));
    let refused = marker(&answers, "worker").await;
    assert_eq!(refused, Err(Refusal::Unrenderable(SpecVersion::V3_4)));
    let unknown = Err(Refusal::Unselected(SelectError::UnknownPool));
    assert_eq!(marker(&answers, "other").await, unknown);

    let bootstrap = inputs(ServingMode::Bootstrap, "rendered", &good("one"));
    publish(&answers, &bootstrap);
    let waits = Err(Refusal::Unselected(SelectError::NotInBootstrap));
    assert_eq!(marker(&answers, "infra").await, waits);
    assert_eq!(marker(&answers, "master").await, unknown, "it may come");
}

#[tokio::test]
async fn the_same_inputs_are_no_change_and_the_same_bytes() {
    let answers = empty(true);
    let inputs = inputs(ServingMode::Manifests, "rendered", &good("one"));
    assert!(publish(&answers, &inputs));
    let before = answers.answer("worker", SpecVersion::V3_4, Form::Plain).await.unwrap();
    assert!(!publish(&answers, &inputs));
    let after = answers.answer("worker", SpecVersion::V3_4, Form::Plain).await.unwrap();
    assert!(Arc::ptr_eq(&before, &after));
}

#[tokio::test]
async fn what_was_good_before_is_good_for_ignition_too() {
    let manifests = |ignition: &Value| inputs(ServingMode::Manifests, "rendered", ignition);
    let answers = empty(true);
    let ask = |form| answers.answer("worker", SpecVersion::V3_4, form);
    publish(&answers, &manifests(&good("one")));
    let plain = ask(Form::Plain).await.unwrap();
    for broken in [manifests(&bad()), inputs(ServingMode::Manifests, "gone", &bad())] {
        publish(&answers, &broken);
        let compact = ask(Form::Compact).await.unwrap();
        assert_eq!(compact.configuration, plain.configuration);
        assert!(compact.body.len() < plain.body.len());
    }
    publish(&answers, &manifests(&good("two")));
    let compact = ask(Form::Compact).await.unwrap();
    assert!(compact.body.len() < ask(Form::Plain).await.unwrap().body.len());
    publish(&answers, &manifests(&bad()));
    assert_eq!(ask(Form::Compact).await.unwrap().etag, compact.etag);
}

#[tokio::test]
async fn each_form_has_its_bytes_and_its_tag_unless_all_are_to_be_plain() {
    for is_compact in [true, false] {
        let answers = empty(is_compact);
        publish(&answers, &inputs(ServingMode::Manifests, "rendered", &good("one")));
        let ask = |form| answers.answer("worker", SpecVersion::V3_4, form);
        let (plain, compact) = (ask(Form::Plain).await.unwrap(), ask(Form::Compact).await.unwrap());
        assert_eq!(Arc::ptr_eq(&plain, &compact), !is_compact);
        assert_eq!(plain.etag != compact.etag, is_compact);
        assert_eq!(compact.length, compact.body.len().to_string());
    }
}

#[test]
fn what_unauthenticated_clients_can_read_is_reported_until_a_pool_is_enforced() {
    let unit = json!({"name": "u.service", "contents": "[Service]\nEnvironment=PASSWORD=sesame\n"});
    let config = json!({"ignition": {"version": "3.4.0"}, "systemd": {"units": [unit]}});
    let open = inputs(ServingMode::Manifests, "rendered", &config);
    let answers = empty(true);
    assert_eq!(answers.exposed(), [""; 0]);
    publish(&answers, &open);
    let line = "pool worker: unauthenticated clients can read unit u.service (password)";
    assert_eq!(answers.exposed(), [line]);
    assert_eq!(answers.unready(), [""; 0], "machines get what they should");

    let enforced = Inputs { enforced: ["worker".to_owned()].into(), ..open.clone() };
    assert!(publish(&answers, &enforced));
    assert_eq!(answers.exposed(), [""; 0]);
    assert!(publish(&answers, &open));
    assert_eq!(answers.exposed(), [line]);
    publish(&answers, &inputs(ServingMode::Manifests, "rendered", &good("one")));
    assert_eq!(answers.exposed(), [""; 0]);
}

#[tokio::test]
async fn the_last_good_config_is_served_whether_or_not_a_machine_asked_before() {
    let named = |name: &str, ignition: &Value| {
        let mut inputs = inputs(ServingMode::Manifests, name, ignition);
        let config = inputs.machine_configs["rendered"].clone();
        Arc::make_mut(&mut inputs.machine_configs).insert(name.to_owned(), config);
        inputs
    };
    // A check after each change, or one after all of them, as in a burst.
    for is_burst in [false, true] {
        let answers = empty(true);
        let changed = |inputs: &Inputs| {
            answers.replace(inputs, SystemTime::UNIX_EPOCH);
            if !is_burst {
                answers.refresh();
            }
        };
        changed(&named("a", &good("one")));
        changed(&named("b", &bad()));
        changed(&named("c", &bad()));
        answers.refresh();
        assert_eq!(answers.failing(), 1);
        let [state] = &answers.pools()[..] else { panic!("one pool") };
        assert_eq!(state.configuration.as_deref(), Some("a"));
        let problem = state.problem.as_deref().unwrap();
        assert!(problem.ends_with("; serving a meanwhile"), "{problem}");
        assert!(answers.unready()[0].ends_with("; serving a meanwhile"), "{:?}", answers.unready());
        assert_eq!(marker(&answers, "worker").await, Ok("one".to_owned()));
        for form in [Form::Plain, Form::Compact] {
            let answer = answers.answer("worker", SpecVersion::V3_2, form).await.unwrap();
            assert_eq!(answer.pending.as_ref().unwrap(), "c");
            assert_eq!(&*answer.configuration, "a");
        }

        publish(&answers, &{
            let mut inputs = named("d", &good("two"));
            Arc::make_mut(&mut inputs.machine_configs).remove("d");
            inputs
        });
        assert_eq!(marker(&answers, "worker").await, Ok("one".to_owned()), "it may come");

        publish(&answers, &named("e", &good("two")));
        assert_eq!(answers.failing(), 0);
        let [state] = &answers.pools()[..] else { panic!("one pool") };
        assert_eq!((state.configuration.as_deref(), &state.problem), (Some("e"), &None));
        let answer = answers.answer("worker", SpecVersion::V3_4, Form::Plain).await.unwrap();
        assert_eq!((answer.pending.as_ref(), &*answer.configuration), (None, "e"));
        assert_eq!(marker(&answers, "worker").await, Ok("two".to_owned()));
    }
}

/// A config that specs before 3.2 cannot express.
fn with_luks(marker: &str) -> Value {
    let mut config = good(marker);
    config["storage"] = json!({"luks": [{"name": "data", "device": "/dev/vdb"}]});
    config
}

#[tokio::test]
async fn a_version_gets_the_newest_config_that_it_can_express_whatever_was_asked_for_before() {
    let versions = [SpecVersion::V2_2, SpecVersion::V3_1, SpecVersion::V3_2, SpecVersion::V3_4];
    let changes = [
        ("a", good("one"), ["a", "a", "a", "a"]),
        ("b", with_luks("two"), ["a", "a", "b", "b"]),
        ("c", with_luks("three"), ["a", "a", "c", "c"]),
        ("d", bad(), ["a", "a", "c", "c"]),
        ("e", good("four"), ["e", "e", "e", "e"]),
    ];
    // Versions that are requested after each change; all are at the end.
    for asked in [&versions[..], &versions[..1], &versions[2..], &[]] {
        let answers = empty(true);
        for (number, (name, ignition, served)) in changes.iter().enumerate() {
            let mut inputs = inputs(ServingMode::Manifests, name, ignition);
            let config = inputs.machine_configs["rendered"].clone();
            Arc::make_mut(&mut inputs.machine_configs).insert((*name).to_owned(), config);
            publish(&answers, &inputs);
            let is_last = number == 3;
            for version in if is_last { &versions[..] } else { asked } {
                let at = versions.iter().position(|it| it == version).unwrap();
                let answer = answers.answer("worker", *version, Form::Plain).await.unwrap();
                assert_eq!(&*answer.configuration, served[at], "{name} {version} {asked:?}");
                let pending = answer.pending.as_ref().map(|it| it.to_str().unwrap());
                assert_eq!(pending, (served[at] != *name).then_some(*name), "{version}");
            }
            let [state] = &answers.pools()[..] else { panic!("one pool") };
            assert_eq!(state.configuration.as_deref(), Some(served[3]), "{name} {asked:?}");
            assert_eq!(answers.unready().is_empty(), *name != "d", "{:?}", answers.unready());
            let has_asked_old = asked.contains(&SpecVersion::V2_2);
            if ["b", "c"].contains(name) {
                let problem = state.problem.as_deref().unwrap_or_default();
                let line = "a is served in Ignition spec 2.2.0, which cannot express";
                assert_eq!(problem.starts_with(line), has_asked_old, "{problem}");
            }
        }
    }
}

/// Inputs with these pools, which share one config that has `marker`.
pub(crate) fn of_pools(names: &[&str], marker: &str) -> Inputs {
    let pool = |name: &&str| {
        let status = json!({"configuration": {"name": "rendered"}});
        let pool = json!({"metadata": {"name": name}, "status": status});
        ((*name).to_owned(), Arc::new(serde_json::from_value(pool).unwrap()))
    };
    let pools = Arc::new(names.iter().map(pool).collect());
    Inputs { pools, ..inputs(ServingMode::Manifests, "rendered", &good(marker)) }
}

/// Specs that are ready to send, by pool.
fn ready(answers: &Answers) -> Vec<Vec<SpecVersion>> {
    answers.pools().into_iter().map(|pool| pool.versions).collect()
}

#[tokio::test]
async fn a_change_renders_nothing_until_a_machine_asks_and_the_rest_later() {
    let answers = empty(true);
    publish(&answers, &of_pools(&["a", "b", "c"], "one"));
    for pool in ["a", "b"] {
        assert_eq!(marker(&answers, pool).await, Ok("one".to_owned()));
    }
    let (asked, never) = (vec![SpecVersion::V3_4], vec![]);
    assert_eq!(ready(&answers), [asked.clone(), asked.clone(), never.clone()]);

    for change in ["two", "three"] {
        answers.replace(&of_pools(&["a", "b", "c"], change), SystemTime::UNIX_EPOCH);
        assert_eq!(ready(&answers), [never.clone(), never.clone(), never.clone()]);
        assert_eq!(answers.unready(), [""; 0], "machines have got an answer of all of them");
    }
    assert_eq!(marker(&answers, "a").await, Ok("three".to_owned()));
    assert_eq!(ready(&answers), [asked.clone(), never.clone(), never.clone()]);
    answers.refresh();
    assert_eq!(ready(&answers), [asked.clone(), asked, never]);
}

#[tokio::test]
async fn pools_whose_machines_asked_last_are_rendered_first() {
    let answers = empty(true);
    publish(&answers, &of_pools(&["a", "b", "c"], "one"));
    for pool in ["c", "a", "b", "c", "a"] {
        marker(&answers, pool).await.unwrap();
    }
    answers.replace(&of_pools(&["a", "b", "c"], "two"), SystemTime::UNIX_EPOCH);
    let compressed = CompressedContents::default();
    let refreshed = std::iter::from_fn(|| {
        let pool = answers.stale()?;
        pool.refresh(&compressed);
        Some(pool.name.to_string())
    });
    assert_eq!(refreshed.collect::<Vec<_>>(), ["a", "c", "b"]);
}

#[tokio::test]
async fn answers_past_the_bound_that_were_asked_for_longest_ago_are_rendered_again() {
    let answers = empty(true);
    publish(&answers, &of_pools(&["a", "b", "c"], "one"));
    for pool in ["b", "a", "c"] {
        marker(&answers, pool).await.unwrap();
    }
    let (asked, never) = (vec![SpecVersion::V3_4], vec![]);
    let held = || -> usize {
        let table = answers.table.load_full().unwrap();
        table.pools.values().map(|pool| pool.held()).sum()
    };
    let all = held();
    answers.drop_oldest(all);
    assert_eq!(ready(&answers), [asked.clone(), asked.clone(), asked.clone()]);
    answers.drop_oldest(all - 1);
    assert_eq!(ready(&answers), [asked.clone(), never.clone(), asked.clone()]);
    assert_eq!((held(), answers.unready()), (all / 3 * 2, vec![]));
    answers.refresh();
    assert_eq!(ready(&answers), [asked.clone(), never.clone(), asked.clone()], "no machine asks");
    assert_eq!(marker(&answers, "b").await, Ok("one".to_owned()));
    answers.drop_oldest(0);
    assert_eq!(ready(&answers), [never.clone(), asked, never], "the last one was asked for now");
    // The last good config stays.
    answers.replace(
        &Inputs { machine_configs: Arc::default(), ..of_pools(&["a", "b", "c"], "two") },
        SystemTime::UNIX_EPOCH,
    );
    assert_eq!(marker(&answers, "a").await, Ok("one".to_owned()));
    answers.drop_oldest(0);
    assert_eq!(marker(&answers, "b").await, Ok("one".to_owned()));
    assert_eq!(marker(&answers, "a").await, Ok("one".to_owned()));
}

#[tokio::test]
async fn a_burst_of_configs_that_cannot_be_rendered_leaves_the_last_good_one() {
    let answers = empty(true);
    answers.replace(&inputs(ServingMode::Manifests, "rendered", &good("one")), SystemTime::now());
    for _ in 0..20 {
        let broken = inputs(ServingMode::Manifests, "rendered", &bad());
        answers.replace(&broken, SystemTime::UNIX_EPOCH);
    }
    assert_eq!(marker(&answers, "worker").await, Ok("one".to_owned()));
    answers.refresh();
    assert_eq!(answers.failing(), 1);
}
