//! What it costs to make a config, which happens once per change and spec version and never per
//! request; and to read an Accept header and to note in the boot ledger who asked, which is what a
//! request does besides.
//!
//! ```text
//! cargo bench --bench micro               # everything
//! cargo bench --bench micro -- lower      # what has "lower" in its name
//! ```
//!
//! The config is the boot storm's, some 440 KB as it is served.

#[path = "boot_storm/manifests.rs"]
mod manifests;

use std::hint::black_box;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use criterion::{BatchSize, Criterion};
use machine_config_server::ignition::{Config, Form, SpecVersion, negotiate};
use machine_config_server::ledger::{Ledger, Request};
use machine_config_server::render::{CompressedContents, PoolInputs, render, select};
use machine_config_server::source::directory::{Directory, Layout};
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
    measure_ledger(&mut criterion);
    criterion.final_summary();
    Ok(())
}

fn measure_negotiate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("negotiate");
    for (name, accept) in ACCEPT_HEADERS {
        group.bench_function(name, |bencher| bencher.iter(|| negotiate(Some(black_box(accept)))));
    }
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
            answer: Ok(("rendered-worker-0123456789abcdef", &*sha256)),
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
    let text = inputs.machine_config.ignition().context("a machine config without a config")?;
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
    let (_, inputs) = Directory::open(Layout::Tree { root })?;
    Ok(select(&inputs, "master")?)
}
