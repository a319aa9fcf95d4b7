//! Kubernetes Secrets in YAML.

/// Returns `true` if a text contains a Secret with data: as a document, or as an item of a list as `kubectl get` prints
/// it.
pub(super) fn has_secret(text: &str) -> bool {
    text.contains("Secret")
        && text.contains("kind:")
        && text.split("\n---").any(|document| {
            let mut item = ManifestItem::default();
            let mut lines = document.lines().filter(|line| !line.trim().is_empty()).peekable();
            while let Some(line) = lines.next() {
                let (indentation, member) = member(line);
                // An item begins; references to other objects within it are indented more.
                let begins = member.len() < line.len() && member.starts_with("apiVersion:");
                if begins && item.kind.or(item.data).is_none_or(|column| indentation <= column) {
                    item = ManifestItem::default();
                }
                let next = lines.peek().map_or(0, |next| indented(next));
                item.read(indentation, member, next);
                if item.kind.is_some() && item.kind == item.data {
                    return true;
                }
            }
            false
        })
}

/// Indentation of an object's kind and data, as far as they were found.
#[derive(Default)]
struct ManifestItem {
    kind: Option<usize>,
    data: Option<usize>,
}

impl ManifestItem {
    fn read(&mut self, indentation: usize, member: &str, next: usize) {
        let Some((name, value)) = member.split_once(':') else { return };
        let value = value.split(" #").next().unwrap_or_default().trim();
        match name {
            "kind" if value.trim_matches(['"', '\'']) == "Secret" => self.kind = Some(indentation),
            "data" | "stringData" => {
                let is_flow = value.starts_with('{') && value != "{}";
                if is_flow || value.is_empty() && next > indentation {
                    self.data = Some(indentation);
                }
            }
            _ => {}
        }
    }
}

/// The column at which a line's contents begin, and these without a list's dash.
fn member(line: &str) -> (usize, &str) {
    let member = line.trim_start_matches([' ', '-']);
    (line.len() - member.len(), member.trim_end())
}

pub(super) fn indented(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
