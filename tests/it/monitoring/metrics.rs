//! The metrics that the source registers, by their names on the page, and those that an expression of
//! Prometheus asks for.
//!
//! By the source and not by a page, because a metric that is told apart by labels has no line there
//! before it has happened.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use syn::parse::{Parse, ParseStream};
use syn::visit::Visit;
use syn::{Attribute, Expr, Ident, Item, LitStr, Token, Visibility};

/// What all names begin with.
const PREFIX: &str = "mcs_";

/// A metric as the source registers it.
#[derive(Debug, Clone)]
pub(super) struct Metric {
    /// Without what its kind appends.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// One of each of its labels' values.
    pub(super) is_family: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Metric {
    /// The names of its series.
    pub(super) fn series(&self) -> Vec<String> {
        let suffixes: &[&str] = match self.kind {
            Kind::Counter => &["_total"],
            Kind::Gauge => &[""],
            Kind::Histogram => &["_bucket", "_count", "_sum"],
        };
        suffixes.iter().map(|suffix| format!("{}{suffix}", self.name)).collect()
    }
}

/// Metrics that a file declares, `metrics! { … pub struct Name { field: Type = "name": "help", … } }`.
pub(super) fn registered(file: &Path) -> Vec<Metric> {
    let text = fs::read_to_string(file).expect("a source file");
    let source = syn::parse_file(&text).expect("Rust");
    let declared = source.items.iter().find_map(|item| match item {
        Item::Macro(it) if it.mac.path.is_ident("metrics") => Some(it.mac.parse_body::<Metrics>()),
        _ => None,
    });
    let declared = declared.unwrap_or_else(|| panic!("{} declares nothing", file.display()));
    declared.unwrap_or_else(|error| panic!("{}: {error}", file.display())).0
}

struct Metrics(Vec<Metric>);

impl Parse for Metrics {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        input.parse::<Token![struct]>()?;
        input.parse::<Ident>()?;
        let content;
        syn::braced!(content in input);
        let mut found = Vec::new();
        while !content.is_empty() {
            content.call(Attribute::parse_outer)?;
            content.parse::<Visibility>()?;
            content.parse::<Ident>()?;
            content.parse::<Token![:]>()?;
            let mut words = Words::default();
            words.visit_type(&content.parse()?);
            if content.parse::<Option<Token![=]>>()?.is_some() {
                let name = content.parse::<LitStr>()?.value();
                content.parse::<Token![:]>()?;
                content.parse::<LitStr>()?;
                found.push(words.metric(&name));
            }
            if content.parse::<Option<Token![=>]>>()?.is_some() {
                content.parse::<Expr>()?;
            }
            content.parse::<Token![,]>()?;
        }
        Ok(Self(found))
    }
}

/// All names in a type.
#[derive(Debug, Default)]
struct Words(BTreeSet<String>);

impl Words {
    fn metric(&self, name: &str) -> Metric {
        let has = |word: &str| self.0.contains(word);
        let kind = match () {
            () if has("Counter") => Kind::Counter,
            () if has("Histogram") => Kind::Histogram,
            () if has("Gauge") => Kind::Gauge,
            () => panic!("{name} is of no known kind: {self:?}"),
        };
        Metric { name: format!("{PREFIX}{name}"), kind, is_family: has("Family") }
    }
}

impl<'ast> Visit<'ast> for Words {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.0.insert(ident.to_string());
    }
}

/// The series of this program in an expression.
pub(super) fn asked_for(expression: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = expression.split(|c: char| !is_name(c));
    names.filter(|name| name.starts_with(PREFIX)).map(str::to_owned).collect()
}
