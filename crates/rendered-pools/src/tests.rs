use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::objects::{MachineConfig, MachineConfigSpec};
use proptest::prelude::*;

use super::*;

fn merged(name: &str) -> Arc<MachineConfig> {
    Arc::new(MachineConfig::new(name, &BTreeMap::new(), MachineConfigSpec::default()))
}

fn pool(spec: &str, merged: Arc<MachineConfig>) -> PoolState {
    PoolState {
        name: "worker".to_owned(),
        uid: "u".to_owned(),
        spec: spec.to_owned(),
        status: String::new(),
        served: spec.to_owned(),
        is_paused: false,
        merged: Ok(merged),
        known: Vec::new(),
        last_set: None,
        last_served: None,
    }
}

fn own(revision: u64) -> RenderedConfig {
    of_pool("u", revision)
}

fn of_pool(uid: &str, revision: u64) -> RenderedConfig {
    RenderedConfig::Own { pool_uid: uid.to_owned(), revision, is_changed: false }
}

fn changed(revision: u64) -> RenderedConfig {
    RenderedConfig::Own { pool_uid: "u".to_owned(), revision, is_changed: true }
}

fn configs<const N: usize>(configs: [(&str, RenderedConfig); N]) -> RenderedConfigs {
    configs.map(|(name, config)| (name.to_owned(), config)).into()
}

/// A plan in a word or two.
fn told(plan: &PoolPlan) -> String {
    match plan {
        PoolPlan::Keep => "keep".to_owned(),
        PoolPlan::Hold(hold) => hold.to_string(),
        PoolPlan::Render(rendering) => writes(rendering),
    }
}

fn writes(Rendering { machine_config, prepare, set }: &Rendering) -> String {
    let prepare = prepare.map(|prepare| format!("{prepare:?}"));
    let set = set.map(|set| format!("{set:?}"));
    let writes: Vec<String> = prepare.into_iter().chain(set).collect();
    format!("{}: {}", machine_config.name(), writes.join(", "))
}

#[test]
fn a_rendered_machine_config_that_cannot_be_stored_is_not_written() {
    let of = |bytes: usize| {
        let config = format!("\"{}\"", "x".repeat(bytes));
        let config = Some(serde_json::from_str(&config).unwrap());
        let spec = MachineConfigSpec { config, ..MachineConfigSpec::default() };
        pool("", Arc::new(MachineConfig::new("new", &BTreeMap::new(), spec)))
    };
    let none = configs([]);
    assert_eq!(told(&plan(&of(MAX_STORED_BYTES - 1_000), &none)), "new: Create(1), Spec");
    let held = told(&plan(&of(MAX_STORED_BYTES), &none));
    assert!(held.contains("cannot be stored: it has 1573"), "{held}");
    assert!(held.contains("stores at most 1572864"), "{held}");
    // One that is there was stored.
    let named =
        PoolState { spec: "new".to_owned(), served: "new".to_owned(), ..of(MAX_STORED_BYTES) };
    assert_eq!(told(&plan(&named, &configs([("new", own(1))]))), "keep");
}

#[test]
fn a_pool_is_set_to_what_its_machine_configs_come_to() {
    let there = configs([
        ("a", own(3)),
        ("b", own(4)),
        ("altered", changed(2)),
        ("stranger", of_pool("other", 9)),
        ("theirs", RenderedConfig::Generated),
        ("custom", RenderedConfig::Custom),
    ]);
    for (pool, expected) in [
        (pool("", merged("new")), "new: Create(5), Spec"),
        (pool("a", merged("a")), "keep"),
        (pool("a", merged("b")), "b: Reuse(5), Spec"),
        (pool("b", merged("new")), "new: Create(5), Spec"),
        // It is gone, or was never there.
        (pool("lost", merged("lost")), "lost: Create(5)"),
        (pool("lost", merged("a")), "a: Reuse(5), Spec"),
        // An earlier pool of this name left it behind.
        (pool("stranger", merged("stranger")), "stranger: Reuse(5)"),
        (pool("theirs", merged("a")), "a: Reuse(5), Spec"),
        // Another client changed it.
        (pool("altered", merged("altered")), "altered: Repair(5)"),
        (pool("a", merged("altered")), "altered: Reuse(5), Spec"),
        // Servers serve what the status names, until it names the same.
        (serves("old", pool("a", merged("a"))), "a: Status"),
        (serves("old", pool("a", merged("b"))), "b: Reuse(5), Spec"),
        (serves("old", pool("altered", merged("altered"))), "altered: Repair(5)"),
        (PoolState { is_paused: true, ..serves("old", pool("a", merged("a"))) }, "keep"),
        (PoolState { is_paused: true, ..pool("", merged("new")) }, "keep"),
        (PoolState { merged: Err("conflict".to_owned()), ..pool("a", merged("a")) }, "conflict"),
    ] {
        assert_eq!(told(&plan(&pool, &there)), expected, "{pool:?}");
    }
}

fn serves(served: &str, pool: PoolState) -> PoolState {
    PoolState { status: served.to_owned(), served: served.to_owned(), ..pool }
}

#[test]
fn what_a_pool_keeps_is_written_again_if_its_contents_are_known_and_reported_otherwise() {
    let there = configs([
        ("a", own(3)),
        ("altered", changed(4)),
        ("theirs", RenderedConfig::Generated),
        ("custom", RenderedConfig::Custom),
    ]);
    let held = |spec: &str| PoolState { is_paused: true, ..pool(spec, merged("b")) };
    let knows =
        |pool: PoolState| PoolState { known: ["altered", "lost"].map(merged).into(), ..pool };
    for (pool, expected) in [
        (held(""), &[][..]),
        (held("a"), &[]),
        (held("theirs"), &[]),
        (serves("custom", held("a")), &[]),
        (held("lost"), &["it names MachineConfig lost, which does not exist"]),
        (serves("lost", held("a")), &["it names MachineConfig lost, which does not exist"]),
        (held("altered"), &["it names MachineConfig altered, whose contents are not"]),
        (knows(held("altered")), &["altered: Repair(5)"]),
        (knows(held("lost")), &["lost: Create(5)"]),
        (knows(serves("altered", held("lost"))), &["altered: Repair(5)", "lost: Create(5)"]),
    ] {
        let faults = faults(&pool, &there);
        assert_eq!(faults.len(), expected.len(), "{pool:?}");
        for (fault, expected) in faults.iter().zip(expected) {
            let fault = match fault {
                Fault::Repairable(rendering) => writes(rendering),
                Fault::Lost(loss) => loss.to_string(),
            };
            assert!(fault.starts_with(expected), "{fault} {pool:?}");
        }
    }
}

#[test]
fn what_others_decide_is_left_to_them_and_reported() {
    let there = configs([
        ("a", own(3)),
        ("theirs", RenderedConfig::Generated),
        ("custom", RenderedConfig::Custom),
    ]);
    let hold = |pool: &PoolState| match plan(pool, &there) {
        PoolPlan::Hold(hold) => Some(hold),
        _ => None,
    };
    let custom = || "custom".to_owned();
    assert_eq!(hold(&pool("custom", merged("a"))), Some(HoldReason::Custom(custom())));
    assert_eq!(hold(&pool("a", merged("custom"))), Some(HoldReason::Taken(custom())));
    // Once is a start, twice is a fight.
    let fought = PoolState { last_set: Some("a".to_owned()), ..pool("theirs", merged("a")) };
    assert_eq!(hold(&fought), Some(HoldReason::Contested("theirs".to_owned())));
    let set_back = serves("old", pool("a", merged("a")));
    let set_back = PoolState { last_served: Some("a".to_owned()), ..set_back };
    assert_eq!(hold(&set_back), Some(HoldReason::SetBack("old".to_owned())));
    let rendered_anew = PoolState { last_served: Some("b".to_owned()), ..set_back };
    assert_eq!(hold(&rendered_anew), None);
    let given_back = PoolState { spec: String::new(), ..fought };
    assert_eq!(hold(&given_back), None);
}

#[test]
fn only_what_has_owner_annotation_and_name_and_no_role_is_ours() {
    let name = format!("rendered-worker-{}", "0123456789abcdef".repeat(2));
    let own = Origin {
        owner: Some(("worker", "u")),
        generated_by: "machine-config-server/0.1.0",
        revision: "7",
        has_role: false,
    };
    assert_eq!(RenderedConfig::of(&name, &own), of_pool("u", 7));
    let generated = RenderedConfig::Generated;
    let longer = format!("{name}0");
    for (name, origin, is_rendered, expected) in [
        // Copies that administrators made of it.
        ("50-mine", own, false, &generated),
        (&name[..], Origin { has_role: true, ..own }, false, &generated),
        (&longer, own, false, &generated),
        (&name[..name.len() - 1], own, false, &generated),
        (&name.to_uppercase(), own, false, &generated),
        (&name.replace("worker", "infra"), own, false, &generated),
        (&name, Origin { owner: None, ..own }, false, &generated),
        (&name, Origin { generated_by: "", ..own }, false, &RenderedConfig::Custom),
        // One of the machine config operator.
        (&name, Origin { generated_by: "4c1f2e", ..own }, true, &generated),
    ] {
        assert_eq!(RenderedConfig::of(name, &origin), *expected, "{name} {origin:?}");
        assert_eq!(origin.is_rendered(name), is_rendered, "{name} {origin:?}");
    }
}

#[test]
fn the_latest_and_all_that_is_named_are_kept() {
    let mut there: RenderedConfigs =
        (0..30).map(|revision| (format!("r{revision:02}"), own(revision))).collect();
    there.insert("theirs".to_owned(), RenderedConfig::Generated);
    there.insert("custom".to_owned(), RenderedConfig::Custom);
    let mut pool = pool("r01", merged("r29"));
    pool.status = "r02".to_owned();
    let served: BTreeSet<String> = ["r03".to_owned()].into();
    let gone = expired(std::slice::from_ref(&pool), &there, &served);
    let expected: Vec<String> = (0..19).rev().map(|revision| format!("r{revision:02}")).collect();
    let named = ["r01", "r02", "r03"];
    let expected: Vec<&str> =
        expected.iter().map(String::as_str).filter(|name| !named.contains(name)).collect();
    assert_eq!(gone, expected);
    assert_eq!(there.len() - gone.len(), MAX_UNNAMED + 6);

    // Of a pool that is gone, nothing is for a look back.
    let gone = expired(&[], &there, &served);
    assert_eq!(gone.len(), 29);
    assert!(!gone.contains(&"r03") && !gone.contains(&"theirs") && !gone.contains(&"custom"));
}

/// Objects of an API server, with a version that grows with each write.
#[derive(Default)]
struct Store {
    version: u64,
    pool: (u64, String, String),
    configs: BTreeMap<String, (u64, RenderedConfig)>,
}

#[derive(Debug, Clone)]
enum Write {
    Create(String, RenderedConfig),
    Reuse(String, u64, RenderedConfig),
    Set(String, u64),
    Delete(String, u64),
}

impl Store {
    /// Makes a write if what it was planned on is still so.
    fn apply(&mut self, write: Write) -> bool {
        let version = |store: &Self, name: &str| store.configs.get(name).map(|it| it.0);
        self.version += 1;
        let new = self.version;
        match write {
            Write::Create(name, config) if version(self, &name).is_none() => {
                self.configs.insert(name, (new, config));
            }
            Write::Reuse(name, read, config) if version(self, &name) == Some(read) => {
                self.configs.insert(name, (new, config));
            }
            Write::Delete(name, read) if version(self, &name) == Some(read) => {
                self.configs.remove(&name);
            }
            Write::Set(name, read) if self.pool.0 == read => {
                (self.pool.0, self.pool.2) = (new, name);
            }
            _ => return false,
        }
        true
    }

    fn tamper(&mut self, name: &str) {
        self.version += 1;
        if let Some((version, RenderedConfig::Own { is_changed, .. })) = self.configs.get_mut(name)
        {
            (*version, *is_changed) = (self.version, true);
        }
    }

    /// The writes of a controller that looks at it.
    fn planned(&self, wanted: &str) -> Vec<Write> {
        let (version, uid, spec) = &self.pool;
        let state = PoolState { uid: uid.clone(), ..pool(spec, merged(wanted)) };
        let there: RenderedConfigs =
            self.configs.iter().map(|(name, it)| (name.clone(), it.1.clone())).collect();
        let mut writes = Vec::new();
        if let PoolPlan::Render(rendering) = plan(&state, &there) {
            let name = rendering.machine_config.name().to_owned();
            let own = |revision| of_pool(uid, revision);
            writes.extend(rendering.prepare.map(|prepare| match prepare {
                Prepare::Create(revision) => Write::Create(name.clone(), own(revision)),
                Prepare::Reuse(revision) | Prepare::Repair(revision) => {
                    Write::Reuse(name.clone(), self.configs[&name].0, own(revision))
                }
            }));
            writes.extend(rendering.set.map(|_| Write::Set(name, *version)));
        }
        let gone = expired(&[state], &there, &BTreeSet::new());
        writes.extend(
            gone.iter().map(|name| Write::Delete((*name).to_owned(), self.configs[*name].0)),
        );
        writes
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// An administrator changes MachineConfigs.
    Change(u8),
    /// The pool is deleted and created again.
    Renew,
    /// A controller looks, and plans.
    Look(usize),
    /// It makes its next write.
    Write(usize),
    /// It is killed.
    Kill(usize),
    /// Another client changes the contents of a rendered MachineConfig.
    Tamper(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (0..16_u8).prop_map(Event::Change),
        1 => Just(Event::Renew),
        8 => (0..2_usize).prop_map(Event::Look),
        16 => (0..2_usize).prop_map(Event::Write),
        1 => (0..2_usize).prop_map(Event::Kill),
        3 => (0..16_u8).prop_map(Event::Tamper),
    ];
    prop::collection::vec(event, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Two controllers that take themselves for the active one, held up and killed at any time.
    #[test]
    fn a_pool_names_a_machine_config_that_is_there_whatever_happens(events in events()) {
        let mut store = Store::default();
        store.pool.1 = "u0".to_owned();
        let mut wanted = "r00".to_owned();
        let mut queues = [Vec::new(), Vec::new()];
        for (at, event) in events.into_iter().enumerate() {
            match event {
                Event::Change(to) => wanted = format!("r{to:02}"),
                Event::Renew => {
                    store.version += 1;
                    store.pool = (store.version, format!("u{at}"), String::new());
                }
                Event::Look(controller) => queues[controller] = store.planned(&wanted),
                Event::Kill(controller) => queues[controller].clear(),
                Event::Tamper(name) => store.tamper(&format!("r{name:02}")),
                Event::Write(controller) => {
                    let queue = &mut queues[controller];
                    if !queue.is_empty() {
                        let write = queue.remove(0);
                        // Another controller came first: it looks again before it writes more.
                        if !store.apply(write) {
                            queue.clear();
                        }
                    }
                }
            }
            let named = &store.pool.2;
            prop_assert!(named.is_empty() || store.configs.contains_key(named), "{named} is gone");
        }
    }

    /// One controller alone settles: its second look deletes the MachineConfig that the first one has left without a name.
    #[test]
    fn nothing_is_left_to_do_after_two_looks(events in events()) {
        let mut store = Store::default();
        store.pool.1 = "u0".to_owned();
        for event in events {
            let to = match event {
                Event::Change(to) => to,
                Event::Tamper(name) => {
                    store.tamper(&format!("r{name:02}"));
                    continue;
                }
                _ => continue,
            };
            let wanted = format!("r{to:02}");
            for _ in 0..2 {
                for write in store.planned(&wanted) {
                    prop_assert!(store.apply(write));
                }
                prop_assert_eq!(&store.pool.2, &wanted);
            }
            prop_assert!(store.planned(&wanted).is_empty());
            let named = &store.configs[&wanted].1;
            let is_intact = matches!(named, RenderedConfig::Own { is_changed: false, .. });
            prop_assert!(is_intact, "{named:?}");
            prop_assert!(store.configs.len() <= MAX_UNNAMED + 1);
        }
    }
}
