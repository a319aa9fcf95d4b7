//! The syntax of a systemd unit or drop-in, as far as Ignition checks it (systemd.syntax(7)).
//!
//! Ignition reads units with go-systemd's lexer, and a unit that it does not read keeps a machine from booting. The
//! lexer refuses lines that systemd would cut off, but it only sees those that lie in its buffer when it begins a
//! step. [`Reader`] keeps track of that buffer: a unit that boots machines today is not refused, whatever its lines.

/// Reasons why a text is not a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a section name has no closing bracket")]
    SectionUnclosed,
    #[error("text follows a section name on its line")]
    TextAfterSection,
    #[error("a line in a section has no equals sign")]
    NoValue,
    #[error("a line is longer than the 2048 bytes that systemd reads")]
    LineTooLong,
}

/// Maximum length of a line that systemd reads, in bytes.
const LINE_MAX: usize = 2048;

/// Size of the lexer's buffer in bytes.
const BUFFER: usize = 4096;

/// State of the lexer.
#[derive(Clone, Copy)]
enum State {
    /// Start of a line in a section, or anywhere before the first one.
    Line,
    SectionName,
    AfterSectionName,
    OptionName,
    OptionValue,
    Comment,
}

/// Checks that `contents` is a unit.
pub(super) fn check(contents: &str) -> Result<(), Malformed> {
    let mut reader = Reader { text: contents, position: 0, buffered: 0 };
    let mut state = State::Line;
    // What precedes the first section is skipped.
    let mut in_section = false;
    loop {
        if reader.holds_a_long_line() {
            return Err(Malformed::LineTooLong);
        }
        state = match state {
            State::Line => match reader.next() {
                None => return Ok(()),
                Some('[') => State::SectionName,
                Some('#' | ';') => State::Comment,
                Some(other) if in_section && !other.is_whitespace() => {
                    reader.position -= other.len_utf8();
                    State::OptionName
                }
                Some(_) => State::Line,
            },
            State::SectionName => {
                reader.until(']').ok_or(Malformed::SectionUnclosed)?;
                State::AfterSectionName
            }
            State::AfterSectionName => {
                if !reader.line().trim().is_empty() {
                    return Err(Malformed::TextAfterSection);
                }
                in_section = true;
                State::Line
            }
            State::OptionName => loop {
                match reader.next() {
                    None | Some('\n' | '\r') => return Err(Malformed::NoValue),
                    Some('=') => break State::OptionValue,
                    Some(_) => {}
                }
            },
            State::OptionValue if reader.line().ends_with('\\') => State::OptionValue,
            State::OptionValue => State::Line,
            State::Comment => {
                while without_one(reader.line(), ' ').ends_with('\\') {}
                State::Line
            }
        };
    }
}

/// Removes one trailing `end`.
fn without_one(text: &str, end: char) -> &str {
    text.strip_suffix(end).unwrap_or(text)
}

/// A text behind a buffer of [`BUFFER`] bytes that is refilled when a read runs into its end.
struct Reader<'a> {
    text: &'a str,
    position: usize,
    /// End of the text that was read into the buffer.
    buffered: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<char> {
        let next = self.text[self.position..].chars().next()?;
        let end = self.position + next.len_utf8();
        if end > self.buffered {
            self.fill(self.position);
        }
        self.position = end;
        Some(next)
    }

    /// Reads up to and including `end`, `None` if it is missing.
    fn until(&mut self, end: char) -> Option<&'a str> {
        let read = self.text[self.position..].split_inclusive(end).next()?;
        self.take(read.len());
        read.strip_suffix(end)
    }

    /// Reads the rest of the line, without its end.
    fn line(&mut self) -> &'a str {
        let read = self.text[self.position..].split_inclusive('\n').next().unwrap_or_default();
        self.take(read.len());
        without_one(without_one(read, '\r'), '\n')
    }

    fn take(&mut self, length: usize) {
        let end = self.position + length;
        let mut start = self.position;
        while self.buffered < end {
            if self.buffered - start >= BUFFER {
                start = self.buffered;
            }
            self.fill(start);
        }
        self.position = end;
    }

    fn fill(&mut self, from: usize) {
        self.buffered = self.text.len().min(from + BUFFER);
    }

    fn holds_a_long_line(&self) -> bool {
        let ahead = &self.text.as_bytes()[self.position..self.buffered.max(self.position)];
        ahead.get(..LINE_MAX).is_some_and(|line| !line.iter().any(|b| matches!(b, b'\n' | b'\r')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        for unit in [
            "",
            "anything before a section",
            "[Unit]",
            "[Unit]\nDescription=a = b\n\n# note \\\n more\n; note\n[Install]\r\nWantedBy=multi-user.target\n",
            "[Service]\nExecStart=/bin/sh \\\n  -c x \\\n\nType=oneshot",
            "[Service]\nExecStart=\\",
            "[A\nB]\nc=d",
        ] {
            assert_eq!(check(unit), Ok(()), "{unit:?}");
        }
    }

    #[test]
    fn what_is_not_a_unit_is_refused_with_its_reason() {
        for (unit, reason) in [
            ("[Unit", Malformed::SectionUnclosed),
            ("[Unit] x", Malformed::TextAfterSection),
            ("[Unit]\nDescription", Malformed::NoValue),
            ("[Unit]\nDescription\n=x", Malformed::NoValue),
        ] {
            assert_eq!(check(unit), Err(reason), "{unit:?}");
        }
    }

    #[test]
    fn a_line_that_systemd_would_cut_off_is_refused_where_the_lexer_sees_it() {
        let unit = |before: usize, length: usize| {
            format!("[Unit]\n{}A={}\n", "#\n".repeat(before), "x".repeat(length))
        };
        assert_eq!(check(&unit(0, 2040)), Ok(()));
        assert_eq!(check(&unit(0, 2048)), Err(Malformed::LineTooLong));
        assert_eq!(check(&unit(1500, 2048)), Ok(()), "the buffer ends in the line");
    }
}
