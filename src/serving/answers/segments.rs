//! Bodies in pieces of memory that other bodies share.
//!
//! A pool's answers in several Ignition specs differ in a version here and there, and in older specs in a field of each
//! file: the long texts, which are nearly all of it, are the same.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use common::sync::lock;
use http_body::{Frame, SizeHint};

/// Minimum length of a text, in bytes, that is searched in other bodies.
const MIN_TEXT: usize = 512;
/// Minimum length of a shared piece, in bytes. Each piece costs some time in every answer.
const MIN_SHARED: usize = 4 << 10;

/// Pieces of a pool's bodies.
#[derive(Debug, Default)]
pub(super) struct SharedSegments {
    bases: Mutex<Vec<Bytes>>,
    /// Bytes of all pieces.
    held: AtomicUsize,
}

impl SharedSegments {
    /// Splits `body` into pieces, and shares those in earlier ones.
    pub(super) fn segments(&self, body: &Bytes) -> Segments {
        let mut pieces = Vec::new();
        let mut bases = lock(&self.bases);
        let known = bases.clone();
        let mut own = |range: Range<usize>| {
            if range.is_empty() {
                return None;
            }
            // A slice of `body` would keep all of it in memory.
            let all = range.len() == body.len();
            self.held.fetch_add(range.len(), Ordering::Relaxed);
            let piece = if all { body.clone() } else { Bytes::copy_from_slice(&body[range]) };
            if piece.len() >= MIN_SHARED {
                bases.push(piece.clone());
            }
            Some(piece)
        };
        let mut end = 0;
        for SharedRange { at, base, from } in shared_ranges(body, &known) {
            pieces.extend(own(end..at.start));
            pieces.push(known[base].slice(from..from + at.len()));
            end = at.end;
        }
        pieces.extend(own(end..body.len()));
        Segments { pieces: pieces.into(), len: body.len() }
    }

    /// Bytes in memory of all bodies together.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// Bytes of a body, in one or several pieces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    pieces: Arc<[Bytes]>,
    len: usize,
}

impl Segments {
    /// Total number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the body into one piece, unless it is one.
    #[cfg(test)]
    pub(crate) fn to_bytes(&self) -> Bytes {
        match &*self.pieces {
            [piece] => piece.clone(),
            pieces => pieces.concat().into(),
        }
    }

    /// The body of a response.
    pub(crate) fn body(&self) -> Body {
        Body { segments: self.clone(), sent: 0 }
    }
}

impl From<Bytes> for Segments {
    /// A body in one piece, which no other body shares.
    fn from(body: Bytes) -> Self {
        Self { len: body.len(), pieces: [body].into() }
    }
}

/// A range of a body that is in a base too.
struct SharedRange {
    at: Range<usize>,
    base: usize,
    from: usize,
}

/// Finds ranges of `body` that are in the bases too: the longest around each common text.
fn shared_ranges(body: &[u8], bases: &[Bytes]) -> Vec<SharedRange> {
    let mut known: HashMap<&[u8], Vec<(usize, usize)>> = HashMap::new();
    for (number, base) in bases.iter().enumerate() {
        for text in texts(base) {
            known.entry(&base[text.clone()]).or_default().push((number, text.start));
        }
    }
    let mut found: Vec<SharedRange> = Vec::new();
    let mut end = 0;
    for text in texts(body) {
        // The previous range may include it.
        if text.start < end {
            continue;
        }
        let places = known.get(&body[text.clone()]).into_iter().flatten();
        let around = places.map(|&(number, from)| {
            let base = &bases[number];
            let (before, after) = (&body[end..text.start], &body[text.end..]);
            let earlier = same(before.iter().rev(), base[..from].iter().rev());
            let later = same(after.iter(), base[from + text.len()..].iter());
            let at = text.start - earlier..text.end + later;
            SharedRange { at, base: number, from: from - earlier }
        });
        let longest = around.max_by_key(|it| it.at.len());
        if let Some(range) = longest.filter(|it| it.at.len() >= MIN_SHARED) {
            end = range.at.end;
            found.push(range);
        }
    }
    found
}

/// Number of equal first items.
fn same<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// Long texts between two successive quotes. In JSON these are strings or parts of them; other matches do no harm.
fn texts(json: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    json.split(|byte| *byte == b'"').filter_map(move |text| {
        let range = start..start + text.len();
        start = range.end + 1;
        (range.len() >= MIN_TEXT).then_some(range)
    })
}

/// Sends [`Segments`] piece by piece.
#[derive(Debug)]
pub(crate) struct Body {
    segments: Segments,
    sent: usize,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.segments.pieces.get(self.sent).cloned();
        self.sent += 1;
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent >= self.segments.pieces.len()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.segments.pieces.iter().skip(self.sent).map(Bytes::len).sum::<usize>();
        SizeHint::with_exact(left as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A body with these texts, separated by others.
    fn body(version: &str, texts: &[String]) -> Bytes {
        let texts: Vec<_> = texts.iter().map(|text| format!("{{\"source\":\"{text}\"}}")).collect();
        format!("{{\"version\":\"{version}\",\"files\":[{}]}}", texts.join(",")).into()
    }

    fn text(letter: char) -> String {
        letter.to_string().repeat(MIN_SHARED)
    }

    /// Bytes in memory for bodies that are shared in this order.
    fn held(bodies: &[Bytes]) -> (Vec<Segments>, usize) {
        let shared = SharedSegments::default();
        let segments: Vec<_> = bodies.iter().map(|it| shared.segments(it)).collect();
        for (segments, body) in segments.iter().zip(bodies) {
            assert_eq!((&segments.to_bytes(), segments.len()), (body, body.len()));
        }
        let counted = shared.held();
        let bases = shared.bases.into_inner().unwrap();
        let is_own = |piece: &&Bytes| {
            !bases.iter().any(|base| base.as_ptr_range().contains(&piece.as_ptr()))
        };
        let small = segments.iter().flat_map(|it| it.pieces.iter()).filter(is_own).map(Bytes::len);
        let held = bases.iter().map(Bytes::len).sum::<usize>() + small.sum::<usize>();
        assert_eq!(counted, held);
        (segments, held)
    }

    #[test]
    fn bodies_that_differ_in_a_version_differ_in_a_few_bytes_of_memory() {
        let texts: Vec<String> = ('a'..='f').map(text).collect();
        let bodies = ["3.1.0", "3.2.0", "3.10.0"].map(|version| body(version, &texts));
        let (segments, held) = held(&bodies);
        let pieces: Vec<_> = segments.iter().map(|it| it.pieces.len()).collect();
        assert_eq!(pieces, [1, 2, 2]);
        assert!(held < bodies[0].len() + 60, "{held}");
    }

    #[test]
    fn small_files_that_an_older_spec_says_otherwise_are_shared_among_the_newer_ones() {
        let small = |letter: char| letter.to_string().repeat(MIN_TEXT);
        let in_spec_2 = ('a'..='z').map(|letter| small(letter) + "\",\"filesystem\":\"root");
        let in_spec_3: Vec<String> = ('a'..='z').map(small).collect();
        let mut bodies = vec![body("2.2.0", &in_spec_2.collect::<Vec<_>>())];
        bodies.extend(["3.0.0", "3.1.0", "3.2.0"].map(|version| body(version, &in_spec_3)));
        let (_, held) = held(&bodies);
        assert!(held < bodies[0].len() + bodies[1].len() + 100, "{held}");
    }

    #[test]
    fn what_comes_in_another_order_is_shared_text_by_text() {
        let texts: Vec<String> = ('a'..='f').map(text).collect();
        let turned: Vec<String> = texts.iter().rev().cloned().collect();
        let bodies = [texts, turned].map(|texts| body("3.1.0", &texts));
        let (_, held) = held(&bodies);
        assert!(held < bodies[0].len() + 200, "{held}");
    }

    #[test]
    fn what_has_nothing_in_common_stays_in_one_piece() {
        let others = [body("3.1.0", &[text('b')]), Bytes::from_static(b"\"")];
        let (segments, _) = held(&[&[body("3.1.0", &[text('a')])], &others[..]].concat());
        assert!(segments.iter().all(|it| it.pieces.len() == 1));
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(
            bodies in prop::collection::vec(
                prop::collection::vec((prop::char::range('a', 'c'), 0..3_usize), 0..6), 1..5),
        ) {
            let texts = |texts: &[(char, usize)]| -> Vec<String> {
                texts.iter().map(|(letter, times)| text(*letter).repeat(*times)).collect()
            };
            let bodies: Vec<_> = bodies.iter().map(|it| body("3.0.0", &texts(it))).collect();
            held(&bodies);
        }
    }
}
