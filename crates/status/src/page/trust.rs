//! Draws the picture of trust: pointer configs on the left, the CAs that they trust in the middle, and the certificate on
//! the right.

use escape::cut;

use crate::overview::{PointerGroup, TrustMap, TrustedCertificate};

/// Boxes in a column; the table has all.
const MAX_BOXES: usize = 30;
/// Characters in a box.
const TITLE: usize = 32;
/// The left ends of the columns, the width of a box, its height, and the distance from one to the next.
const COLUMNS: [usize; 3] = [0, 320, 640];
const BOX_WIDTH: usize = 250;
const BOX_HEIGHT: usize = 44;
const ROW: usize = 56;

/// The picture, in units of a pixel.
pub(super) struct TrustDiagram {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) tiles: Vec<DiagramBox>,
    pub(super) arrows: Vec<DiagramArrow>,
    /// Number of boxes without room.
    pub(super) dropped: usize,
}

/// A pointer config, or a certificate.
pub(super) struct DiagramBox {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) title: String,
    pub(super) note: String,
    pub(super) class: &'static str,
}

/// An arrow from a box to the box that it trusts or vouches for.
pub(super) struct DiagramArrow {
    /// Path of SVG.
    pub(super) path: String,
    pub(super) class: &'static str,
}

pub(super) fn picture(map: &TrustMap) -> TrustDiagram {
    let leaf = map.certificates.iter().position(|certificate| certificate.is_leaf);
    let cas = (0..map.certificates.len()).filter(|place| Some(*place) != leaf);
    let rows: Vec<usize> = cas.clone().take(MAX_BOXES).collect();
    let row_of = |place: usize| rows.iter().position(|it| *it == place);
    let top = |row: usize| row * ROW;
    let mut tiles = Vec::new();
    let mut arrows = Vec::new();
    for (row, place) in rows.iter().copied().enumerate().chain(leaf.map(|leaf| (0, leaf))) {
        let certificate = &map.certificates[place];
        let column = if certificate.is_leaf { 2 } else { 1 };
        tiles.push(certificate_box(certificate, COLUMNS[column], top(row)));
        for issuer in certificate.issuers.iter().filter_map(|issuer| row_of(*issuer)) {
            let path = if certificate.is_leaf {
                across(1, top(issuer), top(row))
            } else {
                around(top(issuer), top(row))
            };
            arrows.push(DiagramArrow { path, class: "vouches" });
        }
    }
    for (row, group) in map.groups.iter().take(MAX_BOXES).enumerate() {
        tiles.push(group_box(group, top(row)));
        for ca in group.trusted.iter().filter_map(|ca| row_of(*ca)) {
            arrows.push(DiagramArrow { path: across(0, top(row), top(ca)), class: "trusts" });
        }
    }
    let highest = rows.len().max(map.groups.len().min(MAX_BOXES)).max(1);
    let dropped = cas.count() - rows.len() + map.groups.len().saturating_sub(MAX_BOXES);
    let (width, height) = (COLUMNS[2] + BOX_WIDTH, highest * ROW);
    TrustDiagram { width, height, tiles, arrows, dropped }
}

fn certificate_box(certificate: &TrustedCertificate, x: usize, y: usize) -> DiagramBox {
    let kind = match (certificate.is_leaf, certificate.is_sent) {
        (true, _) => "serving certificate",
        (false, true) => "CA, sent to machines",
        (false, false) => "CA",
    };
    DiagramBox {
        x,
        y,
        title: cut(&certificate.subject, TITLE).into_owned(),
        note: format!("{kind}, until {}", certificate.not_after.date()),
        class: if certificate.is_leaf { "leaf" } else { "ca" },
    }
}

fn group_box(group: &PointerGroup, y: usize) -> DiagramBox {
    let (note, class) = match group.problem {
        Some(_) => ("✗ locked out", "locked-out"),
        None => ("✓ boots", "boots"),
    };
    let title = match &group.names[..] {
        [] => String::new(),
        [name] => cut(name, TITLE).into_owned(),
        [first, more @ ..] => format!("{} and {} more", cut(first, TITLE - 12), more.len()),
    };
    DiagramBox { x: COLUMNS[0], y, title, note: note.to_owned(), class }
}

/// Path from a box to one of the next column.
fn across(column: usize, from: usize, to: usize) -> String {
    let (start, end) = (COLUMNS[column] + BOX_WIDTH, COLUMNS[column + 1]);
    let (from, to, half) =
        (from + BOX_HEIGHT / 2, to + BOX_HEIGHT / 2, usize::midpoint(start, end));
    format!("M{start} {from}C{half} {from} {half} {to} {} {to}", end - 2)
}

/// Path from a box to another one of the middle column.
fn around(from: usize, to: usize) -> String {
    let x = COLUMNS[1] + BOX_WIDTH;
    let (from, to, bend) = (from + BOX_HEIGHT / 3, to + 2 * BOX_HEIGHT / 3, x + 40);
    format!("M{x} {from}C{bend} {from} {bend} {to} {} {to}", x + 2)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn certificate(subject: &str, is_leaf: bool, issuers: &[usize]) -> TrustedCertificate {
        TrustedCertificate {
            subject: subject.to_owned(),
            is_leaf,
            is_sent: is_leaf,
            not_after: datetime!(2036-01-01 0:00 UTC),
            issuers: issuers.to_vec(),
        }
    }

    #[test]
    fn each_arrow_leads_from_a_box_to_what_it_trusts_or_vouches_for() {
        let group = |name: &str, trusted: &[usize], problem: Option<&str>| PointerGroup {
            names: vec![name.to_owned(), "other".to_owned()],
            trusted: trusted.to_vec(),
            problem: problem.map(str::to_owned),
        };
        let map = TrustMap {
            certificates: vec![
                certificate("server", true, &[1]),
                certificate("new CA", false, &[2]),
                certificate("old CA", false, &[]),
            ],
            groups: vec![group("worker", &[1, 2], None), group("edge", &[], Some("no CA"))],
        };
        let picture = picture(&map);
        let arrows = |class: &str| picture.arrows.iter().filter(|it| it.class == class).count();
        assert_eq!((arrows("trusts"), arrows("vouches")), (2, 2));
        let tiles: Vec<_> = picture.tiles.iter().map(|it| (it.class, it.x, it.y)).collect();
        let expected = [
            ("ca", 320, 0),
            ("ca", 320, 56),
            ("leaf", 640, 0),
            ("boots", 0, 0),
            ("locked-out", 0, 56),
        ];
        assert_eq!(tiles, expected);
        assert_eq!(picture.tiles[3].title, "worker and 1 more");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let certificates =
            (0..100).map(|number| certificate(&number.to_string(), number == 0, &[]));
        let map = TrustMap { certificates: certificates.collect(), groups: Vec::new() };
        let picture = picture(&map);
        assert_eq!((picture.tiles.len(), picture.dropped), (MAX_BOXES + 1, 69));
        assert_eq!(picture.height, MAX_BOXES * ROW);
    }
}
