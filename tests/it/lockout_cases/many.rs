//! Rotations that are asked for again and again.

use super::{Place, boot};

/// What a chain comes to in a handshake.
fn sent_bytes(place: &Place) -> usize {
    4 + place.chain().iter().map(|certificate| certificate.der().len() + 5).sum::<usize>()
}

/// So many minutes ago.
fn ago(minutes: u32) -> String {
    format!("-{minutes}m")
}

#[test]
fn eighty_rotations_in_a_row_leave_the_first_and_the_last_pointer_config_booting() {
    // First one in each minute, and then one in each hour.
    const ROTATIONS: u32 = 80;
    const EAGER: u32 = 40;
    let minute = |round: u32| round.min(EAGER) + round.saturating_sub(EAGER) * 61;
    let begin = minute(ROTATIONS) + 10;
    let place = Place::made(Some(&ago(begin)));
    let mut pointers = vec![place.pointer()];
    let [mut made, mut joined, mut refused] = [0; 3];
    for round in 1..=ROTATIONS {
        let at = ago(begin - minute(round));
        let forced = round == 3 || round == 4;
        let arguments = ["rotate", "--ca", "--force"];
        let said = place.certs_at(Some(&at), &arguments[..if forced { 3 } else { 2 }]);
        match said.status {
            0 if said.text().contains("made a signing CA") => made += 1,
            0 => {
                assert!(said.text().contains("and serves this request too"), "{}", said.text());
                joined += 1;
            }
            _ => {
                said.refused(&["a new signing CA is refused", "the served chain"]);
                refused += 1;
            }
        }
        assert!(sent_bytes(&place) <= 16 * 1024, "{} after {round}", sent_bytes(&place));
        let pointer = place.pointer();
        if pointers.last() != Some(&pointer) {
            pointers.push(pointer);
        }
    }
    assert!(made > 20 && joined > 30 && refused > 0, "{made} {joined} {refused}");
    for pointer in pointers.iter().step_by(8) {
        place.assert_boots(pointer);
    }
    let server = place.serve(None, &[]);
    boot(&pointers[0], &server);
    boot(&place.pointer(), &server);
    place.certs(&["check"]).done();
}

#[test]
fn rotations_with_keys_of_rsa_4096_stay_below_the_bound() {
    let place = Place::empty();
    drop(place.serve(Some("-2d"), &["--key-algorithm", "rsa4096"]));
    let oldest = place.pointer();
    let mut made = 0;
    loop {
        let round = made + 1;
        let at = ago(2 * 24 * 60 - round * 90);
        let said = place.certs_at(Some(&at), &["rotate", "--ca", "--key-algorithm", "rsa4096"]);
        let is_made = said.status == 0;
        if !is_made {
            said.refused(&["a new signing CA is refused", "the served chain"]);
        }
        assert!(sent_bytes(&place) <= 16 * 1024, "{} after {round}", sent_bytes(&place));
        place.assert_boots(&oldest);
        if !is_made {
            break;
        }
        made = round;
    }
    assert!((5..12).contains(&made), "{made}");
    let server = place.serve(None, &[]);
    boot(&oldest, &server);
    boot(&place.pointer(), &server);
}
