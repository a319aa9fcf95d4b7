//! Tables and colours, in one style for all output to people.
//!
//! Columns are two spaces apart without lines, so that a table can be pasted into a mail and read by `awk`. With a
//! width, long cells are wrapped; without one, as in a pipe, a row is one line.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};

use escape::{cut, escaped};

/// Maximum length of a cell in characters.
const CELL: usize = 2_000;
/// Spaces between two columns.
const GAP: u16 = 2;
/// Width in characters up to which a column is not narrowed.
const NARROW: usize = 12;

/// Capabilities of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Width in characters, `None` for unlimited.
    pub width: Option<u16>,
    /// True if escape sequences for colours are supported.
    pub is_coloured: bool,
}

/// Meaning of a coloured text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// A heading.
    Heading,
    /// A fault, or a removed item.
    Bad,
    /// A good state, or an added item.
    Good,
    /// A remark to look at.
    Notable,
    /// Less important text.
    Faint,
}

impl TerminalStyle {
    /// Style of a pipe or a file.
    pub const PLAIN: Self = Self { width: None, is_coloured: false };

    /// Colours `text`, which must be escaped already.
    pub fn paint(self, ink: Color, text: &str) -> String {
        if !self.is_coloured || text.is_empty() {
            return text.to_owned();
        }
        let code = match ink {
            Color::Heading => "1",
            Color::Bad => "31",
            Color::Good => "32",
            Color::Notable => "33",
            Color::Faint => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Formats rows as [`table`] does, with the cells of `column` that equal `word` in a colour. The columns up to this one
/// must be ASCII, and the word too short to be wrapped.
pub fn table_with_word(
    (names, rows): (&[&str], &[Vec<String>]),
    column: usize,
    (word, ink): (&str, Color),
    look: TerminalStyle,
) -> Vec<String> {
    let plain = TerminalStyle { is_coloured: false, ..look };
    let mut lines = table(names, rows, plain);
    let Some((head, lines_of_rows)) = lines.split_first_mut() else { return lines };
    let start = names.get(column).and_then(|name| head.find(name)).unwrap_or(head.len());
    for line in lines_of_rows {
        let (Some(before), Some(rest)) = (line.get(..start), line.get(start..)) else { continue };
        let Some(after) = rest.strip_prefix(word).filter(|it| it.is_empty() || it.starts_with(' '))
        else {
            continue;
        };
        *line = format!("{before}{}{after}", look.paint(ink, word));
    }
    *head = look.paint(Color::Heading, head);
    lines
}

/// Formats rows below a line with the columns' names. Cells have foreign text: they are escaped here, and cut if they
/// are too long.
pub fn table(names: &[&str], rows: &[Vec<String>], look: TerminalStyle) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(names.iter().copied());
    for row in rows {
        table.add_row(row.iter().map(|cell| escaped(&cut(cell, CELL)).into_owned()));
    }
    table.set_content_arrangement(ContentArrangement::Disabled);
    if let Some(width) = look.width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    let final_column = names.len().saturating_sub(1);
    let widths = table.column_max_content_widths();
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == final_column { 0 } else { GAP }));
        // Short cells and names of columns are not wrapped.
        let name = names.get(index).map_or(0, |name| name.len());
        let widest = usize::from(widths.get(index).copied().unwrap_or_default());
        let padding = usize::from(column.padding_width());
        let narrowest = if widest <= NARROW { widest } else { name.max(NARROW) };
        let narrowest = u16::try_from(narrowest + padding).unwrap_or(u16::MAX);
        if look.width.is_some() {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(narrowest)));
        }
    }
    let mut lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    if let Some(head) = lines.first_mut() {
        *head = look.paint(Color::Heading, head);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        vec![
            row(["/etc/a/file/with/a/long/name/that/goes/on", "0644", "text"]),
            row(["/b", "", "a private key, which is never shown"]),
        ]
    }

    const NAMES: [&str; 3] = ["PATH", "MODE", "WHAT"];

    #[test]
    fn without_a_width_each_row_is_a_line() {
        assert_eq!(
            table(&NAMES, &rows(), TerminalStyle::PLAIN),
            [
                "PATH                                       MODE  WHAT",
                "/etc/a/file/with/a/long/name/that/goes/on  0644  text",
                "/b                                               a private key, which is never shown",
            ]
        );
    }

    #[test]
    fn a_width_is_kept_to_and_nothing_is_lost() {
        for width in [40, 60, 80, 200] {
            let lines =
                table(&NAMES, &rows(), TerminalStyle { width: Some(width), is_coloured: false });
            assert!(lines.iter().all(|line| line.len() <= usize::from(width)), "{lines:#?}");
            assert!(lines[0].starts_with("PATH") && lines[0].ends_with("WHAT"), "{lines:#?}");
            let column = lines[0].find("MODE").unwrap();
            let path: String =
                lines[1..].iter().map(|line| &line[..line.len().min(column)]).collect();
            let path: String = path.split_whitespace().collect();
            assert_eq!(path, "/etc/a/file/with/a/long/name/that/goes/on/b");
        }
    }

    #[test]
    fn a_cell_cannot_write_another_line_or_a_colour() {
        let rows = [vec!["a\n\u{1b}[31mb".to_owned(), "x".repeat(5_000)]];
        let lines = table(&["A", "B"], &rows, TerminalStyle::PLAIN);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].starts_with("a\\n\\u{1b}[31mb  xxx") && lines[1].ends_with("x…"));
    }

    #[test]
    fn one_word_of_one_column_is_painted_however_narrow_the_table_is() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let names = ["ADDRESS", "STATE", "WHY"];
        let rows = [
            row([
                "192.0.2.7",
                "stuck",
                "a reason that is long enough to be wrapped, stuck and more",
            ]),
            row(["192.0.2.8", "booting", "stuck is no state here"]),
        ];
        let red = "\u{1b}[31mstuck\u{1b}[0m";
        for width in [Some(40), Some(80), None] {
            let look = TerminalStyle { width, is_coloured: true };
            let lines = table_with_word((&names, &rows), 1, ("stuck", Color::Bad), look);
            let text = lines.join("\n");
            assert_eq!(text.matches(red).count(), 1, "{text}");
            assert!(lines[1].starts_with(&format!("192.0.2.7  {red} ")), "{text}");
            let plain = TerminalStyle { is_coloured: false, ..look };
            let plain = table_with_word((&names, &rows), 1, ("stuck", Color::Bad), plain);
            assert_eq!(plain, table(&names, &rows, TerminalStyle { width, is_coloured: false }));
        }
    }

    #[test]
    fn only_names_are_painted_and_only_where_it_is_seen() {
        let coloured = TerminalStyle { width: None, is_coloured: true };
        let lines = table(&NAMES, &rows(), coloured);
        assert!(lines[0].starts_with("\u{1b}[1mPATH") && lines[0].ends_with("WHAT\u{1b}[0m"));
        assert_eq!(lines[1..], table(&NAMES, &rows(), TerminalStyle::PLAIN)[1..]);
        assert_eq!(TerminalStyle::PLAIN.paint(Color::Bad, "a"), "a");
        assert_eq!(coloured.paint(Color::Bad, ""), "");
    }
}
