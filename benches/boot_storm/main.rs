//! A boot storm: many machines at once, each with a connection, a full TLS 1.3 handshake and one
//! config of some 440 KB, against this server and against nginx with the same bytes as a static
//! file, the same key and the same certificate.
//!
//! ```text
//! cargo bench --bench boot_storm                       # the table
//! cargo bench --bench boot_storm -- --check            # and fail where a target is missed
//! cargo bench --bench boot_storm -- --concurrency 256 --rounds 3
//! ```
//!
//! The two take turns, because a shared machine is never the same from one minute to the next: only
//! figures of neighbouring rounds are compared, and the ratio shown is the median of those of the
//! rounds. The load comes from a process of its own, so that what it costs is in nobody's figures.
//!
//! | file | about |
//! | --- | --- |
//! | `options` | what can be asked for |
//! | `manifests` | the cluster that is served |
//! | `certificates` | the pair that both servers present |
//! | `servers` | starting and ending the two |
//! | `processes` | what a server has used, from `/proc` |
//! | `storm` | the load, and the process that it runs in |
//! | `machine` | one boot |
//! | `report` | rounds, the table, the targets |

mod certificates;
mod machine;
mod manifests;
mod options;
mod processes;
mod report;
mod servers;
mod storm;

use std::fs;

use anyhow::{Context, Result};
use clap::Parser;

use crate::options::{Options, Role};
use crate::report::{Measured, Report, Round};
use crate::servers::Server;
use crate::storm::Storm;

fn main() -> Result<()> {
    let options = Options::parse();
    match &options.role {
        Some(Role::Storm(storm)) => storm.run(),
        None => compare(&options),
    }
}

fn compare(options: &Options) -> Result<()> {
    let scratch = tempfile::tempdir().context("no scratch directory")?;
    let pair = certificates::issue(scratch.path())?;
    let manifests = scratch.path().join("manifests");
    manifests::write(&manifests)?;

    let ours = servers::start_ours(&options.server, &manifests, &pair, scratch.path())?;
    let config = storm::first_config(ours.address, &pair.ca)?;
    let config_file = scratch.path().join("config/master");
    fs::create_dir(scratch.path().join("config"))?;
    fs::write(&config_file, &config)?;
    let nginx = servers::start_nginx(&pair, scratch.path())?;
    storm::first_config(nginx.address, &pair.ca)?;

    let measure = |server: &Server, boots: u32| -> Result<Measured> {
        let storm = Storm {
            address: server.address,
            ca: pair.ca.clone(),
            config: config_file.clone(),
            boots,
            seconds: options.seconds,
            concurrency: options.concurrency,
        };
        let before = processes::cpu_time(server.pid())?;
        let outcome = storm.run_in_own_process()?;
        let cpu = processes::cpu_time(server.pid())?.saturating_sub(before);
        Ok(Measured { outcome, cpu_per_boot: cpu / outcome.boots.max(1) })
    };

    println!(
        "{} bytes a boot, {} at once, up to {} boots or {} s a round",
        config.len(),
        options.concurrency,
        options.boots,
        options.seconds
    );
    for server in [&ours, &nginx] {
        measure(server, options.boots.div_ceil(4)).context("warming up")?;
    }
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let round = Round {
            ours: measure(&ours, options.boots)?,
            nginx: measure(&nginx, options.boots)?,
        };
        println!("{round}");
        rounds.push(round);
    }
    let report = Report {
        rounds,
        our_peak_memory: processes::peak_memory(ours.pid())?,
        nginx_peak_memory: processes::peak_memory(nginx.pid())?,
    };
    println!("\n{report}");
    if options.check { report.check() } else { Ok(()) }
}
