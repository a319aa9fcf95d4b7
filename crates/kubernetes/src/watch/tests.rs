use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::*;

/// A server that gives these answers, by status and body, and then none.
fn api_server(answers: impl IntoIterator<Item = (u16, String)>) -> Api<ConfigMap> {
    let answers: VecDeque<_> = answers.into_iter().collect();
    let answers = Arc::new(Mutex::new(answers));
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = answers.lock().unwrap().pop_front();
        async move {
            let Some((status, body)) = answer else { return std::future::pending().await };
            let body = Body::from(body.into_bytes());
            Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
        }
    });
    Api::namespaced(Client::new(service, "ns"), "ns")
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": "1"}})
}

fn list(names: &[&str]) -> (u16, String) {
    let items: Vec<_> = names.iter().map(|name| map(name)).collect();
    (200, json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string())
}

/// Changes in one watch, which ends after them.
fn changes(changes: &[(&str, Value)]) -> (u16, String) {
    let line = |(type_, object): &(&str, Value)| json!({"type": type_, "object": object});
    let lines: Vec<_> = changes.iter().map(|change| line(change).to_string() + "\n").collect();
    (200, lines.concat())
}

fn status(code: u16, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Because", "code": code,
    })
}

fn refusal(code: u16) -> (u16, String) {
    (code, status(code, "the message").to_string())
}

async fn next(watch: &mut Watch<ConfigMap>) -> String {
    match watch.next().await {
        WatchEvent::Seen(Event::Init) => "list begins".to_owned(),
        WatchEvent::Seen(Event::InitApply(map)) => format!("listed {}", map.name_any()),
        WatchEvent::Seen(Event::InitDone) => "synced".to_owned(),
        WatchEvent::Seen(Event::Apply(map)) => format!("applied {}", map.name_any()),
        WatchEvent::Seen(Event::Delete(map)) => format!("deleted {}", map.name_any()),
        WatchEvent::Works => "works".to_owned(),
        WatchEvent::Failed(failure) => format!("{:?}: {}", failure.cause, failure.reason),
    }
}

#[test]
fn a_failure_is_judged_by_its_status_whatever_failed() {
    let status = |code| {
        let message = "the message".to_owned();
        kube::core::Status { code, message, ..kube::core::Status::default() }.boxed()
    };
    let api = |code| kube::Error::Api(status(code));
    for (error, cause) in [
        (watcher::Error::InitialListFailed(api(404)), Cause::NoSuchKind),
        (watcher::Error::WatchStartFailed(api(404)), Cause::NoSuchKind),
        (watcher::Error::InitialListFailed(api(403)), Cause::Forbidden),
        (watcher::Error::WatchFailed(api(403)), Cause::Forbidden),
        (watcher::Error::WatchError(status(403)), Cause::Forbidden),
        (watcher::Error::WatchError(status(410)), Cause::Other),
        (watcher::Error::InitialListFailed(api(503)), Cause::Other),
    ] {
        let expected = Failure { reason: "the message".to_owned(), cause };
        assert_eq!(Failure::of(&error), expected, "{error:?}");
    }
    let unreached = kube::Error::Service("nobody\nanswers".into());
    let failure = Failure::of(&watcher::Error::InitialListFailed(unreached));
    assert_eq!(failure.cause, Cause::Other);
    assert!(failure.reason.contains("nobody answers"), "{}", failure.reason);
    let silent = kube::core::Status { code: 500, ..kube::core::Status::default() }.boxed();
    assert!(!Failure::of(&watcher::Error::WatchError(silent)).reason.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_failed_begins_with_a_list_and_one_that_is_too_old_does_not_fail() {
    let gone = || ("ERROR", status(410, "too old"));
    let api = api_server([
        list(&["a", "b"]),
        changes(&[("MODIFIED", map("a")), ("DELETED", map("b")), gone()]),
        list(&["c"]),
        changes(&[gone()]),
        list(&[]),
    ]);
    let mut watch = Watch::new(api, None);
    for expected in [
        "list begins",
        "listed a",
        "listed b",
        "synced",
        "applied a",
        "deleted b",
        "list begins",
        "listed c",
        "synced",
        "Other: too old",
        "list begins",
        "synced",
        "works",
    ] {
        assert_eq!(next(&mut watch).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_waits_grow_until_the_watch_works_and_a_wait_that_is_dropped_continues() {
    let answers = (0..3).flat_map(|_| [list(&[]), refusal(403)]);
    let mut watch = Watch::new(api_server(answers.chain([list(&[])])), None);
    let mut least = FIRST_WAIT;
    for _ in 0..3 {
        for expected in ["list begins", "synced", "Forbidden: the message"] {
            assert_eq!(next(&mut watch).await, expected);
        }
        let failed = Instant::now();
        let interrupted = tokio::time::timeout(FIRST_WAIT / 2, watch.next()).await;
        assert!(interrupted.is_err(), "{interrupted:?}");
        let Stage::Failed(until) = watch.stage else { panic!("it waits") };
        let wait = until - failed;
        assert!((least..=2 * least).contains(&wait), "{wait:?}, not {least:?}");
        least *= 2;
    }
    for expected in ["list begins", "synced", "works"] {
        assert_eq!(next(&mut watch).await, expected);
    }
    assert!(watch.waits.next() <= 2 * FIRST_WAIT);
}

#[tokio::test(start_paused = true)]
async fn one_object_is_seen_as_it_is_and_as_it_becomes() {
    let api = api_server([
        list(&["a"]),
        changes(&[("DELETED", map("a")), ("ADDED", map("a"))]),
        refusal(404),
        list(&[]),
    ]);
    let mut watch = ObjectWatch::new(api, "a");
    let mut seen = async || match watch.next().await {
        ObjectSeen::Present(map) => map.name_any(),
        ObjectSeen::Absent => "absent".to_owned(),
        ObjectSeen::Failed(failure) => format!("{:?}", failure.cause),
    };
    for expected in ["a", "absent", "a", "NoSuchKind", "absent"] {
        assert_eq!(seen().await, expected);
    }
}
