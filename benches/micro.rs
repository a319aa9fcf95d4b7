//! What it costs to make a config, which happens once per change and spec version and never per
//! request; and to read an Accept header, to judge a token and to note in the boot ledger who asked, which
//! is what a request does besides.
//!
//! ```text
//! cargo bench --bench micro               # everything
//! cargo bench --bench micro -- lower      # what has "lower" in its name
//! ```
//!
//! The config is the boot storm's, some 440 KB as it is served.

#[path = "boot_storm/manifests.rs"]
mod manifests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, Result};
use criterion::{BatchSize, Criterion};
use ignition::{Config, Form, SpecVersion, negotiate};
use machine_config_server::source::Butane;
use machine_config_server::source::directory::{Directory, Layout};
use model::access::{
    self, AccessMode, Credential, KnownTokens, Modes, Policy, Record, Records, Token, decide,
};
use model::ledger::{Ledger, Request};
use model::merged_pool::{ByLabels, MergedPools};
use model::objects::{MachineConfig, MachineConfigPool, ROLE_LABEL};
use model::render::{CompressedContents, PoolInputs, render, select};
use serde_json::json;
use time::OffsetDateTime;

/// As Ignition 2.18 (spec 3.4) sends it, and one that has to be searched for something servable.
const ACCEPT_HEADERS: [(&str, &str); 2] = [
    ("ignition", "application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1"),
    (
        "ranked",
        "text/html, application/vnd.coreos.ignition+json;version=4.0.0, \
         application/vnd.coreos.ignition+json;version=2.2.0;q=0.5, \
         application/vnd.coreos.ignition+json;version=3.5.0;q=0.8, */*;q=0.1",
    ),
];

fn main() -> Result<()> {
    let inputs = inputs()?;
    let mut criterion = Criterion::default().configure_from_args();
    measure_negotiate(&mut criterion);
    measure_convert(&mut criterion, &inputs)?;
    measure_render(&mut criterion, &inputs)?;
    measure_access(&mut criterion);
    measure_ledger(&mut criterion);
    measure_merge(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn measure_negotiate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("negotiate");
    for (name, accept) in ACCEPT_HEADERS {
        group.bench_function(name, |bencher| bencher.iter(|| negotiate(Some(black_box(accept)))));
    }
}

/// What it costs to judge a request where a thousand tokens are known: one that has one of them, one that
/// has another, and one that has none.
fn measure_access(criterion: &mut Criterion) {
    let token = |number: u32| {
        let mut random = [0; 32];
        random[..4].copy_from_slice(&number.to_le_bytes());
        Token::new(random)
    };
    let made = OffsetDateTime::UNIX_EPOCH;
    let pools = || ["worker".to_owned()].into();
    let record = |number| Record {
        sha256: token(number).hash(),
        name: None,
        pools: pools(),
        made,
        until: None,
        revoked: None,
    };
    let tokens = (0..1_000).map(record).collect();
    let records = Records { tokens, enforced: pools(), ..Records::default() };
    let wanted = [("worker".to_owned(), AccessMode::Enforce)].into();
    let policy = Policy {
        modes: Modes::new(AccessMode::Enforce, &wanted, &BTreeSet::new(), Some(&records)),
        tokens: KnownTokens::new(&records),
        ..Policy::default()
    };
    let header = |number| format!("Bearer {}", token(number).as_str());
    let mut group = criterion.benchmark_group("access");
    for (name, header) in
        [("known", header(500)), ("unknown", header(5_000)), ("none", String::new())]
    {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let values = Some(header.as_bytes()).filter(|value| !value.is_empty());
                let request = access::Request {
                    pool: "worker",
                    address: Ipv4Addr::LOCALHOST.into(),
                    is_private: true,
                    user_agent: "Ignition/2.14.0",
                    credential: Credential::of(black_box(values)),
                    has_failed_often: false,
                };
                decide(&request, &policy, made)
            });
        });
    }
    group.finish();
}

/// What a request costs in a ledger that is full: from a machine that is in it, and from others, of
/// which each takes another's place.
fn measure_ledger(criterion: &mut Criterion) {
    let ledger = Ledger::default();
    let sha256 = "0".repeat(64);
    let now = OffsetDateTime::UNIX_EPOCH;
    let asked = |number: u32| {
        let request = Request {
            address: Ipv4Addr::from_bits(number).into(),
            pool: "worker",
            user_agent: "Ignition/2.14.0",
            spec: None,
            without_tls: false,
            answer: Ok(("rendered-worker-0123456789abcdef", &*sha256)),
            would_be_refused: None,
        };
        ledger.asked(&request, now);
    };
    (0..20_000).for_each(asked);
    let mut group = criterion.benchmark_group("ledger");
    group.bench_function("known", |bencher| bencher.iter(|| asked(black_box(15_000))));
    let mut number = 20_000;
    group.bench_function("new", |bencher| {
        bencher.iter(|| {
            number += 1;
            asked(number);
        });
    });
}

fn measure_convert(criterion: &mut Criterion, inputs: &PoolInputs) -> Result<()> {
    let text = &*inputs.machine_config.ignition().context("a machine config without a config")?;
    criterion.bench_function("parse", |bencher| bencher.iter(|| Config::parse(black_box(text))));
    let config = Config::parse(text)?;
    let mut group = criterion.benchmark_group("lower");
    for version in SpecVersion::ALL {
        // A refusal would be quick, and its figure worth nothing.
        config.clone().lower(version)?;
        group.bench_function(version.as_str(), |bencher| {
            let copy = || config.clone();
            bencher.iter_batched(copy, |config| config.lower(version), BatchSize::SmallInput);
        });
    }
    Ok(())
}

fn measure_render(criterion: &mut Criterion, inputs: &PoolInputs) -> Result<()> {
    for (name, form) in [("render", Form::Plain), ("compact", Form::Compact)] {
        let mut group = criterion.benchmark_group(name);
        for version in SpecVersion::ALL {
            let render =
                || render(black_box(inputs), version, form, &CompressedContents::default());
            render()?;
            group.bench_function(version.as_str(), |bencher| bencher.iter(render));
        }
    }
    Ok(())
}

/// The pool `master` of the boot storm's cluster, read as `serve` reads it.
fn inputs() -> Result<PoolInputs> {
    let scratch = tempfile::tempdir()?;
    let root = scratch.path().join("manifests");
    manifests::write(&root)?;
    let (_, inputs) = Directory::open(Layout::Tree {
        root,
        registry_credentials: None,
        is_strict: false,
        memory: None,
        butane: Butane::default(),
    })?;
    Ok(select(&inputs, "master")?)
}

/// 100 pools of 30 MachineConfigs with ten files of 2 KB each: all of them at a start, and what a change of one costs.
fn measure_merge(criterion: &mut Criterion) -> Result<()> {
    let config = |pool: usize, number: usize, text: &str| -> Result<_> {
        let source = format!("data:,{}", text.repeat(2_000));
        let file =
            |file| json!({"path": format!("/etc/{number}/{file}"), "contents": {"source": source}});
        let files: Vec<_> = (0..10).map(file).collect();
        let config = json!({
            "metadata": {"name": format!("{pool}-{number}"), "labels": {ROLE_LABEL: format!("p{pool}")}},
            "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}},
        });
        let config: Arc<MachineConfig> = Arc::new(serde_json::from_str(&config.to_string())?);
        Ok((config.name().to_owned(), config))
    };
    let pools: Vec<_> =
        (0..100).map(|pool| MachineConfigPool::of_role(&format!("p{pool}"))).collect();
    let all = (0..100).flat_map(|pool| (0..30).map(move |number| (pool, number)));
    let configs = all.map(|(pool, number)| config(pool, number, "a"));
    let mut configs = configs.collect::<Result<BTreeMap<_, _>>>()?;
    let mut group = criterion.benchmark_group("merge");
    group.sample_size(10);
    group.bench_function("all", |bencher| {
        bencher.iter(|| merge(&mut MergedPools::default(), &pools, black_box(&configs)));
    });
    let mut merged = MergedPools::default();
    merge(&mut merged, &pools, &configs);
    let mut changes = [config(7, 12, "b")?, config(7, 12, "c")?].into_iter().cycle();
    group.bench_function("one", |bencher| {
        bencher.iter(|| {
            configs.extend(changes.next());
            merge(&mut merged, &pools, &configs);
        });
    });
    Ok(())
}

fn merge(
    merged: &mut MergedPools,
    pools: &[MachineConfigPool],
    configs: &BTreeMap<String, Arc<MachineConfig>>,
) {
    let due = merged.update(pools, &ByLabels::new(configs.values()), None);
    let results: Vec<_> = due.iter().map(|due| due.merge(&HashMap::new(), None)).collect();
    merged.insert(due.into_iter().zip(results));
}
