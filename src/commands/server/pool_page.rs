//! Serves the page of a pool: the machine that its config makes, and the difference to the config before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use http::StatusCode;
use ignition::Config;
use inspect::{Machine, changes, machine};
use status::overview::MachineLine;
use status::page::{PoolView, counts, pool_page};
use time::OffsetDateTime;

use super::overview::{Sources, html_response};

/// Time for comparing texts; the differences found until then are enough.
const COMPARED_FOR: Duration = Duration::from_millis(500);

/// The page of each pool, at `/pools/POOL`.
pub(in crate::commands) fn router(sources: Arc<Sources>) -> Router {
    Router::new().route("/pools/{pool}", get(html)).with_state(sources)
}

async fn html(State(sources): State<Arc<Sources>>, Path(name): Path<String>) -> Response {
    let machines = sources.machines().await;
    let pool = sources.pools(&machines.lines).into_iter().find(|pool| pool.name == name);
    let configs = tokio::task::block_in_place(|| sources.answers.configs(&name));
    let (Some(pool), Some(configs)) = (pool, configs) else {
        return (StatusCode::NOT_FOUND, "no pool has this name\n").into_response();
    };
    let of_pool = |line: &&MachineLine| {
        line.machine.requests.as_ref().is_some_and(|requests| requests.pool == name)
    };
    let of_pool: Vec<_> = machines.lines.iter().filter(of_pool).collect();
    let counts = counts(|rank| of_pool.iter().filter(|line| line.status.rank == rank).count());
    tokio::task::block_in_place(|| {
        let machine = configs.served.as_ref().and_then(|(_, body)| read(body));
        let before = configs.before.as_ref().and_then(|(name, body)| Some((name, read(body)?)));
        let until = Instant::now() + COMPARED_FOR;
        let before = before
            .and_then(|(name, before)| Some((name, changes(&before, machine.as_ref()?, until))));
        html_response(pool_page(&PoolView {
            at: OffsetDateTime::now_utc(),
            server: &sources.server(),
            pool: &pool,
            machines: &counts,
            machine: machine.as_ref(),
            before: before.as_ref().map(|(name, changes)| (&name[..], &changes[..])),
        }))
    })
}

/// Reads the machine that a rendered config makes.
fn read(body: &Bytes) -> Option<Machine> {
    let config = Config::parse(str::from_utf8(body).ok()?).ok()?;
    Some(machine(&config, None))
}
