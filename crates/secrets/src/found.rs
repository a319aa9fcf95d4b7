//! Result of a search: kinds of secrets, and their positions in the text.

use std::collections::BTreeSet;
use std::ops::Range;

use super::kind::SecretKind;

/// The findings of one text.
#[derive(Debug, Default)]
pub(super) struct SearchFindings {
    pub(super) kinds: BTreeSet<SecretKind>,
    /// Byte ranges of the secrets in the text itself, in any order.
    pub(super) spans: Vec<Range<usize>>,
    /// True if a finding has no span, because it is in a text within this one.
    pub(super) is_within: bool,
}

impl SearchFindings {
    /// Adds a range of the text.
    pub(super) fn add(&mut self, kind: SecretKind, span: Range<usize>) {
        self.kinds.insert(kind);
        self.spans.push(span);
    }

    /// Adds findings without a range in the text itself.
    pub(super) fn add_within(&mut self, kinds: impl IntoIterator<Item = SecretKind>) {
        let before = self.kinds.len();
        self.kinds.extend(kinds);
        self.is_within |= self.kinds.len() > before;
    }
}

/// A fixed text, in any case, that a secret can begin with or contain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark<'a> {
    /// The text around the mark.
    pub(super) text: &'a str,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl<'a> Mark<'a> {
    /// Returns `true` if the mark is written exactly so.
    pub(super) fn is(self, written: &str) -> bool {
        &self.text[self.start..self.end] == written
    }

    /// The byte before the mark.
    pub(super) fn before(self) -> Option<u8> {
        self.text[..self.start].bytes().next_back()
    }

    /// The mark and the text after it.
    pub(super) fn with_after(self) -> &'a str {
        &self.text[self.start..]
    }

    /// The text after the mark.
    pub(super) fn after(self) -> &'a str {
        &self.text[self.end..]
    }

    /// The range of `part`, a slice of the text.
    pub(super) fn only(self, part: &str) -> Range<usize> {
        span(self.text, part)
    }

    /// The range from the mark to the end of `part`, a slice of the text.
    pub(super) fn through(self, part: &str) -> Range<usize> {
        self.start..span(self.text, part).end
    }
}

/// The range of `part` in `text`, of which it is a slice.
pub(super) fn span(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    start..start + part.len()
}

/// The longest prefix of `text` of at most `most` bytes that all satisfy `is_part`.
pub(super) fn run(text: &str, most: usize, is_part: impl Fn(u8) -> bool) -> &str {
    let bytes = text.as_bytes().iter().take(most);
    let end = bytes.take_while(|byte| byte.is_ascii() && is_part(**byte)).count();
    &text[..end]
}

/// The prefix of a text, of at most `most` bytes.
pub(super) fn start(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Returns `true` if a text has capital letters, small letters and digits, as random ones do.
pub(super) fn is_mixed(text: &str) -> bool {
    let sorts = [u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit];
    sorts.iter().all(|is: &fn(&u8) -> bool| text.as_bytes().iter().any(is))
}
