//! Tokens where the state directory is in a bad way, and the clock.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::access::{
    assert_refused, credential, embedded_token, enforcing, get, unknown, with_annotated_pool,
    without_headers,
};
use crate::support::clock::follow_clock;
use crate::support::command::{Said, Store};
use crate::support::disk::Disk;
use crate::support::http::Client;
use crate::support::in_repository;
use crate::support::manifests::{copied_fixtures, pool, write};
use crate::support::server::{Server, serving_with_access};
use crate::support::{wait_asking, wait_for, wait_until};

/// A server on a state directory that stays, which enforces.
fn serve(state: &Path) -> Server {
    Server::prepared(serving_with_access(&in_repository("ignition-fixtures"), state, "enforce"))
}

fn tls(server: &Server, state: &Path) -> Client {
    Client::tls(server.secure(), &fs::read(state.join("ca.crt")).expect("the CA"))
}

fn tokens(state: &Path, arguments: &[&str]) -> Said {
    state.run(&[&["tokens"], arguments].concat())
}

fn status(client: &Client, credential: Option<&str>) -> u16 {
    get(client, "worker", credential).status
}

/// Unauthenticated clients get nothing on either port, whatever they bring.
fn assert_closed(server: &Server, state: &Path) {
    for client in [tls(server, state), server.plain()] {
        for credential in [None, Some(&*unknown()), Some("Bearer x")] {
            let answer = get(&client, "worker", credential);
            assert!(matches!(answer.status, 401 | 503), "{credential:?}: {answer:?}");
            assert!(answer.body.len() < 200, "{answer:?}");
        }
    }
}

/// A state directory from which a server has run, and what workers bring along.
fn used() -> (TempDir, String) {
    let state = tempfile::tempdir().expect("a temporary folder");
    let server = serve(state.path()).until_ready();
    let good = wait_for("a token", || embedded_token(state.path(), "worker"));
    drop(server);
    (state, good)
}

/// Number of lines that a command says, without the one that it waits for the server: it may have to on a busy machine.
fn lines(said: &str) -> usize {
    said.lines().filter(|line| !line.contains(": waiting for another process")).count()
}

#[test]
fn a_read_only_state_directory_has_tokens_that_count() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let disk = Disk::mount(state.path(), 1024);
    drop(serve(state.path()).until_ready());
    let good = wait_for("a token", || embedded_token(state.path(), "worker"));
    disk.remount("ro");
    let server = serve(state.path()).until_ready();
    assert_eq!(status(&tls(&server, state.path()), Some(&good)), 200);
    assert_closed(&server, state.path());
    assert_refused(&get(&tls(&server, state.path()), "worker", None));
    let said = tokens(state.path(), &["rotate"]);
    said.refused(&[".json: Read-only file system"]);
    assert_eq!(lines(&said.error), 1, "{}", said.error);
    assert_eq!(status(&tls(&server, state.path()), Some(&good)), 200);
}

#[test]
fn a_full_disk_refuses_nobody_and_the_rotation_ends_when_there_is_room() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let _disk = Disk::mount(directory.path(), 1024);
    let state = directory.path().join("state");
    drop(serve(&state).until_ready());
    let good = wait_for("a token", || embedded_token(&state, "worker"));
    tokens(&state, &["rotate"]).done();
    // Beside the state directory, where nothing tells that it is gone.
    let filler = directory.path().join("filler");
    // It ends when the disk is full.
    let _ = fs::write(&filler, vec![0_u8; 2 << 20]);
    let server = serve(&state);
    assert_eq!(status(&tls(&server, &state), Some(&good)), 200);
    assert_closed(&server, &state);
    let reported = wait_for("it to be told", || {
        server.degraded_lines().into_iter().find(|line| line.contains("access.json"))
    });
    assert!(
        reported.contains("No space left on device") && reported.lines().count() == 1,
        "{reported}"
    );
    let said = tokens(&state, &["add", "rack-7", "--pool", "worker", "--until", "never"]);
    said.refused(&["access.json: No space left"]);
    assert!(said.output.is_empty(), "it is not shown");
    assert_eq!(lines(&said.error), 1, "{}", said.error);
    assert_eq!(embedded_token(&state, "worker"), Some(good.clone()), "it carries what is accepted");
    fs::remove_file(&filler).expect("a file");
    let new = wait_for("the rotation to end", || {
        embedded_token(&state, "worker").filter(|now| *now != good)
    });
    for credential in [&good, &new] {
        assert_eq!(status(&tls(&server, &state), Some(credential)), 200);
    }
    assert_closed(&server, &state);
}

#[test]
fn a_full_disk_opens_no_pool_that_is_to_be_enforced() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let _disk = Disk::mount(directory.path(), 1024);
    let state = directory.path().join("state");
    let audited = serving_with_access(&in_repository("ignition-fixtures"), &state, "audit");
    drop(Server::prepared(audited).until_ready());
    let good = wait_for("a token", || embedded_token(&state, "worker"));
    // It ends when the disk is full.
    let _ = fs::write(directory.path().join("filler"), vec![0_u8; 2 << 20]);
    let server = serve(&state);
    assert_eq!(status(&tls(&server, &state), Some(&good)), 200);
    assert_closed(&server, &state);
    wait_until("it to be told", || server.degraded().contains("No space left on device"));
}

#[test]
fn a_token_written_by_hand_into_a_pointer_config_opens_nothing() {
    let (directory, good) = used();
    let server = serve(directory.path()).until_ready();
    let pointers = directory.path().join("user-data");
    let text = fs::read_to_string(pointers.join("worker.ign")).expect("a pointer config");
    let made_up = unknown();
    let planted = text.replace(&good, &made_up);
    assert_ne!(planted, text);
    fs::write(pointers.join("planted.ign"), planted).expect("a writable folder");
    wait_until("it to carry the pool's token", || {
        let now = fs::read_to_string(pointers.join("planted.ign")).expect("a pointer config");
        now.contains(&good)
    });
    let client = tls(&server, directory.path());
    assert_eq!((status(&client, Some(&made_up)), status(&client, Some(&good))), (503, 200));
}

#[test]
fn a_clock_that_was_ahead_holds_up_rotation_until_an_administrator_confirms_it() {
    let (directory, good) = used();
    for file in ["tokens.json", "access.json"] {
        let path = directory.path().join(file);
        let text = fs::read(&path).expect("a file");
        let mut list: Value = serde_json::from_slice(&text).expect("JSON");
        for token in list["tokens"].as_array_mut().expect("tokens") {
            token["made"] = "2099-01-01T00:00:00Z".into();
        }
        fs::write(&path, list.to_string()).expect("a writable folder");
    }
    let server = serve(directory.path()).until_ready();
    let reported = |server: &Server| server.degraded().contains("made later than now");
    wait_until("it to be told", || reported(&server));
    let Said { status: code, error, .. } = tokens(directory.path(), &["rotate"]);
    assert!(error.ends_with("check the clock, or use --force if it is right\n"), "{error}");
    assert_eq!((code, lines(&error)), (1, 1), "{error}");
    assert_eq!(embedded_token(directory.path(), "worker"), Some(good.clone()));

    tokens(directory.path(), &["rotate", "--force"]).done();
    let new = wait_for("a new token", || {
        embedded_token(directory.path(), "worker").filter(|now| *now != good)
    });
    wait_until("it to be told no more", || !reported(&server));
    for credential in [&good, &new] {
        assert_eq!(status(&tls(&server, directory.path()), Some(credential)), 200);
    }
}

/// What comes later and has no headers is refused, and opens nothing. Only a plain one is lifted.
fn give_one_without_headers(server: &Server, state: &Path) {
    let text = fs::read(state.join("user-data/worker.ign")).expect("a pointer config");
    let mut pointer = without_headers(&text);
    pointer["ignition"]["version"] = "3.0.0".into();
    pointer["storage"] = serde_json::json!({"files": [{"path": "/etc/rack"}]});
    fs::write(state.join("user-data/old.ign"), pointer.to_string()).expect("a writable folder");
    wait_until("it to be told", || {
        server.degraded().contains("the requests of its machines are refused: old")
    });
}

#[test]
fn lists_that_are_lost_open_no_pool_after_a_restart() {
    let (directory, good) = used();
    let state = directory.path();
    let mut server = serve(state).until_ready();
    give_one_without_headers(&server, state);
    fs::remove_file(state.join("access.json")).expect("a file");
    wait_asking("it to be made anew", || {
        assert_closed(&server, state);
        fs::read_to_string(state.join("access.json")).ok()?.contains("worker").then_some(())
    });
    for is_all_lost in [false, true] {
        server.stop();
        if is_all_lost {
            for list in ["access.json", "tokens.json"] {
                fs::remove_file(state.join(list)).expect("a file");
            }
        }
        server = serve(state).until_ready();
        assert_closed(&server, state);
        let unauthenticated = status(&tls(&server, state), None);
        assert_eq!(unauthenticated, if is_all_lost { 503 } else { 401 });
        assert_eq!(status(&tls(&server, state), Some(&good)), 200);
    }
    let line = "pool worker: it was or could have been enforced";
    assert!(server.degraded().contains(line), "{}", server.degraded());
}

#[test]
fn a_pool_that_appears_while_tokens_cannot_be_written_is_opened_by_no_restart() {
    let (directory, good) = used();
    let state = directory.path();
    let (_top, manifests) = copied_fixtures();
    let mut server =
        Server::prepared(serving_with_access(&manifests, state, "enforce")).until_ready();
    let pinned = Disk::pin(&state.join("tokens.json"));
    write(&manifests, "new.json", pool("new", "rendered-worker"));
    for start in 0..2 {
        let reported = "pool new: it is unknown whether its pointer configs have tokens";
        let contested = "pool new: it was or could have been enforced";
        wait_until("it to be told", || {
            let degraded = server.degraded();
            degraded.contains(reported) || degraded.contains(contested)
        });
        assert!(state.join("user-data/new.ign").exists());
        assert_eq!(get(&tls(&server, state), "new", None).status, 503, "{start}");
        assert_eq!(status(&tls(&server, state), Some(&good)), 200);
        assert_refused(&get(&tls(&server, state), "worker", None));
        server.stop();
        server = Server::prepared(serving_with_access(&manifests, state, "enforce"));
    }
    drop(pinned);
    wait_until("it to be enforced", || get(&tls(&server, state), "new", None).status == 401);
}

#[test]
fn pools_that_are_missing_stay_enforced_and_come_back_so() {
    let (directory, good) = used();
    let state = directory.path();
    let (top, manifests) = copied_fixtures();
    let server = Server::prepared(serving_with_access(&manifests, state, "enforce")).until_ready();
    give_one_without_headers(&server, state);
    let client = tls(&server, state);
    let (pools, away) = (manifests.join("pools.yaml"), top.path().join("pools.yaml"));
    fs::rename(&pools, &away).expect("a rename");
    let readiness = || String::from_utf8(server.metrics().get("/readyz").body).expect("text");
    wait_until("the pools to be missing", || readiness().contains("is missing"));
    assert_eq!(status(&client, Some(&good)), 200);
    assert_closed(&server, state);
    assert_refused(&get(&client, "worker", None));
    fs::rename(&away, &pools).expect("a rename");
    wait_until("the pools to be back", || !readiness().contains("is missing"));
    assert_eq!(status(&client, Some(&good)), 200);
    assert_closed(&server, state);
    assert_refused(&get(&client, "worker", None));
}

/// What is wrong with a file, put in its place.
type Fault = (&'static str, fn(&Path));

const FAULTS: [Fault; 5] = [
    ("cut short", |path| {
        let text = fs::read(path).expect("a file");
        fs::write(path, &text[..text.len() / 2]).expect("a writable folder");
    }),
    ("empty", |path| fs::write(path, "").expect("a writable folder")),
    ("a folder", |path| {
        fs::remove_file(path).expect("a file");
        fs::create_dir(path).expect("a writable folder");
    }),
    ("a list", |path| fs::write(path, "[]").expect("a writable folder")),
    ("no text", |path| fs::write(path, [0xff, 0, 0xfe]).expect("a writable folder")),
];

#[test]
fn a_broken_file_opens_nothing_and_its_name_is_reported() {
    let (directory, good) = used();
    let state = directory.path();
    for file in ["tokens.json", "access.json"] {
        let path = state.join(file);
        let whole = fs::read(&path).expect("a file");
        for (name, fault) in FAULTS {
            let reported = |server: &Server| {
                let lines = wait_for(name, || {
                    let lines = server.degraded_lines();
                    let lines: Vec<_> = lines.into_iter().filter(|it| it.contains(file)).collect();
                    (!lines.is_empty()).then_some(lines)
                });
                assert!(lines.len() == 1 && lines[0].lines().count() == 1, "{name}: {lines:?}");
                assert!(!lines[0].contains("mcs-"), "{lines:?}");
            };
            // While a server runs, it goes by what it knows.
            let server = serve(state).until_ready();
            assert_eq!(status(&tls(&server, state), Some(&good)), 200);
            fault(&path);
            reported(&server);
            assert_eq!(status(&tls(&server, state), Some(&good)), 200, "{file} is {name}");
            assert_closed(&server, state);
            drop(server);
            // One that starts refuses nobody for good.
            let server = serve(state);
            reported(&server);
            let expected = if file == "tokens.json" { 200 } else { 503 };
            let answer = status(&tls(&server, state), Some(&good));
            assert_eq!(answer, expected, "{file} is {name}");
            assert_closed(&server, state);
            let error = tokens(state, &["rotate"]).error;
            assert!(error.contains(file) && lines(&error) == 1, "{name}: {error}");
            // As it was, it is as it was.
            if path.is_dir() {
                fs::remove_dir(&path).expect("a folder");
            }
            fs::write(&path, &whole).expect("a writable folder");
            wait_until("it to be mended", || status(&tls(&server, state), Some(&good)) == 200);
            wait_until("it to be told no more", || !server.degraded().contains(file));
        }
    }
    assert_eq!(embedded_token(state, "worker"), Some(good), "nothing was made anew");
}

#[test]
fn a_foreign_file_in_place_of_a_pointer_config_stays_and_opens_nothing() {
    let (directory, good) = used();
    let state = directory.path();
    let path = state.join("user-data/worker.ign");
    for text in [
        r#"{"ignition":{"version":"3.4.0","config":{"merge":[{"source":"https://else.example/config/worker"}]}}}"#,
        r#"{"ignition":{"version":"2.2.0","config":{"append":[{"source":"https://else.example/config/worker"}]}}}"#,
        r#"{"ignition":{"version":"3.0.0"}}"#,
        "#!/bin/sh\n",
        "\u{0}\u{ff}",
    ] {
        fs::write(&path, text).expect("a writable folder");
        let server = serve(state).until_ready();
        assert_eq!(status(&tls(&server, state), Some(&good)), 200, "{text}");
        assert_closed(&server, state);
        assert_refused(&get(&tls(&server, state), "worker", None));
        assert_eq!(fs::read_to_string(&path).expect("text"), text, "it is left as it is");
    }
}

#[test]
fn a_pool_that_cannot_be_made_ready_is_reported_and_not_opened_by_its_neighbours() {
    let manifests = with_annotated_pool("worker", "\"off\"");
    let server = Server::serve(manifests.path(), &["--access", "enforce"]);
    let open = get(&server.plain(), "worker", None);
    assert_eq!(open.status, 200);
    assert_refused(&get(&server.plain(), "master", None));
    assert_eq!(get(&server.plain(), "nowhere", None).status, 503, "it may be read in a moment");
}

#[test]
fn a_clock_that_is_wrong_refuses_nobody_and_opens_nothing() {
    let (directory, good) = used();
    let state = directory.path();
    let clocks = tempfile::tempdir().expect("a temporary folder");
    let clock = clocks.path().join("clock");
    let set = |by: &str| {
        fs::write(clocks.path().join("new"), by).expect("a writable folder");
        fs::rename(clocks.path().join("new"), &clock).expect("a rename");
    };
    let mut handed_out = vec![good];
    for (by, is_due) in [("+8d", true), ("-8d", false), ("+0", false), ("-20y", false)] {
        set(by);
        let mut command =
            serving_with_access(&in_repository("ignition-fixtures"), state, "enforce");
        follow_clock(&mut command, &clock);
        let server = Server::prepared(command).until_ready();
        if is_due {
            let new = wait_for("a new token", || {
                embedded_token(state, "worker").filter(|now| !handed_out.contains(now))
            });
            handed_out.push(new);
        }
        for credential in &handed_out {
            let answer = get(&tls(&server, state), "worker", Some(credential));
            assert_eq!(answer.status, 200, "{by}: {answer:?}");
        }
        assert_closed(&server, state);
        // The same while it runs.
        for by in ["-3d", "+3d"] {
            set(by);
            for credential in &handed_out {
                assert_eq!(status(&tls(&server, state), Some(credential)), 200, "{by}");
            }
            assert_closed(&server, state);
        }
    }
}

#[test]
fn a_token_of_the_last_day_that_there_is_ends_no_server() {
    let mut server = enforcing(&[]);
    let good = credential(&server, "worker");
    let until = ["add", "never", "--pool", "worker", "--until", "9999-12-31"];
    let token = format!("Bearer {}", tokens(&server.state(), &until).output.trim());
    for credential in [&token, &good] {
        wait_until("the server to know it", || status(&server.tls(), Some(credential)) == 200);
    }
    assert!(server.is_running());
}
