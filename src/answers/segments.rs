//! A body in pieces of memory that other bodies share.
//!
//! What a pool answers in several Ignition specs differs by a version here and there, and in older specs by a
//! field of each file: the long texts, which are nearly all of it, are the same.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// Bytes that a text in a body has at least for it to be shared. Each piece costs as much again as some
/// hundred bytes, and a little time in every answer.
const MIN_SHARED: usize = 4 << 10;

/// The bytes of a body, in one piece or in several.
#[derive(Debug, Clone, Default)]
pub struct Segments {
    pieces: Arc<[Bytes]>,
    len: usize,
}

impl Segments {
    /// `body` in one piece, which others may share.
    pub(super) fn whole(body: Bytes) -> Self {
        Self { len: body.len(), pieces: Arc::from([body]) }
    }

    /// `body`, with what it has in common with `base` from there. In one piece where that is next to
    /// nothing, or all of it.
    pub(super) fn sharing(body: Bytes, base: &Bytes) -> Self {
        if body == base {
            return Self::whole(base.clone());
        }
        let shared = shared(&body, base);
        if shared.iter().map(|it| it.body.len()).sum::<usize>() < MIN_SHARED {
            return Self::whole(body);
        }
        // A slice of `body` would keep all of it in memory.
        let own = |range: Range<usize>| Bytes::copy_from_slice(&body[range]);
        let mut pieces = Vec::with_capacity(2 * shared.len() + 1);
        let mut end = 0;
        for Shared { body, base: from } in shared {
            if end < body.start {
                pieces.push(own(end..body.start));
            }
            end = body.end;
            pieces.push(base.slice(from..from + body.len()));
        }
        if end < body.len() {
            pieces.push(own(end..body.len()));
        }
        Self { pieces: pieces.into(), len: body.len() }
    }

    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it in one piece.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match &*self.pieces {
            [piece] => piece.clone(),
            pieces => pieces.concat().into(),
        }
    }

    /// As the body of a response.
    #[must_use]
    pub fn body(&self) -> Body {
        Body { segments: self.clone(), sent: 0 }
    }
}

/// Where a stretch of one body is in the base.
struct Shared {
    body: Range<usize>,
    base: usize,
}

/// The stretches of `body` that are in `base` too: around each long text that both have, as far as they
/// are the same.
fn shared(body: &[u8], base: &[u8]) -> Vec<Shared> {
    let known: HashMap<&[u8], usize> =
        long_texts(base).map(|range| (&base[range.clone()], range.start)).collect();
    let mut stretches: Vec<Shared> = Vec::new();
    let mut end = 0;
    for text in long_texts(body) {
        // The stretch before may have brought it along.
        if text.start < end {
            continue;
        }
        let Some(&from) = known.get(&body[text.clone()]) else { continue };
        let (before, after) = ((&body[end..text.start], &base[..from]), from + text.len());
        let earlier = same(before.0.iter().rev(), before.1.iter().rev());
        let later = same(body[text.end..].iter(), base[after..].iter());
        end = text.end + later;
        stretches.push(Shared { body: text.start - earlier..end, base: from - earlier });
    }
    stretches
}

/// How many of the first items are the same.
fn same<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// What is between two quotes that follow each other, where it is long. In JSON these are texts, or pieces
/// of them; what else it may be does no harm.
fn long_texts(json: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    json.split(|byte| *byte == b'"').filter_map(move |text| {
        let range = start..start + text.len();
        start = range.end + 1;
        (range.len() >= MIN_SHARED).then_some(range)
    })
}

/// Sends [`Segments`], a piece at a time.
#[derive(Debug)]
pub struct Body {
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

    /// A body with these texts, and something between them.
    fn body(version: &str, texts: &[String]) -> Bytes {
        let texts: Vec<_> = texts.iter().map(|text| format!("{{\"source\":\"{text}\"}}")).collect();
        format!("{{\"version\":\"{version}\",\"files\":[{}]}}", texts.join(",")).into()
    }

    fn text(letter: char) -> String {
        letter.to_string().repeat(MIN_SHARED)
    }

    fn own(segments: &Segments, base: &Bytes) -> usize {
        let memory = base.as_ptr_range();
        let own = segments.pieces.iter().filter(|piece| !memory.contains(&piece.as_ptr()));
        own.map(Bytes::len).sum()
    }

    #[test]
    fn bodies_that_differ_in_a_version_differ_in_a_few_bytes_of_memory() {
        let texts: Vec<String> = ('a'..='f').map(text).collect();
        let (base, other) = (body("3.1.0", &texts), body("3.2.0", &texts));
        let segments = Segments::sharing(other.clone(), &base);
        assert_eq!(segments.to_bytes(), other);
        assert_eq!(segments.pieces.len(), 2);
        assert_eq!(own(&segments, &base), "{\"version\":\"3.2".len());
    }

    #[test]
    fn what_comes_in_another_order_is_shared_text_by_text() {
        let texts: Vec<String> = ('a'..='f').map(text).collect();
        let mut turned = texts.clone();
        turned.reverse();
        let base = body("3.1.0", &texts);
        let segments = Segments::sharing(body("3.1.0", &turned), &base);
        assert_eq!(segments.to_bytes(), body("3.1.0", &turned));
        assert!(own(&segments, &base) < 200, "{}", own(&segments, &base));
    }

    #[test]
    fn what_has_nothing_in_common_stays_in_one_piece() {
        let base = body("3.1.0", &[text('a')]);
        for other in [body("3.1.0", &[text('b')]), Bytes::new(), Bytes::from_static(b"\"")] {
            let segments = Segments::sharing(other.clone(), &base);
            assert_eq!((segments.pieces.len(), segments.to_bytes()), (1, other));
        }
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(
            base in prop::collection::vec((prop::char::range('a', 'c'), 0..3_usize), 0..6),
            other in prop::collection::vec((prop::char::range('a', 'c'), 0..3_usize), 0..6),
        ) {
            let texts = |texts: &[(char, usize)]| -> Vec<String> {
                texts.iter().map(|(letter, times)| text(*letter).repeat(*times)).collect()
            };
            let (base, other) = (body("2.2.0", &texts(&base)), body("3.0.0", &texts(&other)));
            let segments = Segments::sharing(other.clone(), &base);
            prop_assert_eq!(segments.len(), other.len());
            prop_assert_eq!(segments.to_bytes(), other);
        }
    }
}
