//! A state directory on a disk that takes no more.

use std::fs;
use std::path::PathBuf;

use super::{Place, boot, identity, wait_until_logged, wait_until_reported};
use crate::support::disk::Disk;

/// All files of a state directory as they are.
fn all(place: &Place) -> Vec<(PathBuf, (u64, Vec<u8>))> {
    let files = ["ca.key", "ca.crt", "tls.key", "tls.crt", "user-data/worker.ign"];
    files.map(|name| (place.file(name), identity(&place.file(name)))).to_vec()
}

#[test]
fn a_read_only_state_directory_is_served_from_and_reported() {
    let place = Place::empty();
    let disk = Disk::mount(&place.state(), 1024);
    drop(place.serve(None, &[]));
    let (before, handed_out) = (all(&place), place.pointer());
    disk.remount("ro");
    {
        // One more name is due, and cannot be written.
        let server = place.serve_anyhow(None, &["--host", "mcs.example.com"]);
        wait_until_reported(&server, "certificates: ");
        wait_until_logged(&server, "Read-only file system");
        boot(&handed_out, &server);
    }
    place.certs(&["check"]).done();
    place.certs(&["rotate", "--ca"]).refused(&["Read-only file system"]);
    assert!(all(&place) == before);

    disk.remount("rw");
    drop(place.serve(None, &["--host", "mcs.example.com"]));
    place.certs(&["check"]).done();
    place.assert_boots(&handed_out);
}

#[test]
fn a_full_disk_loses_nothing_and_what_was_due_is_done_when_there_is_room() {
    let place = Place::empty();
    let _disk = Disk::mount(&place.state(), 1024);
    drop(place.serve(None, &[]));
    let handed_out = place.pointer();
    // So many pages are left, so that it ends in the middle of a rotation, a little later each time.
    for pages in 0..6 {
        let before = place.text("ca.key");
        let mut filler = vec![0_u8; 2 << 20];
        let path = place.file("filler");
        let _ = fs::write(&path, &filler);
        let full = fs::metadata(&path).expect("a file").len();
        filler.truncate(usize::try_from(full).expect("a size").saturating_sub(pages * 4096));
        fs::write(&path, &filler).expect("a file that is smaller than before");

        let said = place.certs(&["rotate", "--ca", "--force"]);
        if said.status != 0 {
            said.refused(&["No space left on device"]);
        }
        assert!(before.lines().all(|line| place.text("ca.key").contains(line)));
        place.assert_boots(&handed_out);
        place.assert_boots(&place.pointer());
        {
            let server = place.serve_anyhow(None, &[]);
            // It takes its time.
            if pages == 0 {
                boot(&handed_out, &server);
            }
        }
        fs::remove_file(&path).expect("a file");
        drop(place.serve(None, &[]));
        place.certs(&["check"]).done();
        place.assert_boots(&handed_out);
    }
    assert!(fs::read_dir(place.state()).expect("a folder").count() < 12, "nothing is left over");
}
