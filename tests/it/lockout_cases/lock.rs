//! Who holds a lock keeps no machine from booting, and nobody waiting for ever.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use super::{Place, boot, wait_until_logged, wait_until_reported};
use crate::support::server::binary;
use crate::support::wait_until;

fn locked(place: &Place, name: &str) -> File {
    let file = File::open(place.file(name)).expect("it is there");
    file.lock().expect("a lock");
    file
}

#[test]
fn a_lock_on_the_directory_itself_holds_up_nobody() {
    let place = Place::made(None);
    fs::set_permissions(place.state(), Permissions::from_mode(0o755)).expect("chmod");
    // As everybody may who can list it.
    let _lock = locked(&place, ".");
    {
        let server = place.serve_anyhow(None, &[]);
        boot(&place.pointer(), &server);
    }
    place.certs(&["rotate"]).done();
    let lock = fs::metadata(place.file(".lock")).expect("a file");
    assert_eq!(lock.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_server_serves_what_is_there_and_writes_the_rest_when_the_lock_is_free() {
    let place = Place::made(None);
    let handed_out = place.pointer();
    let other = locked(&place, ".lock");
    let server = place.serve_anyhow(None, &[]);
    boot(&handed_out, &server);
    wait_until_reported(&server, "certificates: ");
    wait_until_logged(&server, "/.lock: another process has held this lock for 2 s");
    // It listens elsewhere now.
    let port = format!(":{}/", server.secure().port());
    assert!(!place.pointer().contains(&port));
    drop(other);
    wait_until("the pointer config", || place.pointer().contains(&port));
    boot(&place.pointer(), &server);
}

#[test]
fn a_command_says_what_it_waits_for() {
    let place = Place::made(None);
    let other = locked(&place, ".lock");
    let mut command = binary();
    command.args(["certs", "rotate", "--state-dir"]).arg(place.state());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the built binary");
    let mut said = String::new();
    let stderr = child.stderr.take().expect("a pipe");
    BufReader::new(stderr).read_line(&mut said).expect("a line");
    assert!(said.contains("waiting for another process that changes "), "{said}");
    drop(other);
    assert!(child.wait().expect("its end").success());
    place.certs(&["check"]).done();
}
