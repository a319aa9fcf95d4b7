//! Many pools and many more MachineConfigs in a real cluster's API, two servers that follow them, and
//! as many machines as come up after a power cut: how long each takes, and what a server holds and uses.
//!
//! ```text
//! cargo bench --bench scale                       # the table
//! cargo bench --bench scale -- --check            # and fail where a target is missed
//! cargo bench --bench scale -- --pools 50 --machine-configs 500 --machines 500 --seconds 5
//! cargo bench --bench scale -- --reference PROGRAM   # OpenShift's server instead
//! cargo bench --bench scale -- --directory           # a directory of so many pools, and of twice as many
//! ```
//!
//! The API is a kube-apiserver on an etcd, which `tests/kubernetes/install` names or makes; the servers
//! run with the rights and the flags that `deploy/kubernetes` gives them. All of it is on this machine's
//! loopback interface, in a scratch folder, and shares its processors with the machines.
//!
//! | file | about |
//! | --- | --- |
//! | `options` | what can be asked for |
//! | `cluster` | etcd and the API server |
//! | `objects` | what is made in them |
//! | `replica` | one of the two servers |
//! | `reference` | the same, of the machine config operator |
//! | `change` | a pool gets another config, or all pools something new |
//! | `directory` | a directory in place of the cluster |
//! | `fleet` | the machines, and the process that they are |
//! | `report` | the table, the targets |

#[allow(dead_code, reason = "one of several benchmarks that use it")]
#[path = "../boot_storm/machine.rs"]
mod machine;
#[allow(dead_code, reason = "one of several benchmarks that use it")]
#[path = "../boot_storm/manifests.rs"]
mod manifests;
#[path = "../boot_storm/processes.rs"]
mod processes;
#[allow(dead_code, reason = "one of several benchmarks that use it")]
#[path = "../boot_storm/servers.rs"]
mod servers;
#[path = "../boot_storm/units.rs"]
mod units;

mod change;
mod cluster;
mod directory;
mod fleet;
mod objects;
mod options;
mod reference;
mod replica;
mod report;

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::runtime::Runtime;

use crate::cluster::Cluster;
use crate::fleet::Fleet;
use crate::objects::Amounts;
use crate::options::{Options, Role};
use crate::replica::{Program, Replica};
use crate::report::{Column, Report};

fn main() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let options = Options::parse();
    match &options.role {
        Some(Role::Fleet(fleet)) => fleet.run(),
        None if options.directory => directory::measure(&options),
        None => measure(&options),
    }
}

fn measure(options: &Options) -> Result<()> {
    let scratch = tempfile::tempdir().context("no scratch directory")?;
    let runtime = Runtime::new()?;
    let cluster = Cluster::start(&runtime, scratch.path())?;
    fill(&runtime, options, &cluster)?;

    let program = match &options.reference {
        Some(binary) => Program::Reference(binary),
        None => Program::Ours(&options.server),
    };
    let start = |name| Replica::start(&runtime, &program, &cluster, scratch.path(), name);
    let replicas = [start("first")?, start("second")?];
    let mut columns = replicas.each_ref().map(|replica| Column::new(replica.started));
    at_rest(options.rest(), &replicas, &mut columns)?;

    let changes = change::measure(&runtime, options.changes, &cluster, &replicas)?;
    for (column, changes) in columns.iter_mut().zip(changes) {
        column.changes = changes;
    }
    boot(options, &cluster, &replicas, &mut columns)?;
    let shared = change::measure_shared(&runtime, &cluster, &replicas)?;
    for ((column, shared), replica) in columns.iter_mut().zip(shared).zip(&replicas) {
        column.shared_change = shared;
        column.peak_memory = processes::peak_memory(replica.pid())?;
    }
    sleep(options.rest());
    for (replica, column) in replicas.iter().zip(&mut columns) {
        column.memory_after = processes::resident_memory(replica.pid())?;
    }
    let report = Report { columns };
    println!("\n{report}");
    if options.check { report.check() } else { Ok(()) }
}

fn fill(runtime: &Runtime, options: &Options, cluster: &Cluster) -> Result<()> {
    let amounts = Amounts {
        pools: options.pools,
        changes: options.changes,
        machine_configs: options.machine_configs,
    };
    let started = Instant::now();
    runtime.block_on(objects::make(cluster, amounts))?;
    println!(
        "{} pools and {} MachineConfigs made in {:.0} s; then {} machines in {} s",
        options.pools,
        options.machine_configs,
        started.elapsed().as_secs_f64(),
        options.machines,
        options.seconds
    );
    Ok(())
}

/// What the servers use while nothing is asked of them and nothing changes.
fn at_rest(window: Duration, replicas: &[Replica; 2], columns: &mut [Column; 2]) -> Result<()> {
    // What the start took is given back meanwhile.
    sleep(window);
    let cpu_times = || replicas.each_ref().map(|replica| processes::cpu_time(replica.pid()));
    let (before, begun) = (cpu_times(), Instant::now());
    sleep(window);
    let (after, took) = (cpu_times(), begun.elapsed());
    for (column, (before, after)) in columns.iter_mut().zip(before.into_iter().zip(after)) {
        let used = after?.saturating_sub(before?);
        column.cpu_at_rest = used.as_secs_f64() / took.as_secs_f64();
    }
    for (replica, column) in replicas.iter().zip(columns) {
        column.memory = processes::resident_memory(replica.pid())?;
    }
    Ok(())
}

/// The machines come.
fn boot(
    options: &Options,
    cluster: &Cluster,
    replicas: &[Replica; 2],
    columns: &mut [Column; 2],
) -> Result<()> {
    let fleet = Fleet {
        addresses: replicas.iter().map(Replica::address).collect(),
        ca: cluster.pair.certificate.clone(),
        machines: options.machines,
        seconds: options.seconds,
        pools: options.pools,
        seed: options.seed,
    };
    let before = replicas.each_ref().map(|replica| processes::cpu_time(replica.pid()));
    let booted = fleet.run_in_own_process()?;
    for (((column, replica), before), booted) in
        columns.iter_mut().zip(replicas).zip(before).zip(booted)
    {
        let cpu = processes::cpu_time(replica.pid())?.saturating_sub(before?);
        column.cpu_per_boot = cpu / booted.boots.max(1);
        column.booted = booted;
    }
    Ok(())
}
